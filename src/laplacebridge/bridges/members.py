"""The members' own average as the mean of a Dirichlet."""

from torch import Tensor

from laplacebridge._blocks import by_rows
from laplacebridge._special import saturated
from laplacebridge.bridges.bridge import carries
from laplacebridge.bridges.log_odds import log_odds
from laplacebridge.bridges.precision import SMALLEST_PROBABILITY, log_precision
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.prediction import Prediction


def members_prediction(gaussian: LogitGaussian) -> Prediction:
    """The Dirichlets of `members_bridge` with the variances of all log-odds.

    Args:
        gaussian: A Gaussian over logits that was made of members.
    """

    def answer(rows: LogitGaussian) -> tuple[Tensor, ...]:
        mean = rows.member_mean() + SMALLEST_PROBABILITY
        mean = mean / mean.sum(-1, keepdim=True)
        variance = log_odds(rows.mean, rows.covariance.modulo_shift()).variance
        return mean.log() + log_precision(mean, variance), variance

    log_concentration, variance = by_rows(answer, gaussian)
    return Prediction(
        Dirichlet(log_concentration).to(gaussian.dtype), saturated(variance, gaussian.dtype)
    )


@carries(mean=LogitGaussian.member_mean, prediction=members_prediction)
def members_bridge(gaussian: LogitGaussian) -> Dirichlet:
    """Members → Dirichlet: their own average as the mean, and the precision that the
    Gaussian of their logits calls for.

    Right where the members are all there is, a deep ensemble; where they are samples of
    something wider, `race_bridge` also counts what lies between and beyond them.

    Args:
        gaussian: A Gaussian over logits that was made of members, by
            `LogitGaussian.from_samples` or one of the `sources`.

    Raises:
        InputError: If it was not.

    Example:
        >>> members = torch.tensor([[[2.0, 0.0]], [[1.0, 0.5]], [[1.5, 0.0]]])
        >>> members_bridge(LogitGaussian.from_samples(members)).mean
        tensor([[0.7736, 0.2264]])
    """
    return members_prediction(gaussian).dirichlet
