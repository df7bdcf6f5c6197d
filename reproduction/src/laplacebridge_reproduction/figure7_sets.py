"""Figure 7: how many classes Algorithm 1 returns on ImageNet, and how often the right
one is among them.

Beside it stand the classes of the same number for all images (top-k) and the fewest
classes that hold some probability (cumulative mass), each with as many classes in all
as Algorithm 1 returned.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from laplacebridge.bridges import laplace_bridge_raw, one_vs_rest_bridge, race_bridge
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.posterior import Posterior
from laplacebridge.sets import overlap_sets
from laplacebridge_reproduction import style
from laplacebridge_reproduction.artifact import Artifact, Result, Run
from laplacebridge_reproduction.conventions import MAX_SET_SIZE, lb, lb_norm, overlap_threshold
from laplacebridge_reproduction.data import DataSet
from laplacebridge_reproduction.equal_length import (
    Ranking,
    compared,
    held_by_mass,
    held_by_top_k,
    joined,
    ranking,
)
from laplacebridge_reproduction.imagenet_experiment import experiment, shifted
from laplacebridge_reproduction.table import Table

METHODS: dict[str, Callable[[LogitGaussian], Dirichlet]] = {
    "LB": lb,
    "LB-norm": lb_norm,
    "one-vs-rest": one_vs_rest_bridge,
    "race": race_bridge,
}
MARKERS = {"LB": "D", "LB-norm": "o", "one-vs-rest": "^", "race": "s"}
OVERLAPS = (0.01, 0.1, 0.2, 0.3, 0.4, 0.5)
SHOWN = OVERLAPS.index(0.1)  # of the histogram
AT_ONCE = 500  # images
CURVE_POINTS = 37  # of mean lengths from 1 to 10

# DenseNet-121 on the 50 000 validation images, one bridge (Eq. 7 alone), as the
# authors' runs stored it
STORED_LENGTHS = (2.94, 2.04, 1.59, 1.30, 1.11, 1.00)
STORED_COVERED = (None, 0.829, None, None, None, 0.74434)
STORED_MASS = (("mass of the network, 0.69", 1.69, 0.797), ("mass of LB, 0.895", 4.21, 0.889))


def compute(run: Run) -> Result:
    """Sizes and coverage of the sets on usual and on shifted images."""
    found = experiment(run)
    other = shifted(run)
    judged = {"in distribution": found.judged, **({} if other is None else {"shifted": other})}
    return {
        **found.described(),
        "data": {name: _judged(found.posterior, data) for name, data in judged.items()},
    }


@dataclass(frozen=True, eq=False)
class _Batches:
    """Gaussians over logits and labels, a few images at a time, as often as they are
    wanted.
    """

    posterior: Posterior
    data: DataSet

    def __iter__(self) -> Iterator[tuple[LogitGaussian, Tensor]]:
        for features, labels in zip(
            torch.split(self.data.inputs, AT_ONCE), torch.split(self.data.labels, AT_ONCE)
        ):
            yield self.posterior(features), labels


@torch.no_grad()
def _judged(posterior: Posterior, data: DataSet) -> Result:
    """Every method on one data set."""
    batches = _Batches(posterior, data)
    network = joined(
        [ranking(gaussian.mean.log_softmax(-1), labels) for gaussian, labels in batches]
    )
    lengths = np.linspace(1, MAX_SET_SIZE, CURVE_POINTS)
    return {
        "name": data.name,
        "images": len(data),
        "top_1": _share(network.place <= 1),
        "top_5": _share(network.place <= 5),
        "confidence": network.confidence.mean().item(),
        "highest_logit": torch.cat([_height(gaussian) for gaussian, _ in batches]).median().item(),
        "logit_for_half": (
            torch.cat([_height_for_half(gaussian) for gaussian, _ in batches]).median().item()
        ),
        "changed_by_zero_sum": _share(
            torch.cat([_is_changed_by_zero_sum(gaussian) for gaussian, _ in batches])
        ),
        "curves": {
            "length": lengths.tolist(),
            "top-k": [_share(held_by_top_k(network, length)) for length in lengths],
            "mass": [
                _share(held_by_mass(network, round(length * len(data)))) for length in lengths
            ],
        },
        "methods": {name: _method(bridge, batches, network) for name, bridge in METHODS.items()},
    }


def _sizes(dirichlet: Dirichlet) -> Int[Tensor, "b overlaps"]:
    return torch.stack(
        [overlap_sets(dirichlet, overlap_threshold(overlap)).size for overlap in OVERLAPS], -1
    )


def _method(
    bridge: Callable[[LogitGaussian], Dirichlet], batches: _Batches, network: Ranking
) -> Result:
    """Algorithm 1 with one bridge, and at each overlap the other rules with as many
    classes in all.
    """
    rankings, sizes = [], []
    for gaussian, labels in batches:
        dirichlet = bridge(gaussian)
        rankings.append(ranking(dirichlet.log_concentration.log_softmax(-1), labels))
        sizes.append(_sizes(dirichlet))
    own, size = joined(rankings), torch.cat(sizes)
    capped = size.clamp_max(MAX_SET_SIZE)
    covered = own.place.unsqueeze(-1) <= capped
    members = capped.sum(0).tolist()
    others = {
        "top-k": [held_by_top_k(network, count / len(size)) for count in members],
        "mass of the network": [held_by_mass(network, count) for count in members],
        "own mass": [held_by_mass(own, count) for count in members],
    }
    return {
        "confidence": own.confidence.mean().item(),
        "histogram": torch.bincount(capped[:, SHOWN] - 1, minlength=MAX_SET_SIZE).tolist(),
        "length": [count / len(size) for count in members],
        "covered": [_share(column) for column in covered.unbind(-1)],
        "uncapped": {
            "length": size.double().mean(0).tolist(),
            "covered": [_share(own.place <= column) for column in size.unbind(-1)],
            "largest": size.amax(0).tolist(),
        },
        "others": {
            name: [compared(column, held) for column, held in zip(covered.unbind(-1), rule)]
            for name, rule in others.items()
        },
    }


def _height(gaussian: LogitGaussian) -> Float[Tensor, " b"]:
    """How far the highest logit stands above the mean of all."""
    return gaussian.mean.amax(-1) - gaussian.mean.mean(-1)


def _height_for_half(gaussian: LogitGaussian) -> Float[Tensor, " b"]:
    """How far above the mean of all a logit must stand so that its class holds half of
    the mass by Eq. 7.

    With equal variances the K classes have about 1 each, and one at height h has e^h/K²
    · Σ exp(−μ_l) more.
    """
    centered = gaussian.mean - gaussian.mean.mean(-1, keepdim=True)
    return 3 * math.log(gaussian.num_classes) - (-centered).logsumexp(-1)


def _is_changed_by_zero_sum(gaussian: LogitGaussian) -> Bool[Tensor, " b"]:
    """Whether the set has another size by Eq. 7 alone, which is what the authors' code
    has here.
    """
    with_step, alone = (
        overlap_sets(bridge(gaussian), overlap_threshold(OVERLAPS[SHOWN]), MAX_SET_SIZE).size
        for bridge in (lb, laplace_bridge_raw)
    )
    return with_step != alone


def _share(held: Tensor) -> float:
    return held.double().mean().item()


def tables(result: Result) -> list[Table]:
    """Sizes at the overlap of the histogram, and coverage against mean length."""
    coverage = [_coverage(name, found) for name, found in result["data"].items()]
    return [_histograms(result), *coverage, _stored()]


def _histograms(result: Result) -> Table:
    sizes = [*map(str, range(1, MAX_SET_SIZE)), f"{MAX_SET_SIZE} or more"]
    rows = [
        [f"{name}, {method}", *(f"{count / found['images']:.1%}" for count in entry["histogram"])]
        for name, found in result["data"].items()
        for method, entry in found["methods"].items()
    ]
    caption = (
        "Share of images by the number of classes that Algorithm 1 returns at overlap"
        f" {OVERLAPS[SHOWN]}."
    )
    return Table(["classes in the set", *sizes], rows, caption)


def _coverage(name: str, found: Result) -> Table:
    rows = []
    for method, entry in found["methods"].items():
        for place, overlap in enumerate(OVERLAPS):
            own = [f"{entry['length'][place]:.2f}", f"{entry['covered'][place]:.3f}"]
            others = [f"{rule[place]['covered']:.3f}" for rule in entry["others"].values()]
            whole = entry["uncapped"]
            rows.append([f"{method}, {overlap}", *own, *others, f"{whole['length'][place]:.2f}"])
            rows[-1].append(f"{whole['covered'][place]:.3f}")
    caption = (
        f"{found['name']} ({name}, {found['images']} images): share of sets with the label at an"
        f" overlap, cut at {MAX_SET_SIZE} classes; the same for other rules with as many classes in"
        " all; and Algorithm 1 without cut."
    )
    headings = [
        "bridge, overlap",
        "mean length",
        "covered",
        "top-k",
        "mass of the network",
        "own mass",
    ]
    return Table([*headings, "length without cut", "covered without cut"], rows, caption)


def _stored() -> Table:
    rows = [
        [
            f"*LB, {overlap}*",
            f"*{length:.2f}*",
            "*plotted only*" if covered is None else f"*{covered:.3f}*",
        ]
        for overlap, length, covered in zip(OVERLAPS, STORED_LENGTHS, STORED_COVERED)
    ]
    rows.extend(
        [f"*{rule}*", f"*{length:.2f}*", f"*{covered:.3f}*"]
        for rule, length, covered in STORED_MASS
    )
    caption = (
        "What the authors' runs stored: DenseNet-121 on the 50,000 validation images, sets cut at"
        " 10 classes."
    )
    return Table(["bridge, overlap", "mean length", "covered"], rows, caption)


def finding(result: Result) -> str:
    """What agrees with the paper and what does not."""
    usual = result["data"]["in distribution"]
    race, plain, norm = (usual["methods"][name] for name in ("race", "LB", "LB-norm"))
    alone = race["histogram"][0] / usual["images"]
    sizes = (
        f"At overlap {OVERLAPS[SHOWN]} Algorithm 1 returns one class for {alone:.0%} of the images"
        f" by the race (the paper says for most) and {race['length'][SHOWN]:.2f} on average, by LB"
        f" {plain['length'][SHOWN]:.2f} (the authors' run {STORED_LENGTHS[SHOWN]});"
        f" {race['covered'][SHOWN]:.1%} and {plain['covered'][SHOWN]:.1%} of the sets hold the"
        f" label, against {usual['top_1']:.1%} of the first classes."
    )
    cut = (
        f"Without the authors' cut at {MAX_SET_SIZE} classes, which Algorithm 1 does not have, LB"
        f" returns {plain['uncapped']['length'][SHOWN]:.1f} classes on average and the race"
        f" {race['uncapped']['length'][SHOWN]:.1f}. Without Eq. 11, which their code leaves out"
        f" here, {usual['changed_by_zero_sum']:.1%} of LB's sets have another size."
    )
    confidence = (
        f"The mean largest probability is {usual['confidence']:.3f} by the network,"
        f" {race['confidence']:.3f} by the race, {plain['confidence']:.3f} by LB and"
        f" {norm['confidence']:.3f} by LB-norm. LB: Eq. 7 gives each of {result['classes']} classes"
        f" a share, and one class holds half only if its logit stands {usual['logit_for_half']:.1f}"
        f" above the mean; the highest stands {usual['highest_logit']:.1f} above (median over"
        " images). LB-norm: it scales small variances up, and logits with them."
    )
    gains = "; ".join(f"{name} {_at_equal_length(found)}" for name, found in result["data"].items())
    lengths = (
        "Percentage points by which the race's sets hold the label more often, at equal mean"
        f" length: {gains}."
    )
    return " ".join(part for part in (sizes, result["caution"], lengths, cut, confidence) if part)


def _at_equal_length(found: Result) -> str:
    """By how many percentage points the race's sets hold the label more often than
    others with as many classes.
    """
    told = []
    for rule in ("top-k", "mass of the network"):
        others = found["methods"]["race"]["others"][rule]
        gains = [100 * other["more"] for other in others]
        told.append(
            f"{gains[SHOWN]:+.1f} ± {100 * others[SHOWN]['error']:.1f} than {rule}"
            f" ({min(gains):+.1f} to {max(gains):+.1f} over all overlaps)"
        )
    return " and ".join(told)


def figure(result: Result) -> Figure:
    """Above: sizes of the sets. Below: coverage against mean length."""
    columns = len(result["data"])
    drawn = Figure(figsize=(style.PAGE, 4.6), layout="constrained")
    panels = drawn.subplots(2, columns, squeeze=False)
    for (name, found), upper, lower in zip(result["data"].items(), *panels):
        _draw_histogram(upper, found)
        _draw_coverage(lower, found)
        upper.set(title=f"{found['name']} ({name}, {found['images']} images)")
    handles, labels = panels[1, 0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return drawn


def _draw_histogram(axes: Axes, found: Result) -> None:
    width = 0.8 / len(METHODS)
    sizes = np.arange(1, MAX_SET_SIZE + 1)
    for index, (method, entry) in enumerate(found["methods"].items()):
        shift = (index - (len(METHODS) - 1) / 2) * width
        shares = np.array(entry["histogram"]) / found["images"]
        axes.bar(sizes + shift, shares, width, color=style.COLOURS[method])
    axes.set_xticks(sizes, [*map(str, sizes[:-1]), f"{MAX_SET_SIZE}+"])
    axes.set(xlabel=f"classes in the set, overlap {OVERLAPS[SHOWN]}", ylabel="share of images")


def _draw_coverage(axes: Axes, found: Result) -> None:
    curves = found["curves"]
    axes.plot(curves["length"], curves["top-k"], "k--", linewidth=0.8, label="top-k")
    axes.plot(curves["length"], curves["mass"], "k:", linewidth=0.8, label="mass of the network")
    for method, entry in found["methods"].items():
        axes.plot(
            entry["length"],
            entry["covered"],
            marker=MARKERS[method],
            # all sets of LB-norm have one class: a ring around where the others begin
            markersize=9 if method == "LB-norm" else None,
            fillstyle="none" if method == "LB-norm" else "full",
            color=style.COLOURS[method],
            label=method,
        )
    longest = max(max(entry["length"]) for entry in found["methods"].values())
    axes.set(
        xlim=(0.75, longest + 0.3),
        xlabel="mean number of classes",
        ylabel="share of sets with the label",
    )
    axes.margins(y=0.1)


FIGURE_7 = Artifact(
    "figure7",
    "How many classes Algorithm 1 returns on ImageNet, and coverage",
    compute,
    tables,
    finding,
    figure,
)
