"""Files of examples: arrays, and folders of images."""

import numpy as np
import pytest
import torch
from cli_project import fails, records

import laplacebridge as lb
from laplacebridge.cli.readers import ArrayBatches, ImageBatches, Preparation


@pytest.mark.filterwarnings("ignore:The network gets")  # nobody trained it
def test_images_of_a_folder_are_read_by_class_in_order(call, folder, tmp_path):
    image = pytest.importorskip("PIL.Image")
    (folder / "image_network.py").write_text(
        "from torch import nn\nnetwork = lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 2))\n"
    )
    for name, color in (("dog", (0, 255, 0)), ("cat", (255, 0, 51))):
        (tmp_path / "images" / name).mkdir(parents=True)
        for index in range(3):
            image.new("RGB", (6 + index, 4), color).save(
                tmp_path / "images" / name / f"{index}.png"
            )
    options = ("--model", "image_network:network", "--size", "2", "--seed", "3")
    path = tmp_path / "classifier.safetensors"
    assert call("fit", tmp_path / "images", *options, "-o", path).exit_code == 0
    result = call("predict", path, tmp_path / "images", *options, "-q")
    rows = records(result.stdout)
    assert [row["name"] for row in rows] == [
        f"{name}/{index}.png" for name in ("cat", "dog") for index in range(3)
    ]
    assert [row["label"] for row in rows] == [0, 0, 0, 1, 1, 1]
    prepared = Preparation(2, (0.5,), (0.5, 1.0, 0.1))
    batches = ImageBatches(
        tmp_path / "images", class_names=["owl", "dog", "cat"], preparation=prepared, batch_size=4
    )
    images, labels = next(iter(batches))
    assert labels.tolist() == [2, 2, 2, 1]
    torch.testing.assert_close(
        images[0], torch.tensor([1.0, -0.5, -3.0]).view(3, 1, 1).expand(3, 2, 2)
    )


def test_arrays_without_examples_are_refused(call, fitted, tmp_path):
    np.savez(tmp_path / "none.npz", features=np.zeros((0, 8)))
    fails(
        call("predict", fitted.path, tmp_path / "none.npz"),
        1,
        "none.npz needs at least one example",
    )


@pytest.mark.filterwarnings("ignore:The network gets")  # nobody trained it
def test_names_as_labels_and_images_of_bytes_are_read_from_arrays(call, folder, tmp_path):
    (folder / "byte_network.py").write_text(
        "from torch import nn\nnetwork = lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 2))\n"
    )
    images = np.random.default_rng(0).integers(0, 256, (40, 4, 4, 3), dtype=np.uint8)
    names = np.array(["owl", "cat"])[np.arange(40) % 2]
    np.savez(tmp_path / "bytes.npz", inputs=images, labels=names)
    scaled = (images.transpose(0, 3, 1, 2) / 255 - 0.5) / 0.25
    np.savez(
        tmp_path / "scaled.npz",
        inputs=scaled.astype(np.float32),
        labels=(names == "owl").astype(int),
    )
    found = {}
    for kind in ("bytes", "scaled"):
        options = ("--model", "byte_network:network", "--seed", "3")
        prepared = ("--mean", "0.5", "--std", "0.25") if kind == "bytes" else ()
        path = tmp_path / f"{kind}.safetensors"
        fit = ("--prior-precision", "1", "-o", path)
        result = call("fit", tmp_path / f"{kind}.npz", *options, *prepared, *fit)
        assert result.exit_code == 0, result.output
        found[kind] = records(
            call("predict", path, tmp_path / f"{kind}.npz", *options, *prepared, "-q").stdout
        )
    assert [row["label"] for row in found["bytes"]] == [1, 0] * 20
    files = (tmp_path / "bytes.safetensors", tmp_path / "bytes.npz")
    options = ("--model", "byte_network:network", "--seed", "3", "--mean", "0.5", "--std", "0.25")
    result = call("score", *files, *options, "-o", tmp_path / "scores")
    assert result.exit_code == 0, result.output
    parquet = pytest.importorskip("pyarrow.parquet")
    (scores,) = (tmp_path / "scores").glob("*.parquet")
    probabilities = parquet.read_table(scores)["probability"].to_pylist()
    assert probabilities == pytest.approx(
        [max(row["probabilities"]) for row in found["bytes"]], rel=1e-4
    )
    for one, other in zip(found["bytes"], found["scaled"]):
        assert one["log_total"] == pytest.approx(other["log_total"], rel=1e-4)


def test_names_among_the_labels_of_arrays_must_be_known(tmp_path):
    path = tmp_path / "named.npz"
    np.savez(path, inputs=np.zeros((2, 3)), labels=np.array(["owl", "elk"]))
    options = {"preparation": Preparation(), "batch_size": 2}
    batches = ArrayBatches(path, class_names=["yak", "owl", "elk"], **options)
    assert next(iter(batches))[1].tolist() == [1, 2]
    with pytest.raises(lb.InputError, match=r"'elk' is none of the classes owl, yak\."):
        ArrayBatches(path, class_names=["owl", "yak"], **options)


def test_digits_as_texts_are_numbers_and_bytes_must_be_texts(tmp_path):
    path = tmp_path / "digits.npz"
    options = {"class_names": (), "preparation": Preparation(), "batch_size": 9}
    np.savez(path, inputs=np.zeros((3, 2)), labels=np.array(["10", "2", "0"]))
    assert next(iter(ArrayBatches(path, **options)))[1].tolist() == [10, 2, 0]
    np.savez(path, inputs=np.zeros((2, 2)), labels=np.array([b"caf\xc3\xa9", b"tea"]))
    assert ArrayBatches(path, **options).class_names == ("café", "tea")
    np.savez(path, inputs=np.zeros((2, 2)), labels=np.array([b"caf\xe9", b"tea"]))
    with pytest.raises(lb.InputError, match="names in UTF-8"):
        ArrayBatches(path, **options)


def test_held_out_data_that_name_other_classes_are_refused(call, folder, tmp_path):
    (folder / "two_numbers.py").write_text(
        "from torch import nn\nnetwork = lambda: nn.Linear(2, 3)\n"
    )
    inputs = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    for name, classes in (("train", ["a", "b", "c"]), ("val", ["a", "b", "d"])):
        labels = np.array(classes)[np.arange(30) % 3]
        np.savez(tmp_path / f"{name}.npz", inputs=inputs, labels=labels)
    options = ("--model", "two_numbers:network", "-o", tmp_path / "c.safetensors")
    held_out = ("--validation", tmp_path / "val.npz")
    result = call("fit", tmp_path / "train.npz", *held_out, *options)
    assert result.exit_code != 0
    assert "different classes (c, d)" in " ".join(result.output.split())


@pytest.mark.parametrize("shape", [(2, 5, 6), (2, 1, 5, 6), (2, 3, 5, 6), (2, 5, 6, 3)])
def test_images_of_bytes_are_scaled_and_have_channels_first(tmp_path, shape):
    images = np.full(shape, 51, dtype=np.uint8)
    np.savez(tmp_path / "bytes.npz", inputs=images)
    batches = ArrayBatches(
        tmp_path / "bytes.npz", class_names=(), preparation=Preparation(), batch_size=2
    )
    (found,) = batches
    wrong = ArrayBatches(
        tmp_path / "bytes.npz",
        class_names=(),
        preparation=Preparation(mean=(0.1, 0.2) if 3 in shape else (0.1, 0.2, 0.3)),
        batch_size=2,
    )
    with pytest.raises(lb.InputError, match="one for each channel"):
        list(wrong)
    assert found.shape == ((2, 3, 5, 6) if shape[-1] == 3 else shape)
    torch.testing.assert_close(found, torch.full_like(found, 0.2))
