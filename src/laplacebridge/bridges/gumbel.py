"""The race's special function: how likely a runner with a normal head start has
finished by a given time.

softmax(z)_k is the chance that k wins a race in which runner l finishes at z_l + G_l,
the G_l independent standard Gumbel variables, and the latest wins. With z ~ N(μ, v) the
chance to have finished by x is F(x − μ; v) = E exp(−exp(−(x − z))), the Laplace
transform of a log-normal. The race needs y = −log(−log F), which is smooth, nearly
linear on the right and quadratic for a wide normal. It is tabulated once:

    y(u; v) = u/√(1 + v) + v/(1 + v) P(τ, ν)
    τ = u mapped from [lo(v), hi(v)] to [−1, 1],    ν = 2√v/(√v + 4) − 1

with P a Chebyshev polynomial of degree 12 in τ and 20 in ν, from `race_table.csv`,
fitted by `scripts/fit_race_table.py`. For fixed v it is one polynomial in τ. To the
right of τ = 1 its tangent goes on; left of −1 the race does not ask.
"""

from importlib.resources import files
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge._constant import Constant
from laplacebridge.covariance.base import standard_deviation

TABLE_NAME = "race_table.csv"


def lower_end(variance: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
    """lo(v): left of it the runner has almost surely not finished, −log F > 13."""
    return 0.577 - torch.sqrt(11.56 + 39 * variance)


def upper_end(variance: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
    """hi(v): right of it −log F falls like exp(−u)."""
    return torch.sqrt(225 + 30 * variance)


def _read_table(degree: int | None = None) -> Constant:
    """Coefficients (τ power, ν degree): powers in τ, where Horner's rule is safe,
    Chebyshev in ν. Up to a degree in τ if one is given.
    """
    source = files("laplacebridge.bridges").joinpath(TABLE_NAME)
    chebyshev = np.loadtxt(source.read_text(encoding="utf-8").splitlines(), delimiter=",")
    kept = chebyshev if degree is None else chebyshev[:, : degree + 1]
    powers = np.stack([np.polynomial.chebyshev.cheb2poly(row) for row in kept], axis=1)
    return Constant(powers)


# For searches, where levels need not be exact.
COARSE_DEGREE = 5
_TABLE = _read_table()  # at import, because `torch.compile` does not see into caches
_COARSE_TABLE = _read_table(COARSE_DEGREE)


class Runners(NamedTuple):
    """The polynomials in τ of a batch of runners."""

    mean: Float[Tensor, "B K"]
    scale: Float[Tensor, "B K"]  # τ = scale · (x − mean) + offset
    offset: Float[Tensor, "B K"]
    coefficients: Float[Tensor, "P B K"]  # of log φ = −y
    tangent: Float[Tensor, "B K"]  # d log φ/dτ at τ = 1

    @classmethod
    def of(cls, mean: Float[Tensor, "B K"], variance: Float[Tensor, "B K"]) -> "Runners":
        """Evaluates the table's ν part once for every class.

        Args:
            mean: Means of the logits.
            variance: Variances of the logits.
        """
        return cls._of_tables(mean, variance, _TABLE)[0]

    @classmethod
    def of_both(
        cls, mean: Float[Tensor, "B K"], variance: Float[Tensor, "B K"]
    ) -> tuple["Runners", "Runners"]:
        """The same, and with half of the powers in τ: levels for a search, in half of the
        time.

        Args:
            mean: Means of the logits.
            variance: Variances of the logits.
        """
        full, coarse = cls._of_tables(mean, variance, _TABLE, _COARSE_TABLE)
        return full, coarse

    @classmethod
    def _of_tables(cls, mean: Tensor, variance: Tensor, *tables: Constant) -> list["Runners"]:
        low, high = lower_end(variance), upper_end(variance)
        half_width, middle = (high - low) / 2, (high + low) / 2
        deviation = standard_deviation(variance)
        nu = 2 * deviation / (deviation + 4) - 1
        known = [table.like(mean) for table in tables]
        basis = [torch.ones_like(nu), nu]
        for _ in range(known[0].shape[1] - 2):
            basis.append(2 * nu * basis[-1] - basis[-2])
        stacked = torch.stack(basis).flatten(1)
        share = -variance / (1 + variance)
        slope = -(1 + variance).rsqrt()  # u/√(1 + v) is linear in τ too
        linear = torch.stack([slope * middle, slope * half_width])
        found = []
        for table in known:
            polynomial = (table @ stacked).view(len(table), *nu.shape) * share
            coefficients = torch.cat([polynomial[:2] + linear, polynomial[2:]])
            powers = torch.arange(len(coefficients), dtype=mean.dtype, device=mean.device)
            tangent = (powers @ coefficients.flatten(1)).view_as(nu)
            found.append(cls(mean, 1 / half_width, -middle / half_width, coefficients, tangent))
        return found

    def of_rows(self, rows: slice) -> "Runners":
        """Those of some rows.

        Args:
            rows: Which.
        """
        return self._replace(
            mean=self.mean[rows],
            scale=self.scale[rows],
            offset=self.offset[rows],
            coefficients=self.coefficients[:, rows],
            tangent=self.tangent[rows],
        )

    def hazards(self, times: Float[Tensor, "J B"]) -> Float[Tensor, "J B K"]:
        """φ = −log F of every runner at some times.

        Args:
            times: Times, a few for every row.
        """
        tau = torch.addcmul(self.offset, times.unsqueeze(-1) - self.mean, self.scale)
        return self.log_hazards(tau).exp()

    def log_hazards(self, tau: Float[Tensor, "J B K"]) -> Float[Tensor, "J B K"]:
        """log φ of every runner at times of its own.

        Args:
            tau: Times in units of the polynomials.
        """
        inside = tau.clamp(-1, 1)
        value = torch.addcmul(self.coefficients[-2], self.coefficients[-1], inside)
        in_place = None if value.requires_grad else value
        for coefficient in reversed(self.coefficients[:-2].unbind()):  # Horner's rule
            value = torch.addcmul(coefficient, value, inside, out=in_place)
        return torch.addcmul(value, self.tangent, tau - inside, out=in_place)
