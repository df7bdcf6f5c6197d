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
from laplacebridge.report._findings.classes import GroupRow
from laplacebridge.report._findings.gallery import Specimen
from laplacebridge.report.evaluation import PriorCurve

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
        lb.fit(model, loader(300, 1, strength=8.0), prior_precision=3.0, progress=False),
        loader(300, 3, strength=8.0),
        ood=loader(120, 5, strength=0.0),
        validation=loader(150, 7, strength=8.0),
        class_names=("cat", "dog", "owl", "ox"),
        groups=["day" if place % 3 else "night" for place in range(300)],
        title="A small network on made-up animals",
        card={"intended use": "none"},
        identity={"data": "made up"},
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
    odd = lb.Prediction(
        lb.Dirichlet(torch.tensor([[30.0, -700.0, 700.0, 0.0]])), torch.tensor([[1.0, 0, 9, 1e9]])
    )
    images = (
        torch.full((2, 5), 3.0),
        torch.arange(300.0 * 600).reshape(1, 300, 600),
        255 * torch.rand(3, 8, 8, generator=seeded(3)),
    )
    figure, advice = evaluation.figures[0], evaluation.advice
    share = evaluation.decisions.rules[0].answered
    return replace(
        evaluation,
        title=EVIL,
        headline=EVIL,
        figures=tuple(
            replace(figure, title=EVIL, text=EVIL, criterion=EVIL, detail=EVIL) for _ in range(3)
        ),
        advice=replace(advice, sentences=(EVIL,), code=EVIL, command=EVIL, beside=EVIL),
        rows=tuple(rows),
        own=rows[0].method,
        class_names=tuple(f"{place}{EVIL}" for place in range(4)),
        classes=tuple(replace(row, name=EVIL, confused_with=EVIL) for row in evaluation.classes),
        groups=(GroupRow(EVIL, 3, share, 0.1, share, 0.5, None),),
        specimens=tuple(
            Specimen(EVIL, odd, 2, image, text=EVIL, cells={EVIL: 1e9}, name=EVIL)
            for image in images
        ),
        prior=PriorCurve((0.1, 1.0), (float("inf"), 0.3), chosen=1.0, meaning=EVIL),
        prior_method=EVIL,
        basis=(EVIL,),
        card={EVIL: EVIL},
        identity={EVIL: EVIL, "long": "x" * 300},
    )
