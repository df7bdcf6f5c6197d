"""The head is found by running the network, whatever it looks like, and the network is
left as it was.
"""

from types import SimpleNamespace

import pytest
import torch
from cases import seeded
from torch import nn

import laplacebridge as lb
from laplacebridge.laplace.batch import unpack_batch
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.head_search import find_head


def inputs(*shape):
    return torch.randn(*shape, generator=seeded(0))


class Backwards(nn.Module):
    """Its layers are listed in another order than they are used."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.body = nn.Linear(4, 6)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


class WithObject(Backwards):
    def forward(self, x):
        return SimpleNamespace(logits=super().forward(x), hidden=x)


class WithMapping(Backwards):
    def forward(self, x):
        return {"logits": super().forward(x)}


class WithTuple(Backwards):
    def forward(self, x):
        return super().forward(x), x


class ByKeyword(Backwards):
    def forward(self, *, pixels, mask):
        return super().forward(pixels * mask)


class Tied(nn.Module):
    """A language model's head shares its weights with the embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 5)
        self.head = nn.Linear(5, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(torch.tanh(self.embedding(tokens)))


IN_PLACE = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3))
WITH_BATCH_NORM = nn.Sequential(
    nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3)
)

NETWORKS = {
    "listed backwards": (Backwards(), inputs(5, 4), "head", 6),
    "in-place activation": (IN_PLACE, inputs(5, 4), "2", 6),
    "batch norm and dropout": (WITH_BATCH_NORM, inputs(5, 4), "3", 6),
    "a linear layer alone": (nn.Linear(4, 3), inputs(5, 4), "", 4),
    "without bias": (
        nn.Sequential(nn.Flatten(), nn.Linear(4, 3, bias=False)),
        inputs(5, 2, 2),
        "1",
        4,
    ),
    "inside another module": (nn.Sequential(IN_PLACE[:2], IN_PLACE[2:]), inputs(5, 4), "1.2", 6),
    "logits as an attribute": (WithObject(), inputs(5, 4), "head", 6),
    "logits in a mapping": (WithMapping(), inputs(5, 4), "head", 6),
    "logits first in a tuple": (WithTuple(), inputs(5, 4), "head", 6),
    "1 x 1 convolution, pooled": (
        nn.Sequential(
            nn.Conv2d(3, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 4, 1), nn.Flatten()
        ),
        inputs(5, 3, 8, 8),
        "2",
        6,
    ),
    "tied head": (Tied(), torch.randint(0, 11, (5, 7), generator=seeded(0)), "head", 5),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_head_is_found_and_its_features_give_the_logits(name):
    model, batch, head, num_features = NETWORKS[name]
    split = find_head(model, batch)
    assert split.head_name == head
    passed = split.run(unpack_batch(batch))
    assert passed.features.shape[1] == num_features
    expected = nn.functional.linear(passed.features, split.weight(), split.bias())
    torch.testing.assert_close(passed.logits, expected, atol=1e-5, rtol=1e-4)


def test_tokens_and_pixels_are_rows():
    tokens = torch.randint(0, 11, (5, 7), generator=seeded(0))
    assert find_head(Tied(), tokens)(tokens).shape == (35, 5)
    pixels = inputs(2, 3, 8, 8)
    segment = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 1))
    assert find_head(segment, pixels)(pixels).shape == (128, 6)


def test_keyword_batches_are_passed_by_keyword():
    batch = {"pixels": inputs(5, 4), "mask": torch.ones(5, 1), "labels": torch.zeros(5)}
    assert find_head(ByKeyword(), batch).head_name == "head"


def test_one_logit_is_two_classes():
    model = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    split = find_head(model, inputs(5, 4))
    features = split(inputs(5, 4))
    logits = nn.functional.linear(features, split.weight(), split.bias())
    torch.testing.assert_close(logits.softmax(-1)[:, 1], model(inputs(5, 4)).sigmoid())


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (nn.Softmax(-1), "ends in softmax"),
        (nn.LogSoftmax(-1), "ends in log-softmax"),
        (nn.Tanh(), "something follows it"),
        (nn.Linear(3, 3).requires_grad_(False), None),
    ],
)
def test_what_follows_the_head_is_recognised(end, message):
    model = nn.Sequential(nn.Linear(4, 3), end)
    if message is None:  # another linear layer is the head then
        assert find_head(model, inputs(5, 4)).head_name == "1"
        return
    with pytest.raises(lb.HeadNotFoundError, match=message):
        find_head(model, inputs(5, 4))


def test_a_sigmoid_is_recognised():
    with pytest.raises(lb.HeadNotFoundError, match="sigmoid"):
        find_head(nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()), inputs(5, 4))


def test_a_network_without_linear_layers_is_refused():
    with pytest.raises(lb.HeadNotFoundError, match="no linear layers"):
        find_head(nn.ReLU(), inputs(5, 4))


def test_a_wrong_name_lists_the_right_ones():
    with pytest.raises(lb.HeadNotFoundError, match="'head', 'body'"):
        HeadNetwork(Backwards(), "classifier")


def test_every_module_is_left_in_the_mode_it_was_in():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3))
    model.train()
    model[1].eval()  # a frozen normalisation
    before = {name: value.clone() for name, value in model.state_dict().items()}
    split = find_head(model, inputs(5, 4))
    split(inputs(5, 4))
    assert [module.training for module in model] == [True, False, True, True]
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_hooks_are_removed_when_the_network_fails():
    model = Backwards()
    with pytest.raises(RuntimeError):
        find_head(model, inputs(5, 9))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert model.training


def test_an_empty_batch_keeps_the_shape_of_the_networks_answer():
    model = nn.Linear(13, 3)
    classifier = lb.fit(
        model, [(torch.randn(9, 13), torch.arange(9) % 3)], prior_precision=1.0, progress=False
    )
    assert classifier(torch.randn(0, 13)).mean.shape == (0, 3)
