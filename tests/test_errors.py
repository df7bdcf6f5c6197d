"""Bad input: a ValueError that says what was given, what is needed and what to do; and
`check` for bad values.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
import torch

import laplacebridge as lb
from laplacebridge.covariance import LowRankPlusDiagonal

zeros, ones = torch.zeros, torch.ones
TESTS = Path(__file__).parents[0]


@dataclass(frozen=True)
class Bad:
    """A call with bad input, and what its message has to say."""

    call: Callable[[], object]
    given: str
    needed: str
    advice: str


def integers(*shape):
    return torch.ones(shape, dtype=torch.int64)


def elsewhere(*shape):
    return torch.zeros(shape, device="meta")


TO_FLOAT = "`.float()`"
MATRIX = "floating-point tensor of shape (B, K)"
TWO_LOGITS = "binary classifier with one logit z has the two logits (0, z)"
dirichlet = lb.Dirichlet(zeros(3, 4))
beta = lb.Beta(zeros(3), zeros(3))
pair = lb.LogitGaussian(zeros(2, 3), lb.Diagonal(ones(2, 3)))

BAD_INPUTS: dict[str, Bad] = {
    # variances
    "diagonal of a list": Bad(
        lambda: lb.Diagonal([[1.0, 2.0]]), "got list", MATRIX, "`torch.as_tensor`"
    ),
    "diagonal of an array": Bad(
        lambda: lb.Diagonal(np.ones((2, 3))), "got ndarray", MATRIX, "`torch.as_tensor`"
    ),
    "diagonal of a vector": Bad(
        lambda: lb.Diagonal(ones(3)), "got shape (3,)", MATRIX, "Reshape it to 2 dimensions"
    ),
    "diagonal of matrices": Bad(
        lambda: lb.Diagonal(ones(128, 10, 10)),
        "got shape (128, 10, 10)",
        MATRIX,
        "full covariances: use `Dense(covariance)`",
    ),
    "diagonal of integers": Bad(
        lambda: lb.Diagonal(integers(2, 3)), "got torch.int64", MATRIX, TO_FLOAT
    ),
    "diagonal of booleans": Bad(
        lambda: lb.Diagonal(integers(2, 3) > 0), "got torch.bool", MATRIX, TO_FLOAT
    ),
    "diagonal of one class": Bad(
        lambda: lb.Diagonal(ones(5, 1)), "got K = 1", "at least K = 2 classes", TWO_LOGITS
    ),
    "diagonal of no class": Bad(
        lambda: lb.Diagonal(ones(5, 0)), "got K = 0", "at least K = 2 classes", TWO_LOGITS
    ),
    "centred diagonal of matrices": Bad(
        lambda: lb.covariance.CenteredDiagonal(ones(4, 3, 3)),
        "got shape (4, 3, 3)",
        MATRIX,
        "use `Dense(covariance)`",
    ),
    "centred diagonal of integers": Bad(
        lambda: lb.covariance.CenteredDiagonal(integers(2, 3)), "got torch.int64", MATRIX, TO_FLOAT
    ),
    "centred diagonal of one class": Bad(
        lambda: lb.covariance.CenteredDiagonal(ones(5, 1)),
        "got K = 1",
        "`CenteredDiagonal(variance)` needs at least K = 2",
        TWO_LOGITS,
    ),
    # matrices and factors
    "dense variances": Bad(
        lambda: lb.Dense(ones(4, 3)),
        "got shape (4, 3)",
        "shape (B, K, K)",
        "use `Diagonal(variance)`",
    ),
    "dense oblong": Bad(
        lambda: lb.Dense(ones(4, 3, 2)),
        "got (4, 3, 2)",
        "square matrices, shape (B, K, K)",
        "One matrix per example",
    ),
    "dense integers": Bad(
        lambda: lb.Dense(integers(4, 3, 3)), "got torch.int64", "shape (B, K, K)", TO_FLOAT
    ),
    "dense list": Bad(
        lambda: lb.Dense([[[1.0]]]), "got list", "shape (B, K, K)", "`torch.as_tensor`"
    ),
    "dense of one class": Bad(
        lambda: lb.Dense(ones(4, 1, 1)), "got K = 1", "at least K = 2 classes", TWO_LOGITS
    ),
    "low rank shared": Bad(
        lambda: lb.LowRank(ones(3, 2)), "got shape (3, 2)", "shape (B, K, R)", "use `SharedBasis`"
    ),
    "low rank integers": Bad(
        lambda: lb.LowRank(integers(4, 3, 2)), "got torch.int64", "shape (B, K, R)", TO_FLOAT
    ),
    "low rank of one class": Bad(
        lambda: lb.LowRank(ones(4, 1, 2)), "got K = 1", "at least K = 2 classes", TWO_LOGITS
    ),
    "shared basis per example": Bad(
        lambda: lb.SharedBasis(ones(4, 2), ones(4, 3, 2)),
        "got shape (4, 3, 2)",
        "shape (K, R)",
        "one matrix, shared by all examples",
    ),
    "shared basis with one weight per example": Bad(
        lambda: lb.SharedBasis(ones(4), ones(3, 2)),
        "got shape (4,)",
        "shape (B, R)",
        "one number per example and column",
    ),
    "shared basis transposed": Bad(
        lambda: lb.SharedBasis(ones(4, 2), ones(2, 3)),
        "got weights (4, 2) and basis (2, 3)",
        "one weight per column of the basis",
        "transpose it?",
    ),
    "shared basis of integers": Bad(
        lambda: lb.SharedBasis(ones(4, 2), integers(3, 2)), "got torch.int64", "(K, R)", TO_FLOAT
    ),
    "shared basis with integer weights": Bad(
        lambda: lb.SharedBasis(integers(4, 2), ones(3, 2)), "got torch.int64", "(B, R)", TO_FLOAT
    ),
    "shared basis of one class": Bad(
        lambda: lb.SharedBasis(ones(4, 2), ones(1, 2)), "got K = 1", "at least K = 2", TWO_LOGITS
    ),
    "shared basis of two types": Bad(
        lambda: lb.SharedBasis(ones(4, 2), ones(3, 2).double()),
        "got torch.float32 and torch.float64",
        "weights and basis of the same type",
        "`.to(dtype)`",
    ),
    "shared basis on two devices": Bad(
        lambda: lb.SharedBasis(ones(4, 2), elsewhere(3, 2)),
        "got cpu and meta",
        "weights and basis of the same device",
        "`.to(device)`",
    ),
    "factors and noise of other shapes": Bad(
        lambda: LowRankPlusDiagonal(ones(2, 3, 1), ones(2, 4)),
        "got (2, 3, 1) and (2, 4)",
        "variances of the same (B, K)",
        "Each row of the variances is one example",
    ),
    "factors and noise on two devices": Bad(
        lambda: LowRankPlusDiagonal(ones(2, 3, 1), elsewhere(2, 3)),
        "got cpu and meta",
        "of the same device",
        "`.to(device)`",
    ),
    # Gaussians
    "members of other rows": Bad(
        lambda: lb.LogitGaussian(zeros(2, 3), lb.Diagonal(ones(2, 3)), members=zeros(5, 4, 3)),
        "got (5, 4, 3)",
        "members (S, B, K) of the mean's (B, K) = (2, 3)",
        "`LogitGaussian.from_samples` keeps them",
    ),
    "gaussian of a vector": Bad(
        lambda: lb.LogitGaussian(zeros(3), pair.covariance),
        "got shape (3,)",
        MATRIX,
        "`.flatten(0, -2)`",
    ),
    "gaussian of tokens": Bad(
        lambda: lb.LogitGaussian(zeros(2, 5, 3), pair.covariance),
        "got shape (2, 5, 3)",
        MATRIX,
        "B·T rows: `.flatten(0, -2)`",
    ),
    "gaussian of integers": Bad(
        lambda: lb.LogitGaussian(integers(2, 3), pair.covariance),
        "got torch.int64",
        MATRIX,
        TO_FLOAT,
    ),
    "gaussian of one class": Bad(
        lambda: lb.LogitGaussian(zeros(2, 1), pair.covariance),
        "got K = 1",
        "at least K = 2",
        TWO_LOGITS,
    ),
    "gaussian with a tensor for covariance": Bad(
        lambda: lb.LogitGaussian(zeros(2, 3), ones(2, 3)),
        "got Tensor",
        "needs a `Covariance`",
        "`Diagonal(variance)`, `Dense(covariance)`",
    ),
    "gaussian of two sizes": Bad(
        lambda: lb.LogitGaussian(zeros(5, 3), pair.covariance),
        "got mean (5, 3) and covariance (2, 3)",
        "mean and a covariance of the same (B, K)",
        "Each row of the mean is one example",
    ),
    "gaussian of two types": Bad(
        lambda: lb.LogitGaussian(zeros(2, 3).double(), pair.covariance),
        "got torch.float64 and torch.float32",
        "mean and covariance of the same type",
        "`.to(dtype)`",
    ),
    "gaussian on two devices": Bad(
        lambda: lb.LogitGaussian(elsewhere(2, 3), pair.covariance),
        "got meta and cpu",
        "mean and covariance of the same device",
        "`.to(device)`",
    ),
    "moments with one matrix for all": Bad(
        lambda: lb.LogitGaussian.from_moments(zeros(2, 3), ones(3)),
        "got (3,)",
        "or matrices of shape (B, K, K)",
        "`.expand(",
    ),
    "moments of integers": Bad(
        lambda: lb.LogitGaussian.from_moments(zeros(2, 3), integers(2, 3)),
        "got torch.int64",
        MATRIX,
        TO_FLOAT,
    ),
    "moments of integer matrices": Bad(
        lambda: lb.LogitGaussian.from_moments(zeros(2, 3), integers(2, 3, 3)),
        "got torch.int64",
        "(B, K, K)",
        TO_FLOAT,
    ),
    "moments of two sizes": Bad(
        lambda: lb.LogitGaussian.from_moments(zeros(2, 3), ones(3, 3)),
        "(2, 3) and covariance (3, 3)",
        "the same (B, K)",
        "Each row",
    ),
    "moments on two devices": Bad(
        lambda: lb.LogitGaussian.from_moments(zeros(2, 3), elsewhere(2, 3)),
        "got cpu and meta",
        "the same device",
        "`.to(device)`",
    ),
    "moments of two types": Bad(
        lambda: lb.LogitGaussian.from_moments(np.zeros((2, 3)), ones(2, 3)),
        "got torch.float64 and torch.float32",
        "the same type",
        "`.to(dtype)`",
    ),
    "samples without a batch": Bad(
        lambda: lb.LogitGaussian.from_samples(ones(5, 3)),
        "got shape (5, 3)",
        "shape (S, B, K)",
        "Stack samples first",
    ),
    "one sample": Bad(
        lambda: lb.LogitGaussian.from_samples(ones(1, 5, 3)),
        "got S = 1",
        "at least S = 2 samples",
        "Samples come first",
    ),
    "samples of integers": Bad(
        lambda: lb.LogitGaussian.from_samples(integers(4, 5, 3)),
        "got torch.int64",
        "(S, B, K)",
        TO_FLOAT,
    ),
    "samples of one class": Bad(
        lambda: lb.LogitGaussian.from_samples(ones(4, 5, 1)),
        "got K = 1",
        "at least K = 2",
        TWO_LOGITS,
    ),
    "samples in a list": Bad(
        lambda: lb.LogitGaussian.from_samples([ones(5, 3)] * 4),
        "got list",
        "(S, B, K)",
        "`torch.as_tensor`",
    ),
    # Dirichlets
    "dirichlet of a vector": Bad(
        lambda: lb.Dirichlet(zeros(3)), "got shape (3,)", MATRIX, "Reshape it to 2 dimensions"
    ),
    "dirichlet of integers": Bad(
        lambda: lb.Dirichlet(integers(2, 3)), "got torch.int64", MATRIX, TO_FLOAT
    ),
    "dirichlet of one class": Bad(
        lambda: lb.Dirichlet(zeros(2, 1)), "got K = 1", "at least K = 2 classes", TWO_LOGITS
    ),
    "dirichlet of a list": Bad(
        lambda: lb.Dirichlet([[0.0, 1.0]]), "got list", MATRIX, "`torch.as_tensor`"
    ),
    "integer concentrations": Bad(
        lambda: lb.Dirichlet.from_concentration(integers(2, 3)),
        "got torch.int64",
        "`Dirichlet.from_concentration(concentration)` needs",
        TO_FLOAT,
    ),
    "concentrations of one class": Bad(
        lambda: lb.Dirichlet.from_concentration(ones(2, 1)),
        "got K = 1",
        "at least K = 2",
        TWO_LOGITS,
    ),
    "concentrations in a list": Bad(
        lambda: lb.Dirichlet.from_concentration([[1.0, 2.0]]),
        "got list",
        MATRIX,
        "`torch.as_tensor`",
    ),
    "a torch dirichlet without a batch": Bad(
        lambda: lb.Dirichlet.from_torch(torch.distributions.Dirichlet(ones(3))),
        "got shape (3,)",
        MATRIX,
        "Reshape it to 2 dimensions",
    ),
    "density with other classes": Bad(
        lambda: dirichlet.log_prob(ones(3, 5) / 5),
        "got (3, 5)",
        "4 classes",
        "one row of probabilities per Dirichlet",
    ),
    "density with other rows": Bad(
        lambda: dirichlet.log_prob(ones(2, 4) / 4),
        "(2, 4)",
        "`log_prob(probabilities)` needs",
        "one row of probabilities per Dirichlet",
    ),
    "density of a vector": Bad(
        lambda: dirichlet.log_prob(ones(4) / 4),
        "got shape (4,)",
        MATRIX,
        "Reshape it to 2 dimensions",
    ),
    "density of integers": Bad(
        lambda: dirichlet.log_prob(integers(3, 4)), "got torch.int64", MATRIX, TO_FLOAT
    ),
    "density on another device": Bad(
        lambda: dirichlet.log_prob(elsewhere(3, 4)), "meta", "the same device", "`.to(device)`"
    ),
    "divergence of two sizes": Bad(
        lambda: dirichlet.kl_divergence(lb.Dirichlet(zeros(2, 4))),
        "got (3, 4) and (2, 4)",
        "of the same shape",
        "for each example",
    ),
    "divergence on two devices": Bad(
        lambda: dirichlet.kl_divergence(lb.Dirichlet(elsewhere(3, 4))),
        "meta",
        "the same device",
        "`.to(device)`",
    ),
    "marginal of no class": Bad(
        lambda: dirichlet.marginal(4), "got 4", "classes from 0 to 3", "counted from 0"
    ),
    "marginal counted from the end": Bad(
        lambda: dirichlet.marginal(-1), "got -1", "classes from 0 to 3", "counted from 0"
    ),
    "marginals of too few": Bad(
        lambda: dirichlet.marginal(torch.tensor([0, 1])),
        "of shape (2,)",
        "one integer for each of 3 examples",
        "use `aggregate`",
    ),
    "marginals by probability": Bad(
        lambda: dirichlet.marginal(zeros(3)),
        "got torch.float32",
        "one integer for each of 3 examples",
        "use `aggregate`",
    ),
    "a class in two groups": Bad(
        lambda: dirichlet.aggregate([[0, 1], [1, 2]]),
        "classes [1] more than once",
        "disjoint, non-empty groups",
        "each class at most once",
    ),
    "a class twice in a group": Bad(
        lambda: dirichlet.aggregate([[2, 2]]),
        "classes [2] more than once",
        "disjoint, non-empty groups",
        "each class at most once",
    ),
    "an empty group": Bad(
        lambda: dirichlet.aggregate([[0], []]),
        "got an empty group",
        "disjoint, non-empty groups",
        "each class at most once",
    ),
    "a group of no class": Bad(
        lambda: dirichlet.aggregate([[0, 9]]), "got 0 to 9", "classes from 0 to 3", "counted from 0"
    ),
    "one group of all": Bad(
        lambda: dirichlet.aggregate([[0, 1, 2, 3]]),
        "got one group",
        "`aggregate(groups)` needs",
        "Leave a class out",
    ),
    # Betas
    "beta of matrices": Bad(
        lambda: lb.Beta(zeros(2, 3), zeros(2, 3)),
        "got shape (2, 3)",
        "shape (B)",
        "Reshape it to 1 dimensions",
    ),
    "beta of numbers": Bad(
        lambda: lb.Beta(0.0, 0.0), "got float", "shape (B)", "`torch.as_tensor`"
    ),
    "beta of integers": Bad(
        lambda: lb.Beta(integers(2), integers(2)), "got torch.int64", "shape (B)", TO_FLOAT
    ),
    "beta of two lengths": Bad(
        lambda: lb.Beta(zeros(3), zeros(2)),
        "(2,)",
        "`Beta(log_alpha, log_beta)` needs",
        "for each example",
    ),
    "beta of two types": Bad(
        lambda: lb.Beta(zeros(2), zeros(2).double()),
        "got torch.float32 and torch.float64",
        "log_alpha and log_beta of the same type",
        "`.to(dtype)`",
    ),
    "beta on two devices": Bad(
        lambda: lb.Beta(zeros(2), elsewhere(2)),
        "got cpu and meta",
        "log_alpha and log_beta of the same device",
        "`.to(device)`",
    ),
    "cdf at too few points": Bad(
        lambda: beta.cdf(zeros(2)), "(2,)", "`cdf(probability)` needs", "one for each of 3 examples"
    ),
    "quantile at too few levels": Bad(
        lambda: beta.quantile(zeros(2)),
        "(2,)",
        "`quantile(level)` needs",
        "one for each of 3 examples",
    ),
    # links
    "no samples": Bad(
        lambda: lb.links.monte_carlo(pair, num_samples=0),
        "got 0",
        "num_samples ≥ 1",
        "100 is the paper's choice",
    ),
    "a negative number of samples": Bad(
        lambda: lb.links.monte_carlo(pair, num_samples=-5),
        "got -5",
        "num_samples ≥ 1",
        "100 is the paper's choice",
    ),
}
# about the value of a number; everything else is about a shape, a type or a device
ABOUT_VALUES = {"no samples", "a negative number of samples"}


def outcome(call):
    """The kind and the message of what a call raises."""
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


def outcomes():
    return {name: outcome(bad.call) for name, bad in BAD_INPUTS.items()}


@pytest.fixture
def as_for_users():
    """The test run's type checker looks at arguments before the library does; users
    have none.
    """
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("as_for_users")
@pytest.mark.parametrize("name", BAD_INPUTS)
def test_bad_input_is_answered_with_given_needed_and_what_to_do(name):
    bad = BAD_INPUTS[name]
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is looked at below
        bad.call()
    if name not in ABOUT_VALUES:
        assert isinstance(caught.value, lb.errors.ShapeError)
    message = str(caught.value)
    assert bad.given in message
    assert bad.needed in message
    assert bad.advice in message


@pytest.mark.usefixtures("as_for_users")
def test_a_program_of_its_own_meets_the_same_errors():
    program = "import json, test_errors; print(json.dumps(test_errors.outcomes()))"
    paths = [str(TESTS), str(TESTS / "unit"), *sys.path]
    finished = subprocess.run(  # noqa: S603 - the program is the line above
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(finished.stdout) == outcomes()


@pytest.mark.usefixtures("as_for_users")
def test_one_except_clause_catches_what_the_library_raises():
    assert issubclass(lb.errors.ShapeError, lb.LaplaceBridgeError)
    assert issubclass(lb.errors.ShapeError, ValueError)
    with pytest.raises(lb.LaplaceBridgeError):
        lb.Dirichlet(zeros(3))
