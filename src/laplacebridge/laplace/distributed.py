"""Fitting on several processes: each sums over its shard, and the sums add up."""

import torch
from torch import distributed

from laplacebridge.laplace.curvature import Sums
from laplacebridge.laplace.label_statistics import LabelStatistics


def is_distributed() -> bool:
    """Whether several processes fit together, as under ``torchrun``."""
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


def summed(curvature: Sums) -> Sums:
    """The sum of a curvature over all processes; every process gets the same.

    Args:
        curvature: This process's sums; those of unequal shards, or of none, add like
            any others.
    """
    total = {name: tensor.clone() for name, tensor in curvature.tensors().items()}
    for tensor in total.values():
        distributed.all_reduce(tensor, op=distributed.ReduceOp.SUM)
    return curvature.with_tensors(total)


def summed_labels(labels: LabelStatistics) -> LabelStatistics:
    """What the labels of all processes say; every process gets the same.

    Args:
        labels: What this process's labels say.
    """
    known = labels.log_likelihood is not None
    sums = (
        labels.log_likelihood or 0.0,
        labels.num_correct,
        labels.squared_error,
        labels.fourth_power,
    )
    numbers = torch.tensor(sums, dtype=torch.float64)
    counts = labels.class_counts.clone()
    for tensor in (numbers, counts):
        distributed.all_reduce(tensor, op=distributed.ReduceOp.SUM)
    likelihood, num_correct, squared_error, fourth_power = numbers.tolist()
    return LabelStatistics(
        likelihood if known else None, int(num_correct), counts, squared_error, fourth_power
    )
