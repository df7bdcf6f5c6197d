"""Fits in parts: sums over a share of the training data, which add, can be saved, and
together give the classifier of the whole.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from laplacebridge._fit.fit_sums import FitSums
from laplacebridge._fit.whole import fit
from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError, InputTypeError
from laplacebridge.laplace.array_batches import tensors_for
from laplacebridge.laplace.batch_checks import require_loader
from laplacebridge.laplace.curvature import Curvature
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.head_fitting import HeadSums
from laplacebridge.laplace.interrupted import FitInterrupted
from laplacebridge.laplace.loss import Loss


class _PartSums(HeadSums):
    """Running sums that refuse, with the first batch, what a part does not keep."""

    def _prepare(self, batch: Any) -> None:  # noqa: ANN401
        super()._prepare(batch)
        assert self.network is not None  # noqa: S101  (made in _prepare)
        if self.network.shift_labels or self.network.scale != 1:
            what = "labels of the next token" if self.network.shift_labels else "scaled logits"
            raise InputError(
                f"A fit in parts does not keep that {type(self.model).__name__} has {what}, which"
                " the held-out data would need. Fit at once, with `fit`, on all batches."
            )


def partial(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    curvature: type[Curvature] | None = None,
    head: str | None = None,
    feature_statistics: bool | None = None,
    class_weight: Tensor | Sequence[float] | None = None,
    label_smoothing: float = 0.0,
    sample_weights: bool = False,
    shard: str | None = None,
    progress: bool = False,
) -> FitSums:
    """What `fit` would add up over some of the training data: parts may be summed
    anywhere and at any time, and `from_sums` makes the classifier of all.

    Args:
        model: A trained network that returns logits.
        batches: This part's batches, as for `fit`.
        curvature: As for `fit`; the same for all parts.
        head: As for `fit`.
        feature_statistics: As for `fit`.
        class_weight: As for `fit`.
        label_smoothing: As for `fit`.
        sample_weights: As for `fit`.
        shard: Which part this is, such as ``3/16``, so that none is counted twice.
        progress: Show a progress bar.

    Raises:
        InputTypeError: If the model is not a network.
        InputError: If there are no examples, or the model has what sums do not keep.

    Example:
        >>> model, inputs, labels = nn.Linear(4, 3), torch.randn(60, 4), torch.arange(60) % 3
        >>> first = partial(model, [(inputs[:40], labels[:40])])
        >>> second = partial(model, [(inputs[40:], labels[40:])])
        >>> from_sums(model, first + second, progress=False).labels.num_labels
        60
    """
    if not isinstance(model, nn.Module):
        raise InputTypeError(
            "`partial(model, batches)` needs a network first, an `nn.Module`; got"
            f" {type(model).__name__}."
        )
    require_loader("batches", batches, call="partial")
    batches = tensors_for(model, batches)
    with torch.inference_mode(False):
        loss = Loss.of(class_weight, label_smoothing, sample_weights)
        sums = _PartSums(model, head, curvature, None, progress, feature_statistics, loss)
        sums.add(batches)
    if sums.network is None or not isinstance(sums.curvature, Curvature):
        raise InputError(
            "`partial` needs at least one batch with examples; the loader yielded none. Make no"
            " more parts than there are batches."
        )
    return FitSums(
        sums.curvature,
        sums.labels if sums.has_all_labels else None,
        sums.features,
        sums.network.head_name,
        sums.network.metadata()["fingerprint"],
        sums.network.num_features,
        () if shard is None else (shard,),
    )


def from_sums(model: nn.Module, sums: FitSums, **options: Any) -> Classifier:  # noqa: ANN401
    """The classifier that `fit` would give for all the data that were summed.

    Args:
        model: The same network.
        sums: The sums of all parts, added.
        options: Those of `fit` that come after the sums: ``val_loader``, ``posterior``,
            ``prior_precision``, ``tune_temperature``, ``bridge``, ``progress``.

    Raises:
        InputTypeError: If an option is not one of these.
        InputError: If the sums are of another network.

    Example:
        >>> model = nn.Linear(4, 3)
        >>> sums = partial(model, [torch.eye(4)])
        >>> classifier = from_sums(model, sums, prior_precision=1.0, progress=False)
        >>> classifier(torch.eye(4)).mean.shape
        torch.Size([4, 3])
    """
    unknown = sorted(options.keys() - _AFTER_THE_SUMS)
    if unknown:
        raise InputTypeError(
            f"`from_sums` takes {', '.join(sorted(_AFTER_THE_SUMS))}; got `{unknown[0]}`. What"
            " concerns the sums is given to `partial`."
        )
    network = HeadNetwork(model, sums.head, num_features=sums.num_features)
    if network.metadata()["fingerprint"] != sums.fingerprint:
        raise InputError(
            "The sums are of another network: the weights of its head are not those of this one."
            " Load the weights that the parts were summed with."
        )
    device = network.device
    held = FitInterrupted(
        sums.curvature.to(device),
        sums.labels,
        None if sums.features is None else sums.features.to(device),  # type: ignore[arg-type]
        sums.num_features,
    )
    return fit(model, [], head=sums.head, resume=held, **options)


_AFTER_THE_SUMS = {
    "val_loader",
    "posterior",
    "prior_precision",
    "tune_temperature",
    "bridge",
    "progress",
}


def merged(parts: Sequence[FitSums]) -> FitSums:
    """The sum of parts, all shards of the data being there.

    Args:
        parts: The parts, in any order.

    Raises:
        InputError: If there are none, or shards are missing.
    """
    if not parts:
        raise InputError("There is nothing to merge: give the sums of at least one part.")
    # the same order, and so the same bits, whatever the order they are given in
    ordered = sorted(parts, key=lambda part: [_number(shard) for shard in part.shards])
    total = ordered[0]
    for part in ordered[1:]:
        total = total + part
    counts = {shard.partition("/")[2] for shard in total.shards}
    if len(counts) > 1:
        raise InputError(
            f"The parts are of different splits, into {' and '.join(sorted(counts))} shards."
        )
    if counts:
        wanted = range(1, int(counts.pop()) + 1)
        missing = [str(each) for each in wanted if each not in map(_number, total.shards)]
        if missing:
            raise InputError(
                f"Of {len(wanted)} shards {len(missing)} are missing: {', '.join(missing[:10])}."
                " Sum them too."
            )
    return replace(total)


def _number(shard: str) -> int:
    return int(shard.partition("/")[0])
