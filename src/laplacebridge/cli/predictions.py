"""Predictions of a batch as commands hand them on: what is known about each example, as records and as arrays."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import LaplaceBridgeError
from laplacebridge.laplace.fitting import IGNORED_LABEL
from laplacebridge.sets import ClassSets

DIGITS = 7  # of numbers in text; an .npz file holds all of them
SCORE_PREFIX = "score_"  # before the names of scores in an .npz file


class Interval(NamedTuple):
    """Between which numbers the probability of each predicted class lies."""

    low: Tensor
    high: Tensor

    @classmethod
    def of_the_best_class(cls, dirichlet: Dirichlet, level: float) -> "Interval":
        """The equal-tailed interval of the most probable class of each example.

        Args:
            dirichlet: The prediction.
            level: Mass inside.
        """
        wide = Dirichlet(dirichlet.log_concentration.double())
        return cls(*wide.marginal(wide.log_concentration.argmax(-1)).interval(level))


@dataclass(frozen=True, eq=False)
class Predictions:
    """What is known about a batch of examples.

    Attributes:
        dirichlet: The prediction.
        labels: Known labels, −100 where there is none; None if there are none at all.
        scores: Scores by name.
        interval: For the probability of the predicted class, if asked for.
        sets: Class sets, if asked for.
        class_names: Names of the classes, if known.
        example_names: Names of the examples, if they have any.
        first_row: How many examples came before.
    """

    dirichlet: Dirichlet
    labels: Tensor | None = None
    scores: Mapping[str, Tensor] = field(default_factory=dict)
    interval: Interval | None = None
    sets: ClassSets | None = None
    class_names: tuple[str, ...] = ()
    example_names: tuple[str, ...] = ()
    first_row: int = 0

    def records(self, *, top: int | None = None) -> Iterator[dict[str, Any]]:
        """One dictionary for each example, as in JSON lines; `top` and `set` hold names where they are known.

        Args:
            top: How many classes to name, the most probable first; all probabilities in order if not given.
        """
        wide = Dirichlet(self.dirichlet.log_concentration.double())
        means, totals, log_totals = wide.mean, wide.total.tolist(), wide.log_total.tolist()
        ranked = means.topk(min(top or 1, wide.num_classes))
        sets = None if self.sets is None else self.sets.to_lists()
        for row in range(len(wide)):
            record = self.beginning(row)
            if self.labels is not None:
                record["label"] = known(int(self.labels[row]))
            record["predicted"] = best = int(ranked.indices[row, 0])
            if self.class_names:
                record["predicted_name"] = self.class_names[best]
            if top is None:
                record["probabilities"] = [rounded(value) for value in means[row].tolist()]
            else:
                record["top"] = [self.named(index) for index in ranked.indices[row].tolist()]
                record["top_probabilities"] = [rounded(value) for value in ranked.values[row].tolist()]
            if self.interval is not None:
                low, high = (rounded(float(end[row])) for end in self.interval)
                record |= {"interval_low": low, "interval_high": high}
            record |= {"total": rounded(totals[row]), "log_total": rounded(log_totals[row])}
            record |= {name: rounded(float(score[row])) for name, score in self.scores.items()}
            if sets is not None:
                record["set"] = [self.named(index) for index in sets[row]]
            yield record

    def beginning(self, row: int) -> dict[str, Any]:
        """What the record of an example begins with: its place and, if it has one, its name.

        Args:
            row: Its place in this batch.
        """
        name = {"name": self.example_names[row]} if self.example_names else {}
        return {"row": self.first_row + row, **name}

    def named(self, index: int) -> int | str:
        """The name of a class, or its number if it has none.

        Args:
            index: The class.
        """
        return self.class_names[index] if self.class_names else index

    def with_class_names(self, class_names: tuple[str, ...]) -> "Predictions":
        """The same with other names of classes, if there are any.

        Args:
            class_names: The names.

        Raises:
            LaplaceBridgeError: If there are more or fewer than classes.
        """
        if not class_names:
            return self
        if len(class_names) != self.dirichlet.num_classes:
            raise LaplaceBridgeError(
                f"The predictions have {self.dirichlet.num_classes} classes; got {len(class_names)} names. Name each."
            )
        return replace(self, class_names=class_names)

    def arrays(self) -> dict[str, np.ndarray]:
        """What an npz file holds of these examples."""
        wide = Dirichlet(self.dirichlet.log_concentration.double())
        found = {
            "log_concentration": self.dirichlet.log_concentration,
            "probabilities": self.dirichlet.mean,
            "total": wide.total,  # infinite beyond 1e308; its logarithm, in the first entry, is not
            "predicted": self.dirichlet.log_concentration.argmax(-1),
            **{f"{SCORE_PREFIX}{name}": score for name, score in self.scores.items()},
        }
        if self.interval is not None:
            found |= {"interval_low": self.interval.low, "interval_high": self.interval.high}
        if self.labels is not None:
            found["labels"] = self.labels
        if self.sets is not None:
            found |= {"set_classes": self.sets.classes, "set_sizes": self.sets.size}
        arrays = {name: tensor.cpu().numpy() for name, tensor in found.items()}
        if self.example_names:
            arrays["names"] = np.array(self.example_names)
        return arrays


def known(label: int) -> int | None:
    """A label, or None for the number that stands for none.

    Args:
        label: A class, or −100.
    """
    return None if label == IGNORED_LABEL else label


def rounded(value: float) -> float | None:
    """A number with few enough digits for text; None if it is beyond the range, which JSON cannot say.

    Args:
        value: The number.
    """
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
