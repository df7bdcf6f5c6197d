"""SWAG: a Gaussian over all weights from the path of a training (Maddox and others,
2019).
"""

import copy
import itertools
import math
from collections import deque
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from laplacebridge.covariance.base import standard_normal
from laplacebridge.errors import InputError
from laplacebridge.laplace.batch import unpack_batch
from laplacebridge.laplace.running import eval_mode


class SWAG:
    """Follows a training, and then draws networks from the Gaussian that its weights
    wandered through.

    Train as usual first. Then go on with a constant, rather large learning rate, and
    record after every epoch. The covariance is half the variances of all snapshots, as
    a diagonal, and half the covariance of the last of them, of low rank. If all are
    kept, the variances are exactly those of the snapshots, and correlations are halved.

    Deviations are counted from the mean of all snapshots; the publication counts each
    from the mean at its time.

    Args:
        model: The network in training; it is only read.
        rank: How many of the last snapshots are kept, each as large as the network's
            weights.

    Raises:
        InputError: If fewer than two are to be kept.

    Example:
        >>> model = nn.Linear(4, 3)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> swag = SWAG(model)
        >>> for _ in range(5):
        ...     optimizer.zero_grad()
        ...     nn.functional.cross_entropy(
        ...         model(torch.eye(4)), torch.tensor([0, 1, 2, 0])
        ...     ).backward()
        ...     optimizer.step()
        ...     swag.record()
        >>> swag.sample()(torch.eye(4)).shape
        torch.Size([4, 3])
    """

    def __init__(self, model: nn.Module, *, rank: int = 20) -> None:
        if rank < 2:
            raise InputError(
                f"`SWAG(model, rank)` needs rank ≥ 2 to see any covariance; got {rank}. 20 is"
                " usual."
            )
        self.model = model
        self.num_snapshots = 0
        self._mean = torch.zeros_like(self._weights(), dtype=torch.float64)
        self._squares = torch.zeros_like(self._mean)  # summed squared deviations from the mean
        self._last: deque[Tensor] = deque(maxlen=rank)

    def record(self) -> None:
        """Takes a snapshot of the weights as they are now.

        Raises:
            InputError: If a weight is not finite.
        """
        weights = self._weights()
        if not weights.isfinite().all():
            raise InputError(
                "`record()` needs finite weights; some are NaN or infinite. The training has"
                " diverged: go back to an earlier state and take a smaller learning rate."
            )
        self.num_snapshots += 1
        before = weights - self._mean
        self._mean = self._mean + before / self.num_snapshots
        self._squares = self._squares + before * (
            weights - self._mean
        )  # Welford's: nothing cancels
        self._last.append(weights)

    @property
    def mean(self) -> Float[Tensor, " P"]:
        """Mean of the snapshots: all weights in one row, in the order of `parameters`."""
        self._require_two("mean")
        return self._mean

    @property
    def variance(self) -> Float[Tensor, " P"]:
        """Variance of each weight over the snapshots, unbiased."""
        self._require_two("variance")
        return self._squares / (self.num_snapshots - 1)

    def sample(
        self, generator: Generator | None = None, *, batches: Iterable[Any] | None = None
    ) -> nn.Module:
        """A copy of the network with weights drawn from the Gaussian, in evaluation
        mode.

        Several of them are an ensemble: `ensemble_gaussian`.

        Args:
            generator: Source of randomness.
            batches: Training data, as a loader yields it, that can be walked over again
                and again. A network with BatchNorm needs it, because its running
                statistics belong to the weights they were taken with.

        Raises:
            InputError: If there are fewer than two snapshots, or the network has
                BatchNorm and there are no batches.
        """
        self._require_two("sample()")
        if batches is None and _batch_norms(self.model):
            raise InputError(
                f"`sample()` needs `batches` for {type(self.model).__name__}, which has BatchNorm:"
                " its running statistics belong to other weights. Give the training loader:"
                " `sample(generator, batches=loader)`."
            )
        drawn = copy.deepcopy(self.model).eval()
        place = 0
        weights = self._draw(generator)
        with torch.no_grad():
            for parameter in drawn.parameters():
                parameter.copy_(weights[place : place + parameter.numel()].view_as(parameter))
                place += parameter.numel()
        if batches is not None:
            refresh_batch_norm(drawn, batches)
        return drawn

    def _draw(self, generator: Generator | None) -> Tensor:
        spread = self.variance.sqrt() * standard_normal(
            self._mean, len(self._mean), generator=generator
        )
        along = standard_normal(self._mean, len(self._last), generator=generator) / math.sqrt(
            len(self._last) - 1
        )
        for factor, snapshot in zip(
            along, self._last
        ):  # one by one: all deviations at once are as large as the path
            spread = spread + factor * (snapshot - self._mean)
        return self._mean + spread / math.sqrt(2)

    def _weights(self) -> Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])

    def _require_two(self, what: str) -> None:
        if self.num_snapshots < 2:
            raise InputError(
                f"`{what}` of SWAG needs at least two snapshots to see any spread; got"
                f" {self.num_snapshots}. Call `record()` after every epoch of the training."
            )


def refresh_batch_norm(model: nn.Module, batches: Iterable[Any]) -> None:
    """Takes the running statistics of BatchNorm anew, as averages over all batches.

    Needed wherever weights were not those that the statistics were taken with: drawn,
    or averaged. Everything else, dropout included, is in evaluation mode meanwhile, and
    every module is left in the mode it was in. A network without BatchNorm is left
    alone.

    Args:
        model: The network, whose statistics are changed.
        batches: Training data, as a loader yields it.

    Raises:
        InputError: If there are none.

    Example:
        >>> model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 3))
        >>> refresh_batch_norm(
        ...     model,
        ...     [torch.tensor([[1.0, 2.0], [3.0, 6.0]]), torch.tensor([[5.0, 0.0], [7.0, 4.0]])],
        ... )
        >>> model[0].running_mean
        tensor([4., 3.])
    """
    layers = _batch_norms(model)
    if not layers:
        return
    remaining = iter(batches)
    first = list(itertools.islice(remaining, 1))
    if not first:
        raise InputError(
            "`refresh_batch_norm(model, batches)` needs at least one batch; got none. A generator"
            " is used up after one pass: give a list or a loader."
        )
    before = [(layer, layer.momentum, layer.training) for layer in layers]
    try:
        with eval_mode(model), torch.no_grad():
            for layer in layers:
                layer.reset_running_stats()
                layer.momentum = None  # every batch counts the same
                layer.training = True
            for batch in itertools.chain(first, remaining):
                parts = unpack_batch(batch)
                model(*parts.arguments, **parts.keywords)
    finally:
        for layer, momentum, training in before:
            layer.momentum, layer.training = momentum, training


def _batch_norms(model: nn.Module) -> list[_BatchNorm]:
    return [
        layer
        for layer in model.modules()
        if isinstance(layer, _BatchNorm) and layer.track_running_stats
    ]
