"""Sets and rules from what a classifier says about examples that it has not seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from laplacebridge import selective, sets
from laplacebridge.errors import InputError
from laplacebridge.scores import msp
from laplacebridge.selective import Decision
from laplacebridge.unusual import Unusual

Array = npt.NDArray[Any]
# Inputs more unusual than all but this share of held-out ones are deferred.
UNUSUAL = 0.99


@dataclass(frozen=True, eq=False)
class HeldOutAnswers:
    """Probabilities of held-out examples, and their classes by number.

    Attributes:
        probabilities: For each fold, what its model says about the examples held out
            from it; one entry for a model that has seen none of them.
        codes: Their classes by number.
    """

    probabilities: Sequence[Tensor]
    codes: Sequence[Tensor]

    def mask(self, own: Array, by_folds: Sequence[Array], coverage: float) -> Array:
        """Which classes are in the set of each new example.

        Args:
            own: What the classifier says about them.
            by_folds: What the models of the folds say; none if there are no folds.
            coverage: How often sets are to hold the right class.

        Raises:
            InputError: If nothing could be held out.
        """
        self._require_some("predict_set")
        rule = sets.LeastAmbiguous()
        if by_folds:
            calibrated = sets.cross_calibrate(
                rule, self.probabilities, self.codes, coverage=coverage, never_empty=True
            )
            return calibrated([torch.from_numpy(each) for each in by_folds]).mask().numpy()
        split = sets.calibrate(
            rule, self.probabilities[0], self.codes[0], coverage=coverage, never_empty=True
        )
        return split(torch.from_numpy(own)).mask().numpy()

    def answers(self, own: Array, risk: float) -> Array:
        """Which new examples may be answered, if at most this share of answers may be
        wrong.

        Args:
            own: What the classifier says about them.
            risk: The share.
        """
        self._require_some("decision(risk)")
        rule = selective.calibrate(
            msp, torch.cat(list(self.probabilities)), torch.cat(list(self.codes)), risk=risk
        )
        return rule.answers(torch.from_numpy(own)).numpy()

    def _require_some(self, call: str) -> None:
        if not self.probabilities:
            raise InputError(
                f"`{call}` needs held-out examples, and there were too few to hold some out: two of"
                " a class at least. Give more."
            )


def unusual_rows(known: Unusual | None, number: int) -> Array:
    """Which new examples are too unusual to say anything about.

    Args:
        known: How unusual each is; None if nobody knows.
        number: How many examples there are.
    """
    if known is None or not len(known.reference):
        return np.zeros(number, bool)
    held_out = len(known.reference)
    # of fewer than a hundred, an input can only be more unusual than all
    highest = min(UNUSUAL, (held_out - 0.5) / (held_out + 1))
    return (known.quantile() > highest).numpy()


def decisions(
    classes: Array, inside: Array, own: Array, answered: Array, answers: Array, unusual: Array
) -> list[Decision]:
    """What to do with each example, in the user's own classes.

    Args:
        classes: The classes.
        inside: Which of them are in the set of each example.
        own: Probabilities, which sets are ordered by.
        answered: Which examples may be answered.
        answers: The class of the answer, by number.
        unusual: Which are too unusual to say anything about.
    """
    ranked = np.argsort(-own, -1, kind="stable")
    found = []
    for row, members in enumerate(inside):
        reason = {(True, True): "both", (True, False): "ambiguous", (False, True): "unusual"}.get(
            (not answered[row], bool(unusual[row])), ""
        )
        named = [classes[place] for place in ranked[row] if members[place]]
        if not reason:
            found.append(Decision("answer", [classes[answers[row]]]))
        elif reason == "ambiguous" and 2 <= len(named) < len(classes):
            found.append(Decision("set", named, reason))
        else:
            found.append(Decision("defer", [], reason))
    return found
