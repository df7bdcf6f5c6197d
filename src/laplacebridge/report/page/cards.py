"""Examples as the page shows them: a picture, a text or numbers, and bars."""

import base64
from dataclasses import dataclass
from io import BytesIO
from typing import NamedTuple

import torch
from matplotlib.image import imsave
from torch import Tensor

from laplacebridge.report._findings.gallery import Specimen
from laplacebridge.report.evaluation import Evaluation
from laplacebridge.report.plots._drawing import probability
from laplacebridge.report.table import percent

# Images larger than this are thinned out; those of less than half are shown with
# visible pixels.
_LARGEST_IMAGE = 128
_CARD_CLASSES = 3


class _Chance(NamedTuple):
    """A bar of a card, its ends in percent of the width."""

    name: str
    text: str
    left: str
    width: str
    middle: str


@dataclass(frozen=True)
class Card:
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


def card(specimen: Specimen, evaluation: Evaluation) -> Card:
    """A specimen as the page shows it."""
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
    return Card(
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
