"""What a fit adds up over some of its examples: a value that adds and is saved."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from laplacebridge._files import checksum, read_safetensors, write_safetensors
from laplacebridge.checkpoint.entries import described_labels, labels_from
from laplacebridge.errors import CheckpointError, InputError, ShapeError
from laplacebridge.laplace.curvature import Curvature, Diag, DiagKron, Full, Kron
from laplacebridge.laplace.feature_statistics import FeatureStatistics
from laplacebridge.laplace.label_statistics import LabelStatistics

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
        >>> from laplacebridge import partial
        >>> import torch
        >>> from torch import nn
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


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)
    }
