"""Dirichlets at every concentration, and what 80-digit arithmetic says of them."""

import itertools
from functools import cache

import mpmath
import numpy as np
import pytest
import torch

import laplacebridge as lb

DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
CONCENTRATIONS = [1e-30, 1e-12, 1e-3, 0.3, 1.0, 2.5, 30.0, 1e4, 1e9, 1e18]


@cache
def extreme_logs(classes, num_rows=80):
    """Log-concentrations of every size, alone and mixed within a row."""
    rows = list(itertools.product(CONCENTRATIONS, repeat=classes))
    chosen = np.random.default_rng(0).permutation(len(rows))[:num_rows]
    alike = [(value,) * classes for value in CONCENTRATIONS]
    return torch.tensor(alike + [rows[index] for index in chosen], dtype=torch.float64).log()


def concentrations_by_mpmath(log_row):
    concentration = [mpmath.exp(mpmath.mpf(value)) for value in log_row]
    return concentration, mpmath.fsum(concentration)


def analytics_by_mpmath(log_row):
    """Everything by its textbook formula, in enough digits for the textbook formula."""
    psi = mpmath.digamma
    alpha, total = concentrations_by_mpmath(log_row)
    classes, mean = len(alpha), [a / total for a in alpha]
    excess = [max(a - 1, mpmath.mpf(0)) for a in alpha]
    largest = alpha.index(max(alpha))
    vertex = [mpmath.mpf(index == largest) for index in range(classes)]
    entropy = mpmath.fsum(mpmath.loggamma(a) - (a - 1) * psi(a) for a in alpha)
    entropy += (total - classes) * psi(total) - mpmath.loggamma(total)
    entropy_of_mean = -mpmath.fsum(m * mpmath.log(m) for m in mean)
    expected_entropy = psi(total + 1) - mpmath.fsum(m * psi(a + 1) for m, a in zip(mean, alpha))
    return {
        "mean": mean,
        "variance": [m * (total - a) / total / (total + 1) for m, a in zip(mean, alpha)],
        "covariance": [
            [(m * (i == j) - m * n) / (total + 1) for j, n in enumerate(mean)]
            for i, m in enumerate(mean)
        ],
        "mode": [e / mpmath.fsum(excess) for e in excess] if any(excess) else vertex,
        "total": total,
        "log_total": mpmath.log(total),
        "entropy": entropy,
        "entropy_of_mean": entropy_of_mean,
        "expected_entropy": expected_entropy,
        "mutual_information": entropy_of_mean - expected_entropy,
    }


def as_array(values):
    return np.array([[float(value) for value in np.ravel(row)] for row in values])


@cache
def exact(classes, dtype):
    """Dirichlets, and their analytics at the log-concentrations that the type stores."""
    dirichlet = lb.Dirichlet(extreme_logs(classes).to(dtype))
    with mpmath.workdps(120):
        rows = [analytics_by_mpmath(row) for row in dirichlet.log_concentration.double().tolist()]
    return dirichlet, {name: as_array([row[name] for row in rows]) for name in rows[0]}


def asked(dirichlet, name):
    value = getattr(dirichlet, name)
    value = value() if callable(value) else value
    assert value.dtype == dirichlet.dtype
    return value.detach().double().reshape(len(dirichlet), -1).numpy()


EVERY_SIZE = pytest.mark.parametrize("classes", [2, 3, 6])
