"""Where labels stand: compared with the loss that the model itself computes of them.

Models of Hugging Face take labels with their inputs and return their loss. A causal
language model predicts the next token, and shifts the labels by one inside; others do
not. Which of these a model does is not guessed: its own loss of the first batch says
it.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from laplacebridge._checks import is_half
from laplacebridge.errors import HeadNotFoundError, InputError
from laplacebridge.laplace.batch import Batch, Output, logits_of, unpack_batch
from laplacebridge.laplace.label_checks import IGNORED_LABEL
from laplacebridge.laplace.loss import PLAIN, Loss
from laplacebridge.laplace.running import eval_mode

# Shares of the loss by which two computations of it may differ, and in half precision.
ROUNDING, HALF_ROUNDING = 1e-3, 3e-2
# Where labels may stand by mistake, counted from their own tokens.
OTHER_PLACES = {
    1: "the next tokens already",
    -1: "the tokens before",
    2: "the tokens after the next",
}


def shifted(labels: Tensor) -> Tensor:
    """Labels of the next token, where the last has none.

    Args:
        labels: One for each token, shape (B, T).

    Example:
        >>> shifted(torch.tensor([[5, 6, 7]]))
        tensor([[   6,    7, -100]])
    """
    return torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], IGNORED_LABEL)], 1)


def shifts_labels(
    model: nn.Module,
    batch: Any,  # noqa: ANN401
    loss: Loss,
    output: Output | None = None,
) -> bool:
    """Whether a model shifts the labels of a batch by one token, by its own loss.

    Args:
        model: The network.
        batch: As its loader yields it; of a mapping with ``labels`` the model may
            compute its loss.
        loss: What it was trained with, besides.
        output: Where logits are in what it returns, if not in a usual place.

    Raises:
        InputError: If its loss is that of the labels neither as they stand nor shifted.
    """
    parts = unpack_batch(batch)
    labels = parts.labels
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.dim() > 2:
        return False
    # a pair of tensors says nothing of a loss, unless its labels are the tokens themselves
    if not parts.keywords and not _are_own_tokens(parts):
        return False
    found = _own_loss(model, parts, output)
    if found is None:
        return False
    own, logits = found
    if logits.shape[:-1] != labels.shape or logits.shape[-1] < 2:
        return False
    tolerance = HALF_ROUNDING if is_half(logits.dtype) else ROUNDING
    tried = {False: labels} if labels.dim() == 1 else {False: labels, True: shifted(labels)}
    losses = {shift: _cross_entropy(logits, aligned, loss) for shift, aligned in tried.items()}
    # weights and smoothing may be the trainer's, of which the model itself knows nothing
    plain = {shift: _cross_entropy(logits, aligned, PLAIN) for shift, aligned in tried.items()}
    for shift, value in (*losses.items(), *plain.items()):
        if abs(value - own) <= tolerance * max(abs(own), tolerance):
            return shift
    words = [
        f"{value:.4g} {'shifted by one' if shift else 'as they stand'}"
        for shift, value in losses.items()
    ]
    raise InputError(
        f"{type(model).__name__} says that the loss of the first batch is {own:.4g}; cross-entropy"
        f" of its logits with these labels is {', '.join(words)}. The labels stand elsewhere, or"
        " the model minimises another loss. Give the `class_weight` or `label_smoothing` that it"
        " was trained with; or say where labels stand: `fit(..., shift_labels=False)` for those at"
        " their own token, `True` for those of the next one."
    )


def require_unshifted(model: nn.Module, batch: Batch) -> None:
    """Refuses labels that are tokens of other places, where the next ones are meant.

    Args:
        model: The network.
        batch: Its inputs and labels, shape (B, T).

    Raises:
        InputError: If every label is the next token already, or one near it.
    """
    tokens, labels = _tokens(batch), batch.labels
    if tokens is None or labels is None or _are_own_tokens(batch):
        return
    for places, words in OTHER_PLACES.items():
        inside = slice(None, -places) if places > 0 else slice(-places, None)
        kept = labels[:, inside] != IGNORED_LABEL
        moved = (tokens.roll(-places, 1) == labels)[:, inside][kept]
        if len(moved) and bool(moved.all()):
            raise InputError(
                f"{type(model).__name__} shifts labels by one token itself, and these are {words}."
                " Give the tokens themselves as labels, as its loss takes them; or"
                " `fit(..., shift_labels=False)` to take these where they stand."
            )


def _tokens(batch: Batch) -> Tensor | None:
    """The numbers of the tokens, if there is one for each label."""
    tokens = batch.keywords.get("input_ids", next(iter(batch.arguments), None))
    if not isinstance(tokens, Tensor) or not isinstance(batch.labels, Tensor):
        return None
    whole = not tokens.is_floating_point() and tokens.dim() == 2
    whole = whole and tokens.shape == batch.labels.shape
    return tokens.to(batch.labels.device) if whole else None


def _are_own_tokens(batch: Batch) -> bool:
    """Whether labels are the tokens that they stand at, as far as they are kept."""
    tokens, labels = _tokens(batch), batch.labels
    if tokens is None or labels is None:
        return False
    return bool(((labels == tokens) | (labels == IGNORED_LABEL)).all())


def _own_loss(model: nn.Module, batch: Batch, where: Output | None) -> tuple[float, Tensor] | None:
    """The model's own loss of a batch and its logits, if it computes a loss."""
    try:
        with torch.no_grad(), eval_mode(model):
            output = model(*batch.arguments, **batch.keywords, labels=batch.labels)
        logits = logits_of(output, where)
    except (TypeError, HeadNotFoundError):  # it takes no labels, or gives something else
        return None
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        return None
    return float(loss), logits


def _cross_entropy(logits: Tensor, labels: Tensor, loss: Loss) -> float:
    weight = None if loss.class_weight is None else loss.class_weight.to(logits.device)
    kept = labels.flatten() != IGNORED_LABEL
    rows, truth = logits.flatten(0, -2)[kept], labels.flatten()[kept].to(logits.device)
    if not len(truth) or truth.min() < 0 or truth.max() >= logits.shape[-1]:
        return float("nan")
    return float(
        cross_entropy(rows.double(), truth, weight=weight, label_smoothing=loss.label_smoothing)
    )
