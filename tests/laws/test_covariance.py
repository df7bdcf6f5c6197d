"""Every structure answers every question as its dense twin does: the public check, and
what our own structures promise beyond it.
"""

import pytest
import torch
from cases import COVARIANCES, seeded

import laplacebridge as lb

SHAPES = [(1, 2), (4, 3), (3, 10)]


@pytest.fixture(params=COVARIANCES)
def build(request):
    return COVARIANCES[request.param]


@pytest.fixture(params=SHAPES, ids=str)
def covariance(build, request):
    return build(seeded(1), *request.param)


@pytest.fixture
def twin(covariance):
    return lb.Dense(covariance.to_dense())


def vectors(covariance):
    return torch.randn(covariance.shape, generator=seeded(2), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(2, 2), (4, 3), (3, 10)], ids=str)
def test_it_passes_the_public_check(build, shape):
    lb.testing.check_covariance(build(seeded(1), *shape))


def test_what_was_computed_before_belongs_to_its_own_rows(covariance, twin):
    covariance.diagonal()  # some structures remember it
    rows = torch.arange(len(covariance)).flip(0)
    factor = torch.full((len(covariance),), 3.0, dtype=torch.float64)
    torch.testing.assert_close(covariance[rows].diagonal(), twin.diagonal()[rows])
    torch.testing.assert_close(covariance.scaled(factor).diagonal(), 3 * twin.diagonal())


def test_centring_is_multiplication_with_the_centring_matrix(covariance, twin):
    classes = covariance.shape[1]
    centring = torch.eye(classes, dtype=torch.float64) - 1 / classes
    expected = centring @ twin.covariance @ centring
    torch.testing.assert_close(covariance.centered().to_dense(), expected)
    torch.testing.assert_close(
        covariance.centered().diagonal(), expected.diagonal(dim1=-2, dim2=-1)
    )
    torch.testing.assert_close(covariance.centered().centered().to_dense(), expected)


def test_after_centring_rows_sum_to_zero_and_conditioning_changes_nothing(covariance):
    centered = covariance.centered()
    scale = centered.diagonal().max()
    assert centered.row_sums().abs().max() < 1e-13 * scale * covariance.shape[1]
    torch.testing.assert_close(
        centered.given_zero_sum().variance, centered.diagonal(), atol=1e-12, rtol=1e-9
    )


def test_conditioning_is_the_textbook_formula(covariance, twin):
    matrix = twin.covariance
    sums, total = matrix.sum(-1), matrix.sum((-2, -1))
    if (total < 1e-10).any():
        pytest.skip("a zero-sum covariance has nothing to condition on; see the test above")
    expected = matrix.diagonal(dim1=-2, dim2=-1) - sums.square() / total.unsqueeze(-1)
    torch.testing.assert_close(
        covariance.given_zero_sum().variance, expected, atol=1e-10, rtol=1e-8
    )


def test_the_factored_form_is_the_same_covariance(covariance, twin):
    torch.testing.assert_close(covariance.factored().to_dense(), twin.covariance)


def test_a_non_finite_number_is_found_in_its_row(build):
    covariance = build(seeded(5), 4, 3)
    name, tensor = next(iter(covariance.tensors().items()))
    tensor[2].fill_(float("nan"))
    with pytest.raises(ValueError, match=rf"row 2 \(1 of 4 rows\) `{name}` is not finite"):
        lb.check(covariance)


def test_singular_matrices_can_be_sampled():
    rank_one = torch.ones(2, 3, 3, dtype=torch.float64)
    rank_one[1] = 0
    draws = lb.Dense(rank_one).sample(50, seeded(0))
    torch.testing.assert_close(draws[..., 0], draws[..., 1])
    assert (draws[:, 1] == 0).all()


def test_indefinite_matrices_are_refused_when_sampled():
    matrix = torch.tensor([[[1.0, 2.0], [2.0, 1.0]]])
    with pytest.raises(ValueError, match="positive semi-definite"):
        lb.Dense(matrix).sample(1)


def test_a_large_common_mode_leaves_no_trace_in_float32_after_centring_the_basis():
    # the variance along 1 is 1e6 times the others, as with the paper's prior on a
    # Kronecker posterior
    classes = 10
    noise = torch.randn(classes, classes, generator=seeded(6), dtype=torch.float64)
    noise[:, 0] = 1
    basis, _ = torch.linalg.qr(noise)
    weights = torch.ones(1, classes, dtype=torch.float64)
    weights[:, 0] = 1e6
    exact = lb.SharedBasis(weights, basis).centered().diagonal()
    narrow = lb.SharedBasis(weights.float(), basis.float()).centered().diagonal()
    torch.testing.assert_close(narrow.double(), exact, rtol=2e-6, atol=0)


def test_results_kept_from_inference_mode_serve_gradients_later():
    covariance = shared = lb.SharedBasis(torch.rand(2, 3), torch.rand(3, 3))
    with torch.inference_mode():
        covariance.centered().diagonal()
    weights = torch.rand(2, 3, requires_grad=True)
    with_gradient = lb.SharedBasis(weights, shared.basis, _derived=shared._derived)
    with torch.no_grad():  # as in a `repr`
        with_gradient.centered().diagonal()
    with torch.inference_mode():
        with_gradient.diagonal()
    with_gradient.diagonal().sum().backward()
    with_gradient.centered().diagonal().sum().backward()
    assert weights.grad is not None


def test_a_square_beside_a_shared_basis_is_centred_with_it_and_stays_alone():
    generator = seeded(4)
    weights, along = torch.rand(2, 3, generator=generator), torch.randn(2, 3, generator=generator)
    basis = torch.linalg.qr(torch.randn(3, 3, generator=generator))[0]
    covariance = lb.SharedBasis(weights, basis)
    late = covariance.centered().plus_square(along)
    expected = covariance.plus_square(along).centered().to_dense()
    torch.testing.assert_close(late.to_dense(), expected)
    with pytest.raises(lb.InputError, match="has one"):
        late.plus_square(along)
    factor = torch.zeros(2, requires_grad=True)
    late.scaled(factor).diagonal().sum().backward()
    assert factor.grad.isfinite().all()


def test_several_columns_are_those_of_the_matrix(covariance, twin):
    batch, classes = covariance.shape
    chosen = torch.randint(0, classes, (batch, 2), generator=seeded(3))
    expected = torch.stack([twin.to_dense()[row][:, chosen[row]] for row in range(batch)])
    torch.testing.assert_close(covariance.columns(chosen), expected)
    torch.testing.assert_close(twin.columns(chosen), expected)
