"""The report as one page of HTML that asks nothing of the network."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from io import BytesIO
from typing import Any

import torch
from jinja2 import Environment, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.image import imsave
from torch import Tensor

from laplacebridge import metrics, scores
from laplacebridge.report import plots
from laplacebridge.report._drawing import inline_svg, probability
from laplacebridge.report.evaluation import COLUMNS, Evaluation, Specimen, brief

# scores of the curves and histograms
_SCORES = {"1 − largest probability": scores.msp, "mutual information": scores.mutual_information}
# Images larger than this are thinned out; those of less than half are shown with
# visible pixels.
_LARGEST_IMAGE = 256


@dataclass(frozen=True)
class _Card:
    """A specimen as the page shows it."""

    title: str
    answer: str
    probability: str
    total: str
    label: str | None
    image: str | None
    is_small: bool
    plot: str


def html(evaluation: Evaluation) -> str:
    """One page with every number and plot of a report, for a screen of any width and
    for paper.

    Nothing is loaded from elsewhere. The numbers are in it a second time, as JSON: see
    `Evaluation.to_dict`.
    """
    data = evaluation.to_dict()
    template = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).from_string(resources.files("laplacebridge.report").joinpath("page.html").read_text("utf-8"))
    levels = {row.auroc.level for row in evaluation.rows if row.auroc is not None}
    return template.render(
        evaluation=evaluation,
        data=data,
        embedded=_embedded(data),
        columns=COLUMNS,
        levels=" or ".join(f"{100 * level:g} %" for level in sorted(levels)),
        plots=_plots(evaluation),
        cards=[
            _card(place, specimen, evaluation)
            for place, specimen in enumerate(evaluation.specimens)
        ],
    )


def _embedded(data: dict[str, Any]) -> str:
    """JSON that may stand in a script element: nothing in it can end or open one."""
    return (
        json.dumps(data, allow_nan=False, indent=1).replace("<", "\\u003c").replace("&", "\\u0026")
    )


def _plots(evaluation: Evaluation) -> dict[str, str]:
    """Every plot by name; what has no data has no plot."""
    prediction, labels, ood = evaluation.prediction, evaluation.labels, evaluation.ood
    right = metrics.correct(prediction, labels)
    curves = {title: (score(prediction), right) for title, score in _SCORES.items()}
    drawn: dict[str, tuple[Callable[[Axes], Axes], str]] = {
        "reliability": (
            lambda ax: plots.reliability_diagram(prediction, labels, ax=ax),
            (
                "Share of right answers and of examples in bins of confidence, beside the diagonal"
                " of perfect calibration."
            ),
        ),
        "risk-coverage": (
            lambda ax: plots.risk_coverage(curves, ax=ax),
            (
                "Error rate among answered examples against the share answered, one curve for each"
                " of two scores."
            ),
        ),
        "set-sizes": (
            lambda ax: plots.set_size_histogram(evaluation.sets, labels, ax=ax),
            (
                "Share of examples by the size of their set, split into sets that hold the label"
                " and sets that do not."
            ),
        ),
        "distances": (
            lambda ax: plots.distances(evaluation.rows, ax=ax),
            (
                "Mean total variation between every method and sampling, as bars; the table has the"
                " numbers."
            ),
        ),
        "times": (
            lambda ax: plots.times(evaluation.rows, ax=ax),
            "Microseconds per example of every method, as bars; the table has the numbers.",
        ),
    }
    for title, score in _SCORES.items():
        drawn[f"scores: {title}"] = _histograms(
            score(prediction), None if ood is None else score(ood), title
        )
    if (curve := evaluation.prior) is not None:
        drawn["prior"] = (
            lambda ax: plots.prior_curve(curve, ax=ax),
            f"{curve.meaning} against the prior precision; {curve.chosen:.3g} was chosen.",
        )
    bars = 0.6 + 0.42 * len(evaluation.rows)
    heights = {"distances": bars, "times": bars}
    return {
        name: inline_svg(
            draw, name=f"plot-{place}", description=description, height=heights.get(name, 2.9)
        )
        for place, (name, (draw, description)) in enumerate(drawn.items())
    }


def _histograms(
    id_scores: Tensor, ood_scores: Tensor | None, title: str
) -> tuple[Callable[[Axes], Axes], str]:
    compared = "" if ood_scores is None else " and of out-of-distribution ones"
    return (
        lambda ax: plots.score_histograms(id_scores, ood_scores, name=title, ax=ax),
        f"Histogram of {title}, of in-distribution examples{compared}.",
    )


def _card(place: int, specimen: Specimen, evaluation: Evaluation) -> _Card:
    names, prediction, image = evaluation.class_names, specimen.prediction, specimen.image
    best = int(prediction.log_concentration[0].argmax())

    def draw(ax: Axes) -> None:
        drawn = plots.beta_marginals(prediction, class_names=names, ax=ax).get_legend()
        if drawn is not None:  # above the plot, where long names cover nothing
            drawn.set_loc("lower left")
            drawn.set_bbox_to_anchor((0.0, 1.0))

    return _Card(
        title=specimen.title,
        answer=names[best],
        probability=probability(prediction.mean[0, best].item()),
        total=brief(prediction.log_total[0].double().exp().item()),
        label=None if specimen.label is None else names[specimen.label],
        image=None if image is None else _picture(image),
        is_small=image is not None and max(image.shape[-2:]) <= _LARGEST_IMAGE // 2,
        plot=inline_svg(
            draw,
            name=f"specimen-{place}",
            description=(
                f"Densities of the probabilities of the likeliest classes; {names[best]} first."
            ),
            width=3.2,
            height=2.1 + 0.18 * min(5, prediction.num_classes),
        ),
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
