"""Watches how large tensors get while something is computed."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from laplacebridge import _blocks

# a block that a process allocates once, whatever is computed first
_blocks._keep_freed_memory()


class LargestTensor(TorchDispatchMode):
    """Remembers the largest number of elements that any operation produced."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.numel())
        return result
