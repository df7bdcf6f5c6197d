"""What a server answers, whatever computes it: names, types and what they mean."""

from collections.abc import Collection, Sequence

import numpy as np

from laplacebridge.selective import Action
from laplacebridge.serve.tensors import FREE, TEXT, TensorSpec, texts

LEVEL = 0.95
TOP = 5
ACTIONS = texts([action.name.lower() for action in Action])
# Numbers as text are most of the work of a server: these only if they are asked for.
ON_REQUEST = frozenset({
    "probabilities", "lower", "upper", "top_labels", "top_probabilities", "total", "aleatoric",
    "epistemic",
})  # fmt: skip


def answer_specs(
    names: Collection[str] | None, num_classes: int, level: float = LEVEL
) -> tuple[TensorSpec, ...]:
    """The outputs of a model, in the order in which they are given.

    Args:
        names: Which of them it can give; None for all.
        num_classes: K.
        level: Of the intervals.

    Example:
        >>> [spec.shape for spec in answer_specs({"label", "lower"}, 10)]
        [(-1,), (-1, 10)]
    """
    one, all_classes, top = (FREE,), (FREE, num_classes), (FREE, min(TOP, num_classes))
    percent = f"{level:.0%}"
    known = (
        TensorSpec("label", "INT64", one, "the most probable class"),
        TensorSpec("label_name", TEXT, one, "its name"),
        TensorSpec("probability", "FP32", one, "its probability"),
        TensorSpec("interval", "FP32", (FREE, 2), f"bounds of that, {percent}"),
        TensorSpec(
            "set", "INT64", (FREE, FREE), "classes that cannot be told from it", ragged=True
        ),
        TensorSpec("ood_score", "FP32", one, "how unusual the input is"),
        TensorSpec(
            "ood_quantile", "FP32", one, "the share of held-out data that it is more unusual than"
        ),
        TensorSpec("decision", TEXT, one, "answer, set or defer"),
        TensorSpec("reason", TEXT, one, "why not answered: ambiguous, unusual, both"),
        TensorSpec("top_labels", "INT64", top, "the most probable classes"),
        TensorSpec("top_probabilities", "FP32", top, "their probabilities"),
        TensorSpec("probabilities", "FP32", all_classes, "of all classes"),
        TensorSpec("lower", "FP32", all_classes, f"lower bounds of all, {percent}"),
        TensorSpec("upper", "FP32", all_classes, f"upper bounds of all, {percent}"),
        TensorSpec("total", "FP32", one, "uncertainty about the label in nats"),
        TensorSpec("aleatoric", "FP32", one, "what more training data would not remove"),
        TensorSpec("epistemic", "FP32", one, "uncertainty about the probabilities"),
    )
    return tuple(spec for spec in known if names is None or spec.name in names)


def padded(sizes: np.ndarray, classes: Sequence[int] | np.ndarray) -> np.ndarray:
    """Sets as rows that are filled up with −1.

    Args:
        sizes: Of the sets, shape (B,).
        classes: Members of all sets, one set after another.

    Example:
        >>> padded(np.array([2, 1]), [7, 3, 5]).tolist()
        [[7, 3], [5, -1]]
    """
    rows = np.full((len(sizes), max(1, int(sizes.max()))), -1, np.int64)
    rows[np.arange(rows.shape[1]) < sizes[:, None]] = classes
    return rows
