"""What a network with several labels at once answers: for every label a distribution
over the probability that it applies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from laplacebridge._checks import rows_of
from laplacebridge._prediction_tables import arrays_of, imported_pandas
from laplacebridge.beta import Beta
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.prediction import Prediction

_SHOWN = 3


@dataclass(frozen=True, eq=False)
class MultiLabelPrediction:
    """B predictions about K labels, each a distribution over the probability that the
    label applies.

    Attributes:
        rows: B·K predictions of two classes, no and yes, labels of an example one after
            another.
        num_labels: K.

    Example:
        >>> from laplacebridge import Diagonal, LogitGaussian, predict
        >>> logits = LogitGaussian(
        ...     torch.tensor([[-1.0, 1.0], [2.0, -2.0]]), Diagonal(torch.ones(2, 2))
        ... )
        >>> prediction = MultiLabelPrediction(predict(logits), num_labels=2)
        >>> prediction.mean.round(decimals=3), prediction.applies
        (tensor([[0.8160, 0.0410]]), tensor([[ True, False]]))
    """

    rows: Prediction
    num_labels: int

    def __post_init__(self) -> None:
        if torch.compiler.is_compiling():  # for any number of rows
            return
        if self.rows.num_classes != 2 or len(self.rows) % self.num_labels:
            raise ShapeError(
                "`MultiLabelPrediction(rows, num_labels)` needs a prediction of two classes for"
                f" each label of each example; got {len(self.rows)} of {self.rows.num_classes}"
                f" classes for {self.num_labels} labels."
            )

    @property
    def mean(self) -> Float[Tensor, "B K"]:
        """How probable it is that each label applies."""
        return self._shaped(self.rows.mean[:, 1])

    @property
    def applies(self) -> Bool[Tensor, "B K"]:
        """Which labels are more probable than not."""
        return self._shaped(self.rows.label.bool())

    def betas(self) -> Beta:
        """The Beta distributions of the probabilities, B·K of them."""
        return self.rows.dirichlet.marginal(1)

    def interval(self, level: float = 0.95) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B K"]]:
        """Lower and upper bounds of the probability of every label.

        Args:
            level: How probable it is that it lies within its bounds.
        """
        lower, upper = self.rows.interval(level)
        return self._shaped(lower[:, 1]), self._shaped(upper[:, 1])

    def probability_above(self, threshold: float) -> Float[Tensor, "B K"]:
        """How probable it is that the probability of a label exceeds a threshold.

        Args:
            threshold: Between 0 and 1.
        """
        return self._shaped(self.rows.probability_above(threshold)[:, 1])

    @property
    def total(self) -> Float[Tensor, "B K"]:
        """Uncertainty about each label in nats: the entropy of the mean."""
        return self._shaped(self.rows.total)

    @property
    def aleatoric(self) -> Float[Tensor, "B K"]:
        """The part of it that more training data would not remove."""
        return self._shaped(self.rows.aleatoric)

    @property
    def epistemic(self) -> Float[Tensor, "B K"]:
        """The part that they would: mutual information of the label and the network."""
        return self._shaped(self.rows.epistemic)

    @property
    def ood_score(self) -> Float[Tensor, " B"]:
        """How unusual each input is, from 0 upwards, whatever labels apply to it.

        Raises:
            InputError: If the classifier has no statistics of features.
        """
        return self._shaped(self.rows.ood_score)[:, 0]

    @property
    def ood_quantile(self) -> Float[Tensor, " B"]:
        """Which share of held-out data each input is more unusual than; see
        `Prediction.ood_quantile`.

        Raises:
            InputError: If the classifier has no statistics of features, or was fitted
                without held-out data.
        """
        return self._shaped(self.rows.ood_quantile)[:, 0]

    @property
    def knows_unusual(self) -> tuple[bool, bool]:
        """Whether there is an `ood_score`, and whether there is an `ood_quantile`."""
        known = self.rows.unusual
        return known is not None, known is not None and len(known.reference) > 0

    def label(self, index: int) -> Prediction:
        """The predictions of one label as of two classes, no and yes, for everything
        that takes a `Prediction`.

        Args:
            index: Which label, from 0.

        Raises:
            InputError: If there is no such label.
        """
        if not 0 <= index < self.num_labels:
            raise InputError(
                f"`label(index)` needs a label from 0 to {self.num_labels - 1}; got {index}."
            )
        return self.rows[slice(index, None, self.num_labels)]

    def numpy(self, level: float = 0.95) -> "dict[str, np.ndarray]":
        """Everything as NumPy arrays of shape (B, K): mean, lower, upper, applies,
        total, aleatoric, epistemic; and, if known, ood_score and ood_quantile of shape
        (B,).

        Args:
            level: Of the intervals.
        """
        return arrays_of(self, "applies", level, self.rows.unusual)

    def to_pandas(self, label_names: Sequence[str] | None = None, level: float = 0.95) -> Any:  # noqa: ANN401
        """A frame with a row for each example: ``labels``, the names of those that
        apply, and for every label ``p(name)``, its bounds, and the parts of
        uncertainty; how unusual the example is, if known. Needs pandas.

        Args:
            label_names: Names of the labels; numbers by default.
            level: Of the bounds.

        Raises:
            InputError: If there are not as many names as labels, or one comes twice.
            LaplaceBridgeError: If pandas is not installed.

        Example:
            >>> from laplacebridge import Diagonal, LogitGaussian, predict
            >>> logits = LogitGaussian(
            ...     torch.tensor([[-1.0, 1.0], [2.0, -2.0]]), Diagonal(torch.ones(2, 2))
            ... )
            >>> frame = MultiLabelPrediction(predict(logits), num_labels=2).to_pandas(["a", "b"])
            >>> frame["labels"][0], list(frame)[1:4]
            ('a', ['p(a)', 'lower(a)', 'upper(a)'])
        """
        names = [str(index) for index in range(self.num_labels)]
        if label_names is not None:
            names = list(map(str, label_names))
        if len(names) != self.num_labels or len(set(names)) != self.num_labels:
            raise InputError(
                f"`to_pandas(label_names)` needs a name of its own for each of {self.num_labels}"
                f" labels; got {names}."
            )
        values = self.numpy(level)
        applies = values.pop("applies")
        columns: dict[str, object] = {
            "labels": [", ".join(np.compress(row, names)) for row in applies]
        }
        values["p"] = values.pop("mean")
        order = ("p", "lower", "upper", "total", "aleatoric", "epistemic")
        for place, name in enumerate(names):
            columns |= {f"{part}({name})": values[part][:, place] for part in order}
        columns |= {part: values[part] for part in ("ood_score", "ood_quantile") if part in values}
        return imported_pandas().DataFrame(columns)

    def to(self, target: torch.dtype | torch.device | str) -> "MultiLabelPrediction":
        """The same predictions in another type or on another device.

        Args:
            target: The type or device.
        """
        return MultiLabelPrediction(self.rows.to(target), self.num_labels)

    def _shaped(self, values: Tensor) -> Tensor:
        return values.view(-1, self.num_labels)

    def __len__(self) -> int:
        return len(self.rows) // self.num_labels

    def __getitem__(self, rows: int | slice | Tensor | Sequence[int]) -> "MultiLabelPrediction":
        """The predictions of some examples; an integer keeps the batch dimension."""
        device = self.rows.log_odds_variance.device
        chosen = torch.arange(len(self), device=device)[rows_of(rows, len(self))]
        labels = torch.arange(self.num_labels, device=device)
        of_rows = (chosen.unsqueeze(-1) * self.num_labels + labels).flatten()
        return MultiLabelPrediction(self.rows[of_rows], self.num_labels)

    def __repr__(self) -> str:
        """The first few: labels that apply, with their probability and 95 % interval."""
        count = len(self)
        lines = [
            f"MultiLabelPrediction of {count} example{'s' * (count != 1)}, {self.num_labels} labels"
        ]
        some = self[:_SHOWN]
        for mean, low, high in zip(some.mean, *some.interval()):
            named = [
                f"{label}: {mean[label]:.3f} ({low[label]:.3f} to {high[label]:.3f})"
                for label in (mean > 0.5).nonzero().flatten().tolist()
            ]
            lines.append(f"  {', '.join(named) or 'none'}")
        return "\n".join([*lines, "  …"] if count > _SHOWN else lines)


def per_label(
    metric: Callable[[Prediction, Tensor], object],
    prediction: MultiLabelPrediction,
    labels: Tensor,
) -> Float[Tensor, " K"]:
    """A metric of every label by itself.

    Args:
        metric: From predictions of two classes and labels to a number, such as
            `lb.metrics.nll`, `lb.metrics.brier`, `lb.metrics.ece`.
        prediction: For B examples.
        labels: Ones and zeros, shape (B, K).

    Example:
        >>> from laplacebridge import Diagonal, LogitGaussian, metrics, predict
        >>> logits = LogitGaussian(
        ...     torch.tensor([[-1.0, 1.0], [2.0, -2.0]]), Diagonal(torch.ones(2, 2))
        ... )
        >>> prediction = MultiLabelPrediction(predict(logits), num_labels=2)
        >>> per_label(metrics.accuracy, prediction, torch.tensor([[1, 1]]))
        tensor([1., 0.], dtype=torch.float64)
    """
    truth = labels_of_examples("per_label(labels)", labels, prediction)
    found = [
        float(metric(prediction.label(index), truth[:, index]))  # type: ignore[arg-type]
        for index in range(prediction.num_labels)
    ]
    return torch.tensor(found, dtype=torch.float64)


def labels_of_examples(call: str, labels: object, prediction: MultiLabelPrediction) -> Tensor:
    """Ones and zeros for every label of every example, as integers.

    Args:
        call: The call being checked.
        labels: What was given.
        prediction: What they belong to.

    Raises:
        ShapeError: If they are of another shape.
        InputError: If they are something else.
    """
    given = torch.as_tensor(labels).to(prediction.rows.log_odds_variance.device)
    if tuple(given.shape) != (len(prediction), prediction.num_labels):
        raise ShapeError(
            f"`{call}` needs a one or a zero for each of {prediction.num_labels} labels of"
            f" {len(prediction)} examples; got shape {tuple(given.shape)}."
        )
    if not ((given == 0) | (given == 1)).all():
        raise InputError(
            f"`{call}` needs ones and zeros; got {given[(given != 0) & (given != 1)][0]}."
        )
    return given.long()
