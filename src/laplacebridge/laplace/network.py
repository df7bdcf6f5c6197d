"""What a posterior needs of a trained network, whichever weights it covers."""

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

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
