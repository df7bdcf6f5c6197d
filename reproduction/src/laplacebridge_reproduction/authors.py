"""The page for the authors of the paper, made of the committed numbers.

python -m laplacebridge_reproduction.authors docs/reproduction docs/authors.md
"""

import json
import sys
from pathlib import Path

import numpy as np

from laplacebridge_reproduction import table1_ood, table5_timing
from laplacebridge_reproduction.artifact import Result
from laplacebridge_reproduction.figure4_limits import AUTHORS
from laplacebridge_reproduction.figure5_measured import time_factor
from laplacebridge_reproduction.table import Table
from laplacebridge_reproduction.votes import DEFAULT, ONE_TOTAL, SCALED

SHOWN_VOTES = (
    "MAP",
    SCALED,
    "LB, diagonal",
    "LB-norm, diagonal",
    "KL, diagonal",
    "race, diagonal",
    "LB, Kronecker",
    "LB-norm, Kronecker",
    "race, Kronecker",
    DEFAULT,
    ONE_TOTAL,
)


def page(results: dict[str, Result]) -> str:
    """The page.

    Args:
        results: What was computed, by the name of the table or figure.
    """
    return (
        "\n\n".join(
            [
                "# For the authors of the paper",
                (
                    "What we would show Marius Hobbhahn, Agustinus Kristiadi and Philipp Hennig first. Every"
                    " number comes from the JSON files of [the reproduction](reproduction.md), by"
                    " `python -m laplacebridge_reproduction.authors`."
                ),
                *_gaussians(results),
                *_samples(results),
                *_votes(results),
                *_causes(results),
                *_theirs(results),
                *_open(results),
            ]
        )
        + "\n"
    )


def _gaussians(results: dict[str, Result]) -> list[str]:
    cases = [case for case in results["figure4"]["cases"] if case["whose"] == AUTHORS]
    bridges = list(cases[0]["bridges"])
    limits = Table(
        ["Figure 4: mean, variance of the log-odds", "E π₁ in truth", *bridges],
        [
            [
                f"{case['mean']:.2f}, {case['variance']:.1f}",
                f"{case['expected']:.3f}",
                *(
                    f"{one['alpha'] / (one['alpha'] + one['beta']):.3f}"
                    for one in case["bridges"].values()
                ),
            ]
            for case in cases
        ],
    )
    names = ["LB as in the figure", "LB", "LB-norm", "race", "KL"]
    divergences = Table(
        ["Figure 5: KL from 100 000 samples", *names],
        [
            [entry["name"], *(f"{entry['bridges'][name]['kl']:.3f}" for name in names)]
            for entry in results["figure5"]["gaussians"]
        ],
    )
    return [
        "## Your own Gaussians",
        (
            "The two of the limitation notebook and the three of the KL figure. The race fits means and"
            " spreads, so it has the means; by divergence between densities the bridge that minimises"
            " it, KL, is the closest of ours, and whether LB or the race is closer depends on the"
            " Gaussian."
        ),
        limits.markdown(),
        divergences.markdown(),
    ]


def _samples(results: dict[str, Result]) -> list[str]:
    over_samples, over_norm = (
        table1_ood.race_above(results["table1"], other) for other in ("MC", "LB-norm")
    )
    above = sum(gain.low > 0 for gain in over_samples.values())
    lost = {place: gain for place, gain in over_norm.items() if gain.high < 0}
    seconds = results["table5"]["classes"]["10"]["split"]["one thread"]["seconds"]
    ratio = seconds["race"]["median"] / seconds["MC(100)"]["median"]
    rows = [[place, str(gain), str(over_norm[place])] for place, gain in over_samples.items()]
    return [
        "## Six of six, and the two that LB-norm wins",
        (
            f"Your MNIST table on {len(results['table1']['MNIST']['seeds'])} networks, none left out."
            f" The race detects better than 100 samples in {above} of {len(over_samples)} settings,"
            f" each with its interval above zero, in {ratio:.2g} times their time (10 classes, batches"
            f" of 128, one thread). The gains are small; the point is that no sampling is left. LB-norm"
            f" detects better still in {len(lost)} settings, both with Kronecker posteriors:"
            f" {' and '.join(place.split(',')[0] for place in lost)}."
        ),
        Table(["setting", "race above 100 samples, AUROC", "race above LB-norm"], rows).markdown(),
    ]


def _votes(results: dict[str, Result]) -> list[str]:
    found = {name: one for name, one in results["votes"].items() if not one.get("missing")}
    rows = [
        [
            method,
            *(f"{one['methods'][method]['nats_per_vote']:.3f}" for one in found.values()),
            *(f"{one['methods'][method]['cross_entropy']:.3f}" for one in found.values()),
        ]
        for method in SHOWN_VOTES
    ]
    headings = ["", *(f"{name}, nats per vote" for name in found)]
    headings += [f"{name}, cross-entropy of the mean" for name in found]
    return [
        "## Human votes: a test of the Dirichlet itself",
        (
            "About fifty people labelled each test image of CIFAR-10 (CIFAR-10H). The probability of"
            " their votes under the Dirichlet judges the distribution, which is what the bridge is for"
            " and what no table of means can judge. Posteriors as in your CIFAR-10 table; only the last"
            " row saw votes, of other images."
        ),
        Table(headings, rows).markdown(),
    ]


def _causes(results: dict[str, Result]) -> list[str]:
    values = results["table1"]["MNIST"]["values"]["diagonal"]["KMNIST"]
    spread = {name: np.ptp(values[name]["auroc"]) for name in ("LB", "LB, centred")}
    collapsed = results["table6"]["MNIST"]
    variances = collapsed["variances"]["Kronecker"]["MNIST"]
    common = 1 - np.mean(variances["centred"]) / np.mean(variances["as they are"])
    confidence = {
        name: np.mean(collapsed["values"]["Kronecker"]["MNIST"][name]["mmc"])
        for name in ("probit", "probit, centred")
    }
    return [
        "## Two causes, and the notes",
        (
            "- **Eq. 11 conditions where softmax marginalises.** The answer then depends on a constant"
            f" added to all logits, which is arbitrary: LB's AUROC on KMNIST varies by"
            f" {spread['LB']:.3f} between networks, and by {spread['LB, centred']:.3f} with centring"
            " (`zero_sum=lb.bridges.center`). For Kronecker posteriors both are the same.\n"
            f"- **The collapse of the probit approximation is common variance.** {common:.2%} of the"
            " variance of the logits under a Kronecker posterior is common to all, which softmax cannot"
            f" see; without it the confidence on MNIST is {confidence['probit, centred']:.3f} instead of"
            f" {confidence['probit']:.3f}."
        ),
        (
            "[The notes on the paper](paper-notes.md) have every misprint and ambiguity that we met,"
            " with what we chose."
        ),
    ]


def _theirs(results: dict[str, Result]) -> list[str]:
    gaussians = results["figure5"]["gaussians"]
    factors = {
        batch: [time_factor(entry, "LB as in the figure", batch) for entry in gaussians]
        for batch in (1, 1000)
    }
    told = {
        batch: ", ".join(
            "no number" if one is None else f"{one:.2g}" if one < 100 else f"{one:.0f}"
            for one in found
        )
        for batch, found in factors.items()
    }
    faster = [
        where
        for where, seconds in table5_timing.timings(results["table5"]).items()
        if table5_timing.over_one_sample(seconds, "LB") < 1
    ]
    return [
        "## What remains yours",
        (
            "- The idea: a Dirichlet in closed form behind any Gaussian over logits. Everything here is"
            " built on it.\n"
            "- The fastest bridge. The samples that come closer to your three Gaussians take"
            f" {told[1000]} times the time of Eq. 7 in batches of 1000, and {told[1]} times for a"
            f" Gaussian by itself. LB with its zero-sum step is faster than a single sample at"
            f" {'; '.join(faster) if faster else 'no size that we timed'}.\n"
            "- LB-norm as a detector with Kronecker posteriors, as above."
        ),
    ]


def _open(results: dict[str, Result]) -> list[str]:
    own = results["table1"]["MNIST"]["values"]["diagonal"]["MNIST"]
    nll, ece = (
        (np.mean(own["MAP"][metric]), np.mean(own["race"][metric])) for metric in ("nll", "ece")
    )
    return [
        "## What we would ask",
        (
            "- The prior of the MNIST tables helps detection and harms calibration on MNIST itself: NLL"
            f" from {nll[0]:.3f} to {nll[1]:.3f}, ECE from {ece[0]:.3f} to {ece[1]:.3f} with a diagonal"
            " posterior, by samples and by the race alike. Was that weighed?\n"
            "- SVHN, ResNet-18 and ImageNet were never run here for want of data:"
            " [the reproduction](reproduction.md) has the one command."
        ),
    ]


def main(folder: str, target: str) -> None:
    """Writes the page.

    Args:
        folder: Where the JSON files lie.
        target: The page.
    """
    records = [json.loads(path.read_text(encoding="utf-8")) for path in Path(folder).glob("*.json")]
    results = {record["artifact"]: record["result"] for record in records}
    Path(target).write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
