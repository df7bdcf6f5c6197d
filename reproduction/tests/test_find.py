"""Finding data sets and weights: in the folder, from the publisher, or an error that
says what to do.
"""

import hashlib
import re
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import laplacebridge as lb
from laplacebridge_reproduction.data import DamagedFileError, DataMissingError, find, find_imagenet
from laplacebridge_reproduction.models import published, weights


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """No test here may use the network, nor a folder of the one who runs it."""
    serve(monkeypatch, "no such folder")
    monkeypatch.delenv("LAPLACEBRIDGE_DATA", raising=False)
    monkeypatch.delenv("LAPLACEBRIDGE_CACHE", raising=False)


def write_idx(folder, *, count=3, prefix="t10k", name="mnist"):
    (folder / name).mkdir(parents=True, exist_ok=True)
    images = np.arange(count * 784).reshape(count, 28, 28).astype(np.uint8)
    header = struct.pack(">HBBIII", 0, 8, 3, *images.shape)
    (folder / name / f"{prefix}-images-idx3-ubyte").write_bytes(header + images.tobytes())
    labels = (np.arange(count) % 10).astype(np.uint8)
    (folder / name / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(
        struct.pack(">HBBI", 0, 8, 1, count) + labels.tobytes()
    )


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "kmnist", "notmnist"])
@pytest.mark.parametrize(("split", "prefix"), [("train", "train"), ("test", "t10k")])
def test_relatives_of_mnist_are_found_by_name_and_split(tmp_path, name, split, prefix):
    write_idx(tmp_path, name=name, prefix=prefix, count=4)
    data = find(name, split, tmp_path)
    assert data.inputs.shape == (4, 1, 28, 28)
    assert data.labels.tolist() == [0, 1, 2, 3]
    assert len(set(data.class_names)) == 10
    assert split in data.name
    assert set(data.sha256) == {f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte.gz"}


def test_the_folder_is_the_argument_or_the_variable_or_in_the_cache(tmp_path, monkeypatch):
    for count, place in ((1, "argument"), (2, "variable"), (3, "cache/data")):
        write_idx(tmp_path / place, count=count)
    monkeypatch.setenv("LAPLACEBRIDGE_CACHE", str(tmp_path / "cache"))
    assert len(find("mnist")) == 3
    monkeypatch.setenv("LAPLACEBRIDGE_DATA", str(tmp_path / "variable"))
    assert len(find("mnist")) == 2
    assert len(find("mnist", folder=tmp_path / "argument")) == 1


def packed(folder, part, count):
    folder.mkdir(exist_ok=True)
    residual = np.zeros((3, count, 32, 32), np.uint8)
    np.savez(
        folder / f"{part}.npz",
        residual=residual,
        labels=np.zeros(count, np.uint8),
        class_names=np.array([b"a"]),
    )


def test_parts_of_a_training_set_are_joined_and_the_name_says_how_many(tmp_path):
    for part in range(4):
        packed(tmp_path / "cifar-10", f"train-{part}", part + 1)
    data = find("cifar-10", "train", tmp_path)
    assert (len(data), data.name) == (10, "CIFAR-10 train, 4 of 5 parts")
    packed(tmp_path / "cifar-10", "train-4", 5)
    assert (len(whole := find("cifar-10", "train", tmp_path)), whole.name) == (15, "CIFAR-10 train")
    packed(tmp_path / "cifar-100", "train-0", 3)
    assert find("cifar-100", "train", tmp_path).name == "CIFAR-100 train, 1 of 5 parts"
    packed(tmp_path / "cifar-100", "test", 2)
    assert find("cifar-100", "test", tmp_path).name == "CIFAR-100 test"


def test_the_published_files_come_before_packed_ones(tmp_path):
    packed(tmp_path / "cifar-10", "test", 5)
    folder = tmp_path / "cifar-10" / "cifar-10-batches-bin"
    folder.mkdir()
    (folder / "batches.meta.txt").write_text("airplane\n")
    (folder / "test_batch.bin").write_bytes(bytes(2 * 3073))
    assert len(find("cifar-10", "test", tmp_path)) == 2


MISSING = {
    "mnist": (
        "mnist/t10k-images-idx3-ubyte.gz",
        "https://ossci-datasets.s3.amazonaws.com/mnist/t10k-images",
    ),
    "cifar-10": (
        "cifar-10/cifar-10-binary.tar.gz",
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    ),
    "svhn": ("svhn/test_32x32.mat", "http://ufldl.stanford.edu/housenumbers/test_32x32.mat"),
    "imagenet-sample": ("imagenet/sample-1000-224px.tar", "cannot be downloaded"),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_file_is_named_with_its_place_and_source_and_what_runs_without_it(tmp_path, name):
    file, source = MISSING[name]
    with pytest.raises(DataMissingError) as caught:
        find(name, "test", tmp_path)
    message = str(caught.value)
    for part in (file, str(tmp_path / file), source, "`folder`", "LAPLACEBRIDGE_DATA", "without"):
        assert part in message
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, lb.LaplaceBridgeError)


def test_nothing_is_downloaded_if_that_was_not_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("pooch.retrieve", lambda *_, **__: pytest.fail("it was downloaded"))
    with pytest.raises(DataMissingError, match="Downloading was not asked for"):
        find("svhn", "test", tmp_path, download=False)


def serve(monkeypatch, folder):
    """Has pooch take files from a folder instead of the network; it keeps its other
    promises.
    """

    def retrieve(url, known_hash, fname=None, path=None):
        served = Path(folder, url.rsplit("/", 1)[1])
        if not served.exists():
            raise ConnectionError(f"no route to {url}")
        kind, expected = known_hash.split(":")
        if hashlib.new(kind, served.read_bytes()).hexdigest() != expected:
            raise ValueError(f"hash of downloaded file ({fname}) does not match the known hash")
        shutil.copyfile(served, Path(path) / fname)

    monkeypatch.setattr("pooch.retrieve", retrieve)


def test_a_download_is_checked_and_kept(tmp_path, monkeypatch):
    (tmp_path / "published").mkdir()
    serve(monkeypatch, tmp_path / "published")
    with pytest.raises(
        DataMissingError, match=r"could not be downloaded [(]ConnectionError: no route to http"
    ):
        find("svhn", "test", tmp_path)
    served = tmp_path / "published" / published.PUBLISHED["cifar-10-resnet20"].file
    torch.save({"state_dict": {"module.linear.bias": torch.ones(2)}}, served)
    with pytest.raises(DataMissingError, match="does not match the known hash"):
        weights("cifar-10-resnet20", tmp_path)
    register(monkeypatch, "cifar-10-resnet20", hashlib.sha256(served.read_bytes()).hexdigest())
    for _ in range(2):  # the second time from the folder: by then nobody serves it
        assert weights("cifar-10-resnet20", tmp_path).keys() == {"linear.bias"}
        served.unlink(missing_ok=True)


def register(monkeypatch, name, sha256):
    monkeypatch.setitem(
        published.PUBLISHED, name, replace(published.PUBLISHED[name], sha256=sha256)
    )


def test_weights_that_are_not_the_published_ones_are_refused(tmp_path, monkeypatch):
    (tmp_path / "weights").mkdir()
    path = tmp_path / "weights" / published.PUBLISHED["cifar-10-resnet20"].file
    torch.save({"state_dict": {}}, path)
    with pytest.raises(
        DamagedFileError, match=f"{path.name} must have a SHA-256 that begins with 12fca82f; got"
    ):
        weights("cifar-10-resnet20", tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    register(monkeypatch, "cifar-10-resnet20", "")
    with pytest.raises(DamagedFileError, match=f"{path.name} cannot be read as weights"):
        weights("cifar-10-resnet20", tmp_path)


def harm(path):
    """What unpickling a hostile file would call."""
    Path(path).write_text("harmed")


class Hostile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return harm, (self.path,)


def test_a_file_of_weights_runs_no_code(tmp_path, monkeypatch):
    (tmp_path / "weights").mkdir()
    path = tmp_path / "weights" / published.PUBLISHED["cifar-10-resnet20"].file
    torch.save({"state_dict": Hostile(str(tmp_path / "harm"))}, path)
    register(monkeypatch, "cifar-10-resnet20", "")
    with pytest.raises(DamagedFileError, match="cannot be read as weights"):
        weights("cifar-10-resnet20", tmp_path)
    assert not (tmp_path / "harm").exists()


def test_unknown_names_are_answered_with_the_known_ones(tmp_path):
    with pytest.raises(lb.LaplaceBridgeError, match=r"needs one of mnist, .*; got 'emnist'"):
        find("emnist", "test", tmp_path)
    with pytest.raises(lb.LaplaceBridgeError, match="needs test or train; got 'validation'"):
        find("mnist", "validation", tmp_path)
    with pytest.raises(lb.LaplaceBridgeError, match="needs test; got 'train'"):
        find("tiny-imagenet", "train", tmp_path)
    with pytest.raises(
        lb.LaplaceBridgeError, match=r"needs one of cifar-10-resnet20, .*; got 'alexnet'"
    ):
        weights("alexnet", tmp_path)


def test_all_of_imagenet_is_a_folder_that_is_obtained_by_hand(tmp_path):
    with pytest.raises(DataMissingError, match=re.escape(f"as {tmp_path / 'imagenet' / 'val'}")):
        find_imagenet("val", tmp_path)
    (tmp_path / "imagenet" / "val" / "n01").mkdir(parents=True)
    Image.new("RGB", (9, 9)).save(tmp_path / "imagenet" / "val" / "n01" / "a.png")
    assert find_imagenet("val", tmp_path).class_names == ("n01",)
