"""Numbers known at import, as tensors of any type on any device."""

import numpy as np
import torch
from torch import Tensor


class Constant:
    """An array that calculations need as a tensor.

    It is made anew for each call, from memory: a tensor kept from one call to the next
    could be one that a device, `torch.inference_mode` or `FakeTensorMode` alone can
    use.

    Args:
        values: The numbers, in float64.
    """

    def __init__(self, values: np.ndarray) -> None:
        self._values = values
        with torch.inference_mode(False):
            self._tensor = torch.from_numpy(values)

    def like(self, other: Tensor) -> Tensor:
        """The numbers in the type of a tensor, where that is.

        Args:
            other: The tensor.
        """
        if torch.compiler.is_compiling():  # a compiler keeps the tensor it is given
            return self._tensor.to(other)
        return torch.tensor(self._values, dtype=other.dtype).to(other.device)
