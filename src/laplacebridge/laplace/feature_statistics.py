"""What a fit counts of its features, so that unusual inputs can be told from usual
ones: sums that add.

Features are summed by class and as a matrix of squares. `feature_distance.py` makes
means and covariances of them.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from laplacebridge.laplace.sums import BYTES_PER_NUMBER, Sums


@dataclass(frozen=True, eq=False)
class FeatureStatistics(Sums):
    """Sums over the features of examples, which add like a curvature.

    Attributes:
        class_counts: How many examples each class has.
        class_sums: Σφ of each class.
        squares: Σφφᵀ.
        energies: Σ and Σ of squares of the energies −logsumexp of the logits.

    Example:
        >>> features, logits = torch.eye(4), torch.zeros(4, 2)
        >>> sums = FeatureStatistics.of_batch(features, logits, torch.tensor([0, 0, 1, 1]))
        >>> (sums + sums).class_counts
        tensor([4., 4.], dtype=torch.float64)
    """

    class_counts: Float[Tensor, " K"]
    class_sums: Float[Tensor, "K D"]
    squares: Float[Tensor, "D D"]
    energies: Float[Tensor, " 2"]

    @classmethod
    def of_batch(
        cls,
        features: Float[Tensor, "B D"],
        logits: Float[Tensor, "B K"],
        labels: Int[Tensor, " B"] | None = None,
    ) -> "FeatureStatistics":
        """The sums over one batch.

        Args:
            features: Inputs of the head, without a constant.
            logits: What the head makes of them.
            labels: Classes; by default those that the network predicts.
        """
        classes = logits.argmax(-1) if labels is None else labels
        exact, energies = features.double(), -logits.double().logsumexp(-1)
        num_classes = logits.shape[-1]

        def by_class(rows: Tensor) -> Tensor:
            return rows.new_zeros(num_classes, rows.shape[-1]).index_add_(0, classes, rows)

        return cls(
            exact.new_tensor(float(len(exact))),
            torch.bincount(classes, minlength=num_classes).double(),
            by_class(exact),
            exact.T @ exact,
            torch.stack([energies.sum(), energies.square().sum()]),
        )

    @staticmethod
    def num_bytes(num_features: int, num_classes: int) -> int:
        """How much memory the sums take.

        Args:
            num_features: D.
            num_classes: K.
        """
        return BYTES_PER_NUMBER * (num_features * (num_features + num_classes) + num_classes + 3)


def joint_logit(logits: Float[Tensor, "B K"]) -> Float[Tensor, "B 1"]:
    """Σ_k log(1 + exp z_k), the log of how much all answers to K yes-or-no questions
    weigh: as the logit of a single class, its energy is that of all labels together.

    Args:
        logits: Of labels that are each a question by itself.

    Example:
        >>> joint_logit(torch.tensor([[0.0, 0.0], [9.0, -9.0]]))
        tensor([[1.3863],
                [9.0002]])
    """
    return softplus(logits).sum(-1, keepdim=True)
