"""The profile with the original networks, end to end, on tiny files in the official
formats and with one epoch.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.io import savemat

from laplacebridge_reproduction import experiments
from laplacebridge_reproduction.artifact import Run
from laplacebridge_reproduction.data import cifar
from laplacebridge_reproduction.last_layer import result_of

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
