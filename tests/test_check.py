"""`check` finds what is not finite or not a covariance, and names the first bad row."""

import pytest
import torch
from cases import STRUCTURES, gaussian, seeded

import laplacebridge as lb
from laplacebridge.covariance import LowRankPlusDiagonal

NOT_FINITE = pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])


def spoiled(tensor, value, *places):
    copy = tensor.clone()
    for place in places:
        copy[place] = value
    return copy


@NOT_FINITE
def test_a_mean_that_is_not_finite_is_found_in_its_row(value):
    bad = lb.LogitGaussian(
        spoiled(torch.zeros(4, 3), value, (2, 1), (3, 0)), lb.Diagonal(torch.ones(4, 3))
    )
    with pytest.raises(
        ValueError, match=r"`check\(LogitGaussian\)`: in row 2 \(2 of 4 rows\) `mean` is not finite"
    ) as caught:
        lb.check(bad)
    assert "finite numbers and non-negative variances are needed" in str(caught.value)
    assert "Look at the input that produced that row" in str(caught.value)


@NOT_FINITE
@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_covariance_that_is_not_finite_is_found_in_its_row(structure, value):
    batch = gaussian(structure, 0, 4, 3)
    name, tensor = next(iter(batch.covariance.tensors().items()))
    tensor[1].view(-1)[-1] = value
    tensor[3].view(-1)[0] = value
    message = rf"in row 1 \(2 of 4 rows\) `{name}` is not finite"
    with pytest.raises(ValueError, match=message):
        lb.check(batch.covariance)
    with pytest.raises(ValueError, match=message):
        lb.check(batch)


@NOT_FINITE
def test_a_shared_basis_that_is_not_finite_spoils_every_row(value):
    bad = lb.SharedBasis(torch.ones(4, 2), spoiled(torch.ones(3, 2), value, (1, 1)))
    with pytest.raises(ValueError, match=r"in row 0 \(4 of 4 rows\) `basis` is not finite"):
        lb.check(bad)


@pytest.mark.parametrize("kind", [lb.Diagonal, lb.covariance.CenteredDiagonal])
def test_a_negative_variance_is_found_in_its_row(kind):
    bad = kind(spoiled(torch.ones(4, 3), -10.0, (1, 2), (2, 0)))
    message = rf"`check\({kind.__name__}\)`: in row 1 \(2 of 4 rows\) a variance is negative"
    with pytest.raises(ValueError, match=message):
        lb.check(bad)


@pytest.mark.parametrize("smallest", [-1e-3, -1e-30])
def test_a_centred_diagonal_is_made_of_non_negative_variances(smallest):
    # its own diagonal is positive still, but no logits have such a variance before
    # centring
    bad = lb.covariance.CenteredDiagonal(
        spoiled(torch.ones(2, 4, dtype=torch.float64), smallest, (1, 2))
    )
    with pytest.raises(ValueError, match="in row 1"):
        lb.check(bad)


def test_a_negative_variance_of_a_matrix_is_found_in_its_row():
    matrices = torch.eye(3).repeat(4, 1, 1)
    matrices[3, 1, 1] = -1e-6
    with pytest.raises(
        ValueError, match=r"`check\(Dense\)`: in row 3 \(1 of 4 rows\) a variance is negative"
    ):
        lb.check(lb.Dense(matrices))


def test_a_negative_weight_is_found_where_the_variances_do_not_show_it():
    basis = torch.tensor([[1.0, 0.5], [1.0, -0.5], [1.0, 0.0]])
    weights = spoiled(torch.ones(4, 2), -0.1, (2, 1))
    covariance = lb.SharedBasis(weights, basis)
    assert (covariance.diagonal() > 0).all()
    with pytest.raises(ValueError, match=r"in row 2 \(1 of 4 rows\) a weight is negative"):
        lb.check(covariance)


def test_an_asymmetric_matrix_is_found_in_its_row():
    matrices = torch.eye(3).repeat(4, 1, 1)
    matrices[1, 0, 2] = 0.1
    with pytest.raises(ValueError, match=r"in row 1 \(1 of 4 rows\) the matrix is not symmetric"):
        lb.check(lb.Dense(matrices))


def test_an_indefinite_matrix_is_found_in_its_row():
    matrices = torch.eye(2).repeat(4, 1, 1)
    matrices[2] = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(ValueError, match=r"in row 2 \(1 of 4 rows\) an eigenvalue is negative"):
        lb.check(lb.Dense(matrices))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_makes_no_matrix_invalid(dtype):
    factor = torch.randn(
        20, 30, 2, generator=seeded(1), dtype=dtype
    )  # singular: 28 eigenvalues are zero up to rounding
    for matrices in (
        factor @ factor.mT,
        1e-30 * factor @ factor.mT,
        1e12 * factor @ factor.mT,
        torch.zeros(2, 30, 30, dtype=dtype),
    ):
        covariance = lb.Dense(matrices)
        assert lb.check(covariance) is covariance


@NOT_FINITE
def test_dirichlets_and_betas_that_are_not_finite_are_found_in_their_rows(value):
    with pytest.raises(
        ValueError,
        match=r"`check\(Dirichlet\)`: in row 1 \(1 of 3 rows\) `log_concentration` is not finite",
    ):
        lb.check(lb.Dirichlet(spoiled(torch.zeros(3, 4), value, (1, 3))))
    with pytest.raises(
        ValueError, match=r"`check\(Beta\)`: in row 2 \(1 of 3 rows\) `log_alpha` is not finite"
    ):
        lb.check(lb.Beta(spoiled(torch.zeros(3), value, 2), torch.zeros(3)))
    with pytest.raises(
        ValueError, match=r"`check\(Beta\)`: in row 0 \(1 of 3 rows\) `log_beta` is not finite"
    ):
        lb.check(lb.Beta(torch.zeros(3), spoiled(torch.zeros(3), value, 0)))


def test_a_concentration_of_zero_is_found():
    with pytest.raises(ValueError, match="in row 1"):
        lb.check(lb.Dirichlet.from_concentration(torch.tensor([[1.0, 1.0], [1.0, 0.0]])))
    with pytest.raises(ValueError, match="in row 0"):
        lb.check(lb.Dirichlet.from_concentration(torch.tensor([[-1.0, 1.0], [1.0, 1.0]])))


@pytest.mark.parametrize("kind", ["mean and variance", "two of a basis", "three of a matrix"])
def test_the_first_bad_row_is_named_whatever_is_wrong_with_it(kind):
    if kind == "mean and variance":
        bad = lb.LogitGaussian(
            spoiled(torch.zeros(4, 3), float("nan"), (3, 0)),
            lb.Diagonal(spoiled(torch.ones(4, 3), -1.0, (1, 0))),
        )
    elif kind == "two of a basis":
        bad = lb.SharedBasis(
            spoiled(spoiled(torch.ones(4, 2), -0.1, (1, 1)), float("inf"), (3, 0)),
            torch.tensor([[1.0, 0.5], [1.0, -0.5]]),
        )
    else:
        matrices = torch.eye(2).repeat(4, 1, 1)
        matrices[1] = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
        matrices[2, 0, 1], matrices[3, 0, 0] = 0.3, float("nan")
        bad = lb.Dense(matrices)
    assert lb.check(bad[:1]) is not None
    with pytest.raises(ValueError, match="in row 1 "):
        lb.check(bad)


def test_both_parts_of_factors_with_noise_are_checked():
    factor, own = torch.ones(3, 4, 2), torch.ones(3, 4)
    with pytest.raises(ValueError, match="in row 1"):
        lb.check(LowRankPlusDiagonal(spoiled(factor, float("nan"), (1, 0, 0)), own))
    with pytest.raises(ValueError, match="in row 2"):
        lb.check(LowRankPlusDiagonal(factor, spoiled(own, -1.0, (2, 0))))


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_valid_value_is_handed_back(structure):
    batch = gaussian(structure, 3, 4, 5)
    assert lb.check(batch) is batch
    assert lb.check(batch.covariance) is batch.covariance
    bridged = lb.laplace_bridge(batch)
    assert lb.check(bridged) is bridged
    marginal = bridged.marginal(0)
    assert lb.check(marginal) is marginal


def test_a_variance_of_zero_is_valid():
    batch = lb.LogitGaussian(torch.zeros(2, 3), lb.Diagonal(torch.zeros(2, 3)))
    assert lb.check(batch) is batch


def test_an_indefinite_matrix_is_refused_when_sampled():
    indefinite = lb.LogitGaussian(
        torch.zeros(1, 2), lb.Dense(torch.tensor([[[1.0, 2.0], [2.0, 1.0]]]))
    )
    with pytest.raises(
        ValueError,
        match=(
            r"needs positive semi-definite .* got an eigenvalue of -1\. `laplacebridge.check` names"
        ),
    ):
        lb.links.monte_carlo(indefinite, num_samples=2)
