"""The real networks that some tests are run on: the paper's MNIST network, and others with published weights.

Published weights are read from the folder `weights` inside the one that LAPLACEBRIDGE_DATA names. All networks take
images in [0, 1] and are returned in evaluation mode.
"""

from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

IMAGENET_STATISTICS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR_100_STATISTICS = ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))


def mnist_cnn() -> nn.Sequential:
    """The paper's network for MNIST, not trained."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def train(model: nn.Module, inputs: Tensor, labels: Tensor, *, epochs: int, seed: int) -> None:
    """The paper's training on MNIST: Adam with rate 1e-3 and weight decay 5e-4, batches of 128."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=5e-4)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs), generator=generator).split(128):
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs[rows]), labels[rows]).backward()
            optimizer.step()
    model.eval()


class Block(nn.Module):
    """Two convolutions and a shortcut, which is learned or has no parameters."""

    def __init__(self, inputs: int, outputs: int, *, learned_shortcut: bool) -> None:
        super().__init__()
        self.stride = 1 if inputs == outputs else 2
        self.padding = (outputs - inputs) // 2
        self.conv1 = nn.Conv2d(inputs, outputs, 3, self.stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = None
        if learned_shortcut and self.stride == 2:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, 2, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, images: Tensor) -> Tensor:
        inside = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(images)))))
        if self.shortcut is not None:
            return functional.relu(inside + self.shortcut(images))
        thinned = images[:, :, :: self.stride, :: self.stride]
        return functional.relu(inside + functional.pad(thinned, (0, 0, 0, 0, self.padding, self.padding)))


class CifarResNet(nn.Module):
    """A residual network for images of 32 x 32 pixels, in three stages of 16, 32 and 64 channels."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, blocks: int, classes: int, *, learned_shortcut: bool, statistics: tuple) -> None:
        super().__init__()
        for name, values in zip(("mean", "deviation"), statistics):
            self.register_buffer(name, torch.tensor(values).view(3, 1, 1), persistent=False)
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        widths = [16] * (blocks + 1), [16] + [32] * blocks, [32] + [64] * blocks
        self.layer1, self.layer2, self.layer3 = (
            nn.Sequential(*(Block(*pair, learned_shortcut=learned_shortcut) for pair in pairwise(stage)))
            for stage in widths
        )
        self.linear = nn.Linear(64, classes)

    def forward(self, images: Tensor) -> Tensor:
        images = (images - self.mean) / self.deviation
        images = functional.relu(self.bn1(self.conv1(images)))
        return self.linear(self.layer3(self.layer2(self.layer1(images))).mean((-2, -1)))


def cifar_10_resnet20(folder: str) -> CifarResNet:
    """ResNet-20 of Idelbayev, trained on all of CIFAR-10; 91.73 % right on the test set."""
    state = _weights(folder, "resnet20-12fca82f.th")["state_dict"]
    model = CifarResNet(3, 10, learned_shortcut=False, statistics=IMAGENET_STATISTICS)
    return _loaded(model, {name.removeprefix("module."): value for name, value in state.items()})


def cifar_100_resnet14(folder: str) -> CifarResNet:
    """ResNet-14, trained on 45 000 images of CIFAR-100; 66.01 % right on the test set."""
    state = _weights(folder, "cifar100_resnet14_resnet_cifar_best_best.pth")["model_state_dict"]
    renamed = {}
    for name, value in state.items():
        for theirs, ours in (("stack", "layer"), ("first_conv", "conv1"), ("second_conv", "conv2"), ("fc.", "linear.")):
            name = name.replace(theirs, ours)
        renamed[name] = value
    model = CifarResNet(2, 100, learned_shortcut=True, statistics=CIFAR_100_STATISTICS)
    return _loaded(model, renamed)


def efficientnet_lite0_head(folder: str) -> nn.Linear:
    """The last layer of EfficientNet-Lite0 for ImageNet, from 1280 features to 1000 classes."""
    state = _weights(folder, "efficientnet-lite0-57934424.pth")
    head = nn.Linear(1280, 1000)
    return _loaded(head, {"weight": state["_fc.weight"], "bias": state["_fc.bias"]})


def _weights(folder: str, name: str) -> dict:
    return torch.load(Path(folder, "weights", name), map_location="cpu", weights_only=True)


def _loaded(model: nn.Module, state: dict) -> nn.Module:
    model.load_state_dict(state, strict=True)
    return model.eval()
