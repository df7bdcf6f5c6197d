"""What files for production answer: the names, and which are usual."""

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
USUAL = ("probabilities", "interval", "total", "epistemic", "aleatoric")


def usual_answers(policy: Policy | None) -> tuple[str, ...]:
    """The answers of a file if nothing else is asked: those that everybody needs, and
    what rules allow.

    Args:
        policy: What is done with predictions.
    """
    found: tuple[str, ...] = USUAL
    if policy is not None and policy.sets is not None:
        found = (*found, "set")
    if policy is not None and policy.rule is not None:
        found = (*found, "decision")
    return found
