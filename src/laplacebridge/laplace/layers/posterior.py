"""Posterior over the weights of several layers: the Gaussian over logits of the
linearised network, Σ = J Σ_θ Jᵀ.

Layers are independent of each other, each with the posterior that a head of the same
structure has, so that their covariances of the logits add. Nothing of size B × K × P is
ever formed: examples go through in chunks, and a layer's Jacobian exists for a block of
them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from laplacebridge.covariance import Dense
from laplacebridge.errors import InputError, InputTypeError
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.curvature import Curvature, Diag, Full, Kron
from laplacebridge.laplace.head_posteriors.base import HeadPosterior
from laplacebridge.laplace.head_posteriors.diag import DiagPosterior
from laplacebridge.laplace.head_posteriors.full import FullPosterior
from laplacebridge.laplace.head_posteriors.kron import KronPosterior
from laplacebridge.laplace.layers.curvature import NetworkCurvature
from laplacebridge.laplace.layers.jacobian import Linearised, jacobian, whole_jacobian
from laplacebridge.laplace.layers.network import Linearisation, LinearisedNetwork
from laplacebridge.laplace.posterior import Posterior, Widening

# of a layer, or for `Full` of all of them
BLOCKS: dict[type[Curvature], type[HeadPosterior]] = {
    Diag: DiagPosterior,
    Kron: KronPosterior,
    Full: FullPosterior,
}


class NetworkPosterior(Posterior):
    """Independent layers, each with a diagonal or Kronecker-factored posterior; the
    covariance of logits is `Dense`.

    Args:
        blocks: Posteriors of the layers, in the order of the network, under the same
            prior.
        num_classes: K.

    Example:
        >>> from laplacebridge import fit
        >>> model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
        >>> classifier = fit(model, [torch.eye(4)], layers="*", prior_precision=1.0, progress=False)
        >>> type(classifier.posterior).__name__, len(classifier.posterior.trained())
        ('NetworkPosterior', 43)
        >>> classifier.logits(torch.eye(4)).covariance.to_dense().shape
        torch.Size([4, 3, 3])
    """

    def __init__(self, blocks: Sequence[HeadPosterior], num_classes: int) -> None:
        super().__init__(blocks[0].weight.device)
        self.blocks = nn.ModuleList(blocks)
        self._num_classes = num_classes
        self.prior_precision = blocks[
            0
        ].prior_precision.clone()  # of its own, or it could not be saved

    @classmethod
    def from_buffers(
        cls, buffers: dict[str, Tensor], kind: type[HeadPosterior], num_classes: int
    ) -> "NetworkPosterior":
        """A posterior from its state, as `state_dict` gives it, without the curvature
        it was made of.

        Args:
            buffers: Tensors by name.
            kind: Of its blocks.
            num_classes: K.
        """
        of_blocks: dict[int, dict[str, Tensor]] = defaultdict(dict)
        for name, buffer in buffers.items():
            if name.startswith("blocks."):
                _, index, inside = name.split(".", 2)
                of_blocks[int(index)][inside] = buffer
        other = cls(
            [kind.from_buffers(of_blocks[index]) for index in sorted(of_blocks)], num_classes
        )
        other._set_widening(Widening(*(float(buffers[name]) for name in Widening._fields)))
        return other

    @property
    def num_classes(self) -> int:
        """K."""
        return self._num_classes

    def eigenvalues(self) -> Float[Tensor, " P"]:
        """Those of all layers."""
        return torch.cat([block.eigenvalues().flatten() for block in self._blocks()])

    def trained(self) -> Float[Tensor, " P"]:
        """Those of all layers, each in the order (group, output, input), the bias as
        last input.
        """
        return torch.cat([block.trained().flatten() for block in self._blocks()])

    def sample_weights(
        self, num_samples: int, generator: Generator | None = None
    ) -> Float[Tensor, "S P"]:
        """Draws weights, in the order of `trained`.

        Args:
            num_samples: How many, S.
            generator: Source of randomness.
        """
        return torch.cat(
            [block.sample_weights(num_samples, generator).flatten(1) for block in self._blocks()],
            -1,
        )

    def moments(self, features: Linearisation) -> tuple[Tensor, Dense]:
        """Mean and covariance of the logits of the linearised network. No gradient
        flows through them.

        Args:
            features: What the network makes of inputs.

        Raises:
            InputTypeError: If they are something else.
        """
        if not isinstance(features, Linearisation):
            raise InputTypeError(
                "A posterior over several layers takes a `Linearisation`; got"
                f" {type(features).__name__}. Give what `classifier.features(inputs)` returns, or"
                " call `classifier.logits(inputs)`."
            )
        means, covariances = [], []
        with torch.no_grad():
            for chunk in features.chunks():
                means.append(chunk.logits.to(self.dtype))
                covariances.extend(self._covariances(chunk, [self]))
        if not means:
            nothing = torch.zeros(
                0, self.num_classes, dtype=self.dtype, device=self.prior_precision.device
            )
            means, covariances = [nothing], [nothing.unsqueeze(-1).expand(-1, -1, self.num_classes)]
        return torch.cat(means), Dense(torch.cat(covariances))

    def under_priors(
        self,
        features: Linearisation,
        priors: Sequence[float],
        function: Callable[[LogitGaussian], Tensor],
    ) -> Iterator[Tensor]:
        """A function of the Gaussian over logits under each prior precision, from one
        pass over the examples.

        What the function gives is kept for all priors and examples.

        Args:
            features: What the network makes of inputs.
            priors: Prior precisions to try.
            function: Of a block of rows; what it gives is joined along rows.
        """
        moved = [
            cast("NetworkPosterior", self.with_prior(prior_precision)) for prior_precision in priors
        ]
        results: list[list[Tensor]] = [[] for _ in priors]
        with torch.no_grad():
            for chunk in features.chunks():
                mean = chunk.logits.to(self.dtype)
                for kept, covariance in zip(results, self._covariances(chunk, moved)):
                    kept.append(function(self._wide(mean, Dense(covariance))))
        yield from (torch.cat(kept) for kept in results)

    @property
    def dtype(self) -> torch.dtype:
        """The type that predictions are made in."""
        return self._blocks()[0].weight.dtype

    def _covariances(
        self, chunk: Linearised, moved: Sequence["NetworkPosterior"]
    ) -> list[Float[Tensor, "B K K"]]:
        """Covariances of a chunk's logits under each of some priors."""
        shape = (len(chunk.logits), self.num_classes, self.num_classes)
        totals = [torch.zeros(shape, dtype=self.dtype, device=chunk.logits.device) for _ in moved]
        for index, (block, part) in enumerate(zip(self._blocks(), chunk.jacobians)):
            variances = [other._blocks()[index].variances_of_weights() for other in moved]
            start = 0
            for activations, gradients in part.blocks(self.dtype):
                rows = slice(start, start + len(activations))
                start = rows.stop
                taken, given = block.in_eigenbasis(activations, gradients)
                for total, of_layer in zip(totals, _contracted(taken, given, variances)):
                    total[rows] += of_layer
        return totals

    def _set_prior(self, prior_precision: float) -> None:
        super()._set_prior(prior_precision)
        self.blocks = nn.ModuleList(block.with_prior(prior_precision) for block in self._blocks())

    def _blocks(self) -> list[Any]:
        return list(self.blocks)


class FullNetworkPosterior(NetworkPosterior):
    """All weights of all layers correlated: for tiny networks. Its one block sees the
    Jacobian as features.

    Example:
        >>> from laplacebridge import fit
        >>> from laplacebridge.laplace import Full
        >>> model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
        >>> classifier = fit(
        ...     model,
        ...     [torch.eye(4)],
        ...     layers="*",
        ...     curvature=Full,
        ...     prior_precision=1.0,
        ...     progress=False,
        ... )
        >>> type(classifier.posterior).__name__, classifier.posterior.sample_weights(7).shape
        ('FullNetworkPosterior', torch.Size([7, 43]))
    """

    def _covariances(
        self, chunk: Linearised, moved: Sequence[NetworkPosterior]
    ) -> list[Float[Tensor, "B K K"]]:
        vectors = self._blocks()[0].vectors.squeeze(0)
        parts: list[list[Tensor]] = [[] for _ in moved]
        for some in whole_jacobian(chunk, self.dtype):
            rotated = some @ vectors
            for kept, other in zip(parts, moved):
                kept.append(_gram(rotated * other._blocks()[0].variances.sqrt()))
        return [torch.cat(kept) for kept in parts]


def _contracted(
    activations: Float[Tensor, "B G R D"],
    gradients: Float[Tensor, "B G K O R"],
    variances: Sequence[Float[Tensor, "G O D"]],
) -> list[Float[Tensor, "B K K"]]:
    """J diag(v) Jᵀ of one layer, for each of some variances v."""
    if activations.shape[2] == 1:  # Σ_d a_d² v_od comes first, and the Jacobian is not needed
        squares, flat = (
            activations.squeeze(2).square(),
            gradients.squeeze(-1).transpose(1, 2).flatten(2),
        )
        of_outputs = (
            torch.einsum("bgd,god->bgo", squares, variance).flatten(1) for variance in variances
        )
        return [_gram(flat * variance.sqrt().unsqueeze(1)) for variance in of_outputs]
    batch, _, num_classes = gradients.shape[:3]
    totals = [gradients.new_zeros(batch, num_classes, num_classes) for _ in variances]
    for outputs, some in jacobian(activations, gradients):
        for total, variance in zip(totals, variances):
            total += _gram((some * variance[:, outputs].sqrt().unsqueeze(1)).flatten(3)).sum(1)
    return totals


def _gram(factor: Float[Tensor, "*B K P"]) -> Float[Tensor, "*B K K"]:
    """FFᵀ: with half of the variances in each factor it is symmetric to the last digit."""
    return factor @ factor.mT


def network_posterior(
    network: LinearisedNetwork,
    curvature: NetworkCurvature,
    prior_precision: float,
    num_classes: int,
    kind: type[Posterior] | None = None,
) -> NetworkPosterior:
    """The posterior over some layers of a network.

    Args:
        network: The network.
        curvature: Its curvature.
        prior_precision: τ > 0, the same for all weights.
        num_classes: K.
        kind: Another posterior of each layer than the usual one of its curvature.

    Raises:
        InputError: If that is not a posterior of this curvature.
    """
    usual = BLOCKS[curvature.kind]
    if kind is not None and not issubclass(kind, usual):
        raise InputError(
            f"`{curvature.kind.__name__}` curvature of layers makes a `{usual.__name__}` of each,"
            f" or a subclass of it; got `{kind.__name__}`."
        )
    build: Callable[..., HeadPosterior] = kind or usual
    weights = [(layer.weight(), layer.bias()) for layer in network.layers]
    if curvature.kind is Full:
        with_bias = [
            weight if bias is None else torch.cat([weight, bias.unsqueeze(-1)], -1)
            for weight, bias in weights
        ]
        together = torch.cat([weight.flatten() for weight in with_bias]).unsqueeze(0)
        return FullNetworkPosterior(
            [build(together, None, *curvature.blocks.values(), prior_precision)], num_classes
        )
    blocks = [
        build(weight, bias, curvature.blocks[name], prior_precision)
        for name, (weight, bias) in zip(network.layer_names, weights)
    ]
    return NetworkPosterior(blocks, num_classes)
