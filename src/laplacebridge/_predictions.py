"""What sets, scores and metrics accept as a prediction, checked: a `Prediction`, a
`Dirichlet`, or probabilities.
"""

from typing import Any, TypeAlias

import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge._checks import first_row, is_half, require_rows, require_tensor
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import InputError
from laplacebridge.prediction import Prediction

AnyPrediction: TypeAlias = Prediction | Dirichlet | Tensor | npt.NDArray[Any]

# How far from one a row of probabilities may add up: what softmax over 100 000 classes
# leaves, and what rounding to half precision does to it.
SUM_TOLERANCE = 1e-3
HALF_SUM_TOLERANCE = 2e-2


def probabilities_of(call: str, prediction: AnyPrediction) -> Float[Tensor, "B K"]:
    """Class probabilities of a prediction, in at least float32.

    Args:
        call: The call being checked, as the user wrote it.
        prediction: A prediction or Dirichlet, whose mean is taken, or probabilities of
            shape (B, K).

    Raises:
        ShapeError: If the prediction is empty, of another shape or has fewer than two
            classes.
        InputError: If rows are not probabilities.
    """
    if isinstance(prediction, Prediction):
        prediction = prediction.dirichlet
    if isinstance(prediction, Dirichlet):
        compiling = torch.compiler.is_compiling()  # for any number of rows, whatever they hold
        if not compiling:
            require_rows(call, len(prediction))
        log = prediction.log_concentration
        probabilities = Dirichlet(log.float()).mean if is_half(log.dtype) else prediction.mean
        if not compiling and not probabilities.isfinite().all():
            raise InputError(
                f"`{call}` needs finite concentrations; row {first_row(~probabilities.isfinite())}"
                " has NaN. Find the input that made it: `lb.check(dirichlet)`."
            )
        return probabilities
    if hasattr(prediction, "applies"):  # a `MultiLabelPrediction`, which lies above this
        raise InputError(
            f"`{call}` is for one class out of K; got predictions of several labels, of which any"
            " number may apply. `lb.multi_label.per_label(metric, prediction, labels)` takes each"
            " label by itself, `lb.multi_label.calibrate` makes sets."
        )
    given = require_tensor(call, prediction, "B K", classes=1)
    require_rows(call, len(given))
    tolerance = HALF_SUM_TOLERANCE if is_half(given.dtype) else SUM_TOLERANCE
    wide = given.float() if is_half(given.dtype) else given
    bad = ~(wide >= 0) | ~wide.isfinite()
    if bad.any():
        row, found = first_row(bad), wide[bad][0].item()
        raise InputError(
            f"`{call}` needs probabilities from 0 to 1; row {row} holds {found:.4g}. If these are"
            " logits, give `logits.softmax(-1)`."
        )
    off = (wide.sum(-1) - 1).abs() > tolerance
    if off.any():
        row = first_row(off)
        raise InputError(
            f"`{call}` needs rows that add up to 1; row {row} adds up to"
            f" {wide[row].sum().item():.4g}. If these are logits, give `logits.softmax(-1)`; if"
            " they are independent scores, divide by their sum."
        )
    return wide


def dirichlet_of(call: str, prediction: AnyPrediction, advice: str) -> Dirichlet:
    """The Dirichlets of a prediction, for what probabilities alone cannot say.

    Args:
        call: The call being checked, as the user wrote it.
        prediction: What was given.
        advice: What to do if these are probabilities.

    Raises:
        InputError: If they are.
    """
    if isinstance(prediction, Prediction):
        prediction = prediction.dirichlet
    if not isinstance(prediction, Dirichlet):
        raise InputError(f"`{call}` needs a `Dirichlet`; got {type(prediction).__name__}. {advice}")
    require_rows(call, len(prediction))
    return prediction
