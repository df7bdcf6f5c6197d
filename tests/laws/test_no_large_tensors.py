"""Nothing of size B·K·K is made on the diagonal and shared-basis paths, nothing
superlinear in K on the diagonal.
"""

import pytest
import torch
from cases import BRIDGES, LINKS, POSTERIORS, seeded
from tensor_sizes import LargestTensor

import laplacebridge as lb
from laplacebridge import laplace

EVERY_MAP = pytest.mark.parametrize("name", [*BRIDGES, *LINKS])


def largest_tensor(name, gaussian):
    function = (BRIDGES.get(name) or LINKS[name]).function
    with LargestTensor() as watch:
        function(gaussian)
    return watch.largest


def independent(batch, classes):
    generator = seeded(0)
    mean = torch.randn(batch, classes, generator=generator)
    return lb.LogitGaussian(
        mean, lb.Diagonal(torch.rand(batch, classes, generator=generator) + 0.1)
    )


@EVERY_MAP
def test_independent_logits_need_a_bounded_number_of_rows_whatever_the_classes(name):
    batch, classes = 3, 20_000
    # the race holds 21 Chebyshev polynomials or 12 nodes per class, sampling 20 draws:
    # far below K of them
    assert largest_tensor(name, independent(batch, classes)) <= 30 * batch * classes


@EVERY_MAP
def test_a_shared_basis_is_never_expanded_per_example(name):
    batch, classes = 64, 300
    generator = seeded(1)
    basis = torch.randn(classes, classes, generator=generator) / classes**0.5
    weights = torch.rand(batch, classes, generator=generator)
    mean = torch.randn(batch, classes, generator=generator)
    gaussian = lb.LogitGaussian(mean, lb.SharedBasis(weights, basis))
    assert largest_tensor(name, gaussian) < batch * classes * classes / 5


def test_samples_of_an_ensemble_stay_low_rank():
    members, batch, classes = 5, 4, 2000
    logits = torch.randn(members, batch, classes, generator=seeded(2))
    with LargestTensor() as watch:
        gaussian = lb.LogitGaussian.from_samples(logits)
        for bridge in BRIDGES.values():
            bridge.function(gaussian)
    assert watch.largest < 50 * batch * classes


@EVERY_MAP
def test_batches_are_worked_off_in_blocks_so_memory_beyond_the_answer_is_bounded(name):
    if name == "monte_carlo":
        pytest.skip("sampling is blocked over samples instead: test_links.py")
    batch, classes = 40_000, 10
    assert largest_tensor(name, independent(batch, classes)) <= 30 * 131_072


@pytest.mark.parametrize(
    ("curvature", "posterior"),
    [pair for pair in POSTERIORS if pair[1] is not laplace.FullPosterior],
)
def test_fitting_and_predicting_make_nothing_per_example_and_pair_of_classes(curvature, posterior):
    batch, classes, features = 64, 200, 20
    generator = seeded(3)
    inputs = torch.randn(batch, features, generator=generator)
    weight = torch.randn(classes, features, generator=generator)
    with LargestTensor() as watch:
        sums = curvature.of_batch(inputs, (inputs @ weight.T).softmax(-1))
        fitted = posterior(weight, None, sums + sums, 1.0)
        lb.race_bridge(fitted.with_prior(2.0)(inputs))
    assert watch.largest < batch * classes * classes / 5


def test_a_hundred_thousand_classes_fit_and_predict():
    batch, classes, features = 4, 100_000, 8
    generator = seeded(4)
    head = torch.nn.Linear(features, classes)
    inputs = torch.randn(batch, features, generator=generator)
    with LargestTensor() as watch:
        classifier = lb.fit(
            head, [(inputs, torch.arange(batch))], prior_precision=1.0, progress=False
        )
        mean = classifier(inputs).mean
    assert watch.largest <= 30 * batch * classes
    torch.testing.assert_close(mean.double().sum(-1), torch.ones(batch).double(), atol=1e-6, rtol=0)
