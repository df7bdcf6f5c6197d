"""A classifier of several labels at once behind an address: which labels apply to an
example, how probable each is, and whether the input is like what is known.
"""

from collections.abc import Collection, Sequence

import numpy as np
import torch
from torch import Tensor

from laplacebridge._checks import is_half
from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError
from laplacebridge.multi_label import LabelSets, MultiLabelClassifier, MultiLabelPrediction
from laplacebridge.selective import Action
from laplacebridge.serve.answers import ACTIONS, LEVEL, padded
from laplacebridge.serve.network import ServedNetwork
from laplacebridge.serve.tensors import FREE, TEXT, TensorSpec, texts

LABELS_ON_REQUEST = frozenset({"total", "aleatoric", "epistemic"})
USUALLY_UNUSUAL = 0.99


class ServedLabels(ServedNetwork):
    """A classifier of several labels at once.

    Every label is answered by itself, so that there is no set of classes and no rule
    for one answer: an example is deferred only if its input is unusual.

    Args:
        classifier: What ``fit(..., multi_label=True)`` gave.
        inputs: As of `ServedClassifier`.
        class_names: Names of the labels, if not those that it carries.
        sets: What `lb.multi_label.calibrate` gave: the labels that are open, of which
            neither yes nor no can be excluded, are then an output.
        threshold: How probable a label must be to apply; with `sets` they decide.
        unusual: Defer inputs that are more unusual than this share of held-out data; by
            default as the classifier carries, or 0.99.
        level: Of the intervals.

    Raises:
        InputError: As of `ServedClassifier`.

    Example:
        >>> from laplacebridge import fit
        >>> labels = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
        >>> classifier = fit(
        ...     torch.nn.Linear(4, 3),
        ...     [(torch.eye(4)[:2], labels)],
        ...     multi_label=True,
        ...     prior_precision=1.0,
        ...     progress=False,
        ... )
        >>> served = ServedLabels(classifier)
        >>> served.answer({"features": np.eye(4, dtype=np.float32)}, frozenset())["upper"].shape
        (4, 3)
    """

    def __init__(
        self,
        classifier: Classifier,
        inputs: Sequence[TensorSpec] | None = None,
        *,
        class_names: Sequence[str] = (),
        sets: LabelSets | None = None,
        threshold: float = 0.5,
        unusual: float | None = None,
        level: float = LEVEL,
    ) -> None:
        if not isinstance(classifier, MultiLabelClassifier):
            raise InputError(
                "`ServedLabels` needs a classifier of several labels at once, of"
                f" `lb.fit(..., multi_label=True)`; got {type(classifier).__name__}. Use"
                " `ServedClassifier`."
            )
        if not 0 <= threshold <= 1:
            raise InputError(
                f"`ServedLabels(threshold)` needs a probability; got {threshold}. 0.5 is usual."
            )
        require_names(class_names or classifier.class_names or ())
        carried = None if classifier.policy is None else classifier.policy.unusual_above
        self.sets, self.threshold = sets, threshold
        self.unusual = next(
            each for each in (unusual, carried, USUALLY_UNUSUAL) if each is not None
        )
        super().__init__(
            classifier, inputs, class_names=class_names, level=level, on_request=LABELS_ON_REQUEST
        )

    def _rows(self, made: MultiLabelPrediction) -> MultiLabelPrediction:
        prediction = made.to("cpu")
        return prediction.to(torch.float32) if is_half(prediction.rows.dtype) else prediction

    def _answers(
        self, prediction: MultiLabelPrediction, wanted: frozenset[str]
    ) -> dict[str, np.ndarray]:
        mean = prediction.mean
        lower, upper = prediction.interval(self.level)
        found: dict[str, np.ndarray] = {}
        if self.sets is None:
            applying = mean > self.threshold if self.threshold != 0.5 else prediction.applies
        else:
            applying, unclear = self.sets(prediction)
            found["open"] = _most_probable_first(unclear, mean)
        found["labels"] = _most_probable_first(applying, mean)
        if self.class_names:
            found["label_names"] = names_of_labels(self.class_names, found["labels"])
        values = {"probabilities": mean, "lower": lower, "upper": upper}
        values |= {name: getattr(prediction, name) for name in wanted & LABELS_ON_REQUEST}
        has_score, has_quantile = prediction.knows_unusual
        beyond = np.zeros(len(prediction), dtype=bool)
        if has_score:
            values["ood_score"] = prediction.ood_score
        if has_quantile:
            values["ood_quantile"] = prediction.ood_quantile
            beyond = (values["ood_quantile"] > self.unusual).numpy()
        found |= deferred(beyond)
        return found | {name: value.float().numpy() for name, value in values.items()}

    def _specs(self, names: Collection[str]) -> tuple[TensorSpec, ...]:
        return label_specs(names, self.classifier.num_classes, self.level)


def label_specs(
    names: Collection[str] | None, num_labels: int, level: float = LEVEL
) -> tuple[TensorSpec, ...]:
    """The outputs of a model of several labels, in the order in which they are given.

    Args:
        names: Which of them it can give; None for all.
        num_labels: K.
        level: Of the intervals.
    """
    one, all_labels = (FREE,), (FREE, num_labels)
    percent = f"{level:.0%}"
    known = (
        TensorSpec("labels", "INT64", (FREE, FREE), "the labels that apply", ragged=True),
        TensorSpec("label_names", TEXT, (FREE, FREE), "their names", ragged=True),
        TensorSpec("open", "INT64", (FREE, FREE), "labels that may apply or not", ragged=True),
        TensorSpec("probabilities", "FP32", all_labels, "that each label applies"),
        TensorSpec("lower", "FP32", all_labels, f"lower bounds of that, {percent}"),
        TensorSpec("upper", "FP32", all_labels, f"upper bounds of that, {percent}"),
        TensorSpec("ood_score", "FP32", one, "how unusual the input is"),
        TensorSpec("ood_quantile", "FP32", one, "the share of held-out data below that"),
        TensorSpec("decision", TEXT, one, "answer or defer"),
        TensorSpec("reason", TEXT, one, "why not answered: unusual"),
        TensorSpec("total", "FP32", all_labels, "uncertainty about each label in nats"),
        TensorSpec("aleatoric", "FP32", all_labels, "what more training data would not remove"),
        TensorSpec("epistemic", "FP32", all_labels, "uncertainty about the probabilities"),
    )
    return tuple(spec for spec in known if names is None or spec.name in names)


def require_names(names: Sequence[str]) -> None:
    """Refuses labels without a name, which rows that are filled up would hide.

    Args:
        names: Of the labels.

    Raises:
        InputError: If one is empty.
    """
    if "" in names:
        raise InputError(
            f"Label {list(names).index('')} has an empty name, which stands for no label in rows"
            " that are filled up. Give every label a name."
        )


def names_of_labels(names: Sequence[str], labels: np.ndarray) -> np.ndarray:
    """Names in place of labels; the empty one where a row is filled up.

    Args:
        names: Of all labels.
        labels: Rows that are filled up with −1.
    """
    return texts([*names, ""])[labels]  # -1 is the last


def deferred(beyond: np.ndarray) -> dict[str, np.ndarray]:
    """Decisions and their reasons: what is unusual is deferred.

    Args:
        beyond: Which examples are unusual.
    """
    return {
        "decision": ACTIONS[np.where(beyond, Action.DEFER, Action.ANSWER)],
        "reason": texts(["unusual" if each else "" for each in beyond.tolist()]),
    }


def _most_probable_first(mask: Tensor, mean: Tensor) -> np.ndarray:
    """Labels of a mask, as rows that are filled up with -1."""
    order = mean.sort(dim=-1, descending=True, stable=True).indices
    members = order[mask.gather(-1, order)]
    return padded(mask.sum(-1).numpy(), members.numpy())
