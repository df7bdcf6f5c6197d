"""Networks: their sizes, and that they compute what their papers say."""

import numpy as np
import pytest
import torch
from cases import seeded
from torch import nn
from torch.nn import functional

import laplacebridge as lb
from laplacebridge_reproduction import models
from laplacebridge_reproduction.models import densenet, efficientnet, published, resnet

SIZES = {  # parameters, as published or counted by hand
    models.moons_mlp: 3 * 20 + 21 * 20 + 21 * 2,
    models.mnist_cnn: 26 * 16 + (16 * 25 + 1) * 32 + 513 * 10,
    models.resnet18: 11_173_962,
    models.svhn_resnet18: 11_181_642,
    models.resnet20: 269_722,
    models.resnet56: 853_018,
    models.resnet14: 181_108,
    models.EfficientNetLite0: 4_652_008,
    models.densenet121: 7_978_856,
}
INPUTS = {models.moons_mlp: (2,), models.mnist_cnn: (1, 28, 28), models.resnet14: (3, 32, 32)}
LARGE = (models.EfficientNetLite0, models.densenet121)


def size(model):
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("build", SIZES, ids=lambda build: build.__name__)
def test_networks_have_the_published_number_of_parameters_and_can_be_fitted(build):
    model = models.initialised(build, seed=0).eval()
    assert size(model) == SIZES[build]
    shape = INPUTS.get(build, (3, 64, 64) if build in LARGE else (3, 32, 32))
    inputs = torch.rand(3, *shape, generator=seeded(0))
    with torch.no_grad():
        logits = model(inputs)
    assert logits.isfinite().all()
    with torch.no_grad():  # one by one: nothing mixes examples
        torch.testing.assert_close(
            torch.cat([model(row[None]) for row in inputs]), logits, rtol=1e-4, atol=1e-5
        )
    classifier = lb.fit(
        model,
        [(inputs, torch.tensor([0, 1, 0]))],
        curvature=lb.laplace.Diag,
        prior_precision=1.0,
        progress=False,
    )
    assert classifier.num_classes == logits.shape[1]


def test_first_weights_follow_the_seed_and_leave_the_global_state():
    before = torch.get_rng_state()
    one, same, other = (models.initialised(models.mnist_cnn, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one[0].weight, same[0].weight)
    assert not torch.equal(one[0].weight, other[0].weight)


def test_a_shortcut_without_parameters_takes_every_second_pixel_and_pads_channels():
    block = resnet.Block(4, 8, learned_shortcut=False).eval()
    nn.init.zeros_(block.bn2.weight)
    images = torch.rand(2, 4, 6, 6, generator=seeded(0))
    expected = torch.cat(
        [torch.zeros(2, 2, 3, 3), images[:, :, ::2, ::2], torch.zeros(2, 2, 3, 3)], 1
    )
    assert torch.equal(block(images), expected)


def test_residual_networks_halve_images_between_stages():
    seen = []
    for model in (models.resnet18(), models.svhn_resnet18()):
        for stage in range(1, 5):
            model.get_submodule(f"layer{stage}").register_forward_hook(
                lambda *args: seen.append(args[2].shape[-1])
            )
        model.eval()(torch.zeros(1, 3, 32, 32))
    assert seen == [32, 16, 8, 4, 8, 4, 2, 1]


@pytest.mark.parametrize("side", [7, 8, 224])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 2), (5, 1), (1, 1)])
def test_same_padding_covers_every_pixel_with_the_larger_half_behind(side, kernel, stride):
    convolution = efficientnet.SamePadded(1, 1, kernel, stride=stride)
    nn.init.ones_(convolution.weight)
    found = convolution(torch.ones(1, 1, side, side))
    places = -(-side // stride)
    assert found.shape == (1, 1, places, places)
    before = max((places - 1) * stride + kernel - side, 0) // 2
    covered = [
        sum(0 <= place * stride - before + step < side for step in range(kernel))
        for place in range(places)
    ]
    expected = torch.tensor(np.outer(covered, covered), dtype=torch.float32)
    torch.testing.assert_close(found[0, 0], expected)


def test_efficientnet_has_sixteen_blocks_with_the_published_strides_and_shortcuts():
    blocks = list(models.EfficientNetLite0()._blocks)
    strides = [block._depthwise_conv.stride[0] for block in blocks]
    assert strides == [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1]
    assert [block._depthwise_conv.kernel_size[0] for block in blocks] == [3] * 3 + [5] * 2 + [
        3
    ] * 3 + [5] * 7 + [3]
    assert [index for index, block in enumerate(blocks) if block.has_shortcut] == [
        2,
        4,
        6,
        7,
        9,
        10,
        12,
        13,
        14,
    ]


def test_a_dense_layer_keeps_what_came_in():
    layer = densenet.DenseLayer(6).eval()
    images = torch.rand(2, 6, 5, 5, generator=seeded(0))
    made = layer(images)
    assert made.shape == (2, 6 + 32, 5, 5)
    assert torch.equal(made[:, :6], images)
    inside = layer.conv1(functional.relu(images / (1 + 1e-5) ** 0.5))
    torch.testing.assert_close(
        made[:, 6:], layer.conv2(functional.relu(inside / (1 + 1e-5) ** 0.5))
    )


def test_densenet_has_the_names_of_its_published_weights():
    names = set(models.densenet121().state_dict())
    assert len(names) == 727
    # in the file, layers of blocks have an older form of name
    theirs = "features.denseblock3.denselayer24.norm.2.running_mean"
    assert published.PUBLISHED["imagenet-densenet121"].renamed(theirs) in names
    for name in (
        "features.transition2.conv.weight",
        "features.norm5.bias",
        "classifier.weight",
        "features.conv0.weight",
    ):
        assert name in names
        assert published.PUBLISHED["imagenet-densenet121"].renamed(name) == name


def test_weights_of_resnet14_are_renamed_to_ours():
    theirs = {
        "stack2.0.first_conv.weight",
        "stack2.0.shortcut.1.bias",
        "stack3.1.second_conv.weight",
        "fc.bias",
        "bn1.bias",
    }
    assert {published.PUBLISHED["cifar-100-resnet14"].renamed(name) for name in theirs} <= set(
        models.resnet14().state_dict()
    )
