"""Every convention behind the paper's printed numbers, in one place, with its reason.

Where the paper and its authors' code differ, this is the code: it made the numbers.
"""

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge import links, metrics
from laplacebridge._checks import Labels
from laplacebridge._predictions import AnyPrediction, probabilities_of
from laplacebridge.bridges import condition, laplace_bridge, laplace_bridge_norm
from laplacebridge.errors import ShapeError
from laplacebridge.metrics.proper import confidence

# fitting

# The weight decay of training, read as the precision of a Gaussian prior. Half-moons
# and MNIST use it as it is.
PRIOR_PRECISION = 5e-4
# The other data sets have their own (diagonal, Kronecker), set by hand to keep the mean
# maximum confidence within about 5 % of the network's. For CIFAR-10 and the diagonal it
# is 24 % lower.
PRIOR_PRECISIONS = {
    "MNIST": (PRIOR_PRECISION, PRIOR_PRECISION),
    "CIFAR-10": (1.0, 0.1),
    "CIFAR-100": (50.0, 5.0),
    "SVHN": (10.0, 0.5),
}

# predicting

# The tables sample 100 logits; the figure of the half-moons 5000.
NUM_SAMPLES = 100
monte_carlo = partial(links.monte_carlo, num_samples=NUM_SAMPLES)
# "LB": Eq. 11 conditions on a zero sum where softmax marginalises.
lb = partial(laplace_bridge, zero_sum=condition)
# "LB-norm": Eq. 12 with the mean of the variances, which the text names, not the sum
# that it prints; and always, not only where variances are large.
lb_norm = partial(laplace_bridge_norm, zero_sum=condition, average=True, only_large=False)
# "Extended probit" takes the variances as they are, common to all logits or not.
probit = partial(links.probit, centered=False)

# judging

# 100 bins on [1/n, 1] with n the number of classes that occur, because no confidence
# can be below chance, and accuracy against centres that belong to bins of width 1/100.
# An example on an edge counts above it there and below it here.
ece = partial(metrics.ece, num_bins=100, from_chance=True, nominal_centers=True)
# The mean over classes too: the usual score divided by K.
brier = partial(metrics.brier, per_class_mean=True)
# The share of unusual examples whose confidence reaches the 5th percentile of the usual
# ones'.
fpr95 = partial(metrics.fpr_at_tpr, tpr=0.95)

# A Categorical of torch takes probabilities below the rounding of float32 as that, so
# no label costs more than 15.94.
SMALLEST_PROBABILITY = torch.finfo(torch.float32).eps


def nll(prediction: AnyPrediction, labels: Labels) -> float:
    """Mean −log p_y where no probability counts as less than 1.2e-7, so that a label
    that no sample met costs 15.9.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).
        labels: The right classes, shape (B,).

    Example:
        >>> round(nll(torch.tensor([[1.0, 0.0]]), [1]), 4)
        15.9424
    """
    probabilities = probabilities_of("nll(prediction, labels)", prediction).double()
    likely = probabilities.clamp(SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
    return metrics.nll(likely / likely.sum(-1, keepdim=True), labels)


def score(prediction: AnyPrediction) -> Float[Tensor, " B"]:
    """Minus the maximum probability, by which the tables detect unusual examples.

    They count usual examples as positive and rank by the maximum probability itself.
    That is the same number as `metrics.auroc(score(inside), score(outside))`: both
    signs are turned.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).

    Example:
        >>> score(torch.tensor([[0.25, 0.75]]))
        tensor([-0.7500], dtype=torch.float64)
    """
    return -confidence(prediction)


def labels_outside(labels: Tensor, num_classes: int) -> Int[Tensor, " B"]:
    """The labels that unusual data is judged by (NLL, Brier score, ECE): its own,
    clipped to the model's classes.

    CIFAR-100 under a model of 10 classes has the labels 0 to 8, and 9 for all others.
    They mean nothing to the model, so these columns measure how sure it is where it
    cannot be right except by chance.

    Args:
        labels: The data set's own labels, shape (B,).
        num_classes: K of the model.

    Raises:
        ShapeError: If the labels are no integers.

    Example:
        >>> labels_outside(torch.tensor([3, 9, 10, 99]), 10)
        tensor([3, 9, 9, 9])
    """
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ShapeError(
            f"`labels_outside(labels)` needs integers; got {labels.dtype}. Labels in columns"
            " (one-hot) become numbers with `.argmax(-1)`."
        )
    return labels.clamp(0, num_classes - 1)


# class sets

# Their code stops a set at ten classes; Algorithm 1 does not.
MAX_SET_SIZE = 10


def overlap_threshold(overlap: float) -> float:
    """The threshold T of Algorithm 1 for an overlap of the authors' code, which counts
    one side: T = 2·overlap.

    Args:
        overlap: Their number, from 0 to 1/2.

    Raises:
        ValueError: If it is not in that range.

    Example:
        >>> overlap_threshold(0.1)
        0.2
    """
    if not 0 <= overlap <= 0.5:
        raise ValueError(
            f"`overlap_threshold(overlap)` needs a number from 0 to 0.5; got {overlap}. It is one"
            " tail; T counts both."
        )
    return 2 * overlap
