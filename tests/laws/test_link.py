"""Laws that every link obeys, over every structure."""

import pytest
import torch
from cases import LINKS, STRUCTURES, gaussian

import laplacebridge as lb

EVERY_LINK = pytest.mark.parametrize("link", LINKS.values(), ids=LINKS.keys())
EVERY_STRUCTURE = pytest.mark.parametrize("structure", STRUCTURES)


@EVERY_LINK
@EVERY_STRUCTURE
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_rows_are_probabilities_of_the_inputs_type(link, structure, dtype):
    batch = gaussian(structure, 0, 20, 10)
    probabilities = link.function(batch.to(dtype))
    assert probabilities.dtype == dtype
    assert (probabilities >= 0).all()
    tolerance = 10 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        probabilities.double().sum(-1), torch.ones(20).double(), atol=tolerance, rtol=0
    )


@EVERY_LINK
@EVERY_STRUCTURE
def test_structured_and_dense_covariances_agree(link, structure):
    if not link.exact_permutation:
        pytest.skip(
            "sampled: the draws depend on the structure, their law does not (test_links.py)"
        )
    structured = gaussian(structure, 1, 5, 6)
    dense = lb.LogitGaussian(structured.mean, lb.Dense(structured.covariance.to_dense()))
    torch.testing.assert_close(link.function(structured), link.function(dense))


@EVERY_LINK
@EVERY_STRUCTURE
def test_float32_agrees_with_float64(link, structure):
    if not link.exact_permutation:
        pytest.skip("sampled: another type draws other numbers")
    batch = gaussian(structure, 2, 20, 10)
    torch.testing.assert_close(
        link.function(batch.to(torch.float32)).double(), link.function(batch), atol=2e-5, rtol=0
    )


@EVERY_LINK
@EVERY_STRUCTURE
def test_gradients_match_finite_differences(link, structure):
    if not link.smooth:
        pytest.skip("has a kink by definition, where negative values are cut")
    if structure == "dense" and not link.exact_permutation:
        pytest.skip(
            "the Cholesky factor of a matrix moved in one entry is not the derivative of a"
            " covariance"
        )
    batch = gaussian(structure, 3, 2, 4, spread=1.0)
    parts = {name: t.clone().requires_grad_() for name, t in batch.covariance.tensors().items()}
    kind = type(batch.covariance)

    def probabilities(mean, *tensors):
        covariance = kind(**dict(zip(parts, tensors)))
        if kind is lb.Dense:
            covariance = lb.Dense((covariance.covariance + covariance.covariance.mT) / 2)
        return link.function(lb.LogitGaussian(mean, covariance))

    assert torch.autograd.gradcheck(
        probabilities, (batch.mean.clone().requires_grad_(), *parts.values())
    )


def test_the_second_order_link_is_smooth_inside_the_simplex():
    batch = gaussian("diagonal", 3, 2, 4, spread=1.0)
    variance = (0.1 * batch.variance / batch.variance.amax(-1, keepdim=True)).requires_grad_()

    def probabilities(mean, variance):
        return lb.links.second_order(lb.LogitGaussian(mean, lb.Diagonal(variance)))

    assert torch.autograd.gradcheck(probabilities, (batch.mean.clone().requires_grad_(), variance))


@EVERY_LINK
@pytest.mark.parametrize("variance", [0.0, 1e-30, 1.0, 1e12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_wherever_values_are(link, variance, dtype):
    mean = torch.tensor([[0.0, 0.0, 0.0], [1e4, 9999.0, -1e4]], dtype=dtype, requires_grad=True)
    variances = torch.full((2, 3), variance, dtype=dtype, requires_grad=True)
    link.function(lb.LogitGaussian(mean, lb.Diagonal(variances)))[:, 0].sum().backward()
    assert mean.grad.isfinite().all()
    assert variances.grad is None or variances.grad.isfinite().all()
