"""Fitting several labels at once: the running sums, and held-out examples."""

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from tqdm import tqdm

from laplacebridge._blocks import without_autocast
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.laplace.batch import Batch, unpack_batch
from laplacebridge.laplace.batch_checks import RIGHT_ORDER, explain_failure, require_finite
from laplacebridge.laplace.curvature import Curvature, DiagKron
from laplacebridge.laplace.examples import Examples
from laplacebridge.laplace.feature_statistics import joint_logit
from laplacebridge.laplace.head_fitting import HeadSums
from laplacebridge.laplace.head_posteriors.base import HeadPosterior, with_constant
from laplacebridge.laplace.head_posteriors.label_blocks import LabelBlocks
from laplacebridge.laplace.head_search import find_head
from laplacebridge.laplace.interrupted import FitInterrupted
from laplacebridge.laplace.label_statistics import LabelStatistics
from laplacebridge.laplace.loss import Loss
from laplacebridge.laplace.network import Network
from laplacebridge.laplace.posterior import Posterior
from laplacebridge.laplace.sums import Sums

# Blocks of all labels beyond this many bytes give way to one feature factor for all.
LARGEST_BLOCKS = 2**28


class MultiLabelSums(HeadSums):
    """The running sums of a fit of the head, with a sigmoid for each label.

    Args:
        model: The trained network.
        head: Name of its head, or None to find it.
        curvature: `LabelBlocks`, `DiagKron` or `Diag`, or None for the first of them
            that takes little.
        resume: What an interrupted fit raised, or its sums, to go on with.
        progress: Show a progress bar.
        feature_statistics: As for `RunningSums`.
        loss: What the network was trained with.
    """

    def __init__(
        self,
        model: nn.Module,
        head: str | None,
        curvature: type[Curvature] | None,
        resume: FitInterrupted | Sums | None,
        progress: bool,
        feature_statistics: bool | None,
        loss: Loss,
    ) -> None:
        super().__init__(model, head, curvature, resume, progress, feature_statistics, loss)
        if self.network is not None:
            self.network.may_end_in_sigmoid = True

    def _prepare(self, batch: Any) -> None:  # noqa: ANN401
        if self.network is None:
            self.network = find_head(self.model, batch, may_end_in_sigmoid=True, output=self.output)
        if self.network.is_binary:
            raise InputError(
                "`fit(multi_label=True)` is for several labels; the head has a single logit, which"
                " is one yes-or-no question. Leave out `multi_label`."
            )
        if self.kind is None:
            num_inputs = self.network.num_features + (self.network.bias() is not None)
            needed = LabelBlocks.num_bytes(num_inputs, self._num_classes())
            self.kind = LabelBlocks if needed <= LARGEST_BLOCKS else DiagKron
        super()._prepare(batch)

    def _labels(self, parts: Batch, num_rows: int, index: int) -> Tensor:
        return multi_hot_labels(parts.labels, num_rows, self._num_classes(), index)

    def _weights(
        self, labels: Tensor | None, given: Tensor | None, num_classes: int, index: int
    ) -> Tensor | None:
        self.loss.require_classes(num_classes)
        if labels is None and self.loss.class_weight is not None:
            return super()._weights(labels, given, num_classes, index)
        return given

    def _add_rows(
        self,
        features: Tensor,
        logits: Tensor,
        labels: Tensor | None,
        given: Tensor | None,
        weights: Tensor | None,
    ) -> None:
        assert self.network is not None  # noqa: S101
        assert self.kind is not None  # noqa: S101
        inputs = features if self.network.bias() is None else with_constant(features)
        curvatures, log_likelihood = self.loss.of_labels(logits, labels, given)
        with without_autocast(inputs.device):
            part = self.kind.of_labels(inputs, curvatures, weights)
            self._add_features(features, joint_logit(logits), None)
        self.curvature = part if self.curvature is None else self.curvature + part
        if labels is None or log_likelihood is None:
            self.has_all_labels = False
            return
        statistics = statistics_of_labels(logits, labels, log_likelihood)
        self.labels = statistics if self.labels is None else self.labels + statistics

    def posterior(
        self, curvature: Sums, prior_precision: float, kind: type[Posterior] | None
    ) -> Posterior:
        """The posterior of the head, whose Gaussians are of each label by itself.

        Args:
            curvature: The sums.
            prior_precision: τ > 0.
            kind: Another posterior than the usual one of that curvature.
        """
        found = super().posterior(curvature, prior_precision, kind)
        assert isinstance(found, HeadPosterior)  # noqa: S101
        return found.of_labels()


def multi_hot_labels(
    labels: Any,  # noqa: ANN401
    num_rows: int,
    num_labels: int,
    index: int,
) -> Float[Tensor, "N K"]:
    """A one or a zero, or a share, for every label of every example.

    Args:
        labels: As a loader yields them.
        num_rows: How many examples there are.
        num_labels: K.
        index: Of the batch.

    Raises:
        ShapeError: If they are of another shape.
        InputError: If they are not between zero and one; a row of −100 is left out.
    """
    here = f"Batch {index} (counted from 0) has"
    given = torch.as_tensor(labels)
    if given.dim() < 2 or given.shape[-1] != num_labels or given[..., 0].numel() != num_rows:
        raise ShapeError(
            f"{here} labels of shape {tuple(given.shape)}; `multi_label=True` needs a one or a zero"
            f" for each of {num_labels} labels of {num_rows} examples. {RIGHT_ORDER}"
        )
    values = given.double().flatten(0, -2)
    ignored = (values == -100).all(-1)
    if not ((values >= 0) & (values <= 1)).all(-1).logical_or(ignored).all():
        raise InputError(
            f"{here} labels from {float(values.min()):g} to {float(values.max()):g}; of several"
            " labels at once each is one or zero."
        )
    return values


def statistics_of_labels(
    logits: Float[Tensor, "N K"], labels: Float[Tensor, "N K"], log_likelihood: float | None = None
) -> LabelStatistics:
    """What labels say about the network, each as a question with two answers.

    Args:
        logits: In float64.
        labels: Ones and zeros; shares count as the nearer of them.
        log_likelihood: Minus the loss; of plain labels by default.
    """
    statistics = LabelStatistics.of_batch(two_classes(logits), answers_of(labels))
    if log_likelihood is None:
        return statistics
    return LabelStatistics(
        log_likelihood,
        statistics.num_correct,
        statistics.class_counts,
        statistics.squared_error,
        statistics.fourth_power,
    )


def two_classes(logits: Float[Tensor, "N K"]) -> Float[Tensor, "M 2"]:
    """Each logit z as the two logits (−z/2, z/2), labels of an example one after
    another.

    Args:
        logits: Of all labels.
    """
    flat = logits.reshape(-1, 1) / 2
    return torch.cat([-flat, flat], -1)


def answers_of(labels: Float[Tensor, "N K"]) -> Int[Tensor, " M"]:
    """No or yes, for labels in the same order.

    Args:
        labels: Ones and zeros, or shares.
    """
    return (labels > 0.5).long().flatten()


def held_out_labels(
    network: Network, loader: Iterable[Any], num_labels: int, progress: str
) -> Examples:
    """Held-out examples, with an answer to every label of each.

    Args:
        network: The network.
        loader: Batches with labels.
        num_labels: K.
        progress: What to write before a progress bar; an empty string for no bar.

    Raises:
        InputError: If labels are missing.
        ShapeError: If there are no batches.
    """
    features, labels = [], []
    bar = tqdm(loader, desc=progress, unit="batch", disable=not progress)
    with torch.no_grad():
        for index, batch in enumerate(bar):
            parts = unpack_batch(batch)
            if parts.labels is None:
                raise InputError(
                    f"Validation needs labels; batch {index} (counted from 0) has inputs alone."
                )
            with explain_failure(network.model, batch) if index == 0 else nullcontext():
                rows = network(*parts.arguments, **parts.keywords)
            require_finite(rows, "features", index, parts)
            given = multi_hot_labels(parts.labels, len(rows), num_labels, index).to(rows.device)
            kept = given[:, 0] >= 0
            features.append(rows[kept])
            labels.append(answers_of(given[kept]))
    if not features or not any(map(len, features)):
        raise ShapeError(
            "Validation needs at least one example with labels; the loader yielded none. Is it"
            " used up, or empty?"
        )
    return Examples(network.join(features), torch.cat(labels))
