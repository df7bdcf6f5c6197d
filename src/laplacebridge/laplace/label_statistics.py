"""What the labels of a fit say about the network: likelihood, accuracy, and how many
examples each class has.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge._warnings import warn
from laplacebridge.laplace.loss import PLAIN, Loss

# Share of the way from always answering the commonest class to always being right,
# below which nothing was learnt.
LEAST_LEARNT = 0.1
# Of fewer labels, chance explains any accuracy.
FEWEST_LABELS = 30
# Classes that a warning names; of more, as a vocabulary has them, many are always missing.
NAMED_CLASSES, MOST_CLASSES = 5, 1000


@dataclass(frozen=True, eq=False)
class LabelStatistics:
    """Sums over labelled examples, which add.

    Attributes:
        log_likelihood: Sum of log p(y | x) by the network, with the weights and the
            smoothing of its loss; None if it is not known for all of them.
        num_correct: How many labels the network gets right.
        class_counts: How many examples each class has, shape (K,).
        squared_error: Sum of Σ_k (p_k − 1[k = y])², the Brier score, by the network.
        fourth_power: Sum of its squares, for its standard error.
        sample_weight: Sum of the examples' weights, if their classes have weights.
        class_weight: Sum of both weights multiplied; see `scale`.

    Example:
        >>> logits, labels = (
        ...     torch.tensor([[2.0, 0.0], [1.0, 0.0]], dtype=torch.float64),
        ...     torch.tensor([0, 1]),
        ... )
        >>> statistics = LabelStatistics.of_batch(logits, labels)
        >>> statistics.accuracy, (statistics + statistics).class_counts.tolist()
        (0.5, [2, 2])
    """

    log_likelihood: float | None
    num_correct: int
    class_counts: Int[Tensor, " K"]
    squared_error: float
    fourth_power: float
    sample_weight: float = 0.0
    class_weight: float = 0.0

    @classmethod
    def of_batch(
        cls,
        logits: Float[Tensor, "B K"],
        labels: Int[Tensor, " B"],
        loss: Loss = PLAIN,
        weights: Float[Tensor, " B"] | None = None,
    ) -> "LabelStatistics":
        """The sums over one batch.

        Args:
            logits: Of the network, in float64.
            labels: Classes, none of them ignored.
            loss: What the network was trained with.
            weights: Of the examples, if they have any.
        """
        errors = brier_scores(logits, labels)
        return cls(
            loss.log_likelihood(logits, labels, weights),
            int((logits.argmax(-1) == labels).sum()),
            torch.bincount(labels, minlength=logits.shape[-1]).cpu(),
            float(errors.sum()),
            float(errors.square().sum()),
            *loss.scale_sums(labels, weights),
        )

    @classmethod
    def of_none(cls, num_classes: int) -> "LabelStatistics":
        """The sums over no labels.

        Args:
            num_classes: K.
        """
        return cls(0.0, 0, torch.zeros(num_classes, dtype=torch.int64), 0.0, 0.0)

    def __add__(self, other: "LabelStatistics") -> "LabelStatistics":
        known = self.log_likelihood is not None and other.log_likelihood is not None
        return LabelStatistics(
            self.log_likelihood + other.log_likelihood if known else None,  # type: ignore[operator]
            self.num_correct + other.num_correct,
            self.class_counts + other.class_counts,
            self.squared_error + other.squared_error,
            self.fourth_power + other.fourth_power,
            self.sample_weight + other.sample_weight,
            self.class_weight + other.class_weight,
        )

    @property
    def scale(self) -> float:
        """What sums are multiplied by, so that weights of classes are one on average:
        `nn.CrossEntropyLoss` divides by them, and their size means nothing.
        """
        return self.sample_weight / self.class_weight if self.class_weight else 1.0

    def scaled(self) -> "LabelStatistics":
        """The same, with a likelihood to whose weights `scale` has been applied."""
        if self.log_likelihood is None or self.scale == 1:
            return self
        return replace(self, log_likelihood=self.log_likelihood * self.scale)

    @property
    def brier(self) -> float:
        """The mean Brier score of the network."""
        return self.squared_error / max(1, self.num_labels)

    @property
    def brier_variance(self) -> float:
        """The variance of the Brier score between examples."""
        return max(0.0, self.fourth_power / max(1, self.num_labels) - self.brier**2)

    @property
    def num_labels(self) -> int:
        """How many labels there are."""
        return int(self.class_counts.sum())

    @property
    def accuracy(self) -> float:
        """Share of labels that the network gets right."""
        return self.num_correct / max(1, self.num_labels)

    @property
    def commonest_share(self) -> float:
        """Share of the commonest class: the accuracy of always answering it."""
        return int(self.class_counts.max()) / max(1, self.num_labels)

    def is_near_chance(self) -> bool:
        """Whether the network has learnt hardly more than which class is the commonest;
        never said of a few labels.
        """
        learnt = self.commonest_share + LEAST_LEARNT * (1 - self.commonest_share)
        return self.num_labels >= FEWEST_LABELS and self.accuracy < learnt


def brier_scores(logits: Float[Tensor, "B K"], labels: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Σ_k (p_k − 1[k = y])² of each example, p = softmax(logits).

    Args:
        logits: In float64.
        labels: Classes.
    """
    probabilities = logits.softmax(-1)
    right = probabilities.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return probabilities.square().sum(-1) - 2 * right + 1


def warn_if_untrained(labels: LabelStatistics) -> None:
    """Warns when the network knows its training labels hardly better than chance,
    unless classes were weighted.

    Args:
        labels: What the labels of the fit say.
    """
    # with weights of classes the commonest one need not be answered most often
    if labels.is_near_chance() and not labels.class_weight:
        warn(
            f"The network gets {labels.accuracy:.1%} of the training labels right, hardly more than"
            f" the {labels.commonest_share:.1%} of always answering the commonest class. Is it"
            " trained, with its weights loaded (`--weights` on the command line), and are the"
            " labels those of these inputs?"
        )


def warn_if_classes_are_missing(labels: LabelStatistics) -> None:
    """Warns when the network has classes of which no training example was given.

    Args:
        labels: What the labels of the fit say.
    """
    missing = (labels.class_counts == 0).nonzero().flatten().tolist()
    few_labels, num_classes = labels.num_labels < FEWEST_LABELS, len(labels.class_counts)
    if not missing or few_labels or num_classes > MOST_CLASSES:
        return
    named = ", ".join(map(str, missing[:NAMED_CLASSES]))
    more = f" and {len(missing) - NAMED_CLASSES} more" if len(missing) > NAMED_CLASSES else ""
    warn(
        f"No training example has class {named}{more} (of {num_classes}, counted from 0)."
        " What is said of them rests on the others. Are these all training data, and labels in"
        " the order of the network's outputs?"
    )
