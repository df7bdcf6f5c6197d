"""One file for production: the network, its posterior and what is asked of them."""

import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from laplacebridge._answers import USUAL_OF_LABELS, require_answers, usual_answers
from laplacebridge._checks import require_level
from laplacebridge._compiled_file import batch_of, write_compiled
from laplacebridge._files import atomic_write
from laplacebridge._provenance import versions
from laplacebridge.bridges import name_of
from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError
from laplacebridge.laplace.batch import LABEL_NAMES
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.multi_label.classifier import MultiLabelClassifier
from laplacebridge.selective import SelectiveRule
from laplacebridge.selective.policy import Policy
from laplacebridge.sets import CalibratedSets

_FEATURES, _LOGITS, _PREFIX = "lb_features", "logits", "lb_"
_OPSET = 18


def export(
    classifier: Classifier,
    path: str | os.PathLike[str],
    example: Any,  # noqa: ANN401
    *,
    outputs: Sequence[str] | None = None,
    sets: CalibratedSets | None = None,
    rule: SelectiveRule | None = None,
    level: float = 0.95,
    float16: bool = False,
) -> list[str]:
    """Writes one file with the network and everything that was asked for, for any
    number of examples: ``model.onnx``, which any ONNX runtime can run, or
    ``model.pt2``, compiled by AOTInductor, which torch runs from Python and C++ without
    this library.

    ONNX needs the extra ``onnx``, AOTInductor a C++ compiler. Rows that are not finite
    answer NaN, and are deferred.

    Args:
        classifier: A fitted classifier with a posterior of its head alone; what
            `Classifier.with_rule` has given it is written too.
        path: Where to write; ``model.onnx`` or ``model.pt2``.
        example: Inputs of the network: a tensor, a tuple of tensors, or a mapping of
            tensors by name, of a few examples. Their values do not matter; all
            dimensions but the first are those of the file.
        outputs: Which answers, names of `laplacebridge.onnx.ANSWERS`; by default
            probabilities, intervals (from a thousand classes on that of the most
            probable alone), the parts of uncertainty, and set and decision if there are
            rules for them. The network's logits are always there.
        sets: Calibrated sets, if not those of the classifier.
        rule: When to answer, if not that of the classifier.
        level: Of the intervals.
        float16: Store the posterior's arrays in half precision: a smaller file, whose
            answers agree to about 1e-3.

    Returns:
        Names of the outputs.

    Raises:
        InputError: If the classifier or what is asked cannot be written.

    Example:
        >>> export(classifier, "model.onnx", images[:1])  # doctest: +SKIP
        ['logits', 'lb_probabilities', 'lb_lower', 'lb_upper', 'lb_total', 'lb_epistemic', 'lb_aleatoric']
    """
    path = Path(path)
    if path.suffix not in {".onnx", ".pt2"}:
        raise InputError(f"`export` writes files that end in .onnx or .pt2; got {path.name!r}.")
    require_level("export(level)", level)
    policy = (classifier.policy or Policy()).updated(rule=rule, sets=sets)
    several = isinstance(classifier, MultiLabelClassifier)
    if several and (sets is not None or rule is not None):
        raise InputError(
            "`sets` and `rule` are of one class out of K; this classifier has several labels at"
            " once. Compare `lb_probabilities` with the thresholds of `lb.multi_label.calibrate`."
        )
    chosen = _chosen(outputs, policy, classifier, several)
    given, keywords = _as_example(classifier, example)
    if path.suffix == ".pt2":
        if float16:
            raise InputError("`float16` is for .onnx files; a .pt2 file keeps the types of torch.")
        return write_compiled(
            classifier,
            path,
            given,
            keywords=keywords,
            outputs=chosen,
            policy=policy,
            level=level,
            metadata=metadata(classifier, policy, chosen, level),
        )
    # imported here, because it needs the extra
    from laplacebridge.onnx import Wanted, append_answers

    model, inputs = _network_model(classifier, given, keywords)
    names = append_answers(
        model,
        classifier,
        features=_FEATURES,
        logits=_LOGITS,
        wanted=Wanted(chosen, level, float16, policy),
        inputs=inputs,
    )
    kept = [output for output in model.graph.output if output.name != _FEATURES]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    for key, text in metadata(classifier, policy, chosen, level).items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, text
    with atomic_write(path) as temporary:
        temporary.write_bytes(model.SerializeToString())
    return [_LOGITS, *names]


def metadata(
    classifier: Classifier, policy: Policy, outputs: Sequence[str], level: float
) -> dict[str, str]:
    """What a file says about its answers, as its metadata.

    Args:
        classifier: The classifier.
        policy: What is done with its predictions.
        outputs: The answers.
        level: Of the intervals.
    """
    held: dict[str, Any] = {
        "versions": versions(),
        "fingerprint": classifier.network.metadata()["fingerprint"],
        "posterior": type(classifier.posterior).__name__,
        "bridge": name_of(classifier.bridge) or "",
        "num_classes": classifier.num_classes,
        "multi_label": isinstance(classifier, MultiLabelClassifier),
        "outputs": list(outputs),
        "level": level,
        "actions": ["answer", "set", "defer"],
        "policy": json.loads(policy.to_text()),
        "promises": policy.promises(),
    }
    return {
        f"laplacebridge.{name}": value if isinstance(value, str) else json.dumps(value)
        for name, value in held.items()
    }


def _chosen(
    outputs: Sequence[str] | None, policy: Policy, classifier: Classifier, several: bool
) -> tuple[str, ...]:
    """The answers that were asked for, or the usual ones.

    Raises:
        InputError: If one is not known.
    """
    if outputs is None:
        return USUAL_OF_LABELS if several else usual_answers(policy, classifier.num_classes)
    chosen = tuple(name for name in outputs if name != _LOGITS)
    require_answers(chosen, several_labels=several)
    return chosen


def _as_example(
    classifier: Classifier,
    example: Any,  # noqa: ANN401
) -> tuple[tuple[Tensor, ...], tuple[str, ...]]:
    """Inputs for tracing, and their names if the network takes them by name.

    Raises:
        InputError: If the posterior covers more than the head, or inputs are no
            tensors.
    """
    if not isinstance(classifier.network, HeadNetwork):
        raise InputError(
            "`export` needs a posterior of the head alone; this one covers"
            f" {classifier.network.described()}, and runs the network backward for each"
            " prediction. Fit without `layers`."
        )
    keywords: tuple[str, ...] = ()
    if isinstance(example, Mapping):
        named = {key: value for key, value in example.items() if key not in LABEL_NAMES}
        keywords, given = tuple(named), tuple(named.values())
    else:
        given = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    for part in given:
        if not isinstance(part, Tensor) or not part.ndim:
            raise InputError(
                "`export(example)` needs tensors with an example in each row, as the network takes"
                f" them; got {type(part).__name__}. Give `images[:1]`."
            )
    # a batch of one would be taken for a constant
    return tuple(
        part if len(part) > 1 else part.repeat_interleave(2, 0) for part in given
    ), keywords


class _Parts(nn.Module):
    """A network that gives the features and logits of its head, a row for each
    prediction.
    """

    def __init__(self, network: HeadNetwork, keywords: tuple[str, ...]) -> None:
        super().__init__()
        self.network = network
        self.keywords = keywords

    def forward(self, *inputs: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        passed = self.network.run(batch_of(inputs, self.keywords))
        return passed.features, passed.logits


def _network_model(
    classifier: Classifier, given: tuple[Tensor, ...], keywords: tuple[str, ...]
) -> tuple[Any, list[str]]:
    """The network as ONNX, and which of its inputs can be checked row by row."""
    network = classifier.network
    assert isinstance(network, HeadNetwork)  # noqa: S101  (checked with the example)
    parts = _Parts(network, keywords)
    parts.training = False  # of this wrapper alone: `run` sees to the network's own
    with torch.no_grad():
        features, _ = parts(*given)
    names = ["input"] if len(given) == 1 else [f"input_{index}" for index in range(len(given))]
    names = list(keywords) or names
    _require_free_names(names)
    _require_known_types(network, given)
    batch = torch.export.Dim("batch")
    with _quiet_exporter():
        program = torch.onnx.export(
            parts,
            given,
            dynamo=True,
            verbose=False,
            opset_version=_OPSET,
            input_names=names,
            output_names=[_FEATURES, _LOGITS],
            dynamic_shapes=(tuple({0: batch} for _ in given),),
            external_data=False,
        )
    assert program is not None  # noqa: S101  (only without dynamo)
    model = program.model_proto
    if len(features) != len(given[0]):
        return model, []
    return model, [name for name, part in zip(names, given) if part.is_floating_point()]


def _require_free_names(names: Sequence[str]) -> None:
    """Refuses inputs with names that the file needs for its outputs.

    Raises:
        InputError: If there is one.
    """
    taken = [name for name in names if name == _LOGITS or name.startswith(_PREFIX)]
    if taken:
        raise InputError(
            f"The network takes an input '{taken[0]}', and a file has outputs called '{_LOGITS}'"
            f" and '{_PREFIX}…'. Give the input another name in `forward`, or export a module"
            " around the network that does."
        )


def _require_known_types(network: HeadNetwork, given: Sequence[Tensor]) -> None:
    """Refuses networks in a type that ONNX Runtime does not compute in.

    Raises:
        InputError: If it is bfloat16.
    """
    if any(each.dtype == torch.bfloat16 for each in (*network.parameters(), *given)):
        raise InputError(
            "The network computes in bfloat16, which ONNX Runtime does not have for every"
            " operator. Fit it in float32 and export that: `lb.fit(network.float(), ...)`."
        )


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Without what torch's exporter says about itself, such as packages that it could
    use.
    """
    logger = logging.getLogger("torch.onnx._internal.exporter")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logger.setLevel(level)
