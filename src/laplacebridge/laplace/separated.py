"""Variances 1/(xy + τ) of many pairs of eigenvalues as a sum of few products.

As a function of y they are interpolated from those at few values y_j, exactly at few
values x_i: the remainder at (x, y) is 1/(xy + τ) times

    Π_j τ(x − x_j)(y_j − y) / ((x y_j + τ)(x_j y + τ)),

whose factors are all below one. So few pairs, each chosen where the product of the
others is largest, leave a small share of every variance, the smallest ones too.
"""

from typing import NamedTuple

import numpy as np

# The remainder as a share of each variance, and by how much the terms of a sum may exceed
# it: float32 loses as many digits.
LARGEST_SHARE, LARGEST_TERMS = 5e-7, 30.0
MOST_TERMS, CANDIDATES, SMALLEST_SIZE = 32, 150, 1e-12


class Separated(NamedTuple):
    """1/(xy + τ) = Σ_j u_j(x) w_j(y), but for a small share of each.

    u_j(x) is the variance at (x, y_j), and w_j(y) the product over l of (x_l y_j +
    τ)/(x_l y + τ) and, but for l = j, of (y − y_l)/(y_j − y_l).
    """

    of_first: np.ndarray  # u, shape (D, r)
    of_second: np.ndarray  # w, shape (r, K)
    rows: np.ndarray  # x_l, shape (r,)
    columns: np.ndarray  # y_l


def separated(first: np.ndarray, second: np.ndarray, prior: float) -> Separated | None:
    """Few functions of x times few functions of y, in float64; None if few are not
    enough.

    Args:
        first: Not negative numbers x, shape (D,).
        second: The same y, shape (K,).
        prior: τ > 0.
    """
    x, y = _some(first), _some(second)
    left = np.ones((len(x), len(y)))
    chosen: list[tuple[float, float]] = []
    while np.abs(left).max() > LARGEST_SHARE / 10:
        if len(chosen) == MOST_TERMS:
            return None
        row, column = np.unravel_index(np.abs(left).argmax(), left.shape)
        chosen.append((x[row], y[column]))
        left *= _share(x[:, None], y, *chosen[-1], prior)
    rows, columns = np.array(chosen).T
    of_first = 1 / (first[:, None] * columns + prior)
    of_second = np.stack(
        [_weight(second, place, rows, columns, prior) for place in range(len(rows))]
    )
    return _checked(Separated(of_first, of_second, rows, columns), first, second, prior)


def _some(values: np.ndarray) -> np.ndarray:
    """Some values, from the smallest to the largest: evenly by rank, and by size, since
    where they lie far apart much happens between two ranks.
    """
    known = np.unique(values)
    by_rank = np.linspace(0, len(known) - 1, CANDIDATES).round().astype(int)
    sizes = known[-1] * np.geomspace(SMALLEST_SIZE, 1, CANDIDATES)
    by_size = np.searchsorted(known, sizes).clip(0, len(known) - 1)
    return known[np.unique(np.concatenate([by_rank, by_size]))]


def _share(
    x: np.ndarray, y: np.ndarray, chosen_x: float, chosen_y: float, prior: float
) -> np.ndarray:
    return (
        prior * (x - chosen_x) * (chosen_y - y) / ((x * chosen_y + prior) * (chosen_x * y + prior))
    )


def _weight(
    y: np.ndarray, place: int, rows: np.ndarray, columns: np.ndarray, prior: float
) -> np.ndarray:
    """What interpolation weighs the variances at one chosen y with."""
    own = columns[place]
    weight = np.prod((rows[:, None] * own + prior) / (rows[:, None] * y + prior), 0)
    for other in np.delete(columns, place):
        weight = weight * ((y - other) / (own - other))
    return weight


def _checked(
    found: Separated, first: np.ndarray, second: np.ndarray, prior: float
) -> Separated | None:
    """What was found if it is right for every pair, some classes at a time."""
    for start in range(0, len(second), 1024):
        some = slice(start, start + 1024)
        precision = first[:, None] * second[some] + prior
        product = found.of_first @ found.of_second[:, some] * precision
        terms = found.of_first @ np.abs(found.of_second[:, some]) * precision
        if not (np.abs(product - 1).max() < LARGEST_SHARE and terms.max() < LARGEST_TERMS):
            return None
    return found
