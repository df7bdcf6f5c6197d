"""Files of examples: arrays, and folders of images."""

import numpy as np
import pytest
import torch
from cli_project import fails, records

from laplacebridge.cli.readers import ImageBatches, Preparation


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
