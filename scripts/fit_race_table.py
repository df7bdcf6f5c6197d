"""Fits the table of the Gumbel race: Chebyshev coefficients of its level in distance
and variance.

The race (`laplacebridge/bridges/race.py`) needs y(u, v) = -log(-log E exp(-exp(sqrt(v)
xi - u))) for every class and node, hence a formula that costs a dozen multiplications:

    y = u / sqrt(1 + v) + v / (1 + v) * sum_ij table[i, j] T_i(nu) T_j(tau)
    tau maps [0.577 - sqrt(11.56 + 39 v), sqrt(225 + 30 v)] to [-1, 1]
    nu = 2 sqrt(v) / (sqrt(v) + 4) - 1

Zero variance is exact by construction. The fit minimises the sum of eighth powers of
the errors of y, nearly the largest error, over levels from -2.6 to 13: all that reach
the race, for variances from 0 to beyond 1e6.

    python scripts/fit_race_table.py            # writes bridges/race_table.csv
    python scripts/fit_race_table.py --check    # fails if that is not the fitted table
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from numpy.polynomial import chebyshev

from laplacebridge._quadrature import gumbel_level

TABLE_PATH = Path(__file__).parents[1] / "src" / "laplacebridge" / "bridges" / "race_table.csv"
HEADER = (
    "Chebyshev coefficients, rows nu and columns tau. Made by scripts/fit_race_table.py: do not"
    " edit."
)
NU_DEGREE, TAU_DEGREE = 20, 12
NUM_NU, NUM_TAU = 150, 72
# The levels that must be right, with a margin; those outside only keep the fit from
# bending at the border.
LOWEST_LEVEL, HIGHEST_LEVEL, WEIGHT_OUTSIDE = -2.7, 13.3, 0.1
# Errors of y vanish with the variance whatever the polynomial is. This least weight
# makes the first-order coefficient in the variance right to 1 % all the same.
LEAST_WEIGHT = 0.3
# Powers of the error that are minimised one after the other, each from the solution of
# the one before.
POWERS = (2, 4, 8)
TOLERANCE = 1e-6


def fit() -> np.ndarray:
    """Fits the table.

    Returns:
        Coefficients of shape (NU_DEGREE + 1, TAU_DEGREE + 1).
    """
    nu, tau = chebyshev.chebpts1(NUM_NU)[:, None], chebyshev.chebpts1(NUM_TAU)
    # Targets are divided by the variance. Below 1e-6 they no longer change, but
    # rounding would be magnified.
    variance = np.maximum((4 * (1 + nu) / (1 - nu)) ** 2, 1e-6)
    start, stop = 0.577 - np.sqrt(11.56 + 39 * variance), np.sqrt(225 + 30 * variance)
    distance = start + (stop - start) * (tau + 1) / 2
    level = gumbel_level(torch.from_numpy(distance), torch.from_numpy(variance)).numpy()
    share = variance / (1 + variance)
    polynomial = (level - distance / np.sqrt(1 + variance)) / share
    weight = np.maximum(share, LEAST_WEIGHT) * np.where(
        (level > LOWEST_LEVEL) & (level < HIGHEST_LEVEL), 1.0, WEIGHT_OUTSIDE
    )
    basis = np.kron(
        chebyshev.chebvander(nu[:, 0], NU_DEGREE), chebyshev.chebvander(tau, TAU_DEGREE)
    )
    table = least_power(basis * weight.reshape(-1, 1), (polynomial * weight).ravel())
    return table.reshape(NU_DEGREE + 1, TAU_DEGREE + 1)


def least_power(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Minimises the sum of the powers of all residuals, for each of POWERS in turn, by
    Newton's method.

    The problem is convex with a unique minimum, so the result does not depend on the
    machine.

    Args:
        matrix: Matrix of shape (N, M), N > M.
        target: Targets of shape (N,).

    Returns:
        The minimiser for the last of POWERS, shape (M,).
    """
    solution = np.zeros(matrix.shape[1])
    for power in POWERS:
        # Newton's step is 1 / (power - 1) of the step to the weighted least squares
        # solution. Far from the minimum another multiple may be better.
        steps = np.array([4, 2, 1, 0.5, 0.25]) / (power - 1)
        for _ in range(30):
            residual = target - matrix @ solution
            relative = np.abs(residual) / np.abs(residual).max()
            weighted = matrix * relative[:, None] ** (power - 2)
            direction = np.linalg.solve(weighted.T @ matrix, weighted.T @ residual)
            candidates = residual[:, None] - (matrix @ direction)[:, None] * steps
            best = np.argmin((np.abs(candidates / np.abs(residual).max()) ** power).sum(0))
            solution += steps[best] * direction
            if np.abs(direction).max() < 1e-10:
                break
    return solution


def main() -> int:
    """Writes the table, or compares it with a new fit.

    Returns:
        The exit code: 1 if the comparison fails.
    """
    parser = argparse.ArgumentParser(description="Fits the table of the Gumbel race.")
    parser.add_argument(
        "--check", action="store_true", help="compare with the table in the package"
    )
    arguments = parser.parse_args()
    table = fit()
    if not arguments.check:
        np.savetxt(TABLE_PATH, table, fmt="%.17g", delimiter=",", header=HEADER)
        print(f"Wrote {TABLE_PATH}.")
        return 0
    difference = np.abs(table - np.loadtxt(TABLE_PATH, delimiter=",")).max()
    print(
        f"{TABLE_PATH.name} differs from a new fit by {difference:.1e} (allowed: {TOLERANCE:.0e})."
    )
    return int(difference > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
