"""Figure 6: what the network does not know of an image, as Beta marginals of its most
probable classes.

The paper shows four photographs of one class: of the first the network knows nothing,
of the others it says two, three and one class. The photographs may be used for research
only, so that they are not drawn here, and named instead.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Generator, Tensor

from laplacebridge.bridges import race_bridge
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.report.plots import beta_marginals
from laplacebridge.report.plots._drawing import colour, line_style, tidy
from laplacebridge.sets import overlap_sets
from laplacebridge_reproduction import style
from laplacebridge_reproduction.artifact import Artifact, Result, Run
from laplacebridge_reproduction.conventions import lb, lb_norm, overlap_threshold
from laplacebridge_reproduction.imagenet_experiment import experiment
from laplacebridge_reproduction.table import Table

METHODS: dict[str, Callable[[LogitGaussian], Dirichlet]] = {
    "LB": lb,
    "LB-norm": lb_norm,
    "race": race_bridge,
}
DRAWN = ("LB", "LB-norm", "race")
OVERLAP = 0.1
SIZES = (None, 2, 3, 1)  # of the sets, in the paper's order; None is the largest
NUM_CLASSES = 5
NUM_SAMPLES = {"smoke": 1000, "small": 10_000, "paper": 10_000}
NUM_BINS = 50
AT_ONCE = 500  # images
# Classes of ImageNet like those in the paper's figure: computer keyboard, desktop and
# hand-held computer, laptop, monitor, mouse, notebook, screen, television.
COMPUTERS = (508, 527, 590, 620, 664, 673, 681, 782, 851)


def compute(run: Run) -> Result:
    """Dirichlets of four images, by every bridge and by sampling."""
    found = experiment(run)
    judged, posterior = found.judged, found.posterior
    generator = Generator().manual_seed(run.seed)
    with torch.no_grad():
        sets = [
            _sized(race_bridge(posterior(features)))
            for features in torch.split(judged.inputs, AT_ONCE)
        ]
        sizes, masses = (torch.cat(parts) for parts in zip(*sets))
        rows = [chosen(sizes, masses, judged.labels, size) for size in SIZES]
        examples = [
            {
                "image": row,
                "label": judged.class_names[int(judged.labels[row])],
                **_example(
                    posterior(judged.inputs[row : row + 1]), judged.class_names, run, generator
                ),
            }
            for row in rows
        ]
    return {
        **found.described(),
        "overlap": OVERLAP,
        "samples": NUM_SAMPLES[run.profile],
        "examples": examples,
    }


def _sized(dirichlet: Dirichlet) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
    """How many classes each set has, and how much probability they hold."""
    size = overlap_sets(dirichlet, overlap_threshold(OVERLAP)).size
    ranked = dirichlet.mean.sort(-1, descending=True).values
    return size, ranked.cumsum(-1).gather(-1, size.unsqueeze(-1) - 1).squeeze(-1)


def chosen(
    sizes: Int[Tensor, " B"],
    masses: Float[Tensor, " B"],
    labels: Int[Tensor, " B"],
    size: int | None,
) -> int:
    """The image to show: of those with a set of the size, of a computer or screen if
    there are any, a typical one.

    Typical is the one in the middle when they are ordered by the probability that their
    sets hold.

    Args:
        sizes: Sizes of the sets of all images.
        masses: Probability that the sets hold.
        labels: Labels of all images.
        size: The size wanted, or None for the largest of a computer or screen. If there
            is none of it, the nearest.

    Example:
        >>> sizes, masses = torch.tensor([2, 1, 2, 2]), torch.tensor([0.9, 0.9, 0.7, 0.8])
        >>> chosen(sizes, masses, torch.tensor([3, 527, 681, 620]), 2)
        3
        >>> chosen(sizes, masses, torch.tensor([3, 4, 5, 6]), 2)
        3
    """
    is_computer = torch.isin(labels, torch.tensor(COMPUTERS))
    if size is None:
        size = int(sizes[is_computer].max() if is_computer.any() else sizes.max())
    distance = (sizes - size).abs()
    fitting = distance == distance.min()
    candidates = (
        (fitting & is_computer if (fitting & is_computer).any() else fitting).nonzero().squeeze(-1)
    )
    order = masses[candidates].argsort(stable=True)
    return int(candidates[order[len(order) // 2]])


def _example(
    gaussian: LogitGaussian, class_names: tuple[str, ...], run: Run, generator: Generator
) -> Result:
    """One image: the classes that the race finds most probable, seen by all."""
    dirichlets = {name: bridge(gaussian) for name, bridge in METHODS.items()}
    classes = (
        dirichlets["race"].log_concentration[0].argsort(descending=True, stable=True)[:NUM_CLASSES]
    )
    sampled = (
        gaussian.sample(NUM_SAMPLES[run.profile], generator)[:, 0].softmax(-1)[:, classes].double()
    )
    histograms = [
        torch.histc(column.float(), NUM_BINS, 0, 1) * NUM_BINS / len(column)
        for column in sampled.unbind(-1)
    ]
    return {
        "classes": [class_names[place] for place in classes.tolist()],
        "network": gaussian.mean.softmax(-1)[0, classes].tolist(),
        "samples": {
            "mean": sampled.mean(0).tolist(),
            "deviation": sampled.std(0).tolist(),
            "density": [histogram.tolist() for histogram in histograms],
        },
        "bridges": {name: _marginals(dirichlet, classes) for name, dirichlet in dirichlets.items()},
    }


def _marginals(dirichlet: Dirichlet, classes: Int[Tensor, " m"]) -> Result:
    """Concentrations of some classes and of all others together, as logarithms, and the
    size of the set.
    """
    together = dirichlet.aggregate([[place] for place in classes.tolist()])
    return {
        "log_alpha": together.log_concentration[0].tolist(),
        "mean": together.mean[0, : len(classes)].tolist(),
        "deviation": together.variance.sqrt()[0, : len(classes)].tolist(),
        "size": int(_sized(dirichlet)[0]),
    }


def tables(result: Result) -> list[Table]:
    """Means and standard deviations of the drawn marginals."""
    rows = []
    for example in result["examples"]:
        found = {"samples": example["samples"], **example["bridges"]}
        for place, name in enumerate(example["classes"]):
            cells = [
                f"{one['mean'][place]:.3f} ± {one['deviation'][place]:.3f}"
                for one in found.values()
            ]
            rows.append([f"{example['label']}: {name}", f"{example['network'][place]:.3f}", *cells])
        sizes = [str(one["size"]) for one in example["bridges"].values()]
        rows.append([f"{example['label']}: classes in the set", "", "", *sizes])
    caption = (
        "Mean and standard deviation of the probability of a class, and how many classes Algorithm"
        f" 1 returns at overlap {result['overlap']} without a cut. The image is named by its label."
    )
    return [Table(["image: class", "network", "samples", *METHODS], rows, caption)]


def finding(result: Result) -> str:
    """What the figure shows."""
    examples = result["examples"]
    told = "; ".join(_told(example) for example in examples)
    gaps = {name: np.abs(_differences(result, name, "mean")).max() for name in METHODS}
    spread = np.abs(_differences(result, "race", "deviation")).max(0)
    rest = {
        name: _mean([1 - sum(example["bridges"][name]["mean"]) for example in examples])
        for name in METHODS
    }
    first = {
        name: _mean([example["bridges"][name]["mean"][0] for example in examples])
        for name in METHODS
    }
    return (
        f"Algorithm 1 returns as many classes as have marginals that overlap, by the race {told};"
        " the paper's examples are of this kind. Means of the drawn classes are within"
        f" {gaps['race']:.3f} of {result['samples']:,} samples by the race, {gaps['LB']:.3f} by LB"
        f" and {gaps['LB-norm']:.3f} by LB-norm: LB leaves {rest['LB']:.2f} to the classes not"
        " drawn (samples"
        f" {_mean([1 - sum(example['samples']['mean']) for example in examples]):.2f}), and"
        f" LB-norm, which scales small variances up, gives {first['LB-norm']:.2f} to the first"
        f" (samples {_mean([example['samples']['mean'][0] for example in examples]):.2f}). Standard"
        f" deviations by the race are within {spread[0]:.3f} for the first class and"
        f" {spread[1:].max():.3f} for the others: one total serves all. The prior precision is"
        f" {result['prior_precision']:.0f}: the mean largest probability falls from"
        f" {result['confidence_of_network']:.3f} to {result['confidence_of_race']:.3f}, by the"
        " paper's rule. The photographs themselves may be used for research only and are left out."
        f" {result['caution']}".rstrip()
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _told(example: Result) -> str:
    size = example["bridges"]["race"]["size"]
    named = (
        " or ".join(f"“{name}”" for name in example["classes"][:size])
        if size <= NUM_CLASSES
        else "do not know"
    )
    return f"for an image of “{example['label']}” {size} ({named})"


def _differences(result: Result, bridge: str, key: str) -> np.ndarray:
    """Of a bridge from samples, by example and drawn class."""
    pairs = [
        (example["bridges"][bridge][key], example["samples"][key]) for example in result["examples"]
    ]
    return np.array([np.subtract(*pair) for pair in pairs])


def figure(result: Result) -> Figure:
    """Marginals of four images: by LB, LB-norm and the race, and by samples; the
    classes are named below.
    """
    examples = result["examples"]
    drawn = Figure(figsize=(style.PAGE, 6.6), layout="constrained")
    heights = [1.0] * (len(DRAWN) + 1) + [0.85]  # the last for the names
    panels = drawn.subplots(len(heights), len(examples), height_ratios=heights)
    for example, column in zip(examples, panels.T):
        for method, axes in zip(DRAWN, column):
            bridged = example["bridges"][method]
            together = Dirichlet(torch.tensor([bridged["log_alpha"]], dtype=torch.float64))
            beta_marginals(together, classes=range(NUM_CLASSES), ax=axes)
            handles = axes.get_lines()[:NUM_CLASSES]
            for line in handles:
                line.set_linewidth(1.1)
            axes.get_legend().remove()
            axes.set(title=f"{method}: {_classes(bridged['size'])}", xlabel="", ylabel="")
        samples, names = column[-2:]
        _draw_samples(samples, example["samples"]["density"])
        samples.set(
            title=f"{result['samples']:,} samples", ylim=column[-3].get_ylim(), ylabel=""
        )  # as the race above it
        column[0].set(title=f"image of “{example['label']}”\n{column[0].get_title()}")
        names.set_axis_off()
        names.legend(handles, example["classes"], loc="upper left", borderaxespad=0)
    for axes in panels[:-1, 0]:
        axes.set_ylabel("density")
    return drawn


def _classes(size: int) -> str:
    return "1 class" if size == 1 else f"{size} classes"


def _draw_samples(axes: Axes, densities: list[list[float]]) -> None:
    edges = np.linspace(0, 1, NUM_BINS + 1)
    for place, density in enumerate(densities):
        axes.stairs(density, edges, color=colour(place), linestyle=line_style(place))
    axes.set(xlim=(-0.02, 1.02), xlabel="probability of the class")
    tidy(axes)


FIGURE_6 = Artifact(
    "figure6",
    "Beta marginals of the most probable classes on ImageNet",
    compute,
    tables,
    finding,
    figure,
)
