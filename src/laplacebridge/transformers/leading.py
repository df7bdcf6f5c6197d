"""Predictions over a vocabulary, where only few tokens matter: the leading tokens by
themselves, and all others as one.

The others are a sum of many log-normal terms, which is nearly log-normal itself: its
two moments are kept (Fenton and Wilkinson). So one more class stands for all of them,
and a bridge has some hundred classes to go through in place of a hundred thousand.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge import _blocks
from laplacebridge.bridges import predict, predict_apart
from laplacebridge.classifier import Classifier
from laplacebridge.covariance import Diagonal
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.memory import MOST_CLASSES
from laplacebridge.prediction import Prediction

# Up to this variance the moments of log-normal terms can be summed as they are.
_LARGEST_SUMMED = 40.0


class OfTokens(NamedTuple):
    """What is known about tokens that stand in a text.

    Attributes:
        probability: Of each token, by the mean of the prediction.
        epistemic: Mutual information of token and network, in nats.
        total: Entropy of the mean, in nats.
    """

    probability: Float[Tensor, " N"]
    epistemic: Float[Tensor, " N"]
    total: Float[Tensor, " N"]


def of_tokens(
    classifier: Classifier,
    features: Float[Tensor, "N D"],
    logits: Float[Tensor, "N K"] | None,
    ids: Int[Tensor, " N"],
    leading: int,
) -> OfTokens:
    """What a classifier says about the tokens that came.

    Args:
        classifier: Of a language model.
        features: Inputs of its head.
        logits: What the head made of them, if it is known.
        ids: The tokens that came.
        leading: How many tokens that may matter most are taken by themselves, where the
            vocabulary has more than `laplace.memory.MOST_CLASSES`.
    """
    if not len(ids):
        none = features.new_zeros(0)
        return OfTokens(none, none, none)
    if classifier.num_classes > max(MOST_CLASSES, leading + 1):
        prediction = _predicted(classifier, features, logits, ids, leading)
        return _of_prediction(prediction, torch.zeros_like(ids))
    size, parts = max(1, _blocks.ELEMENTS_AT_ONCE // classifier.num_classes), []
    for start in range(0, len(ids), size):
        rows = slice(start, start + size)
        given = (features[rows],) if logits is None else (features[rows], logits[rows])
        parts.append(_of_prediction(classifier.predict_features(*given), ids[rows]))
    return OfTokens(*(torch.cat(part) for part in zip(*parts)))


def _of_prediction(prediction: Prediction, places: Tensor) -> OfTokens:
    probability = prediction.mean.gather(-1, places.unsqueeze(-1)).squeeze(-1)
    return OfTokens(probability, prediction.epistemic, prediction.total)


def _predicted(
    classifier: Classifier, features: Tensor, logits: Tensor | None, ids: Tensor, leading: int
) -> Prediction:
    """Predictions of the leading tokens and of all others as one; the token that came
    is the first of them.
    """
    size = max(1, _blocks.LOGITS_AT_ONCE // classifier.num_classes)
    wide, narrow = [], []
    for start in range(0, len(ids), size):
        rows = slice(start, start + size)
        given = (features[rows],) if logits is None else (features[rows], logits[rows])
        both = classifier.gaussians(*given)
        # by what they add to the sum on average, so that unlikely tokens of which little is
        # known are among them; and the token that came, whatever it adds
        adds = torch.add(both[0].mean, both[0].variance, alpha=0.5)
        marked = adds.scatter_(-1, ids[rows].unsqueeze(-1), torch.inf)
        chosen = marked.topk(leading, sorted=True).indices
        wide.append(with_others_as_one(both[0], chosen))
        if both[1] is not None:
            narrow.append(with_others_as_one(both[1], chosen))
    if not narrow:
        return predict(_joined(wide), classifier.bridge)
    return predict_apart(_joined(wide), _joined(narrow), classifier.bridge)


def _joined(parts: list[LogitGaussian]) -> LogitGaussian:
    mean, variance = (
        torch.cat([part.mean for part in parts]),
        torch.cat([part.variance for part in parts]),
    )
    return LogitGaussian(mean, Diagonal(variance))


def with_others_as_one(gaussian: LogitGaussian, chosen: Int[Tensor, "N M"]) -> LogitGaussian:
    """The Gaussian of some logits, and of one more in place of all others: that of the
    log-normal with the moments of their sum. Logits are taken as independent.

    Args:
        gaussian: Over all logits.
        chosen: Which logits stay, for each row.

    Example:
        >>> few = with_others_as_one(
        ...     LogitGaussian(torch.zeros(1, 4), Diagonal(torch.zeros(1, 4))), torch.tensor([[2]])
        ... )
        >>> few.mean.exp()
        tensor([[1., 3.]])
    """
    mean, variance = gaussian.mean, gaussian.variance
    # log E exp(z) of each logit
    log_mean = torch.add(mean, variance, alpha=0.5).scatter_(-1, chosen, -torch.inf)
    if variance.max() <= _LARGEST_SUMMED:
        largest = log_mean.amax(-1, keepdim=True)
        terms = (log_mean - largest).exp_()
        sums = terms.sum(-1, keepdim=True)
        ratio = terms.square_().mul_(variance.expm1()).sum(-1, keepdim=True) / sums.square()
        total, spread = sums.log() + largest, torch.log1p(ratio)
    else:
        log_variance = 2 * log_mean + variance + torch.log(-torch.expm1(-variance))
        total = log_mean.logsumexp(-1, keepdim=True)
        log_ratio = log_variance.logsumexp(-1, keepdim=True) - 2 * total
        spread = torch.logaddexp(log_ratio, torch.zeros_like(log_ratio))
    return LogitGaussian(
        torch.cat([mean.gather(-1, chosen), total - spread / 2], -1),
        Diagonal(torch.cat([variance.gather(-1, chosen), spread], -1)),
    )
