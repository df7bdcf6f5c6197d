"""Jacobians of logits by the weights of layers, in parts: formed by layer, and for a
block of examples at a time.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge import _blocks
from laplacebridge.laplace.layers.layer import ParameterLayer

# Memory that a block of one layer's Jacobian takes: of some examples or, if it is
# large, of some outputs for one. Small blocks stay in the cache; and in float32 a
# covariance summed block by block keeps two digits more.


@dataclass(frozen=True, eq=False)
class LayerJacobian:
    """What one layer contributes to the Jacobian of S combinations of logits.

    Attributes:
        layer: The layer.
        inputs: What it took in, shape (B, ...).
        by_output: What each combination of logits changes by with what it gave out,
            shape (B, S, ...).
    """

    layer: ParameterLayer
    inputs: Tensor
    by_output: Tensor

    def blocks(
        self, dtype: torch.dtype, *, with_jacobian: bool = True
    ) -> Iterator[tuple[Float[Tensor, "b G R D"], Float[Tensor, "b G S O R"]]]:
        """Activations and gradients, for as many examples as keep within
        `BYTES_OF_JACOBIANS` and at least one.

        Args:
            dtype: What to compute in.
            with_jacobian: Leave room for the Jacobian that will be formed of them.
        """
        groups, outputs, inputs = self.layer.shape
        seeds, of_gradients = self.by_output.shape[1], self.by_output[:1].numel()
        positions = of_gradients // (seeds * groups * outputs)
        numbers = groups * positions * inputs + of_gradients
        if with_jacobian and positions > 1:
            numbers += seeds * groups * outputs * inputs
        for some in _slices(len(self.inputs), numbers, dtype):
            yield (
                self.layer.activations(self.inputs[some], dtype),
                self.layer.gradients(self.by_output[some], dtype),
            )

    def __getitem__(self, rows: slice) -> "LayerJacobian":
        """Some examples."""
        return LayerJacobian(self.layer, self.inputs[rows], self.by_output[rows])


@dataclass(frozen=True, eq=False)
class Linearised:
    """Some examples: their logits, and the Jacobian in parts.

    Attributes:
        logits: Shape (B, K).
        jacobians: One for every layer, in the order of the network.
    """

    logits: Float[Tensor, "B K"]
    jacobians: tuple[LayerJacobian, ...]


def jacobian(
    activations: Float[Tensor, "B G R D"], gradients: Float[Tensor, "B G S O R"]
) -> Iterator[tuple[slice, Float[Tensor, "B G S o D"]]]:
    """∂z_s/∂W of one layer, summed over positions, for as many outputs as keep within
    `BYTES_OF_JACOBIANS`; and which.

    Args:
        activations: What the weights are multiplied with.
        gradients: What combinations of logits change by with the products.
    """
    batch, groups, seeds, outputs, positions = gradients.shape
    for some in _slices(outputs, batch * groups * seeds * activations.shape[-1], activations.dtype):
        product = gradients[..., some, :].reshape(batch, groups, -1, positions) @ activations
        yield some, product.view(batch, groups, seeds, -1, activations.shape[-1])


def whole_jacobian(batch: Linearised, dtype: torch.dtype) -> Iterator[Float[Tensor, "b S P"]]:
    """The Jacobian of all layers, one behind the other, for as many examples as keep
    within `BYTES_OF_JACOBIANS`.

    Args:
        batch: Some examples.
        dtype: What to compute in.
    """
    seeds = batch.jacobians[0].by_output.shape[1]
    numbers = seeds * sum(math.prod(part.layer.shape) for part in batch.jacobians)
    for some in _slices(len(batch.logits), numbers, dtype):
        of_layers = []
        for part in batch.jacobians:
            blocks = [
                torch.cat([of_some for _, of_some in jacobian(*block)], 3)
                for block in part[some].blocks(dtype)
            ]
            of_layers.append(torch.cat(blocks).transpose(1, 2).flatten(2))  # from (b, G, S, O, D)
        yield torch.cat(of_layers, -1)


def _slices(length: int, numbers: int, dtype: torch.dtype) -> Iterator[slice]:
    """Slices of a length that keep within `BYTES_OF_JACOBIANS` if so many numbers
    belong to each place.
    """
    at_once = max(1, _blocks.BYTES_OF_JACOBIANS // (numbers * dtype.itemsize))
    return (slice(start, start + at_once) for start in range(0, length, at_once))
