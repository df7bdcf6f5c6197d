"""The verdict says what the table shows, and recommends the simplest method that
nothing clearly beats.
"""

import pytest
import torch
from cases import seeded

from laplacebridge.metrics import Interval
from laplacebridge.report import Row, verdict


def row(method, losses, auroc=None, half_width=0.01):
    interval = (
        None if auroc is None else Interval(auroc, auroc - half_width, auroc + half_width, 0.95)
    )
    losses = torch.tensor(losses, dtype=torch.float64)
    return Row(method, 0.9, float(losses.mean()), 0.05, 0.1, interval, 1.1, 0.95, 0.01, 5.0, losses)


@pytest.mark.parametrize(
    ("bridge", "expected"),
    [
        (0.1, "better than the network alone"),
        (0.5, "as well as the network alone, within chance"),
        (0.9, "worse than the network alone"),
    ],
    ids=["better", "same", "worse"],
)
def test_the_verdict_says_whether_the_bridge_is_better_than_the_network(bridge, expected):
    noise = (0.01 * torch.randn(50, generator=seeded(6))).tolist()
    rows = [row("MAP", [0.5 + e for e in noise]), row("race", [bridge - e for e in noise])]
    assert f"predicts labels {expected}: a negative" in verdict(rows)


def test_the_verdict_says_so_when_something_simpler_does_as_well():
    losses = [0.1, 0.2, 0.3, 0.2]
    rows = [
        row("MAP", [loss + 1 for loss in losses], 0.8),
        row("temperature", losses, 0.9),
        row("MC-1000", [loss + 1 for loss in losses], 0.7),
        row("race", losses, 0.85),
    ]
    said = verdict(rows)
    assert "Temperature scaling does as well here (0.200)" in said
    assert "1000 Monte Carlo samples do worse here (1.200)" in said
    assert "AUROC of 0.850 (0.840 to 0.860)" in said
    assert "best is temperature with 0.900" in said


def recommendation(rows):
    """The last line of the verdict."""
    return verdict(rows).splitlines()[-1]


NOISE = [0.01 * (-1) ** place for place in range(50)]


def method(name, nll, auroc=None):
    """A row whose losses differ from those of another method clearly, if their means
    differ by 0.1.
    """
    sign = 1 if name in {"MAP", "laplace"} else -1
    return row(name, [nll + sign * noise for noise in NOISE], auroc)


@pytest.mark.parametrize(
    ("rows", "advice"),
    [
        ([("MAP", 0.5), ("race", 0.5)], "keep the network's own probabilities;"),
        ([("MAP", 0.5), ("race", 0.9)], "keep the network's own probabilities;"),
        ([("MAP", 0.5), ("race", 0.4)], "use the race bridge's Dirichlet;"),
        ([("MAP", 0.5), ("temperature", 0.4), ("race", 0.4)], "use temperature scaling;"),
        ([("MAP", 0.5), ("temperature", 0.4), ("race", 0.3)], "use the race bridge's Dirichlet;"),
        ([("MAP", 0.5), ("race", 0.4), ("MC-1000", 0.3)], "use 1000 Monte Carlo samples;"),
        ([("MAP", 0.5), ("race", 0.4), ("laplace", 0.3)], "use the method laplace;"),
        (
            [("MAP", 0.5, 0.80), ("temperature", 0.5, 0.81), ("race", 0.5, 0.81)],
            "keep the network's own probabilities, also for OOD detection;",
        ),
        (
            [("MAP", 0.5, 0.80), ("temperature", 0.4, 0.80), ("race", 0.4, 0.9)],
            "use the race bridge's Dirichlet, also for OOD detection;",
        ),
        (
            [("MAP", 0.5, 0.80), ("temperature", 0.3, 0.80), ("race", 0.4, 0.9)],
            (
                "use temperature scaling for probabilities and the race bridge's Dirichlet for OOD"
                " detection;"
            ),
        ),
        (
            [("MAP", 0.5, 0.90), ("race", 0.4, 0.8)],
            (
                "use the race bridge's Dirichlet for probabilities and the network's own"
                " probabilities for OOD detection;"
            ),
        ),
    ],
    ids=[
        "all alike",
        "bridge worse",
        "bridge better",
        "temperature as good as the bridge",
        "bridge better than temperature",
        "samples better than the bridge",
        "another row better",
        "all alike, OOD detection too",
        "bridge as good, and better for OOD detection",
        "one for each",
        "one for each, network for OOD detection",
    ],
)
def test_the_recommendation_is_the_simplest_method_that_nothing_clearly_beats(rows, advice):
    table = [method(*of_row) for of_row in rows]
    assert recommendation(table).startswith(f"Recommendation: {advice}")


def test_differences_within_chance_do_not_change_the_recommendation():
    """The bridge is better on average, but by less than two standard errors; and the
    intervals of the AUROC overlap.
    """
    gains = torch.linspace(-1, 1.2, 50)
    rows = [row("MAP", (gains + 2).tolist(), 0.80), row("race", [2.0] * 50, 0.81)]
    assert rows[1].nll < rows[0].nll
    assert "keep the network's own" in recommendation(rows)


def test_a_label_without_any_chance_counts_however_few_there_are():
    rows = [row("MAP", [0.1] * 49 + [float("inf")]), row("race", [0.3] * 50)]
    assert "use the race bridge's Dirichlet" in recommendation(rows)
    assert "better than the network alone" in verdict(rows)


@pytest.mark.parametrize(
    "best", [0.45, 0.52, 0.54], ids=["worse than chance", "chance", "hardly better"]
)
def test_no_method_is_recommended_for_ood_inputs_that_none_tells_apart(best):
    """However clearly one of them beats the others."""
    rows = [
        row("MAP", [0.5] * 50, 0.40, 0.001),
        row("race", [0.5] * 50, 0.41, 0.001),
        row("kl", [0.5] * 50, best, 0.001),
    ]
    assert (
        recommendation(rows)
        == "Recommendation: keep the network's own probabilities; here they are as good as any. No"
        " method here tells these OOD inputs apart: no AUROC is clearly above 0.5, which is"
        " chance."
    )


def test_a_method_near_chance_is_not_recommended_for_ood_inputs_even_if_nothing_clearly_beats_it():
    rows = [row("MAP", [0.5] * 50, 0.60, 0.08), row("race", [0.5] * 50, 0.66, 0.06)]
    assert recommendation(rows).startswith(
        "Recommendation: use the race bridge's Dirichlet, also for OOD detection;"
    )
    clear = [row("MAP", [0.5] * 50, 0.66, 0.08), row("race", [0.5] * 50, 0.66, 0.06)]
    assert recommendation(clear).startswith(
        "Recommendation: keep the network's own probabilities, also for OOD detection;"
    )
