"""Fitting: one pass over a loader that adds up a curvature and the likelihood of the
labels.
"""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from laplacebridge._blocks import without_autocast
from laplacebridge.errors import InputError, LaplaceBridgeError
from laplacebridge.laplace import distributed
from laplacebridge.laplace.batch import unpack_batch
from laplacebridge.laplace.batch_checks import (
    IGNORED_LABEL,
    explain_failure,
    flat_labels,
    is_empty,
    require_columns,
    require_finite,
    require_known_classes,
)
from laplacebridge.laplace.curvature import Curvature, Diag, DiagKron, Kron, Sums, readable_size
from laplacebridge.laplace.feature_statistics import FeatureStatistics
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.head_posteriors import POSTERIORS
from laplacebridge.laplace.label_statistics import LabelStatistics
from laplacebridge.laplace.network import Network
from laplacebridge.laplace.posterior import Posterior, with_constant

# A class factor of K² numbers beyond this many classes costs more than it tells.
LARGEST_KRON = 4000
FEW_EXAMPLES = 256
# Bytes of sums over features that are made without being asked for: 5,000 features.
LARGEST_STATISTICS = 2**29


class FitInterrupted(KeyboardInterrupt):
    """A fit was stopped by hand. It holds the sums so far; give it to `fit` as
    ``resume`` to go on.

    Example:
        >>> from laplacebridge import fit
        >>> def stopped_after_one():
        ...     yield torch.eye(4)
        ...     raise KeyboardInterrupt
        >>> model = nn.Linear(4, 3)
        >>> try:
        ...     fit(model, stopped_after_one(), progress=False)
        ... except FitInterrupted as stopped:
        ...     interrupted = stopped
        >>> interrupted.curvature.num_examples
        tensor(4., dtype=torch.float64)
        >>> classifier = fit(model, [2 * torch.eye(4)], resume=interrupted, prior_precision=1.0, progress=False)
    """

    def __init__(
        self,
        curvature: Sums | None,
        labels: LabelStatistics | None,
        features: FeatureStatistics | None = None,
    ) -> None:
        super().__init__(
            "the fit was interrupted; give this to `fit` as `resume` to go on with the other"
            " batches"
        )
        self.curvature = curvature
        self.labels = labels
        self.features = features


class LoaderError(LaplaceBridgeError, RuntimeError):
    """The loader failed in the middle of a fit. It holds the sums so far; give it to
    `fit` as ``resume`` to go on with the other batches. Its cause is the loader's error.
    """

    def __init__(
        self,
        error: Exception,
        num_batches: int,
        curvature: Sums,
        labels: LabelStatistics | None,
        features: FeatureStatistics | None = None,
    ) -> None:
        super().__init__(
            f"The loader failed after {num_batches} batches: {type(error).__name__}: {error}. What"
            " was added up is kept: catch this error and give it to `fit` as `resume`, with the"
            " batches that are left."
        )
        self.curvature = curvature
        self.labels = labels
        self.features = features


class RunningSums(ABC):
    """The running sums of a fit. A subclass says what it is that is fitted.

    Args:
        model: The trained network.
        curvature: A structure, or None for the default.
        resume: What an interrupted fit raised, or its sums, to go on with.
        progress: Show a progress bar.
        feature_statistics: Whether to sum features too, for the score of unusual
            inputs; None to do so where they take little.
    """

    network: Network | None

    def __init__(
        self,
        model: nn.Module,
        curvature: type[Curvature] | None,
        resume: "FitInterrupted | Sums | None",
        progress: bool,
        feature_statistics: bool | None = None,
    ) -> None:
        self.model = model
        self.progress = progress
        self.kind = curvature
        self.curvature: Sums | None = (
            resume.curvature if isinstance(resume, FitInterrupted) else resume
        )
        self.labels: LabelStatistics | None = (
            resume.labels if isinstance(resume, FitInterrupted) else None
        )
        self.features: FeatureStatistics | None = (
            resume.features if isinstance(resume, FitInterrupted) else None
        )
        earlier = resume is not None and self.curvature is not None
        # what was not summed before cannot be added to
        self.sums_features = False if earlier and self.features is None else feature_statistics
        self.has_all_labels = True  # whether every batch had labels
        self.has_all_likelihoods = not isinstance(
            resume, Sums
        )  # sums alone do not say what their labels were
        self.some_features: Any = None  # of a few examples, to see what a posterior makes of them

    @abstractmethod
    def _prepare(self, batch: Any) -> None:  # noqa: ANN401
        """Makes sure that the model can be fitted, with its first batch."""

    @abstractmethod
    def _add(self, index: int, batch: Any) -> None:  # noqa: ANN401
        """Adds one batch."""

    @abstractmethod
    def posterior(
        self, curvature: Sums, prior_precision: float, kind: type[Posterior] | None
    ) -> Posterior:
        """The posterior that some sums give.

        Args:
            curvature: The sums.
            prior_precision: τ > 0.
            kind: Another posterior than the usual one of that curvature.
        """

    def add(self, batches: Iterable[Any]) -> None:
        """Adds every batch of a loader.

        Args:
            batches: The loader.

        Raises:
            FitInterrupted: If stopped by hand; it holds the sums so far.
        """
        bar = tqdm(batches, desc="fitting", unit="batch", disable=not self.progress)
        prepared = False
        try:
            with torch.no_grad():
                for index, batch in enumerate(self._guarded(bar)):
                    if is_empty(batch):
                        continue
                    if not prepared:
                        with explain_failure(self.model, batch):
                            self._prepare(batch)
                        prepared = True
                    self._add(index, batch)
                    if self.labels is not None:
                        given = unpack_batch(batch).labels
                        require_columns(given, len(self.labels.class_counts), index)
        except KeyboardInterrupt:
            raise FitInterrupted(self.curvature, self.labels, self.features) from None

    def _add_features(self, features: Tensor, logits: Tensor, labels: Tensor | None) -> None:
        if self.sums_features is None:
            self.sums_features = are_affordable(features.shape[1], logits.shape[1])
        if self.sums_features:
            part = FeatureStatistics.of_batch(features, logits, labels)
            self.features = part if self.features is None else self.features + part  # type: ignore[assignment]

    def _guarded(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches; an error of the loader itself keeps the sums.

        Raises:
            LoaderError: If the loader fails after something was added.
        """
        iterator, count = iter(batches), 0
        while True:
            try:
                batch = next(iterator)
            except StopIteration:
                return
            except Exception as error:
                if self.curvature is None:
                    raise
                raise LoaderError(
                    error, count, self.curvature, self.labels, self.features
                ) from error
            count += 1
            yield batch

    def _add_labels(self, logits: Tensor, labels: Tensor | None, index: int) -> None:
        if labels is None:
            self.has_all_labels = False
            return
        require_known_classes(labels, logits.shape[-1], index)
        part = LabelStatistics.of_batch(logits, labels)
        self.labels = part if self.labels is None else self.labels + part

    def agree(self) -> None:
        """Makes the sums of several processes ones that add: a process without examples
        has sums over none, and labels count if every example of every process has them.
        """
        if not distributed.is_distributed():
            return
        common = distributed.common_shard(self._shard())
        if common is None:
            return
        with distributed.same_fate("take part without examples"):
            if self.curvature is None:
                self._take_part(common)
        self.has_all_labels = common.has_labels
        self.has_all_likelihoods = common.has_likelihood
        if self.labels is None and common.has_labels:
            self.labels = LabelStatistics.of_none(common.num_classes)

    def _shard(self) -> distributed.Shard | None:
        if self.network is None or self.curvature is None:
            return None
        has_labels = self.labels is not None and self.has_all_labels
        return distributed.Shard(
            self.network.covered(),
            self.curvature.to("meta"),
            self._num_classes(),
            has_labels,
            self.has_all_likelihoods
            and (self.labels is None or self.labels.log_likelihood is not None),
        )

    @abstractmethod
    def _num_classes(self) -> int:
        """K, once a batch was seen."""

    def _take_part(self, common: distributed.Shard) -> None:
        """Sums over no examples, like those of the other processes."""
        assert self.network is not None  # noqa: S101
        self.curvature = common.layout.with_tensors(
            {
                name: torch.zeros_like(tensor, device=self.network.device)
                for name, tensor in common.layout.tensors().items()
            }
        )

    def reduced(self) -> tuple[Sums, LabelStatistics | None]:
        """Curvature, and what the labels said if all examples had them; over all
        processes if there are several.
        """
        assert self.curvature is not None  # noqa: S101
        labels = self.labels if self.has_all_labels else None
        if labels is not None and not self.has_all_likelihoods:
            labels = replace(labels, log_likelihood=None)
        if not distributed.is_distributed():
            return self.curvature, labels
        device = self.curvature.num_examples.device
        return distributed.summed(self.curvature), (
            None if labels is None else distributed.summed_labels(labels, device)
        )

    def reduced_features(self) -> FeatureStatistics | None:
        """Sums over features, if there are any; over all processes if there are several."""
        if not distributed.is_distributed():
            return self.features
        assert self.curvature is not None  # noqa: S101
        shape = None if self.features is None else tuple(self.features.class_sums.shape)
        has_examples = float(self.curvature.num_examples) > 0
        head = None if self.head_network is None else self.head_network.head_name
        shards = distributed.gathered((shape, has_examples, head))
        shapes = {shape for shape, has_examples, _ in shards if has_examples}
        if None in shapes or not shapes:  # some examples were not summed
            return None
        features = self.features
        if features is None:
            self._know_head(next(name for *_, name in shards if name is not None))
            ((num_classes, num_features),) = shapes
            none = torch.zeros(0, num_features, device=self.curvature.num_examples.device)
            features = FeatureStatistics.of_batch(none, none.new_zeros(0, num_classes))
        return distributed.summed(features)  # type: ignore[return-value]

    def _know_head(self, name: str) -> None:  # noqa: B027  (that of a head is known already)
        """Learns the name of the head from a process that saw it."""

    @property
    @abstractmethod
    def head_network(self) -> HeadNetwork | None:
        """The network split at its head, where features are; None if it has none."""


class HeadSums(RunningSums):
    """The running sums of a fit of the head.

    Args:
        model: The trained network.
        head: Name of its head, or None to find it.
        curvature: A structure, or None for the default.
        resume: What an interrupted fit raised, or its sums, to go on with.
        progress: Show a progress bar.
        feature_statistics: As for `RunningSums`.
    """

    network: HeadNetwork | None

    def __init__(
        self,
        model: nn.Module,
        head: str | None,
        curvature: type[Curvature] | None,
        resume: FitInterrupted | Sums | None,
        progress: bool,
        feature_statistics: bool | None = None,
    ) -> None:
        super().__init__(model, curvature, resume, progress, feature_statistics)
        self.network = None if head is None else HeadNetwork(model, head)
        if self.kind is None and isinstance(self.curvature, Curvature):
            self.kind = type(self.curvature)

    def _prepare(self, batch: Any) -> None:  # noqa: ANN401
        if self.network is None:
            self.network = HeadNetwork.find(self.model, batch)
        else:
            self.network.verify(batch)
        num_classes = len(self.network.weight())
        num_inputs = self.network.num_features + (self.network.bias() is not None)
        if self.kind is None:
            self.kind = Kron if num_classes <= LARGEST_KRON else DiagKron
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
        assert self.kind is not None  # noqa: S101
        parts = unpack_batch(batch)
        passed = self.network.run(parts)
        features, logits = passed.features, self.network.exact_logits(passed)
        labels = None if parts.labels is None else flat_labels(parts.labels, len(features), index)
        if labels is not None:
            kept = labels != IGNORED_LABEL
            features, logits, labels = features[kept], logits[kept], labels[kept]
            if not len(features):
                return
        require_finite(features, "features", index, parts)
        require_finite(logits, "logits", index, parts)
        if self.some_features is None:
            self.some_features = features[:FEW_EXAMPLES].clone()
        inputs = features if self.network.bias() is None else with_constant(features)
        with without_autocast(inputs.device):
            part = self.kind.of_batch(inputs, logits.softmax(-1))
        self.curvature = part if self.curvature is None else self.curvature + part
        self._add_labels(logits, labels, index)
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
            self.network = HeadNetwork(self.model, common.covered["head"])
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


def require_memory(kind: type[Curvature], num_features: int, num_classes: int) -> None:
    """Refuses a curvature that cannot fit into memory, before anything is allocated.

    Args:
        kind: The structure.
        num_features: D, with the constant one for a bias.
        num_classes: K.

    Raises:
        InputError: If it needs more than half of the machine's memory.
    """
    needed = kind.num_bytes(num_features, num_classes)
    memory = machine_memory()
    if needed > memory / 2:
        raise InputError(
            f"`{kind.__name__}` needs {needed / 1e9:.1f} GB for {num_features} features and"
            f" {num_classes} classes, more than half of the {memory / 1e9:.0f} GB here. `DiagKron`"
            f" needs {DiagKron.num_bytes(num_features, num_classes) / 1e9:.1f} GB, `Diag`"
            f" {Diag.num_bytes(num_features, num_classes) / 1e9:.1f} GB."
        )


def are_affordable(num_features: int, num_classes: int) -> bool:
    """Whether sums over features are made without being asked for: they hold the class
    means, and a class factor's limit holds for them too.

    Args:
        num_features: D.
        num_classes: K.
    """
    needed = FeatureStatistics.num_bytes(num_features, num_classes)
    return num_classes <= LARGEST_KRON and needed <= LARGEST_STATISTICS


def machine_memory() -> int:
    """How many bytes of memory this machine has."""
    return (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if hasattr(os, "sysconf")
        else 16 * 2**30
    )
