"""laplace-torch computes the same posteriors by automatic differentiation: both
libraries must give the same logits.

Heads have no bias here, but in one test: for Kronecker factors laplace-torch treats the
bias as a block of its own, we as the weight of a constant feature. For the other
structures that makes no difference.
"""

import pytest
import torch
from cases import seeded
from laplace_torch import MARKS, PRIORS, STRUCTURES, Laplace
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import laplacebridge as lb

pytestmark = MARKS

EVERY = pytest.mark.parametrize("structure", STRUCTURES)
HEADS = pytest.mark.parametrize(("num_classes", "num_features"), [(3, 4), (5, 6)])
NUM_EXAMPLES = 50
TOLERANCE = 1e-9  # relative; both work in float64, and the smallest prior makes it lose three or four digits


def problem(num_classes, num_features, *, bias=False):
    """A network, by default with a bias-free head, a loader whose last batch is short,
    and inputs to predict.
    """
    generator = seeded(num_classes)
    with torch.random.fork_rng():
        torch.manual_seed(num_features)
        model = nn.Sequential(
            nn.Linear(3, num_features), nn.Tanh(), nn.Linear(num_features, num_classes, bias=bias)
        )
    model = model.double().eval()
    with torch.no_grad():
        model[-1].weight.mul_(4)  # probabilities far from uniform
    inputs = torch.randn(NUM_EXAMPLES, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(num_classes, (NUM_EXAMPLES,), generator=generator)
    queries = 2 * torch.randn(20, 3, generator=generator, dtype=torch.float64)
    return model, DataLoader(TensorDataset(inputs, labels), batch_size=16), queries


@pytest.fixture(autouse=True)
def float64_by_default():
    """laplace-torch multiplies the full GGN by `torch.eye(P)`, which must not round it
    to float32.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def theirs(model, loader, structure, prior_precision):
    fitted = Laplace(
        model,
        "classification",
        subset_of_weights="last_layer",
        hessian_structure=structure,
        prior_precision=prior_precision,
    )
    fitted.fit(loader)
    return fitted


def relative_error(found, expected):
    return ((found - expected).abs() / expected.abs()).max().item()


@EVERY
@HEADS
@PRIORS
def test_logits_have_the_same_mean_and_covariance(
    structure, num_classes, num_features, prior_precision
):
    compare_logits(*problem(num_classes, num_features), structure, prior_precision)


@pytest.mark.parametrize("structure", ["diag", "full"])
@HEADS
@PRIORS
def test_a_bias_makes_no_difference_except_to_kronecker_factors(
    structure, num_classes, num_features, prior_precision
):
    compare_logits(*problem(num_classes, num_features, bias=True), structure, prior_precision)


def compare_logits(model, loader, queries, structure, prior_precision):
    reference = theirs(model, loader, structure, prior_precision)
    mean, covariance = reference._glm_predictive_distribution(queries)
    classifier = lb.fit(
        model,
        loader,
        curvature=STRUCTURES[structure],
        prior_precision=prior_precision,
        progress=False,
    )
    with torch.no_grad():
        gaussian = classifier.logits(queries)
    torch.testing.assert_close(gaussian.mean, mean, rtol=1e-12, atol=1e-12)
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    assert relative_error(gaussian.variance, variance) <= TOLERANCE
    # covariances may vanish, so their error is counted in standard deviations
    scale = variance.sqrt()
    difference = (gaussian.covariance.to_dense() - covariance) / (
        scale.unsqueeze(-1) * scale.unsqueeze(-2)
    )
    assert difference.abs().max() <= TOLERANCE


@EVERY
@HEADS
@PRIORS
def test_the_evidence_is_the_same(structure, num_classes, num_features, prior_precision):
    model, loader, _ = problem(num_classes, num_features)
    reference = theirs(model, loader, structure, prior_precision)
    classifier = lb.fit(
        model,
        loader,
        curvature=STRUCTURES[structure],
        prior_precision=prior_precision,
        progress=False,
    )
    assert classifier.evidence() == pytest.approx(
        reference.log_marginal_likelihood().item(), rel=TOLERANCE
    )


LINKS = {
    "probit": lb.links.probit,
    "bridge": lambda gaussian: lb.laplace_bridge(gaussian).mean,
    "bridge_norm": lambda gaussian: lb.bridges.laplace_bridge_norm(gaussian).mean,
}


@EVERY
@HEADS
@pytest.mark.parametrize("link", LINKS)
def test_closed_form_predictions_are_the_same(structure, num_classes, num_features, link):
    model, loader, queries = problem(num_classes, num_features)
    reference = theirs(model, loader, structure, 1.0)
    expected = reference(queries, link_approx=link)
    classifier = lb.fit(
        model, loader, curvature=STRUCTURES[structure], prior_precision=1.0, progress=False
    )
    with torch.no_grad():
        found = LINKS[link](classifier.logits(queries))
    assert relative_error(found, expected) <= TOLERANCE
