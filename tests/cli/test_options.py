"""Options that commands share: names of methods, seeds, and names that were changed."""

import pytest
from cli_project import fails

from laplacebridge.bridges import BRIDGES
from laplacebridge.cli import options
from laplacebridge.cli.fit import CURVATURES
from laplacebridge.laplace.head_posteriors import POSTERIORS
from laplacebridge.laplace.head_posteriors.label_blocks import LabelBlocks


def test_every_bridge_and_every_curvature_of_the_library_can_be_chosen(call):
    # several labels at once are for Python alone
    assert set(CURVATURES.values()) == set(POSTERIORS) - {LabelBlocks}
    assert [choice.value for choice in options.BridgeName] == list(BRIDGES)
    shown = call("fit", "--help").stdout.replace("\n", " ")
    assert all(name in shown for name in (*BRIDGES, *CURVATURES))


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [
        (("report", "{classifier}", "test.npz"), ("--outside", "held_out.npz"), "--ood"),
        (
            ("decide", "{prediction}", "--calibrate", "{prediction}"),
            ("--coverage", "0.9"),
            "--answer-share",
        ),
        (
            ("fit", "train.npz", "--head-only", "head.npz", "-o", "c.pt"),
            ("--temperature",),
            "--tune-temperature",
        ),
    ],
    ids=["report --outside", "decide --coverage", "fit --temperature"],
)
def test_an_option_that_was_renamed_is_hidden_and_tells_its_new_name(
    call, fitted, prediction, command, old, new
):
    arguments = [part.format(classifier=fitted.path, prediction=prediction) for part in command]
    fails(call(*arguments, *old), 2, f"'{old[0]}'", f"is called {new} now.")
    shown = call(arguments[0], "--help").stdout
    assert f" {new} " in shown
    assert f" {old[0]} " not in shown


@pytest.mark.parametrize(
    "command", ["demo", "bench", "fit train.npz --head-only head.npz -o c.safetensors"]
)
def test_a_seed_beyond_what_generators_take_is_refused(call, command):
    fails(call(*command.split(), "--seed", str(10**23)), 2, "'--seed'", "4294967295")
