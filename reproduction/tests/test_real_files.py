"""The real data and the published weights: are they what their publishers say?"""

import hashlib
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from laplacebridge_reproduction.data import find
from laplacebridge_reproduction.data.cifar import read_packed
from laplacebridge_reproduction.models import pretrained

pytestmark = pytest.mark.data

MNISTS = {("mnist", "train"): 60_000} | {
    (name, "test"): 10_000 for name in ("mnist", "fashion-mnist", "kmnist", "notmnist")
}
BRIGHTNESS = {
    "mnist": 0.1325,
    "fashion-mnist": 0.2868,
    "kmnist": 0.1846,
    "notmnist": 0.4266,
}  # of the test sets
PACKED = {  # hashes of decoded pixels and of labels
    "cifar-10/test": (
        "055d77328fc9aba9cf8ac6bd3c6df5487d4119f9365e949dd2d0d300247e1f8a",
        "d101aafefccf21ca82daa9d914c4993c1b241bbec45c3bad162b4edfc861e71a",
    ),
    "cifar-100/test": (
        "f3d222516ad45bc1bad8dd3d1078411bcf1332c9b4cdd3531ce46fc93b29dfbf",
        "c3c069f7afd9931622fb4167cab2b5cca72265f43796fe3dc891c77c5d7c2691",
    ),
    "cifar-10/train-0": (
        "eb6d06037f342a029902cbc585605a469d2daf0a86bb42106740813c7c54871c",
        "ed597f4dab1308ca9a83c98fa5016fe752add451d044ebcb8f09e30ddb422ec7",
    ),
}


@pytest.fixture(scope="module")
def found(data_folder):
    """Finds each data set once."""
    known = {}

    def of(name, split="test"):
        if (name, split) not in known:
            known[name, split] = find(name, split, data_folder, download=False)
        return known[name, split]

    return of


@pytest.mark.parametrize(("name", "split"), MNISTS)
def test_relatives_of_mnist_have_their_published_size(found, name, split):
    data = found(name, split)
    assert data.inputs.shape == (MNISTS[name, split], 1, 28, 28)
    counts = data.labels.bincount()
    assert len(counts) == 10
    if split == "test":
        assert data.scaled.double().mean() == pytest.approx(BRIGHTNESS[name], abs=5e-5)
    if name != "mnist":
        assert (counts == 1000).all()


@pytest.mark.parametrize("name", PACKED)
def test_packed_images_have_their_published_hash(data_folder, name):
    data = read_packed(Path(data_folder, f"{name}.npz"), name=name)
    pixels, labels = (
        hashlib.sha256(part.to(torch.uint8).numpy().tobytes()).hexdigest()
        for part in (data.inputs, data.labels)
    )
    assert (pixels, labels) == PACKED[name]


def accuracy(network, data):
    with torch.no_grad():
        right = [
            network(part.scaled).argmax(-1) == part.labels
            for part in (data[:500], data[500:1000])
            if len(part)
        ]
    return torch.cat(right).double().mean().item()


@pytest.mark.parametrize(
    ("name", "data", "published"),
    [
        ("cifar-10-resnet20", "cifar-10", 0.9173),
        ("cifar-10-resnet56", "cifar-10", 0.9339),
        ("cifar-100-resnet14", "cifar-100", 0.6601),
    ],
)
def test_published_networks_are_as_accurate_as_published(found, data_folder, name, data, published):
    network = pretrained(name, data_folder, download=False)
    deviation = (
        published * (1 - published) / 1000
    ) ** 0.5  # of the accuracy on a thousand images, drawn at random
    assert accuracy(network, found(data)[:1000]) == pytest.approx(published, abs=3 * deviation)


def test_the_head_of_efficientnet_classifies_given_features_as_accurately_as_measured(
    found, data_folder
):
    network = pretrained("imagenet-efficientnet-lite0", data_folder, download=False)
    features = found("imagenet-features")
    assert accuracy(network._fc, features) == pytest.approx(0.888)


def test_efficientnet_finds_the_given_features_in_photographs(found, data_folder):
    """The given ones are of the same photographs before they were compressed once more:
    near, not equal.
    """
    network = pretrained("imagenet-efficientnet-lite0", data_folder, download=False)
    photographs, features = found("imagenet-sample")[::40], found("imagenet-features")[::40]
    with torch.no_grad():
        seen = network.features(photographs.scaled)
        logits = network(photographs.scaled)
    assert torch.equal(network._fc(seen), logits)
    alike = functional.cosine_similarity(seen, features.inputs)
    strangers = functional.cosine_similarity(seen, features.inputs.roll(1, 0))
    assert alike.median() > 0.9
    assert (alike > strangers).all()
    assert (logits.argmax(-1) == photographs.labels).double().mean() >= 0.7


def test_tiny_imagenet_has_ten_images_of_each_of_two_hundred_classes(found):
    data = found("tiny-imagenet")
    assert data.inputs.shape == (2000, 3, 64, 64)
    counts = data.labels.bincount()
    assert sorted(set(counts.tolist())) == [0, 10]
    assert (counts == 10).sum() == 200
