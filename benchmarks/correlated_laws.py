"""Gaussians over correlated logits to measure the race on.

Three lists, kept apart. `KNOWN` laws were looked at while the method was made, and its
constants were chosen on laws like them. `SEEN` ones were looked at once, half-way: the
number of secant steps follows from what that showed. `HELD_OUT` ones were written down
afterwards, and their figures were seen before the points of noisy rows were halved and
rows of factors alone were given a shorter way, and before points became support points,
which was done for speed and kept every verdict.
"""

from collections.abc import Callable
from functools import partial

import torch
from populations import (
    LawOfClasses,
    Population,
    grouped,
    identity,
    log_uniform,
    normal,
    one_factor_of_pairs,
    plain_means,
    rank_one,
    student_t,
    uniform,
)
from torch import Generator, Tensor

import laplacebridge as lb

CLASSES = (3, 10, 30, 100, 300, 1000)
CORRELATIONS = (0.5, 0.7, 0.9, 0.99)
KNOWN_REGIME, SEEN_REGIME, HELD_OUT_REGIME = "correlated", "correlated, seen", "held out"


def correlated_populations() -> list[Population]:
    """Every law for every number of classes."""
    return [
        Population(name, regime, k, False, partial(law, k))
        for regime, laws in (
            (KNOWN_REGIME, KNOWN),
            (SEEN_REGIME, SEEN),
            (HELD_OUT_REGIME, HELD_OUT),
        )
        for name, law in laws.items()
        for k in CLASSES
    ]


def _blocks(size: int, num_classes: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.arange(num_classes) // size).double()


def _two_clusters(num_classes: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.arange(num_classes) % 2, 2).double()


def _ensemble(num_classes: int, rows: int, generator: Generator) -> lb.LogitGaussian:
    """Five members, whose logits differ by one to four."""
    spread = log_uniform(1.0, 4.0, 1, rows, 1, generator=generator)
    members = spread * normal(5, rows, num_classes, generator=generator)
    return lb.LogitGaussian.from_samples(plain_means(rows, num_classes, generator) + members)


def _nested(num_classes: int, rows: int, generator: Generator) -> lb.LogitGaussian:
    """Halves, sixths and pairs of the classes, each with noise in common."""
    matrix = 0.5 * identity(num_classes)
    for size in (num_classes // 2, num_classes // 6, 2):
        group = torch.arange(num_classes) // max(2, size)
        matrix = matrix + 2 * (group[:, None] == group).double()
    return _scaled(matrix.expand(rows, -1, -1), rows, num_classes, generator)


def _heavy_tailed(num_classes: int, rows: int, generator: Generator) -> lb.LogitGaussian:
    """Four factors with loadings of Student's law."""
    factor = 1.5 * student_t(rows, num_classes, 4, generator=generator)
    matrix = factor @ factor.mT + 0.5 * identity(num_classes)
    return lb.LogitGaussian(plain_means(rows, num_classes, generator), lb.Dense(matrix))


def _sparse_precision(num_classes: int, rows: int, generator: Generator) -> lb.LogitGaussian:
    """The inverse of a precision with about four entries in each row."""
    shape = (rows, num_classes, num_classes)
    present = (uniform(*shape, generator=generator) < min(1.0, 4 / num_classes)).double()
    upper = (present * normal(*shape, generator=generator)).triu(1)
    off = upper + upper.mT
    precision = torch.diag_embed(off.abs().sum(-1) + 0.1) + off
    return lb.LogitGaussian(
        plain_means(rows, num_classes, generator), lb.Dense(3 * torch.linalg.inv(precision))
    )


def _neighbours(num_classes: int, rows: int, generator: Generator) -> lb.LogitGaussian:
    """Classes in a row, correlated with those beside."""
    place = torch.arange(num_classes).double()
    matrix = 0.95 ** (place[:, None] - place).abs()
    return _scaled(matrix.expand(rows, -1, -1), rows, num_classes, generator)


def _in_a_plane(num_classes: int, rows: int, generator: Generator) -> lb.LogitGaussian:
    """Classes at places in a plane, correlated with those near."""
    places = normal(rows, num_classes, 2, generator=generator)
    distance = (places[:, :, None] - places[:, None]).square().sum(-1)
    matrix = torch.exp(-distance) + 0.02 * identity(num_classes)
    return _scaled(matrix, rows, num_classes, generator)


def _uneven_blocks(num_classes: int, rows: int, generator: Generator) -> lb.LogitGaussian:
    """Every class joins one of K/4 groups at random, and follows it more or less."""
    chances = uniform(rows, num_classes, generator=generator)
    group = (chances.square() * max(2, num_classes // 4)).long()
    follows = uniform(rows, num_classes, generator=generator).sqrt()
    same = (group[:, :, None] == group[:, None]).double()
    matrix = follows[:, :, None] * same * follows[:, None]
    matrix = matrix + torch.diag_embed(1 - follows.square())
    return _scaled(matrix, rows, num_classes, generator)


def _falling_spectrum(num_classes: int, rows: int, generator: Generator) -> lb.LogitGaussian:
    """Eigenvalues like k^−1.5 in a basis drawn for all rows."""
    basis, _ = torch.linalg.qr(normal(num_classes, num_classes, generator=generator))
    values = torch.arange(1, num_classes + 1).double() ** -1.5
    values = values * (num_classes / values.sum())
    scale = log_uniform(1.0, 20.0, rows, 1, generator=generator)
    return lb.LogitGaussian(
        plain_means(rows, num_classes, generator), lb.SharedBasis(scale * values, basis)
    )


def _tree(num_classes: int, rows: int, generator: Generator) -> lb.LogitGaussian:
    """Classes at the ends of a random tree: each shares what happened before it parted."""
    matrix = torch.zeros(rows, num_classes, num_classes, dtype=torch.float64)
    for row in range(rows):
        order = torch.randperm(num_classes, generator=generator)
        parts = [order]
        for _ in range(6):
            parts = [half for part in parts for half in _parted(part, generator)]
            for part in parts:
                length = float(uniform(1, generator=generator))
                matrix[row, part[:, None], part] += length
    matrix = matrix + 0.1 * identity(num_classes)
    return _scaled(matrix / 3, rows, num_classes, generator)


def _parted(part: Tensor, generator: Generator) -> list[Tensor]:
    if len(part) < 2:
        return [part]
    cut = int(torch.randint(1, len(part), (1,), generator=generator))
    return [part[:cut], part[cut:]]


def _rivals(num_classes: int, rows: int, generator: Generator) -> lb.LogitGaussian:
    """The most probable classes exclude each other, over a background of factors."""
    mean = plain_means(rows, num_classes, generator)
    top = mean.topk(min(4, num_classes)).indices
    signs = torch.where(torch.arange(top.shape[1]) % 2 == 0, 1.0, -1.0).double()
    along = torch.zeros_like(mean).scatter(1, top, 3 * signs.expand(rows, -1))
    factor = torch.cat([along[..., None], normal(rows, num_classes, 3, generator=generator)], -1)
    return lb.LogitGaussian(mean, lb.Dense(factor @ factor.mT + identity(num_classes)))


def _scaled(matrix: Tensor, rows: int, num_classes: int, generator: Generator) -> lb.LogitGaussian:
    variance = log_uniform(1.0, 20.0, rows, 1, 1, generator=generator)
    return lb.LogitGaussian(plain_means(rows, num_classes, generator), lb.Dense(variance * matrix))


def _groups(correlation: float, loadings: Callable[[int], Tensor]) -> LawOfClasses:
    return partial(grouped, correlation, loadings)


KNOWN: dict[str, LawOfClasses] = {
    **{f"two clusters, {value} within": _groups(value, _two_clusters) for value in CORRELATIONS},
    "anticorrelated pairs": _groups(0.9, one_factor_of_pairs),
    "rank one": rank_one,
    "blocks of 3": _groups(0.9, partial(_blocks, 3)),
    "blocks of 10": _groups(0.9, partial(_blocks, 10)),
    "ensembles of 5": _ensemble,
}
SEEN: dict[str, LawOfClasses] = {
    "nested groups": _nested,
    "heavy-tailed factors": _heavy_tailed,
    "sparse precisions": _sparse_precision,
    "neighbours": _neighbours,
    "places in a plane": _in_a_plane,
}
HELD_OUT: dict[str, LawOfClasses] = {
    "uneven blocks": _uneven_blocks,
    "falling spectrum": _falling_spectrum,
    "random trees": _tree,
    "rivals": _rivals,
}
