"""Linear maps in other clothes: what a module that is no `nn.Linear` does to features,
if that is a linear map.

A head with an adapter (LoRA) adds two linear maps; a class of one's own may call
`F.linear` itself. Both are linear maps of their input, and a linear map is known by
what it makes of the unit vectors.
"""

import copy
from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from laplacebridge import _blocks
from laplacebridge.laplace.batch import Batch, Output, logits_of
from laplacebridge.laplace.head_pass import Seen
from laplacebridge.laplace.running import eval_mode, watched


class Affine(NamedTuple):
    """x ↦ Wx + b.

    Attributes:
        weight: W.
        bias: b, or None if there is none.
    """

    weight: Float[Tensor, "K D"]
    bias: Float[Tensor, " K"] | None


def is_linear(module: nn.Module) -> bool:
    """Whether a module is a linear layer, or a convolution with a kernel of one pixel.

    Args:
        module: The module.
    """
    if isinstance(module, nn.Linear):
        return True
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return (
        isinstance(module, kinds)
        and all(size == 1 for size in module.kernel_size)
        and module.groups == 1
    )


def linear_layers(model: nn.Module) -> Mapping[str, nn.Module]:
    """The linear layers of a network by name.

    Args:
        model: The network.
    """
    return {name: module for name, module in model.named_modules() if is_linear(module)}


def affine_map(module: nn.Module, num_features: int) -> Affine | None:
    """What a module does to rows of features, if it is a linear map; None if it cannot
    be run on them. Whether it is linear must be seen by other rows.

    Args:
        module: The module; it is not changed.
        num_features: D.
    """
    found = next(module.parameters(), None)
    if found is None:
        return None
    with torch.no_grad():
        try:
            # in float64, so that taking the bias away leaves all digits of the weights
            exact = copy.deepcopy(module).double()
            with eval_mode(exact):
                unit = torch.eye(num_features, dtype=torch.float64, device=found.device)
                offset = exact(torch.zeros_like(unit[:1]))
                rows = max(1, _blocks.ELEMENTS_AT_ONCE // offset.numel())
                parts = [exact(some) - offset for some in torch.split(unit, rows)]
            weight, bias = torch.cat(parts).T.contiguous(), offset[0]
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
            return None  # it takes something else
    if weight.dim() != 2 or bias.dim() != 1:
        return None
    # a bias of zeros is a weight as well
    has_bias = bias.any() or any(name.endswith("bias") for name, _ in module.named_parameters())
    return Affine(weight.to(found.dtype), bias.to(found.dtype) if has_bias else None)


def possible_maps(
    model: nn.Module, batch: Batch, where: Output | None
) -> tuple[list[Seen], Tensor]:
    """Modules that may be the linear map which gives a network's logits, by the shapes
    of what they took and gave, the innermost first; and these logits.

    Args:
        model: The network.
        batch: Inputs of the network.
        where: Where the logits are in what it returns.
    """
    modules = {name: part for name, part in model.named_modules() if not is_linear(part)}
    last: dict[str, Seen] = {}

    def note(name: str, features: Tensor, logits: Tensor) -> None:
        last[name] = Seen(name, features, logits)

    with torch.no_grad(), watched(model, modules, note):
        found = logits_of(model(*batch.arguments, **batch.keywords), where)
    ran = [last[name] for name in reversed(modules) if name in last]
    return [
        seen
        for seen in ran
        if seen.features.is_floating_point()
        and seen.features.dim() >= 2
        and seen.logits.shape[:-1] == seen.features.shape[:-1]
        and seen.logits.shape[-1] == found.shape[-1]
    ], found
