"""Labels that apply, labels that do not, and labels that are open, with a guarantee."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from laplacebridge._checks import require_coverage
from laplacebridge._ranks import fewest_for, rank_for
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.multi_label.prediction import MultiLabelPrediction, labels_of_examples


@dataclass(frozen=True, eq=False)
class LabelSets:
    """A calibrated rule: which answers, yes or no, remain for each label.

    If calibration examples and new ones are exchangeable, the answers that remain hold
    the truth with probability at least `coverage`: for each label by itself; or, if
    calibrated jointly, for all labels of an example at once.

    Attributes:
        thresholds: For each label, the least probability of an answer that remains.
        coverage: What was asked for.
        jointly: Whether it holds for all labels at once.
        num_examples: On how many examples it was calibrated.

    Example:
        >>> from laplacebridge import Diagonal, LogitGaussian, predict
        >>> rows = LogitGaussian(
        ...     torch.tensor([[-2.0, 2.0], [0.1, 0.0]]), Diagonal(torch.ones(2, 2))
        ... )
        >>> prediction = MultiLabelPrediction(predict(rows), num_labels=2)
        >>> sets = LabelSets(torch.tensor([0.3, 0.3]), coverage=0.9, jointly=False, num_examples=99)
        >>> sets(prediction)
        (tensor([[ True, False]]), tensor([[False,  True]]))
    """

    thresholds: Float[Tensor, " K"]
    coverage: float
    jointly: bool
    num_examples: int

    def __call__(
        self, prediction: MultiLabelPrediction
    ) -> tuple[Bool[Tensor, "B K"], Bool[Tensor, "B K"]]:
        """Which labels apply, and which are open. Those in neither do not apply.

        Args:
            prediction: Of the classifier that was calibrated.

        Raises:
            ShapeError: If it has other labels.
        """
        if prediction.num_labels != len(self.thresholds):
            raise ShapeError(
                f"These sets are of {len(self.thresholds)} labels; the prediction has"
                f" {prediction.num_labels}."
            )
        chance = prediction.mean.double()
        thresholds = self.thresholds.to(chance)
        yes, no = chance >= thresholds, 1 - chance >= thresholds
        # Where neither remains, the more probable answer does: that can only add coverage.
        neither = ~yes & ~no
        yes, no = yes | neither & (chance >= 0.5), no | neither & (chance < 0.5)
        return yes & ~no, yes & no


def calibrate(
    prediction: MultiLabelPrediction,
    labels: Tensor,
    *,
    coverage: float = 0.9,
    jointly: bool = False,
) -> LabelSets:
    """Chooses how probable an answer must be to remain, by split-conformal calibration.

    Args:
        prediction: For examples that were used for nothing before.
        labels: Ones and zeros, shape (B, K).
        coverage: The probability asked for.
        jointly: Ask it of all labels of an example at once, instead of each by itself:
            more labels are open then.

    Raises:
        InputError: If the coverage is not between 0 and 1, or there are too few
            examples for it.

    Example:
        >>> from laplacebridge import Diagonal, LogitGaussian, predict
        >>> logits = torch.linspace(-3, 3, 20).unsqueeze(-1)
        >>> rows = LogitGaussian(torch.cat([-logits, logits], -1) / 2, Diagonal(torch.ones(20, 2)))
        >>> calibrate(MultiLabelPrediction(predict(rows), 1), (logits > 0).long()).thresholds.round(
        ...     decimals=2
        ... )
        tensor([0.5300], dtype=torch.float64)
    """
    require_coverage("calibrate", coverage)
    truth = labels_of_examples("calibrate(labels)", labels, prediction)
    number = len(truth)
    rank = rank_for(coverage, number)
    if rank > number:
        raise InputError(
            f"`calibrate` needs at least {fewest_for(coverage)} examples for a coverage of"
            f" {coverage:g}; got {number}."
        )
    chance = prediction.mean.double()
    of_truth = torch.where(truth.bool(), chance, 1 - chance)  # (B, K)
    if jointly:
        of_truth = of_truth.amin(-1, keepdim=True)
    ordered = torch.sort(of_truth, 0, descending=True).values
    thresholds = ordered[rank - 1].expand(prediction.num_labels) * (1 - 1e-9)
    return LabelSets(thresholds.cpu().clone(), coverage, jointly, number)
