"""What held-out folds decide: prior, temperature and width of the classifier that is
fitted to all data, and what is usual.

The fold models are taken as one: their features stand side by side, those of fold f in
block f and zeros elsewhere, and their weights in a row. So the library's own rule sees
every held-out label once, from a model that was trained without it.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.model_selection import StratifiedKFold, check_cv
from torch import Tensor, nn

from laplacebridge._fit import fit
from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError
from laplacebridge.laplace import Diag, Kron
from laplacebridge.laplace.curvature import Curvature
from laplacebridge.laplace.unusual import UnusualScore
from laplacebridge.sklearn.heads import LinearHead

# Features of all blocks together for which a Kronecker factor is decomposed in seconds.
MOST_FEATURES = 4000

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A model, the examples that its head was trained on, and those held out from it.

    Attributes:
        head: The model.
        training: Its training inputs, as the head prepares them, and their classes by
            number.
        held_out: The same of examples that it has not seen.
    """

    head: LinearHead
    training: tuple[Any, Tensor]
    held_out: tuple[Any, Tensor]


def folds_of(cv: Any, inputs: Any, codes: Rows) -> list[tuple[Rows, Rows]]:
    """Rows to train on and rows to hold out, for each fold.

    With a number of folds, classes are spread over them, and an example that is the
    only one of its class is never held out. There may be fewer folds than asked for, or
    none, if there are too few examples.

    Args:
        cv: How many folds, a splitter of scikit-learn, or pairs of rows.
        inputs: The inputs.
        codes: Their classes by number.

    Raises:
        InputError: If a fold trains without a class.
    """
    counts = np.bincount(codes)
    if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool):
        lone = np.flatnonzero(counts[codes] < 2)
        others = np.flatnonzero(counts[codes] >= 2)
        number = min(int(cv), int(counts.max()))
        if number < 2 or len(others) < 2:
            return []
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The least populated class")
            spread = StratifiedKFold(number, shuffle=True, random_state=0)
            pairs = list(spread.split(np.zeros(len(others)), codes[others]))
        return [(np.concatenate([others[train], lone]), others[held]) for train, held in pairs]
    found = [
        (_numbers(train, len(codes)), _numbers(held, len(codes)))
        for train, held in check_cv(cv, codes, classifier=True).split(inputs, codes)
    ]
    for number, (train, _) in enumerate(found):
        missing = np.setdiff1d(np.arange(len(counts)), codes[train])
        if len(missing):
            raise InputError(
                f"`LaplaceBridgeClassifier(cv)` needs every class among the training rows of every"
                f" fold; fold {number} has none of class number {missing[0]}. Use stratified folds,"
                " such as a number of them."
            )
    return found


def _numbers(rows: Any, length: int) -> Rows:
    """Rows by number, where a splitter gives a mask."""
    return np.arange(length)[np.asarray(rows)]


def fitted(
    head: LinearHead,
    inputs: Any,
    codes: Tensor,
    folds: Sequence[HeldOut],
) -> Classifier:
    """The classifier of a head that was trained on all data, with prior, temperature,
    width and what is usual as held-out folds choose them.

    Args:
        head: The head.
        inputs: What it was trained on, prepared.
        codes: Their classes by number.
        folds: Models held out from parts of the data; none if there were too few.
    """
    curvature = Kron if head.num_features < MOST_FEATURES else Diag
    batches = list(_batches(head, inputs, codes))
    if not folds:
        return fit(head.linear(), batches, curvature=curvature, progress=False)
    number = max(1, MOST_FEATURES // (head.num_features + 1))
    chosen = _choice(folds[:number], curvature)
    prior = chosen.prior_choice
    whole = fit(
        head.linear(),
        batches,
        curvature=curvature,
        prior_precision=prior.prior_precision,
        progress=False,
    )
    posterior = whole.posterior
    if prior.width is not None:
        posterior = posterior.widened(prior.width.widening)
    return Classifier(
        whole.network,
        posterior,
        bridge=whole.bridge,
        labels=whole.labels,
        prior_choice=prior._replace(method=f"{prior.method}, of {len(folds)} folds"),
        unusual=_calibrated(whole.unusual, folds),
    )


def _batches(head: LinearHead, inputs: Any, codes: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    start = 0
    for features in head.batches(inputs):
        yield features, codes[start : start + len(features)]
        start += len(features)


def _choice(folds: Sequence[HeldOut], curvature: type[Curvature]) -> Classifier:
    """All fold models as one, fitted with every held-out label."""
    weight = torch.cat(
        [torch.cat([fold.head.weight, fold.head.bias.unsqueeze(-1)], -1) for fold in folds], -1
    )
    model = nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
    model.load_state_dict({"weight": weight})

    def blocks(part: str) -> list[tuple[Tensor, Tensor]]:
        found = []
        for place, fold in enumerate(folds):
            for features, codes in _batches(fold.head, *getattr(fold, part)):
                size = fold.head.num_features + 1
                wide = features.new_zeros(len(features), weight.shape[1])
                wide[:, place * size : (place + 1) * size - 1] = features
                wide[:, (place + 1) * size - 1] = 1  # the bias is the weight of a constant
                found.append((wide, codes))
        return found

    return fit(
        model,
        blocks("training"),
        val_loader=blocks("held_out"),
        curvature=curvature,
        feature_statistics=False,
        progress=False,
    )


def _calibrated(unusual: UnusualScore | None, folds: Sequence[HeldOut]) -> UnusualScore | None:
    """The score of unusual inputs, with what is usual by held-out examples, each as the
    model of its own fold sees it.
    """
    if unusual is None:
        return None
    parts = []
    for fold in folds:
        own = fit(
            fold.head.linear(),
            list(_batches(fold.head, *fold.training)),
            curvature=Diag,
            prior_precision=1.0,
            feature_statistics=True,
            progress=False,
        )
        assert own.unusual is not None  # noqa: S101  (it was asked for)
        features = torch.cat([rows for rows, _ in _batches(fold.head, *fold.held_out)])
        with torch.no_grad():
            parts.append(own.unusual.parts(features, own.network.logits_at(features)))  # type: ignore[operator]
    return unusual.calibrated_by(torch.cat(parts))
