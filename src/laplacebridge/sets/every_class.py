"""What calibration across folds and by class needs of a rule: from which threshold on
each class of each example is in its set.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from laplacebridge._checks import Labels
from laplacebridge._predictions import AnyPrediction, probabilities_of
from laplacebridge.sets.class_sets import ClassSets
from laplacebridge.sets.rules import SetRule

# Entries of a label and of the same class among all are computed alike, but added up in
# another order. As much is between them at most, and it may only add coverage.
ROUNDING = 1e-9


def strictness(rule: SetRule, prediction: AnyPrediction, labels: Labels) -> Float[Tensor, " B"]:
    """How far a rule has to be loosened for each label to be in its set: its entry,
    with the sign that makes small ones strict.

    Args:
        rule: The rule.
        prediction: What it chooses from.
        labels: One class for each example.
    """
    entries = rule.entry(prediction, labels).detach().double()
    return entries if rule.grows_with_threshold else -entries


def strictness_of_classes(rule: SetRule, prediction: AnyPrediction) -> Float[Tensor, "B K"]:
    """The same for every class of every example.

    A rule that draws numbers draws the same for all classes of an example.

    Args:
        rule: The rule.
        prediction: What it chooses from.
    """
    num_rows, num_classes = probabilities_of("sets(prediction)", prediction).shape
    generator = getattr(rule, "generator", None)
    before = None if generator is None else generator.get_state()
    columns = []
    for label in range(num_classes):
        if generator is not None:
            generator.set_state(before)
        labels = torch.full((num_rows,), label, dtype=torch.long)
        columns.append(strictness(rule, prediction, labels))
    return torch.stack(columns, -1)


def sets_of_mask(
    inside: Bool[Tensor, "B K"], probabilities: Float[Tensor, "B K"], *, never_empty: bool
) -> ClassSets:
    """Sets from which class is in which, in order of falling probability.

    Args:
        inside: Which class is in which set.
        probabilities: What they are ordered by.
        never_empty: Whether empty sets are given their most probable class.
    """
    if never_empty:
        best = probabilities.argmax(-1, keepdim=True)
        empty = ~inside.any(-1, keepdim=True)
        inside = inside.scatter(-1, best, inside.gather(-1, best) | empty)
    order = probabilities.sort(dim=-1, descending=True, stable=True).indices
    ranked = inside.gather(-1, order)
    return ClassSets(order[ranked], ranked.sum(-1), inside.shape[1])
