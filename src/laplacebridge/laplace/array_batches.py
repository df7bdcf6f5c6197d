"""Batches of arrays and frames, as tensors that a network takes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from laplacebridge._arrays import is_array, to_tensors


def tensors_for(model: nn.Module, given: Any) -> Any:  # noqa: ANN401
    """The same with tensors in place of arrays and frames, floating-point ones in the
    network's own type: arrays are float64 unless somebody says otherwise, and networks
    are not. Whatever holds no arrays is given back as it is.

    Args:
        model: The network.
        given: An array, a batch, or a list of batches; others, such as loaders, stay.

    Example:
        >>> tensors_for(nn.Linear(2, 2), [(np.eye(2), np.array([0, 1]))])
        [(tensor([[1., 0.],
                [0., 1.]]), tensor([0, 1]))]
    """
    if not holds_arrays(given):
        return given
    if is_array(given):
        tensor = to_tensors(given)
        weight = next((each for each in model.parameters() if each.is_floating_point()), None)
        if weight is None or not isinstance(tensor, Tensor):
            return tensor
        return tensor.to(weight.device, weight.dtype if tensor.is_floating_point() else None)
    if isinstance(given, Mapping):
        return {name: tensors_for(model, value) for name, value in given.items()}
    made = [tensors_for(model, value) for value in given]
    if isinstance(given, tuple):
        return type(given)(*made) if hasattr(given, "_fields") else tuple(made)
    return made


def holds_arrays(given: object) -> bool:
    """Whether something is an array or frame, or a list, tuple or mapping of some.

    Args:
        given: Anything.
    """
    if isinstance(given, (Tensor, nn.Module, str)):
        return False
    if isinstance(given, Mapping):
        return any(map(holds_arrays, given.values()))
    if isinstance(given, (list, tuple)):
        return any(map(holds_arrays, given))
    return isinstance(given, np.ndarray) or is_array(given)
