"""Fitting: one pass over a loader that adds up the curvature of the head and the likelihood of the labels."""

import os
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from tqdm import tqdm

from laplacebridge.errors import ShapeError
from laplacebridge.laplace import distributed
from laplacebridge.laplace.curvature import Curvature, Diag, DiagKron, Kron
from laplacebridge.laplace.features import SplitNetwork, take_apart
from laplacebridge.laplace.posterior import with_constant

# A class factor of K² numbers beyond this many classes costs more than it tells.
LARGEST_KRON = 4000
FEW_EXAMPLES = 256
IGNORED_LABEL = -100  # as in torch's cross-entropy and in Hugging Face token batches


class FitInterrupted(KeyboardInterrupt):
    """A fit was stopped by hand. It holds the sums so far; give it to `fit` as ``curvature`` to go on."""

    def __init__(self, curvature: Curvature | None, log_likelihood: float) -> None:
        super().__init__("the fit was interrupted; give this to `fit` as `curvature` to go on with the other batches")
        self.curvature = curvature
        self.log_likelihood = log_likelihood


class RunningSums:
    """The running sums of a fit.

    Args:
        model: The trained network.
        head: Name of its head, or None to find it.
        curvature: A structure, or sums to go on with, or None for the default.
        progress: Show a progress bar.
    """

    def __init__(
        self,
        model: nn.Module,
        head: str | None,
        curvature: "type[Curvature] | Curvature | FitInterrupted | None",
        progress: bool,
    ) -> None:
        self.model, self.progress = model, progress
        self.network = None if head is None else SplitNetwork(model, head)
        self.log_likelihood: float | None = 0.0
        if isinstance(curvature, FitInterrupted):
            self.log_likelihood, curvature = curvature.log_likelihood, curvature.curvature
        elif isinstance(curvature, Curvature):
            self.log_likelihood = None  # the sums alone do not say what the labels of their examples were
        self.kind = curvature if isinstance(curvature, type) else type(curvature) if curvature else None
        self.curvature = None if isinstance(curvature, type) else curvature
        self.some_features: Tensor | None = None  # of a few examples, to see what a posterior makes of them

    def add(self, batches: Iterable[Any]) -> None:
        """Adds every batch of a loader.

        Args:
            batches: The loader.

        Raises:
            FitInterrupted: If stopped by hand; it holds the sums so far.
        """
        bar = tqdm(batches, desc="fitting", unit="batch", disable=not self.progress)
        try:
            with torch.no_grad():
                for index, batch in enumerate(bar):
                    if index == 0:
                        self._prepare_or_explain(batch)
                    self._add(index, batch)
        except KeyboardInterrupt:
            raise FitInterrupted(self.curvature, self.log_likelihood or 0.0) from None

    def _prepare_or_explain(self, batch: Any) -> None:  # noqa: ANN401
        try:
            self._prepare(batch)
        except (RuntimeError, TypeError) as error:
            parts = take_apart(batch)
            inputs = [*parts.arguments, *parts.keywords.values()]
            given = ", ".join(
                f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                for value in inputs
            )
            raise ValueError(
                f"The model could not run the first batch, whose inputs are {given}: {error}. A batch is (inputs, "
                "labels), a mapping with labels, or inputs alone; are inputs and labels in the right order?"
            ) from error

    def _prepare(self, batch: Any) -> None:  # noqa: ANN401
        if self.network is None:
            self.network = SplitNetwork.find(self.model, batch)
        else:
            self.network.verify(batch)
        num_classes, num_features = self.network.weight().shape
        num_features += self.network.bias() is not None
        if self.kind is None:
            self.kind = Kron if num_classes <= LARGEST_KRON else DiagKron
        require_memory(self.kind, num_features, num_classes)
        if self.progress:
            size = self.kind.num_bytes(num_features, num_classes) / 1e6
            tqdm.write(
                f"laplacebridge: head '{self.network.head_name}', {num_features} features x {num_classes} classes, "
                f"{self.kind.__name__} curvature, {size:.1f} MB"
            )

    def _add(self, index: int, batch: Any) -> None:  # noqa: ANN401
        assert self.network is not None  # noqa: S101  (made in _prepare)
        assert self.kind is not None  # noqa: S101
        parts = take_apart(batch)
        features = self.network.run(parts).features
        labels = None if parts.labels is None else _flat_labels(parts.labels, len(features), index)
        if labels is not None:
            kept = labels != IGNORED_LABEL
            features, labels = features[kept], labels[kept]
        if not features.isfinite().all():
            row = int((~features.isfinite()).any(-1).nonzero()[0])
            raise ValueError(
                f"Batch {index} (counted from 0) gave features that are not finite, first in its row {row}. Nothing of "
                "it was added; look at the inputs of that batch."
            )
        if self.some_features is None:
            self.some_features = features[:FEW_EXAMPLES].clone()
        bias = self.network.bias()
        weight = self.network.weight().double()
        logits = nn.functional.linear(features.double(), weight, None if bias is None else bias.double())
        part = self.kind.of_batch(with_constant(features) if bias is not None else features, logits.softmax(-1))
        self.curvature = part if self.curvature is None else self.curvature + part
        self._add_likelihood(logits, labels, index)

    def _add_likelihood(self, logits: Tensor, labels: Tensor | None, index: int) -> None:
        if labels is None:
            self.log_likelihood = None
        if labels is None or self.log_likelihood is None:
            return
        num_classes = logits.shape[-1]
        if len(labels) and (labels.min() < 0 or labels.max() >= num_classes):
            raise ValueError(
                f"Batch {index} (counted from 0) has labels from {int(labels.min())} to {int(labels.max())}; the model "
                f"has {num_classes} classes, counted from 0. Are inputs and labels in the right order?"
            )
        self.log_likelihood -= float(nn.functional.cross_entropy(logits, labels, reduction="sum"))

    def reduced(self) -> tuple[Curvature, float | None]:
        """Curvature and log-likelihood, summed over all processes if there are several."""
        assert self.curvature is not None  # noqa: S101
        if not distributed.is_distributed():
            return self.curvature, self.log_likelihood
        known = self.log_likelihood is not None
        total = distributed.summed_number(self.log_likelihood if self.log_likelihood is not None else 0.0)
        return distributed.summed(self.curvature), total if known else None


def _flat_labels(labels: Any, rows: int, index: int) -> Tensor:  # noqa: ANN401
    labels = torch.as_tensor(labels)
    if labels.is_floating_point() and labels.dim() > 1:  # one-hot, or soft labels
        labels = labels.flatten(0, -2).argmax(-1)
    labels = labels.flatten().long()
    if len(labels) != rows:
        raise ShapeError(
            f"Batch {index} (counted from 0) has {len(labels)} labels for {rows} predictions. One label per row is "
            "needed, per token or pixel where the model predicts those."
        )
    return labels


def require_memory(kind: type[Curvature], num_features: int, num_classes: int) -> None:
    """Refuses a curvature that cannot fit into memory, before anything is allocated.

    Args:
        kind: The structure.
        num_features: D, with the constant one for a bias.
        num_classes: K.

    Raises:
        ValueError: If it needs more than half of the machine's memory.
    """
    needed = kind.num_bytes(num_features, num_classes)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 16 * 2**30
    if needed > memory / 2:
        raise ValueError(
            f"`{kind.__name__}` needs {needed / 1e9:.1f} GB for {num_features} features and {num_classes} classes, "
            f"more than half of the {memory / 1e9:.0f} GB here. `DiagKron` needs "
            f"{DiagKron.num_bytes(num_features, num_classes) / 1e9:.1f} GB, `Diag` "
            f"{Diag.num_bytes(num_features, num_classes) / 1e9:.1f} GB."
        )


def cached_features(
    network: SplitNetwork, batches: Iterable[Any], *, progress: bool = True
) -> tuple[Float[Tensor, "N D"], Tensor]:
    """Features and labels of a whole loader, computed once.

    Args:
        network: The split network.
        batches: A loader with labels.
        progress: Show a progress bar.

    Raises:
        ValueError: If it yields nothing, or no labels.
    """
    features, labels = [], []
    with torch.no_grad():
        for index, batch in enumerate(tqdm(batches, desc="validating", unit="batch", disable=not progress)):
            parts = take_apart(batch)
            if parts.labels is None:
                raise ValueError(f"Validation needs labels; batch {index} (counted from 0) has inputs alone.")
            rows = network.run(parts).features
            flat = _flat_labels(parts.labels, len(rows), index)
            features.append(rows[flat != IGNORED_LABEL])
            labels.append(flat[flat != IGNORED_LABEL])
    if not features:
        raise ValueError("The `val_loader` yielded no batches. Is it a generator that was used up, or empty?")
    return torch.cat(features), torch.cat(labels)
