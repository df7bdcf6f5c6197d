"""Fitting the head: the running sums of its curvature."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from laplacebridge import _blocks
from laplacebridge._blocks import without_autocast
from laplacebridge.bridges.precision import MANY_CLASSES
from laplacebridge.laplace import distributed
from laplacebridge.laplace.alignment import shifts_labels
from laplacebridge.laplace.batch import Batch, Output, unpack_batch
from laplacebridge.laplace.batch_checks import require_finite
from laplacebridge.laplace.curvature import Curvature, DiagKron, Kron
from laplacebridge.laplace.fitting import RunningSums
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.head_pass import Passed
from laplacebridge.laplace.head_posteriors import POSTERIORS
from laplacebridge.laplace.head_posteriors.base import with_constant
from laplacebridge.laplace.head_search import find_head
from laplacebridge.laplace.interrupted import FitInterrupted
from laplacebridge.laplace.label_checks import (
    IGNORED_LABEL,
    flat_labels,
)
from laplacebridge.laplace.loss import PLAIN, Loss, weights_of
from laplacebridge.laplace.memory import require_memory
from laplacebridge.laplace.posterior import Posterior
from laplacebridge.laplace.sums import Sums, readable_size

FEW_EXAMPLES = 256


class HeadSums(RunningSums):
    """The running sums of a fit of the head.

    Args:
        model: The trained network.
        head: Name of its head, or None to find it.
        curvature: A structure, or None for the default.
        resume: What an interrupted fit raised, or its sums, to go on with.
        progress: Show a progress bar.
        feature_statistics: As for `RunningSums`.
        loss: What the network was trained with.
    """

    network: HeadNetwork | None
    shift_labels: bool | None = None  # what the user says; None to see by the model's own loss
    output: Output | None = None  # where logits are, if not in a usual place

    def __init__(
        self,
        model: nn.Module,
        head: str | None,
        curvature: type[Curvature] | None,
        resume: FitInterrupted | Sums | None,
        progress: bool,
        feature_statistics: bool | None = None,
        loss: Loss = PLAIN,
    ) -> None:
        super().__init__(model, curvature, resume, progress, feature_statistics, loss)
        taken = resume.num_features if isinstance(resume, FitInterrupted) else None
        self.network = None if head is None else HeadNetwork(model, head, num_features=taken)
        if self.kind is None and isinstance(self.curvature, Curvature):
            self.kind = type(self.curvature)

    def _prepare(self, batch: Any) -> None:  # noqa: ANN401
        if self.network is None:
            self.network = find_head(self.model, batch, output=self.output)
        else:
            self.network.output = self.output
            self.network.verify(batch)
        if not self.loss.multi_label:
            self.network.shift_labels = (
                shifts_labels(self.model, batch, self.loss, self.output)
                if self.shift_labels is None
                else self.shift_labels
            )
        num_classes = len(self.network.weight())
        num_inputs = self.network.num_features + (self.network.bias() is not None)
        if self.kind is None:
            # of many classes a class factor takes most of the time of a prediction
            self.kind = Kron if num_classes < MANY_CLASSES else DiagKron
        require_memory(self.kind, num_inputs, num_classes)
        if self.progress:
            size = readable_size(self.kind.num_bytes(num_inputs, num_classes))
            tqdm.write(
                f"laplacebridge: {self.network.described()}, {num_classes} classes,"
                f" {self.kind.__name__} curvature, {size}",
                file=sys.stderr,
            )

    def _add(self, index: int, batch: Any) -> None:  # noqa: ANN401
        assert self.network is not None  # noqa: S101  (made in _prepare)
        parts = unpack_batch(batch)
        passed = self.network.run(parts)
        features, logits, output = passed
        labels = None if parts.labels is None else self._labels(parts, len(features), index)
        kept = torch.ones(len(features), dtype=torch.bool, device=features.device)
        if labels is not None:
            labels = labels.to(features.device)
            kept = labels.view(len(labels), -1)[:, 0] != IGNORED_LABEL
        given = None if parts.weights is None else weights_of(parts.weights, kept, index)
        if not kept.all():
            assert labels is not None  # noqa: S101  (nothing else is left out)
            features, logits, labels = features[kept], logits[kept], labels[kept]
            if not len(features):
                return
        require_finite(features, "features", index, parts)
        # rows at a time, since logits in float64 may take more than all the rest
        size = max(1, _blocks.ELEMENTS_AT_ONCE // self._num_classes())
        blocks = [slice(at, at + size) for at in range(0, len(features), size)]

        def exact(rows: slice) -> Tensor:
            assert self.network is not None  # noqa: S101
            return self.network.exact_logits(Passed(features[rows], logits[rows], output))

        finite = torch.cat([exact(rows).isfinite().all(-1) for rows in blocks])
        require_finite(torch.where(finite, 0.0, torch.nan).unsqueeze(-1), "logits", index, parts)
        weights = self._weights(labels, given, self._num_classes(), index)
        if self.some_features is None:
            self.some_features = features[:FEW_EXAMPLES].clone()
        for rows in blocks:
            some = (None if part is None else part[rows] for part in (labels, given, weights))
            self._add_rows(features[rows], exact(rows), *some)

    def _labels(self, parts: Batch, num_rows: int, index: int) -> Tensor:
        """The labels of a batch, one row for each prediction."""
        assert self.network is not None  # noqa: S101
        return flat_labels(self.network.aligned(parts), num_rows, index)

    def _add_rows(
        self,
        features: Tensor,
        logits: Tensor,
        labels: Tensor | None,
        given: Tensor | None,
        weights: Tensor | None,
    ) -> None:
        """Adds examples; weights are those given, and those of classes with them."""
        assert self.network is not None  # noqa: S101
        assert self.kind is not None  # noqa: S101
        inputs = features if self.network.bias() is None else with_constant(features)
        with without_autocast(inputs.device):
            # somebody's own curvature need not know weights where there are none
            weighted = () if weights is None else (weights,)
            part = self.kind.of_batch(inputs, logits.softmax(-1), *weighted)
        self.curvature = part if self.curvature is None else self.curvature + part
        self._add_labels(logits, labels, given)
        with without_autocast(inputs.device):
            self._add_features(features, logits, labels)

    @property
    def head_network(self) -> HeadNetwork | None:
        """The network, known with its first batch."""
        return self.network

    def _num_classes(self) -> int:
        assert self.network is not None  # noqa: S101
        return len(self.network.weight())

    def _take_part(self, common: distributed.Shard) -> None:
        if self.network is None:
            self.network = HeadNetwork(
                self.model, common.covered["head"], num_features=common.covered["features"]
            )
            self.network.may_end_in_sigmoid = self.loss.multi_label
        # what a first batch would have shown
        self.network.output = self.output
        self.network.scale, self.network.shift_labels = common.scale, common.shift_labels
        super()._take_part(common)

    def posterior(
        self, curvature: Sums, prior_precision: float, kind: type[Posterior] | None
    ) -> Posterior:
        """The posterior of the head.

        Args:
            curvature: The sums.
            prior_precision: τ > 0.
            kind: Another posterior than the usual one of that curvature.
        """
        assert self.network is not None  # noqa: S101
        assert isinstance(curvature, Curvature)  # noqa: S101
        build: Callable[..., Posterior] = kind or POSTERIORS[type(curvature)]
        return build(self.network.weight(), self.network.bias(), curvature, prior_precision)
