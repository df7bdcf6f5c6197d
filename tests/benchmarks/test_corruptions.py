"""Corruptions keep shapes and ranges, grow with severity, and do what they are called."""

import importlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import seeded
from scipy import ndimage

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def corruptions():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        return importlib.import_module("corruptions")


def images(size=32):
    """Smooth shapes, as photographs have them."""
    drawn = torch.rand(6, 3, size // 4, size // 4, generator=seeded(0))
    return torch.nn.functional.interpolate(drawn, (size, size - 4), mode="bicubic").clamp(0, 1)


def rows():
    return torch.randn(40, 7, generator=seeded(1))


IMAGE_NAMES = ["noise", "blur", "contrast", "brightness", "jpeg", "rotation"]
TABLE_NAMES = ["noise", "erased columns", "wrong units"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [*(("IMAGES", name) for name in IMAGE_NAMES), *(("TABLES", name) for name in TABLE_NAMES)],
)
def test_each_changes_more_with_severity_and_the_same_again(corruptions, kind, name):
    table = getattr(corruptions, kind)
    assert list(table) == (IMAGE_NAMES if kind == "IMAGES" else TABLE_NAMES)
    inputs = images() if kind == "IMAGES" else rows()
    before = inputs.clone()
    changes = []
    for severity in corruptions.SEVERITIES:
        found = table[name](inputs, severity)
        assert found.shape == inputs.shape
        assert found.dtype == inputs.dtype
        if kind == "IMAGES":
            assert found.min() >= -1e-6
            assert found.max() <= 1 + 1e-6
        torch.testing.assert_close(found, table[name](inputs, severity), rtol=0, atol=0)
        changes.append(float((found - inputs).abs().mean()))
    # what is turned far enough has nothing left in common with itself
    assert 0 < changes[0] < changes[-1]
    assert all(after > 0.95 * before for before, after in pairwise(changes))
    torch.testing.assert_close(inputs, before, rtol=0, atol=0)


def test_the_blur_is_that_of_scipy(corruptions):
    found = corruptions.blur(images(), 5)
    expected = ndimage.gaussian_filter(
        images().numpy(), (0, 0, 1.0, 1.0), mode="mirror", truncate=4.0
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_flat_images_survive_jpeg_and_blur(corruptions):
    flat = torch.full((2, 1, 28, 28), 0.5)
    assert (corruptions.jpeg(flat, 5) - flat).abs().max() < 0.02
    torch.testing.assert_close(corruptions.blur(flat, 5), flat)


def test_a_turn_of_a_quarter_is_that_of_numpy(corruptions, monkeypatch):
    monkeypatch.setattr(corruptions, "DEGREES", (90.0,))
    square = torch.rand(1, 1, 8, 8, generator=seeded(2))
    turned = corruptions.rotation(square, 1)
    found = [np.allclose(turned, np.rot90(square, k, (2, 3)), atol=1e-4) for k in (1, 3)]
    assert sum(found) == 1


def test_jpeg_of_quality_50_rounds_by_the_table_itself(corruptions):
    wave = np.zeros((8, 8))
    wave[0, 3] = 16 * 2.4  # of which two steps are kept
    inputs = torch.from_numpy((corruptions.fft.idctn(wave, norm="ortho") + 128) / 255).float()
    found = corruptions.jpeg(inputs.reshape(1, 1, 8, 8), 4)[0, 0] * 255 - 128
    kept = corruptions.fft.dctn(found.numpy(), norm="ortho")
    assert abs(kept[0, 3] - 32) < 0.01
    assert np.abs(np.delete(kept.ravel(), 3)).max() < 0.01
