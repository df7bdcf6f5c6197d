"""The curvature of layers is the generalised Gauss–Newton matrix of autograd, as far as
its structure can hold it.
"""

import network_cases as cases
import pytest
import torch
from cases import seeded
from torch import nn

import laplacebridge as lb
from laplacebridge.laplace import Diag, Full, Kron, LinearisedNetwork, NetworkCurvature
from laplacebridge.laplace.layers.curvature import loss_root, num_bytes
from laplacebridge.laplace.layers.layer import ParameterLayer

EVERY_NETWORK = pytest.mark.parametrize("name", cases.NETWORKS)
EVERY_KIND = pytest.mark.parametrize("kind", [Diag, Kron, Full])
EXAMPLES = 6


@EVERY_NETWORK
def test_the_full_curvature_is_autograds(name):
    model, examples = cases.network(name), cases.inputs(name, EXAMPLES)
    (block,) = cases.curvature(Full, model, examples).blocks.values()
    torch.testing.assert_close(
        block.matrix, cases.generalised_gauss_newton(model, examples), rtol=1e-9, atol=1e-11
    )


@EVERY_NETWORK
def test_the_diagonal_is_autograds(name):
    model, examples = cases.network(name), cases.inputs(name, EXAMPLES)
    found = torch.cat(
        [
            block.diagonal.flatten()
            for block in cases.curvature(Diag, model, examples).blocks.values()
        ]
    )
    torch.testing.assert_close(
        found, cases.generalised_gauss_newton(model, examples).diagonal(), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("name", ["mlp", "mlp without bias"])
@pytest.mark.parametrize("num", [1, 5], ids=["one example", "five times the same"])
def test_kronecker_blocks_are_exact_where_all_examples_are_alike(name, num):
    model = cases.network(name)
    examples = cases.inputs(name, 1).expand(num, -1)
    whole, start = cases.generalised_gauss_newton(model, examples), 0
    for block in cases.curvature(Kron, model, examples).blocks.values():
        matrix = cases.dense(block)
        rows = slice(start, start + len(matrix))
        torch.testing.assert_close(matrix, whole[rows, rows], rtol=1e-9, atol=1e-12)
        start = rows.stop


def test_kronecker_blocks_of_a_convolution_over_the_whole_image_are_exact_for_one_example():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(2, 4, 3, groups=2), nn.Tanh(), nn.Flatten(), nn.Linear(4, 3)
        ).double()
    examples = torch.randn(1, 2, 3, 3, generator=seeded(0), dtype=torch.float64)
    whole = cases.generalised_gauss_newton(model, examples)
    size = 2 * 10  # weights of a group; groups are blocks of their own
    matrix = cases.dense(cases.curvature(Kron, model, examples).blocks["0"])
    for rows in (slice(0, size), slice(size, 2 * size)):
        torch.testing.assert_close(matrix[rows, rows], whole[rows, rows], rtol=1e-9, atol=1e-12)


@EVERY_NETWORK
def test_kronecker_factors_are_the_sums_over_examples_and_positions_that_define_them(name):
    model, examples = cases.network(name), cases.inputs(name, EXAMPLES)
    blocks = cases.curvature(Kron, model, examples).blocks
    taken, given = watched(model, examples)
    with torch.no_grad():
        hessians = torch.stack([cases.loss_hessian(row) for row in model(examples)])
    for layer in cases.layer_names(model):
        module, block = model.get_submodule(layer), blocks[layer]
        patches = patches_by_autograd(module, taken[layer])  # (G, B, R, D)
        gradients = given[layer]  # (G, B, K, R, O)
        expected = torch.einsum("gbrd,gbre->gde", patches, patches)
        torch.testing.assert_close(block.feature_factor, expected, rtol=1e-9, atol=1e-12)
        expected = torch.einsum("gbkro,bkl,gblrp->gop", gradients, hessians, gradients)
        torch.testing.assert_close(block.class_factor, expected, rtol=1e-9, atol=1e-12)
        assert block.num_examples == patches.shape[1] * patches.shape[2]


def watched(model, examples):
    """What each layer takes in; and what the logits change by with what it gives out,
    (G, B, K, R, O).
    """
    taken, given, gradients = {}, {}, {}

    def watch(name):
        def hook(_, arguments, output):
            taken[name], given[name] = arguments[0].detach(), output
            return output * 1

        return hook

    handles = [
        model.get_submodule(name).register_forward_hook(watch(name))
        for name in cases.layer_names(model)
    ]
    logits = model(examples)
    for handle in handles:
        handle.remove()
    for name, output in given.items():
        module = model.get_submodule(name)
        rows = [
            torch.autograd.grad(logits[:, k].sum(), output, retain_graph=True)[0]
            for k in range(cases.CLASSES)
        ]
        stacked = torch.stack(rows, 1)  # (B, K, ...)
        last = stacked if isinstance(module, nn.Linear) else stacked.movedim(2, -1)
        flat = last.reshape(len(examples), cases.CLASSES, -1, last.shape[-1])
        gradients[name] = flat.unflatten(-1, (getattr(module, "groups", 1), -1)).movedim(-2, 0)
    return taken, gradients


def patches_by_autograd(module, taken):
    """∂output/∂weight of the first channel of each group, which is what its weights are
    multiplied with.
    """
    groups = getattr(module, "groups", 1)

    def output(weight, bias, example):
        weights = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
        result = torch.func.functional_call(module, weights, (example.unsqueeze(0),))[0]
        return (result if isinstance(module, nn.Linear) else result.movedim(0, -1)).reshape(
            -1, len(weight)
        )

    outputs = len(module.weight) // groups
    patches = []
    for example in taken:
        by_weight = torch.func.jacrev(output)(module.weight.detach(), module.bias, example).flatten(
            3
        )  # (R, O, O, D)
        channels = [group * outputs for group in range(groups)]
        patches.append(torch.stack([by_weight[:, channel, channel] for channel in channels]))
    together = torch.stack(patches, 1)
    return (
        together
        if module.bias is None
        else torch.cat([together, torch.ones_like(together[..., :1])], -1)
    )


@EVERY_NETWORK
def test_a_layer_is_its_weights_times_its_activations(name):
    model, examples = cases.network(name), cases.inputs(name, 2)
    taken, _ = watched(model, examples)
    for name_of_layer, inputs in taken.items():
        layer = ParameterLayer(model.get_submodule(name_of_layer))
        expected = layer.gradients(layer.module(inputs).detach().unsqueeze(1), torch.float64)[
            :, :, 0
        ]
        torch.testing.assert_close(layer.product(inputs), expected, rtol=1e-12, atol=1e-12)


def test_the_root_of_the_loss_hessian_keeps_its_zero_however_sure_the_network_is():
    logits = torch.tensor(
        [[0.3, -1.0, 2.0], [40.0, 0.0, -3.0], [500.0, 0.0, 0.0]], dtype=torch.float64
    )
    root = loss_root(logits)
    hessians = torch.stack([cases.loss_hessian(row) for row in logits])
    torch.testing.assert_close(root.mT @ root, hessians, rtol=1e-12, atol=1e-15)
    # relative to the root itself, which is tiny where the network is sure
    assert (root.sum(-1).abs() <= 1e-15 * root.abs().sum(-1)).all()


@EVERY_KIND
def test_batches_in_any_split_and_order_give_the_same_sum(kind):
    model, examples = cases.network("cnn"), cases.inputs("cnn", 9)
    whole = cases.curvature(kind, model, examples)
    first, second, third = (
        cases.curvature(kind, model, examples[rows]) for rows in ([8, 0], [1, 2, 7, 3], [4, 6, 5])
    )
    summed = (third + first) + second
    assert summed.num_examples == 9
    assert summed.tensors().keys() == whole.tensors().keys()
    for key, tensor in whole.tensors().items():
        torch.testing.assert_close(summed.tensors()[key], tensor, rtol=1e-11, atol=1e-12)
    # rebuilt from its tensors, as several processes that sum theirs do
    doubled = whole.with_tensors({key: 2 * tensor for key, tensor in whole.tensors().items()})
    assert doubled.kind is kind
    assert doubled.num_examples == 18


@EVERY_KIND
def test_sums_are_in_float64_whatever_the_network_computes_in(kind):
    model, examples = cases.network("cnn"), cases.inputs("cnn", EXAMPLES)
    exact = cases.curvature(kind, model, examples).tensors()
    network = LinearisedNetwork(cases.network("cnn").float(), cases.layer_names(model))
    narrow = NetworkCurvature.of_batch(kind, network(examples.float()))[0].tensors()
    for key, tensor in narrow.items():
        assert tensor.dtype == torch.float64
        torch.testing.assert_close(tensor, exact[key], rtol=1e-4, atol=1e-5)


def test_curvatures_of_other_layers_or_structures_do_not_add():
    model, examples = cases.network("mlp"), cases.inputs("mlp", 2)
    both = cases.curvature(Kron, model, examples)
    head = NetworkCurvature.of_batch(Kron, LinearisedNetwork(model, ["4"])(examples))[0]
    with pytest.raises(lb.errors.ShapeError, match="same layers"):
        both + head
    with pytest.raises(lb.errors.ShapeError, match="same layers"):
        both + cases.curvature(Diag, model, examples)
    with pytest.raises(lb.errors.ShapeError, match="of its kind"):
        both + both.blocks["4"]


@EVERY_KIND
def test_the_memory_that_is_stated_is_what_the_sums_take(kind):
    model, examples = cases.network("cnn with groups"), cases.inputs("cnn with groups", 2)
    sums = cases.curvature(kind, model, examples)
    held = sum(tensor.nbytes for tensor in sums.tensors().values() if tensor.dim())
    assert num_bytes(kind, LinearisedNetwork(model, cases.layer_names(model)).layers) == held
