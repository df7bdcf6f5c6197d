"""DenseNet-121 (Huang et al., 2017), the paper's network for ImageNet. Layers are named
as in torchvision's weights.
"""

from collections import OrderedDict

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from laplacebridge_reproduction.models import normalise
from laplacebridge_reproduction.models.normalise import Normalise

STEM = 64
BLOCKS = (6, 12, 24, 16)  # layers in each block
GROWTH = 32  # channels that each layer adds
BOTTLENECK = 4 * GROWTH


class DenseLayer(nn.Module):
    """Two convolutions, whose few new channels are put behind those that came in.

    Args:
        inputs: Channels that come in.
    """

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, BOTTLENECK, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(BOTTLENECK)
        self.conv2 = nn.Conv2d(BOTTLENECK, GROWTH, 3, padding=1, bias=False)

    def forward(self, images: Float[Tensor, "B C H W"]) -> Tensor:
        """What came in and what is new."""
        inside = self.conv1(functional.relu(self.norm1(images)))
        return torch.cat([images, self.conv2(functional.relu(self.norm2(inside)))], 1)


def _block(inputs: int, layers: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            (f"denselayer{layer + 1}", DenseLayer(inputs + layer * GROWTH))
            for layer in range(layers)
        )
    )


def _transition(inputs: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            norm=nn.BatchNorm2d(inputs),
            relu=nn.ReLU(),
            conv=nn.Conv2d(inputs, inputs // 2, 1, bias=False),
            pool=nn.AvgPool2d(2),
        )
    )


class DenseNet(nn.Module):
    """A densely connected network for 1000 classes of ImageNet, from images of 224 x
    224 pixels.
    """

    def __init__(self) -> None:
        super().__init__()
        self.normalise = Normalise(normalise.IMAGENET)
        stages: OrderedDict[str, nn.Module] = OrderedDict(
            conv0=nn.Conv2d(3, STEM, 7, 2, 3, bias=False),
            norm0=nn.BatchNorm2d(STEM),
            relu0=nn.ReLU(),
            pool0=nn.MaxPool2d(3, 2, 1),
        )
        width = STEM
        for number, layers in enumerate(BLOCKS, start=1):
            stages[f"denseblock{number}"] = _block(width, layers)
            width += layers * GROWTH
            if number < len(BLOCKS):
                stages[f"transition{number}"] = _transition(width)
                width //= 2
        stages["norm5"] = nn.BatchNorm2d(width)
        self.features = nn.Sequential(stages)
        self.classifier = nn.Linear(width, 1000)

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B 1000"]:
        """Logits."""
        return self.classifier(
            functional.relu(self.features(self.normalise(images))).mean((-2, -1))
        )


def densenet121() -> DenseNet:
    """DenseNet-121: the network of the paper's experiment on ImageNet."""
    return DenseNet()
