"""The report as one page of HTML that asks nothing of the network."""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources
from io import BytesIO
from typing import Any, NamedTuple

import torch
from jinja2 import Environment, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.image import imsave
from torch import Tensor

from laplacebridge import metrics, scores
from laplacebridge.report import plots
from laplacebridge.report._drawing import inline_svg, probability
from laplacebridge.report._evidence import KINDS, Specimen
from laplacebridge.report.evaluation import Evaluation
from laplacebridge.report.table import COLUMNS, brief, percent
from laplacebridge.sets import ClassSets

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
# As the glossary has them, in fewer words.
WORDS = {
    "Risk": "the error rate among answers",
    "Defer": "not to answer, but to hand the case to a person",
    "Interval": "bounds between which a probability lies, here with a chance of 95 %",
    "Set": "classes of which one is the right one, as often as was asked",
    "Coverage": "the share of sets that hold the label",
    "Unusual input": "one unlike the training data, whatever its label seems to be; also called"
    " out-of-distribution, OOD",
    "AUROC": "the chance that a score is higher for an unusual input than for an ordinary one",
    "Calibration": "whether probabilities come true as often as they say",
    "NLL": "negative log-likelihood of the labels; small where the right class was probable",
    "ECE": "expected calibration error, the gap between confidence and accuracy",
    "AURC": "mean error rate over all shares of answers, the surest first",
    "Held-out data": "labelled examples that the network was not trained on; they chose"
    " temperature and width",
    "Classifier": "the network with a distribution over its probabilities, as it was fitted",
    "False alarm": "an ordinary input that is taken for an unusual one",
    "Temperature scaling": "dividing what the network says by one number, chosen on held-out"
    " data, so that it is as sure as it should be on average",
    "Bridge": "a formula from the network's uncertainty to that of its probabilities",
    "Probit approximation": "a formula that makes probabilities less sure where the network"
    " is uncertain",
    "Monte Carlo samples": "random draws of what the network might have said",
    "Epistemic": "uncertainty about the probabilities themselves, which more data would remove",
    "Energy": "a score of unusual inputs that only asks how large the network's outputs are",
}
_TERM = re.compile(
    r"\b(" + "|".join(sorted(map(re.escape, WORDS), key=len, reverse=True)) + r")(s|red)?\b",
    re.IGNORECASE,
)
# Images larger than this are thinned out; those of less than half are shown with
# visible pixels.
_LARGEST_IMAGE = 128
# Classes of the table that are shown at once, and those of a card.
_SHOWN_CLASSES, _CARD_CLASSES = 25, 3


class _Chance(NamedTuple):
    """A bar of a card, its ends in percent of the width."""

    name: str
    text: str
    left: str
    width: str
    middle: str


@dataclass(frozen=True)
class _Card:
    """A specimen as the page shows it."""

    name: str
    answer: str
    label: str | None
    quantile: str
    image: str | None
    is_small: bool
    text: str
    cells: dict[str, float]
    chances: tuple[_Chance, ...]


def html(evaluation: Evaluation) -> str:
    """One page with every number and plot of a report, for a screen of any width and
    for paper.

    Nothing is loaded from elsewhere. The numbers are in it a second time, as JSON: see
    `Evaluation.to_dict`.
    """
    data = evaluation.to_dict()
    levels = {row.auroc.level for row in evaluation.rows if row.auroc is not None}
    script = _resource("page.js")
    gallery: dict[str, list[_Card]] = {}
    for specimen in evaluation.specimens:
        gallery.setdefault(specimen.kind, []).append(_card(specimen, evaluation))
    return _template().render(
        evaluation=evaluation,
        data=data,
        embedded=_embedded(data),
        script=script,
        script_hash=_hash(script),
        style=_resource("page.css"),
        columns=COLUMNS,
        sections=SECTIONS,
        words=WORDS,
        levels=" or ".join(f"{100 * level:g} %" for level in sorted(levels)),
        plots=_plots(evaluation),
        gallery=gallery,
        kinds=_Kinds(),
        explained=Explained(),
        word_id=_word_id,
        classes=sorted(data["classes"], key=lambda row: (row["accuracy"], -row["count"])),
        shown_classes=_SHOWN_CLASSES,
        percent=percent,
        brief=brief,
    )


def summary(evaluation: Evaluation) -> str:
    """The first screen alone, for notebooks: plain elements, no script."""
    figures = "".join(
        "<td style='text-align: left; vertical-align: top'>"
        f"<small>{escape(figure.title)}</small><br /><strong>{escape(figure.text)}</strong>"
        f"<br /><small>{escape(figure.light)}; {escape(figure.detail)}</small></td>"
        for figure in evaluation.figures
    )
    advice = "".join(f"<p>{escape(sentence)}</p>" for sentence in evaluation.advice.sentences)
    return (
        f"<div><h3>{escape(evaluation.title)}</h3><p><strong>{escape(evaluation.headline)}"
        f"</strong></p><table><tr>{figures}</tr></table>{advice}"
        f"<pre>{escape(evaluation.advice.code)}</pre></div>"
    )


class Explained:
    """Makes HTML of texts in which every word of the glossary leads there, where it stands
    first in all of them.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, text: str) -> str:
        """The HTML of a text."""
        # what HTML escapes has no word of the glossary in it
        return _TERM.sub(self._linked, escape(text))

    def _linked(self, found: re.Match[str]) -> str:
        word = next(each for each in WORDS if each.lower() == found[1].lower())
        if word in self._seen:
            return found[0]
        self._seen.add(word)
        meaning = escape(WORDS[word])
        return f'<a class="word" href="#{_word_id(word)}" title="{meaning}">{found[0]}</a>'


def _word_id(word: str) -> str:
    return "word-" + word.lower().replace(" ", "-")


class _Kinds(dict[str, str]):
    """What to look for in each kind of examples; nothing of kinds that are not known."""

    def __init__(self) -> None:
        super().__init__(KINDS)

    def __missing__(self, key: str) -> str:
        return ""


@cache
def _template() -> Any:  # noqa: ANN401 - jinja's template
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_resource("page.html"))


def _resource(name: str) -> str:
    return resources.files("laplacebridge.report").joinpath(name).read_text("utf-8")


def _hash(script: str) -> str:
    """What allows this script, and no other, to run."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _embedded(data: dict[str, Any]) -> str:
    """JSON that may stand in a script element: nothing in it can end or open one."""
    return (
        json.dumps(data, allow_nan=False, indent=1).replace("<", "\\u003c").replace("&", "\\u0026")
    )


def _plots(evaluation: Evaluation) -> dict[str, str]:
    """Every plot by name; what has no data has no plot."""
    prediction, labels = evaluation.prediction, evaluation.labels
    right = metrics.correct(prediction, labels)
    doubts = {"1 − largest probability": scores.msp, "epistemic": scores.mutual_information}
    curves = {title: (score(prediction), right) for title, score in doubts.items()}
    bars = 0.6 + 0.42 * len(evaluation.rows)
    drawn: dict[str, tuple[Callable[[Axes], object], str, float]] = {
        "reliability": (
            lambda ax: plots.reliability_diagram(prediction, labels, ax=ax),
            (
                "Share of right answers and of examples in bins of confidence, beside the diagonal of"
                " perfect calibration."
            ),
            2.9,
        ),
        "intervals": (
            lambda ax: plots.interval_check(evaluation.intervals.bins, ax=ax),
            (
                "How often predictions came true, beside the band of their mean intervals; the table"
                " has the numbers."
            ),
            2.9,
        ),
        "risk-coverage": (
            lambda ax: plots.risk_coverage(curves, ax=ax),
            (
                "Error rate among answered examples against the share answered, one curve for each of"
                " two scores."
            ),
            2.9,
        ),
        "set-sizes": (
            lambda ax: plots.set_size_histogram(*_sets(evaluation), ax=ax),
            (
                "Share of examples by the size of their set, split into sets that hold the label and"
                " sets that do not."
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
        name, usual, strange = (
            ("msp", scores.msp(own), None)
            if own.unusual is None
            else ("ood_score", own.ood_score, None)
        )
    else:
        name, usual, strange = row.name, row.scores, row.ood_scores
    highest = float(torch.quantile(usual.double(), 0.99)) * 3 + 1e-9
    if strange is not None:
        highest = max(highest, float(torch.quantile(strange.double(), 0.8)))
        strange = strange.clamp_max(highest)
    compared = "" if strange is None else " and of unusual ones"
    return (
        lambda ax: plots.score_histograms(usual.clamp_max(highest), strange, name=name, ax=ax),
        (
            f"Histogram of the score {name}, of ordinary inputs{compared}; the highest are together"
            " at the right end."
        ),
        2.9,
    )


def _card(specimen: Specimen, evaluation: Evaluation) -> _Card:
    names, prediction, image = evaluation.class_names, specimen.prediction, specimen.image
    mean = prediction.mean[0]
    best = mean.topk(min(_CARD_CLASSES, len(mean))).indices.tolist()
    low, high = (each[0] for each in prediction.interval(0.95))
    chances = tuple(
        _Chance(
            name=names[index],
            text=f"{probability(float(mean[index]))} ({float(low[index]):.2f} to"
            f" {float(high[index]):.2f})",
            left=f"{100 * float(low[index]):.1f}",
            width=f"{100 * float(high[index] - low[index]):.1f}",
            middle=f"{100 * float(mean[index]):.1f}",
        )
        for index in best
    )
    known = prediction.unusual is not None and len(prediction.unusual.reference) > 0
    return _Card(
        name=specimen.name,
        answer=names[best[0]],
        label=None if specimen.label is None else names[specimen.label],
        quantile=percent(float(prediction.ood_quantile[0])) if known else "",
        image=None if image is None else _picture(image),
        is_small=image is not None and max(image.shape[-2:]) <= _LARGEST_IMAGE // 2,
        text=specimen.text,
        cells=dict(specimen.cells or {}),
        chances=chances,
    )


def _picture(image: Tensor) -> str:
    """A PNG as the address of an image, from black for the smallest number to white for
    the largest.
    """
    planes = image.detach().cpu().double()
    planes = planes.unsqueeze(0) if planes.dim() == 2 else planes
    step = -(-max(planes.shape[1:]) // _LARGEST_IMAGE)
    planes = planes[:, ::step, ::step]
    if len(planes) != 3:  # one channel, or more than a screen has
        planes = planes.mean(0, keepdim=True).expand(3, -1, -1)
    low, high = planes.min(), planes.max()
    shade = (planes - low) / (high - low).clamp_min(torch.finfo(planes.dtype).tiny)
    file = BytesIO()
    imsave(file, (255 * shade).round().byte().permute(1, 2, 0).numpy(), format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
