"""Residual networks (He et al., 2016): two families that differ in widths and shortcuts
only.
"""

from collections.abc import Sequence
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from laplacebridge_reproduction.models import normalise
from laplacebridge_reproduction.models.normalise import Normalise, Statistics

WIDE = (64, 128, 256, 512)
NARROW = (16, 32, 64)


class Block(nn.Module):
    """Two convolutions and a shortcut, which is learned or has no parameters.

    Args:
        inputs: Channels that come in.
        outputs: Channels that go out; if more, the image is halved.
        learned_shortcut: Whether a shortcut to more channels is a convolution;
            otherwise zeros fill them up.
    """

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
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, 2, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, images: Float[Tensor, "B C H W"]) -> Tensor:
        """Features of the same size, or half of it."""
        inside = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(images)))))
        if self.shortcut is not None:
            return functional.relu(inside + self.shortcut(images))
        thinned = images[:, :, :: self.stride, :: self.stride]
        return functional.relu(
            inside + functional.pad(thinned, (0, 0, 0, 0, self.padding, self.padding))
        )


class ResNet(nn.Module):
    """A residual network, in stages of blocks between which channels double and images
    halve.

    Args:
        widths: Channels of each stage.
        blocks: Number of blocks in each stage.
        num_classes: K.
        learned_shortcut: Whether shortcuts between stages are convolutions.
        statistics: What to normalise images by.
        large_images: Whether to begin with a convolution of 7 x 7 and a pooling, which
            leave a quarter of the size.
    """

    def __init__(
        self,
        widths: Sequence[int],
        blocks: int,
        num_classes: int,
        *,
        learned_shortcut: bool,
        statistics: Statistics,
        large_images: bool = False,
    ) -> None:
        super().__init__()
        self.normalise = Normalise(statistics)
        kernel, stride = (7, 2) if large_images else (3, 1)
        self.conv1 = nn.Conv2d(3, widths[0], kernel, stride, kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.pool = nn.MaxPool2d(3, 2, 1) if large_images else nn.Identity()
        self.num_stages = len(widths)
        for stage, (before, width) in enumerate(pairwise([widths[0], *widths]), start=1):
            sizes = pairwise([before] + [width] * blocks)
            layers = [Block(*size, learned_shortcut=learned_shortcut) for size in sizes]
            self.add_module(f"layer{stage}", nn.Sequential(*layers))
        self.linear = nn.Linear(widths[-1], num_classes)

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B K"]:
        """Logits."""
        features = self.pool(functional.relu(self.bn1(self.conv1(self.normalise(images)))))
        for stage in range(1, self.num_stages + 1):
            features = self.get_submodule(f"layer{stage}")(features)
        return self.linear(features.mean((-2, -1)))


def resnet18(num_classes: int = 10, *, statistics: Statistics = normalise.CIFAR_10) -> ResNet:
    """ResNet-18 for images of 32 x 32 pixels: the network of the CIFAR-10 and CIFAR-100
    tables and of the timings.

    The paper's network for CIFAR-100 takes images as they are:
    ``statistics=normalise.NONE``.

    Args:
        num_classes: K.
        statistics: What to normalise images by.

    Example:
        >>> resnet18()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    return ResNet(WIDE, 2, num_classes, learned_shortcut=True, statistics=statistics)


def svhn_resnet18() -> ResNet:
    """ResNet-18 as made for ImageNet, with 10 classes and images as they are: the
    network of the SVHN table.
    """
    return ResNet(WIDE, 2, 10, learned_shortcut=True, statistics=normalise.NONE, large_images=True)


def resnet20() -> ResNet:
    """ResNet-20 for CIFAR-10, whose published weights stand in for a ResNet-18 that
    takes hours to train.
    """
    return ResNet(NARROW, 3, 10, learned_shortcut=False, statistics=normalise.IMAGENET)


def resnet56() -> ResNet:
    """ResNet-56 for CIFAR-10, as `resnet20`, deeper."""
    return ResNet(NARROW, 9, 10, learned_shortcut=False, statistics=normalise.IMAGENET)


def resnet14() -> ResNet:
    """ResNet-14 for CIFAR-100, whose published weights stand in for the paper's
    ResNet-18.
    """
    return ResNet(NARROW, 2, 100, learned_shortcut=True, statistics=normalise.CIFAR_100)
