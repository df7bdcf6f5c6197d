"""The table of methods: what each of them is, what each column means, and what a row
holds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from laplacebridge.metrics import Interval

# Names of the methods that advice speaks of; bridges go by their names in
# `laplacebridge.bridges.BRIDGES`.
NETWORK, TEMPERATURE, DEFAULT = "MAP", "temperature", "race"
# Probabilities of some classifier, with nothing else known of it.
GIVEN = "given"
SAMPLE_SIZES = (10, 100, 1000)
# Samples that methods are compared with.
REFERENCE_SAMPLES = 10_000


class Method(NamedTuple):
    """What a row of the table stands for, for readers who do not know its name.

    Attributes:
        title: What it is called in a sentence.
        meaning: What it does, in a line.
        function: How to call it.
        option: How to ask for it on the command line; empty where there is no way.
    """

    title: str
    meaning: str
    function: str
    option: str = ""


METHODS = {
    GIVEN: Method(
        "the given probabilities",
        "Probabilities as some classifier gave them.",
        "estimator.predict_proba(inputs)",
    ),
    NETWORK: Method(
        "the network's own probabilities",
        "The network as it was trained: softmax of its logits.",
        "model(inputs).softmax(-1)",
    ),
    TEMPERATURE: Method(
        "temperature scaling",
        "Logits divided by one number, which held-out labels chose.",
        "lb.temperature.temperature_scaling(logits, labels)",
        "fit --validation DATA --tune-temperature",
    ),
    "probit": Method(
        "the probit approximation",
        "Logits made smaller where they are uncertain; probabilities without intervals.",
        "lb.links.probit(gaussian)",
    ),
    "laplace": Method(
        "the Laplace bridge",
        "The paper's formula, from a Gaussian over logits to a Dirichlet.",
        "lb.laplace_bridge(gaussian)",
        "--bridge laplace",
    ),
    "laplace-norm": Method(
        "the normed Laplace bridge",
        "The same after the paper's correction of large variances.",
        "lb.bridges.laplace_bridge_norm(gaussian)",
        "--bridge laplace-norm",
    ),
    "kl": Method(
        "the KL bridge",
        "The Dirichlet of the smallest divergence from the Gaussian.",
        "lb.bridges.kl_bridge(gaussian)",
        "--bridge kl",
    ),
    "one-vs-rest": Method(
        "the one-vs-rest bridge",
        "Each class against all others together; the fastest that is accurate.",
        "lb.bridges.one_vs_rest_bridge(gaussian)",
        "--bridge one-vs-rest",
    ),
    DEFAULT: Method(
        "the race bridge",
        "The default: as good as thousands of samples, in closed form.",
        "lb.race_bridge(gaussian)",
        "--bridge race",
    ),
}


def method_named(name: str) -> Method:
    """What a method of that name is; samples and unknown ones too.

    Example:
        >>> method_named("MC-100").title
        '100 Monte Carlo samples'
    """
    samples = name.removeprefix("MC-")
    if name in METHODS:
        return METHODS[name]
    if samples != name:
        return Method(
            f"{samples} Monte Carlo samples",
            f"The mean of softmax over {samples} random draws of the logits.",
            f"lb.links.monte_carlo(gaussian, num_samples={samples})",
        )
    return Method(f"the bridge {name}", "A bridge of your own.", f"{name}(gaussian)")


def brief(value: float) -> str:
    """A number of any size in about three digits.

    Example:
        >>> brief(0.01234), brief(1234.5), brief(1.23e12)
        ('0.0123', '1,234', '1.23e+12')
    """
    return f"{value:,.0f}" if 100 <= value < 1e6 else f"{value:.3g}"


def percent(share: float, digits: int = 1) -> str:
    """A share for people.

    Example:
        >>> percent(0.9342), percent(0.05, 0)
        ('93.4\u202f%', '5\u202f%')
    """
    return f"{100 * share:.{digits}f}\u202f%"  # a narrow space, at which no line breaks


@dataclass(frozen=True)
class Column:
    """A column of the table: what it is called and means, and how its numbers are
    compared and written.

    Attributes:
        name: Field of `Row`; key in JSON and CSV.
        heading: Above the numbers.
        meaning: What the number is, in a few words that follow a colon.
        better: Whether larger or smaller is better; empty if neither is.
        format: Writes a finite number for people.
    """

    name: str
    heading: str
    meaning: str
    better: Literal["larger", "smaller", ""]
    format: Callable[[float], str]

    def text(self, value: float | None) -> str:
        """A number as people read it; a dash where there is none.

        Example:
            >>> (
            ...     COLUMNS["accuracy"].text(0.9342),
            ...     COLUMNS["microseconds"].text(1234.5),
            ...     COLUMNS["auroc"].text(None),
            ... )
            ('93.4\u202f%', '1,234', '—')
        """
        if value is None:
            return "—"
        if math.isnan(value):
            return "not a number"
        return ("∞" if value > 0 else "−∞") if math.isinf(value) else self.format(value)


_four, _three, _two = "{:.4f}".format, "{:.3f}".format, "{:.2f}".format
_COLUMNS = (
    Column("accuracy", "Accuracy", "share of right answers", "larger", percent),
    Column("nll", "NLL", "negative log-likelihood of the labels, in nats", "smaller", _four),
    Column(
        "ece",
        "ECE",
        "expected calibration error: gap between confidence and accuracy, in 15 bins",
        "smaller",
        _four,
    ),
    Column(
        "brier",
        "Brier",
        "squared distance between probabilities and label, from 0 to 2",
        "smaller",
        _four,
    ),
    Column(
        "aurc",
        "AURC",
        "mean error rate if only the surest answers are given, over all shares of answers",
        "smaller",
        _four,
    ),
    Column(
        "auroc",
        "OOD AUROC",
        "chance that 1 − largest probability is higher for an OOD input than for one in"
        " distribution",
        "larger",
        _three,
    ),
    Column("set_size", "Set size", "mean number of classes in calibrated sets", "smaller", _two),
    Column("coverage", "Coverage", "share of these sets that hold the label", "", percent),
    Column(
        "distance",
        "Distance",
        f"mean total variation from {REFERENCE_SAMPLES:,} samples",
        "smaller",
        _four,
    ),
    Column(
        "microseconds",
        "Time (µs)",
        "microseconds from features to prediction, per example",
        "smaller",
        brief,
    ),
)
COLUMNS = {column.name: column for column in _COLUMNS}


@dataclass(frozen=True, eq=False)
class Evidence:
    """What methods are compared by, example by example.

    Attributes:
        losses: Negative log-likelihood of each label.
        msp: 1 − the largest probability of each example.
        right: Whether the most probable class is the label.
        set_sizes: How many classes each calibrated set has.
        ood_msp: The same of each out-of-distribution input.
    """

    losses: Float[Tensor, " N"]
    msp: Float[Tensor, " N"]
    right: Bool[Tensor, " N"]
    set_sizes: Float[Tensor, " N"]
    ood_msp: Float[Tensor, " M"] | None = None


@dataclass(frozen=True, eq=False)
class Row:
    """How one method does: a number for each of `COLUMNS`, in that order.

    Attributes:
        method: Its name.
        auroc: With an interval; None without out-of-distribution inputs.
        distance: None for probabilities alone; so is the time.
        evidence: The numbers of each example, to compare methods in pairs.

    Example:
        >>> row = Row(
        ...     "MAP",
        ...     0.9,
        ...     0.3,
        ...     0.02,
        ...     0.1,
        ...     0.01,
        ...     Interval(0.8, 0.7, 0.9, 0.95),
        ...     1.2,
        ...     0.95,
        ...     0.04,
        ...     5.0,
        ... )
        >>> row.accuracy, row.value("auroc")
        (0.9, 0.8)
    """

    method: str
    accuracy: float
    nll: float
    ece: float
    brier: float
    aurc: float
    auroc: Interval | None
    set_size: float
    coverage: float
    distance: float | None
    microseconds: float | None
    evidence: Evidence | None = field(default=None, repr=False)

    def value(self, column: str) -> float | None:
        """The number of a column, None where there is none."""
        found = getattr(self, column)
        return found.estimate if isinstance(found, Interval) else found
