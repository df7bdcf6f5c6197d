"""The committed table of the race: accurate, increasing, and the one that the script
fits.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev

from laplacebridge._quadrature import gumbel_level

ROOT = Path(__file__).parents[2]
TABLE_PATH = ROOT / "src" / "laplacebridge" / "bridges" / "race_table.csv"
SCRIPT_PATH = ROOT / "scripts" / "fit_race_table.py"


@pytest.fixture(scope="module")
def table():
    return np.loadtxt(TABLE_PATH, delimiter=",")


def interval(variance):
    return 0.577 - np.sqrt(11.56 + 39 * variance), np.sqrt(225 + 30 * variance)


def level_by_table(table, distance, variance):
    """The formula of the table, for distances inside of the interval."""
    start, stop = interval(variance)
    tau = 2 * (distance - start) / (stop - start) - 1
    nu = 2 * np.sqrt(variance) / (np.sqrt(variance) + 4) - 1
    polynomial = chebyshev.chebval2d(nu, tau, table)
    return distance / np.sqrt(1 + variance) + variance / (1 + variance) * polynomial


def random_points(num_points=10_000):
    """Distances over the whole interval, variances from 1e-8 to 1e6, most from 0.1 to
    1000, and levels.
    """
    generator = np.random.default_rng(0)
    variance = 10 ** np.append(
        generator.uniform(-8, 6, num_points), generator.uniform(-1, 3, num_points)
    )
    start, stop = interval(variance)
    distance = generator.uniform(start, stop)
    return (
        distance,
        variance,
        gumbel_level(torch.from_numpy(distance), torch.from_numpy(variance)).numpy(),
    )


def test_format(table):
    lines = TABLE_PATH.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("#")
    assert len(lines) == 22
    assert table.shape == (21, 13)


def test_error_of_the_level(table):
    distance, variance, level = random_points()
    error = np.abs(level_by_table(table, distance, variance) - level)
    matters = (level > -2.6) & (level < 13)
    assert error[matters].max() < 1.5e-3
    assert np.sqrt(np.mean(error[matters] ** 2)) < 4e-4
    # Outside the race does not look, but nothing may run away.
    assert error[~matters].max() < 0.02


def test_zero_variance_is_exact(table):
    distance = np.linspace(-2.8, 15, 50)
    np.testing.assert_array_equal(
        level_by_table(table, distance, np.zeros_like(distance)), distance
    )


def test_first_order_in_the_variance(table):
    distance, variance = np.linspace(-2.6, 13, 500), np.full(500, 1e-9)
    slope = (level_by_table(table, distance, variance) - distance) / variance
    # By a Taylor expansion of exp(-exp(t)) in t.
    np.testing.assert_allclose(slope, np.expm1(-distance) / 2, atol=0.01, rtol=0.01)


def test_level_increases_up_to_the_tangent(table):
    variance = np.append(10 ** np.linspace(-8, 8, 200), 0.0)[:, None]
    start, stop = interval(variance)
    distance = start + (stop - start) * np.linspace(0, 1, 1000)
    level = level_by_table(table, distance, np.broadcast_to(variance, distance.shape))
    assert np.all(np.diff(level) > 0)
    # The library goes on with the tangent at the right end, so this slope must be about
    # the true one.
    ends = torch.from_numpy(distance[:, -2:])
    true_level = gumbel_level(ends, torch.from_numpy(variance)).numpy()
    np.testing.assert_allclose(np.diff(level[:, -2:]), np.diff(true_level), rtol=0.1)


def test_script_reproduces_the_table(table):
    specification = importlib.util.spec_from_file_location("fit_race_table", SCRIPT_PATH)
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    np.testing.assert_allclose(script.fit(), table, atol=1e-6, rtol=0)
