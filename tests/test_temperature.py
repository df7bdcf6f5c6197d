"""Temperature scaling: the right minimum wherever there is one, and an error wherever
there is none.
"""

import dataclasses
import math

import numpy as np
import pytest
import scipy.optimize
import torch
from cases import STRUCTURES, gaussian, seeded

import laplacebridge as lb
from laplacebridge import _blocks
from laplacebridge.temperature import TemperatureScaling, temperature_scaling


def simulated(temperature, *, seed=0, num_examples=2000, classes=5):
    """Logits of a network whose labels follow softmax(z/T)."""
    generator = seeded(seed)
    logits = 3 * torch.randn(num_examples, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator).squeeze(
        -1
    )
    return logits, labels


def nll(logits, labels, temperature=1.0):
    return torch.nn.functional.cross_entropy(logits / temperature, labels).item()


def test_three_right_of_four_equal_rows_is_a_probability_of_three_quarters():
    logits = torch.tensor([[9.0, 0.0]]).expand(4, 2)
    scaling = temperature_scaling(logits, [0, 0, 0, 1])
    assert scaling.temperature == pytest.approx(9 / math.log(3), rel=1e-10)
    assert scaling.nll_before == pytest.approx(0.25 * 9 + math.log1p(math.exp(-9)), rel=1e-10)
    assert scaling.nll_after == pytest.approx(
        -0.75 * math.log(0.75) - 0.25 * math.log(0.25), rel=1e-10
    )


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5, 8.0])
def test_recovers_the_temperature_that_made_the_labels_within_four_standard_errors(temperature):
    logits, labels = simulated(temperature)
    found = temperature_scaling(logits, labels).temperature
    probabilities = (logits / temperature).softmax(-1)
    mean = (probabilities * logits).sum(-1, keepdim=True)
    information = (probabilities * (logits - mean).square()).sum()  # about 1/T
    assert abs(1 / found - 1 / temperature) < 4 * information.rsqrt()


@pytest.mark.parametrize("seed", range(5))
def test_never_increases_the_negative_log_likelihood(seed):
    temperature = [0.2, 0.7, 1.0, 1.5, 20.0][seed]
    logits, labels = simulated(temperature, seed=seed, num_examples=300)
    scaling = temperature_scaling(logits, labels)
    assert scaling.nll_after <= scaling.nll_before
    assert scaling.nll_before == pytest.approx(nll(logits, labels), rel=1e-12)
    assert scaling.nll_after == pytest.approx(nll(logits, labels, scaling.temperature), rel=1e-12)


def test_no_temperature_of_a_fine_grid_is_better():
    logits, labels = simulated(2.0, num_examples=300)
    scaling = temperature_scaling(logits, labels)
    grid = scaling.temperature * np.exp(np.linspace(-3, 3, 2001))
    values = [nll(logits, labels, temperature) for temperature in grid]
    assert int(np.argmin(values)) == 1000  # the middle, which is the temperature itself
    assert min(values) >= scaling.nll_after - 1e-12


def test_agrees_with_a_general_minimiser():
    logits, labels = simulated(3.0, num_examples=300)
    result = scipy.optimize.minimize_scalar(
        lambda log: nll(logits, labels, math.exp(log)),
        bounds=(-3, 4),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert temperature_scaling(logits, labels).temperature == pytest.approx(
        math.exp(result.x), rel=1e-6
    )


def test_at_the_minimum_labels_get_the_logits_that_probabilities_expect():
    logits, labels = simulated(2.0)
    probabilities = temperature_scaling(logits, labels)(logits)
    expected = (probabilities * logits).sum(-1).mean().item()
    assert expected == pytest.approx(
        logits.gather(-1, labels.unsqueeze(-1)).mean().item(), rel=1e-10
    )


@pytest.mark.parametrize("factor", [1e-30, 1e-3, 7.0, 1e30])
def test_scaled_logits_have_the_scaled_temperature(factor):
    logits, labels = simulated(2.0, num_examples=300)
    once, scaled = temperature_scaling(logits, labels), temperature_scaling(factor * logits, labels)
    assert scaled.temperature == pytest.approx(factor * once.temperature, rel=1e-9)
    assert scaled.nll_after == pytest.approx(once.nll_after, rel=1e-9)


def test_a_constant_added_to_the_logits_of_a_row_changes_nothing():
    logits, labels = simulated(2.0, num_examples=300)
    shifted = logits + 10 * torch.randn(300, 1, generator=seeded(1), dtype=torch.float64)
    found = temperature_scaling(shifted, labels).temperature
    assert found == pytest.approx(temperature_scaling(logits, labels).temperature, rel=1e-9)


def test_one_bad_miss_among_confident_answers_is_found():
    # the minimum lies where 999 right answers and one that is wrong by 80 balance
    logits = torch.tensor([[80.0, 0.0]]).expand(1000, 2)
    labels = torch.zeros(1000, dtype=torch.long)
    labels[0] = 1
    assert temperature_scaling(logits, labels).temperature == pytest.approx(
        80 / math.log(999), rel=1e-10
    )


def test_a_miss_by_a_hair_gives_a_low_temperature():
    logits = torch.tensor([[2.0, 0.0]] * 9 + [[1e-12, 0.0]], dtype=torch.float64)
    scaling = temperature_scaling(logits, [0] * 9 + [1])
    # nine right answers by 2 against one miss by 1e-12: 18/(1 + e^(2/T)) = 1e-12/(1 +
    # e^(-1e-12/T))
    assert scaling.temperature == pytest.approx(2 / math.log(36 / 1e-12), rel=1e-6)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str
)
def test_the_most_probable_class_stays_and_rows_sum_to_one(dtype):
    logits, labels = simulated(2.0, num_examples=300)
    narrow = logits.to(dtype)
    scaling = temperature_scaling(narrow, labels)
    probabilities = scaling(narrow)
    assert probabilities.dtype == scaling.logits(narrow).dtype == dtype
    top = probabilities.gather(-1, narrow.argmax(-1, keepdim=True)).squeeze(-1)
    assert torch.equal(top, probabilities.amax(-1))
    resolution = 4 * torch.finfo(dtype).eps
    assert ((probabilities.double().sum(-1) - 1).abs() < resolution).all()
    softmax = scaling.logits(narrow).double().softmax(-1)
    # a logit of up to 8 is rounded once more before softmax
    torch.testing.assert_close(
        probabilities.double(), softmax, rtol=8 * resolution, atol=resolution
    )


@pytest.mark.parametrize("temperature", [1e-30, 1e-3, 1.0, 1e30])
def test_probabilities_are_valid_for_every_finite_logit(temperature):
    logits = torch.tensor(
        [[3e38, -3e38, 0.0], [0.0, 0.0, 0.0], [-3e38, -3e38, -3e38], [1e4, 9999.0, -1e4]]
    )
    probabilities = TemperatureScaling(temperature, 1.0, 1.0)(logits)
    assert (probabilities >= 0).all()
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(4))


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_tempered_gaussian_has_the_law_of_tempered_logits(structure):
    given = gaussian(structure, 0, 4, 5)
    tempered = TemperatureScaling(2.5, 1.0, 0.5).gaussian(given)
    torch.testing.assert_close(tempered.mean, given.mean / 2.5)
    torch.testing.assert_close(tempered.covariance.to_dense(), given.covariance.to_dense() / 2.5**2)
    assert type(tempered.covariance) is type(given.covariance)


def test_without_uncertainty_a_tempered_gaussian_gives_the_tempered_probabilities():
    scaling = TemperatureScaling(2.5, 1.0, 0.5)
    mean = torch.randn(4, 5, generator=seeded(3), dtype=torch.float64)
    sure = lb.LogitGaussian(mean, lb.Diagonal(torch.zeros_like(mean)))
    torch.testing.assert_close(lb.links.map_estimate(scaling.gaussian(sure)), scaling(mean))


def test_a_half_precision_gaussian_is_tempered_in_float32():
    # 1/T² = 1e-6 has two digits in float16
    half = lb.LogitGaussian(torch.full((1, 2), 2.0), lb.Diagonal(torch.full((1, 2), 6e4))).to(
        torch.float16
    )
    tempered = TemperatureScaling(1000.0, 1.0, 0.5).gaussian(half)
    assert tempered.dtype == torch.float16
    torch.testing.assert_close(
        tempered.variance.float(), torch.full((1, 2), 0.06), rtol=1e-3, atol=0
    )


def test_reading_the_logits_in_blocks_changes_nothing(monkeypatch):
    logits, labels = simulated(2.0, num_examples=301)
    together = temperature_scaling(logits, labels)
    monkeypatch.setattr(_blocks, "ELEMENTS_AT_ONCE", 37)
    blocks = temperature_scaling(logits, labels)
    assert blocks.temperature == pytest.approx(together.temperature, rel=1e-10)
    assert blocks.nll_after == pytest.approx(together.nll_after, rel=1e-12)


def test_fitting_leaves_the_gradient_of_the_logits_alone():
    logits, labels = simulated(2.0, num_examples=50)
    logits.requires_grad_()
    scaling = temperature_scaling(logits, labels)
    scaling(logits)[:, 0].sum().backward()
    assert logits.grad.isfinite().all()
    assert (logits.grad != 0).any()


# where there is no minimum


def test_labels_that_are_all_right_have_no_best_temperature():
    logits, _ = simulated(2.0, num_examples=50)
    with pytest.raises(
        ValueError, match=r"needs at least one label .*; all 50 have it, .* as T → 0\. Give more"
    ):
        temperature_scaling(logits, logits.argmax(-1))


def test_labels_that_share_the_largest_logit_have_no_best_temperature():
    logits = torch.tensor([[1.0, 1.0, 0.0], [2.0, 0.0, 0.0]])
    with pytest.raises(ValueError, match="all 2 have it"):
        temperature_scaling(logits, [1, 0])


@pytest.mark.parametrize(
    "labels",
    [[1, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 1]],
    ids=["always wrong", "wrong as often", "wrong by more"],
)
def test_labels_no_better_than_chance_have_no_best_temperature(labels):
    logits = torch.tensor([[3.0, 0.0], [0.0, 3.0], [1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(
        ValueError, match=r"larger logits than other classes on average; .* as T → ∞\. Are labels"
    ):
        temperature_scaling(logits, labels)


def test_equal_logits_have_no_best_temperature():
    for value in (0.0, 7.3):
        with pytest.raises(ValueError, match="the likelihood only grows as T → ∞"):
            temperature_scaling(torch.full((6, 3), value), [0, 1, 2, 0, 1, 2])


# what is refused


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_are_finite(bad):
    logits, labels = simulated(2.0, num_examples=10)
    logits[7, 2] = bad
    with pytest.raises(
        ValueError, match=rf"needs finite logits; row 7 holds {bad}\. Look at the input"
    ):
        temperature_scaling(logits, labels)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_probabilities_are_not_logits(dtype):
    logits, labels = simulated(2.0, num_examples=10)
    with pytest.raises(
        ValueError,
        match=r"needs logits; got rows of probabilities.*`probabilities\.log\(\)` serves",
    ):
        temperature_scaling(logits.softmax(-1).to(dtype), labels)


def test_logarithms_of_probabilities_serve_as_logits():
    logits, labels = simulated(2.0, num_examples=300)
    from_logs = temperature_scaling(logits.softmax(-1).log(), labels).temperature
    assert from_logs == pytest.approx(temperature_scaling(logits, labels).temperature, rel=1e-9)


def test_no_examples_are_refused():
    with pytest.raises(lb.errors.ShapeError, match="needs at least one example; got none"):
        temperature_scaling(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))


@pytest.mark.parametrize("label", [-1, 5])
def test_labels_are_classes(label):
    logits, labels = simulated(2.0, num_examples=10)
    labels[3] = label
    with pytest.raises(ValueError, match=f"needs labels from 0 to 4; example 3 has {label}"):
        temperature_scaling(logits, labels)


def test_there_is_one_label_for_each_row():
    with pytest.raises(lb.errors.ShapeError, match="one integer label for each of 3 examples"):
        temperature_scaling(torch.eye(3), [0, 1])


def test_logits_of_one_class_or_three_dimensions_are_refused():
    scaling = TemperatureScaling(2.0, 1.0, 0.5)
    for call in (scaling, scaling.logits, lambda logits: temperature_scaling(logits, [0])):
        with pytest.raises(lb.errors.ShapeError, match="at least K = 2 classes; got K = 1"):
            call(torch.zeros(1, 1))
        with pytest.raises(lb.errors.ShapeError, match="Logits of tokens or pixels"):
            call(torch.zeros(1, 2, 3))


@pytest.mark.parametrize("temperature", [0.0, -2.0, math.nan, math.inf])
def test_a_temperature_is_positive_and_finite(temperature):
    with pytest.raises(ValueError, match=r"needs a positive, finite number; got .* Fit it"):
        TemperatureScaling(temperature, 1.0, 1.0)


def test_a_scaling_is_a_value():
    scaling = TemperatureScaling(2.0, 1.0, 0.5)
    assert scaling == dataclasses.replace(scaling)
    with pytest.raises(dataclasses.FrozenInstanceError):
        scaling.temperature = 1.0
