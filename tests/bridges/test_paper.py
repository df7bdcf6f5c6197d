"""The paper's bridge: Eqs. 5-7 and 11-14 worked by hand, their limits and their
numerics.
"""

import math

import numpy as np
import pytest
import torch
from cases import STRUCTURES, gaussian, seeded

import laplacebridge as lb

EVERY_STRUCTURE = pytest.mark.parametrize("structure", STRUCTURES)
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
SMALLEST_VARIANCE = 2.0**-126  # the smallest normal float32, 1.2e-38


def double(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def independent(mean, variance):
    return lb.LogitGaussian(double(mean), lb.Diagonal(double(variance)))


# Gaussian → Dirichlet, Eq. 7


def test_equation_seven_by_hand():
    # e^μ = 2, 1, 1/2 and Σ e^−μ = 7/2, so α v = 1/3 + 7/9, 1/3 + 7/18, 1/3 + 7/36 =
    # 10/9, 13/18, 19/36
    bridged = lb.bridges.laplace_bridge_raw(
        independent([math.log(2), 0.0, -math.log(2)], [0.5, 1.0, 2.0])
    )
    torch.testing.assert_close(
        bridged.concentration, double([20 / 9, 13 / 18, 19 / 72]), rtol=1e-13, atol=0
    )


def test_equation_seven_does_not_center_what_is_given():
    # Σ e^−μ changes by the inverse of what e^μ changes by
    first = lb.bridges.laplace_bridge_raw(independent([1.0, 0.0, 3.0], [0.5, 1.0, 2.0]))
    shifted = lb.bridges.laplace_bridge_raw(independent([6.0, 5.0, 8.0], [0.5, 1.0, 2.0]))
    torch.testing.assert_close(
        shifted.log_concentration, first.log_concentration, rtol=1e-13, atol=0
    )


@EVERY_STRUCTURE
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_equation_seven_as_printed_for_every_structure(structure, classes):
    batch = gaussian(structure, 0, 6, classes)
    mean, variance = (
        batch.mean.numpy(),
        batch.covariance.to_dense().diagonal(dim1=-2, dim2=-1).numpy(),
    )
    sums = np.exp(-mean).sum(-1, keepdims=True)
    expected = (1 - 2 / classes + np.exp(mean) / classes**2 * sums) / variance
    np.testing.assert_allclose(
        lb.bridges.laplace_bridge_raw(batch).concentration, expected, rtol=1e-9
    )


def test_as_given_takes_mean_and_variances_as_they_are():
    batch = gaussian("dense", 1, 3, 4)
    marginals = lb.bridges.as_given(batch)
    assert marginals.mean is batch.mean
    torch.testing.assert_close(marginals.variance, batch.variance, rtol=0, atol=0)


# Dirichlet → Gaussian, Eqs. 5-6


def test_equations_five_and_six_by_hand():
    # α = 1, 2, 4: log α − mean log α = (−1, 0, 1) log 2
    given = lb.bridges.dirichlet_to_gaussian(
        lb.Dirichlet.from_concentration(double([1.0, 2.0, 4.0]))
    )
    torch.testing.assert_close(
        given.mean, double([-math.log(2), 0.0, math.log(2)]), atol=1e-15, rtol=0
    )
    # Σ_kl = δ_kl/α_k − (1/α_k + 1/α_l − 7/12)/3 with Σ 1/α = 7/4
    expected = double(
        [[19 / 36, -11 / 36, -8 / 36], [-11 / 36, 13 / 36, -2 / 36], [-8 / 36, -2 / 36, 10 / 36]]
    )
    torch.testing.assert_close(given.covariance.to_dense(), expected, rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(
        given.variance, double([19 / 36, 13 / 36, 10 / 36]), rtol=1e-13, atol=0
    )


@pytest.mark.parametrize("classes", [2, 3, 8])
def test_the_covariance_is_the_pseudo_inverse_of_the_curvature_at_the_mode(classes):
    concentration = 5 * torch.rand(4, classes, generator=seeded(2), dtype=torch.float64) + 0.1
    given = lb.bridges.dirichlet_to_gaussian(lb.Dirichlet.from_concentration(concentration))
    total = concentration.sum(-1)[:, None, None]
    # minus the Hessian of log Dirichlet(softmax(z)) at its mode
    curvature = (
        torch.diag_embed(concentration)
        - concentration.unsqueeze(-1) * concentration.unsqueeze(-2) / total
    )
    centring = (torch.eye(classes, dtype=torch.float64) - 1 / classes).expand(4, -1, -1)
    covariance = given.covariance.to_dense()
    torch.testing.assert_close(curvature @ covariance, centring, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(
        covariance, torch.linalg.pinv(curvature, rtol=1e-12), rtol=1e-9, atol=1e-11
    )


def test_the_curvature_of_that_statement_is_what_autograd_finds():
    concentration = double([0.7, 2.0, 5.0])[0]

    def log_density(logits):  # of the Dirichlet in the softmax basis, Eq. 4, up to a constant
        return (concentration * logits.log_softmax(-1)).sum()

    mode = lb.bridges.dirichlet_to_gaussian(
        lb.Dirichlet.from_concentration(concentration.unsqueeze(0))
    ).mean[0]
    gradient = torch.func.jacrev(log_density)(mode)
    torch.testing.assert_close(gradient, torch.zeros(3).double(), atol=1e-14, rtol=0)
    hessian = torch.func.jacrev(torch.func.jacrev(log_density))(mode)
    expected = torch.outer(concentration, concentration) / concentration.sum() - torch.diag(
        concentration
    )
    torch.testing.assert_close(hessian, expected)


@DTYPES
def test_there_and_back_is_exact_for_every_concentration(dtype):
    log = torch.tensor(
        [
            [-69.0, -5.0, 0.0, 3.0],
            [41.0, 41.0, 41.0, 41.0],
            [41.0, -69.0, 0.0, 1.0],
            [0.0, 0.0, 0.0, 0.0],
        ]
    )
    dirichlet = lb.Dirichlet(log.to(dtype))
    returned = lb.bridges.laplace_bridge_raw(lb.bridges.dirichlet_to_gaussian(dirichlet))
    tolerance = 100 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        returned.log_concentration, dirichlet.log_concentration, atol=tolerance, rtol=tolerance
    )


# zero sum, Eq. 11


def test_equation_eleven_by_hand_for_independent_logits():
    # Σ1 = (1, 2, 3), 1ᵀΣ1 = 6, 1ᵀμ = 6: μ − (1, 2, 3) and v − v²/6
    marginals = lb.bridges.condition(independent([3.0, 1.0, 2.0], [1.0, 2.0, 3.0]))
    torch.testing.assert_close(marginals.mean, double([2.0, -1.0, -1.0]), rtol=1e-14, atol=0)
    torch.testing.assert_close(
        marginals.variance, double([5 / 6, 4 / 3, 3 / 2]), rtol=1e-14, atol=0
    )


def test_equation_eleven_by_hand_for_correlated_logits():
    # Σ1 = (3, 3, 1), 1ᵀΣ1 = 7, 1ᵀμ = 14: μ − 2 (3, 3, 1) and (2, 2, 1) − (9, 9, 1)/7
    covariance = lb.Dense(double([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 1.0]]))
    marginals = lb.bridges.condition(lb.LogitGaussian(double([9.0, 4.0, 1.0]), covariance))
    torch.testing.assert_close(marginals.mean, double([3.0, -2.0, -1.0]), rtol=1e-13, atol=0)
    torch.testing.assert_close(
        marginals.variance, double([5 / 7, 5 / 7, 6 / 7]), rtol=1e-13, atol=0
    )


@EVERY_STRUCTURE
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_equation_eleven_as_printed_for_every_structure(structure, classes):
    batch = gaussian(structure, 3, 5, classes)
    matrix = batch.covariance.to_dense()
    sums, total = matrix.sum(-1), matrix.sum((-2, -1)).unsqueeze(-1)
    marginals = lb.bridges.condition(batch)
    if (
        structure == "centered diagonal"
    ):  # 1ᵀΣ1 = 0: nothing to condition on, and only the mean is centred
        expected = batch.mean - batch.mean.mean(-1, keepdim=True), batch.variance
    else:
        expected = (
            batch.mean - sums * batch.mean.sum(-1, keepdim=True) / total,
            batch.variance - sums.square() / total,
        )
    torch.testing.assert_close(marginals.mean, expected[0], rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(marginals.variance, expected[1], rtol=1e-9, atol=1e-11)


def test_conditioning_is_what_bayes_says():
    # given z1 + z2 + z3 = 0, by the Gaussian of (z1, z2 | z3 = −z1 − z2)
    batch = gaussian("dense", 4, 1, 3)
    precision = torch.linalg.inv(batch.covariance.to_dense()[0])
    lift = double([1.0, 0.0], [0.0, 1.0], [-1.0, -1.0])
    reduced = torch.linalg.inv(lift.T @ precision @ lift)
    mean, matrix = lift @ reduced @ lift.T @ precision @ batch.mean[0], lift @ reduced @ lift.T
    marginals = lb.bridges.condition(batch)
    torch.testing.assert_close(marginals.mean[0], mean, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(marginals.variance[0], matrix.diagonal(), rtol=1e-8, atol=1e-10)


@DTYPES
def test_conditioning_keeps_its_digits_when_one_class_has_nearly_all_the_variance(dtype):
    variance = torch.tensor([[1e12, 1.0, 2.0]], dtype=dtype)
    marginals = lb.bridges.condition(
        lb.LogitGaussian(torch.zeros(1, 3, dtype=dtype), lb.Diagonal(variance))
    )
    expected = torch.tensor(
        [[3.0, 1.0, 2.0]], dtype=dtype
    )  # v1 · 3/(1e12 + 3) and v − v²/(1e12 + 3)
    torch.testing.assert_close(
        marginals.variance, expected, rtol=1e-6 if dtype == torch.float32 else 1e-11, atol=0
    )


def test_centring_by_hand():
    # C diag(1, 2, 3) C has diagonal v/3 + 2/3
    marginals = lb.bridges.center(independent([3.0, 1.0, 2.0], [1.0, 2.0, 3.0]))
    torch.testing.assert_close(marginals.mean, double([1.0, -1.0, 0.0]), rtol=0, atol=1e-15)
    torch.testing.assert_close(marginals.variance, double([1.0, 4 / 3, 5 / 3]), rtol=1e-14, atol=0)


@EVERY_STRUCTURE
def test_the_bridge_is_the_zero_sum_step_followed_by_equation_seven(structure):
    batch = gaussian(structure, 5, 4, 5)
    for zero_sum in (lb.bridges.condition, lb.bridges.center, lb.bridges.as_given):
        mean, variance = zero_sum(batch)
        expected = lb.bridges.laplace_bridge_raw(lb.LogitGaussian(mean, lb.Diagonal(variance)))
        bridged = lb.laplace_bridge(batch, zero_sum=zero_sum)
        torch.testing.assert_close(
            bridged.log_concentration, expected.log_concentration, rtol=1e-12, atol=1e-12
        )
    default = lb.laplace_bridge(batch).log_concentration
    torch.testing.assert_close(
        default,
        lb.laplace_bridge(batch, zero_sum=lb.bridges.condition).log_concentration,
        rtol=0,
        atol=0,
    )


# the variance correction, Eqs. 12-14


# K = 8, √(K/2) = 2, mean variance 18
BY_HAND = (
    [3.0, -3.0, 6.0, -6.0, 0.0, 0.0, 0.0, 0.0],
    [9.0, 27.0, 18.0, 18.0, 18.0, 18.0, 9.0, 27.0],
)


def marginals_of(mean, variance):
    return lb.bridges.Marginals(double(mean), double(variance))


@pytest.mark.parametrize(
    ("choices", "divisor"),
    [({}, 9), ({"average": False}, 72)],  # v̄ as a mean, and as the sum that is printed
    ids=["mean", "sum"],
)
def test_the_variance_correction_by_hand(choices, divisor):
    mean, variance = BY_HAND
    corrected = lb.bridges.pull_back(marginals_of(mean, variance), **choices)
    torch.testing.assert_close(corrected.mean, double(mean) / divisor**0.5, rtol=1e-14, atol=0)
    torch.testing.assert_close(corrected.variance, double(variance) / divisor, rtol=1e-14, atol=0)


def test_after_the_correction_the_mean_variance_is_that_of_the_accurate_region():
    batch = gaussian("diagonal", 6, 5, 7)
    assert torch.allclose(
        lb.bridges.pull_back(lb.bridges.center(batch)).variance.mean(-1),
        torch.tensor(3.5**0.5).double(),
    )
    assert torch.allclose(
        lb.bridges.pull_back(lb.bridges.center(batch), average=False).variance.sum(-1),
        torch.tensor(3.5**0.5).double(),
    )


def test_only_large_variances_are_corrected_if_asked():
    # K = 2, √(K/2) = 1: rows with c = 1/4, 1 and 4
    given = lb.bridges.Marginals(
        double([1.0, -1.0], [1.0, -1.0], [1.0, -1.0]), double([0.25, 0.25], [1.0, 1.0], [4.0, 4.0])
    )
    always, large = lb.bridges.pull_back(given), lb.bridges.pull_back(given, only_large=True)
    torch.testing.assert_close(always.variance, torch.ones(3, 2).double())
    torch.testing.assert_close(always.mean, double([2.0, -2.0], [1.0, -1.0], [0.5, -0.5]))
    torch.testing.assert_close(large.variance, double([0.25, 0.25], [1.0, 1.0], [1.0, 1.0]))
    torch.testing.assert_close(large.mean, double([1.0, -1.0], [1.0, -1.0], [0.5, -0.5]))


def test_without_variance_there_is_nothing_to_correct():
    given = lb.bridges.Marginals(double([2.0, -2.0]), double([0.0, 0.0]))
    for options in ({}, {"average": False}, {"only_large": True}):
        corrected = lb.bridges.pull_back(given, **options)
        assert torch.equal(corrected.mean, given.mean)
        assert torch.equal(corrected.variance, given.variance)


@pytest.mark.parametrize(
    "options",
    [{}, {"average": False}, {"only_large": True}, {"zero_sum": lb.bridges.center}],
    ids=["default", "sum", "only large", "centred"],
)
def test_the_corrected_bridge_is_zero_sum_then_correction_then_equation_seven(options):
    batch = gaussian("dense", 7, 4, 5)
    zero_sum = options.get("zero_sum", lb.bridges.condition)
    rescaling = {name: value for name, value in options.items() if name != "zero_sum"}
    mean, variance = lb.bridges.pull_back(zero_sum(batch), **rescaling)
    expected = lb.bridges.laplace_bridge_raw(lb.LogitGaussian(mean, lb.Diagonal(variance)))
    bridged = lb.bridges.laplace_bridge_norm(batch, **options)
    torch.testing.assert_close(
        bridged.log_concentration, expected.log_concentration, rtol=1e-12, atol=1e-12
    )


# limits at zero variance


@DTYPES
def test_a_class_without_variance_has_the_concentration_of_the_smallest_one(dtype):
    mean = torch.tensor([[1.0, 0.0, -1.0]], dtype=dtype)
    variance = torch.tensor([[0.0, 1.0, 2.0]], dtype=dtype)
    bridged = lb.bridges.laplace_bridge_raw(lb.LogitGaussian(mean, lb.Diagonal(variance)))
    factor = 1 / 3 + math.e / 9 * (1 + math.e + 1 / math.e)
    assert bridged.log_concentration[0, 0].item() == pytest.approx(
        math.log(factor) - math.log(SMALLEST_VARIANCE), rel=1e-6
    )
    # the others are as ever, which is nothing beside it
    others = [
        (1 / 3 + math.exp(m) / 9 * (1 + math.e + 1 / math.e)) / v
        for m, v in ((0.0, 1.0), (-1.0, 2.0))
    ]
    assert bridged.concentration[0, 1:].tolist() == pytest.approx(others, rel=1e-5)
    torch.testing.assert_close(
        bridged.mean, torch.tensor([[1.0, 0.0, 0.0]], dtype=dtype), atol=1e-35, rtol=1e-6
    )


@DTYPES
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_if_no_class_varies_the_answer_is_softmax_with_that_concentration(classes, dtype):
    mean = 3 * torch.randn(4, classes, generator=seeded(8), dtype=dtype)
    bridged = lb.bridges.laplace_bridge_raw(
        lb.LogitGaussian(mean, lb.Diagonal(torch.zeros_like(mean)))
    )
    torch.testing.assert_close(
        bridged.mean, mean.softmax(-1), rtol=1e-4 if dtype == torch.float32 else 1e-12, atol=0
    )
    # Eq. 7 without its constant term: α = e^μ Σ e^−μ / K² / v
    wide = mean.double()
    expected = (
        wide.logsumexp(-1)
        + (-wide).logsumexp(-1)
        - 2 * math.log(classes)
        - math.log(SMALLEST_VARIANCE)
    )
    torch.testing.assert_close(bridged.log_total.double(), expected, rtol=1e-6, atol=0)


def test_a_variance_below_the_smallest_counts_as_the_smallest_in_every_type():
    tiny = independent([1.0, 0.0, -1.0], [1e-300, 1e-200, 1e-50])
    smallest = independent([1.0, 0.0, -1.0], [SMALLEST_VARIANCE] * 3)
    first, second = lb.bridges.laplace_bridge_raw(tiny), lb.bridges.laplace_bridge_raw(smallest)
    torch.testing.assert_close(
        first.log_concentration, second.log_concentration, rtol=1e-14, atol=0
    )


@EVERY_STRUCTURE
def test_rows_without_any_variance_do_not_disturb_the_others(structure):
    batch = gaussian(structure, 9, 3, 4)
    factor = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    some = lb.LogitGaussian(batch.mean, batch.covariance.scaled(factor))
    for bridge in (
        lb.bridges.laplace_bridge_raw,
        lb.laplace_bridge,
        lb.bridges.laplace_bridge_norm,
    ):
        mixed, whole = bridge(some), bridge(batch)
        assert torch.equal(mixed.log_concentration[[0, 2]], whole.log_concentration[[0, 2]])
        torch.testing.assert_close(mixed.mean[1], batch.mean[1].softmax(-1), rtol=1e-9, atol=1e-12)


# two classes


@EVERY_STRUCTURE
def test_two_classes_are_the_bridge_of_a_beta(structure):
    # MacKay: for logit(p) ~ N(m, s²) it is α = (1 + e^m)/s², β = (1 + e^−m)/s²
    batch = gaussian(structure, 10, 6, 2)
    matrix = batch.covariance.to_dense()
    gap = batch.mean[:, 0] - batch.mean[:, 1]
    spread = matrix[:, 0, 0] + matrix[:, 1, 1] - 2 * matrix[:, 0, 1]
    expected = torch.stack([(1 + gap.exp()) / spread, (1 + (-gap).exp()) / spread], -1)
    bridged = lb.laplace_bridge(batch, zero_sum=lb.bridges.center)
    torch.testing.assert_close(bridged.concentration, expected, rtol=1e-9, atol=0)
    beta = bridged.marginal(0)
    torch.testing.assert_close(beta.mean, gap.sigmoid(), rtol=1e-10, atol=0)
    torch.testing.assert_close(1 / beta.alpha + 1 / beta.beta, spread, rtol=1e-9, atol=0)


def test_two_classes_with_equal_variances_need_no_choice_of_zero_sum():
    batch = independent([2.0, 0.5], [0.7, 0.7])
    conditioned, centered = (
        lb.laplace_bridge(batch),
        lb.laplace_bridge(batch, zero_sum=lb.bridges.center),
    )
    torch.testing.assert_close(
        conditioned.log_concentration, centered.log_concentration, rtol=1e-12, atol=1e-12
    )


# numerics


@pytest.mark.parametrize("size", [300.0, 1e4])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_float32_logits_beyond_exp_are_finite_and_right(size, classes):
    mean = torch.full((3, classes), -size)
    mean[0, 0], mean[1, -1] = size, 0.5 * size
    mean[2] = torch.linspace(-size, size, classes)
    variance = torch.rand(3, classes, generator=seeded(11)) + 0.1
    narrow = lb.LogitGaussian(mean, lb.Diagonal(variance))
    wide = narrow.to(torch.float64)
    for bridge in (
        lb.bridges.laplace_bridge_raw,
        lb.laplace_bridge,
        lb.bridges.laplace_bridge_norm,
    ):
        bridged, exact = bridge(narrow), bridge(wide)
        assert lb.check(bridged) is bridged
        torch.testing.assert_close(
            bridged.log_concentration.double(), exact.log_concentration, rtol=2e-6, atol=1e-4
        )
        # means are as well known as differences of logarithms of that size
        known_to = 4 * torch.finfo(torch.float32).eps * exact.log_concentration.abs().max().item()
        torch.testing.assert_close(bridged.mean.double(), exact.mean, atol=known_to, rtol=0)


def test_in_float64_the_logits_may_be_a_million():
    mean = double([1e6, -1e6, 0.0])
    bridged = lb.bridges.laplace_bridge_raw(
        lb.LogitGaussian(mean, lb.Diagonal(torch.ones(1, 3).double()))
    )
    # log α = μ + 1e6 − 2 log 3 where that is not swamped by 1 − 2/K
    expected = [2e6 - 2 * math.log(3), math.log(1 / 3 + 1 / 9), 1e6 - 2 * math.log(3)]
    assert bridged.log_concentration[0].tolist() == pytest.approx(expected, rel=1e-12)


@DTYPES
def test_with_and_without_gradients_the_answer_is_the_same(dtype):
    batch = gaussian("diagonal", 12, 5, 4).to(dtype)
    for bridge in (
        lb.bridges.laplace_bridge_raw,
        lb.laplace_bridge,
        lb.bridges.laplace_bridge_norm,
    ):
        plain = bridge(batch).log_concentration
        tracked = bridge(
            lb.LogitGaussian(batch.mean.clone().requires_grad_(), batch.covariance)
        ).log_concentration
        assert tracked.requires_grad
        torch.testing.assert_close(
            tracked.detach(),
            plain,
            rtol=20 * torch.finfo(dtype).eps,
            atol=20 * torch.finfo(dtype).eps,
        )


def test_a_batch_of_many_blocks_is_bridged_row_by_row():
    few = gaussian("diagonal", 13, 7, 4)
    many = few[torch.arange(70_000) % 7]  # 280 000 numbers, more than two blocks of 131 072
    expected = lb.laplace_bridge(few).log_concentration[torch.arange(70_000) % 7]
    torch.testing.assert_close(
        lb.laplace_bridge(many).log_concentration, expected, rtol=1e-13, atol=1e-13
    )


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_the_determinant_of_softmax_is_that_of_appendix_b(classes):
    """Π π (Eq. 3) where the last logit stands still, K Π π (appendix B) on the zero-sum
    plane, and zero for all logits, of which softmax ignores a direction.
    """
    free = torch.randn(classes - 1, generator=seeded(classes), dtype=torch.float64)

    def still(first):
        return torch.cat([first, first.new_zeros(1)]).softmax(-1)[:-1]

    def zero_sum(first):
        return torch.cat([first, -first.sum(0, keepdim=True)]).softmax(-1)[:-1]

    def everything(logits):
        return logits.softmax(-1)

    for function, point, times in (
        (still, torch.cat([free, free.new_zeros(1)]), 1),
        (zero_sum, torch.cat([free, -free.sum(0, keepdim=True)]), classes),
    ):
        found = torch.linalg.det(torch.autograd.functional.jacobian(function, free))
        torch.testing.assert_close(found, times * point.softmax(-1).prod())
    whole = torch.autograd.functional.jacobian(everything, torch.cat([free, free[:1]]))
    assert abs(torch.linalg.det(whole).item()) < 1e-15
