"""What files for production answer: the names, and which are usual."""

from collections.abc import Sequence

from laplacebridge.bridges.precision import MANY_CLASSES
from laplacebridge.errors import InputError
from laplacebridge.selective.policy import Policy

# Every answer that can be asked for, with the outputs that it gives: their type, and
# whether they have a number for each class.
ANSWERS: dict[str, dict[str, tuple[str, bool]]] = {
    "probabilities": {"probabilities": ("float32", True)},
    "interval": {"lower": ("float32", True), "upper": ("float32", True)},
    "top_interval": {"top_lower": ("float32", False), "top_upper": ("float32", False)},
    "label": {"label": ("int64", False)},
    "total": {"total": ("float32", False)},
    "epistemic": {"epistemic": ("float32", False)},
    "aleatoric": {"aleatoric": ("float32", False)},
    "ood_score": {"ood_score": ("float32", False)},
    "ood_quantile": {"ood_quantile": ("float32", False)},
    "set": {"set": ("bool", True)},
    "decision": {"decision": ("int64", False)},
    "log_concentration": {"log_concentration": ("float32", True)},
    "log_odds_variance": {"log_odds_variance": ("float32", True)},
}
# Of a classifier with several labels at once: a number for each label instead.
LABEL_ANSWERS: dict[str, dict[str, tuple[str, bool]]] = {
    "probabilities": {"probabilities": ("float32", True)},
    "interval": {"lower": ("float32", True), "upper": ("float32", True)},
    "applies": {"applies": ("bool", True)},
    "total": {"total": ("float32", True)},
    "epistemic": {"epistemic": ("float32", True)},
    "aleatoric": {"aleatoric": ("float32", True)},
    "ood_score": {"ood_score": ("float32", False)},
    "ood_quantile": {"ood_quantile": ("float32", False)},
}
USUAL_OF_LABELS = ("probabilities", "interval", "applies", "total", "epistemic", "aleatoric")
USUAL = ("probabilities", "interval", "total", "epistemic", "aleatoric")
# Intervals of thousands of classes take time and space, and hardly anybody reads them.
USUAL_OF_MANY = ("probabilities", "top_interval", "total", "epistemic", "aleatoric")


def usual_answers(policy: Policy | None, num_classes: int) -> tuple[str, ...]:
    """The answers of a file if nothing else is asked: those that everybody needs, and
    what rules allow.

    Args:
        policy: What is done with predictions.
        num_classes: K; from a thousand on, the interval is that of the top class.
    """
    found: tuple[str, ...] = USUAL_OF_MANY if num_classes >= MANY_CLASSES else USUAL
    if policy is not None and policy.sets is not None:
        found = (*found, "set")
    if policy is not None and policy.rule is not None:
        found = (*found, "decision")
    return found


def require_answers(outputs: Sequence[str], *, several_labels: bool) -> None:
    """Refuses answers that a file cannot give.

    Args:
        outputs: Names of answers.
        several_labels: Whether the classifier has several labels at once.

    Raises:
        InputError: If one is not known, or comes twice.
    """
    known = LABEL_ANSWERS if several_labels else ANSWERS
    for name in outputs:
        if name in known:
            continue
        if name in ANSWERS:
            raise InputError(
                f"{name!r} is of one class out of K; this classifier has several labels at once."
                f" Choose from {', '.join(known)}."
            )
        raise InputError(f"There is no answer {name!r}; choose from {', '.join(known)}.")
    if len(set(outputs)) < len(outputs):
        raise InputError(
            f"Outputs need names of their own; got {', '.join(outputs)}. Ask for each once."
        )
