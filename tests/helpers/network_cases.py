"""Small networks in float64 whose layers a posterior can cover, and what autograd says
about them by brute force.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from cases import seeded
from torch import Tensor, autograd, nn
from torch.func import functional_call, jacrev
from torch.nn.functional import cross_entropy

from laplacebridge.laplace import Curvature, Diag, Full, LinearisedNetwork, NetworkCurvature

CLASSES = 3


class Tokens(nn.Module):
    """A linear layer for each of several tokens, batch normalisation, a shortcut, and a
    mean over tokens.
    """

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(2, 4)
        self.norm = nn.BatchNorm1d(4)
        self.mix = nn.Linear(4, 4, bias=False)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, tokens):
        embedded = torch.tanh(self.norm(self.embed(tokens).mT).mT)
        return self.head((embedded + self.mix(embedded).tanh()).mean(1))


def _image_network():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(3, 2, 2, bias=False),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2, CLASSES),
    )


def _grouped_network():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding="same", dilation=2, groups=2, padding_mode="circular"),
        nn.Tanh(),
        nn.Conv2d(4, 4, (1, 2), stride=(2, 1), groups=4, bias=False),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(24, CLASSES),
    )


@dataclass(frozen=True)
class Case:
    """A network and the shape of one input."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]


NETWORKS = {
    "mlp": Case(
        lambda: nn.Sequential(
            nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3)
        ),
        (2,),
    ),
    "mlp without bias": Case(
        lambda: nn.Sequential(
            nn.Linear(2, 4, bias=False), nn.Tanh(), nn.Linear(4, CLASSES, bias=False)
        ),
        (2,),
    ),
    "cnn": Case(_image_network, (1, 6, 6)),
    "cnn with groups": Case(_grouped_network, (2, 4, 4)),
    "cnn over time": Case(
        lambda: nn.Sequential(
            nn.Conv1d(2, 3, 2, stride=2, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(9, CLASSES)
        ),
        (2, 5),
    ),
    "cnn in space": Case(
        lambda: nn.Sequential(
            nn.Conv3d(1, 2, 2, dilation=(1, 2, 1)), nn.Tanh(), nn.Flatten(), nn.Linear(16, CLASSES)
        ),
        (1, 3, 4, 3),
    ),
    "tokens": Case(Tokens, (3, 2)),
}


def network(name: str) -> nn.Module:
    """A network with weights that make it neither sure nor undecided."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = NETWORKS[name].build().double()
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, nn.BatchNorm1d):
                    module.running_mean.normal_()
                    module.running_var.uniform_(0.5, 2)
                    module.weight.uniform_(0.5, 2)
            for parameter in model.parameters():
                parameter.mul_(1.5)
    return model.eval()


def inputs(name: str, num: int, seed: int = 0) -> Tensor:
    return torch.randn(num, *NETWORKS[name].shape, generator=seeded(seed), dtype=torch.float64)


def labels(num: int) -> Tensor:
    return torch.arange(num) % CLASSES


def layer_names(model: nn.Module) -> list[str]:
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return [name for name, module in model.named_modules() if isinstance(module, kinds)]


def jacobian_by_layer(model: nn.Module, examples: Tensor) -> dict[str, Tensor]:
    """∂logits/∂weights by autograd, (B, K, G, O, D) for each layer, the bias as last
    input.
    """
    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def logits(weights: dict[str, Tensor], example: Tensor) -> Tensor:
        return functional_call(model, weights, (example.unsqueeze(0),)).squeeze(0)

    found = [jacrev(logits)(parameters, example) for example in examples]
    result = {}
    for name in layer_names(model):
        groups = getattr(model.get_submodule(name), "groups", 1)
        weight = torch.stack([each[f"{name}.weight"] for each in found]).flatten(3)  # (B, K, O, D)
        if f"{name}.bias" in parameters:
            bias = torch.stack([each[f"{name}.bias"] for each in found])
            weight = torch.cat([weight, bias.unsqueeze(-1)], -1)
        result[name] = weight.unflatten(2, (groups, -1))
    return result


def whole_jacobian(model: nn.Module, examples: Tensor) -> Tensor:
    """(B, K, P), layers one behind the other."""
    return torch.cat([part.flatten(2) for part in jacobian_by_layer(model, examples).values()], -1)


def loss_hessian(logits: Tensor) -> Tensor:
    """Second derivatives of the cross-entropy by the logits of one example, by
    autograd.
    """
    return autograd.functional.hessian(
        lambda z: cross_entropy(z.unsqueeze(0), torch.tensor([0])), logits
    )


def generalised_gauss_newton(model: nn.Module, examples: Tensor) -> Tensor:
    """Σ JᵀΛJ by autograd, (P, P)."""
    jacobian = whole_jacobian(model, examples)
    with torch.no_grad():
        logits = model(examples)
    hessians = torch.stack([loss_hessian(row) for row in logits])
    return torch.einsum("bkp,bkl,blq->pq", jacobian, hessians, jacobian)


def curvature(kind: type[Curvature], model: nn.Module, examples: Tensor) -> NetworkCurvature:
    """The sums of every layer."""
    sums, logits = NetworkCurvature.of_batch(
        kind, LinearisedNetwork(model, layer_names(model))(examples)
    )
    with torch.no_grad():
        torch.testing.assert_close(logits, model(examples), rtol=1e-12, atol=1e-12)
    return sums


def dense(block: Curvature) -> Tensor:
    """The matrix that one block stands for, weights in the order (group, output,
    input).
    """
    if isinstance(block, Diag):
        return block.diagonal.flatten().diag()
    if isinstance(block, Full):
        return block.matrix
    pairs = zip(block.class_factor, block.feature_factor)
    return torch.block_diag(
        *(torch.kron(outputs, inputs) / block.num_examples for outputs, inputs in pairs)
    )
