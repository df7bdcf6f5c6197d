"""An ONNX file with answers of this library behind an address: ONNX Runtime computes
them, and they get the names that every other model has here.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from laplacebridge._answers import ANSWERS, LABEL_ANSWERS
from laplacebridge.errors import InputError
from laplacebridge.onnx.feeds import described_inputs, dimensions
from laplacebridge.onnx.model import FileGraph
from laplacebridge.onnx.running import Runner
from laplacebridge.serve.answers import ACTIONS, LEVEL, ON_REQUEST, TOP, answer_specs, padded
from laplacebridge.serve.labels import (
    LABELS_ON_REQUEST,
    USUALLY_UNUSUAL,
    deferred,
    label_specs,
    names_of_labels,
    require_names,
)
from laplacebridge.serve.served import Served
from laplacebridge.serve.tensors import FREE, NUMBERS, TensorSpec, texts

_METADATA = "laplacebridge."
_DATATYPES = {dtype: name for name, dtype in NUMBERS.items()}
_SERVED_NAMES = frozenset(spec.name for spec in (*answer_specs(None, 2), *label_specs(None, 2)))


def _by_class(answers: Mapping[str, Mapping[str, tuple[str, bool]]]) -> dict[str, bool]:
    """Outputs of answers in a file, and whether they have a number for each class."""
    return {name: each for outputs in answers.values() for name, (_, each) in outputs.items()}


_OF_CLASSES, _OF_LABELS = _by_class(ANSWERS), _by_class(LABEL_ANSWERS)


class ServedOnnx(Served):
    """A file that `lb.export` or `lb.onnx.fit(…).write` wrote, run by ONNX Runtime.

    What it answers follows from the outputs that the file has: without `set` and
    `decision` there are none here. Inputs, intervals, names of classes and rules are
    the file's own. Other outputs, such as `logits`, are given on request. A file of
    several labels at once answers as `ServedLabels` does; it defers unusual inputs if it
    has `ood_quantile`, and otherwise decides nothing.

    Args:
        path: The `.onnx` file.
        class_names: Names of the classes, if not those in the file.
        threads: Of ONNX Runtime; 0 for its own choice.

    Raises:
        InputError: If the file has no answers of this library, or not one for each
            example.
    """

    platform = "laplacebridge_onnxruntime"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        class_names: Sequence[str] = (),
        threads: int = 0,
    ) -> None:
        graph = FileGraph(path)
        self.path = Path(path)
        about = {entry.key: entry.value for entry in graph.model.metadata_props}
        self._several = about.get(f"{_METADATA}multi_label") == "true"
        self._by_class = _OF_LABELS if self._several else _OF_CLASSES
        self._answers = _answers_of(graph, self._by_class)
        if not self._answers:
            raise InputError(
                f"{path} has no answers of this library among its outputs"
                f" {', '.join(graph.outputs)}. Add them: `laplacebridge fit {self.path.name}"
                " train.npz -o with_answers.onnx`."
            )
        # what the network gives beside: a file's own output may have the name of an answer
        self._others = {
            f"network_{name}" if name in _SERVED_NAMES else name: name
            for name in graph.outputs
            if name not in set(self._answers.values())
        }
        self._runner = Runner(graph, threads=threads)
        self.inputs = tuple(_input_spec(graph, name) for name in graph.inputs)
        self.level = float(about.get(f"{_METADATA}level", LEVEL))
        example = {spec.name: spec.example(rows=2) for spec in self.inputs}
        values, beside = self._run(example)
        self._require_one_row(values)
        policy = json.loads(about.get(f"{_METADATA}policy", "{}"))
        carried = policy.get("unusual_above")
        self._unusual = USUALLY_UNUSUAL if carried is None else carried
        self.class_names = tuple(class_names) or _names_in(about, policy)
        if self._several:
            require_names(self.class_names)
        num_classes = next(
            (len(array[0]) for name, array in values.items() if self._by_class[name]),
            len(self.class_names),
        )
        self.require_names_of(num_classes, str(path))
        beside = {name: array for name, array in beside.items() if _is_of_two_rows(array)}
        self._others = {name: self._others[name] for name in beside}
        others = [
            TensorSpec(name, _DATATYPES[array.dtype], (FREE, *array.shape[1:]), "of the network")
            for name, array in beside.items()
        ]
        on_request = LABELS_ON_REQUEST if self._several else ON_REQUEST
        given = self._derived(values, on_request)
        specs = label_specs if self._several else answer_specs
        self.outputs = (*specs(given.keys(), num_classes, self.level), *others)
        self.default_outputs = tuple(
            spec.name
            for spec in self.outputs
            if spec.name not in on_request and spec.name not in self._others
        ) or tuple(spec.name for spec in self.outputs if spec.name not in self._others)

    def answer(
        self, inputs: Mapping[str, np.ndarray], wanted: frozenset[str]
    ) -> dict[str, np.ndarray]:
        """Answers for some examples.

        Args:
            inputs: Arrays by name.
            wanted: Names of outputs.

        Raises:
            InputError: If these inputs lead the network beyond numbers.
        """
        values, others = self._run(inputs)
        for name, array in values.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise InputError(
                    f"The network gives numbers that are not finite for these inputs: '{name}' has"
                    " some. Inputs like those it was trained with have answers."
                )
        return {**self._derived(values, wanted), **others}

    def _run(
        self, inputs: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Answers by name, and what else the file gives."""
        values = self._runner.run(inputs, [*self._answers.values(), *self._others.values()])
        answers = {name: values[stored] for name, stored in self._answers.items()}
        return answers, {name: values[stored] for name, stored in self._others.items()}

    def _require_one_row(self, values: Mapping[str, np.ndarray]) -> None:
        for name in self._answers:
            rank = 2 if self._by_class[name] else 1
            if values[name].shape[0] != 2 or values[name].ndim != rank:
                raise InputError(
                    f"The server needs one prediction for each example; {self.path} gives"
                    f" '{name}' of shape {values[name].shape} for two, as for time steps."
                )

    def _derived(
        self, values: Mapping[str, np.ndarray], wanted: frozenset[str]
    ) -> dict[str, np.ndarray]:
        """Answers by the names of a server."""
        return self._of_labels(values) if self._several else self._of_classes(values, wanted)

    def _of_labels(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = dict(values)
        means, applies = values.get("probabilities"), found.pop("applies", None)
        if applies is None and means is not None:
            applies = means > 0.5
        if applies is not None:
            found["labels"] = _members(applies, means)
            if self.class_names:
                found["label_names"] = names_of_labels(self.class_names, found["labels"])
        if "ood_quantile" in values:
            found |= deferred(values["ood_quantile"] > self._unusual)
        return found

    def _of_classes(
        self, values: Mapping[str, np.ndarray], wanted: frozenset[str]
    ) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        means = values.get("probabilities")
        label = values.get("label")
        if label is None and means is not None:
            label = means.argmax(-1)
        if label is not None:
            found["label"] = label.astype(np.int64)
            if self.class_names:
                found["label_name"] = texts([self.class_names[index] for index in label.tolist()])
        rows = np.arange(0 if label is None else len(label))
        if means is not None:
            found |= {"probability": means[rows, label], "probabilities": means}
            if wanted & {"top_labels", "top_probabilities"}:
                top = np.argsort(-means, -1, kind="stable")[:, :TOP]
                found["top_labels"] = top
                found["top_probabilities"] = np.take_along_axis(means, top, -1)
        if "top_lower" in values:
            found["interval"] = np.stack([values["top_lower"], values["top_upper"]], -1)
        if "lower" in values:
            found |= {"lower": values["lower"], "upper": values["upper"]}
            if label is not None and "interval" not in found:
                bounds = [values[name][rows, label] for name in ("lower", "upper")]
                found["interval"] = np.stack(bounds, -1)
        if "set" in values:
            found["set"] = _members(values["set"], means)
        if "decision" in values:
            found["decision"] = ACTIONS[values["decision"]]
        kept = ("ood_score", "ood_quantile", "total", "aleatoric", "epistemic")
        return found | {name: values[name] for name in kept if name in values}


def _is_of_two_rows(array: Any) -> bool:  # noqa: ANN401
    """Whether an output of the network has numbers, and a row for each of two examples."""
    return (
        isinstance(array, np.ndarray)
        and array.dtype in _DATATYPES
        and array.ndim > 0
        and len(array) == 2
    )


def _answers_of(graph: FileGraph, known: Mapping[str, bool]) -> dict[str, str]:
    """The names of answers that a file has, and of its outputs for them."""
    found = {}
    for output in graph.outputs:
        match = re.fullmatch(r"lb\d*_(.*)", output)
        if match and match[1] in known:
            found[match[1]] = output
    return found


def _names_in(about: Mapping[str, str], policy: Mapping[str, Any]) -> tuple[str, ...]:
    names = policy.get("class_names") or json.loads(about.get(f"{_METADATA}classes", "[]"))
    return tuple(map(str, names))


def _input_spec(graph: FileGraph, name: str) -> TensorSpec:
    """What one input of a file takes.

    Raises:
        InputError: If that cannot be said in a request.
    """
    value = graph.inputs[name]
    sizes, kind = dimensions(value), value.type.tensor_type.elem_type
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind)) if kind else None
    if not sizes or dtype not in _DATATYPES:
        raise InputError(
            f"A server needs inputs of numbers with examples first; {graph.path} takes"
            f" {described_inputs(graph)}."
        )
    return TensorSpec(name, _DATATYPES[dtype], (FREE, *(size or FREE for size in sizes[1:])))


def _members(mask: np.ndarray, means: np.ndarray | None) -> np.ndarray:
    """Classes of sets that are given as a mask, most probable first if that is known."""
    order = np.argsort(-means, -1, kind="stable") if means is not None else None
    if order is None:
        return padded(mask.sum(-1), mask.nonzero()[1])
    ranked = np.take_along_axis(mask, order, -1)
    return padded(mask.sum(-1), order[ranked])
