"""Gaussians over logits to measure bridges on: five structures in four regimes, and
laws of independent logits made to be hard; `correlated_laws` has correlated ones.

The laws follow the study that the bridges came from; no constant here was chosen by
looking at a result.
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor

import laplacebridge as lb

CLASSES = (2, 3, 10, 100, 1000)
# Few enough that the covariance matrices of a batch with 1000 classes take 50 MB, and
# that every population sees several shared bases.
ROWS_PER_BATCH = 6
LOGIT_SCALE = 1.5
TIED_SHARE = 0.15
COMMON_SHIFT = 10.0

Law = Callable[[int, Generator], lb.LogitGaussian]
LawOfClasses = Callable[[int, int, Generator], lb.LogitGaussian]
Structure = Callable[[int, int, Generator], lb.covariance.Covariance]


@dataclass(frozen=True)
class Population:
    """A law of Gaussians over logits.

    Attributes:
        name: The covariance structure, or what makes the law hard.
        regime: How uncertain the logits are; "independent" or others for hard laws.
        num_classes: K.
        independent: Whether the logits are, so that the exact mean is known.
        law: Draws this many Gaussians, in float64.
    """

    name: str
    regime: str
    num_classes: int
    independent: bool
    law: Law

    @property
    def hard(self) -> bool:
        """Whether it stands outside the structures and regimes that acceptance is
        judged on.
        """
        return self.regime not in REGIMES

    def seed(self, seed: int) -> int:
        """A seed of its own, so that adding a population changes no other."""
        return zlib.crc32(f"{seed}/{self.name}/{self.regime}/{self.num_classes}".encode())

    def batches(self, num_gaussians: int, seed: int) -> Iterator[lb.LogitGaussian]:
        """Draws the population in batches that fit the memory."""
        generator = Generator().manual_seed(self.seed(seed))
        for start in range(0, num_gaussians, ROWS_PER_BATCH):
            yield self.law(min(ROWS_PER_BATCH, num_gaussians - start), generator)


@dataclass(frozen=True)
class Regime:
    """Between what bounds the scale of the variances lies, and whether the means leave
    little doubt.
    """

    low: float
    high: float
    confident: bool = False


REGIMES = {
    "small": Regime(1e-3, 0.1),
    "confident": Regime(0.1, 2.0, confident=True),
    "moderate": Regime(0.3, 4.0),
    "high variance": Regime(5.0, 100.0),
}


def standard_populations() -> list[Population]:
    """Every structure in every regime for every number of classes."""
    return [
        Population(
            name, regime, k, structure in INDEPENDENT, partial(_structured, k, bounds, structure)
        )
        for k in CLASSES
        for regime, bounds in REGIMES.items()
        for name, structure in STRUCTURES.items()
    ]


def hard_populations() -> list[Population]:
    """Laws on which at least one bridge is known to fail."""
    independent: dict[str, tuple[LawOfClasses, tuple[int, ...]]] = {
        **{
            f"K = 1000, variance {value:g}": (partial(_image_net, value), (1000,))
            for value in (2, 3.6, 7)
        },
        **{
            f"one class ×{ratio}": (partial(_one_wide, ratio), (10,))
            for ratio in (16, 40, 100, 400)
        },
        "one class of variance 20 to 1e5": (_one_huge, (5, 30, 300)),
        "half the classes at −30": (_half_unlikely, (5, 30, 300)),
        "variances 1e-8 to 1e5": (_all_scales, (5, 30, 300)),
        "logits over ±100": (_wide_logits, (5, 30, 300)),
    }
    return [
        Population(name, "independent", k, True, partial(law, k))
        for name, (law, classes) in independent.items()
        for k in classes
    ]


def isotropic(rows: int, num_classes: int, generator: Generator) -> lb.Diagonal:
    """The identity."""
    return lb.Diagonal(torch.ones(rows, num_classes, dtype=torch.float64))


def heterogeneous(rows: int, num_classes: int, generator: Generator) -> lb.Diagonal:
    """Gamma variances with mean one."""
    return lb.Diagonal(_gamma(rows, num_classes, generator=generator))


def kronecker(rows: int, num_classes: int, generator: Generator) -> lb.SharedBasis:
    """The damped inverse of a softmax Hessian, as the class factor of a Kronecker
    posterior.

    Its scale is arbitrary, so it is brought to a mean variance of one after centring.
    The Hessian does not see a common shift, so along **1** there is damping only, and a
    large variance.
    """
    probability = student_t(1, num_classes, generator=generator).mul(LOGIT_SCALE).softmax(-1)[0]
    hessian = torch.diag(probability) - torch.outer(probability, probability)
    damping = hessian.trace() / num_classes * log_uniform(0.1, 1.0, 1, generator=generator)
    eigenvalues, basis = torch.linalg.eigh(hessian)
    weights = (eigenvalues.clamp_min(0) + damping).reciprocal().unsqueeze(0)
    scale = lb.SharedBasis(weights, basis).centered().diagonal().mean()
    return lb.SharedBasis((weights / scale).repeat(rows, 1), basis)


def low_rank(rows: int, num_classes: int, generator: Generator) -> lb.Dense:
    """Six shared directions and independent noise, with 30 to 80 % of the variance
    shared.
    """
    share = 0.3 + 0.5 * uniform(rows, 1, 1, generator=generator)
    factor = normal(rows, num_classes, 6, generator=generator)
    return lb.Dense(share * factor @ factor.mT / 6 + (1 - share) * identity(num_classes))


def correlated(rows: int, num_classes: int, generator: Generator) -> lb.Dense:
    """Toeplitz and Wishart correlations by turns, and a common mode of 10 to 100 times
    their variance.
    """
    matrices = torch.stack(
        [(_toeplitz, _wishart)[row % 2](num_classes, generator) for row in range(rows)]
    )
    return lb.Dense(matrices + log_uniform(10.0, 100.0, rows, 1, 1, generator=generator))


STRUCTURES: dict[str, Structure] = {
    "isotropic": isotropic,
    "heterogeneous": heterogeneous,
    "Kronecker": kronecker,
    "low rank": low_rank,
    "correlated": correlated,
}
INDEPENDENT = (isotropic, heterogeneous)


def _structured(
    num_classes: int, regime: Regime, structure: Structure, rows: int, generator: Generator
) -> lb.LogitGaussian:
    mean = _means(rows, num_classes, generator, confident=regime.confident)
    scale = log_uniform(regime.low, regime.high, rows, generator=generator)
    return lb.LogitGaussian(mean, structure(rows, num_classes, generator).scaled(scale))


def _means(rows: int, num_classes: int, generator: Generator, *, confident: bool) -> Tensor:
    """Student-t logits, some with a tie at the top; if confident, 2 to 8 above all
    others together.
    """
    logits = LOGIT_SCALE * student_t(rows, num_classes, generator=generator)
    first = logits.argmax(-1, keepdim=True)
    if confident:
        others = logits.scatter(-1, first, -torch.inf).logsumexp(-1, keepdim=True)
        above = others + 2 + 6 * uniform(rows, 1, generator=generator)
        logits = logits.scatter(-1, first, above.maximum(logits.gather(-1, first)))
    tied = uniform(rows, 1, generator=generator) < TIED_SHARE
    second = logits.topk(2, dim=-1).indices[:, 1:]
    logits = torch.where(tied, logits.scatter(-1, second, logits.gather(-1, first)), logits)
    return logits + COMMON_SHIFT * normal(rows, 1, generator=generator)


def _toeplitz(num_classes: int, generator: Generator) -> Tensor:
    correlation = 0.5 + 0.45 * uniform(1, generator=generator)
    place = torch.arange(num_classes)
    return correlation ** (place[:, None] - place).abs()


def _wishart(num_classes: int, generator: Generator) -> Tensor:
    factor = normal(num_classes, num_classes + 2, generator=generator)
    return factor @ factor.T / (num_classes + 2)


def _image_net(
    variance: float, num_classes: int, rows: int, generator: Generator
) -> lb.LogitGaussian:
    """A long tail and five large logits, each about 1.5 below the last; variances
    within a factor of 3.
    """
    logits = LOGIT_SCALE * normal(rows, num_classes, generator=generator)
    largest = 9 + 7 * uniform(rows, 1, generator=generator)
    drops = -1.5 * torch.log(uniform(rows, 5, generator=generator))
    logits[:, :5] = largest - (drops.cumsum(-1) - drops[:, :1])
    spread = normal(10, rows, num_classes, generator=generator).square().mean(0).sqrt()
    return lb.LogitGaussian(logits, lb.Diagonal(variance * spread))


def _one_wide(ratio: float, num_classes: int, rows: int, generator: Generator) -> lb.LogitGaussian:
    variance = torch.ones(rows, num_classes, dtype=torch.float64)
    variance[:, 0] = ratio
    return lb.LogitGaussian(plain_means(rows, num_classes, generator), lb.Diagonal(variance))


def _one_huge(num_classes: int, rows: int, generator: Generator) -> lb.LogitGaussian:
    variance = torch.full((rows, num_classes), 0.5, dtype=torch.float64)
    variance[:, 0] = log_uniform(20.0, 1e5, rows, generator=generator)
    return lb.LogitGaussian(plain_means(rows, num_classes, generator), lb.Diagonal(variance))


def _half_unlikely(num_classes: int, rows: int, generator: Generator) -> lb.LogitGaussian:
    mean = plain_means(rows, num_classes, generator)
    variance = torch.full((rows, num_classes), 0.5, dtype=torch.float64)
    half = num_classes // 2
    mean[:, :half] = -30.0
    variance[:, :half] = log_uniform(50.0, 1000.0, rows, 1, generator=generator)
    return lb.LogitGaussian(mean, lb.Diagonal(variance))


def _all_scales(num_classes: int, rows: int, generator: Generator) -> lb.LogitGaussian:
    variance = log_uniform(1e-8, 1e5, rows, num_classes, generator=generator)
    return lb.LogitGaussian(plain_means(rows, num_classes, generator), lb.Diagonal(variance))


def _wide_logits(num_classes: int, rows: int, generator: Generator) -> lb.LogitGaussian:
    mean = 200 * uniform(rows, num_classes, generator=generator) - 100
    variance = log_uniform(0.01, 1e4, rows, num_classes, generator=generator)
    return lb.LogitGaussian(mean, lb.Diagonal(variance))


def grouped(
    correlation: float,
    loadings: Callable[[int], Tensor],
    num_classes: int,
    rows: int,
    generator: Generator,
) -> lb.LogitGaussian:
    """Logits that share factors: the loadings say which class follows which, the
    correlation how closely.
    """
    factor = loadings(num_classes)
    matrix = (1 - correlation) * identity(num_classes) + correlation * factor @ factor.T
    variance = log_uniform(1.0, 20.0, rows, 1, 1, generator=generator)
    return lb.LogitGaussian(plain_means(rows, num_classes, generator), lb.Dense(variance * matrix))


def one_factor_of_pairs(num_classes: int) -> Tensor:
    """One factor that raises one class of every pair and lowers the other."""
    return (1 - 2 * (torch.arange(num_classes) % 2)).double().unsqueeze(-1)


def rank_one(num_classes: int, rows: int, generator: Generator) -> lb.LogitGaussian:
    """One factor and nothing else, of variance 1 to 20."""
    deviation = log_uniform(1.0, 20.0, rows, 1, 1, generator=generator).sqrt()
    factor = deviation * normal(rows, num_classes, 1, generator=generator)
    return lb.LogitGaussian(plain_means(rows, num_classes, generator), lb.LowRank(factor))


def plain_means(rows: int, num_classes: int, generator: Generator) -> Tensor:
    """Means of ordinary spread."""
    return LOGIT_SCALE * normal(rows, num_classes, generator=generator)


def identity(num_classes: int) -> Tensor:
    """The identity."""
    return torch.eye(num_classes, dtype=torch.float64)


def normal(*shape: int, generator: Generator) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def uniform(*shape: int, generator: Generator) -> Tensor:
    """Numbers between 0 and 1."""
    return torch.rand(shape, dtype=torch.float64, generator=generator)


def log_uniform(low: float, high: float, *shape: int, generator: Generator) -> Tensor:
    """Numbers whose logarithms are uniform."""
    return low * (high / low) ** uniform(*shape, generator=generator)


def _gamma(*shape: int, generator: Generator) -> Tensor:
    """Gamma with shape 2 and mean 1: a fourth of a chi-square with four degrees of
    freedom.
    """
    return normal(4, *shape, generator=generator).square().mean(0)


def student_t(*shape: int, generator: Generator) -> Tensor:
    """Student-t with four degrees of freedom."""
    return normal(*shape, generator=generator) / _gamma(*shape, generator=generator).sqrt()
