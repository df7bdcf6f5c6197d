"""Curvature of a network: for every layer, or for all of them together, the same sums
as for a head.

One example contributes JᵀΛJ with J the Jacobian of its logits and Λ = diag(p) − ppᵀ.
With a root Λ = RRᵀ that is a sum of squares of K gradients, those of the combinations
of logits in the columns of R. Each layer keeps of it what its structure can hold: the
diagonal, or Kronecker factors of activations and gradients as in K-FAC ("expand" for
convolutions: positions count as examples of their own). `Full` keeps everything, for
tiny networks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge.laplace.curvature import Curvature, Diag, Full, Kron, counted
from laplacebridge.laplace.layers.jacobian import (
    LayerJacobian,
    Linearised,
    jacobian,
    whole_jacobian,
)
from laplacebridge.laplace.layers.layer import ParameterLayer
from laplacebridge.laplace.layers.network import Linearisation, LinearisedNetwork
from laplacebridge.laplace.sums import BYTES_PER_NUMBER, Sums

STRUCTURES: tuple[type[Curvature], ...] = (Diag, Kron, Full)
# More weights than these make a full matrix that takes minutes to decompose.
LARGEST_FULL = 5000
ALL_LAYERS = "*"  # the name of the one block of a full curvature


@dataclass(frozen=True, eq=False)
class NetworkCurvature(Sums):
    """The curvature of some layers, block by block.

    Attributes:
        blocks: By name of the layer; of a `Full` there is one for all layers.
    """

    blocks: dict[str, Curvature]

    @classmethod
    def of_batch(
        cls, kind: type[Curvature], examples: Linearisation, weights: Tensor | None = None
    ) -> tuple["NetworkCurvature", Tensor]:
        """The sums over one batch, and its logits.

        Args:
            kind: `Diag`, `Kron` or `Full`.
            examples: What the network makes of inputs.
            weights: What each example counts; None for ones.
        """
        network = examples.network
        names = (ALL_LAYERS,) if kind is Full else network.layer_names
        blocks = dict(zip(names, _zeros(kind, network)))
        logits: list[Tensor] = []

        def weights_of_chunk(rows: Tensor) -> Tensor | None:
            done = sum(map(len, logits))
            return None if weights is None else weights[done : done + len(rows)]

        def root(rows: Tensor) -> Tensor:
            part, of_chunk = loss_root(rows), weights_of_chunk(rows)
            return part if of_chunk is None else part * of_chunk.sqrt()[:, None, None]

        for chunk in examples.chunks(root):
            _add(list(blocks.values()), chunk, weights_of_chunk(chunk.logits))
            logits.append(chunk.logits)
        together = torch.cat(logits)
        count, _ = counted(together, weights)
        return cls(count, blocks), together

    @property
    def kind(self) -> type[Curvature]:
        """The structure of its blocks."""
        return type(next(iter(self.blocks.values())))

    def tensors(self) -> dict[str, Tensor]:
        """The sums by layer and name."""
        inside = {
            f"{name}/{key}": value
            for name, block in self.blocks.items()
            for key, value in block.tensors().items()
        }
        return {"num_examples": self.num_examples, **inside}

    def with_tensors(self, tensors: dict[str, Tensor]) -> "NetworkCurvature":
        """The same kind of sums with other tensors.

        Args:
            tensors: As `tensors` gives them.
        """
        blocks = {
            name: type(block)(**{key: tensors[f"{name}/{key}"] for key in block.tensors()})
            for name, block in self.blocks.items()
        }
        return type(self)(tensors["num_examples"], blocks)


def loss_root(logits: Float[Tensor, "B K"]) -> Float[Tensor, "B K K"]:
    """Rows r_s = √p_s (e_s − p) with Σ r_s r_sᵀ = diag(p) − ppᵀ, in float64.

    Args:
        logits: Of some examples.
    """
    probabilities = logits.double().softmax(-1)
    root = -probabilities.sqrt().unsqueeze(-1) * probabilities.unsqueeze(-2)
    # 1 − p as the sum of the others: the rows then add up to zero, however sure the
    # network is
    root.diagonal(dim1=-2, dim2=-1).zero_()
    root.diagonal(dim1=-2, dim2=-1).copy_(-root.sum(-1))
    return root


def num_bytes(kind: type[Curvature], layers: tuple[ParameterLayer, ...]) -> int:
    """How much memory the sums take.

    Args:
        kind: `Diag`, `Kron` or `Full`.
        layers: The layers of the network.
    """
    shapes = [layer.shape for layer in layers]
    if kind is Full:
        return (
            BYTES_PER_NUMBER
            * sum(groups * outputs * inputs for groups, outputs, inputs in shapes) ** 2
        )
    return sum(groups * kind.num_bytes(inputs, outputs) for groups, outputs, inputs in shapes)


def _zeros(kind: type[Curvature], network: LinearisedNetwork) -> Iterator[Curvature]:
    """Sums over no examples, in the order of the layers; they are added to in place
    while a batch is gone through.
    """
    device = network.layers[0].weight().device

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=device)

    if kind is Full:
        yield Full(zeros(), zeros(network.num_parameters, network.num_parameters))
        return
    for groups, outputs, inputs in (layer.shape for layer in network.layers):
        if kind is Diag:
            yield Diag(zeros(), zeros(groups, outputs, inputs))
        else:
            yield Kron(zeros(), zeros(groups, inputs, inputs), zeros(groups, outputs, outputs))


def _add(blocks: Sequence[Curvature], chunk: Linearised, weights: Tensor | None) -> None:
    """Adds some examples, whose gradients have the roots of their weights already."""
    for block, part in zip(blocks, chunk.jacobians):
        if isinstance(block, Diag):
            _add_diag(block, part)
        elif isinstance(block, Kron):
            _add_kron(block, part, weights)
        elif isinstance(block, Full):  # the only one
            _add_full(block, chunk)


def _add_diag(total: Diag, part: LayerJacobian) -> None:
    for activations, gradients in part.blocks(torch.float64):
        total.num_examples.add_(len(activations))
        if activations.shape[2] == 1:  # the square of a product is the product of squares
            squares = gradients.squeeze(-1).square().sum(2)  # (b, G, O)
            total.diagonal.add_(
                torch.einsum("bgo,bgd->god", squares, activations.squeeze(2).square())
            )
        else:
            for outputs, part_of_jacobian in jacobian(activations, gradients):
                total.diagonal[:, outputs].add_(part_of_jacobian.square_().sum((0, 2)))


def _add_kron(total: Kron, part: LayerJacobian, weights: Tensor | None) -> None:
    done = 0
    for activations, gradients in part.blocks(torch.float64, with_jacobian=False):
        batch, _, positions, _ = activations.shape
        if weights is None:
            total.num_examples.add_(batch * positions)
        else:
            some = weights[done : done + batch]
            total.num_examples.add_(some.sum() * positions)
            activations = activations * some.sqrt()[:, None, None, None]
            done += batch
        rows = activations.transpose(0, 1).flatten(1, 2)  # (G, b·R, D)
        total.feature_factor.baddbmm_(rows.mT, rows)
        columns = gradients.permute(1, 3, 0, 2, 4).flatten(2)  # (G, O, b·S·R)
        total.class_factor.baddbmm_(columns, columns.mT)


def _add_full(total: Full, chunk: Linearised) -> None:
    total.num_examples.add_(len(chunk.logits))
    for some in whole_jacobian(chunk, torch.float64):
        rows = some.flatten(0, 1)
        total.matrix.addmm_(rows.T, rows)
