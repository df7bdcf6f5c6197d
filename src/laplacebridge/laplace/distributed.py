"""Fitting on several processes: each sums over its shard, and the sums add up."""

import torch
from torch import distributed

from laplacebridge.laplace.curvature import Sums


def is_distributed() -> bool:
    """Whether several processes fit together, as under ``torchrun``."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def summed(curvature: Sums) -> Sums:
    """The sum of a curvature over all processes; every process gets the same.

    Args:
        curvature: This process's sums; those of unequal shards, or of none, add like any others.
    """
    total = {name: tensor.clone() for name, tensor in curvature.tensors().items()}
    for tensor in total.values():
        distributed.all_reduce(tensor, op=distributed.ReduceOp.SUM)
    return curvature.with_tensors(total)


def summed_number(number: float) -> float:
    """The sum of a number over all processes."""
    tensor = torch.tensor(number, dtype=torch.float64)
    distributed.all_reduce(tensor, op=distributed.ReduceOp.SUM)
    return float(tensor)
