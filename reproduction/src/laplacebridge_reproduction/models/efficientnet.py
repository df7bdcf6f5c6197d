"""EfficientNet-Lite0 for ImageNet, which stands in for the paper's DenseNet-121 where
its weights are at hand.
"""

from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from laplacebridge_reproduction.models.normalise import Normalise, Statistics

# (x − 127)/128 of bytes, on a scale from 0 to 1
STATISTICS = Statistics((127 / 255, 127 / 255, 127 / 255), (128 / 255, 128 / 255, 128 / 255))
# of each stage: output channels, number of blocks, kernel, stride of its first block
STAGES = (
    (16, 1, 3, 1),
    (24, 2, 3, 2),
    (40, 2, 5, 2),
    (80, 3, 3, 2),
    (112, 3, 5, 1),
    (192, 4, 5, 2),
    (320, 1, 3, 1),
)
STEM, FEATURES = 32, 1280
EXPANSION = 6
EPSILON = 1e-3


class SamePadded(nn.Conv2d):
    """A convolution without bias that makes ⌈size/stride⌉ pixels; of an odd padding,
    the larger part comes behind.

    Args:
        inputs: Channels that come in.
        outputs: Channels that go out.
        kernel: Its side.
        stride: Between its places.
        groups: Into which channels are divided.
    """

    def __init__(
        self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)

    def forward(self, images: Float[Tensor, "B C H W"]) -> Tensor:
        """The convolved images."""
        padding: list[int] = []
        for size in (images.shape[3], images.shape[2]):
            places = -(-size // self.stride[0])
            total = max((places - 1) * self.stride[0] + self.kernel_size[0] - size, 0)
            padding += [total // 2, total - total // 2]
        return super().forward(functional.pad(images, padding))


class Block(nn.Module):
    """An inverted bottleneck: more channels, a convolution within each, fewer channels;
    and a shortcut where it fits.

    Args:
        inputs: Channels that come in.
        outputs: Channels that go out.
        kernel: Side of the convolution's kernel.
        stride: Stride of the convolution.
        expansion: How many times more channels there are inside.
    """

    def __init__(
        self, inputs: int, outputs: int, *, kernel: int, stride: int, expansion: int
    ) -> None:
        super().__init__()
        inside = expansion * inputs
        self.has_shortcut = stride == 1 and inputs == outputs
        self.expands = expansion > 1
        if self.expands:
            self._expand_conv = SamePadded(inputs, inside, 1)
            self._bn0 = nn.BatchNorm2d(inside, eps=EPSILON)
        self._depthwise_conv = SamePadded(inside, inside, kernel, stride=stride, groups=inside)
        self._bn1 = nn.BatchNorm2d(inside, eps=EPSILON)
        self._project_conv = SamePadded(inside, outputs, 1)
        self._bn2 = nn.BatchNorm2d(outputs, eps=EPSILON)

    def forward(self, images: Float[Tensor, "B C H W"]) -> Tensor:
        """Features."""
        inside = functional.relu6(self._bn0(self._expand_conv(images))) if self.expands else images
        inside = functional.relu6(self._bn1(self._depthwise_conv(inside)))
        outside = self._bn2(self._project_conv(inside))
        return images + outside if self.has_shortcut else outside


class EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0: 1000 classes of ImageNet, from images of 224 x 224 pixels.
    Used for sets of classes.

    Layers have the names of the published weights, hence the underscores.
    """

    def __init__(self) -> None:
        super().__init__()
        self.normalise = Normalise(STATISTICS)
        self._conv_stem = SamePadded(3, STEM, 3, stride=2)
        self._bn0 = nn.BatchNorm2d(STEM, eps=EPSILON)
        widths = [STEM, *(width for width, blocks, _, _ in STAGES for _ in range(blocks))]
        shapes = [
            (kernel, stride if block == 0 else 1)
            for _, blocks, kernel, stride in STAGES
            for block in range(blocks)
        ]
        self._blocks = nn.Sequential(
            *(
                Block(*pair, kernel=kernel, stride=stride, expansion=EXPANSION if index else 1)
                for index, (pair, (kernel, stride)) in enumerate(zip(pairwise(widths), shapes))
            )
        )
        self._conv_head = SamePadded(widths[-1], FEATURES, 1)
        self._bn1 = nn.BatchNorm2d(FEATURES, eps=EPSILON)
        self._fc = nn.Linear(FEATURES, 1000)

    def features(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B 1280"]:
        """What the last layer sees.

        Args:
            images: In [0, 1].
        """
        seen = self._blocks(functional.relu6(self._bn0(self._conv_stem(self.normalise(images)))))
        return functional.relu6(self._bn1(self._conv_head(seen))).mean((-2, -1))

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B 1000"]:
        """Logits."""
        return self._fc(self.features(images))
