"""Is a new batch of data like the one before? Statistics of a baseline, and tests that
compare a batch with them.

What the tests assume: the examples of both are independent draws, and none of them was
used to train or fit. Then an alarm goes off by chance in at most the stated share of
comparisons of a baseline with a batch, whatever the classifier. Many batches compared
with one baseline share its luck: make it large. An alarm does not say why, nor that
answers are worse.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from laplacebridge import _blocks, scores
from laplacebridge._files import atomic_write
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.prediction import Prediction

FORMAT = "laplacebridge baseline"
VERSION = 1
# Scores that are kept of a baseline; more make tests no sharper than anybody needs.
KEPT = 5000
# 1 − largest probability above which an example counts as deferred.
DEFER_ABOVE = 0.2
ALARM_RATE = 0.01
# Draws of the test for predicted classes, at the usual rate and at most.
DRAWS, MOST_DRAWS = 1999, 99_999


@dataclass(frozen=True)
class Baseline:
    """Statistics of the predictions for data as they should be.

    Attributes:
        num_examples: How many there were.
        score_name: The score of unusual inputs: ``ood_score``, or
            ``mutual_information`` of a classifier that has none.
        scores: Of some of them, ascending.
        doubts: 1 − their largest probability, ascending.
        predicted: How many have each class as the most probable one.
        deferred: How many are above `defer_above`.
        defer_above: 1 − largest probability above which an example counts as deferred.

    Example:
        >>> from laplacebridge import Diagonal, LogitGaussian, predict
        >>> logits = 3 * torch.eye(4).repeat(25, 1)
        >>> prediction = predict(LogitGaussian(logits, Diagonal(torch.ones(100, 4))))
        >>> baseline = Baseline.of(prediction)
        >>> baseline.predicted, compare(baseline, prediction).is_alarm
        ((25, 25, 25, 25), False)
    """

    num_examples: int
    score_name: str
    scores: tuple[float, ...]
    doubts: tuple[float, ...]
    predicted: tuple[int, ...]
    deferred: int
    defer_above: float = DEFER_ABOVE

    @classmethod
    def of(cls, prediction: Prediction, *, defer_above: float = DEFER_ABOVE) -> "Baseline":
        """The statistics of some predictions.

        Args:
            prediction: For examples that were used for nothing else.
            defer_above: 1 − largest probability above which an example counts as
                deferred.

        Raises:
            ShapeError: If there are fewer than two.
        """
        if len(prediction) < 2:
            raise ShapeError(f"A baseline needs at least two examples; got {len(prediction)}.")
        name, score, msp = _scores(prediction)
        counts = torch.bincount(prediction.label.cpu(), minlength=prediction.num_classes)
        generator = np.random.default_rng(0)
        kept = generator.permutation(len(prediction))[:KEPT]
        return cls(
            num_examples=len(prediction),
            score_name=name,
            scores=tuple(np.sort(score[kept]).tolist()),
            doubts=tuple(np.sort(msp[kept]).tolist()),
            predicted=tuple(counts.tolist()),
            deferred=int((msp > defer_above).sum()),
            defer_above=defer_above,
        )

    def save(self, path: str | Path) -> None:
        """Writes it as JSON. It holds scores and counts, and no inputs.

        Args:
            path: Where to.
        """
        record = {"format": FORMAT, "version": VERSION, **asdict(self)}
        with atomic_write(Path(path)) as temporary:
            temporary.write_text(json.dumps(record) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "Baseline":
        """Reads what `save` wrote.

        Args:
            path: Where from.

        Raises:
            InputError: If it is no baseline, or one of a newer version.
        """
        try:
            record = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"{path} is no baseline: {error}.") from error
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise InputError(
                f"{path} is no baseline. Make one with `laplacebridge monitor CLASSIFIER DATA"
                " --save-baseline baseline.json`."
            )
        if record["version"] > VERSION:
            raise InputError(f"{path} was written by a newer version of the library. Update it.")
        try:
            fields: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in record.items()
                if name not in {"format", "version"}
            }
            return cls(**fields)
        except TypeError as error:
            raise InputError(f"{path} is damaged: {error}.") from error


class Finding(NamedTuple):
    """One comparison of a batch with the baseline.

    Attributes:
        name: What is compared.
        before: What it was in the baseline, for people.
        now: What it is in the batch.
        p_value: Chance of a difference as large, if nothing has changed.
        is_alarm: Whether that is too small, all tests considered.
    """

    name: str
    before: str
    now: str
    p_value: float
    is_alarm: bool


class Comparison(NamedTuple):
    """A batch beside the baseline.

    Attributes:
        num_examples: Of the batch.
        alarm_rate: Share of unchanged batches for which an alarm may go off.
        tests: The comparisons.
    """

    num_examples: int
    alarm_rate: float
    tests: tuple[Finding, ...]

    @property
    def is_alarm(self) -> bool:
        """Whether any test gives an alarm."""
        return any(test.is_alarm for test in self.tests)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "num_examples": self.num_examples,
            "alarm_rate": self.alarm_rate,
            "alarm": self.is_alarm,
            "tests": [test._asdict() for test in self.tests],
        }


def compare(
    baseline: Baseline, prediction: Prediction, *, alarm_rate: float = ALARM_RATE, seed: int = 0
) -> Comparison:
    """Compares a batch with a baseline: scores of unusual inputs, confidence, the share
    that is deferred, and predicted classes.

    Scores and confidence by the test of Kolmogorov and Smirnov, shares by Fisher's
    exact test, classes by χ² against random splits of both together. Each p-value holds
    for any classifier; by Holm's rule all together give a false alarm at most at the
    stated rate.

    Args:
        baseline: Of data as they should be.
        prediction: For the new batch.
        alarm_rate: Share of unchanged batches for which an alarm may go off.
        seed: Of the random splits.

    Raises:
        InputError: If the rate is not between 0 and 1, or the batch is of another
            classifier.
    """
    from scipy import stats

    if not 0 < alarm_rate < 1:
        raise InputError(f"`compare(alarm_rate)` needs a share between 0 and 1; got {alarm_rate}.")
    name, score, msp = _scores(prediction)
    if name != baseline.score_name or prediction.num_classes != len(baseline.predicted):
        raise InputError(
            f"The baseline is of {len(baseline.predicted)} classes and {baseline.score_name}; these"
            f" predictions have {prediction.num_classes} classes and {name}. Make a baseline with"
            " the same classifier."
        )
    deferred, number = int((msp > baseline.defer_above).sum()), len(prediction)
    counts = torch.bincount(prediction.label.cpu(), minlength=prediction.num_classes).numpy()
    before = np.array(baseline.predicted)
    table = [
        [deferred, number - deferred],
        [baseline.deferred, baseline.num_examples - baseline.deferred],
    ]
    moved = int((counts / number - before / baseline.num_examples).argmax())
    found: dict[str, tuple[str, str, float]] = {
        f"score of unusual inputs ({name})": (
            f"median {np.median(baseline.scores):.3g}",
            f"median {np.median(score):.3g}",
            float(stats.ks_2samp(score, baseline.scores).pvalue),
        ),
        "doubt (1 − largest probability)": (
            f"median {np.median(baseline.doubts):.3g}",
            f"median {np.median(msp):.3g}",
            float(stats.ks_2samp(msp, baseline.doubts).pvalue),
        ),
        f"share deferred (doubt above {baseline.defer_above:g})": (
            f"{baseline.deferred / baseline.num_examples:.1%}",
            f"{deferred / number:.1%}",
            float(stats.fisher_exact(table).pvalue),
        ),
        "predicted classes": (
            f"class {moved}: {before[moved] / baseline.num_examples:.1%}",
            f"class {moved}: {counts[moved] / number:.1%}",
            _classes_p_value(counts, before, alarm_rate, seed),
        ),
    }
    alarms = _holm({name: p_value for name, (_, _, p_value) in found.items()}, alarm_rate)
    tests = tuple(Finding(name, *parts, name in alarms) for name, parts in found.items())
    return Comparison(number, alarm_rate, tests)


def _scores(prediction: Prediction) -> tuple[str, np.ndarray, np.ndarray]:
    known = prediction.unusual is not None
    score = prediction.ood_score if known else prediction.epistemic
    name = "ood_score" if known else "mutual_information"
    msp = scores.msp(prediction)
    found = (each.detach().cpu().double().numpy() for each in (score, msp))
    return (name, *found)  # type: ignore[return-value]


def _classes_p_value(now: np.ndarray, before: np.ndarray, alarm_rate: float, seed: int) -> float:
    """χ² of two rows of counts, against random splits of both together.

    It is never below one in `MOST_DRAWS`: at stricter rates classes alone give no
    alarm.
    """
    together = now + before
    seen = together > 0
    together, number = together[seen], int(now.sum())
    expected = together * number / together.sum()
    draws = min(max(DRAWS, math.ceil(20 / alarm_rate)), MOST_DRAWS)
    generator = np.random.default_rng(seed)

    def distance(counts: np.ndarray) -> np.ndarray:
        return np.asarray(((counts - expected) ** 2 / expected).sum(-1))

    # ties count, and sums in another order must not break them
    found = distance(now[seen]) * (1 - 1e-9)
    block = max(1, _blocks.DRAWS_AT_ONCE // len(together))
    as_far = 0
    for start in range(0, draws, block):
        split = generator.multivariate_hypergeometric(
            together, number, size=min(block, draws - start), method="marginals"
        )
        as_far += int((distance(split) >= found).sum())
    return (1 + as_far) / (1 + draws)


def _holm(p_values: Mapping[str, float], alarm_rate: float) -> set[str]:
    """The tests that give an alarm, the smallest p-value first, until one does not."""
    alarms: set[str] = set()
    for place, (name, p_value) in enumerate(sorted(p_values.items(), key=lambda it: it[1])):
        if p_value > alarm_rate / (len(p_values) - place):
            break
        alarms.add(name)
    return alarms
