"""What classifiers behind an address have in common: their network is run, in the mode
that has the least overhead, and what it takes and gives is known by trying it.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError, LaplaceBridgeError
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.serve.answers import LEVEL, ON_REQUEST
from laplacebridge.serve.served import Served
from laplacebridge.serve.tensors import FREE, TensorSpec


class ServedNetwork(Served):
    """A classifier whose network runs in this process.

    Args:
        classifier: The classifier.
        inputs: What its network takes; several are given to it by name. By default, for
            a head alone, its features.
        class_names: Names of its classes, if not those that it carries.
        level: Of the intervals.
        on_request: Outputs that are given only to those who ask for them.

    Raises:
        InputError: If it is not said what the network takes, or the network cannot run
            it.
    """

    platform = "laplacebridge"
    level: float

    def __init__(
        self,
        classifier: Classifier,
        inputs: Sequence[TensorSpec] | None = None,
        *,
        class_names: Sequence[str] = (),
        level: float = LEVEL,
        on_request: frozenset[str] = ON_REQUEST,
    ) -> None:
        self.classifier, self.level = classifier, level
        self.class_names = tuple(class_names or classifier.class_names or ())
        self.inputs = tuple(inputs or _features_of(classifier))
        self.require_names_of(classifier.num_classes, "The classifier")
        example = {spec.name: spec.example(rows=2) for spec in self.inputs}
        with torch.no_grad():  # also what a classifier computes once, for all uses of it
            prediction = self._predict(example)
        if len(prediction) != 2:
            raise InputError(
                f"The server needs one prediction for each example; this network gives"
                f" {len(prediction)} for two, as for tokens or pixels."
            )
        everything = self._answers(prediction, on_request)  # first uses are slow
        self._without_gradients = self._fastest_mode(example)
        self.outputs = self._specs(everything.keys())
        self.default_outputs = tuple(
            spec.name for spec in self.outputs if spec.name not in on_request
        )

    def answer(
        self, inputs: Mapping[str, np.ndarray], wanted: frozenset[str]
    ) -> dict[str, np.ndarray]:
        """Answers for some examples; all but those on request are always among them.

        Args:
            inputs: Arrays by name.
            wanted: Names of outputs.
        """
        with self._without_gradients():
            return self._answers(self._predict(inputs), wanted)

    @abstractmethod
    def _answers(self, prediction: Any, wanted: frozenset[str]) -> dict[str, np.ndarray]:  # noqa: ANN401
        """Arrays by the names of outputs."""

    @abstractmethod
    def _specs(self, names: Collection[str]) -> tuple[TensorSpec, ...]:
        """The outputs of these names, in the order in which they are given."""

    @abstractmethod
    def _rows(self, made: Any) -> Any:  # noqa: ANN401
        """What the classifier answered, a row for each example, on the CPU, in a type
        that NumPy has.
        """

    def _fastest_mode(self, example: Mapping[str, np.ndarray]) -> Callable[[], Any]:
        """Inference mode makes the many small steps of a bridge a tenth shorter; a
        network or posterior that uses gradients by itself cannot run in it.
        """
        try:
            with torch.inference_mode():
                self._predict(example)
        except (RuntimeError, LaplaceBridgeError):
            return torch.no_grad
        return torch.inference_mode

    def _predict(self, inputs: Mapping[str, np.ndarray]) -> Any:  # noqa: ANN401
        weight = next(self.classifier.network.model.parameters())
        tensors = {}
        for name, array in inputs.items():
            # arrays over the bytes of a request cannot be written to, which torch warns of
            tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
            tensors[name] = tensor.to(
                weight.device, weight.dtype if tensor.is_floating_point() else tensor.dtype
            )
        alone = len(tensors) == 1
        made = self.classifier(*tensors.values()) if alone else self.classifier(**tensors)
        return self._rows(made)


def _features_of(classifier: Classifier) -> list[TensorSpec]:
    network = classifier.network
    if isinstance(network, HeadNetwork) and not network.head_name:
        return [TensorSpec("features", "FP32", (FREE, network.num_features))]
    raise InputError(
        "It is not known what the network takes: say it as NAME:DATATYPE:SIZE,SIZE,… such as"
        " image:FP32:3,32,32 (`--input` on the command line)."
    )
