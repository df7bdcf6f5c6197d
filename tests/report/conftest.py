"""Evaluations of small classifiers, with everything that a report shows and with parts
of it missing.
"""

from dataclasses import replace

import pytest
import torch
from cases import seeded
from torch import nn

import laplacebridge as lb
from laplacebridge import report
from laplacebridge.report.evaluation import PriorCurve, Specimen

EVIL = (
    """</script><script>alert("1")</script><!-- <img src=x onerror='alert(2)'> & {{ 7 * 7 }} $x$"""
)
NOISE = 2.0


def problem(num_classes, shape, seed):
    """A network whose classes are directions in the space of inputs, and a source of
    loaders for it.
    """
    size = int(torch.tensor(shape).prod())
    directions = nn.functional.normalize(
        torch.randn(num_classes, size, generator=seeded(seed)), dim=1
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(size, num_classes))
    with torch.no_grad():
        model[1].weight.copy_(directions)
        model[1].bias.zero_()

    def loader(num_examples, seed, *, strength=3.0):
        labels = torch.randint(num_classes, (num_examples,), generator=seeded(seed))
        noise = torch.randn(num_examples, size, generator=seeded(seed + 1))
        inputs = (strength * directions[labels] + NOISE * noise).reshape(num_examples, *shape)
        return list(zip(inputs.split(50), labels.split(50)))

    return model, loader


@pytest.fixture(scope="session")
def evaluation():
    """Four classes, images of 8 × 8, nothing missing."""
    model, loader = problem(4, (1, 8, 8), seed=0)
    return report.evaluate(
        lb.fit(model, loader(300, 1), prior_precision=3.0, progress=False),
        loader(150, 3),
        ood=loader(120, 5, strength=0.0),
        validation=loader(150, 7),
        class_names=("cat", "dog", "owl", "ox"),
        title="A small network on made-up animals",
        settings={"data": "made up"},
        progress=False,
    )


@pytest.fixture(scope="session")
def many_classes():
    model, loader = problem(300, (20,), seed=10)
    classifier = lb.fit(model, loader(300, 11), prior_precision=3.0, progress=False)
    return report.evaluate(
        classifier, loader(12, 13), ood=loader(8, 15, strength=0.0), progress=False
    )


@pytest.fixture(scope="session")
def bare(tmp_path_factory):
    """Two classes, and neither OOD inputs nor images nor candidates of the prior, which
    a saved classifier forgets.
    """
    model, loader = problem(2, (6,), seed=20)
    path = tmp_path_factory.mktemp("bare") / "classifier.safetensors"
    lb.save(lb.fit(model, loader(300, 21), progress=False), path)
    return report.evaluate(lb.load(path, model), loader(150, 23), progress=False)


@pytest.fixture(scope="session")
def hostile(evaluation):
    """Every text tries to become code, one is long without a space, and some numbers
    are none.
    """
    rows = [replace(row, method=f"{place} {EVIL}") for place, row in enumerate(evaluation.rows[:4])]
    rows[1] = replace(rows[1], nll=float("inf"), distance=float("nan"), microseconds=float("inf"))
    odd = lb.Dirichlet(torch.tensor([[30.0, -700.0, 700.0, 0.0]]))
    images = (
        torch.full((2, 5), 3.0),
        torch.arange(300.0 * 600).reshape(1, 300, 600),
        255 * torch.rand(3, 8, 8, generator=seeded(3)),
    )
    return replace(
        evaluation,
        title=EVIL,
        verdict=EVIL,
        rows=tuple(rows),
        class_names=tuple(f"{place}{EVIL}" for place in range(4)),
        specimens=tuple(Specimen(EVIL, odd, 2, image) for image in images),
        prior=PriorCurve((0.1, 1.0), (float("inf"), 0.3), chosen=1.0, meaning=EVIL),
        prior_method=EVIL,
        intervals=(EVIL,),
        settings={EVIL: EVIL, "long": "x" * 300},
    )
