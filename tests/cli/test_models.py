"""Networks, weights and saved classifiers that the user names."""

import numpy as np
import pytest
import torch
from cli_project import MODEL, fails, files_in, records
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import laplacebridge as lb
from laplacebridge.cli.models import load_weights


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_weights_of_wrapped_networks_are_understood(call, folder, trained, tmp_path, prefix):
    save_file(
        {f"{prefix}{key}": value for key, value in trained.state_dict().items()},
        tmp_path / "w.safetensors",
    )
    weights = ("--model", "project_code:network", "--weights", tmp_path / "w.safetensors")
    result = call("fit", "train.npz", *weights, "-o", tmp_path / "c.safetensors")
    assert result.exit_code == 0, result.output
    assert lb.load(tmp_path / "c.safetensors", trained).num_classes == 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile itself
def test_weights_go_to_networks_that_wrap_others_or_a_part(tmp_path):
    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.module, self.head = nn.Linear(3, 2), nn.Linear(2, 2)

    compiled_part = Small()
    compiled_part.module = torch.compile(compiled_part.module)
    makers = [Small, lambda: nn.DataParallel(Small()), lambda: torch.compile(Small())]
    for trained in [*(make() for make in makers), compiled_part]:
        torch.save(trained.state_dict(), tmp_path / "weights.pt")
        for make in makers:
            network = make()
            load_weights(network, tmp_path / "weights.pt")
            for found, expected in zip(network.parameters(), trained.parameters()):
                assert found.equal(expected)


def test_names_that_differ_by_a_wrapper_alone_stay_apart(tmp_path):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(2))
            self.module = nn.Module()
            self.module.weight = nn.Parameter(torch.ones(2))

    torch.save(Twice().state_dict(), tmp_path / "weights.pt")
    network = Twice()
    with torch.no_grad():
        network.weight.fill_(7)
    load_weights(network, tmp_path / "weights.pt")
    assert network.weight.tolist() == [0, 0]
    assert network.module.weight.tolist() == [1, 1]


def test_a_head_alone_is_fitted_to_features_like_its_network_to_inputs(
    call, fitted, expected, tmp_path
):
    path = tmp_path / "head.safetensors"
    assert call("fit", "train_features.npz", "--head-only", "head.npz", "-o", path).exit_code == 0
    for classifier in (path, fitted.path):
        result = call("predict", classifier, "test_features.npz", "--head-only", "head.npz", "-q")
        assert result.exit_code == 0, result.output
        found = [row["log_total"] for row in records(result.stdout)]
        np.testing.assert_allclose(found, expected.log_total, rtol=1e-3)


def test_damaged_weights_are_refused(run, folder, tmp_path):
    (tmp_path / "cut.pt").write_bytes((folder / "weights.pt").read_bytes()[:700])
    result = run(
        *("fit", "train.npz", "--model", "project_code:network", "--weights", tmp_path / "cut.pt"),
        *("-o", tmp_path / "c.safetensors"),
    )
    fails(result, 1, "cut.pt cannot be read as a state dict")
    assert files_in(tmp_path) == ["cut.pt"]


def test_pickled_models_are_never_unpickled(call, tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "model.pt")
    result = call(
        "fit",
        "train.npz",
        *MODEL[:2],
        "--weights",
        tmp_path / "model.pt",
        "-o",
        tmp_path / "c.safetensors",
    )
    fails(result, 1, "never unpickled", "model.state_dict()")


def test_a_classifier_of_another_model_is_refused(run, fitted, tmp_path):
    torch.save(
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).state_dict(),
        tmp_path / "other.pt",
    )
    weights = ("--model", "project_code:network", "--weights", tmp_path / "other.pt")
    result = run("predict", fitted.path, "test.npz", *weights, "-o", tmp_path / "p.jsonl")
    fails(result, 1, "belongs to another model", "Load the weights that it was fitted to")
    assert files_in(tmp_path) == ["other.pt"]


def test_the_counters_of_batch_normalisation_may_be_missing_as_torch_allows(call, tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        state = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).state_dict()
    torch.save(
        {name: value for name, value in state.items() if "num_batches" not in name},
        tmp_path / "old.pt",
    )
    model = ("--model", "project_code:normalised_network", "--weights", tmp_path / "old.pt")
    options = ("--prior-precision", "1", "-o", tmp_path / "c.safetensors")
    result = call("fit", "train.npz", *model, *options)
    assert result.exit_code == 0, result.output
    head = lb.checkpoint.SavedClassifier.read(tmp_path / "c.safetensors").head()
    assert torch.equal(head.weight, state["2.weight"])


def test_other_missing_weights_are_named(call, trained, tmp_path):
    state = trained.state_dict()
    torch.save(
        {name: value for name, value in state.items() if name != "2.bias"}, tmp_path / "cut.pt"
    )
    model = ("--model", "project_code:network", "--weights", tmp_path / "cut.pt")
    fails(
        call("fit", "train.npz", *model, "-o", tmp_path / "c.safetensors"),
        1,
        "lacks '2.bias'",
        "the factory of",
    )


@pytest.mark.parametrize(
    "command",
    [
        ("predict", "{classifier}", "test_features.npz"),
        ("predict", "{classifier}", "test.npz", *MODEL),
        ("predict", "{classifier}", "test_features.npz", "--head-only", "head.npz"),
        ("info", "{classifier}"),
    ],
    ids=["features", "model", "head", "info"],
)
def test_a_saved_classifier_is_opened_once(call, fitted, monkeypatch, command):
    opened = []

    def counted(path, **settings):
        opened.append(path)
        return safe_open(path, **settings)

    monkeypatch.setattr("laplacebridge._files.safe_open", counted)
    assert call(*(part.format(classifier=fitted.path) for part in command)).exit_code == 0
    assert opened == [fitted.path]
