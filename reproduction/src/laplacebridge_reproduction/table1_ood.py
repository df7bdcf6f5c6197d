"""Table 1: detecting unusual data with last-layer posteriors, by the network itself, by
sampling, by the paper's bridges and by ours.
"""

import numpy as np

from laplacebridge_reproduction.artifact import Artifact, Result, Run
from laplacebridge_reproduction.last_layer import (
    NOT_AVAILABLE,
    REFERENCES,
    Difference,
    detection_gain,
    names,
    paired,
    result_of,
    shown,
    shown_stored,
)
from laplacebridge_reproduction.stored import Cell, stored
from laplacebridge_reproduction.table import Table

PAPER_METHODS = ("MC", "LB", "LB-norm")
METHODS = ("MAP", "MC", "LB", "LB, centred", "LB-norm", "race", "one-vs-rest")
COMPARED = ("MC", "LB", "LB-norm", "race", "one-vs-rest")
METRICS = {
    "auroc": "AUROC (higher is better)",
    "ece": "ECE against the labels of unusual data (lower is better)",
}
CLOSE = 0.02  # difference of AUROC that counts as agreement


def compute(run: Run) -> Result:
    """Every experiment."""
    return {name: result_of(run, name) for name in names(run)}


def tables(result: Result) -> list[Table]:
    """AUROC and ECE beside the stored ones; differences from the network and from
    sampling; the network's own data; then the networks behind them.
    """
    return [
        *(_table(result, metric, title) for metric, title in METRICS.items()),
        *(_gains(result, other) for other in REFERENCES),
        _own_data(result),
        networks_table(result),
    ]


def _table(result: Result, metric: str, title: str) -> Table:
    rows = []
    for train, experiment in result.items():
        if experiment.get("missing"):
            rows.append([f"{train} → any", NOT_AVAILABLE, *[""] * (len(METHODS) - 1)])
            continue
        for structure, test, found in _settings(experiment, train):
            rows.append(
                [
                    f"{train} → {test}, {structure}",
                    *(shown(found[name][metric]) for name in METHODS),
                ]
            )
            cells = [shown_stored(_cell(train, structure, name, test, metric)) for name in METHODS]
            if any(cell != "-" for cell in cells):
                rows.append(["*stored by the authors*", *cells])
        rows += [
            [f"{train} → {test}", NOT_AVAILABLE, *[""] * (len(METHODS) - 1)]
            for test in experiment["missing_tests"]
        ]
    return Table([title, *METHODS], rows)


def _cell(train: str, structure: str, method: str, test: str, metric: str) -> Cell:
    return Cell(train, "" if method == "MAP" else structure, method, test, metric)


def _settings(experiment: Result, train: str) -> list[tuple[str, str, Result]]:
    """Structure, unusual data and values by method."""
    return [
        (structure, test, found)
        for structure, tests in experiment["values"].items()
        for test, found in tests.items()
        if test != train
    ]


def _gains(result: Result, other: str) -> Table:
    methods = [name for name in COMPARED if name != other]
    rows = [
        [
            f"{train} → {test}, {structure}",
            *(str(detection_gain(found, name, other)) for name in methods),
        ]
        for train, experiment in result.items()
        if not experiment.get("missing")
        for structure, test, found in _settings(experiment, train)
    ]
    title = {"MAP": "the network alone", "MC": "100 samples"}[other]
    caption = (
        f"AUROC above that of {title}, with paired 95 % intervals: over networks for MNIST, and"
        " over images, by DeLong's formula, where there is one network."
    )
    return Table([f"AUROC above {title}", *methods], rows, caption)


def _own_data(result: Result) -> Table:
    rows = []
    for train, experiment in result.items():
        if experiment.get("missing"):
            continue
        for structure, tests in experiment["values"].items():
            for metric, title in (("nll", "NLL"), ("ece", "ECE")):
                cells = [shown(tests[train][name][metric]) for name in METHODS]
                rows.append([f"{train}, {structure}: {title}", *cells])
                known = [
                    shown_stored(_cell(train, structure, name, train, metric)) for name in METHODS
                ]
                if any(cell != "-" for cell in known):
                    rows.append(["*stored by the authors*", *known])
    return Table(["the network's own test data", *METHODS], rows)


def networks_table(result: Result) -> Table:
    """Accuracy of the networks."""
    rows = []
    for train, experiment in result.items():
        if experiment.get("missing"):
            continue
        accuracies = experiment["values"]["diagonal"][train]["MAP"]["accuracy"]
        used = ", ".join(
            f"{seed}: {value:.2%}" for seed, value in zip(experiment["seeds"], accuracies)
        )
        rows.append([train, used, experiment["note"]])
    return Table(["networks", "accuracy by seed", "note"], rows)


def comparisons(
    result: Result, train: str = "MNIST", metric: str = "auroc"
) -> list[tuple[Cell, list[float], float]]:
    """Where the authors stored a number of one of the paper's methods: the place, our
    numbers, and theirs.
    """
    found = []
    for structure, tests in result[train]["values"].items():
        for test, methods in tests.items():
            for name in PAPER_METHODS:
                cell = Cell(train, structure, name, test, metric)
                known = stored(cell)
                if known is not None and metric in methods[name]:
                    found.append((cell, methods[name][metric], known))
    return found


def race_above(result: Result, other: str) -> dict[str, Difference]:
    """By how much the race detects better than another method on MNIST, by setting."""
    return {
        f"{test}, {structure}": paired(found["race"]["auroc"], found[other]["auroc"])
        for structure, test, found in _settings(result["MNIST"], "MNIST")
    }


def finding(result: Result) -> str:
    """What agrees and what does not."""
    if "MNIST" not in result or result["MNIST"].get("missing"):
        return (
            "Generated data, or data that is not available here: nothing to compare with the paper."
        )
    return " ".join(
        [_agreement(result), _order(result), _calibration(result), _cause(result), _cifar(result)]
    )


def _agreement(result: Result) -> str:
    compared = comparisons(result)
    apart = [(cell, float(np.mean(values)) - known) for cell, values, known in compared]
    close = [difference for _, difference in apart if abs(difference) <= CLOSE]
    inside = [known for _, values, known in compared if min(values) <= known <= max(values)]
    far = [
        f" {cell.method} on {cell.test}, {cell.structure}: {difference:+.3f}."
        for cell, difference in apart
        if abs(difference) > CLOSE
    ]
    return (
        f"MNIST, {len(compared[0][1])} networks, none left out: {len(close)} of"
        f" {len(compared)} mean AUROCs are within {CLOSE} of the stored ones; {len(inside)} stored"
        f" ones lie within the range of our networks.{''.join(far)}"
    )


def _order(result: Result) -> str:
    """Who detects better than whom on MNIST."""
    over_samples, over_norm, over_map = (
        race_above(result, other) for other in ("MC", "LB-norm", "MAP")
    )
    above = sum(gain.mean > 0 for gain in over_samples.values())
    surely = sum(gain.low > 0 for gain in over_samples.values())
    lost = [f"{place} {gain}" for place, gain in over_norm.items() if gain.high < 0]
    won = [place for place, gain in over_norm.items() if gain.low > 0]
    helped = sum(gain.low > 0 for gain in over_map.values())
    harmed = [f"{place} {gain}" for place, gain in over_map.items() if gain.mean < 0]
    return (
        f"The race is above 100 samples in {above} of {len(over_samples)} settings, in {surely} with"
        f" an interval above zero ({_span(over_samples)}). LB-norm detects better than the race in"
        f" {len(lost)} settings with an interval below zero"
        f"{' (race minus LB-norm: ' + '; '.join(lost) + ')' if lost else ''}, worse in"
        f" {len(won)}{' (' + '; '.join(won) + ')' if won else ''}. Over the network alone the race"
        f" gains in {helped} of {len(over_map)} settings with an interval above zero"
        f"{', and loses on average on ' + '; '.join(harmed) if harmed else ''}."
    )


def _span(gains: dict[str, Difference]) -> str:
    means = [gain.mean for gain in gains.values()]
    return f"{min(means):+.4f} to {max(means):+.4f}"


def _calibration(result: Result) -> str:
    """What the paper's prior does to MNIST itself."""
    told = []
    for structure, tests in result["MNIST"]["values"].items():
        own = tests["MNIST"]
        parts = [
            f"{title} from {np.mean(own['MAP'][metric]):.3f} to {np.mean(own['MC'][metric]):.3f} by"
            f" samples and {np.mean(own['race'][metric]):.3f} by the race (race minus MAP"
            f" {paired(own['race'][metric], own['MAP'][metric])})"
            for metric, title in (("nll", "NLL"), ("ece", "ECE"))
        ]
        told.append(f"{structure}: {', '.join(parts)}")
    return (
        "The paper's prior makes the network worse calibrated on MNIST itself, by every method that"
        f" follows the posterior. {'; '.join(told)}."
    )


def _cause(result: Result) -> str:
    """Why LB differs so much between networks: an experiment with the other reading of
    zero sum.
    """
    values = result["MNIST"]["values"]["diagonal"]
    widest = max(
        (test for test in values if test != "MNIST"),
        key=lambda test: np.ptp(values[test]["LB"]["auroc"]),
    )
    spread = {name: np.ptp(values[widest][name]["auroc"]) for name in ("LB", "LB, centred", "MAP")}
    return (
        f"LB with a diagonal posterior varies most between networks, on {widest} by"
        f" {spread['LB']:.3f}. The cause is that Eq. 11 conditions on a zero sum of the logits, so"
        " that their common level counts, which is arbitrary: with centring instead the same"
        f" networks vary by {spread['LB, centred']:.3f}, by themselves (MAP) by"
        f" {spread['MAP']:.3f}."
    )


def _cifar(result: Result) -> str:
    """CIFAR under the authors' precisions, with other networks than theirs."""
    told = []
    for train, test in (("CIFAR-10", "CIFAR-100"), ("CIFAR-100", "CIFAR-10")):
        if result[train].get("missing") or test in result[train]["missing_tests"]:
            continue
        for structure, tests in result[train]["values"].items():
            found = tests[test]
            parts = ", ".join(
                f"{name} {np.mean(found[name]['auroc']):.3f} and {np.mean(found[name]['ece']):.3f}"
                f" ({shown_stored(Cell(train, structure, name, test, 'auroc'))},"
                f" {shown_stored(Cell(train, structure, name, test, 'ece'))})"
                for name in PAPER_METHODS
            )
            kept = np.mean(tests[train]["MC"]["mmc"]) / np.mean(tests[train]["MAP"]["mmc"])
            theirs = [stored(_cell(train, structure, name, train, "mmc")) for name in ("MC", "MAP")]
            share = f"*{theirs[0] / theirs[1]:.0%}*" if theirs[0] and theirs[1] else "-"
            told.append(
                f"{train} → {test}, {structure}: {parts}; race minus MAP"
                f" {detection_gain(found, 'race', 'MAP')}; sampling keeps {kept:.0%} ({share}) of"
                " the confidence"
            )
    if not told:
        return ""
    return (
        "CIFAR: smaller networks than the paper's, fitted on training images with the authors'"
        " precisions, judged on all test images. AUROC and ECE (stored by the authors):"
        f" {'. '.join(told)}. The authors' precisions are for sums over 50,000 images; a fit on"
        " fewer, taken as it is, has the same prior for less curvature and leaves more width."
    )


TABLE_1 = Artifact("table1", "Detecting unusual data, last layer", compute, tables, finding)
