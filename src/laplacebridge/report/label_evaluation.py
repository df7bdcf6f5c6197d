"""What a report on several labels at once found: numbers, JSON and the page."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxtyping import Int
from torch import Tensor

from laplacebridge._extras import needs_extra
from laplacebridge._files import atomic_write
from laplacebridge.metrics import Interval
from laplacebridge.multi_label import MultiLabelPrediction
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
        auroc: Chance that an example to which it applies has the higher probability;
            None if it applies to all, or to none.
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
        >>> import torch
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
        """Every number, ready for JSON; one that is not finite is None, and
        ``not_finite`` says where it was.
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
        with needs_extra("report", "The page of a report"):
            from laplacebridge.report.page.labels import html  # only here: matplotlib takes long
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
