"""The report as one page of HTML that asks nothing of the network."""

import base64
import hashlib
import json
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

import torch
from jinja2 import Environment, FunctionLoader, StrictUndefined
from matplotlib.axes import Axes
from torch import Tensor

from laplacebridge import metrics, scores
from laplacebridge._arrays import to_tensors
from laplacebridge.prediction import Prediction
from laplacebridge.report import plots
from laplacebridge.report._findings.gallery import KINDS
from laplacebridge.report.evaluation import Evaluation
from laplacebridge.report.page.cards import Card, card
from laplacebridge.report.page.glossary import WORDS, Explained, word_id
from laplacebridge.report.plots._drawing import inline_svg
from laplacebridge.report.table import COLUMNS, Column, brief, percent
from laplacebridge.sets import ClassSets

# Classes of the table that are shown at once.
_SHOWN_CLASSES = 25

SECTIONS = {
    "methods": "Methods compared",
    "decisions": "Answer, set or person",
    "intervals": "Intervals",
    "sets": "Sets of classes",
    "uncertainty": "Two kinds of uncertainty",
    "unusual": "Unusual inputs",
    "gallery": "Examples to look at",
    "classes": "Classes and groups",
    "details": "Distance, time, prior",
    "words": "Words",
    "identity": "Identity",
}


def html(evaluation: Evaluation) -> str:
    """One page with every number and plot of a report, for a screen of any width and
    for paper.

    Nothing is loaded from elsewhere. The numbers are in it a second time, as JSON: see
    `Evaluation.to_dict`.
    """
    data = evaluation.to_dict()
    levels = {row.auroc.level for row in evaluation.rows if row.auroc is not None}
    script = resource("page.js")
    gallery: dict[str, list[Card]] = {}
    for specimen in evaluation.specimens:
        gallery.setdefault(specimen.kind, []).append(card(specimen, evaluation))
    return template("page.html").render(
        evaluation=evaluation,
        data=data,
        embedded=embedded(data),
        script=script,
        script_hash=_hash(script),
        style=resource("page.css"),
        columns=_columns(evaluation),
        sections=_sections(evaluation),
        words=WORDS,
        levels=" or ".join(f"{100 * level:g} %" for level in sorted(levels)),
        plots=_plots(evaluation),
        gallery=gallery,
        kinds=_Kinds(),
        explained=Explained(),
        word_id=word_id,
        classes=sorted(data["classes"], key=lambda row: (row["accuracy"], -row["count"])),
        shown_classes=_SHOWN_CLASSES,
        percent=percent,
        brief=brief,
    )


def _sections(evaluation: Evaluation) -> dict[str, str]:
    """The sections; of probabilities alone, those that need nothing else."""
    if evaluation.intervals is not None:
        return SECTIONS
    left_out = {"uncertainty", "unusual", "gallery", "details"}
    kept = {name: title for name, title in SECTIONS.items() if name not in left_out}
    return {**kept, "methods": "Figures", "intervals": "Reliability"}


def _columns(evaluation: Evaluation) -> dict[str, Column]:
    """The columns; of probabilities alone, those that have a number."""
    if evaluation.intervals is not None:
        return COLUMNS
    row = evaluation.own_row
    return {name: column for name, column in COLUMNS.items() if row.value(name) is not None}


class _Kinds(dict[str, str]):
    """What to look for in each kind of examples; nothing of kinds that are not known."""

    def __init__(self) -> None:
        super().__init__(KINDS)

    def __missing__(self, key: str) -> str:
        return ""


@cache
def template(name: str) -> Any:  # noqa: ANN401 - jinja's template
    """A page of this folder.

    Args:
        name: Its file.
    """
    environment = Environment(
        loader=FunctionLoader(resource),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def resource(name: str) -> str:
    """The text of a file of this folder.

    Args:
        name: Its name.
    """
    return resources.files("laplacebridge.report.page").joinpath(name).read_text("utf-8")


def _hash(script: str) -> str:
    """What allows this script, and no other, to run."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def embedded(data: dict[str, Any]) -> str:
    """JSON that may stand in a script element: nothing in it can end or open one."""
    return (
        json.dumps(data, allow_nan=False, indent=1).replace("<", "\\u003c").replace("&", "\\u0026")
    )


def _plots(evaluation: Evaluation) -> dict[str, str]:
    """Every plot by name; what has no data has no plot."""
    prediction, labels = to_tensors(evaluation.prediction), to_tensors(evaluation.labels)
    right = metrics.correct(prediction, labels)
    ranked_by = {"1 − largest probability": scores.msp}
    if isinstance(prediction, Prediction):
        ranked_by["epistemic"] = scores.mutual_information
    curves = {title: (score(prediction), right) for title, score in ranked_by.items()}
    bars = 0.6 + 0.42 * len(evaluation.rows)
    drawn: dict[str, tuple[Callable[[Axes], object], str, float]] = {
        "reliability": (
            lambda ax: plots.reliability_diagram(prediction, labels, ax=ax),
            (
                "Share of right answers and of examples in bins of confidence, beside the diagonal"
                " of perfect calibration."
            ),
            2.9,
        ),
        "risk-coverage": (
            lambda ax: plots.risk_coverage(curves, ax=ax),
            (
                "Error rate among answered examples against the share answered, one curve for each"
                " score."
            ),
            2.9,
        ),
        "set-sizes": (
            lambda ax: plots.set_size_histogram(*_sets(evaluation), ax=ax),
            (
                "Share of examples by the size of their set, split into sets that hold the label"
                " and sets that do not."
            ),
            2.9,
        ),
    }
    if (checked := evaluation.intervals) is not None:
        drawn |= {
            "intervals": (
                lambda ax: plots.interval_check(checked.bins, ax=ax),
                (
                    "How often predictions came true, beside the band of their mean intervals; the"
                    " table has the numbers."
                ),
                2.9,
            ),
            "uncertainty": (
                lambda ax: plots.uncertainty_parts(evaluation.uncertainty, ax=ax),
                (
                    "Mean aleatoric and epistemic uncertainty of each group, as bars; the table has the"
                    " numbers."
                ),
                0.9 + 0.5 * len(evaluation.uncertainty),
            ),
            "distances": (
                lambda ax: plots.distances(evaluation.rows, ax=ax),
                (
                    "Mean total variation between every method and sampling, as bars; the table has the"
                    " numbers."
                ),
                bars,
            ),
            "times": (
                lambda ax: plots.times(evaluation.rows, ax=ax),
                "Microseconds per example of every method, as bars; the table has the numbers.",
                bars,
            ),
            "scores": _score_histogram(evaluation),
        }
    if (curve := evaluation.prior) is not None:
        drawn["prior"] = (
            lambda ax: plots.prior_curve(curve, ax=ax),
            f"{curve.meaning} against the prior precision; {curve.chosen:.3g} was chosen.",
            2.9,
        )
    return {
        name: inline_svg(draw, name=f"plot-{place}", description=description, height=height)
        for place, (name, (draw, description, height)) in enumerate(drawn.items())
    }


def _sets(evaluation: Evaluation) -> tuple[ClassSets, Tensor]:
    """The sets of all examples, as a histogram takes them."""
    found = evaluation.sets
    # whether a set holds the label is all that is asked: class 0 stands for the label
    members = [
        [0 if held else 1, *range(2, size + 1)]
        for size, held in zip(found.sizes.tolist(), found.held.tolist())
    ]
    sets = ClassSets.from_lists(members, num_classes=max(map(max, members)) + 2)
    return sets, torch.zeros(len(sets), dtype=torch.long)


def _score_histogram(evaluation: Evaluation) -> tuple[Callable[[Axes], object], str, float]:
    """The recommended score of ordinary and of unusual inputs; what is highest is cut."""
    by_name = {row.name: row for row in evaluation.scores}
    row = by_name.get(evaluation.advice.score or "", by_name.get("ood_score", by_name.get("msp")))
    if row is None:
        own = evaluation.prediction
        assert isinstance(own, Prediction)  # noqa: S101  (probabilities have no histogram)
        name, usual, unlike = (
            ("msp", scores.msp(own), None)
            if own.unusual is None
            else ("ood_score", own.ood_score, None)
        )
    else:
        name, usual, unlike = row.name, row.scores, row.ood_scores
    highest = float(torch.quantile(usual.double(), 0.99)) * 3 + 1e-9
    if unlike is not None:
        highest = max(highest, float(torch.quantile(unlike.double(), 0.8)))
        unlike = unlike.clamp_max(highest)
    compared = "" if unlike is None else " and of unusual ones"
    return (
        lambda ax: plots.score_histograms(usual.clamp_max(highest), unlike, name=name, ax=ax),
        (
            f"Histogram of the score {name}, of ordinary inputs{compared}; the highest are together"
            " at the right end."
        ),
        2.9,
    )
