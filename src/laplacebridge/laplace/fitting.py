"""Fitting: one pass over a loader that adds up a curvature and the likelihood of the
labels.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from laplacebridge.errors import InputError
from laplacebridge.laplace import distributed
from laplacebridge.laplace.batch import unpack_batch, unpack_weighted_batch
from laplacebridge.laplace.batch_checks import explain_failure, is_empty
from laplacebridge.laplace.curvature import Curvature
from laplacebridge.laplace.feature_statistics import FeatureStatistics
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.interrupted import FitInterrupted, LoaderError
from laplacebridge.laplace.label_checks import (
    require_columns,
    require_known_classes,
)
from laplacebridge.laplace.label_statistics import LabelStatistics
from laplacebridge.laplace.loss import PLAIN, Loss
from laplacebridge.laplace.memory import are_affordable
from laplacebridge.laplace.network import Network
from laplacebridge.laplace.posterior import Posterior
from laplacebridge.laplace.sums import Sums


class RunningSums(ABC):
    """The running sums of a fit. A subclass says what it is that is fitted.

    Args:
        model: The trained network.
        curvature: A structure, or None for the default.
        resume: What an interrupted fit raised, or its sums, to go on with.
        progress: Show a progress bar.
        feature_statistics: Whether to sum features too, for the score of unusual
            inputs; None to do so where they take little.
        loss: What the network was trained with.

    Raises:
        InputError: If weights of classes are given, and sums without their labels.
    """

    network: Network | None

    def __init__(
        self,
        model: nn.Module,
        curvature: type[Curvature] | None,
        resume: "FitInterrupted | Sums | None",
        progress: bool,
        feature_statistics: bool | None = None,
        loss: Loss = PLAIN,
    ) -> None:
        self.model = model
        self.progress = progress
        self.loss = loss
        if loss.class_weight is not None and isinstance(resume, Sums):
            raise InputError(
                "`fit(class_weight=..., resume=...)` needs what the interrupted fit raised: its"
                " sums alone do not say how many examples each class had."
            )
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

    def add(self, batches: Iterable[Any], others: distributed.Others | None = None) -> None:
        """Adds every batch of a loader.

        Args:
            batches: The loader.
            others: The processes that fit together with this one; none if not given.

        Raises:
            FitInterrupted: If stopped by hand; it holds the sums so far.
        """
        bar = tqdm(batches, desc="fitting", unit="batch", disable=not self.progress)
        prepared = False
        try:
            with torch.no_grad():
                for index, batch in enumerate(self._guarded(bar)):
                    if others is not None:
                        others.require_well()
                    if self.loss.sample_weights:
                        batch = unpack_weighted_batch(batch)
                    if is_empty(batch):
                        continue
                    if not prepared:
                        with explain_failure(self.model, batch):
                            self._prepare(batch)
                        prepared = True
                    self._add(index, batch)
                    if self.labels is not None:
                        given = unpack_batch(batch).labels
                        require_columns(given, self._num_classes(), index)
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

    def _weights(
        self, labels: Tensor | None, given: Tensor | None, num_classes: int, index: int
    ) -> Tensor | None:
        """What each example counts; None for ones.

        Raises:
            InputError: If classes have weights, and examples no labels.
        """
        self.loss.require_classes(num_classes)
        if labels is not None:
            require_known_classes(labels, num_classes, index)
            return self.loss.weights(labels, given)
        if self.loss.class_weight is not None:
            raise InputError(
                f"`fit(class_weight)` needs labels; batch {index} (counted from 0) has inputs"
                " alone."
            )
        return given

    def _add_labels(
        self, logits: Tensor, labels: Tensor | None, given: Tensor | None = None
    ) -> None:
        if labels is None:
            self.has_all_labels = False
            return
        part = LabelStatistics.of_batch(logits, labels, self.loss, given)
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
            getattr(self.network, "scale", 1.0),  # which only a head has
            self.network.shift_labels,
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
        """Sums over features, if there are any; over all processes if there are
        several.
        """
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
