"""Figure 1: the way from a network to a Dirichlet, drawn from a small network on
handwritten digits.

The paper's figure is a sketch. Here every panel is computed: image → Gaussian over the
weights of the last layer → Gaussian over logits (Eq. 8) → Dirichlet (Eq. 7) → its mean
and marginals (Eqs. 9 and 10).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats
from sklearn.datasets import load_digits
from torch import Generator, Tensor, nn

from laplacebridge import links, metrics
from laplacebridge.bridges import race_bridge
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.curvature import Kron
from laplacebridge.laplace.head_posteriors.base import with_constant
from laplacebridge.laplace.head_posteriors.kron import KronPosterior
from laplacebridge.laplace.head_search import find_head
from laplacebridge_reproduction import style
from laplacebridge_reproduction.artifact import Artifact, Result, Run
from laplacebridge_reproduction.conventions import lb, lb_norm
from laplacebridge_reproduction.data import DataSet
from laplacebridge_reproduction.evaluate import with_features
from laplacebridge_reproduction.models import initialised
from laplacebridge_reproduction.table import Table
from laplacebridge_reproduction.train import TrainSettings, train

DIGITS = (
    3,
    8,
    9,
)  # often taken for one another; three, because a Dirichlet over three classes can be drawn
SIDE, WHITE = 8, 16
NUM_TRAIN, HIDDEN = 100, 16
SETTINGS = TrainSettings(epochs=300, batch_size=None, learning_rate=1e-2)
PRIOR_PRECISION = 20.0  # a sketch: strong enough that the Dirichlet has a peak
BRIDGES: dict[str, Callable[[LogitGaussian], Dirichlet]] = {
    "LB": lb,
    "LB-norm": lb_norm,
    "race": race_bridge,
}
NUM_SAMPLES, NUM_DRAWN = 100_000, 200
LEVEL = 0.9
RESOLUTION = 60


class _Split(NamedTuple):
    training: DataSet
    test: DataSet


def compute(run: Run) -> Result:
    """Trains a network and follows one image through it, in every profile alike."""
    data = _digits(run)
    network = train(
        initialised(_perceptron, seed=run.seed), data.training, SETTINGS, progress=run.progress
    )
    split = find_head(network, data.test.inputs)
    training, test = (with_features(split, part, progress=False) for part in data)
    probabilities = network(data.training.inputs).detach().softmax(-1)
    curvature = Kron.of_batch(with_constant(training.inputs), probabilities)
    posterior = KronPosterior(split.weight(), split.bias(), curvature, PRIOR_PRECISION)
    with torch.no_grad():
        everywhere = links.map_estimate(posterior(test.inputs))
        least_sure = int(torch.special.entr(everywhere).sum(-1).argmax())
        features = test.inputs[least_sure : least_sure + 1]
        gaussian = posterior(features)
        return {
            "classes": list(data.test.class_names),
            "image": data.test.inputs[least_sure].view(SIDE, SIDE).tolist(),
            "label": data.test.class_names[int(data.test.labels[least_sure])],
            "accuracy": metrics.accuracy(everywhere, data.test.labels),
            "prior_precision": PRIOR_PRECISION,
            "network": everywhere[least_sure].tolist(),
            "weights": _weights(posterior, features, gaussian.mean[0]),
            "logits": {
                "mean": gaussian.mean[0].tolist(),
                "covariance": gaussian.covariance.to_dense()[0].tolist(),
            },
            "samples": _sampled(gaussian, run),
            "bridges": {name: _bridged(bridge(gaussian)) for name, bridge in BRIDGES.items()},
        }


def _perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Linear(SIDE**2, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, len(DIGITS)))


def _digits(run: Run) -> _Split:
    pixels, digits = load_digits(return_X_y=True)
    known = np.isin(digits, DIGITS)
    inputs = torch.from_numpy(pixels[known] / WHITE).float()
    labels = torch.from_numpy(np.searchsorted(DIGITS, digits[known])).long()
    data = DataSet("digits of scikit-learn", inputs, labels, tuple(map(str, DIGITS)))
    run.used["scikit-learn/digits"] = data.digest()
    order = torch.randperm(len(data), generator=Generator().manual_seed(run.seed))
    return _Split(data[order[:NUM_TRAIN]], data[order[NUM_TRAIN:]])


def _weights(
    posterior: KronPosterior, features: Float[Tensor, "1 D"], logits: Float[Tensor, " K"]
) -> Result:
    """Two of the weights: those of the two most probable classes for the feature that
    is most active on the image.
    """
    feature = int(features.argmax())
    classes = logits.argsort(descending=True)[:2].sort().values
    unit = torch.zeros(1, features.shape[1] + 1)  # the last is the constant of the bias
    unit[0, feature] = 1
    covariance = posterior.covariance(unit).to_dense()[
        0
    ]  # of the logits here, which are the weights of the feature
    return {
        "feature": feature,
        "classes": classes.tolist(),
        "mean": posterior.weight[classes, feature].tolist(),
        "covariance": covariance[classes][:, classes].tolist(),
    }


def _sampled(gaussian: LogitGaussian, run: Run) -> Result:
    sampled = (
        gaussian.sample(NUM_SAMPLES, Generator().manual_seed(run.seed))[:, 0].double().softmax(-1)
    )
    tail = (1 - LEVEL) / 2
    low, high = torch.quantile(sampled, torch.tensor([tail, 1 - tail], dtype=torch.float64), dim=0)
    return {
        "mean": sampled.mean(0).tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
        "some": sampled[:NUM_DRAWN].tolist(),
    }


def _bridged(dirichlet: Dirichlet) -> Result:
    intervals = [dirichlet.marginal(place).interval(LEVEL) for place in range(len(DIGITS))]
    return {
        "alpha": dirichlet.concentration[0].tolist(),
        "mean": dirichlet.mean[0].tolist(),
        "low": [low.item() for low, _ in intervals],
        "high": [high.item() for _, high in intervals],
    }


def tables(result: Result) -> list[Table]:
    """The Dirichlets and their means, beside samples."""
    classes = result["classes"]
    rows = [
        [
            name,
            *(f"{alpha:.2f}" for alpha in entry["alpha"]),
            *_means(entry),
            f"{_distance(result, name):.3f}",
        ]
        for name, entry in result["bridges"].items()
    ]
    blank = ["" for _ in classes]
    rows.append(["network alone", *blank, *(f"{value:.3f}" for value in result["network"]), ""])
    rows.append([f"{NUM_SAMPLES:,} samples", *blank, *_means(result["samples"]), ""])
    headings = [
        *(f"α of {name}" for name in classes),
        *(f"mean of {name} ({LEVEL:.0%})" for name in classes),
    ]
    caption = (
        f"Probabilities of one image of {result['label']}: mean, and the interval that holds"
        f" {LEVEL:.0%}."
    )
    return [Table(["", *headings, "total variation of the mean from samples"], rows, caption)]


def _means(entry: Result) -> list[str]:
    return [
        f"{mean:.3f} ({low:.2f}–{high:.2f})"
        for mean, low, high in zip(entry["mean"], entry["low"], entry["high"])
    ]


def _distance(result: Result, bridge: str) -> float:
    return float(
        np.abs(np.subtract(result["bridges"][bridge]["mean"], result["samples"]["mean"])).sum() / 2
    )


def finding(result: Result) -> str:
    """What the figure shows."""
    distances = ", ".join(f"{name} {_distance(result, name):.3f}" for name in BRIDGES)
    certain = max(result["network"])
    sampled = max(result["samples"]["mean"])
    return (
        f"The paper's sketch with numbers: a network that is right on {result['accuracy']:.1%} of"
        f" the digits gives its class {certain:.3f} where it is least sure, and {sampled:.3f} when"
        " its last layer is uncertain. Total variation of the Dirichlet's mean from"
        f" {NUM_SAMPLES:,} samples: {distances}. The paper names no data for its sketch; digits,"
        f" network and prior precision ({result['prior_precision']:g}) are ours."
    )


def figure(result: Result) -> Figure:
    """Five panels from the image to the mean of the Dirichlet."""
    drawn = Figure(figsize=(style.PAGE, 3.7), layout="constrained")
    above, below = drawn.subfigures(2, 1, squeeze=False)[:, 0]
    image, weights, logits = above.subplots(1, 3, width_ratios=[0.8, 1, 1])
    simplex, bars = below.subplots(1, 2, width_ratios=[0.8, 2])
    classes = result["classes"]
    image.imshow(result["image"], cmap="gray_r")
    image.set(title=f"input: an image of {result['label']}", xticks=[], yticks=[])
    image.spines[:].set_visible(False)
    first, second = (classes[place] for place in result["weights"]["classes"])
    _draw_gaussian(weights, *(np.array(result["weights"][key]) for key in ("mean", "covariance")))
    weights.set(
        title="→ weights of the last layer: Gaussian",
        xlabel=f"a weight of {first}",
        ylabel=f"a weight of {second}",
    )
    _draw_gaussian(logits, *_differences(result["logits"]))
    logits.set(title="→ logits: Gaussian", xlabel=f"logit of {classes[0]} − of {classes[-1]}")
    logits.set(ylabel=f"logit of {classes[1]} − of {classes[-1]}")
    _draw_simplex(simplex, result)
    _draw_bars(bars, result)
    return drawn


def _differences(logits: Result) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of two logits minus the third, which is all that softmax
    sees.
    """
    contrast = np.array([[1.0, 0, -1], [0, 1, -1]])
    return (
        contrast @ np.array(logits["mean"]),
        contrast @ np.array(logits["covariance"]) @ contrast.T,
    )


def _draw_gaussian(axes: Axes, mean: np.ndarray, covariance: np.ndarray) -> None:
    reach = 3 * np.sqrt(np.diagonal(covariance))
    x, y = (
        np.linspace(middle - side, middle + side, RESOLUTION) for middle, side in zip(mean, reach)
    )
    density = stats.multivariate_normal(mean, covariance).pdf(np.stack(np.meshgrid(x, y), axis=-1))
    axes.contourf(x, y, density, levels=10, cmap="Blues")
    axes.plot(*mean, "k+")


def _draw_simplex(axes: Axes, result: Result) -> None:
    """Density of LB's Dirichlet on the triangle, with samples of softmax as dots."""
    steps = np.arange(1, 2 * RESOLUTION)
    pairs = np.array(
        [(one, two) for one in steps for two in steps if one + two < 2 * RESOLUTION]
    ) / (2 * RESOLUTION)
    points = np.column_stack([pairs, 1 - pairs.sum(-1)])
    density = stats.dirichlet(result["bridges"]["LB"]["alpha"]).pdf(points.T)
    x, y = _on_plane(points)
    axes.tricontourf(x, y, density, levels=10, cmap="Blues")
    axes.plot(
        *_on_plane(np.array(result["samples"]["some"])),
        ".",
        color=style.COLOURS["LB"],
        markersize=1.5,
    )
    corners = _on_plane(np.eye(3))
    axes.fill(*corners, fill=False, linewidth=1)
    for name, x, y, drop in zip(result["classes"], *corners, (-1, -1, 1)):
        axes.annotate(
            name, (x, y), (0, 6 * drop), textcoords="offset points", ha="center", va="center"
        )
    axes.set(
        title="→ probabilities: Dirichlet (LB)\ndots: softmax of sampled logits", aspect="equal"
    )
    axes.set_axis_off()
    axes.margins(0.08)


def _on_plane(probabilities: np.ndarray) -> np.ndarray:
    """Where three probabilities lie in a triangle."""
    corners = np.array([[0, 0], [1, 0], [0.5, 3**0.5 / 2]])
    return (probabilities @ corners).T


def _draw_bars(axes: Axes, result: Result) -> None:
    found = {"samples": result["samples"], **result["bridges"]}
    width = 0.8 / (len(found) + 1)
    places = np.arange(len(result["classes"]))
    axes.bar(places, result["network"], width, color="#C8C8C8", label="network alone")
    for index, (name, entry) in enumerate(found.items(), start=1):
        mean = np.array(entry["mean"])
        whiskers = np.abs(np.array([entry["low"], entry["high"]]) - mean)
        axes.bar(
            places + index * width,
            mean,
            width,
            yerr=whiskers,
            color=style.COLOURS[name],
            label=name,
            error_kw={"elinewidth": 0.6, "ecolor": "0.5"},
        )
    axes.set_yticks(np.linspace(0, 1, 6))  # above is room for the legend
    axes.set_xticks(places + width * len(found) / 2, result["classes"])
    axes.set(
        title=f"→ mean, {LEVEL:.0%} of each marginal",
        xlabel="class",
        ylabel="probability",
        ylim=(0, 1.6),
    )
    axes.legend(ncols=3)


FIGURE_1 = Artifact(
    "figure1",
    "The Laplace bridge for Bayesian networks, an overview",
    compute,
    tables,
    finding,
    figure,
)
