"""Parameter layers: linear layers and convolutions, each seen as one matrix product at
every position of its output.

A convolution multiplies its weights with a patch of its input at each of R positions; a
linear layer does so with its input, once (R = 1) or for each token. So what a weight
does to the logits is a product of what the layer takes in there and of what the logits
change by with what it gives out there, summed over positions:

    ∂z_s/∂W_od = Σ_r gradient_sor · activation_rd

A bias is the weight of a constant activation. Channels of a grouped convolution fall
into G groups that share nothing.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
LayerModule = nn.Linear | Convolution


@dataclass(frozen=True, eq=False)
class ParameterLayer:
    """A linear layer or convolution of a network.

    Attributes:
        module: The layer itself.
    """

    module: LayerModule

    @property
    def groups(self) -> int:
        """G."""
        return 1 if isinstance(self.module, nn.Linear) else self.module.groups

    @property
    def has_bias(self) -> bool:
        """Whether it has a bias."""
        return self.module.bias is not None

    def weight(self) -> Float[Tensor, "G O D"]:
        """Weights, by group, output channel and place in the patch."""
        return torch.unflatten(self.module.weight.detach().flatten(1), 0, (self.groups, -1))

    def bias(self) -> Float[Tensor, "G O"] | None:
        """The bias, or None."""
        bias: Tensor | None = self.module.bias
        return None if bias is None else torch.unflatten(bias.detach(), 0, (self.groups, -1))

    @property
    def shape(self) -> tuple[int, int, int]:
        """(G, O, D), the constant activation of a bias counted in D."""
        groups, outputs, inputs = self.weight().shape
        return groups, outputs, inputs + self.has_bias

    def activations(self, inputs: Tensor, dtype: torch.dtype) -> Float[Tensor, "B G R D"]:
        """What the weights are multiplied with, at every position; the constant one for
        a bias comes last.

        Args:
            inputs: As the layer takes them.
            dtype: What to compute in.
        """
        inputs = inputs.to(dtype)
        if isinstance(self.module, nn.Linear):
            patches = inputs.reshape(len(inputs), 1, -1, inputs.shape[-1])
            return (
                torch.cat([patches, torch.ones_like(patches[..., :1])], -1)
                if self.has_bias
                else patches
            )
        patches = self._patches(self.module, inputs)
        depth = patches.dim() // 2 - 1  # how many dimensions an image has
        positions, places = patches.shape[2 : 2 + depth], patches.shape[2 + depth :]
        if not self.has_bias:
            return patches.reshape(len(inputs), self.groups, positions.numel(), places.numel())
        # written at once, since patches take several times the room of the image
        filled = inputs.new_ones(len(inputs), self.groups, *positions, places.numel() + 1)
        torch.unflatten(filled[..., :-1], -1, places).copy_(patches)
        return filled.flatten(2, -2)

    def _patches(self, module: Convolution, inputs: Tensor) -> Tensor:
        """A view of shape (B, G, *positions, channels of a group, *kernel)."""
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        padded = nn.functional.pad(inputs, module._reversed_padding_repeated_twice, mode=mode)
        depth = len(module.kernel_size)
        for dimension, (size, stride, dilation) in enumerate(
            zip(module.kernel_size, module.stride, module.dilation)
        ):
            padded = padded.unfold(2 + dimension, dilation * (size - 1) + 1, stride)
        every: list[Any] = [slice(None, None, dilation) for dilation in module.dilation]
        return torch.unflatten(padded[(..., *every)], 1, (self.groups, -1)).movedim(2, 2 + depth)

    def gradients(self, by_output: Tensor, dtype: torch.dtype) -> Float[Tensor, "B G S O R"]:
        """What logits change by with the layer's output, at every position.

        Args:
            by_output: Shape (B, S, ...), for each of S logits the shape of the layer's
                output.
            dtype: What to compute in.
        """
        if isinstance(self.module, nn.Linear):
            batch, seeds, outputs = len(by_output), by_output.shape[1], by_output.shape[-1]
            return by_output.to(dtype).reshape(batch, 1, seeds, -1, outputs).mT
        return torch.unflatten(by_output.to(dtype).flatten(3), 2, (self.groups, -1)).movedim(2, 1)

    def product(self, inputs: Tensor) -> Float[Tensor, "B G O R"]:
        """The layer's output, computed as weights times activations.

        Args:
            inputs: As the layer takes them.
        """
        weight, bias = self.weight(), self.bias()
        if bias is not None:
            weight = torch.cat([weight, bias.unsqueeze(-1)], -1)
        return weight @ self.activations(inputs, weight.dtype).mT
