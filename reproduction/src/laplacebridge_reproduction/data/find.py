"""Data sets by name: where their files lie in the data folder, where they are
published, and what needs them.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

from laplacebridge.errors import LaplaceBridgeError
from laplacebridge_reproduction.data import cifar, imagenet, svhn
from laplacebridge_reproduction.data.dataset import DataSet, from_bytes, joined
from laplacebridge_reproduction.data.folder import Folder, Remote
from laplacebridge_reproduction.data.idx import read_idx
from laplacebridge_reproduction.data.images import ImageFolder

DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
KANA = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
LETTERS = tuple("ABCDEFGHIJ")
PACKED_PARTS = 5  # of a training set of CIFAR

_OTHERS = "The experiments on other data sets run without it."
_TABLES_OF_MNIST = (
    "It is one of the unusual data sets beside MNIST; the other columns of that table do not"
    " need it."
)


@dataclass(frozen=True)
class _Idx:
    """A relative of MNIST: where it is published, and the checksums of images and
    labels of each split.
    """

    title: str
    address: str
    class_names: tuple[str, ...]
    checksums: dict[str, tuple[str, str]]
    without: str

    def __call__(self, name: str, split: str, folder: Folder) -> DataSet:
        prefix = {"train": "train", "test": "t10k"}[split]
        checksums = self.checksums.get(split, ("", ""))
        paths = []
        for kind, checksum in zip(("images-idx3", "labels-idx1"), checksums):
            file = f"{prefix}-{kind}-ubyte"
            address = f"{self.address}{file}.gz" if checksum else ""
            remote = Remote(f"{name}/{file}.gz", address, checksum, self.without)
            paths.append(folder.existing(f"{name}/{file}") or folder.file(remote))
        images, labels = (read_idx(path) for path in paths)
        return from_bytes(
            f"{self.title} {split}", images[:, None], labels, self.class_names, *paths
        )


@dataclass(frozen=True)
class _Cifar:
    """CIFAR-10 or -100: the archive, the folder in it, or files packed without loss."""

    title: str
    layout: cifar.Binary
    archive: str
    checksum: str

    def __call__(self, name: str, split: str, folder: Folder) -> DataSet:
        title = f"{self.title} {split}"
        places = (self.layout.folder, f"{name}/{self.layout.folder}", f"{name}/{self.archive}")
        binary = folder.existing(*places)
        packed = [] if binary else self._packed(name, split, folder)
        if packed:
            whole = PACKED_PARTS if split == "train" else 1
            return joined(
                title if len(packed) == whole else f"{title}, {len(packed)} of {whole} parts",
                packed,
            )
        address = f"https://www.cs.toronto.edu/~kriz/{self.archive}"
        path = binary or folder.file(
            Remote(f"{name}/{self.archive}", address, self.checksum, _OTHERS)
        )
        return cifar.read_binary(path, self.layout, split, name=title)

    def _packed(self, name: str, split: str, folder: Folder) -> list[DataSet]:
        parts = [split, *(f"{split}-{part}" for part in range(PACKED_PARTS))]
        files = [path for part in parts if (path := folder.existing(f"{name}/{part}.npz"))]
        return [cifar.read_packed(path, name=f"{self.title} {path.stem}") for path in files]


def _svhn(name: str, split: str, folder: Folder) -> DataSet:
    checksum = {
        "train": "md5:e26dedcc434d2e4c54c9b2d4a06d8373",
        "test": "md5:eb5a983be6a315427106f1b164d9cef3",
    }[split]
    file = f"{split}_32x32.mat"
    without = (
        "The SVHN table and the SVHN columns of the CIFAR tables need it; everything else runs"
        " without."
    )
    remote = Remote(
        f"{name}/{file}", f"http://ufldl.stanford.edu/housenumbers/{file}", checksum, without
    )
    return svhn.read_svhn(folder.file(remote), name=f"SVHN {split}")


def _extract(
    file: str, reader: Callable[..., DataSet], title: str, *lists: str
) -> Callable[..., DataSet]:
    """A reader of a file in the folder ``imagenet``, beside which lists of classes lie."""

    def read(_: str, __: str, folder: Folder) -> DataSet:
        without = "Only the extracts of ImageNet need it; the other experiments run without."
        paths = [
            folder.file(Remote(f"imagenet/{name}", "", None, without)) for name in (file, *lists)
        ]
        return reader(*paths, name=title)

    return read


_IDS, _NAMES = "wnids.json", "imagenet-simple-labels.json"
_FEATURES = "sample-1000-efficientnet-lite0-features.npz"

DATA_SETS: dict[str, Callable[[str, str, Folder], DataSet]] = {
    "mnist": _Idx(
        "MNIST",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        DIGITS,
        {
            "train": (
                "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "md5:d53e105ee54ea40749a09fcbcd1e9432",
            ),
            "test": (
                "md5:9fb629c4189551a2d022fa330f9573f3",
                "md5:ec29112dd5afa0611ce80d1b7f02629c",
            ),
        },
        _OTHERS,
    ),
    "fashion-mnist": _Idx(
        "Fashion-MNIST",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        CLOTHES,
        {
            "train": (
                "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "md5:25c81989df183df01b3e8a0aad5dffbe",
            ),
            "test": (
                "md5:bef4ecab320f06d8554ea6380940ec79",
                "md5:bb300cfdad3c16e7a12a480ee83cd310",
            ),
        },
        _TABLES_OF_MNIST,
    ),
    "kmnist": _Idx(
        "KMNIST",
        "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
        KANA,
        {
            "train": (
                "md5:bdb82020997e1d708af4cf47b453dcf7",
                "md5:e144d726b3acfaa3e44228e80efcd344",
            ),
            "test": (
                "md5:5c965bf0a639b31b8f53240b1b52f4d7",
                "md5:7320c461ea6c1c855c0b718fb2a4b134",
            ),
        },
        _TABLES_OF_MNIST,
    ),
    "notmnist": _Idx(
        "notMNIST",
        "https://raw.githubusercontent.com/davidflanagan/notMNIST-to-MNIST/master/",
        LETTERS,
        {"test": ("md5:2c87c839a4ef9b238846600eec8c35b7", "md5:7ea9118cbafd0f6e3ee2ad771d782a01")},
        _TABLES_OF_MNIST,
    ),
    "cifar-10": _Cifar(
        "CIFAR-10", cifar.CIFAR_10, "cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530"
    ),
    "cifar-100": _Cifar(
        "CIFAR-100",
        cifar.CIFAR_100,
        "cifar-100-binary.tar.gz",
        "md5:03b5dce01913d631647c71ecec9e9cb8",
    ),
    "svhn": _svhn,
    "imagenet-sample": _extract(
        "sample-1000-224px.tar", imagenet.read_sample, "ImageNet sample", _IDS, _NAMES
    ),
    "imagenet-features": _extract(
        _FEATURES, imagenet.read_features, "ImageNet sample, features", _NAMES
    ),
    "tiny-imagenet": _extract(
        "tiny-imagenet-val-2000.tar", imagenet.read_tiny, "Tiny-ImageNet", _IDS, _NAMES
    ),
}
SPLITS = {"train", "test"}
ONLY_TEST = {"imagenet-sample", "imagenet-features", "tiny-imagenet"}


def find(
    name: str,
    split: str = "test",
    folder: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
) -> DataSet:
    """A data set of the paper, from the data folder, or else from its publisher.

    The files lie in a folder with the name of the data set, under the names that their
    publishers give them:

        mnist, fashion-mnist, kmnist, notmnist    idx files, compressed or not
        cifar-10, cifar-100    the archive of the binary version, unpacked or not;
                               or packed npz files
        svhn                   train_32x32.mat, test_32x32.mat
        imagenet               imagenet-sample, imagenet-features, tiny-imagenet

    If only some of the packed parts of a training set of CIFAR are there, these are the
    data set, and its name says so.

    Args:
        name: One of the names above.
        split: ``train`` or ``test``.
        folder: The data folder; None is the one that LAPLACEBRIDGE_DATA names, or else
            a folder in the cache.
        download: Whether to fetch what is missing.

    Raises:
        LaplaceBridgeError: If there is no such data set or split.
    """
    if name not in DATA_SETS:
        raise LaplaceBridgeError(f"`find(name)` needs one of {', '.join(DATA_SETS)}; got '{name}'.")
    splits = {"test"} if name in ONLY_TEST else SPLITS
    if split not in splits:
        raise LaplaceBridgeError(
            f"`find('{name}', split)` needs {' or '.join(sorted(splits))}; got '{split}'."
        )
    return DATA_SETS[name](name, split, Folder.named(folder, download=download))


def find_imagenet(split: str, folder: str | os.PathLike[str] | None = None) -> ImageFolder:
    """The training or validation images of ImageNet, read as they are needed.

    They lie in ``imagenet/train`` or ``imagenet/val``, in one subfolder for each
    WordNet id, and must be obtained by hand: their publisher asks for an agreement.

    Args:
        split: ``train`` or ``val``.
        folder: The data folder; None is the one that LAPLACEBRIDGE_DATA names, or else
            a folder in the cache.
    """
    without = (
        "Only the experiment on all of ImageNet needs it; the one on features of a sample runs"
        " without."
    )
    place = Folder.named(folder, download=False)
    path = place.file(Remote(f"imagenet/{split}", "", None, without))
    return ImageFolder.at(path, name=f"ImageNet {split}")
