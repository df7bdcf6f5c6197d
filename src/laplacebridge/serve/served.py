"""What a server answers with: a model with named inputs and outputs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from laplacebridge.serve.tensors import TensorSpec


class Served(ABC):
    """A model behind an address. Its inputs were checked when it is called, and come
    from one thread.

    Attributes:
        platform: What it is made with, as its metadata say.
        inputs: What it takes.
        outputs: What it can give.
        default_outputs: What it gives unless it is asked for something else.

    Example:
        >>> class Sum(Served):
        ...     platform = "numpy"
        ...     inputs = (TensorSpec("numbers", "FP32", (-1, 2)),)
        ...     outputs = (TensorSpec("sum", "FP32", (-1,)),)
        ...     default_outputs = ("sum",)
        ...
        ...     def answer(self, inputs, wanted):
        ...         return {"sum": inputs["numbers"].sum(-1)}
        >>> Sum().answer({"numbers": np.ones((3, 2))}, frozenset())["sum"]
        array([2., 2., 2.])
    """

    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    default_outputs: tuple[str, ...]

    @abstractmethod
    def answer(
        self, inputs: Mapping[str, np.ndarray], wanted: frozenset[str]
    ) -> dict[str, np.ndarray]:
        """Answers for some examples, by the names of outputs.

        Args:
            inputs: Arrays by name.
            wanted: Names of outputs that must be among the answers; others may be.

        Raises:
            InputError: If the model cannot answer these inputs.
        """

    def metadata(self) -> dict[str, Any]:
        """What the model takes and gives, as the protocol describes it."""
        return {
            "platform": self.platform,
            "inputs": [spec.metadata() for spec in self.inputs],
            "outputs": [spec.metadata() for spec in self.outputs],
        }

    def rows_of(self, answers: Mapping[str, np.ndarray], rows: slice) -> dict[str, np.ndarray]:
        """The answers to some of the examples; rows of unequal length are filled up to
        the longest among these.

        Args:
            answers: To all examples.
            rows: Which.
        """
        found = {name: array[rows] for name, array in answers.items()}
        for spec in self.outputs:
            if spec.ragged and spec.name in found:
                found[spec.name] = _cut(found[spec.name])
        return found


def _cut(array: np.ndarray) -> np.ndarray:
    filled = (array != ("" if array.dtype.kind == "O" else -1)).any(0)
    return array[:, : max(1, int(filled.sum()))]
