"""The loss that a network was trained with, as far as its curvature depends on it:
weights of classes and examples, smoothed labels, one class or several labels at once.

Every such loss of one example is Σ_k q_k (−log p_k) with weights q that do not depend
on the network, so that its Hessian in the logits is that of the plain loss times Σ_k
q_k. Smoothing alone leaves that sum at one, and the curvature as it is; it changes the
likelihood.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from laplacebridge.errors import InputError, InputTypeError, ShapeError


@dataclass(frozen=True, eq=False)
class Loss:
    """What is minimised, summed over examples.

    Of one class out of K: `nn.CrossEntropyLoss`. Its mean over examples divides by the
    weights of their classes; so do sums here, by `LabelStatistics.scale`. Of several
    labels at once: `nn.BCEWithLogitsLoss`.

    Attributes:
        class_weight: The loss's ``weight``; of several labels at once its
            ``pos_weight``. None for ones.
        label_smoothing: ε: the share of each label that is spread over all classes.
        sample_weights: Whether batches have weights of examples.
        multi_label: Whether labels are K yes-or-no questions.

    Example:
        >>> loss = Loss.of([1.0, 3.0], label_smoothing=0.1)
        >>> loss.weights(torch.tensor([0, 1]), None)
        tensor([1.1000, 2.9000], dtype=torch.float64)
    """

    class_weight: Float[Tensor, " K"] | None = None
    label_smoothing: float = 0.0
    sample_weights: bool = False
    multi_label: bool = False

    @classmethod
    def of(
        cls,
        class_weight: Tensor | Sequence[float] | None = None,
        label_smoothing: float = 0.0,
        sample_weights: bool = False,
        multi_label: bool = False,
    ) -> "Loss":
        """A loss, with what was given checked.

        Args:
            class_weight: One positive number for each class.
            label_smoothing: From 0 to below 1.
            sample_weights: Whether batches have weights of examples.
            multi_label: Whether labels are K yes-or-no questions.

        Raises:
            InputError: If a number is out of its range.
            InputTypeError: If the weights are no numbers.
        """
        if not isinstance(label_smoothing, (int, float)) or not 0 <= label_smoothing < 1:
            raise InputError(
                f"`fit(label_smoothing)` needs a share from 0 to below 1; got {label_smoothing!r}."
                " 0.1 is usual."
            )
        weight = None
        if isinstance(class_weight, (str, Mapping)):
            raise InputTypeError(
                "`fit(class_weight)` needs the numbers themselves, one for each class in the order"
                f" of the logits; got {class_weight!r}. What scikit-learn calls balanced is"
                " `len(labels) / (num_classes * torch.bincount(labels))`."
            )
        if class_weight is not None:
            weight = torch.as_tensor(class_weight).detach().double().cpu()
            if weight.dim() != 1 or not (weight.isfinite() & (weight > 0)).all():
                raise InputError(
                    "`fit(class_weight)` needs one positive number for each class, as"
                    f" `nn.CrossEntropyLoss(weight=...)` has them; got {class_weight}."
                )
        return cls(weight, float(label_smoothing), sample_weights, multi_label)

    def require_classes(self, num_classes: int) -> None:
        """Refuses weights that are not one for each class.

        Args:
            num_classes: K.

        Raises:
            ShapeError: If they are more or fewer.
        """
        if self.class_weight is not None and len(self.class_weight) != num_classes:
            raise ShapeError(
                f"`fit(class_weight)` needs one weight for each of {num_classes} classes; got"
                f" {len(self.class_weight)}."
            )

    def weights(
        self, labels: Int[Tensor, " N"], sample_weights: Float[Tensor, " N"] | None
    ) -> Float[Tensor, " N"] | None:
        """Σ_k q_k of each example, which its curvature is multiplied by; None for ones.

        Args:
            labels: One class for each example.
            sample_weights: Their weights, if they have any.
        """
        if self.class_weight is None:
            return sample_weights
        weight = self.class_weight.to(labels.device)
        smoothed = self.label_smoothing * weight.mean()
        masses = (1 - self.label_smoothing) * weight[labels] + smoothed
        return masses if sample_weights is None else masses * sample_weights

    def log_likelihood(
        self,
        logits: Float[Tensor, "N K"],
        labels: Int[Tensor, " N"],
        sample_weights: Float[Tensor, " N"] | None,
    ) -> float:
        """Minus the loss, summed over examples.

        Args:
            logits: Of the network, in float64.
            labels: One class for each example.
            sample_weights: Their weights, if they have any.
        """
        weight = None if self.class_weight is None else self.class_weight.to(logits)
        losses = cross_entropy(
            logits,
            labels,
            weight=weight,
            label_smoothing=self.label_smoothing,
            reduction="none",
        )
        return -float((losses if sample_weights is None else losses * sample_weights).sum())

    def scale_sums(
        self, labels: Int[Tensor, " N"], sample_weights: Float[Tensor, " N"] | None
    ) -> tuple[float, float]:
        """Sums of the examples' weights without and with those of their classes, by
        whose ratio `nn.CrossEntropyLoss` divides; zeros without weights of classes.

        Args:
            labels: One class for each example.
            sample_weights: Their weights, if they have any.
        """
        if self.class_weight is None:
            return 0.0, 0.0
        examples = (
            torch.ones(len(labels), dtype=torch.float64, device=labels.device)
            if sample_weights is None
            else sample_weights.double()
        )
        of_classes = self.class_weight.to(labels.device)[labels]
        return float(examples.sum()), float((examples * of_classes).sum())

    def of_labels(
        self,
        logits: Float[Tensor, "N K"],
        labels: Float[Tensor, "N K"] | None,
        sample_weights: Float[Tensor, " N"] | None,
    ) -> tuple[Float[Tensor, "N K"], float | None]:
        """Curvature of each label's own loss in its logit, and minus that loss, summed.

        Args:
            logits: Of the network, in float64.
            labels: Ones and zeros, or shares; None if there are none.
            sample_weights: Weights of examples, if they have any.
        """
        curvature = torch.sigmoid(logits) * torch.sigmoid(-logits)
        rows = None if sample_weights is None else sample_weights.double().unsqueeze(-1)
        if labels is None:
            return curvature if rows is None else curvature * rows, None
        present = (1 - self.label_smoothing) * labels.double() + self.label_smoothing / 2
        absent = 1 - present
        if self.class_weight is not None:
            present = present * self.class_weight.to(logits)
        losses = present * softplus(-logits) + absent * softplus(logits)
        curvature = curvature * (present + absent)
        if rows is not None:
            losses, curvature = losses * rows, curvature * rows
        return curvature, -float(losses.sum())


PLAIN = Loss()


def weights_of(given: object, kept: Tensor, index: int) -> Float[Tensor, " N"]:
    """Weights of the examples that are kept, checked.

    Args:
        given: As a loader yields them.
        kept: Which predictions of the batch are kept, as booleans.
        index: Of the batch.

    Raises:
        ShapeError: If there is not one for each prediction.
        InputError: If one is negative or not finite.
    """
    weights = torch.as_tensor(given).detach().double().flatten().to(kept.device)
    if len(weights) != len(kept):
        raise ShapeError(
            f"Batch {index} (counted from 0) has {len(weights)} weights for {len(kept)}"
            " predictions. `fit(sample_weights=True)` needs one for each, as the last of"
            " (inputs, labels, weights) or under the key `sample_weight`."
        )
    weights = weights[kept]
    if not ((weights >= 0) & (weights < math.inf)).all():
        raise InputError(
            f"Batch {index} (counted from 0) has weights of examples that are negative or not"
            " finite. A weight of two counts as the example twice, of zero as not there."
        )
    return weights
