"""Intervals of every class against sampled posteriors, over the laws of the accuracy
benchmark."""

import sys
from pathlib import Path

import pytest
import torch
from rank_coverage import coverage_by_rank

from laplacebridge import Dense, LogitGaussian, LowRank

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from populations import STRUCTURES, standard_populations

GAUSSIANS, SAMPLES = 12, 1000
# Where variances of a hundred stand beside those of one, the log-odds of improbable
# classes are not Gaussian any more.
SKEWED = ("heterogeneous", "high variance", 100)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_intervals_cover_classes_of_every_rank(structure, num_classes):
    generator = torch.Generator().manual_seed(0)
    for population in standard_populations():
        if (population.name, population.num_classes) != (structure, num_classes):
            continue
        parts = [
            coverage_by_rank(gaussian, SAMPLES, generator)
            for gaussian in population.batches(GAUSSIANS, seed=0)
        ]
        skewed = (population.name, population.regime, num_classes) == SKEWED
        for ranks in parts[0]:
            found = float(torch.cat([part[ranks] for part in parts]).mean())
            assert (0.89 if skewed else 0.93) <= found <= 0.97, (population.regime, ranks, found)


@pytest.mark.parametrize("num_classes", [50, 300])
@pytest.mark.parametrize("rank", [3, 5])
def test_intervals_cover_classes_of_every_rank_where_few_factors_move_all_logits(num_classes, rank):
    # An ensemble's covariance. One-vs-rest takes its logits for less tied than they are.
    generator = torch.Generator().manual_seed(rank)
    mean = 2 * torch.randn(GAUSSIANS, num_classes, generator=generator)
    factor = torch.randn(GAUSSIANS, num_classes, rank, generator=generator)
    covered = coverage_by_rank(LogitGaussian(mean, LowRank(factor)), SAMPLES, generator)
    for ranks, found in covered.items():
        assert 0.93 <= float(found.mean()) <= 0.97, (ranks, float(found.mean()))


@pytest.mark.parametrize("num_classes", [5, 10, 30, 100])
@pytest.mark.parametrize("own", [0.0, 0.1])
def test_intervals_cover_probable_classes_where_one_factor_moves_all_logits(num_classes, own):
    # One-vs-rest covers less, and the less the more classes there are.
    generator = torch.Generator().manual_seed(num_classes)
    mean = 2 * torch.randn(4 * GAUSSIANS, num_classes, generator=generator)
    factor = 3 * torch.randn(4 * GAUSSIANS, num_classes, 1, generator=generator)
    matrix = factor @ factor.mT + own * torch.eye(num_classes)
    covered = coverage_by_rank(LogitGaussian(mean, Dense(matrix)), SAMPLES, generator)
    for ranks in ((1, 1), (2, 5)):
        found = float(covered[ranks].mean())
        assert 0.925 <= found <= 0.975, (ranks, found)
