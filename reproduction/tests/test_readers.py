"""Readers of arrays: on tiny files in the published formats, whole and damaged."""

import gzip
import hashlib
import io
import struct
import tarfile

import numpy as np
import pytest
import torch
from scipy.io import savemat

from laplacebridge_reproduction.data import DamagedFileError, DataSet, cifar, joined
from laplacebridge_reproduction.data.idx import read_idx
from laplacebridge_reproduction.data.imagenet import read_features
from laplacebridge_reproduction.data.svhn import read_svhn


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("shape", [(5,), (3, 28, 28)], ids=str)
def test_an_idx_file_gives_back_its_array(tmp_path, compressed, shape):
    array, path = noise(*shape), tmp_path / "file"
    path.write_bytes(gzip.compress(idx(array)) if compressed else idx(array))
    np.testing.assert_array_equal(read_idx(path), array)


WHOLE = idx(noise(3, 2, 2))
DAMAGED_IDX = {
    "empty": (b"", "00 00 08"),
    "text": (b"<html>not found</html>", "3c 68 74"),
    "of floats": (b"\0\0\x0d\1" + bytes(8), "00 00 0d"),
    "cut in the header": (WHOLE[:9], "header, after 9 bytes"),
    "cut in the bytes": (WHOLE[:-1], "must hold 12 bytes .* got 11"),
    "with more behind": (WHOLE + b"!", "must hold 12 bytes .* got 13"),
    "compressed and cut": (gzip.compress(WHOLE)[:-9], "cannot be decompressed"),
    "compressed and damaged": (gzip.compress(WHOLE)[:10] + b"\xff" * 12, "cannot be decompressed"),
    "of impossible size": (b"\0\0\x08\x03" + b"\xff" * 12, "got 0"),
}


@pytest.mark.parametrize("name", DAMAGED_IDX)
def test_a_damaged_idx_file_is_named(tmp_path, name):
    content, message = DAMAGED_IDX[name]
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=f"{path.name} .*{message}"):
        read_idx(path)


LAYOUTS = {"CIFAR-10": cifar.CIFAR_10, "CIFAR-100": cifar.CIFAR_100}


def cifar_files(layout):
    """Two records in every file, with labels that tell coarse from fine."""
    files = {layout.names: b"apple\nbear\nclock\n\n"}
    for names in layout.files.values():
        for name in names:
            images = noise(2, 3072, seed=len(files))
            labels = np.array([[9, 1], [9, 2]], dtype=np.uint8)[:, -layout.num_labels :]
            files[name] = np.concatenate([labels, images], 1).tobytes()
    return files


def archive(path, files, folder=""):
    with tarfile.open(path, "w:gz") as writer:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}{name}")
            member.size = len(content)
            writer.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture(params=["folder", "archive"])
def written(request, tmp_path):
    """Writes files of CIFAR into a folder or an archive."""

    def write(layout, files):
        if request.param == "archive":
            return archive(tmp_path / "cifar.tar.gz", files, f"{layout.folder}/")
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
        return tmp_path

    return write


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("split", ["train", "test"])
def test_the_binary_version_of_cifar_gives_images_and_fine_labels(written, name, split):
    layout = LAYOUTS[name]
    files = cifar_files(layout)
    data = cifar.read_binary(written(layout, files), layout, split, name=name)
    assert data.labels.tolist() == [1, 2] * len(layout.files[split])
    assert data.class_names == ("apple", "bear", "clock")
    pixels = np.frombuffer(files[layout.files[split][0]], np.uint8).reshape(2, -1)[
        :, layout.num_labels :
    ]
    # red, then green, then blue, each by rows
    np.testing.assert_array_equal(data.inputs[:2].numpy(), pixels.reshape(2, 3, 32, 32))


@pytest.mark.parametrize("name", LAYOUTS)
def test_damaged_files_of_cifar_are_named(written, name, tmp_path):
    layout = LAYOUTS[name]
    file = layout.files["test"][0]
    whole = cifar_files(layout)
    for content in (whole[file][:-1], b""):
        with pytest.raises(
            DamagedFileError,
            match=rf"{file} .* records of 307\d bytes; it has {len(content)} bytes",
        ):
            cifar.read_binary(written(layout, {**whole, file: content}), layout, "test", name=name)
    with pytest.raises(DamagedFileError, match="labels from 0 to 0; got 1 to 2"):
        cifar.read_binary(
            written(layout, {**whole, layout.names: b"apple\n"}), layout, "test", name=name
        )


def test_an_archive_that_is_cut_or_another_version_is_named(tmp_path):
    layout = cifar.CIFAR_10
    path = archive(tmp_path / "cifar-10-binary.tar.gz", cifar_files(layout), f"{layout.folder}/")
    with pytest.raises(
        DamagedFileError, match=r"cifar-10-binary.tar.gz must hold cifar-100-binary/"
    ):
        cifar.read_binary(path, cifar.CIFAR_100, "test", name="CIFAR-100")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(
        DamagedFileError, match=r"cifar-10-binary.tar.gz cannot be read as an archive"
    ):
        cifar.read_binary(path, layout, "train", name="CIFAR-10")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DamagedFileError, match=r"batches.meta.txt is not there"):
        cifar.read_binary(tmp_path / "empty", layout, "train", name="CIFAR-10")


def packed(images):
    """What `unpacked` undoes, written pixel by pixel."""
    red, green, blue = images.astype(int).transpose(1, 0, 2, 3)
    planes = np.stack([green, red - green + 128, blue - green + 128]) % 256
    residual = np.zeros_like(planes)
    for row in range(32):
        for column in range(32):
            if row and column:
                left, above = planes[..., row, column - 1], planes[..., row - 1, column]
                corner = planes[..., row - 1, column - 1]
                guess = np.clip(
                    left + above - corner, np.minimum(left, above), np.maximum(left, above)
                )
            else:  # the first row follows the left neighbour, the first column the upper one
                guess = planes[..., row - bool(row), column - bool(column)] if row or column else 0
            residual[..., row, column] = (planes[..., row, column] - guess) % 256
    return residual.astype(np.uint8)


def test_packed_images_are_unpacked_without_loss(tmp_path):
    smooth = np.clip(
        np.cumsum(np.random.default_rng(1).integers(-5, 6, (2, 3, 32, 32)), -1) + 100, 0, 255
    )
    images = np.concatenate([noise(2, 3, 32, 32), smooth.astype(np.uint8)])
    path = tmp_path / "test.npz"
    np.savez(
        path,
        residual=packed(images),
        labels=np.array([0, 1, 1, 0], np.uint8),
        class_names=np.array([b"a", b"b"]),
    )
    data = cifar.read_packed(path, name="packed")
    np.testing.assert_array_equal(data.inputs.numpy(), images)
    assert data.labels.tolist() == [0, 1, 1, 0]
    assert data.class_names == ("a", "b")
    assert data.sha256 == {"test.npz": hashlib.sha256(path.read_bytes()).hexdigest()}


def test_damaged_packed_images_are_named(tmp_path):
    path = tmp_path / "test.npz"
    content = {
        "residual": noise(3, 2, 32, 32),
        "labels": noise(2) % 2,
        "class_names": np.array([b"a", b"b"]),
    }
    np.savez(path, **{**content, "labels": noise(3) % 2})
    with pytest.raises(
        DamagedFileError, match=r"test.npz .*shape \(3, 3, 32, 32\).* got uint8 \(3, 2, 32, 32\)"
    ):
        cifar.read_packed(path, name="packed")
    np.savez(path, residual=content["residual"])
    with pytest.raises(DamagedFileError, match=r"test.npz cannot be read .*labels"):
        cifar.read_packed(path, name="packed")
    np.savez(path, **{**content, "class_names": np.array(["a", 5], dtype=object)})
    with pytest.raises(DamagedFileError, match=r"test.npz cannot be read .*allow_pickle"):
        cifar.read_packed(path, name="packed")
    np.savez(path, **content)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DamagedFileError, match=r"test.npz cannot be read"):
        cifar.read_packed(path, name="packed")


def test_svhn_gives_the_digit_as_label_and_channels_first(tmp_path):
    images, path = noise(32, 32, 3, 4), tmp_path / "test_32x32.mat"
    savemat(
        path, {"X": images, "y": np.array([[1], [10], [9], [2]], np.uint8)}, do_compression=True
    )
    data = read_svhn(path)
    assert data.labels.tolist() == [1, 0, 9, 2]
    assert data.inputs[3, 2, 5, 7] == images[5, 7, 2, 3]
    assert data.inputs.shape == (4, 3, 32, 32)


def test_a_damaged_file_of_svhn_is_named(tmp_path):
    path = tmp_path / "test_32x32.mat"
    savemat(path, {"X": noise(32, 32, 3, 4), "y": np.ones((4, 1), np.uint8)}, do_compression=True)
    whole = path.read_bytes()
    for content in (
        b"",
        b"<html>",
        whole[: len(whole) // 2],
        whole[:100],
        whole[:200] + b"\xff" * 50 + whole[250:],
    ):
        path.write_bytes(content)
        with pytest.raises(
            DamagedFileError, match=r"test_32x32.mat cannot be read as a MATLAB file"
        ):
            read_svhn(path)
    savemat(path, {"X": noise(32, 32, 3, 4)})
    with pytest.raises(DamagedFileError, match="KeyError 'y'"):
        read_svhn(path)
    savemat(path, {"X": noise(3, 32, 32, 4), "y": np.ones((4, 1))})
    with pytest.raises(DamagedFileError, match=r"got uint8 \(3, 32, 32, 4\)"):
        read_svhn(path)
    savemat(path, {"X": noise(32, 32, 3, 4), "y": np.ones((5, 1))})
    with pytest.raises(DamagedFileError, match="4 inputs and 5 labels"):
        read_svhn(path)


def test_features_are_read_as_float32(tmp_path):
    path, names = tmp_path / "features.npz", tmp_path / "names.json"
    np.savez(path, features=np.array([[0.5, 2.0]], np.float16), labels=np.array([1], np.uint16))
    names.write_text('["tench", "goldfish"]')
    data = read_features(path, names, name="features")
    torch.testing.assert_close(data.inputs, torch.tensor([[0.5, 2.0]]), rtol=0, atol=0)
    assert data.scaled is data.inputs
    assert data.labels.tolist() == [1]
    names.write_text('{"0": "tench"}')
    with pytest.raises(DamagedFileError, match=r"names.json must be a JSON list"):
        read_features(path, names, name="features")
    names.write_text("tench")
    with pytest.raises(DamagedFileError, match=r"names.json cannot be read as JSON"):
        read_features(path, names, name="features")


def small(name="small", labels=(0, 1, 1)):
    inputs = torch.arange(3 * 4, dtype=torch.uint8).view(3, 1, 2, 2)
    return DataSet(name, inputs, torch.tensor(labels), ("left", "right"), {name: "hash"})


def test_images_are_scaled_from_bytes_to_the_unit_interval():
    images = torch.tensor([[[[0, 51, 255]]]], dtype=torch.uint8)
    scaled = DataSet("grey", images, torch.tensor([0]), ("only",)).scaled
    torch.testing.assert_close(scaled, torch.tensor([[[[0.0, 0.2, 1.0]]]]))


def test_rows_of_a_data_set_keep_their_labels():
    for rows in (slice(1, None), [1, 2], torch.tensor([1, 2])):
        part = small()[rows]
        assert torch.equal(part.inputs, small().inputs[1:])
        assert part.labels.tolist() == [1, 1]
        assert part.class_names == ("left", "right")


def test_the_digest_is_that_of_the_examples_in_their_order():
    assert small("one").digest() == small("other").digest()
    others = [small(labels=(1, 1, 1)), small()[[0, 2, 1]], small()[:2], small()[[0, 1, 2, 2]]]
    assert len({data.digest() for data in (small(), *others)}) == 5


def test_parts_are_joined_in_order():
    whole = joined("whole", [small("a"), small("b")[:1]])
    assert whole.labels.tolist() == [0, 1, 1, 0]
    assert whole.sha256 == {"a": "hash", "b": "hash"}
    with pytest.raises(ValueError, match="0 parts with 0 lists"):
        joined("whole", [])
    other = DataSet("c", torch.zeros(1, 2), torch.tensor([0]), ("up",))
    with pytest.raises(ValueError, match="2 parts with 2 lists"):
        joined("whole", [small("a"), other])


def test_inputs_and_labels_must_belong_together():
    with pytest.raises(ValueError, match="3 inputs and 2 labels"):
        DataSet("odd", torch.zeros(3, 2), torch.tensor([0, 1]), ("left", "right"))
    with pytest.raises(ValueError, match="from 0 to 1; got 0 to 2"):
        DataSet("odd", torch.zeros(3, 2), torch.tensor([0, 1, 2]), ("left", "right"))
    with pytest.raises(ValueError, match="from 0 to 1; got -1 to 1"):
        DataSet("odd", torch.zeros(2, 2), torch.tensor([-1, 1]), ("left", "right"))
