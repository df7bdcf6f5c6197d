"""Checks of values, which are too slow for every call but belong before anything is trusted or stored."""

from typing import TypeVar

from jaxtyping import Bool
from torch import Tensor

from laplacebridge.beta import Beta
from laplacebridge.covariance import Covariance
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian

Checked = TypeVar("Checked", LogitGaussian, Covariance, Dirichlet, Beta)


def check(value: Checked) -> Checked:
    """Makes sure that every number is finite and every covariance valid, and names the first bad row.

    Args:
        value: A Gaussian, covariance, Dirichlet or Beta.

    Returns:
        The same value, so that a call can be wrapped in place.

    Raises:
        ValueError: If a number is NaN or infinite, or a variance, weight or eigenvalue negative.

    Example:
        >>> import torch
        >>> from laplacebridge import Diagonal
        >>> check(Diagonal(torch.tensor([[1.0, 1.0], [1.0, -1.0]])))
        Traceback (most recent call last):
        ...
        ValueError: `check(Diagonal)`: in row 1 (1 of 2 rows) a variance is negative; ...
    """
    found = [(int(rows.nonzero()[0]), problem, rows) for problem, rows in _problems(value) if rows.any()]
    if found:
        first, problem, rows = min(found, key=lambda item: item[0])
        raise ValueError(
            f"`check({type(value).__name__})`: in row {first} ({int(rows.sum())} of {len(rows)} rows) "
            f"{problem}; finite numbers and non-negative variances are needed. Look at the input that "
            f"produced that row."
        )
    return value


def _problems(value: LogitGaussian | Covariance | Dirichlet | Beta) -> "list[tuple[str, Bool[Tensor, ' B']]]":
    if isinstance(value, Covariance):
        return list(value.problems())
    if isinstance(value, LogitGaussian):
        return [_not_finite("mean", value.mean), *value.covariance.problems()]
    if isinstance(value, Dirichlet):
        return [_not_finite("log_concentration", value.log_concentration)]
    return [_not_finite("log_alpha", value.log_alpha), _not_finite("log_beta", value.log_beta)]


def _not_finite(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    return f"`{name}` is not finite", (~tensor.isfinite()).reshape(len(tensor), -1).any(1)
