"""Gaussians over many logits, hard ones among them."""

import torch

CLASSES = 1000


def populations(rows, classes=CLASSES):
    """Means and variances of hard rows, by name."""
    generator = torch.Generator().manual_seed(5)

    def normal():
        return torch.randn(rows, classes, generator=generator).double()

    def uniform():
        return torch.rand(rows, classes, generator=generator).double()

    one = torch.ones(rows, classes).double()
    yield "ordinary", 4 * normal(), 0.05 + 0.1 * uniform()
    for scale in (0.0, 1.0, 2.0, 8.0):
        for variance in (0.02, 0.3, 1.0, 2.0, 10.0, 100.0):
            yield f"variance {variance}, logits of {scale}", scale * normal(), variance * one
    yield "confident", 3 * normal() + 40 * torch.eye(rows, classes), 3 * uniform()
    for spread in (0.5, 1.5, 3.0):
        yield f"unlike variances {spread}", 3 * normal(), (spread * normal() - 1).exp()
    for wide in (30.0, 1e4, 1e12):
        yield f"few of variance {wide}", 4 * normal(), 0.2 + wide * (uniform() < 0.005)
    yield "fifty alike", 9.0 * (torch.arange(classes) < 50) * one, 0.3 * one
    yield "far", -1e4 * (torch.arange(classes) > 3) * one + normal(), uniform()
