"""What all checks share: how a broken law is reported, and the inputs that laws are
tried with.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Generator, Tensor

from laplacebridge.covariance import (
    CenteredDiagonal,
    Covariance,
    Dense,
    Diagonal,
    LowRank,
    SharedBasis,
)
from laplacebridge.gaussian import LogitGaussian

Law = Callable[[str, str], AbstractContextManager[None]]


def laws_of(call: str, checked: object) -> Law:
    """A context for each law, which says which one was broken and with what input.

    Args:
        call: The check.
        checked: What is checked.
    """
    name = getattr(checked, "__name__", None) or type(checked).__name__

    @contextmanager
    def law(statement: str, given: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            reason = str(error).strip() or type(error).__name__
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            raise AssertionError(
                f"`{call}({name})`: the law “{statement}” does not hold for {given}: {kind}{reason}"
            ) from error

    return law


def require(condition: object, message: str) -> None:
    """Part of a law.

    Args:
        condition: What must be true, a bool or a tensor of them.
        message: What is wrong if it is not.

    Raises:
        AssertionError: If it is not.
    """
    holds = bool(condition.all()) if isinstance(condition, Tensor) else bool(condition)
    if not holds:
        raise AssertionError(message)


def seeded(seed: int) -> Generator:
    """Random numbers that are the same each time.

    Args:
        seed: Which.
    """
    return torch.Generator().manual_seed(seed)


def _normal(generator: Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _diagonal(generator: Generator, batch: int, classes: int) -> Covariance:
    return Diagonal(torch.exp(1.5 * _normal(generator, batch, classes)))


def _centered_diagonal(generator: Generator, batch: int, classes: int) -> Covariance:
    return CenteredDiagonal(torch.exp(1.5 * _normal(generator, batch, classes)))


def _shared_basis(generator: Generator, batch: int, classes: int) -> Covariance:
    basis = _normal(generator, classes, classes) / classes**0.5
    return SharedBasis(torch.exp(1.5 * _normal(generator, batch, classes)), basis)


def _shared_basis_low_rank(generator: Generator, batch: int, classes: int) -> Covariance:
    rank = classes // 2 + 2  # of rank one, conditioning on the sum leaves only rounding
    basis = _normal(generator, classes, rank) / rank**0.5
    return SharedBasis(torch.exp(1.5 * _normal(generator, batch, rank)), basis)


def _shared_basis_plus_square(generator: Generator, batch: int, classes: int) -> Covariance:
    covariance = _shared_basis(generator, batch, classes)
    assert isinstance(covariance, SharedBasis)  # noqa: S101
    return covariance.plus_square(2 * _normal(generator, batch, classes))


def _low_rank(generator: Generator, batch: int, classes: int) -> Covariance:
    rank = classes // 2 + 2
    return LowRank(_normal(generator, batch, classes, rank) / rank**0.5)


def _dense(generator: Generator, batch: int, classes: int) -> Covariance:
    factor = _normal(generator, batch, classes, classes + 1)
    return Dense(factor @ factor.mT / classes)


def _shared_factors(generator: Generator, batch: int, classes: int) -> Covariance:
    factor = 2 * _normal(generator, batch, classes, 2)
    own = torch.diag_embed(torch.exp(_normal(generator, batch, classes)))
    return Dense(factor @ factor.mT + own)


STRUCTURES: dict[str, Callable[[Generator, int, int], Covariance]] = {
    "Diagonal": _diagonal,
    "CenteredDiagonal": _centered_diagonal,
    "SharedBasis": _shared_basis,
    "SharedBasis of low rank": _shared_basis_low_rank,
    "SharedBasis plus a square": _shared_basis_plus_square,
    "LowRank": _low_rank,
    "Dense": _dense,
    "Dense with shared factors": _shared_factors,
}


def gaussian(structure: str, seed: int, batch: int, classes: int) -> LogitGaussian:
    """Ordinary Gaussians over logits, in float64.

    Args:
        structure: A name of `STRUCTURES`.
        seed: Which.
        batch: How many.
        classes: K.
    """
    generator = seeded(seed)
    mean = 2 * _normal(generator, batch, classes)
    return LogitGaussian(mean, STRUCTURES[structure](generator, batch, classes))


def extreme_gaussian(classes: int, dtype: torch.dtype) -> LogitGaussian:
    """Every pair of hostile means and variances, among them 0 and 1e12.

    Args:
        classes: K.
        dtype: Their type.
    """
    first = torch.eye(classes, dtype=torch.float64)[0]
    normal = _normal(seeded(classes), classes)
    means = [normal * scale for scale in (0.0, 1.0, 100.0, 4e3)]
    means += [1e4 * first, -1e4 * first, 1e4 - first, torch.linspace(-1e4, 1e4, classes).double()]
    variances = [torch.full_like(first, value) for value in (0.0, 1e-30, 1e-6, 1.0, 1e4, 1e12)]
    variances += [1e12 * first, 10 ** (21 * torch.rand_like(first) - 12)]
    rows = [(mean, variance) for mean in means for variance in variances]
    mean, variance = (torch.stack(part).to(dtype) for part in zip(*rows))
    return LogitGaussian(mean, Diagonal(variance))
