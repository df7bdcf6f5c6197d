"""What a classifier of several labels cannot use of what classifiers carry."""

from laplacebridge.errors import InputError
from laplacebridge.multi_label.classifier import MultiLabelClassifier


def require_no_rule(classifier: MultiLabelClassifier) -> None:
    """Refuses a rule or sets for one class out of several, which have no meaning for
    labels that apply or not, each by itself.

    Args:
        classifier: Of several labels at once.

    Raises:
        InputError: If it carries one.

    Example:
        >>> import torch
        >>> from laplacebridge import fit
        >>> batches = [(torch.eye(4)[:2], torch.tensor([[1.0, 0.0], [0.0, 1.0]]))]
        >>> options = {"multi_label": True, "prior_precision": 1.0, "progress": False}
        >>> require_no_rule(fit(torch.nn.Linear(4, 2), batches, **options))
    """
    policy = classifier.policy
    if policy is not None and (policy.rule is not None or policy.sets is not None):
        raise InputError(
            "This classifier is of several labels at once and carries a rule or sets for one class"
            " out of several, which say nothing about labels. Fit it again, or load it and carry"
            " only names and `unusual_above`; `lb.multi_label.calibrate` gives sets of labels."
        )
