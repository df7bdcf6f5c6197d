"""The points that averages over factors are taken over, the same for all rows and calls.

They are support points of the normal law, which stand for it as well as so few can. In
parts, each of which completes those before it, from `factor_points.csv`, fitted by `scripts/fit_factor_points.py`.
"""

from importlib.resources import files

import numpy as np
import torch

from laplacebridge._constant import Constant

POINTS_NAME = "factor_points.csv"
# Points: all rows are averaged over the first two parts, and where the last part disagrees
# with all before it, over the next.
PARTS = (32, 32, 64, 128)
# Half of the difference between the last part and all before it, times this, is about the
# error of their average: parts complete each other.
NOISE_OF_PARTS = 0.8


def _gamma_quantiles(chances: np.ndarray) -> np.ndarray:
    """w with 1 − (1 + w)e^−w = u, by Newton's method in log w."""
    log = np.log(np.sqrt(2 * chances) + chances)
    for _ in range(50):
        w = np.exp(log)
        log -= np.clip((-np.expm1(-w) - w * np.exp(-w) - chances) / (w * w * np.exp(-w)), -1, 1)
    return np.exp(log)


def _read_points() -> list[Constant]:
    """The parts: levels −log w and factors of every point, (N, 1 + R)."""
    source = files("laplacebridge.bridges").joinpath(POINTS_NAME)
    lines = source.read_text(encoding="utf-8").splitlines()
    parts = []
    for part in np.split(np.loadtxt(lines, delimiter=","), np.cumsum(PARTS)[:-1]):
        chances = torch.special.ndtr(torch.from_numpy(part[:, :1])).numpy()
        factors = part[:, 1:] - part[:, 1:].mean(0)
        root = np.linalg.cholesky(factors.T @ factors / len(part))  # they are rounded
        white = np.linalg.solve(root, factors.T).T
        parts.append(Constant(np.hstack([-np.log(_gamma_quantiles(chances)), white])))
    return parts


POINTS = _read_points()  # at import, because `torch.compile` does not see into caches
