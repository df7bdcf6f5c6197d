"""Fits the points over which the race for correlated logits is averaged.

Averages over few points are closest to those over a normal law when the points are its
support points: they minimise the energy distance

    2 E|x_n - Z| - mean |x_n - x_m|,     Z ~ N(0, I).

The points have a level (how late the race is decided) and sixteen factors, of which
most rows of logits use the first few. So the distance is averaged over random weights
of the coordinates, which stop after a random number of factors or fall. Parts are
fitted one after the other: each completes those before it, and is centred and whitened
by itself, so that its first and second moments are exact.

    python scripts/fit_factor_points.py            # writes bridges/factor_points.csv
    python scripts/fit_factor_points.py --check    # fails if those points are not as good
"""

import argparse
import math
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor

POINTS_PATH = Path(__file__).parents[1] / "src" / "laplacebridge" / "bridges" / "factor_points.csv"
HEADER = (
    "Support points of the normal law: a level, then factors. Made by"
    " scripts/fit_factor_points.py: do not edit."
)
PARTS = (32, 32, 64, 128)
NUM_FACTORS = 16
# How much the level counts beside a factor: shares change slowly with it.
LEVEL_WEIGHT = 0.3
# A part must be good by itself too, this much: its difference from the others is the noise.
ALONE = 0.3
STEPS, DRAWS, LEARNING_RATE = 800, 1024, 0.05
DIGITS = 5
# Another optimiser, or another machine, may end in points that are as good.
TOLERANCE = 0.02


def white(points: Tensor) -> Tensor:
    """Points with mean zero and the identity as covariance. The change is triangular:
    the first coordinates, which count most, are changed least.

    Args:
        points: Shape (N, C).
    """
    centered = points - points.mean(0)
    root = torch.linalg.cholesky(centered.mT @ centered / len(centered))
    return torch.linalg.solve_triangular(root, centered.mT, upper=False).mT


def random_weights(generator: Generator) -> Tensor:
    """Of the coordinates: the first few factors, alike or falling."""
    number = int(torch.randint(1, NUM_FACTORS + 1, (1,), generator=generator))
    fall = 3 * float(torch.rand(1, generator=generator)) / number
    place = torch.arange(NUM_FACTORS)
    factors = torch.where(place < number, torch.exp(-fall * place), 0.0)
    return torch.cat([torch.tensor([LEVEL_WEIGHT]), factors]).double()


def energy(points: Tensor, normal: Tensor, weights: Tensor) -> Tensor:
    """The energy distance, up to a constant, in units of what one point more changes.

    Args:
        points: Shape (N, C).
        normal: Draws of the law, shape (S, C).
        weights: Of the coordinates.
    """
    scaled = points * weights
    own = ((scaled[:, None] - scaled).square().sum(-1) + 1e-12).sqrt().mean()
    other = torch.cdist(scaled, normal * weights).mean()
    return (2 * other - own) * len(points) / torch.linalg.vector_norm(weights)


def draws(generator: Generator) -> Tensor:
    """Antithetic draws of the law."""
    half = torch.randn(DRAWS, NUM_FACTORS + 1, dtype=torch.float64, generator=generator)
    return torch.cat([half, -half])


def fit() -> list[Tensor]:
    """Fits all parts, each from where a Sobol sequence goes on."""
    engine = torch.quasirandom.SobolEngine(  # type: ignore[no-untyped-call]
        NUM_FACTORS + 1, scramble=True, seed=0
    )
    generator = Generator().manual_seed(0)
    parts: list[Tensor] = []
    for number in PARTS:
        chances = engine.draw(number, dtype=torch.float64).clamp(1e-4, 1 - 1e-4)
        free = (math.sqrt(2) * torch.erfinv(2 * chances - 1)).requires_grad_()
        optimizer = torch.optim.Adam([free], lr=LEARNING_RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        for _ in range(STEPS):
            normal, points = draws(generator), white(free)
            loss = torch.zeros((), dtype=torch.float64)
            for _ in range(2):
                weights = random_weights(generator)
                loss = loss + energy(torch.cat([*parts, points]), normal, weights)
                if parts:
                    loss = loss + ALONE * energy(points, normal, weights)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        parts.append(white(free).detach())
    return parts


def badness(parts: list[Tensor]) -> float:
    """The energy of all that the parts make up one after the other, over many weights.

    Args:
        parts: The parts.
    """
    generator = Generator().manual_seed(1)
    found = []
    for _ in range(50):
        normal, weights = draws(generator), random_weights(generator)
        for number in range(1, len(parts) + 1):
            points = torch.cat(parts[:number])
            scale = len(points) / torch.linalg.vector_norm(weights)
            base = torch.cdist(normal[:DRAWS] * weights, normal[DRAWS:] * weights).mean() * scale
            found.append(float(energy(points, normal, weights) - base))
    return sum(found) / len(found)


def stored() -> list[Tensor]:
    """The points in the repository."""
    return list(torch.from_numpy(np.loadtxt(POINTS_PATH, delimiter=",")).split(PARTS))


def main() -> None:
    """Writes the points, or compares with those that are there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the points are not as good"
    )
    check = parser.parse_args().check
    torch.set_num_threads(1)
    parts = fit()
    if not check:
        form = f"%.{DIGITS}f"
        np.savetxt(POINTS_PATH, torch.cat(parts).numpy(), delimiter=",", fmt=form, header=HEADER)
        print(f"Wrote {POINTS_PATH}: badness {badness(stored()):.4f}.")
        return
    known, fresh = badness(stored()), badness(parts)
    print(f"badness {known:.4f}, fitted again {fresh:.4f}")
    sys.exit(int(known > fresh * (1 + TOLERANCE)))


if __name__ == "__main__":
    main()
