"""How right predictions are: accuracy and proper scores, each the mean of one number
for each example.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from laplacebridge._arrays import takes_arrays
from laplacebridge._checks import Labels, labels_of
from laplacebridge._predictions import AnyPrediction, probabilities_of
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import InputError
from laplacebridge.metrics.forms import carries
from laplacebridge.prediction import Prediction

# one number for each example


@takes_arrays
def correct(prediction: AnyPrediction, labels: Labels) -> Bool[Tensor, " B"]:
    """Whether the most probable class of each example is its label: what `aurc` asks
    for.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).
        labels: The right classes, shape (B,).

    Example:
        >>> correct(torch.tensor([[0.7, 0.3], [0.4, 0.6]]), [0, 0])
        tensor([ True, False])
    """
    return _in_top("correct(prediction, labels)", prediction, labels, 1)


def in_top_k(prediction: AnyPrediction, labels: Labels, *, k: int = 5) -> Bool[Tensor, " B"]:
    """Whether the label of each example is among its k most probable classes."""
    return _in_top("top_k_accuracy(prediction, labels)", prediction, labels, k)


def surprise(prediction: AnyPrediction, labels: Labels) -> Float[Tensor, " B"]:
    """−log p_y of each example."""
    probabilities, column = _checked("nll(prediction, labels)", prediction, labels)
    if isinstance(prediction, Prediction):
        prediction = prediction.dirichlet
    if isinstance(prediction, Dirichlet):
        log = prediction.log_concentration.double()
        return log.logsumexp(-1) - log.gather(-1, column).squeeze(-1)
    return (
        0.0 - probabilities.gather(-1, column).squeeze(-1).double().log()
    )  # not −log, which makes −0 of a sure hit


def squared_error(
    prediction: AnyPrediction, labels: Labels, *, per_class_mean: bool = False
) -> Float[Tensor, " B"]:
    """Σ_k (p_k − 1[k = y])² of each example, or its mean over classes."""
    probabilities, column = _checked("brier(prediction, labels)", prediction, labels)
    error = probabilities.double()
    error = error.scatter(-1, column, error.gather(-1, column) - 1).square()
    return error.mean(-1) if per_class_mean else error.sum(-1)


def confidence(prediction: AnyPrediction) -> Float[Tensor, " B"]:
    """The largest probability of each example."""
    return probabilities_of("mmc(prediction)", prediction).amax(-1).double()


# their means


@carries(per_example=correct)
@takes_arrays
def accuracy(prediction: AnyPrediction, labels: Labels) -> float:
    """Share of examples whose most probable class is their label. Of equally probable
    classes the first counts.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).
        labels: The right classes, shape (B,).

    Example:
        >>> accuracy(torch.tensor([[0.7, 0.3], [0.4, 0.6], [0.2, 0.8]]), [0, 0, 1])
        0.6666666666666666
    """
    return mean(_in_top("accuracy(prediction, labels)", prediction, labels, 1))


@carries(per_example=in_top_k)
@takes_arrays
def top_k_accuracy(prediction: AnyPrediction, labels: Labels, *, k: int = 5) -> float:
    """Share of examples whose label is among the k most probable classes. Of equally
    probable ones the first count.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).
        labels: The right classes, shape (B,).
        k: How many classes count.

    Example:
        >>> top_k_accuracy(torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]]), [1, 0], k=2)
        0.5
    """
    return mean(in_top_k(prediction, labels, k=k))


@carries(per_example=surprise)
@takes_arrays
def nll(prediction: AnyPrediction, labels: Labels) -> float:
    """Mean negative log-likelihood of the labels, −log p_y, in nats.

    Of a Dirichlet it is log α₀ − log α_y, finite also where the probability itself is
    too small for its type. Of probabilities it is infinite if a label has probability
    0.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).
        labels: The right classes, shape (B,).

    Example:
        >>> nll(torch.tensor([[0.5, 0.5], [1.0, 0.0]]), [0, 0])
        0.34657359027997264
        >>> nll(torch.tensor([[0.5, 0.5], [1.0, 0.0]]), [0, 1])
        inf
    """
    return mean(surprise(prediction, labels))


@carries(per_example=squared_error)
@takes_arrays
def brier(prediction: AnyPrediction, labels: Labels, *, per_class_mean: bool = False) -> float:
    """Brier score Σ_k (p_k − 1[k = y])², from 0 to 2, averaged over examples.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).
        labels: The right classes, shape (B,).
        per_class_mean: Average over the K classes as well, instead of adding them up.

    Example:
        >>> brier(torch.tensor([[0.5, 0.5], [1.0, 0.0]]), [0, 1])
        1.25
    """
    return mean(squared_error(prediction, labels, per_class_mean=per_class_mean))


@carries(per_example=confidence)
@takes_arrays
def mmc(prediction: AnyPrediction) -> float:
    """Mean maximum confidence: the average probability of the most probable class.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).

    Example:
        >>> mmc(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
        0.75
    """
    return mean(confidence(prediction))


def mean(values: Tensor) -> float:
    """The mean in float64, as a number."""
    return values.detach().double().mean().item()


def _in_top(call: str, prediction: AnyPrediction, labels: Labels, k: int) -> Tensor:
    probabilities, column = _checked(call, prediction, labels)
    if not 1 <= k <= probabilities.shape[1]:
        raise InputError(
            f"`{call}` needs k from 1 to K = {probabilities.shape[1]}; got k = {k}. With k = K"
            " every label is in."
        )
    own = probabilities.gather(-1, column)
    before = (probabilities == own) & (
        torch.arange(probabilities.shape[1], device=own.device) < column
    )
    return (before | (probabilities > own)).sum(-1) < k


def _checked(call: str, prediction: AnyPrediction, labels: Labels) -> tuple[Tensor, Tensor]:
    """Probabilities, shape (B, K), and the label's column in each row, shape (B, 1)."""
    probabilities = probabilities_of(call, prediction)
    column = labels_of(call, labels, *probabilities.shape).to(probabilities.device)
    return probabilities, column.unsqueeze(-1)
