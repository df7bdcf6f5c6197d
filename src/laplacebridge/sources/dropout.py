"""MC dropout: the dropout of training stays on, and repeated passes disagree (Gal and
Ghahramani, 2016).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Generator, nn

from laplacebridge.errors import InputError
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.running import with_own_modes
from laplacebridge.sources.ensemble import batch_logits

DROPOUT_LAYERS: tuple[type[nn.Module], ...] = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)


def dropout_gaussian(
    model: nn.Module,
    batch: Any,  # noqa: ANN401  (loaders yield anything)
    *,
    num_samples: int = 50,
    layers: tuple[type[nn.Module], ...] = DROPOUT_LAYERS,
    generator: Generator | None = None,
) -> LogitGaussian:
    """Mean and covariance of the logits over passes with other units dropped.

    Only the dropout layers are in training mode: BatchNorm and all others evaluate.
    No module's mode is changed, and the global random state is as it was afterwards.

    Args:
        model: A network trained with dropout.
        batch: As a loader yields it: inputs, (inputs, labels), or a mapping.
        num_samples: How many passes, S.
        layers: Types of layers that drop at random while in training mode. Dropout that
            a layer of another type does within itself, as attention and recurrent
            layers do, stays off unless the type is named here.
        generator: Source of randomness; None takes one number from torch's global
            state, as a seed.

    Raises:
        InputError: If the network has no such layers, or fewer than two passes are
            asked for.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        >>> dropout_gaussian(
        ...     model, torch.ones(2, 4), generator=torch.Generator().manual_seed(0)
        ... ).mean.shape
        torch.Size([2, 3])
    """
    call = "dropout_gaussian(model, batch)"
    if num_samples < 2:
        raise InputError(
            f"`{call}` needs num_samples ≥ 2 to see any spread; got {num_samples}. 50 is the"
            " default."
        )
    evaluating = with_own_modes(model).eval()
    dropping = [
        module
        for module in evaluating.modules()
        if isinstance(module, layers) and getattr(module, "p", 1.0) > 0
    ]
    if not dropping:
        raise InputError(
            f"`{call}` needs a network with dropout; {type(model).__name__} has no layer with p > 0"
            f" among {', '.join(layer.__name__ for layer in layers)}. Name other layers that drop"
            " at random as `layers=(DropPath,)`; for a network without any use `lb.fit` or"
            " `ensemble_gaussian`."
        )
    for module in dropping:
        module.training = True  # this layer alone: `train()` would take its children along
    with _own_randomness(generator):
        samples = [batch_logits(call, evaluating, batch) for _ in range(num_samples)]
    return LogitGaussian.from_samples(torch.stack(samples))


@contextmanager
def _own_randomness(generator: Generator | None) -> Iterator[None]:
    """Dropout draws from the global state only, which is seeded for a while and then
    put back.
    """
    device = None if generator is None else generator.device
    seed = int(torch.randint(2**63 - 1, (), generator=generator, device=device))
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
