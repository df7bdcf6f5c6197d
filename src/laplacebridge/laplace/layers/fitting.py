"""Fitting several layers: one pass over a loader, forward once and backward once for
each class.
"""

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from laplacebridge.errors import HeadNotFoundError, InputError
from laplacebridge.laplace.batch import unpack_batch
from laplacebridge.laplace.batch_checks import require_finite
from laplacebridge.laplace.curvature import Curvature, Diag, Full, Kron
from laplacebridge.laplace.distributed import Shard
from laplacebridge.laplace.fitting import RunningSums
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.head_search import find_head
from laplacebridge.laplace.interrupted import FitInterrupted
from laplacebridge.laplace.label_checks import IGNORED_LABEL, flat_labels
from laplacebridge.laplace.layers.curvature import (
    LARGEST_FULL,
    STRUCTURES,
    NetworkCurvature,
    num_bytes,
)
from laplacebridge.laplace.layers.network import LinearisedNetwork
from laplacebridge.laplace.layers.posterior import network_posterior
from laplacebridge.laplace.layers.selection import matching_layers
from laplacebridge.laplace.loss import PLAIN, Loss, weights_of
from laplacebridge.laplace.memory import machine_memory
from laplacebridge.laplace.posterior import Posterior
from laplacebridge.laplace.sums import Sums, readable_size

FEW_EXAMPLES = 32  # fewer than for a head, since each costs a backward pass for every class


class LayerSums(RunningSums):
    """The running sums of a fit of several layers.

    Args:
        model: The trained network.
        layers: Patterns of layer names.
        curvature: `Diag`, `Kron` or `Full`, or None for `Kron`.
        resume: What an interrupted fit raised, or its sums, to go on with.
        progress: Show a progress bar.
        feature_statistics: As for `RunningSums`.
        loss: What the network was trained with.

    Raises:
        InputError: If the curvature is of another kind.
    """

    network: LinearisedNetwork

    def __init__(
        self,
        model: nn.Module,
        layers: str | Sequence[str],
        curvature: type[Curvature] | None,
        resume: FitInterrupted | Sums | None,
        progress: bool,
        feature_statistics: bool | None = None,
        loss: Loss = PLAIN,
    ) -> None:
        super().__init__(model, curvature, resume, progress, feature_statistics, loss)
        self._head: HeadNetwork | None = None
        self.network = LinearisedNetwork(model, matching_layers(model, layers))
        self.num_classes = 0  # known with the first batch
        if self.kind is None and isinstance(self.curvature, NetworkCurvature):
            self.kind = self.curvature.kind
        self.kind = self.kind or Kron
        if self.kind not in STRUCTURES or isinstance(self.curvature, Curvature):
            given = (
                f"sums of a head, `{type(self.curvature).__name__}`"
                if self.curvature
                else f"`{self.kind.__name__}`"
            )
            raise InputError(
                "`fit(layers=...)` takes the curvatures"
                f" {', '.join(kind.__name__ for kind in STRUCTURES)}, or the sums of an earlier fit"
                f" of the same layers; got {given}. For the head alone leave out `layers`."
            )

    def _prepare(self, batch: Any) -> None:  # noqa: ANN401
        assert self.kind is not None  # noqa: S101
        parts = unpack_batch(batch)
        example = self.network(*parts.arguments, **parts.keywords)[:1].batch
        require_room(self.kind, self.network, self.network.bytes_per_example(example))
        self.num_classes = self.network.verify(parts)
        if self.sums_features is not False:
            try:
                self._head = find_head(self.model, batch)
            except HeadNotFoundError:
                self.sums_features = False
        if self.progress:
            tqdm.write(
                f"laplacebridge: {len(self.network.layer_names)} layers with"
                f" {self.network.num_parameters} weights, {self.kind.__name__} curvature,"
                f" {readable_size(num_bytes(self.kind, self.network.layers))}",
                file=sys.stderr,
            )

    def _add(self, index: int, batch: Any) -> None:  # noqa: ANN401
        assert self.kind is not None  # noqa: S101
        parts = unpack_batch(batch)
        examples = self.network(*parts.arguments, **parts.keywords)
        labels = None if parts.labels is None else flat_labels(parts.labels, len(examples), index)
        kept = torch.ones(len(examples), dtype=torch.bool, device=self.network.device)
        if labels is not None:
            labels = labels.to(kept.device)
            kept = labels != IGNORED_LABEL
            examples, labels = examples[kept.nonzero().flatten()], labels[kept]
        if not len(examples):
            return
        given = None if parts.weights is None else weights_of(parts.weights, kept, index)
        weights = self._weights(labels, given, self.num_classes, index)
        part, logits = NetworkCurvature.of_batch(self.kind, examples, weights)
        require_finite(logits, "logits", index, parts)
        self.curvature = part if self.curvature is None else self.curvature + part
        self._add_labels(logits.double(), labels, given)
        if self.some_features is None:
            self.some_features = examples[:FEW_EXAMPLES]
        if self._head is not None and self.sums_features is not False:
            passed = self._head.run(examples.batch)
            self._add_features(passed.features, self._head.exact_logits(passed), labels)

    def _know_head(self, name: str) -> None:
        self._head = HeadNetwork(self.model, name)

    @property
    def head_network(self) -> HeadNetwork | None:
        """The network split at its head, if it ends in a linear layer."""
        return self._head

    def _num_classes(self) -> int:
        return self.num_classes

    def _take_part(self, common: Shard) -> None:
        self.num_classes = common.num_classes
        super()._take_part(common)

    def posterior(
        self, curvature: Sums, prior_precision: float, kind: type[Posterior] | None
    ) -> Posterior:
        """The posterior over the layers.

        Args:
            curvature: The sums.
            prior_precision: τ > 0.
            kind: Another posterior of a layer than the usual one of that curvature.
        """
        assert isinstance(curvature, NetworkCurvature)  # noqa: S101
        return network_posterior(self.network, curvature, prior_precision, self.num_classes, kind)


def require_room(
    kind: type[Curvature], network: LinearisedNetwork, bytes_per_example: int = 0
) -> None:
    """Refuses a curvature that is too large, before anything is allocated.

    Args:
        kind: The structure.
        network: The network.
        bytes_per_example: What linearising one example takes.

    Raises:
        InputError: If a full matrix would have too many rows, or more than half of the
            memory is needed.
    """
    if kind is Full and network.num_parameters > LARGEST_FULL:
        raise InputError(
            f"`Full` holds every pair of {network.num_parameters} weights; at most {LARGEST_FULL}"
            " weights are allowed. Use `Kron` or `Diag`, or narrow `layers`."
        )
    needed, memory = num_bytes(kind, network.layers), machine_memory()
    if bytes_per_example > memory / 2:
        raise InputError(
            f"Linearising one example takes {bytes_per_example / 1e9:.1f} GB, a gradient of every"
            f" layer's output for each class; that is more than half of the {memory / 1e9:.0f} GB"
            " here. Narrow `layers`."
        )
    if needed > memory / 2:
        raise InputError(
            f"`{kind.__name__}` needs {needed / 1e9:.1f} GB for {network.num_parameters} weights,"
            f" more than half of the {memory / 1e9:.0f} GB here. `Diag` needs"
            f" {num_bytes(Diag, network.layers) / 1e9:.1f} GB; or narrow `layers`."
        )
