"""Photographs: folders and archives, on tiny images that are written here."""

import io
import json
import tarfile

import numpy as np
import pytest
import torch
from cases import seeded
from PIL import Image

from laplacebridge_reproduction.data import DamagedFileError, ImageFolder
from laplacebridge_reproduction.data.imagenet import read_sample, read_tiny
from laplacebridge_reproduction.data.images import read_archive, read_image

IDS, NAMES = ["n01", "n02", "n03"], ["tench", "goldfish", "shark"]


def picture(color, size=(8, 8), kind="PNG"):
    stream = io.BytesIO()
    Image.new("RGB" if isinstance(color, tuple) else "L", size, color).save(stream, kind)
    return stream.getvalue()


def archive(path, files):
    with tarfile.open(path, "w") as writer:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            writer.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def lists(tmp_path):
    for name, content in (("ids.json", IDS), ("names.json", NAMES)):
        (tmp_path / name).write_text(json.dumps(content))
    return tmp_path / "ids.json", tmp_path / "names.json"


def test_a_sample_has_the_classes_that_its_file_names_say(tmp_path, lists):
    files = {"n03_shark.JPEG": picture((255, 0, 0)), "n01_tench.JPEG": picture((0, 0, 7))}
    data = read_sample(archive(tmp_path / "sample.tar", files), *lists, name="sample")
    assert data.labels.tolist() == [2, 0]
    assert data.class_names == ("tench", "goldfish", "shark")
    assert data.inputs[:, :, 3, 3].tolist() == [[255, 0, 0], [0, 0, 7]]
    assert set(data.sha256) == {"sample.tar", "ids.json", "names.json"}


def test_tiny_imagenet_has_the_classes_that_its_annotations_say(tmp_path, lists):
    annotations = (
        "val_0.JPEG\tn02\t0\t0\t8\t8\nval_1.JPEG\tn01\t0\t0\t8\t8\nval_2.JPEG\tn01\t0\t0\t8\t8\n"
    )
    files = {
        "val/val_annotations.txt": annotations.encode(),
        "val/val_1.JPEG": picture(
            9
        ),  # grey, as some of them are; and not all that are annotated are there
        "val/val_0.JPEG": picture((1, 2, 3)),
    }
    data = read_tiny(archive(tmp_path / "tiny.tar", files), *lists, name="tiny")
    assert data.labels.tolist() == [1, 0]
    assert data.inputs[:, :, 0, 0].tolist() == [[1, 2, 3], [9, 9, 9]]
    with pytest.raises(DamagedFileError, match=r"must hold val_annotations.txt"):
        read_tiny(archive(tmp_path / "tiny.tar", {"val_1.JPEG": picture(9)}), *lists, name="tiny")


def test_damaged_archives_are_named(tmp_path, lists):
    path = tmp_path / "sample.tar"
    for files, message in (
        ({"n04_whale.JPEG": picture(1)}, "'n04', which is none of the 3 classes"),
        ({"n01_a.JPEG": picture(1)[:40]}, "n01_a.JPEG in .*sample.tar cannot be read as an image"),
        ({"n01_a.JPEG": b"text"}, "n01_a.JPEG in .*sample.tar cannot be read as an image"),
        (
            {"n01_a.JPEG": picture(1), "n01_b.JPEG": picture(1, (8, 9))},
            r"one size; got 8 x 8 and 8 x 9 \(n01_b.JPEG\)",
        ),
        ({}, "empty or cut short"),
    ):
        with pytest.raises(DamagedFileError, match=message):
            read_sample(archive(path, files), *lists, name="sample")
    whole = archive(
        path, {"n01_a.JPEG": picture(1, (99, 99)), "n02_b.JPEG": np.arange(5000).tobytes()}
    ).read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(DamagedFileError, match=r"sample.tar cannot be read as an archive"):
            read_archive(path)


@pytest.fixture
def folder(tmp_path):
    """Two classes with two and one images, whose colour says which they are; and other
    files.
    """
    for name, color in (("n02/b.JPEG", 40), ("n02/a.png", 80), ("n01/z.jpg", 120)):
        path = tmp_path / "val" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture((color, color, color), (300, 200), "PNG"))
    (tmp_path / "val" / "n01" / "notes.txt").write_text("no image")
    (tmp_path / "val" / "list.txt").write_text("no class")
    return tmp_path / "val"


def test_a_folder_of_images_is_read_in_batches_with_classes_in_alphabetical_order(folder):
    images = ImageFolder.at(folder, name="validation")
    assert len(images) == 3
    assert images.class_names == ("n01", "n02")
    batches = list(images.batches(2))
    assert [tuple(batch.shape) for batch, _ in batches] == [(2, 3, 224, 224), (1, 3, 224, 224)]
    assert torch.cat([labels for _, labels in batches]).tolist() == [0, 1, 1]
    assert torch.cat([batch[:, 0, 100, 100] for batch, _ in batches]).tolist() == [120, 80, 40]


def test_a_sample_of_a_folder_is_drawn_without_replacement_and_keeps_labels(folder):
    images = ImageFolder.at(folder, name="validation")
    label_of = dict(zip(images.paths, images.labels.tolist()))
    for count in (2, 3, 10):
        drawn = images.sample(count, seeded(5))
        assert len(set(drawn.paths)) == min(count, 3)
        assert [label_of[path] for path in drawn.paths] == drawn.labels.tolist()
    orders = {images.sample(3, seeded(seed)).paths for seed in range(20)}
    assert len(orders) > 1


def test_a_folder_without_classes_is_named(folder):
    with pytest.raises(
        DamagedFileError, match="n01 must hold one subfolder of images for each class; got 0"
    ):
        ImageFolder.at(folder / "n01", name="validation")


@pytest.mark.parametrize(
    "size", [(512, 256), (256, 512), (300, 200), (100, 100), (257, 300)], ids=str
)
def test_the_middle_of_an_image_is_kept(tmp_path, size):
    """A horizontal ramp of grey: its middle stays in the middle, and its slope follows
    the scale.
    """
    ramp = np.tile(np.linspace(0, 255, size[0]), (size[1], 1))
    path = tmp_path / "ramp.png"
    Image.fromarray(np.stack([ramp] * 3, -1).astype(np.uint8)).save(path)
    image = read_image(path, name="ramp", short_side=256).astype(float)
    assert image.shape == (3, 224, 224)
    width = 256 * max(1, size[0] / size[1])
    middle = image[0, 100]
    assert abs((middle[111] + middle[112]) / 2 - 127.5) < 2
    assert abs((middle[-1] - middle[0]) / 223 - 255 / width) < 0.03


def test_an_image_is_left_as_it_is_unless_asked(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "noise.png")
    np.testing.assert_array_equal(
        read_image(tmp_path / "noise.png", name="noise"), pixels.transpose(2, 0, 1)
    )
