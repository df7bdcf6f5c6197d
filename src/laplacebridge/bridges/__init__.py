"""Bridges: functions from a `LogitGaussian` to a `Dirichlet`, one file each. `BRIDGES`
has by name all that need nothing but a Gaussian; `members_bridge` needs members.
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from laplacebridge._blocks import by_rows
from laplacebridge._special import complement, saturated
from laplacebridge.bridges.bridge import Bridge as Bridge
from laplacebridge.bridges.bridge import mean_of as mean_of
from laplacebridge.bridges.bridge import require_bridge as require_bridge
from laplacebridge.bridges.correlated_race import race_bridge as race_bridge
from laplacebridge.bridges.correlated_race import race_mean as race_mean
from laplacebridge.bridges.information import delta_bridge as delta_bridge
from laplacebridge.bridges.information import kl_bridge as kl_bridge
from laplacebridge.bridges.leading_odds import many_log_odds_variances
from laplacebridge.bridges.log_odds import log_odds
from laplacebridge.bridges.members import members_bridge as members_bridge
from laplacebridge.bridges.one_vs_rest import one_vs_rest_bridge as one_vs_rest_bridge
from laplacebridge.bridges.one_vs_rest import one_vs_rest_mean as one_vs_rest_mean
from laplacebridge.bridges.paper import Marginals as Marginals
from laplacebridge.bridges.paper import ZeroSum as ZeroSum
from laplacebridge.bridges.paper import as_given as as_given
from laplacebridge.bridges.paper import center as center
from laplacebridge.bridges.paper import condition as condition
from laplacebridge.bridges.paper import dirichlet_to_gaussian as dirichlet_to_gaussian
from laplacebridge.bridges.paper import laplace_bridge as laplace_bridge
from laplacebridge.bridges.paper import laplace_bridge_norm as laplace_bridge_norm
from laplacebridge.bridges.paper import laplace_bridge_raw as laplace_bridge_raw
from laplacebridge.bridges.paper import pull_back as pull_back
from laplacebridge.bridges.precision import MANY_CLASSES, log_precision
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.prediction import Prediction

# What the variance of log-odds grows by with their square, up to which variance, and
# log-odds beyond which nothing can be seen.
RELATIVE_VARIANCE, LARGEST_GROWN, LARGEST_LOG_ODDS = 0.1, 4.0, 40.0
# The log-odds from which on, and how steeply, larger variances than that would move the far
# end of a 95 % interval back towards 0 or 1.
SURE_LOG_ODDS, SURE_STEEPNESS = 4.6, 2.4

# The default first. These names stand in files, in options of the command line, in
# reports and in benchmarks.
BRIDGES: dict[str, Bridge] = {
    "race": race_bridge,
    "one-vs-rest": one_vs_rest_bridge,
    "kl": kl_bridge,
    "delta": delta_bridge,
    "laplace": laplace_bridge,
    "laplace-norm": laplace_bridge_norm,
    "laplace-raw": laplace_bridge_raw,
}


def name_of(bridge: Bridge) -> str | None:
    """The name of a bridge in `BRIDGES`; None if it is not one of the library's.

    Args:
        bridge: Any bridge.

    Example:
        >>> name_of(race_bridge)
        'race'
    """
    return next((name for name, known in BRIDGES.items() if known is bridge), None)


def predict(gaussian: LogitGaussian, bridge: Bridge = race_bridge) -> Prediction:
    """From Gaussians over logits to predictions: a bridge's Dirichlets, with an
    interval for every class.

    Args:
        gaussian: The Gaussian over logits, from anywhere.
        bridge: Any bridge.

    Example:
        >>> import torch
        >>> # three members of an ensemble
        >>> samples = torch.tensor([[[2.0, 0.0]], [[1.0, 0.5]], [[1.5, 0.0]]])
        >>> predict(LogitGaussian.from_samples(samples)).mean
        tensor([[0.7669, 0.2331]])
    """
    carried: Callable[[LogitGaussian], Prediction] | None = getattr(bridge, "prediction", None)
    if carried is not None:
        return carried(gaussian)
    return Prediction(bridge(gaussian), saturated(log_odds_variance(gaussian), gaussian.dtype))


def predict_apart(
    wide: LogitGaussian, narrow: LogitGaussian, bridge: Bridge = race_bridge
) -> Prediction:
    """Predictions whose mean comes from one Gaussian and whose width from another.

    A variance that is the same for every logit suits classes that are neither improbable
    nor sure. Log-odds l of others are further off, so that their variance is multiplied
    by 1 + l²/10, up to 4. And no variance is so large that, with the mean as it is, the
    far end of a 95 % interval would come back: that of sure and of improbable classes
    is at most 4 (1 + exp(2.4 (4.6 − |l|))), so that the mean is always inside.

    Args:
        wide: The Gaussian that says how far probabilities may be off.
        narrow: The Gaussian whose mean probabilities are predicted.
        bridge: What gives the mean.
    """
    variance = log_odds_variance(wide)
    if hasattr(bridge, "mean"):
        log_mean = mean_of(bridge)(narrow).to(variance.dtype).log()
    else:  # whose means may be too small for their type
        dirichlet = bridge(narrow)
        log_mean = dirichlet.log_concentration.to(variance.dtype)
        log_mean = log_mean - log_mean.logsumexp(-1, keepdim=True)
    mean = log_mean.exp()
    odds = (log_mean - complement(mean).log()).clamp(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)
    grown = variance * (1 + RELATIVE_VARIANCE * odds.square())
    largest = LARGEST_GROWN * (1 + (SURE_STEEPNESS * (SURE_LOG_ODDS - odds.abs())).exp())
    spread = variance.maximum(grown.clamp_max(LARGEST_GROWN)).minimum(largest)
    return Prediction(
        Dirichlet(log_mean + log_precision(mean, variance)).to(wide.dtype),
        saturated(spread, wide.dtype),
    )


def log_odds_variance(gaussian: LogitGaussian) -> Float[Tensor, "B K"]:
    """Variances of the log-odds of every class against the others, in at least float32.

    Args:
        gaussian: The Gaussian over logits.
    """

    def variance(rows: LogitGaussian) -> Tensor:
        covariance = rows.covariance.modulo_shift()
        if covariance.independent and rows.mean.shape[1] >= MANY_CLASSES:
            return many_log_odds_variances(rows.mean, covariance.diagonal())
        return log_odds(rows.mean, covariance).variance

    return by_rows(variance, gaussian)
