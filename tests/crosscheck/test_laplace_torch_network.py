"""laplace-torch over all weights: both libraries must give the same logits and evidence
for every layer together.

Kronecker networks have no bias here: laplace-torch treats a bias as a block of its own,
we as the weight of a constant input. For the other structures that makes no difference.
"""

import pytest
import torch
from cases import seeded
from laplace_torch import MARKS, PRIORS, STRUCTURES, Laplace
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import laplacebridge as lb

pytestmark = [
    *MARKS,
    pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning"),
]

NUM_EXAMPLES, CLASSES = 30, 3
TOLERANCE = 1e-8  # relative; both work in float64, and the smallest prior makes it lose three or four digits


def mlp(bias):
    return nn.Sequential(nn.Linear(8, 5, bias=bias), nn.Tanh(), nn.Linear(5, CLASSES, bias=bias))


def cnn(bias):
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 4)),
        nn.Conv2d(1, 3, 2, padding=1, bias=bias),
        nn.Tanh(),
        nn.Conv2d(3, 2, 3, stride=(1, 2), bias=bias),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(4, CLASSES, bias=bias),
    )


CASES = pytest.mark.parametrize(
    ("structure", "build", "bias"),
    [
        ("diag", mlp, True),
        ("diag", cnn, True),
        ("kron", mlp, False),
        ("kron", cnn, False),
        ("full", mlp, True),
        ("full", cnn, True),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)


@pytest.fixture(autouse=True)
def float64_by_default():
    """laplace-torch multiplies the full GGN by `torch.eye(P)`, which must not round it
    to float32.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def problem(build, bias):
    """A network, a loader whose last batch is short, and inputs to predict."""
    generator = seeded(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build(bias).eval()
    inputs = torch.randn(NUM_EXAMPLES, 8, generator=generator)
    labels = torch.randint(CLASSES, (NUM_EXAMPLES,), generator=generator)
    return (
        model,
        DataLoader(TensorDataset(inputs, labels), batch_size=12),
        torch.randn(10, 8, generator=generator),
    )


@CASES
@PRIORS
def test_logits_and_evidence_are_the_same(structure, build, bias, prior_precision):
    model, loader, queries = problem(build, bias)
    reference = Laplace(
        model,
        "classification",
        subset_of_weights="all",
        hessian_structure=structure,
        prior_precision=prior_precision,
    )
    reference.fit(loader)
    mean, covariance = reference._glm_predictive_distribution(queries)
    classifier = lb.fit(
        model,
        loader,
        layers="*",
        curvature=STRUCTURES[structure],
        prior_precision=prior_precision,
        progress=False,
    )
    gaussian = classifier.logits(queries)
    torch.testing.assert_close(gaussian.mean, mean, rtol=1e-12, atol=1e-12)
    # covariances may vanish, so their error is counted in standard deviations
    scale = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
    difference = (gaussian.covariance.to_dense() - covariance) / (
        scale.unsqueeze(-1) * scale.unsqueeze(-2)
    )
    assert difference.abs().max() <= TOLERANCE
    assert classifier.evidence() == pytest.approx(
        reference.log_marginal_likelihood().item(), rel=TOLERANCE
    )
