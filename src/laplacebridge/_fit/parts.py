"""Fits in parts: sums over a share of the training data, which add, can be saved, and
together give the classifier of the whole.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from laplacebridge._files import checksum, read_safetensors, write_safetensors
from laplacebridge._fit.whole import fit
from laplacebridge.checkpoint.entries import described_labels, labels_from
from laplacebridge.classifier import Classifier
from laplacebridge.errors import CheckpointError, InputError, InputTypeError, ShapeError
from laplacebridge.laplace.array_batches import tensors_for
from laplacebridge.laplace.batch_checks import require_loader
from laplacebridge.laplace.curvature import Curvature, Diag, DiagKron, Full, Kron
from laplacebridge.laplace.feature_statistics import FeatureStatistics
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.head_fitting import HeadSums
from laplacebridge.laplace.interrupted import FitInterrupted
from laplacebridge.laplace.label_statistics import LabelStatistics
from laplacebridge.laplace.loss import Loss

FORMAT, VERSION = "laplacebridge.sums", "1"
_CHECKSUM = "checksum"
_CURVATURE, _FEATURES = "curvature.", "features."
_KINDS: dict[str, type[Curvature]] = {kind.__name__: kind for kind in (Diag, Kron, DiagKron, Full)}


@dataclass(frozen=True, eq=False)
class FitSums:
    """What a fit adds up over some of its examples. Two of them add.

    A file of sums is about as private as the examples: the sum over a class with a
    single example is that example's features. The classifier that is made of all sums
    is not.

    Attributes:
        curvature: The curvature of the head.
        labels: What the labels said; None if some examples had none.
        features: Sums over features, for the score of unusual inputs; None if they were
            not made.
        head: The name of the head that they are of.
        fingerprint: Of its weights.
        num_features: How many features it takes.
        shards: Which shards of the data they are of, such as ``3/16``; empty if that is
            not known.

    Example:
        >>> model, batches = nn.Linear(4, 3), [(torch.eye(4), torch.tensor([0, 1, 2, 0]))]
        >>> both = partial(model, batches) + partial(model, batches)
        >>> both.num_examples
        8
    """

    curvature: Curvature
    labels: LabelStatistics | None
    features: FeatureStatistics | None
    head: str
    fingerprint: str
    num_features: int
    shards: tuple[str, ...] = ()

    @property
    def num_examples(self) -> int:
        """How many examples were summed."""
        return int(self.curvature.num_examples)

    def __add__(self, other: "FitSums") -> "FitSums":
        """The sums over both sets of examples.

        Raises:
            ShapeError: If they are of other weights or another curvature.
            InputError: If both hold the same shard.
        """
        if (self.head, self.fingerprint) != (other.head, other.fingerprint):
            raise ShapeError(
                f"Sums add when they are of the same network; these are of the heads"
                f" '{self.head}' and '{other.head}' with"
                f" {'other' if self.fingerprint != other.fingerprint else 'the same'} weights. Sum"
                " all parts with the same weights."
            )
        twice = sorted(set(self.shards) & set(other.shards))
        if twice:
            raise InputError(
                f"The shard {twice[0]} is in both sums; its examples would count twice."
            )
        labels = self.labels + other.labels if self.labels and other.labels else None
        features = self.features + other.features if self.features and other.features else None
        return FitSums(
            self.curvature + other.curvature,  # type: ignore[arg-type]
            labels,
            features,  # type: ignore[arg-type]
            self.head,
            self.fingerprint,
            self.num_features,
            (*self.shards, *other.shards),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the sums to a safetensors file, atomically.

        Args:
            path: The file.
        """
        tensors = {_CURVATURE + name: each for name, each in self.curvature.tensors().items()}
        if self.features is not None:
            tensors |= {_FEATURES + name: each for name, each in self.features.tensors().items()}
        metadata = {
            "format": FORMAT,
            "version": VERSION,
            "curvature": type(self.curvature).__name__,
            "labels": json.dumps(described_labels(self.labels)),
            "head": self.head,
            "fingerprint": self.fingerprint,
            "num_features": str(self.num_features),
            "shards": json.dumps(self.shards),
        }
        signed = {**metadata, _CHECKSUM: checksum(tensors, metadata)}
        write_safetensors(Path(path), tensors, signed)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "FitSums":
        """Reads sums from a file.

        Args:
            path: A file that `save` wrote.

        Raises:
            CheckpointError: If it is damaged, or no file of sums.
        """
        tensors, metadata = read_safetensors(Path(path))
        if metadata.get("format") != FORMAT or metadata.get("version") != VERSION:
            raise CheckpointError(
                f"{path} does not hold the sums of a part of a fit, of version {VERSION}:"
                " `lb.partial(model, batches).save(path)` and `laplacebridge fit --shard` write"
                " them."
            )
        claimed = metadata.pop(_CHECKSUM, None)
        if claimed != checksum(tensors, metadata):
            raise CheckpointError(
                f"{path} is damaged: its contents do not have the checksum that was stored with"
                " them. Take a copy, or sum that part again."
            )
        # files of before have sums of a polar form, too, which nobody needs any more
        features = {
            name: each
            for name, each in _under(_FEATURES, tensors).items()
            if not name.startswith("polar_")
        }
        return cls(
            _KINDS[metadata["curvature"]](**_under(_CURVATURE, tensors)),
            labels_from(metadata["labels"]),
            FeatureStatistics(**features) if features else None,
            metadata["head"],
            metadata["fingerprint"],
            int(metadata["num_features"]),
            tuple(json.loads(metadata["shards"])),
        )


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


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)
    }
