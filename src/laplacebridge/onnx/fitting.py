"""`fit`: a Laplace approximation of the head of an ONNX model, and `write`: the model
with its uncertainty in one file.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from laplacebridge._answers import USUAL_OF_LABELS, usual_answers
from laplacebridge._checks import require_level
from laplacebridge._fit import fit as fit_head
from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError
from laplacebridge.laplace.batch_checks import require_loader
from laplacebridge.multi_label.classifier import MultiLabelClassifier
from laplacebridge.multi_label.prediction import MultiLabelPrediction
from laplacebridge.onnx.answer_graph import Wanted
from laplacebridge.onnx.batches import labels_as_classes, require_order, unpacked
from laplacebridge.onnx.feeds import feed_of, first_examples, num_examples
from laplacebridge.onnx.finding import find_in
from laplacebridge.onnx.head import Head
from laplacebridge.onnx.model import FileGraph
from laplacebridge.onnx.rows import Read, free_prefix, read_by
from laplacebridge.onnx.running import Runner
from laplacebridge.onnx.writing import needs_own_logits, require_extensible, write_with_answers
from laplacebridge.prediction import Prediction
from laplacebridge.selective import SelectiveRule
from laplacebridge.sets import CalibratedSets

CHECKED_EXAMPLES = 64  # of the first batch, by which a head and a written file are verified


class FittedModel:
    """An ONNX model with a Laplace approximation of its head.

    Attributes:
        head: The head that was found.
        classifier: The classifier of that head alone, which takes features.
    """

    def __init__(
        self, graph: FileGraph, head: Head, classifier: Classifier, check: Mapping[str, np.ndarray]
    ) -> None:
        self.head = head
        self.classifier = classifier
        self._graph = graph
        self._check = dict(check)
        self._own_logits = needs_own_logits(graph, head, check)
        self._reader = Reader(graph, head, own_logits=self._own_logits, sample=check)

    def predict(self, feed: Any) -> Prediction | MultiLabelPrediction:  # noqa: ANN401
        """Predictions, computed here; of time steps one after another.

        Args:
            feed: Inputs: a mapping by name, or an array or tensor if the model takes one.
        """
        features, logits = self._reader.read(feed_of(self._graph, feed))
        with torch.no_grad():
            return self.classifier.predict_features(features, logits)

    def with_rule(
        self,
        rule: SelectiveRule | None = None,
        *,
        sets: CalibratedSets | None = None,
        **choices: Any,  # noqa: ANN401
    ) -> "FittedModel":
        """The same with what is done with its predictions, for the answers ``set`` and
        ``decision`` of the files that `write` makes.

        Args:
            rule: Which predictions are answered, from `lb.selective.calibrate`.
            sets: Sets of classes, from `lb.sets.calibrate`.
            choices: ``max_set_size``, ``unusual_above``, ``class_names`` and
                ``preprocessing``, as of `Classifier.with_rule`.

        Example:
            >>> from laplacebridge import scores, selective
            >>> from laplacebridge.onnx.examples import small_model
            >>> path, inputs, labels = small_model()
            >>> fitted = fit(path, [(inputs, labels)], progress=False)
            >>> rule = selective.calibrate(scores.msp, fitted.predict(inputs), answer_share=0.9)
            >>> fitted.with_rule(rule).write(path + "-decides", ["label", "decision"])
            ['lb_label', 'lb_decision']
        """
        classifier = self.classifier.with_rule(rule, sets=sets, **choices)
        return FittedModel(self._graph, self.head, classifier, self._check)

    def write(
        self,
        path: str | os.PathLike[str],
        outputs: Sequence[str] | None = None,
        *,
        level: float = 0.95,
        float16: bool = False,
        class_names: Sequence[str] = (),
    ) -> list[str]:
        """Writes the model with its uncertainty as one ONNX file.

        Its nodes, weights, outputs and opset are as they were; answers are nodes and
        outputs behind them. Weights that the model keeps in files beside it stay in such
        files, which are copied if the new file is in another folder.

        Args:
            path: Where to write.
            outputs: Answers to give, of `laplacebridge.onnx.ANSWERS`; by default the
                usual ones (from a thousand classes on the interval of the most probable
                alone), and set and decision if there are rules for them (see
                `with_rule`). A runtime computes every output of a file, so choose what
                is needed.
            level: Of the intervals.
            float16: Whether to store the arrays that are added in half precision.
            class_names: Names of the classes, for the metadata; by default those of
                `with_rule`, or the labels that the file itself has.

        Returns:
            Names of the new outputs.

        Raises:
            InputError: If the classifier or what is asked cannot be written.
        """
        if outputs is None:
            several = isinstance(self.classifier, MultiLabelClassifier)
            usual = usual_answers(self.classifier.policy, self.classifier.num_classes)
            outputs = USUAL_OF_LABELS if several else usual
        require_level("write(level)", level)
        if Path(path).is_dir():
            raise InputError(f"{path} is a folder; give the path of a file, as `model.onnx`.")
        names = tuple(class_names or self.classifier.class_names or self.head.class_labels)
        if len(names) not in {0, self.classifier.num_classes}:
            raise InputError(
                f"`write(class_names)` needs a name for each of {self.classifier.num_classes}"
                f" classes; got {len(names)}."
            )
        return write_with_answers(
            self._graph,
            self.head,
            self.classifier,
            Path(path),
            check=self._check,
            wanted=Wanted(outputs, level, float16),
            class_names=tuple(map(str, names)),
            own_logits=self._own_logits,
        )

    def __repr__(self) -> str:
        return f"FittedModel({self.head.described()}; {self.classifier!r})"


class Reader:
    """Features and logits of a model's head, from what is fed to the model.

    Args:
        graph: The file.
        head: Its head.
        own_logits: Whether to leave the graph's logits alone.
        sample: A feed of examples that differ, by which a model of a fixed batch size
            tells where they lie; by default what is read first.
    """

    def __init__(
        self,
        graph: FileGraph,
        head: Head,
        *,
        own_logits: bool = False,
        sample: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self._graph, self._head = graph, head
        self._read: Read = read_by(graph, head, free_prefix(graph), own_logits=own_logits)
        self._names = [name for name in (self._read.features, self._read.logits) if name]
        self._runner = Runner(graph, names=self._names, extend=self._read.extension, sample=sample)

    def read(self, feed: Mapping[str, np.ndarray]) -> tuple[Tensor, Tensor | None]:
        """Features (N, D) and logits (N, K), or None where they follow from features.

        Args:
            feed: Every input.
        """
        features, logits = self.arrays(feed)
        features = features.reshape(-1, self._head.num_features)
        if logits is None:
            return features, None
        logits = logits.reshape(-1, len(self._head.weight))
        if logits.shape[1] == 1:  # one logit z is read as (−z/2, z/2), as everywhere
            logits = torch.cat([-logits / 2, logits / 2], -1)
        return features, logits

    def arrays(self, feed: Mapping[str, np.ndarray]) -> tuple[Tensor, Tensor | None]:
        """The same in the dimensions of the model, as time steps and examples.

        Args:
            feed: Every input.
        """
        if num_examples(self._graph, feed) == 0:  # which not every graph can run on
            return torch.zeros(0, self._head.num_features), None
        values = self._runner.run(feed, self._names)
        features, *logits = (torch.from_numpy(values[name]) for name in self._names)
        return features, logits[0] if logits else None


def fit(
    path: str | os.PathLike[str],
    batches: Iterable[Any],
    *,
    val: Iterable[Any] | None = None,
    output: str | None = None,
    **options: Any,  # noqa: ANN401
) -> FittedModel:
    """Fits a Laplace approximation to the head of an ONNX model, whoever made it.

    ONNX Runtime computes the features, one pass over the batches; the fit is that of
    `laplacebridge.fit`.

    Args:
        path: An `.onnx` file.
        batches: Training batches: (inputs, labels), where inputs are a mapping by name,
            or an array or tensor if the model takes one; or mappings of inputs with
            labels. Labels are classes counted from 0; where the file itself names its
            classes, those names.
        val: Batches with labels that the model was not trained on, by which temperature
            and width of the predictions are chosen.
        output: The output to cover, if several heads have outputs.
        options: As for `laplacebridge.fit`: ``curvature``, ``prior_precision``,
            ``bridge``, ``progress`` and others.

    Raises:
        HeadNotFoundError: If the model has no linear head, or several.
        InputTypeError: If something else than batches is given.
        InputError: If there are no batches.

    Example:
        >>> from laplacebridge.onnx.examples import small_model
        >>> path, inputs, labels = small_model()
        >>> fitted = fit(path, [(inputs, labels)], progress=False)
        >>> fitted.predict(inputs).mean.shape
        torch.Size([60, 3])
    """
    graph = FileGraph(path)
    if "val_loader" in options:
        raise InputError("`lb.onnx.fit` takes no `val_loader`; it is `val=` here.")
    for name, given in (("batches", batches), ("val", val)):
        if given is not None:
            require_loader(name, given, call="lb.onnx.fit")
    require_extensible(graph)
    iterator = iter(batches)
    first = next(iterator, None)
    if first is None:
        raise InputError("`lb.onnx.fit` needs at least one batch; there is none.")
    check = _runnable(graph, unpacked(graph, first)[0])
    head = find_in(graph, check, output)
    reader = Reader(graph, head, sample=check)
    classifier = fit_head(
        _linear(head),
        _as_features(graph, head, reader, chain([first], iterator)),
        val_loader=None if val is None else _as_features(graph, head, reader, val),
        **options,
    )
    return FittedModel(graph, head, classifier, check)


def _runnable(graph: FileGraph, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The first examples, or all where the model takes no fewer, whatever it declares."""
    few = first_examples(graph, feed, CHECKED_EXAMPLES)
    if num_examples(graph, few) in {0, num_examples(graph, feed)}:
        return few
    try:
        Runner(graph).run(few, list(graph.outputs))
    except InputError:
        return dict(feed)
    return few


def _linear(head: Head) -> nn.Linear:
    layer = nn.Linear(head.num_features, len(head.weight))
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(head.weight))
        layer.bias.copy_(torch.from_numpy(head.bias))
    return layer.requires_grad_(False)


def _as_features(
    graph: FileGraph, head: Head, reader: Reader, batches: Iterable[Any]
) -> Iterator[Any]:
    """Batches of features and labels."""
    for batch in batches:
        feed, labels = unpacked(graph, batch)
        features, _ = reader.arrays(feed)
        if labels is not None:
            require_order(head, features.shape[:-1], np.shape(labels))
            labels = labels_as_classes(head, labels)
        features = features.reshape(-1, head.num_features)
        yield features if labels is None else (features, labels)
