"""Augmentation: images are moved, mirrored and turned as far as the paper says, and no
further.
"""

import torch
from cases import seeded
from torch.nn import functional

from laplacebridge_reproduction.data import augment


def test_without_rotation_images_are_moved_and_mirrored_exactly(monkeypatch):
    monkeypatch.setattr(augment, "LARGEST_ANGLE", 0)
    image = torch.rand(3, 12, 12, generator=seeded(0))
    padded = functional.pad(image, (4, 4, 4, 4))
    moved = [
        padded[:, row : row + 12, column : column + 12] for row in range(9) for column in range(9)
    ]
    candidates = torch.stack([*moved, *(part.flip(-1) for part in moved)])
    made = augment.crop_flip_rotate(image.expand(2000, 3, 12, 12), seeded(1))
    equal = (made[:, None] == candidates).flatten(2).all(-1)
    assert torch.equal(equal.sum(-1), torch.ones(2000, dtype=torch.int64))
    counts = equal.sum(0)
    assert (
        counts > 0
    ).all()  # 12.3 expected of each; missing one of them has a probability below 1e-3
    assert 900 <= counts[:81].sum() <= 1100  # half are mirrored: 4.5 standard deviations


def test_images_turn_by_at_most_fifteen_degrees(monkeypatch):
    monkeypatch.setattr(augment, "LARGEST_SHIFT", 0)
    image = torch.zeros(1, 1, 101, 101)
    image[..., 10, 50] = 1  # forty pixels above the middle
    image = functional.max_pool2d(image, 3, 1, 1)
    made = augment.crop_flip_rotate(image.expand(400, 1, 101, 101), seeded(2))
    rows, columns = (
        torch.stack([place.double().mean() for place in picked])
        for picked in zip(*(m[0].nonzero(as_tuple=True) for m in made))
    )
    angles = torch.atan2(columns - 50, 50 - rows).rad2deg()
    torch.testing.assert_close(
        (rows - 50).hypot(columns - 50), torch.full_like(rows, 40), rtol=0, atol=0.8
    )
    assert 13 < angles.max() < 16
    assert -16 < angles.min() < -13
    assert abs(angles.mean()) < 2  # 8.7 degrees of deviation over 20
