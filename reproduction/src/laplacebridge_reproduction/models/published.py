"""Weights that others trained and published, for the networks of this package."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from laplacebridge.errors import LaplaceBridgeError
from laplacebridge_reproduction.data.dataset import DamagedFileError, sha256_of
from laplacebridge_reproduction.data.folder import Folder, Remote
from laplacebridge_reproduction.data.torch_file import read_torch
from laplacebridge_reproduction.models.densenet import densenet121
from laplacebridge_reproduction.models.efficientnet import EfficientNetLite0
from laplacebridge_reproduction.models.resnet import resnet14, resnet20, resnet56

_IDELBAYEV = "https://github.com/akamaster/pytorch_resnet_cifar10/raw/master/pretrained_models/"


@dataclass(frozen=True)
class Published:
    """Weights in a file.

    Attributes:
        file: Its name in the folder ``weights`` of the data folder.
        sha256: Hash of the file, or how it begins.
        build: Makes the network, whose docstring says what it is for.
        renamed: The name in our network of a layer's weights, from the name in the
            file.
        inside: Under which key the file holds the weights; None if it holds nothing
            else.
        address: Where the file is published; empty if it must be obtained by hand.
    """

    file: str
    sha256: str
    build: Callable[[], nn.Module]
    renamed: Callable[[str], str] = str
    inside: str | None = None
    address: str = ""


def _of_resnet14(name: str) -> str:
    pairs = (
        ("stack", "layer"),
        ("first_conv", "conv1"),
        ("second_conv", "conv2"),
        ("fc.", "linear."),
    )
    for theirs, ours in pairs:
        name = name.replace(theirs, ours)
    return name


def _of_densenet(name: str) -> str:
    return re.sub(
        r"\.(norm|conv)\.([12])\.", r".\1\2.", name
    )  # as they were named before torch 0.4


PUBLISHED: dict[str, Published] = {
    "cifar-10-resnet20": Published(
        "resnet20-12fca82f.th",
        "12fca82f0bebc4135bf1f32f6e3710e61d5108578464b84fd6d7f5c1b04036c8",
        resnet20,
        lambda name: name.removeprefix("module."),
        "state_dict",
        f"{_IDELBAYEV}resnet20-12fca82f.th",
    ),
    "cifar-10-resnet56": Published(
        "resnet56-4bfd9763.th",
        "4bfd97631478d6b638d2764fd2baff3edb1d7d82252d54439343b6596b9b5367",
        resnet56,
        lambda name: name.removeprefix("module."),
        "state_dict",
        f"{_IDELBAYEV}resnet56-4bfd9763.th",
    ),
    "cifar-100-resnet14": Published(
        "cifar100_resnet14_resnet_cifar_best_best.pth",
        "99282917903cffc2b678a438f4f144c87e6dd067842304e5cb97eea6054bd39d",
        resnet14,
        _of_resnet14,
        "model_state_dict",
    ),
    "imagenet-efficientnet-lite0": Published(
        "efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        EfficientNetLite0,
    ),
    "imagenet-densenet121": Published(
        "densenet121-a639ec97.pth",
        "a639ec97",
        densenet121,
        _of_densenet,
        address="https://download.pytorch.org/models/densenet121-a639ec97.pth",
    ),
}


def weights(
    name: str, folder: str | os.PathLike[str] | None = None, *, download: bool = True
) -> dict[str, Tensor]:
    """Published weights, under the names that our network gives them. The file is read
    as data only.

    Args:
        name: One of `PUBLISHED`.
        folder: The data folder, with the file in its folder ``weights``; None is the
            one that LAPLACEBRIDGE_DATA names.
        download: Whether to fetch what is missing.

    Raises:
        LaplaceBridgeError: If there are none of this name.
        DamagedFileError: If the file is not the published one.
    """
    if name not in PUBLISHED:
        raise LaplaceBridgeError(
            f"`weights(name)` needs one of {', '.join(PUBLISHED)}; got '{name}'."
        )
    published = PUBLISHED[name]
    without = "Experiments with other networks run without it."
    checksum = f"sha256:{published.sha256}" if len(published.sha256) == 64 else None
    remote = Remote(f"weights/{published.file}", published.address, checksum, without)
    path = Folder.named(folder, download=download).file(remote)
    found = sha256_of(path)
    if not found.startswith(published.sha256):
        raise DamagedFileError(
            f"{path} must have a SHA-256 that begins with {published.sha256[:8]}; got {found[:8]}."
            " Fetch it again."
        )
    content = read_torch(path)
    state: Mapping[str, Tensor] = content if published.inside is None else content[published.inside]
    return {published.renamed(key): value for key, value in state.items()}


def pretrained(
    name: str, folder: str | os.PathLike[str] | None = None, *, download: bool = True
) -> nn.Module:
    """A network with published weights, in evaluation mode. It takes images in [0, 1].

    Args:
        name: One of `PUBLISHED`.
        folder: The data folder, with the file in its folder ``weights``; None is the
            one that LAPLACEBRIDGE_DATA names.
        download: Whether to fetch what is missing.
    """
    state = weights(name, folder, download=download)
    network = PUBLISHED[name].build()
    network.load_state_dict(state)
    return network.eval()
