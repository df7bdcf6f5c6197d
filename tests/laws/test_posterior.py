"""Every posterior is the Gaussian with the dense inverse of its curvature plus prior,
seen through the head.
"""

import math

import pytest
import torch
from cases import POSTERIORS, seeded
from dense_curvature import CLASSES, FEATURES, dense

import laplacebridge as lb
from laplacebridge.laplace import DiagKron, FullPosterior, KronPosterior, MatrixNormalPosterior
from laplacebridge.laplace.head_posteriors.base import with_constant

EVERY = pytest.mark.parametrize(("curvature_kind", "kind"), POSTERIORS)
BIAS = pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
PRIOR = 0.3


def fitted(curvature_kind, kind, *, bias=False, examples=12, prior=PRIOR, dtype=torch.float64):
    generator = seeded(0)
    inputs = FEATURES - bias  # with the constant one there are FEATURES of them
    weight = torch.randn(CLASSES, inputs, generator=generator, dtype=torch.float64)
    offset = torch.randn(CLASSES, generator=generator, dtype=torch.float64) if bias else None
    features = torch.randn(examples, inputs, generator=generator, dtype=torch.float64)
    probabilities = torch.nn.functional.linear(features, weight, offset).softmax(-1)
    curvature = curvature_kind.of_batch(
        with_constant(features) if bias else features, probabilities
    )
    narrow = None if offset is None else offset.to(dtype)
    return kind(weight.to(dtype), narrow, curvature, prior), curvature, features


def weight_covariance(posterior, curvature, prior=PRIOR):
    """(H + τI)⁻¹ by brute force, in the order (class, feature)."""
    if isinstance(posterior, MatrixNormalPosterior):
        root, size = math.sqrt(prior), curvature.num_examples.sqrt()
        rows = torch.linalg.inv(curvature.class_factor / size + root * torch.eye(CLASSES).double())
        columns = torch.linalg.inv(
            curvature.feature_factor / size + root * torch.eye(FEATURES).double()
        )
        return torch.kron(rows, columns)
    matrix = dense(curvature)
    return torch.linalg.inv(matrix + prior * torch.eye(len(matrix)).double())


@EVERY
@BIAS
def test_the_logit_covariance_is_the_weight_covariance_seen_through_the_head(
    curvature_kind, kind, bias
):
    posterior, curvature, features = fitted(curvature_kind, kind, bias=bias)
    gaussian = posterior(features)
    augmented = with_constant(features) if bias else features
    jacobian = torch.einsum("bd,kl->bkld", augmented, torch.eye(CLASSES).double()).flatten(2)
    expected = jacobian @ weight_covariance(posterior, curvature) @ jacobian.mT
    torch.testing.assert_close(gaussian.covariance.to_dense(), expected, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(
        gaussian.mean,
        torch.nn.functional.linear(features, posterior.weight, posterior.bias),
        rtol=1e-12,
        atol=1e-12,
    )


@EVERY
def test_without_data_the_posterior_is_the_prior(curvature_kind, kind):
    posterior, _, _ = fitted(curvature_kind, kind, examples=0)
    features = torch.randn(5, FEATURES, generator=seeded(1), dtype=torch.float64)
    expected = features.square().sum(-1, keepdim=True).expand(-1, CLASSES) / PRIOR
    torch.testing.assert_close(posterior(features).variance, expected)


@EVERY
def test_another_prior_needs_no_new_fit(curvature_kind, kind):
    posterior, curvature, features = fitted(curvature_kind, kind)
    moved = posterior.with_prior(7.0)
    fresh = kind(posterior.weight, posterior.bias, curvature, 7.0)
    torch.testing.assert_close(
        moved(features).covariance.to_dense(), fresh(features).covariance.to_dense()
    )
    # and the first one is as it was
    again, _, _ = fitted(curvature_kind, kind)
    torch.testing.assert_close(
        posterior(features).variance, again(features).variance, rtol=0, atol=0
    )
    assert moved.prior_precision == 7.0


@EVERY
def test_a_larger_prior_precision_never_increases_a_variance(curvature_kind, kind):
    posterior, _, features = fitted(curvature_kind, kind)
    variances = torch.stack(
        [posterior.with_prior(prior)(features).variance for prior in (1e-3, 0.1, 1.0, 50.0)]
    )
    assert (variances.diff(dim=0) <= 1e-12 * variances[:-1]).all()


@EVERY
def test_the_evidence_is_the_integral_of_the_quadratic_approximation(curvature_kind, kind):
    if kind is MatrixNormalPosterior:
        pytest.skip("its damped factors are not a curvature plus a prior")
    posterior, curvature, _ = fitted(curvature_kind, kind, bias=True)
    matrix = dense(curvature)
    size = len(matrix)
    trained = torch.cat([posterior.weight, posterior.bias.unsqueeze(-1)], -1)
    # ∫ exp(L − ½ (θ − θ₀)ᵀ(H + τ)(θ − θ₀) − ½ τ|θ₀|²) (τ/2π)^(P/2) dθ
    log_integral = 0.5 * size * math.log(2 * math.pi) - 0.5 * torch.logdet(
        matrix + PRIOR * torch.eye(size).double()
    )
    prior = 0.5 * size * math.log(PRIOR / (2 * math.pi)) - 0.5 * PRIOR * trained.square().sum()
    assert posterior.log_evidence(-11.0) == pytest.approx(
        (-11.0 + prior + log_integral).item(), rel=1e-10
    )


@EVERY
def test_sampled_weights_give_the_logit_gaussian(curvature_kind, kind):
    posterior, _, features = fitted(curvature_kind, kind, bias=True)
    gaussian = posterior(features[:3])
    num = 40_000
    weights = posterior.sample_weights(num, seeded(2))
    logits = torch.einsum("skd,bd->sbk", weights, with_constant(features[:3]))
    centered = logits - gaussian.mean
    products = torch.einsum("sbk,sbl->sbkl", centered, centered)
    error = products.std(0) / num**0.5
    assert ((products.mean(0) - gaussian.covariance.to_dense()).abs() <= 5 * error).all()
    assert (centered.mean(0).abs() <= 5 * gaussian.variance.sqrt() / num**0.5).all()


@pytest.mark.parametrize(
    ("curvature_kind", "kind"),
    [pair for pair in POSTERIORS if pair[1] is not MatrixNormalPosterior],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_predictions_are_in_the_type_of_the_head_but_at_least_float32(curvature_kind, kind, dtype):
    posterior, _, features = fitted(curvature_kind, kind, dtype=dtype)
    exact, _, _ = fitted(curvature_kind, kind)
    gaussian = posterior(features.to(dtype))
    assert gaussian.dtype == torch.float32
    if dtype == torch.float32:
        torch.testing.assert_close(
            gaussian.variance.double(), exact(features).variance, rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("kind", [KronPosterior, FullPosterior])
def test_row_sums_are_the_prior_variance_because_softmax_cannot_see_a_common_shift(kind):
    curvature_kind = {second: first for first, second in POSTERIORS}[kind]
    posterior, _, features = fitted(curvature_kind, kind)
    covariance = posterior(features).covariance
    expected = (features.square().sum(-1, keepdim=True) / PRIOR).expand(-1, CLASSES)
    torch.testing.assert_close(covariance.row_sums(), expected, rtol=1e-9, atol=1e-9)
    gaussian = posterior(features)
    for conditioned, centered in zip(lb.bridges.condition(gaussian), lb.bridges.center(gaussian)):
        torch.testing.assert_close(conditioned, centered, rtol=1e-7, atol=1e-9)


@EVERY
def test_state_travels_as_buffers(curvature_kind, kind):
    posterior, _, features = fitted(curvature_kind, kind)
    assert not list(posterior.parameters())
    torch.testing.assert_close(
        posterior.float()(features.float()).variance.double(),
        fitted(curvature_kind, kind)[0](features).variance,
        rtol=1e-4,
        atol=1e-5,
    )


@EVERY
@pytest.mark.parametrize("prior", [0.0, -1.0, math.inf, math.nan])
def test_a_prior_precision_must_be_positive(curvature_kind, kind, prior):
    with pytest.raises(ValueError, match="positive prior precision"):
        fitted(curvature_kind, kind, prior=prior)


@EVERY
def test_features_of_another_head_are_refused(curvature_kind, kind):
    posterior, _, features = fitted(curvature_kind, kind)
    with pytest.raises(lb.errors.ShapeError, match="features per example"):
        posterior(features[:, :1])


def test_a_damaged_curvature_is_refused():
    posterior, curvature, _ = fitted(*POSTERIORS[3])
    assert isinstance(curvature, DiagKron)
    damaged = DiagKron(curvature.num_examples, -curvature.feature_factor, curvature.class_factor)
    with pytest.raises(ValueError, match="sum of squares"):
        type(posterior)(posterior.weight, posterior.bias, damaged, 1.0)


@pytest.mark.parametrize("margin", [7, 9, 15, 20, 30])
@pytest.mark.parametrize("curvature", [lb.laplace.Kron, lb.laplace.Full])
def test_a_network_that_is_sure_of_everything_can_be_fitted(curvature, margin):
    labels = torch.randint(5, (1000,), generator=seeded(0))
    noise = 0.3 * torch.randn(1000, 5, generator=seeded(1))
    inputs = torch.nn.functional.one_hot(labels, 5).float() * margin + noise
    head = torch.nn.Linear(5, 5, bias=False)
    head.weight.data = torch.eye(5)
    classifier = lb.fit(
        head, [(inputs, labels)], curvature=curvature, prior_precision=1.0, progress=False
    )
    assert classifier(inputs).dirichlet.log_concentration.isfinite().all()
