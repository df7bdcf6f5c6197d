"""Scores: values worked by hand, the digits that matter, and what is refused."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from cases import seeded

import laplacebridge as lb
from laplacebridge import scores

EVEN = lb.Dirichlet.from_concentration(torch.tensor([[1.0, 1.0]], dtype=torch.float64))


def of(*rows):
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("msp", 1 / 2),
        ("entropy_of_mean", math.log(2)),
        ("expected_entropy", 1 / 2),  # −2 ∫ x log x dx
        ("mutual_information", math.log(2) - 1 / 2),
        ("differential_entropy", 0.0),
        ("negative_log_total", -math.log(2)),
        ("max_marginal_variance", 1 / 12),
    ],
)
def test_scores_of_a_uniform_probability_are_those_worked_by_hand(name, expected):
    function = (scores.SCORES | scores.DIRICHLET_SCORES)[name]
    assert function(EVEN).item() == pytest.approx(expected, abs=1e-12)


def test_scores_of_logits_are_those_worked_by_hand():
    logits = of([math.log(3.0), 0.0], [0.0, 0.0])
    torch.testing.assert_close(scores.msp_of_logits(logits), of(0.25, 0.5))
    torch.testing.assert_close(scores.energy(logits), of(-math.log(4), -math.log(2)))
    torch.testing.assert_close(
        scores.energy(logits, temperature=2), of(-2 * math.log(1 + 3**0.5), -2 * math.log(2))
    )
    torch.testing.assert_close(scores.max_logit(logits), of(-math.log(3), 0.0))


def test_scores_of_probabilities_are_those_worked_by_hand():
    probabilities = of([0.5, 0.25, 0.25], [1.0, 0.0, 0.0])
    torch.testing.assert_close(scores.msp(probabilities), of(0.5, 0.0))
    torch.testing.assert_close(scores.entropy_of_mean(probabilities), of(1.5 * math.log(2), 0.0))


def test_the_entropy_agrees_with_scipy():
    probabilities = torch.randn(50, 7, generator=seeded(0), dtype=torch.float64).mul(3).softmax(-1)
    expected = scipy.stats.entropy(probabilities.numpy(), axis=-1)
    np.testing.assert_allclose(scores.entropy_of_mean(probabilities), expected, rtol=1e-12)


@pytest.mark.parametrize("name", scores.SCORES)
def test_a_dirichlet_is_scored_like_its_mean(name):
    dirichlet = lb.Dirichlet(torch.randn(20, 5, generator=seeded(1), dtype=torch.float64))
    function = scores.SCORES[name]
    torch.testing.assert_close(function(dirichlet), function(dirichlet.mean))


def test_the_entropy_of_a_dirichlets_mean_is_its_own():
    dirichlet = lb.Dirichlet(4 * torch.randn(20, 5, generator=seeded(2), dtype=torch.float64))
    torch.testing.assert_close(scores.entropy_of_mean(dirichlet), dirichlet.entropy_of_mean())


def test_the_parts_of_the_uncertainty_add_up():
    dirichlet = lb.Dirichlet(2 * torch.randn(30, 5, generator=seeded(3), dtype=torch.float64))
    parts = scores.expected_entropy(dirichlet) + scores.mutual_information(dirichlet)
    torch.testing.assert_close(parts, scores.entropy_of_mean(dirichlet))


@pytest.mark.parametrize("gap", [20.0, 40.0, 60.0])
def test_doubt_keeps_its_digits_when_the_maximum_rounds_to_one(gap):
    logits = torch.tensor([[gap, 0.0, 0.0]])
    assert logits.softmax(-1).amax().item() == 1
    rest = 2 * math.exp(-gap)
    for got in (
        scores.msp_of_logits(logits),
        scores.msp(logits.softmax(-1)),
        scores.msp(lb.Dirichlet(logits)),
    ):
        assert got.item() == pytest.approx(rest, rel=1e-5)
    # Σ −p log p = r + 2 e^-gap · gap to first order in r
    expected = rest * (1 + gap)
    assert scores.entropy_of_mean(logits.softmax(-1)).item() == pytest.approx(expected, rel=1e-5)


def test_many_equal_classes_have_the_largest_entropy_in_float32():
    uniform = torch.full((1, 100_000), 1e-5)
    assert scores.entropy_of_mean(uniform).item() == pytest.approx(math.log(1e5), rel=1e-5)


def test_the_logarithm_orders_like_the_negative_total():
    dirichlet = lb.Dirichlet(torch.randn(30, 4, generator=seeded(4), dtype=torch.float64))
    assert torch.equal(scores.negative_log_total(dirichlet).argsort(), (-dirichlet.total).argsort())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("log_scale", [-60.0, -20_000.0, -1e30])
def test_with_no_evidence_at_all_every_doubt_is_about_the_model(dtype, log_scale):
    unsure = lb.Dirichlet(torch.full((1, 3), log_scale, dtype=dtype))
    tolerance = 50 * torch.finfo(dtype).eps
    assert scores.mutual_information(unsure).item() == pytest.approx(math.log(3), abs=tolerance)
    assert scores.expected_entropy(unsure).item() == pytest.approx(0, abs=tolerance)


def test_less_evidence_is_not_more_label_noise():
    # one mean, falling evidence: epistemic scores rise, the aleatoric one falls
    dirichlet = lb.Dirichlet.from_concentration(of([60.0, 30.0], [6.0, 3.0], [0.6, 0.3]))
    assert (scores.mutual_information(dirichlet).diff() > 0).all()
    assert (scores.max_marginal_variance(dirichlet).diff() > 0).all()
    assert (scores.expected_entropy(dirichlet).diff() < 0).all()
    torch.testing.assert_close(
        scores.entropy_of_mean(dirichlet), scores.entropy_of_mean(dirichlet)[:1].expand(3)
    )


def test_the_differential_entropy_is_largest_for_the_flat_dirichlet():
    levels = scores.differential_entropy(
        lb.Dirichlet.from_concentration(of([0.3] * 3, [1.0] * 3, [5.0] * 3))
    )
    assert levels[1] > levels[0]
    assert levels[1] > levels[2]
    assert levels[1].item() == pytest.approx(-math.log(2))  # the simplex has the area 1/2


def test_energy_and_the_maximum_see_a_constant_that_softmax_ignores():
    logits = torch.randn(10, 4, generator=seeded(5), dtype=torch.float64)
    torch.testing.assert_close(scores.energy(logits + 3), scores.energy(logits) - 3)
    torch.testing.assert_close(scores.max_logit(logits + 3), scores.max_logit(logits) - 3)
    torch.testing.assert_close(scores.msp_of_logits(logits + 3), scores.msp_of_logits(logits))


def test_the_energy_of_a_low_temperature_is_the_negative_maximum():
    logits = torch.randn(10, 4, generator=seeded(6), dtype=torch.float64)
    torch.testing.assert_close(
        scores.energy(logits, temperature=1e-3), scores.max_logit(logits), atol=1e-6, rtol=0
    )
    huge = torch.tensor([[3e38, -3e38]])
    assert scores.energy(huge, temperature=1e-3).item() == scores.max_logit(huge).item()


@pytest.mark.parametrize("temperature", [0, -1.0, math.nan, math.inf])
def test_a_temperature_is_positive_and_finite(temperature):
    with pytest.raises(ValueError, match=r"needs a positive number; got .* 1 is usual"):
        scores.energy(torch.zeros(1, 2), temperature=temperature)


@pytest.mark.parametrize("name", scores.DIRICHLET_SCORES)
def test_probabilities_alone_do_not_say_how_sure_they_are(name):
    with pytest.raises(
        lb.InputError, match=r"needs a `Dirichlet`; got Tensor\. .* use `msp` or `entropy_of_mean`"
    ):
        scores.DIRICHLET_SCORES[name](torch.tensor([[0.5, 0.5]]))


@pytest.mark.parametrize("name", scores.SCORES)
def test_logits_are_not_probabilities(name):
    with pytest.raises(ValueError, match=r"If these are logits, give `logits\.softmax\(-1\)`"):
        scores.SCORES[name](torch.tensor([[2.0, -1.0]]))


@pytest.mark.parametrize("name", scores.LOGIT_SCORES)
def test_logits_need_two_dimensions_and_two_classes(name):
    function = scores.LOGIT_SCORES[name]
    with pytest.raises(
        lb.errors.ShapeError, match=r"got shape \(2, 3, 4\)\. Logits of tokens or pixels"
    ):
        function(torch.zeros(2, 3, 4))
    with pytest.raises(lb.errors.ShapeError, match="at least K = 2 classes; got K = 1"):
        function(torch.zeros(3, 1))


def test_each_name_is_that_of_its_function_and_in_one_list_only():
    lists = [scores.SCORES, scores.DIRICHLET_SCORES, scores.LOGIT_SCORES]
    named = [(name, function) for some in lists for name, function in some.items()]
    assert all(function is getattr(scores, name) for name, function in named)
    assert len(dict(named)) == sum(map(len, lists)) == 11
