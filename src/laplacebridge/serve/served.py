"""What a server answers with: a model with named inputs and outputs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from laplacebridge.errors import InputError
from laplacebridge.serve.tensors import TensorSpec


class Served(ABC):
    """A model behind an address. Its inputs were checked when it is called, and come
    from one thread.

    Attributes:
        platform: What it is made with, as its metadata say.
        inputs: What it takes.
        outputs: What it can give.
        default_outputs: What it gives unless it is asked for something else.
        level: Of the intervals, if it gives some.
        class_names: Names of the classes, if they have some.

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
    level: float | None = None
    class_names: tuple[str, ...] = ()

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
        """What the model takes and gives, as the protocol describes it, with the level
        of its intervals and the names of its classes.
        """
        about = {
            "platform": self.platform,
            "inputs": [spec.metadata() for spec in self.inputs],
            "outputs": [spec.metadata() for spec in self.outputs],
        }
        if self.level is None:
            return about
        names = {"class_names": list(self.class_names)} if self.class_names else {}
        return about | {"parameters": {"level": self.level, **names}}

    def require_names_of(self, num_classes: int, what: str) -> None:
        """Requires a name for each class, if classes have names.

        Args:
            num_classes: K.
            what: What has so many classes.

        Raises:
            InputError: If there are more or fewer.
        """
        if self.class_names and len(self.class_names) != num_classes:
            raise InputError(
                f"{what} has {num_classes} classes; got {len(self.class_names)} names."
            )

    def split(
        self, answers: Mapping[str, np.ndarray], sizes: Sequence[int]
    ) -> list[dict[str, np.ndarray]]:
        """The answers to each of several requests that were answered together; rows of
        unequal length are filled up to the longest of a request.

        Args:
            answers: To all examples.
            sizes: How many examples each request has, in order.
        """
        ragged = {spec.name for spec in self.outputs if spec.ragged} & answers.keys()
        # of all rows at once: a request has one row, and steps of NumPy cost the same for it
        lengths = {name: _lengths(answers[name]) for name in ragged}
        found, start = [], 0
        for size in sizes:
            end = start + size
            own = {name: array[start:end] for name, array in answers.items()}
            for name in ragged:
                own[name] = own[name][:, : max(1, *lengths[name][start:end])]
            found.append(own)
            start = end
        return found


def _lengths(array: np.ndarray) -> list[int]:
    """How many places of each row there are up to the last that is filled."""
    filled = array != ("" if array.dtype.kind == "O" else -1)
    return np.asarray((filled * np.arange(1, array.shape[1] + 1)).max(1)).tolist()
