"""What a classifier answers: probabilities with intervals for every class, and how much
is not known, and why.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from laplacebridge._checks import is_half, require_alike, require_tensor, rows_of
from laplacebridge._prediction_tables import (
    ROWS_OF_HTML,
    ROWS_OF_TEXT,
    arrays_of,
    as_html,
    as_text,
    frame_of,
)
from laplacebridge._pytrees import register_value
from laplacebridge._special import complement, saturated
from laplacebridge._values import made, not_finite
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.logit_normal import LogitNormal
from laplacebridge.unusual import Unusual


@dataclass(frozen=True, eq=False)
class Prediction:
    """B predictions over K classes, each a distribution over class probabilities.

    Two views of the same distribution: the Dirichlet, which knows how classes go
    together and splits uncertainty into its parts; and for each class by itself a
    logit-normal marginal, which gives intervals for every class. The mean is the same
    in both.

    Attributes:
        dirichlet: The Dirichlets.
        log_odds_variance: Variances of the log-odds of every class, shape (B, K).
        unusual: How unusual each input is, if the classifier knows its features; see
            `ood_score`.
        row_shape: (B, T) where rows are T tokens of B texts: means are then of shape
            (B, T, K), labels and parts of uncertainty of shape (B, T). The Dirichlets
            stay rows, which is what sets, scores and metrics take; so does a part,
            ``prediction[rows]``.

    Example:
        >>> from laplacebridge import Diagonal, LogitGaussian, predict
        >>> gaussian = LogitGaussian(torch.tensor([[2.0, 0.0, -1.0]]), Diagonal(torch.ones(1, 3)))
        >>> prediction = predict(gaussian)
        >>> prediction
        Prediction of 1 example, 3 classes
          class 0: 0.762 (0.273 to 0.982)
        >>> lower, upper = prediction.interval(0.95)
        >>> upper
        tensor([[0.9820, 0.6409, 0.3431]])
    """

    dirichlet: Dirichlet
    log_odds_variance: Float[Tensor, "B K"]
    unusual: Unusual | None = None
    row_shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        call = "Prediction(dirichlet, log_odds_variance)"
        log = self.dirichlet.log_concentration
        variance = require_tensor(call, self.log_odds_variance, "B K")
        if variance.shape != log.shape:
            raise ShapeError(
                f"`{call}` needs a variance for every class of every row; got"
                f" {tuple(variance.shape)} for Dirichlets of shape {tuple(log.shape)}."
            )
        require_alike(call, log, variance, ("Dirichlets", "variances"))
        if self.unusual is not None and self.unusual.score.shape != variance.shape[:1]:
            raise ShapeError(
                "A prediction needs one score for every row; got"
                f" {tuple(self.unusual.score.shape)} for {variance.shape[0]} rows."
            )

    def as_rows(self) -> "Prediction":
        """The same with a row for every prediction, of whatever text it is."""
        return replace(self, row_shape=None) if self.row_shape else self

    def _shaped(self, rows: Tensor) -> Tensor:
        """Rows as texts and tokens, where that is what they are."""
        return rows.view(*self.row_shape, *rows.shape[1:]) if self.row_shape else rows

    @property
    def mean(self) -> Float[Tensor, "*B K"]:
        """Class probabilities: the mean of the distribution."""
        return self._shaped(self.dirichlet.mean)

    @property
    def label(self) -> Int[Tensor, "*B"]:
        """The most probable class."""
        return self._shaped(self.dirichlet.log_concentration.argmax(-1))

    @property
    def num_classes(self) -> int:
        """K."""
        return self.dirichlet.num_classes

    @property
    def dtype(self) -> torch.dtype:
        """The type of the numbers."""
        return self.log_odds_variance.dtype

    @property
    def total(self) -> Float[Tensor, "*B"]:
        """Total uncertainty about the label in nats: the entropy of the mean, aleatoric
        and epistemic together.
        """
        return self._shaped(self.dirichlet.entropy_of_mean())

    @property
    def aleatoric(self) -> Float[Tensor, "*B"]:
        """Uncertainty that more training data would not remove: the expected entropy,
        in nats.
        """
        return self._shaped(self.dirichlet.expected_entropy())

    @property
    def epistemic(self) -> Float[Tensor, "*B"]:
        """Uncertainty about the probabilities themselves: the mutual information of
        label and network, in nats.
        """
        return self._shaped(self.dirichlet.mutual_information())

    @property
    def ood_score(self) -> Float[Tensor, "*B"]:
        """How unusual each input is, from 0 upwards: higher is more unusual, whatever
        its most probable class.

        It is for finding inputs unlike the training data. To find wrong answers among
        inputs like those, 1 − max p of the mean is the better score.

        Raises:
            InputError: If the classifier has no statistics of features.
        """
        return self._shaped(self._known_unusual().score)

    @property
    def ood_quantile(self) -> Float[Tensor, "*B"]:
        """Which share of held-out data each input is more unusual than: 0.992 reads
        "more unusual than 99.2 % of them".

        With a guarantee: an input that comes from where the held-out data come from
        reaches 1 − α with probability at most α, for each α and however many they are.

        Raises:
            InputError: If the classifier has no statistics of features, or was fitted
                without held-out data.
        """
        return self._shaped(self._known_unusual().quantile())

    def _known_unusual(self) -> Unusual:
        if self.unusual is None:
            raise InputError(
                "This prediction has no `ood_score`: it needs a classifier whose fit summed its"
                " features. Fit with `feature_statistics=True`, on all batches anew; a model whose"
                " last layer is not linear, and a bridge by itself, have none."
            )
        return self.unusual

    def marginals(self) -> LogitNormal:
        """The distribution of each class's probability by itself, with the same mean."""
        working = self.to(torch.float32) if is_half(self.dtype) else self
        mean = working.dirichlet.mean
        return LogitNormal.with_mean(mean, complement(mean), working.log_odds_variance)

    def interval(self, level: float = 0.95) -> tuple[Float[Tensor, "*B K"], Float[Tensor, "*B K"]]:
        """Lower and upper bounds of the probability of every class.

        Args:
            level: How probable it is that the probability of a class lies within its
                bounds.
        """
        lower, upper = self.marginals().interval(level)
        return self._shaped(lower.to(self.dtype)), self._shaped(upper.to(self.dtype))

    def probability_above(self, threshold: float) -> Float[Tensor, "*B K"]:
        """How probable it is that the probability of a class exceeds a threshold, for
        every class.

        Args:
            threshold: Between 0 and 1.
        """
        return self._shaped(self.marginals().survival(threshold).to(self.dtype))

    def numpy(self, level: float = 0.95) -> "dict[str, np.ndarray]":
        """Everything as NumPy arrays: mean, lower, upper, label, total, aleatoric,
        epistemic, and ood_score and ood_quantile where they are known.

        Args:
            level: Of the intervals.
        """
        return arrays_of(self, "label", level, self.unusual)

    def to_pandas(self, class_names: Sequence[str] | None = None, level: float = 0.95) -> Any:  # noqa: ANN401
        """A frame with a row for each example: the most probable class with its
        interval, the parts of uncertainty, and the probability of every class.

        Args:
            class_names: One name for each class; by default their numbers.
            level: Of the intervals.

        Raises:
            ShapeError: If there are fewer or more names than classes.
            LaplaceBridgeError: If pandas is not installed.
        """
        names = list(range(self.num_classes)) if class_names is None else list(class_names)
        if len(names) != self.num_classes:
            raise ShapeError(
                f"`to_pandas(class_names)` needs a name for each of {self.num_classes} classes; got"
                f" {len(names)}."
            )
        return frame_of(self.as_rows().numpy(level), names)

    def to(self, target: torch.dtype | torch.device | str) -> "Prediction":
        """The same predictions in another type or on another device.

        Args:
            target: The type or device.
        """
        variance = self.log_odds_variance
        if target == variance.dtype:
            return self
        narrowed = (
            saturated(variance, target) if isinstance(target, torch.dtype) else variance.to(target)
        )
        unusual = self.unusual and self.unusual.to(target)
        return Prediction(self.dirichlet.to(target), narrowed, unusual, self.row_shape)

    def problems(self) -> "Iterator[tuple[str, Bool[Tensor, ' B']]]":
        """What could make these predictions invalid, each with the rows where it does;
        see `check`.
        """
        yield from self.dirichlet.problems()
        yield not_finite("log_odds_variance", self.log_odds_variance)
        yield "a variance is negative", (self.log_odds_variance < 0).any(-1)

    def __len__(self) -> int:
        return len(self.log_odds_variance)

    def __getitem__(self, rows: int | slice | Tensor | Sequence[int]) -> "Prediction":
        """The predictions of some rows; an integer keeps the batch dimension. Tokens of
        texts are rows one after another, or chosen by a mask of shape (B, T).
        """
        if self.row_shape and isinstance(rows, Tensor) and rows.dtype == torch.bool:
            rows = rows.flatten() if rows.shape == self.row_shape else rows
        chosen = rows_of(rows, len(self))
        return Prediction(
            Dirichlet(self.dirichlet.log_concentration[chosen]),
            self.log_odds_variance[chosen],
            self.unusual and Unusual(self.unusual.score[chosen], self.unusual.reference),
        )

    def __repr__(self) -> str:
        """The first few: the most probable class with its probability and 95 %
        interval.
        """
        return as_text(self[:ROWS_OF_TEXT].numpy(), len(self))

    def _repr_html_(self) -> str:
        """A table of the first few, in notebooks."""
        return as_html(self[:ROWS_OF_HTML].numpy(), len(self))


def prediction_of(
    log_concentration: Float[Tensor, "B K"], variance: Float[Tensor, "B K"], dtype: torch.dtype
) -> Prediction:
    """What bridges make of their numbers, which are not checked again.

    Args:
        log_concentration: Of the Dirichlets.
        variance: Of the log-odds.
        dtype: What type the prediction has.
    """
    dirichlet = made(Dirichlet, log_concentration=log_concentration)
    prediction = made(Prediction, dirichlet=dirichlet, log_odds_variance=variance)
    return prediction if variance.dtype == dtype else prediction.to(dtype)


register_value(Prediction, "dirichlet", "log_odds_variance", "unusual")
