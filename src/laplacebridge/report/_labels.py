"""A report on several labels at once: each judged by itself, and unusual inputs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm import tqdm

from laplacebridge import metrics
from laplacebridge._files import atomic_write
from laplacebridge._provenance import versions
from laplacebridge.errors import InputError, LaplaceBridgeError
from laplacebridge.laplace.array_batches import tensors_for
from laplacebridge.laplace.batch import unpack_batch
from laplacebridge.metrics import Interval
from laplacebridge.multi_label import MultiLabelClassifier, MultiLabelPrediction, calibrate
from laplacebridge.multi_label.fitting import multi_hot_labels
from laplacebridge.report._findings import identity as identified
from laplacebridge.report._findings.halves import Halves, share
from laplacebridge.report._findings.intervals import check_intervals
from laplacebridge.report._plain import class_names_of
from laplacebridge.report.evaluation import json_ready
from laplacebridge.report.table import percent


@dataclass(frozen=True)
class LabelRow:
    """What was found for one label.

    Attributes:
        name: Of the label.
        applies: How often it applies.
        accuracy: How often the more probable answer is right.
        nll: Negative log-likelihood, in nats.
        brier: Squared distance of the probabilities of no and yes, from 0 to 2.
        ece: Calibration error of the more probable answer.
        auroc: Chance that an example to which it applies has the higher probability; None
            if it applies to all, or to none.
        agreeing: In how many groups of predictions labels bear the 95 % intervals out.
        groups: How many groups there are.
        coverage: How often what remains after calibration holds the truth.
        open: How often both yes and no remain.

    Example:
        >>> import torch
        >>> from laplacebridge import fit, report
        >>> head = torch.nn.Linear(2, 2)
        >>> _ = head.weight.data.copy_(4 * torch.eye(2)), head.bias.data.zero_()
        >>> inputs = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
        >>> data = [(inputs.repeat(10, 1), (inputs > 0).float().repeat(10, 1))]
        >>> options = {"prior_precision": 1.0, "progress": False}
        >>> classifier = fit(head, data, multi_label=True, **options)
        >>> row = report.evaluate(classifier, data, progress=False).rows[0]
        >>> row.name, row.accuracy.estimate
        ('0', 1.0)
    """

    name: str
    applies: Interval
    accuracy: Interval
    nll: float
    brier: float
    ece: float
    auroc: float | None
    agreeing: int
    groups: int
    coverage: Interval
    open: Interval


@dataclass(frozen=True, eq=False)
class LabelEvaluation:
    """Everything that a report on several labels at once shows.

    Attributes:
        title: Report title.
        rows: One for each label.
        all_right: How often the more probable answers of all labels are right.
        asked: The coverage that sets were calibrated for.
        false_alarms: Share of test inputs above the alarm; None without held-out data.
        noticed: Share of unusual inputs above it, by kind.
        alarm: Share of held-out inputs that an alarm is above.
        prediction: For the test examples.
        labels: Ones and zeros.
        card: What the owner states.
        identity: Who, what and when.

    Example:
        >>> from laplacebridge import fit, report
        >>> inputs = torch.linspace(-2, 2, 60).unsqueeze(-1)
        >>> data = [(inputs, torch.cat([inputs > 0, inputs < 1], -1).float())]
        >>> head = torch.nn.Linear(1, 2)
        >>> _ = (
        ...     head.weight.data.copy_(torch.tensor([[4.0], [-4.0]])),
        ...     head.bias.data.copy_(torch.tensor([0.0, 4.0])),
        ... )
        >>> classifier = fit(head, data, multi_label=True, prior_precision=1.0, progress=False)
        >>> found = report.evaluate(classifier, data, progress=False)  # on other data in practice
        >>> [row.accuracy.estimate for row in found.rows]
        [1.0, 1.0]
    """

    title: str
    rows: tuple[LabelRow, ...]
    all_right: Interval
    asked: float
    false_alarms: Interval | None
    noticed: Mapping[str, Interval]
    alarm: float
    prediction: MultiLabelPrediction
    labels: Int[Tensor, "N K"]
    card: Mapping[str, str]
    identity: Mapping[str, str]

    @property
    def headline(self) -> str:
        """What was found, in a few plain sentences."""
        open_share = sum(row.open.estimate for row in self.rows) / len(self.rows)
        kept = sum(row.coverage.high >= self.asked for row in self.rows)
        worst = max(self.rows, key=lambda row: row.ece)
        words = (
            f"Asked to be right about each label in {percent(self.asked, 0)} of cases, it leaves"
            f" {percent(open_share)} of the questions open, and keeps to it for {kept} of"
            f" {len(self.rows)} labels. All labels of an example are right in"
            f" {percent(self.all_right.estimate)}. The largest calibration error is that of"
            f" “{worst.name}”, {worst.ece:.3f}."
        )
        if self.false_alarms is None:
            return (
                f"{words} It was fitted without held-out data, so that unusual inputs raise no"
                " alarm."
            )
        words += f" {percent(self.false_alarms.estimate)} of ordinary inputs raise a false alarm"
        if not self.noticed:
            return f"{words}; it was not tested whether unusual ones are noticed."
        told = ", ".join(
            f"{percent(each.estimate, 0)} of “{kind}”" for kind, each in self.noticed.items()
        )
        return f"{words}; noticed are {told}."

    def to_dict(self) -> dict[str, Any]:
        """Every number, ready for JSON; one that is not finite is None, and ``not_finite``
        says where it was.
        """
        found = {
            "multi_label": True,
            "title": self.title,
            "headline": self.headline,
            "asked": self.asked,
            "alarm": self.alarm,
            "all_right": vars(self.all_right),
            "false_alarms": None if self.false_alarms is None else vars(self.false_alarms),
            "noticed": {kind: vars(each) for kind, each in self.noticed.items()},
            "labels": [
                {
                    name: vars(value) if isinstance(value, Interval) else value
                    for name, value in vars(row).items()
                }
                for row in self.rows
            ],
            "card": dict(self.card),
            "identity": dict(self.identity),
        }
        not_finite: list[str] = []
        return {**json_ready(found, "", not_finite), "not_finite": not_finite}

    def to_html(self) -> str:
        """The report as one page that loads nothing from elsewhere.

        Raises:
            LaplaceBridgeError: If a package is missing that draws plots.
        """
        try:
            from laplacebridge.report.page.labels import html  # only here: matplotlib takes long
        except ModuleNotFoundError as error:
            raise LaplaceBridgeError(
                f"The page of a report needs {error.name}, which is not installed. Install it with "
                "`pip install 'laplacebridge[report]'`."
            ) from error
        return html(self)

    def save(self, path: str | Path) -> Path:
        """Writes the page, whole or not at all.

        Args:
            path: Where to; one that ends in ``.json`` gets the numbers alone.
        """
        is_json = Path(path).suffix.lower() == ".json"
        text = json.dumps(self.to_dict(), indent=1) + "\n" if is_json else self.to_html()
        with atomic_write(Path(path)) as temporary:
            temporary.write_text(text, encoding="utf-8")
        return Path(path)


def evaluate_labels(
    classifier: MultiLabelClassifier,
    test: Iterable[Any],
    *,
    ood: Mapping[str, Iterable[Any]],
    coverage: float | None,
    alarm_rate: float,
    class_names: Sequence[str] | np.ndarray | None,
    title: str,
    card: Mapping[str, str] | None,
    identity: Mapping[str, str] | None,
    seed: int,
    progress: bool,
) -> LabelEvaluation:
    """Judges each of several labels by itself.

    Args:
        classifier: Of several labels at once.
        test: A loader of labelled examples that nothing was fitted or chosen on.
        ood: Loaders of inputs unlike the training data, by name.
        coverage: How often the answers that remain for a label are to hold the truth; by
            default 0.9, or 0.95 or 0.99 where single answers are right more often.
        alarm_rate: The share of ordinary inputs that may be taken for unusual.
        class_names: A name for each label.
        title: Report title.
        card: What the owner states.
        identity: What else identifies data and model.
        seed: Of the halves.
        progress: Show progress bars.

    Raises:
        InputError: If labels are missing, or a name comes twice.
    """
    names = class_names_of(class_names, classifier.num_classes)
    if len(set(names)) < len(names):
        raise InputError(
            "`evaluate(class_names)` of several labels at once needs a name of its own for each;"
            f" got {', '.join(map(str, names))}."
        )
    prediction, labels = _run(classifier, test, "testing" if progress else "", needs_labels=True)
    assert labels is not None  # noqa: S101  (they were needed)
    halves = Halves.of(len(labels), seed)
    right = prediction.applies == labels.bool()
    asked = halves.coverage_for(float(right.double().mean())) if coverage is None else coverage
    held, is_open = _sets(prediction, labels, halves, asked)
    known = prediction.knows_unusual[1]
    noticed = {}
    for kind, loader in ood.items() if known else ():
        strange, _ = _run(classifier, loader, kind if progress else "", needs_labels=False)
        noticed[kind] = _above(strange, alarm_rate)
    return LabelEvaluation(
        title=title,
        rows=tuple(
            _row(name, prediction, labels, place, held, is_open) for place, name in enumerate(names)
        ),
        all_right=_share(right.all(-1)),
        asked=asked,
        false_alarms=_above(prediction, alarm_rate) if known else None,
        noticed=noticed,
        alarm=1 - alarm_rate,
        prediction=prediction,
        labels=labels,
        card=dict(card or {}),
        identity={
            "date": identified.today(),
            **(identity or {}),
            "classifier": repr(classifier),
            "prior and width": classifier.prior_choice.method,
            "test examples": str(len(labels)),
            "seed": str(seed),
            **versions(),
        },
    )


def _run(
    classifier: MultiLabelClassifier, loader: Iterable[Any], bar: str, *, needs_labels: bool
) -> tuple[MultiLabelPrediction, Tensor | None]:
    """Predictions for all examples that have labels, or for all.

    Raises:
        InputError: If there are none.
    """
    features, labels = [], []
    batches = tensors_for(classifier.network.model, loader)
    with torch.no_grad():
        for index, batch in enumerate(tqdm(batches, desc=bar, unit="batch", disable=not bar)):
            parts = unpack_batch(batch)
            rows: Any = classifier.features(*parts.arguments, **parts.keywords)
            if needs_labels:
                if parts.labels is None:
                    raise InputError(
                        f"A report needs labels; batch {index} (counted from 0) has inputs alone."
                    )
                given = multi_hot_labels(parts.labels, len(rows), classifier.num_classes, index)
                known = given[:, 0] >= 0  # a row of −100 has none
                rows = rows[known.to(rows.device)]
                labels.append((given[known] > 0.5).long().cpu())
            features.append(rows)
        if not features or not any(map(len, features)):
            raise InputError("A report needs at least two examples; the loader gave none.")
        prediction = classifier.predict_features(torch.cat(features)).to("cpu")
    return prediction, torch.cat(labels) if needs_labels else None


def _sets(
    prediction: MultiLabelPrediction, labels: Tensor, halves: Halves, coverage: float
) -> tuple[Tensor, Tensor]:
    """Whether what remains holds the truth, and is open: each half by the other."""
    held, is_open = torch.zeros_like(labels, dtype=torch.bool), torch.zeros_like(labels).bool()
    for chosen_by, decided in halves.crossed():
        sets = calibrate(prediction[chosen_by], labels[chosen_by], coverage=coverage)
        applies, remain = sets(prediction[decided])
        is_open[decided] = remain
        held[decided] = remain | (applies == labels[decided].bool())
    return held, is_open


def _row(
    name: str,
    prediction: MultiLabelPrediction,
    labels: Int[Tensor, "N K"],
    place: int,
    held: Tensor,
    is_open: Tensor,
) -> LabelRow:
    own, truth = prediction.label(place), labels[:, place]
    chance: Float[Tensor, " N"] = prediction.mean[:, place].double()
    checked = check_intervals(own, truth, None)
    both = bool(truth.any()) and not bool(truth.all())
    return LabelRow(
        name=name,
        applies=_share(truth.bool()),
        accuracy=_share(own.label == truth),
        nll=float(metrics.nll(own, truth)),
        brier=float(metrics.brier(own, truth)),
        ece=float(metrics.ece(own, truth)),
        auroc=float(metrics.auroc(chance[truth == 0], chance[truth == 1])) if both else None,
        agreeing=checked.num_agreeing,
        groups=len(checked.bins),
        coverage=_share(held[:, place]),
        open=_share(is_open[:, place]),
    )


def _share(mask: Tensor) -> Interval:
    found = share(int(mask.sum()), len(mask))
    assert found is not None  # noqa: S101  (there are examples)
    return found


def _above(prediction: MultiLabelPrediction, alarm_rate: float) -> Interval:
    return _share(prediction.ood_quantile > 1 - alarm_rate)
