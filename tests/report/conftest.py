"""Small evaluations of random Gaussians, with everything a report shows and with parts of it missing."""

from dataclasses import replace

import pytest
import torch
from cases import seeded

import laplacebridge as lb
from laplacebridge import metrics, scores, sets
from laplacebridge.report.evaluation import Evaluation, PriorCurve, Row, Specimen

EVIL = """</script><script>alert("1")</script><!-- <img src=x onerror='alert(2)'> & {{ 7 * 7 }} $x$"""
NAMES = {4: ("cat", "dog", "owl", "ox"), 2: ("no", "yes")}


def gaussian_and_labels(seed, num_examples, num_classes, spread):
    generator = seeded(seed)
    mean = spread * torch.randn(num_examples, num_classes, generator=generator, dtype=torch.float64)
    variance = 0.5 + 2 * torch.rand(num_examples, num_classes, generator=generator, dtype=torch.float64)
    gaussian = lb.LogitGaussian(mean, lb.Diagonal(variance))
    logits = mean + variance.sqrt() * torch.randn(mean.shape, generator=generator, dtype=torch.float64)
    return gaussian, torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)


def methods(gaussian, num_samples):
    return {
        "softmax of the mean": lb.links.map_estimate(gaussian),
        f"{num_samples} samples": lb.links.monte_carlo(gaussian, num_samples=num_samples, generator=seeded(7)),
        "laplace_bridge": lb.laplace_bridge(gaussian, zero_sum=lb.bridges.center),
        "race_bridge": lb.race_bridge(gaussian),
    }


def row(method, prediction, outside, labels, truth, microseconds):
    small = sets.Mass()(prediction, 0.95)
    inside = scores.msp(prediction)
    auroc = None
    if outside is not None:
        strange = scores.msp(outside)
        auroc = metrics.bootstrap(metrics.auroc, inside, strange, num_resamples=50, generator=seeded(1), paired=False)
    probabilities = prediction.mean if isinstance(prediction, lb.Dirichlet) else prediction
    return Row(
        method=method,
        accuracy=metrics.accuracy(prediction, labels),
        nll=metrics.nll(prediction, labels),
        ece=metrics.ece(prediction, labels),
        brier=metrics.brier(prediction, labels),
        auroc=auroc,
        set_size=metrics.mean_set_size(small),
        coverage=metrics.coverage(small, labels),
        distance=(probabilities - truth).abs().sum(-1).mul(0.5).mean().item(),
        microseconds=microseconds,
        losses=torch.zeros(len(labels)),
    )


def specimens(prediction, outside, labels, side):
    generator = seeded(3)
    doubt = scores.msp(prediction)
    found = []
    for title, index in (("sure", int(doubt.argmin())), ("between classes", int(doubt.argmax()))):
        image = torch.randn(1, side, side, generator=generator) if side else None
        found.append(Specimen(title, prediction[index], int(labels[index]), image))
    if outside is not None:
        image = 255 * torch.rand(3, side, side, generator=generator) if side else None
        found.append(Specimen("strange", outside[0], None, image))
    return tuple(found)


def evaluation_of(num_classes, *, num_examples=150, with_outside=True, side=8, num_samples=100):
    gaussian, labels = gaussian_and_labels(0, num_examples, num_classes, spread=3.0)
    strange, _ = gaussian_and_labels(1, num_examples, num_classes, spread=0.7)
    truth = lb.links.monte_carlo(gaussian, num_samples=300, generator=seeded(8))
    of_strange = methods(strange, num_samples) if with_outside else {}
    rows = tuple(
        row(method, prediction, of_strange.get(method), labels, truth, 0.7 * 9.0**place)
        for place, (method, prediction) in enumerate(methods(gaussian, num_samples).items())
    )
    prediction = lb.race_bridge(gaussian)
    outside = lb.race_bridge(strange) if with_outside else None
    return Evaluation(
        title="A small network on made-up animals",
        verdict="The bridge is as accurate as sampling and far faster. Its probabilities are a little too sure.",
        rows=rows,
        prediction=prediction,
        labels=labels,
        outside=outside,
        class_names=NAMES.get(num_classes) or tuple(f"class number {place}" for place in range(num_classes)),
        specimens=specimens(prediction, outside, labels, side),
        prior=PriorCurve((0.1, 1.0, 10.0, 100.0), (0.51, 0.42, 0.45, 0.7), chosen=1.0, meaning="validation NLL"),
        prior_method="smallest validation NLL",
        settings={"seed": "0", "laplacebridge": lb.__version__, "test examples": str(num_examples)},
    )


@pytest.fixture(scope="session")
def evaluation():
    """Four classes, images of 8 × 8, nothing missing."""
    return evaluation_of(4)


@pytest.fixture(scope="session")
def thousand_classes():
    return evaluation_of(1000, num_examples=16, num_samples=20)


@pytest.fixture(scope="session")
def bare():
    """Two classes, and neither strange examples nor images nor a choice of a prior."""
    return replace(evaluation_of(2, with_outside=False, side=0), prior=None, prior_method="largest evidence")


@pytest.fixture(scope="session")
def hostile(evaluation):
    """Every text tries to become code, one is long without a space, and some numbers are none."""
    rows = [replace(row, method=f"{place} {EVIL}") for place, row in enumerate(evaluation.rows)]
    rows[1] = replace(rows[1], nll=float("inf"), distance=float("nan"), microseconds=float("inf"))
    odd = lb.Dirichlet(torch.tensor([[30.0, -700.0, 700.0, 0.0]]))
    images = (torch.full((2, 5), 3.0), torch.arange(300.0 * 600).reshape(1, 300, 600))
    return replace(
        evaluation,
        title=EVIL,
        verdict=EVIL,
        rows=tuple(rows),
        class_names=tuple(f"{place}{EVIL}" for place in range(4)),
        specimens=tuple(Specimen(EVIL, odd, 2, image) for image in images),
        prior=PriorCurve((0.1, 1.0), (float("inf"), 0.3), chosen=1.0, meaning=EVIL),
        prior_method=EVIL,
        settings={EVIL: EVIL, "long": "x" * 300},
    )
