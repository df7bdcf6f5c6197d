r"""How wide: temperature and variance of the logits, chosen so that they agree with
what held-out labels reveal.

The likelihood of single labels tests the mean of a prediction alone, and cannot choose
its width: where the mean is good without any variance, it asks for none. So the mean is
chosen by the labels one at a time, and the width by the labels *together*.
Probabilities are as wide as N(m/T, sΣ + σ² mmᵀ/T² + cI) makes them, around a mean of
their own:

1.  T₀ minimises the NLL of softmax(m/T₀) on held-out labels, and σ² is the variance of
    log T₀.
2.  Σ is the posterior under the prior precision of the largest evidence. s maximises
    the joint likelihood of all held-out labels under weights drawn from N(w, sΣ_w), in
    closed form along the posterior's own axes.
3.  T, and the share k of the variance that enters the mean, keep the mean as close to
    softmax(m/T₀) as variance allows, and hardly worse on held-out labels: where the
    evidence doubts what labels bear out, k is small.
4.  The error of the probabilities, E|p − p*|², that held-out labels reveal is the
    largest of what the posterior says, of what the Brier scores on training and
    held-out labels say together, and of what neighbouring held-out examples with
    residuals in common say. c makes the predictions say that error.
5.  Log-odds are the further off the larger they are: intervals widen with them; see
    `bridges.predict_apart`.

Far from held-out data both fade; see `Posterior.wide_and_narrow`.

`benchmarks/bench_intervals.py` leaves out each step in turn. The share k changes
nothing
there: it is for networks trained on few rows, where the evidence can be ruinous.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge.bridges import Bridge
from laplacebridge.laplace.candidate_widths import Candidates
from laplacebridge.laplace.label_statistics import LabelStatistics, brier_scores
from laplacebridge.laplace.posterior import Posterior, Widening
from laplacebridge.laplace.revealed_error import (
    CLEAR,
    EARNED,
    brier_gap,
    joint_scale,
    network_temperature,
    shared_residuals,
)

# Predictions for so many held-out numbers (examples × classes) are tried while
# temperature and variance are searched.
TRIED_ELEMENTS, FEWEST_TRIED = 2**17, 16
# Answers about labels by themselves take a quadrature each.
TRIED_OF_LABELS = 32
# Logits of held-out examples that are looked at together, N × K in float64.
HELD_OUT_ELEMENTS = 2**24
# Of fewer than so many, a user is told.
FEW_TRIED = 128
# Temperature of a network that fits its training labels far better than others.
OVERFITTED = 3.0
# Fewer held-out labels than these say next to nothing about the width.
FEW_LABELS = 20


class Width(NamedTuple):
    """Temperature and variances of the logits, and the errors that they rest on.

    Errors are E|p − p*|², squared distances between predicted and true probabilities
    summed over classes, averaged over inputs like the held-out ones.

    Attributes:
        widening: What is done to the posterior.
        error: What the predictions now say.
        posterior_error: What they say without c.
        gap_error: What training and held-out Brier scores say together.
        gap_standard_error: Its standard error.
        neighbour_error: What neighbouring examples with residuals in common say; 0 if
            they have none.
        network_temperature: T₀, of the network by itself.
        training_brier: Brier score of the network on its training labels.
        held_out_brier: The same on held-out labels.
        num_labels: How many held-out labels there were.
        num_tried: On how many of these examples temperature and variance were tried.
        num_votes: How many votes, where several people labelled each example; else 0.
    """

    widening: Widening
    error: float
    posterior_error: float
    gap_error: float
    gap_standard_error: float
    neighbour_error: float
    network_temperature: float
    training_brier: float
    held_out_brier: float
    num_labels: int
    num_tried: int
    num_votes: int = 0

    def described(self, num_classes: int) -> str:
        """What the intervals rest on, in a sentence.

        Args:
            num_classes: K, over which the error is spread.
        """
        per_class = math.sqrt(self.error / num_classes)
        if self.num_votes:
            return (
                f"intervals: error of the probabilities {per_class:.3f} per class (root mean"
                f" square), as {self.num_votes} votes on {self.num_labels} held-out examples"
                f" say{self._part_tried()}"
            )
        posterior = min(1.0, self.posterior_error / self.error) if self.error else 1.0
        rest = "neighbours" if self.neighbour_error > self.gap_error else "gap"
        shares = (
            "the posterior alone"
            if posterior == 1
            else f"posterior {posterior:.0%}, {rest} {1 - posterior:.0%}"
        )
        return (
            f"intervals: error of the probabilities {per_class:.3f} per class (root mean square),"
            f" from {shares}; {self.num_labels} held-out labels, standard error of the gap"
            f" {self.gap_standard_error:.4f}{self._part_tried()}"
        )

    def _part_tried(self) -> str:
        """With very many classes, a pass over all examples for every width takes too
        long.
        """
        few = self.num_tried < self.num_labels and self.num_tried < FEW_TRIED
        return f"; tried on {self.num_tried} of them, as many as are affordable" if few else ""

    def warnings(self) -> list[str]:
        """What a user should know before relying on the intervals."""
        found = []
        if self.gap_standard_error > self.error and not self.num_votes:
            enough = math.ceil(
                self.num_labels * (self.gap_standard_error / max(self.error, 1e-9)) ** 2
            )
            found.append(
                f"With {self.num_labels} held-out labels the width of intervals cannot be checked:"
                f" it rests on the evidence of the training data alone. About {enough} would do."
            )
        elif self.num_labels < FEW_LABELS and not self.num_votes:
            found.append(
                f"{self.num_labels} held-out labels are hardly enough to choose temperature and"
                " width of intervals by, which may be too narrow. A hundred would do, and several"
                " hundred do well."
            )
        if self.training_brier - self.held_out_brier > CLEAR * 2 * self.gap_standard_error:
            found.append(
                "The network fits the held-out labels better than its training labels (Brier score"
                f" {self.held_out_brier:.3f} against {self.training_brier:.3f}). Was it trained on"
                " them? Intervals are then too narrow: give examples that it has not seen."
            )
        if self.network_temperature > OVERFITTED and self.training_brier < self.held_out_brier:
            found.append(
                "The network fits its training labels far better than others (Brier score"
                f" {self.training_brier:.3f} against {self.held_out_brier:.3f}, temperature"
                f" {self.network_temperature:.2g}): most of the width of intervals comes from that"
                " gap, not from the posterior."
            )
        return found


def by_held_out_labels(
    posterior: Posterior,
    bridge: Bridge,
    features: object,
    labels: Int[Tensor, " N"],
    training: LabelStatistics,
    votes: Int[Tensor, "N K"] | None = None,
) -> Width:
    """Temperature and width by held-out labels, or by votes where there are votes.

    Several votes on one example tell how far its probabilities are off, which single
    labels cannot: with them T₀ minimises the NLL of the votes, and s and c maximise
    their Dirichlet-multinomial likelihood.

    Args:
        posterior: Under the prior of the largest evidence, as it was fitted.
        bridge: The bridge that will be used to predict.
        features: What the network makes of held-out examples.
        labels: Their labels.
        training: What the labels of the fit said.
        votes: How many people chose each class, for each held-out example.

    Example:
        >>> from laplacebridge import race_bridge
        >>> from laplacebridge.laplace import Kron, KronPosterior
        >>> features, weight = torch.eye(3).repeat(40, 1), 4 * torch.eye(3)
        >>> logits, labels = (features @ weight.T).double(), torch.arange(120) % 3
        >>> posterior = KronPosterior(
        ...     weight, None, Kron.of_batch(features, logits.softmax(-1)), 1.0
        ... )
        >>> # a fifth is not as it was learnt
        >>> held_out = torch.where(torch.arange(120) < 24, (labels + 1) % 3, labels)
        >>> width = by_held_out_labels(
        ...     posterior, race_bridge, features, held_out, LabelStatistics.of_batch(logits, labels)
        ... )
        >>> width.network_temperature > 1, width.error > width.posterior_error
        (True, True)
    """
    with torch.no_grad():
        features, labels, votes = _affordable(posterior, features, labels, votes)
        logits = _logits(posterior, features)
        start, start_variance = network_temperature(logits, labels if votes is None else votes)
        scale = (
            1.0 if votes is not None else joint_scale(posterior, features, logits / start, labels)
        )
        rows = posterior.rows_per_example
        examples = len(labels) // rows
        affordable = TRIED_ELEMENTS // (logits.shape[1] if rows == 1 else TRIED_OF_LABELS * rows)
        examples = min(examples, max(FEWEST_TRIED, affordable))
        tried = Candidates(posterior, bridge, posterior.moments(features[:examples]))  # type: ignore[index]
        number = examples * rows
        scaled = (logits[:number] / start).softmax(-1)
        widening = tried.near(scaled, labels[:number], Widening(start, scale, start_variance))
        said = tried.stated_error(widening)
        gap, gap_error = brier_gap(logits, labels, start, training)
        neighbours = 0.0
        if votes is not None:
            widening = tried.likeliest(votes[:number], widening)
        else:
            neighbours = shared_residuals(features, logits / start, labels)
            revealed = max(gap if gap > EARNED * gap_error else 0.0, neighbours)
            revealed = min(revealed, 0.5 * float(brier_scores(logits / start, labels).mean()))
            if revealed > said:
                widening = tried.saying(revealed, widening)
        return Width(
            widening=widening,
            error=tried.stated_error(widening),
            posterior_error=said,
            gap_error=gap,
            gap_standard_error=gap_error,
            neighbour_error=neighbours,
            network_temperature=start,
            training_brier=training.brier,
            held_out_brier=float(brier_scores(logits, labels).mean()),
            num_labels=len(labels),
            num_tried=number,
            num_votes=0 if votes is None else int(votes.sum()),
        )


def _affordable(
    posterior: Posterior, features: object, labels: Tensor, votes: Tensor | None
) -> tuple[object, Tensor, Tensor | None]:
    """Held-out examples of which logits in float64 fit into memory, evenly chosen."""
    most = max(FEWEST_TRIED, HELD_OUT_ELEMENTS // posterior.num_classes)
    if posterior.rows_per_example > 1 or len(labels) <= most:
        return features, labels, votes
    chosen = torch.linspace(0, len(labels) - 1, most, device=labels.device).round().long()
    some = features[chosen]  # type: ignore[index]
    return some, labels[chosen], None if votes is None else votes[chosen]


def _logits(posterior: Posterior, features: object) -> Float[Tensor, "N K"]:
    (logits,) = posterior.under_priors(
        features, [float(posterior.prior_precision)], lambda gaussian: gaussian.mean
    )
    return logits.double()
