"""The Gaussian over logits is J Σ_θ Jᵀ with the dense inverse of curvature plus prior;
for the head, the head's.
"""

import math
import subprocess
import sys

import network_cases as cases
import pytest
import torch
from cases import seeded
from tensor_sizes import LargestTensor
from torch import nn

import laplacebridge as lb
from laplacebridge import _blocks
from laplacebridge.laplace import (
    Diag,
    DiagKronPosterior,
    DiagPosterior,
    Full,
    FullPosterior,
    Kron,
    KronPosterior,
    MatrixNormalPosterior,
    prior,
)

EVERY_NETWORK = pytest.mark.parametrize("name", cases.NETWORKS)
EVERY_KIND = pytest.mark.parametrize("kind", [Diag, Kron, Full])
KINDS_AND_POSTERIORS = [
    (Diag, DiagPosterior),
    (Kron, KronPosterior),
    (Kron, MatrixNormalPosterior),
    (Full, FullPosterior),
]
EVERY_POSTERIOR = pytest.mark.parametrize(("kind", "posterior"), KINDS_AND_POSTERIORS)
PRIOR = 0.3


def fit(model, batches, **options):
    return lb.fit(model, batches, progress=False, **{"layers": "*", **options})


def fitted(name, kind, *, posterior=None, num=8, prior_precision=PRIOR):
    model = cases.network(name)
    batches = [(cases.inputs(name, num), cases.labels(num))]
    return fit(model, batches, curvature=kind, posterior=posterior, prior_precision=prior_precision)


def weight_covariance(model, examples, kind, posterior, prior_precision=PRIOR):
    """(H + τI)⁻¹ by brute force."""
    blocks = cases.curvature(kind, model, examples).blocks.values()
    if posterior is MatrixNormalPosterior:
        return torch.block_diag(
            *(matrix for block in blocks for matrix in damped(block, prior_precision))
        )
    whole = torch.block_diag(*map(cases.dense, blocks))
    return torch.linalg.inv(whole + prior_precision * torch.eye(len(whole)).double())


def damped(block, prior_precision):
    root, size = math.sqrt(prior_precision), block.num_examples.sqrt()

    def inverse(factor):
        return torch.linalg.inv(factor / size + root * torch.eye(len(factor)).double())

    return [
        torch.kron(inverse(rows), inverse(columns))
        for rows, columns in zip(block.class_factor, block.feature_factor)
    ]


@EVERY_NETWORK
@EVERY_POSTERIOR
def test_the_logit_covariance_is_the_weight_covariance_seen_through_the_jacobian(
    name, kind, posterior
):
    classifier = fitted(name, kind, posterior=posterior)
    model, queries = cases.network(name), cases.inputs(name, 5, seed=1)
    gaussian = classifier.logits(queries)
    jacobian = cases.whole_jacobian(model, queries)
    expected = (
        jacobian @ weight_covariance(model, cases.inputs(name, 8), kind, posterior) @ jacobian.mT
    )
    torch.testing.assert_close(gaussian.covariance.to_dense(), expected, rtol=1e-8, atol=1e-10)
    with torch.no_grad():
        torch.testing.assert_close(gaussian.mean, model(queries), rtol=1e-12, atol=1e-12)


@EVERY_NETWORK
@EVERY_KIND
def test_the_head_alone_gives_the_last_layer_result(name, kind):
    model = cases.network(name)
    batches = [(cases.inputs(name, 10), cases.labels(10))]
    alone = lb.fit(model, batches, curvature=kind, prior_precision=PRIOR, progress=False)
    named = fit(
        model, batches, curvature=kind, prior_precision=PRIOR, layers=alone.network.head_name
    )
    queries = cases.inputs(name, 5, seed=1)
    with torch.no_grad():
        one, other = alone.logits(queries), named.logits(queries)
    torch.testing.assert_close(other.mean, one.mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        other.covariance.to_dense(), one.covariance.to_dense(), rtol=1e-10, atol=1e-10
    )
    assert named.evidence() == pytest.approx(alone.evidence(), rel=1e-12)
    torch.testing.assert_close(
        named(queries).mean, alone(queries).mean, rtol=1e-3, atol=1e-4
    )  # by the same bridge


@EVERY_KIND
def test_in_float32_the_head_alone_gives_the_last_layer_result_to_its_rounding(kind):
    model = cases.network("cnn").float()
    batches = [(cases.inputs("cnn", 10).float(), cases.labels(10))]
    alone = lb.fit(model, batches, curvature=kind, prior_precision=PRIOR, progress=False)
    named = fit(
        model, batches, curvature=kind, prior_precision=PRIOR, layers=alone.network.head_name
    )
    queries = cases.inputs("cnn", 5, seed=1).float()
    with torch.no_grad():
        one, other = alone.logits(queries), named.logits(queries)
    assert other.dtype == torch.float32
    torch.testing.assert_close(
        other.covariance.to_dense(), one.covariance.to_dense(), rtol=1e-5, atol=1e-5
    )


@EVERY_NETWORK
@EVERY_KIND
def test_chunks_and_blocks_of_any_size_give_the_same(name, kind, monkeypatch):
    whole = fitted(name, kind)
    queries = cases.inputs(name, 7, seed=1)
    expected = whole.logits(queries)
    monkeypatch.setattr(
        _blocks,
        "BYTES_AT_ONCE",
        3 * whole.network.bytes_per_example(whole.network(queries)[:1].batch),
    )
    monkeypatch.setattr(_blocks, "BYTES_OF_JACOBIANS", 1)
    assert [len(chunk.logits) for chunk in whole.network(queries).chunks()] == [3, 3, 1]
    found = fitted(name, kind).logits(queries)
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        found.covariance.to_dense(), expected.covariance.to_dense(), rtol=1e-10, atol=1e-11
    )


@EVERY_KIND
def test_no_tensor_holds_the_jacobian_of_a_batch(kind, monkeypatch):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4)]
        model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), *head)
    examples = torch.rand(64, 1, 8, 8, generator=seeded(0))
    monkeypatch.setattr(_blocks, "BYTES_AT_ONCE", 2**19)
    monkeypatch.setattr(_blocks, "BYTES_OF_JACOBIANS", 2**16)
    of_batch = 64 * 4 * sum(parameter.numel() for parameter in model.parameters())
    with LargestTensor() as watch:
        classifier = fit(
            model, [(examples, torch.arange(64) % 4)], curvature=kind, prior_precision=1.0
        )
    square = (
        of_batch // 64 // 4
    )  # the full curvature itself is larger than what may be made per example
    assert watch.largest < of_batch / 8 or (kind is Full and watch.largest == square**2)
    with LargestTensor() as watch:
        classifier.logits(examples)
    assert watch.largest < of_batch / 8 or (kind is Full and watch.largest == square**2)


@EVERY_POSTERIOR
def test_another_prior_needs_no_new_fit(kind, posterior):
    queries = cases.inputs("cnn", 4, seed=1)
    classifier = fitted("cnn", kind, posterior=posterior)
    before = classifier.logits(queries).variance
    moved = classifier.with_prior(7.0)
    fresh = fitted("cnn", kind, posterior=posterior, prior_precision=7.0)
    torch.testing.assert_close(
        moved.logits(queries).covariance.to_dense(), fresh.logits(queries).covariance.to_dense()
    )
    assert moved.posterior.prior_precision == 7.0
    torch.testing.assert_close(classifier.logits(queries).variance, before, rtol=0, atol=0)
    assert (moved.logits(queries).variance < before).all()


@pytest.mark.parametrize("name", ["mlp", "cnn with groups"])
@EVERY_KIND
def test_the_evidence_is_the_integral_of_the_quadratic_approximation(name, kind):
    classifier = fitted(name, kind)
    model, examples = cases.network(name), cases.inputs(name, 8)
    matrix = torch.block_diag(
        *map(cases.dense, cases.curvature(kind, model, examples).blocks.values())
    )
    size = len(matrix)
    weights = [value for key, value in model.named_parameters() if not key.startswith("norm")]
    with torch.no_grad():
        penalty = sum(value.square().sum() for value in weights)
        likelihood = -nn.functional.cross_entropy(model(examples), cases.labels(8), reduction="sum")
    log_integral = 0.5 * size * math.log(2 * math.pi) - 0.5 * torch.logdet(
        matrix + PRIOR * torch.eye(size).double()
    )
    log_prior = 0.5 * size * math.log(PRIOR / (2 * math.pi)) - 0.5 * PRIOR * penalty
    assert classifier.evidence() == pytest.approx(
        (likelihood + log_prior + log_integral).item(), rel=1e-10
    )


@pytest.mark.parametrize("name", ["mlp", "cnn with groups"])
@EVERY_POSTERIOR
def test_sampled_weights_of_the_linearised_network_give_the_logit_gaussian(name, kind, posterior):
    classifier = fitted(name, kind, posterior=posterior)
    queries = cases.inputs(name, 2, seed=1)
    gaussian, num = classifier.logits(queries), 40_000
    steps = classifier.posterior.sample_weights(num, seeded(2)) - classifier.posterior.trained()
    deviations = torch.einsum(
        "bkp,sp->sbk", cases.whole_jacobian(cases.network(name), queries), steps
    )
    products = torch.einsum("sbk,sbl->sbkl", deviations, deviations)
    error = products.std(0) / num**0.5
    assert ((products.mean(0) - gaussian.covariance.to_dense()).abs() <= 5 * error).all()


def test_row_sums_are_those_of_the_prior_because_softmax_cannot_see_a_common_shift_of_the_head():
    classifier = fitted("mlp", Kron)
    head = fit(
        cases.network("mlp"),
        [(cases.inputs("mlp", 8), cases.labels(8))],
        layers="4",
        prior_precision=PRIOR,
    )
    queries = cases.inputs("mlp", 3, seed=1)
    features = cases.network("mlp")[:4](queries).detach()
    expected = ((features.square().sum(-1, keepdim=True) + 1) / PRIOR).expand(-1, cases.CLASSES)
    torch.testing.assert_close(
        head.logits(queries).covariance.row_sums(), expected, rtol=1e-9, atol=1e-9
    )
    assert (classifier.logits(queries).variance >= head.logits(queries).variance).all()


def test_one_logit_is_read_as_two_and_gives_the_logistic_posterior():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    examples, queries = cases.inputs("mlp", 9), cases.inputs("mlp", 4, seed=1)
    labels = torch.arange(9) % 2
    classifier = fit(model, [(examples, labels)], curvature=Full, prior_precision=0.8)
    chance = model(examples).detach().sigmoid().squeeze(-1)
    jacobian = cases.whole_jacobian(model, examples).squeeze(1)
    precision = (jacobian.T * (chance * (1 - chance))) @ jacobian + 0.8 * torch.eye(
        jacobian.shape[1]
    ).double()
    queried = cases.whole_jacobian(model, queries).squeeze(1)
    expected = torch.einsum("bp,pq,bq->b", queried, torch.linalg.inv(precision), queried)
    gaussian = classifier.logits(queries)
    matrix = gaussian.covariance.to_dense()
    torch.testing.assert_close(matrix[:, 0, 0] + matrix[:, 1, 1] - 2 * matrix[:, 0, 1], expected)
    torch.testing.assert_close(
        gaussian.mean.softmax(-1)[:, 1], model(queries).detach().sigmoid().squeeze(-1)
    )
    likelihood = -nn.functional.binary_cross_entropy(chance, labels.double(), reduction="sum")
    assert classifier.log_likelihood == pytest.approx(likelihood.item())


@EVERY_KIND
def test_a_network_that_is_sure_of_everything_can_be_fitted(kind):
    model = cases.network("mlp")
    with torch.no_grad():
        model[4].weight.mul_(300)
    batches = [(cases.inputs("mlp", 30), cases.labels(30))]
    classifier = fit(model, batches, curvature=kind, prior_precision=1.0)
    assert (
        lb.check(classifier(cases.inputs("mlp", 10, seed=1)))
        .dirichlet.log_concentration.isfinite()
        .all()
    )


@EVERY_KIND
def test_no_examples_give_an_empty_gaussian(kind):
    gaussian = fitted("mlp", kind).logits(cases.inputs("mlp", 0))
    assert gaussian.covariance.shape == (0, cases.CLASSES)


# choosing the prior


@EVERY_KIND
@pytest.mark.filterwarnings("ignore:The best prior precision")
def test_validation_tries_every_prior_in_one_pass_and_finds_what_trying_them_one_by_one_finds(
    kind, monkeypatch
):
    classifier = fitted("cnn", kind)
    queries, labels = cases.inputs("cnn", 12, seed=3), cases.labels(12)
    candidates = (0.01, 0.5, 20.0)
    losses = []
    for candidate in candidates:
        mean = classifier.with_prior(candidate)(queries).mean
        losses.append(nn.functional.nll_loss(mean.log(), labels).item())
    runs = []
    classifier.network.model.register_forward_pre_hook(lambda _, given: runs.append(len(given[0])))
    monkeypatch.setattr(
        _blocks,
        "BYTES_AT_ONCE",
        5 * classifier.network.bytes_per_example(classifier.network(queries)[:1].batch),
    )
    features = classifier.features(queries)
    choice = prior.by_validation(
        classifier.posterior, lb.race_bridge, features, labels, candidates=candidates
    )
    assert list(choice.scores) == pytest.approx(losses, rel=1e-6)
    assert choice.prior_precision == candidates[losses.index(min(losses))]
    assert sum(runs) == 12


@pytest.mark.filterwarnings("ignore:The best prior precision")
def test_fit_chooses_by_evidence_by_validation_and_with_a_temperature():
    model = cases.network("mlp")
    batches = [(cases.inputs("mlp", 30), cases.labels(30))]
    validation = [
        (cases.inputs("mlp", 8, seed=4), cases.labels(8)),
        (cases.inputs("mlp", 5, seed=5), cases.labels(5)),
    ]
    by_evidence = fit(model, batches)
    evidences = [by_evidence.with_prior(candidate).evidence() for candidate in prior.CANDIDATES]
    assert (
        float(by_evidence.posterior.prior_precision)
        == prior.CANDIDATES[evidences.index(max(evidences))]
    )
    inputs, labels = (torch.cat(parts) for parts in zip(*validation))
    features = by_evidence.features(inputs)
    plain = prior.by_validation(by_evidence.posterior, lb.laplace_bridge, features, labels)
    heated = fit(
        model, batches, val_loader=validation, tune_temperature=True, bridge=lb.laplace_bridge
    )
    assert (
        heated.prior_choice.method == "smallest negative log likelihood of 13 validation examples"
    )
    assert min(heated.prior_choice.scores) <= min(plain.scores)
    assert float(heated.posterior.temperature) == heated.prior_choice.temperature


@EVERY_KIND
def test_a_temperature_divides_logits_and_their_deviations_alike(kind):
    posterior = fitted("cnn", kind).posterior
    features = fitted("cnn", kind).features(cases.inputs("cnn", 4, seed=1))
    plain, heated = posterior(features), posterior.with_temperature(1.7)(features)
    torch.testing.assert_close(heated.mean, plain.mean / 1.7)
    torch.testing.assert_close(heated.covariance.to_dense(), plain.covariance.to_dense() / 1.7**2)
    (under_prior,) = posterior.with_temperature(1.7).under_priors(
        features, [PRIOR], lambda gaussian: gaussian.variance
    )
    torch.testing.assert_close(under_prior, heated.variance)


def test_the_papers_rule_gives_the_wanted_confidence():
    classifier = fitted("mlp", Diag, num=60)
    queries = cases.inputs("mlp", 50, seed=1)
    candidates = [10 ** (exponent / 20) for exponent in range(-20, 61)]
    choice = prior.by_confidence(
        classifier.posterior,
        lb.race_bridge,
        classifier.features(queries),
        drop=0.03,
        candidates=candidates,
    )
    alone = classifier.logits(queries).mean.softmax(-1).amax(-1).mean()
    bridged = classifier.with_prior(choice.prior_precision)(queries).mean.amax(-1).mean()
    assert (bridged / alone).item() == pytest.approx(0.97, abs=3e-3)


def test_a_posterior_of_another_curvature_is_refused():
    with pytest.raises(ValueError, match=r"`Kron`.*`KronPosterior`.*got `DiagKronPosterior`"):
        fitted("mlp", Kron, posterior=DiagKronPosterior)


def test_features_of_a_head_are_refused_by_the_posterior_of_layers():
    # in a process of its own: here the types of arguments are checked before the
    # function sees them
    code = (
        "import torch, laplacebridge as lb; inputs = torch.zeros(2, 3); lb.fit(torch.nn.Linear(3,"
        " 2), [inputs], layers='*', prior_precision=1.0, progress=False).posterior(inputs)"
    )
    result = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "takes a `Linearisation`; got Tensor" in result.stderr
