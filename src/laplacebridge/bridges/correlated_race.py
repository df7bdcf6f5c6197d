"""The race bridge, the default: from Gaussians over logits, correlated or not, to
Dirichlets.

For independent logits the race is exact up to its quadrature (`race`). For others it is
run with the effective independent variances and multiplied by the ratio of the one-vs-rest
means with and without correlation. Rows whose logits share factors are averaged over them
(`factors`, `factor_points`), and that answer is believed as far as it can be told from
noise (`factor_average`). Derivations in docs/bridges.md.
"""

from typing import Literal, NamedTuple, overload

from jaxtyping import Float
from torch import Tensor

from laplacebridge import _blocks
from laplacebridge._blocks import by_rows
from laplacebridge.bridges.bridge import carries
from laplacebridge.bridges.factor_average import (
    average_of_low_rank,
    average_over_factors,
    error_without_factors,
)
from laplacebridge.bridges.factors import MOST_FACTORS, NUM_CONTRASTS
from laplacebridge.bridges.leading import expected_softmax
from laplacebridge.bridges.leading_odds import many_log_odds_variances
from laplacebridge.bridges.log_odds import (
    LogOdds,
    log_odds,
    log_odds_and_ratio,
    log_odds_with_and_without,
    one_vs_rest_probabilities,
)
from laplacebridge.bridges.precision import MANY_CLASSES, SMALLEST_PROBABILITY, log_precision
from laplacebridge.bridges.race import NUM_NODES, race_probabilities, require_nodes
from laplacebridge.covariance import LowRank
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.prediction import Prediction, prediction_of


class _Raced(NamedTuple):
    probabilities: Float[Tensor, "B K"]
    variance: Float[Tensor, "B K"] | None  # of the log-odds
    error: Float[Tensor, " B"] | None = None


def _raced(
    gaussian: LogitGaussian, num_nodes: int, *, with_odds: bool = False, with_error: bool = False
) -> _Raced:
    """The race on independent logits, times what one-vs-rest says correlation changes, or
    averaged over what logits share.
    """
    mean, covariance = gaussian.mean, gaussian.covariance.modulo_shift()
    num_classes = mean.shape[1]
    seeking = gaussian.seek_factors and num_classes > 2
    # of few classes the search finds all factors, and the same matrix gives the same answer
    many = num_classes > NUM_CONTRASTS
    if (
        many
        and seeking
        and isinstance(covariance, LowRank)
        and 1 <= covariance.rank <= MOST_FACTORS
    ):
        require_nodes(num_nodes)
        averaged = average_of_low_rank(mean, covariance, with_odds=with_odds, with_error=with_error)
        return _Raced(averaged.probabilities, _variance_of(averaged.odds), averaged.error)
    effective = covariance.effective_variance()
    race = race_probabilities if num_classes < MANY_CLASSES else expected_softmax
    if seeking and not covariance.independent:
        odds, without = log_odds_with_and_without(mean, covariance, effective)
        one_vs_rest = one_vs_rest_probabilities(odds)

        def without_factors(rows: Tensor | slice) -> Tensor:
            raced = race(mean[rows], effective[rows], num_nodes=num_nodes)
            independent = one_vs_rest_probabilities(without.of_rows(rows))
            return _corrected(raced, one_vs_rest[rows] / independent)

        averaged = average_over_factors(
            mean,
            covariance,
            one_vs_rest,
            odds,
            without_factors,
            with_odds=with_odds,
            with_error=with_error,
        )
        return _Raced(averaged.probabilities, _variance_of(averaged.odds), averaged.error)
    plain = race(mean, effective, num_nodes=num_nodes)
    variance = None
    if not covariance.independent:
        odds, ratio = log_odds_and_ratio(mean, covariance, effective)
        plain, variance = _corrected(plain, ratio), odds.variance
    elif with_odds and num_classes >= MANY_CLASSES:
        variance = many_log_odds_variances(mean, effective)
    elif with_odds:
        variance = log_odds(mean, covariance).variance
    error = error_without_factors(mean, covariance, plain) if with_error else None
    return _Raced(plain, variance, error)


def _variance_of(odds: LogOdds | None) -> Float[Tensor, "B K"] | None:
    return None if odds is None else odds.variance


def _corrected(raced: Float[Tensor, "B K"], ratio: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
    """The race without correlation, times what correlation changes."""
    product = raced * ratio
    product = product / product.sum(-1, keepdim=True) + SMALLEST_PROBABILITY
    return product / product.sum(-1, keepdim=True)


@overload
def race_mean(
    gaussian: LogitGaussian, *, num_nodes: int = ..., return_error: Literal[False] = ...
) -> Float[Tensor, "B K"]: ...


@overload
def race_mean(
    gaussian: LogitGaussian, *, num_nodes: int = ..., return_error: Literal[True]
) -> tuple[Float[Tensor, "B K"], Float[Tensor, " B"]]: ...


def race_mean(
    gaussian: LogitGaussian,
    *,
    num_nodes: int = NUM_NODES,
    return_error: bool = False,
) -> Float[Tensor, "B K"] | tuple[Float[Tensor, "B K"], Float[Tensor, " B"]]:
    """E softmax(z) by the race: the mean of `race_bridge` without its precision.

    Args:
        gaussian: The Gaussian over logits.
        num_nodes: See `race_probabilities`.
        return_error: Also estimate how far the mean is from E softmax(z), in total
            variation, row by row: from the spread of the points that factors are averaged
            over, and from the correlation that neither factors nor independent logits
            express. An estimate, not a bound.

    Example:
        >>> from laplacebridge import Diagonal
        >>> gaussian = LogitGaussian(torch.tensor([[2.0, 0.0, -1.0]]), Diagonal(torch.ones(1, 3)))
        >>> race_mean(gaussian)
        tensor([[0.7622, 0.1676, 0.0702]])
        >>> race_mean(gaussian, return_error=True)[1]
        tensor([0.0005])
    """
    if not return_error:
        mean = by_rows(
            lambda rows: _raced(rows, num_nodes).probabilities,
            gaussian,
            elements=_blocks.ELEMENTS_OF_A_RACE,
        )
        return mean.to(gaussian.dtype)

    def mean_and_error(rows: LogitGaussian) -> tuple[Tensor, ...]:
        raced = _raced(rows, num_nodes, with_error=True)
        assert raced.error is not None  # noqa: S101  (it was asked for)
        return raced.probabilities, raced.error

    mean, error = by_rows(mean_and_error, gaussian, elements=_blocks.ELEMENTS_OF_A_RACE)
    return mean.to(gaussian.dtype), error.to(gaussian.dtype)


def race_prediction(
    gaussian: LogitGaussian,
    *,
    num_nodes: int = NUM_NODES,
    num_largest: int | None = None,
) -> Prediction:
    """The Dirichlets of `race_bridge` with the variances of all log-odds, which it
    computes on its way.

    Args:
        gaussian: The Gaussian over logits.
        num_nodes: See `race_probabilities`.
        num_largest: See `race_bridge`.
    """

    def answer(rows: LogitGaussian) -> tuple[Tensor, ...]:
        probabilities, variance, _ = _raced(rows, num_nodes, with_odds=True)
        assert variance is not None  # noqa: S101  (it was asked for)
        precision = log_precision(probabilities, variance, num_largest=num_largest)
        return probabilities.log() + precision, variance

    log_concentration, variance = by_rows(answer, gaussian, elements=_blocks.ELEMENTS_OF_A_RACE)
    return prediction_of(log_concentration, variance, gaussian.mean.dtype)


@carries(mean=race_mean, prediction=race_prediction)
def race_bridge(
    gaussian: LogitGaussian,
    *,
    num_nodes: int = NUM_NODES,
    num_largest: int | None = None,
) -> Dirichlet:
    r"""Gaussian → Dirichlet by the Gumbel race: the default bridge.

    .. math:: \alpha_k = c\, m_k, \quad m_k = \int_0^\infty \frac{\phi_k}{\Phi}\Big|_{\Phi = w} w e^{-w} dw

    For independent logits m is E softmax(z), exact up to a quadrature of twelve nodes.
    Correlated ones are split into factors that many of them share and noise of their own;
    given the factors the formula above holds, and it is averaged over fixed points. What
    no factor explains enters by the ratio of the one-vs-rest means with and without it.
    Rows that share nothing pay for the search only; Gaussians of a fitted classifier's own
    posterior do not (`LogitGaussian.seek_factors`). The precision c fits the
    variances of the log-odds, over the same points or one-vs-rest's. Invariant like
    `one_vs_rest_bridge`, and like there the answer without uncertainty is softmax(μ) with
    the largest precision.

    Note:
        Many small groups of strongly correlated classes, more than the sixteen factors
        that are searched, are answered only partly; ``race_mean(gaussian,
        return_error=True)`` says so.

    Args:
        gaussian: The Gaussian over logits.
        num_nodes: See `race_probabilities`.
        num_largest: Fit the precision to so many of the largest classes only; see
            `log_precision`.

    Example:
        >>> from laplacebridge import Diagonal
        >>> gaussian = LogitGaussian(torch.tensor([[2.0, 0.0, -1.0]]), Diagonal(torch.ones(1, 3)))
        >>> race_bridge(gaussian).mean
        tensor([[0.7622, 0.1676, 0.0702]])
    """
    prediction = race_prediction(gaussian, num_nodes=num_nodes, num_largest=num_largest)
    return prediction.dirichlet
