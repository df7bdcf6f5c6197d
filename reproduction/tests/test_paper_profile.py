"""The profile with the original networks, end to end, on tiny files in the official
formats and with one epoch.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from laplacebridge_reproduction import experiments
from laplacebridge_reproduction.artifact import Run
from laplacebridge_reproduction.data import cifar
from laplacebridge_reproduction.data.dataset import sha256_of
from laplacebridge_reproduction.figure7_sets import FIGURE_7
from laplacebridge_reproduction.last_layer import result_of
from laplacebridge_reproduction.models import initialised, published
from laplacebridge_reproduction.models.densenet import densenet121

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(0)
    for layout, num_classes in ((cifar.CIFAR_10, 10), (cifar.CIFAR_100, 100)):
        inside = place / layout.folder
        inside.mkdir()
        names = "\n".join(f"class {number}" for number in range(num_classes))
        (inside / layout.names).write_text(names, encoding="utf-8")
        for file in (name for split in layout.files.values() for name in split):
            labels = np.repeat(
                np.arange(num_classes)[:, None], layout.num_labels, 1
            )  # every class once
            records = np.concatenate([labels, generator.integers(0, 256, (num_classes, 3072))], 1)
            (inside / file).write_bytes(records.astype(np.uint8).tobytes())
    (place / "svhn").mkdir()
    for split in ("train", "test"):
        images = generator.integers(0, 256, (32, 32, 3, 10)).astype(np.uint8)
        digits = np.arange(1, 11)[:, None]
        savemat(place / "svhn" / f"{split}_32x32.mat", {"X": images, "y": digits})
    return place


# Not CIFAR-100: it is the same network, and the paper's ECE is undefined on so few
# images by a model of 100 classes.
@pytest.mark.filterwarnings("ignore:The network gets")  # of one epoch on noise it learns nothing
@pytest.mark.parametrize("name", ["CIFAR-10", "SVHN"])
def test_the_original_network_is_trained_fitted_and_judged(name, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("LAPLACEBRIDGE_CACHE", str(tmp_path))
    for settings in ("CIFAR", "SVHN"):
        monkeypatch.setattr(
            experiments, settings, replace(getattr(experiments, settings), epochs=1)
        )
    run = Run("paper", progress=False, data=folder)
    found = result_of(run, name)
    assert found["missing_tests"] == []
    for structure in ("diagonal", "Kronecker"):
        tests = found["values"][structure]
        assert set(tests) == {"CIFAR-10", "CIFAR-100", "SVHN"}
        for methods in tests.values():
            assert all(
                np.isfinite(values).all()
                for metrics in methods.values()
                for values in metrics.values()
            )
    assert any(file.startswith("svhn/") for file in run.used)


@pytest.fixture
def imagenet(tmp_path, monkeypatch):
    """A folder for each of 1000 WordNet ids, photographs in a few of them, and weights
    of DenseNet-121 as they are named in the published file.
    """
    generator = np.random.default_rng(0)
    for split in ("train", "val"):
        for place in range(1000):
            folder = tmp_path / "imagenet" / split / f"n{place:08}"
            folder.mkdir(parents=True)
            if place % 250 == 0:
                for number in range(2):
                    pixels = generator.integers(0, 256, (260, 300, 3)).astype(np.uint8)
                    Image.fromarray(pixels).save(folder / f"{number}.JPEG")
    network = initialised(densenet121, seed=0)
    (tmp_path / "weights").mkdir()
    path = tmp_path / "weights" / "densenet121-a639ec97.pth"
    torch.save(network.state_dict(), path)
    known = published.PUBLISHED["imagenet-densenet121"]
    tried = replace(known, sha256=sha256_of(path), renamed=str)
    monkeypatch.setitem(published.PUBLISHED, "imagenet-densenet121", tried)
    return tmp_path


def test_imagenet_is_read_fitted_and_judged_with_densenet(imagenet):
    run = Run("paper", progress=False, data=imagenet)
    found = FIGURE_7.compute(run)
    assert found["data"]["in distribution"]["images"] == 8
    for entry in found["data"]["in distribution"]["methods"].values():
        assert sum(entry["histogram"]) == 8
        assert np.isfinite(entry["covered"]).all()
    assert FIGURE_7.figure(found) is not None
    assert "weights/densenet121-a639ec97.pth" in run.used
