"""What a posterior needs of a trained network, whichever weights it covers."""

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from laplacebridge.laplace.alignment import require_unshifted, shifted
from laplacebridge.laplace.batch import Batch


class Network(nn.Module):
    """A trained network, seen from the posterior over some of its weights. The network
    is not changed.

    Args:
        model: The network.
    """

    runs_backward = False  # whether a prediction needs gradients, which cannot be compiled

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.shift_labels = False  # whether labels are of the next token

    def aligned(self, batch: Batch) -> Any:  # noqa: ANN401
        """Labels where their logits are.

        Args:
            batch: As a loader yields it, taken apart.
        """
        labels = batch.labels
        if not self.shift_labels or not isinstance(labels, Tensor) or labels.dim() != 2:
            return labels
        require_unshifted(self.model, batch)
        return shifted(labels)

    def row_shape(self, batch: Batch, rows: int) -> tuple[int, int] | None:
        """(B, T) if rows are T tokens of B texts; None if each is an example by itself.

        Args:
            batch: Inputs of the network.
            rows: How many predictions they give.
        """
        return None

    @abstractmethod
    def forward(self, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        """What the network makes of inputs: what can be kept, joined and given to a
        posterior.
        """

    @abstractmethod
    def for_posterior(self, batch: Batch) -> tuple[Any, ...]:
        """What the posterior takes, from inputs: the same as `forward`, and logits
        where they are known already.
        """

    @abstractmethod
    def join(self, parts: Sequence[Any]) -> Any:  # noqa: ANN401
        """What `forward` gave for several batches, as for one."""

    @property
    @abstractmethod
    def num_features(self) -> int:
        """How many features the last layer that is covered takes."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where these weights are."""

    @abstractmethod
    def described(self) -> str:
        """What a posterior covers, in a few words."""

    @abstractmethod
    def covered(self) -> dict[str, Any]:
        """What a posterior covers, for programs."""

    @abstractmethod
    def metadata(self) -> dict[str, str]:
        """What a saved classifier says about the network that it was fitted to."""


# What DataParallel, DistributedDataParallel and `torch.compile` put before names.
_WRAPPERS = {"module", "_orig_mod"}


def name_in(model: nn.Module, name: str) -> str:
    """The name under which a model has a module, whatever wraps the one or the other.

    Args:
        model: The network.
        name: What the module was called in another one.

    Example:
        >>> plain = nn.Sequential(nn.Linear(2, 2))
        >>> name_in(plain, "module.0"), name_in(nn.DataParallel(plain), "0")
        ('0', 'module.0')
    """
    names = [found for found, _ in model.named_modules()]
    if name in names:
        return name
    return next((found for found in names if unwrapped(found) == unwrapped(name)), name)


def unwrapped(name: str) -> str:
    """A name without what wrappers put into it.

    Args:
        name: Of a module, a parameter or a buffer.
    """
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def fingerprint(*tensors: Tensor | None) -> str:
    """A hash of weights, the same on every device and in float32 and float64.

    Args:
        tensors: The weights; None for a layer without a bias.
    """
    digest = hashlib.sha256()
    for tensor in tensors:
        if tensor is not None:
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.detach().cpu().to(torch.float32).contiguous().numpy())  # type: ignore[arg-type]
    return digest.hexdigest()


def network_fingerprint(model: nn.Module) -> str:
    """A hash of all weights and buffers that a network would save, under any names.

    Args:
        model: The network.
    """
    held = model.state_dict().values()
    return fingerprint(*(tensor for tensor in held if isinstance(tensor, Tensor)))
