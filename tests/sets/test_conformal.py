"""Calibrated sets: the threshold is that of the theory, and the coverage that it
promises is there.
"""

import math

import pytest
import torch
from cases import seeded
from scipy import stats
from small_network import examples, fit

import laplacebridge as lb
from laplacebridge.sets import APS, RAPS, LeastAmbiguous, Mass, TopK, calibrate, calibrate_by_class


def test_the_calibrated_threshold_is_the_entry_of_the_right_rank():
    probabilities = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    rows = torch.stack([probabilities, 1 - probabilities], -1)
    calibrated = calibrate(LeastAmbiguous(), rows, [0] * 19, coverage=0.9)
    assert (
        calibrated.rank == 18
    )  # ⌈20 · 0.9⌉, though 20 · 0.9 rounds to slightly more in other cases
    assert calibrated.threshold == pytest.approx(0.10)
    assert calibrated.expected_coverage == pytest.approx(0.9)
    assert (
        calibrate(LeastAmbiguous(), rows[:9], [0] * 9, coverage=0.7).rank == 7
    )  # 10 · 0.7 = 7.000000000000001


def test_the_interval_of_coverage_is_that_of_the_beta_distribution():
    rows = torch.rand(99, 1, generator=seeded(1), dtype=torch.float64)
    calibrated = calibrate(
        LeastAmbiguous(), torch.cat([rows, 1 - rows], -1), [0] * 99, coverage=0.9
    )
    expected = stats.beta(90, 10).interval(0.95)
    assert calibrated.coverage_interval() == pytest.approx(expected)
    assert "at least 0.834 with 97.5 % chance, from 99 examples" in repr(calibrated)


@pytest.mark.parametrize("calibration", [9, 22, 50])
@pytest.mark.parametrize(
    "build", [APS, lambda generator: RAPS(generator=generator), lambda _: LeastAmbiguous()]
)
def test_coverage_of_continuous_scores_is_beta_binomial_on_simulated_data(build, calibration):
    trials, fresh, coverage = 300, 200, 0.8
    generator, covered = seeded(2), []
    for _ in range(trials):
        log = torch.randn(calibration + fresh, 5, generator=generator, dtype=torch.float64)
        labels = torch.multinomial(log.softmax(-1), 1, generator=generator).squeeze(-1)
        rule = build(generator)
        calibrated = calibrate(
            rule, log[:calibration].softmax(-1), labels[:calibration], coverage=coverage
        )
        covered.append(
            calibrated(log[calibration:].softmax(-1))
            .contains(labels[calibration:])
            .double()
            .mean()
            .item()
        )
    expected = stats.betabinom(fresh, calibrated.rank, calibration + 1 - calibrated.rank)
    error = 4 * expected.std() / fresh / math.sqrt(trials)
    assert abs(sum(covered) / trials - expected.mean() / fresh) < error


@pytest.mark.parametrize(("coverage", "fewest"), [(0.5, 1), (0.9, 9), (0.95, 19), (0.99, 99)])
def test_calibration_sets_too_small_for_the_coverage_are_refused(coverage, fewest):
    rows = torch.full((fewest, 2), 0.5)
    calibrate(Mass(), rows, [0] * fewest, coverage=coverage)
    if fewest > 1:
        with pytest.raises(
            ValueError,
            match=f"at least {fewest} examples for a coverage of {coverage:g}; got {fewest - 1}",
        ):
            calibrate(Mass(), rows[1:], [0] * (fewest - 1), coverage=coverage)


def test_rows_that_add_up_to_a_little_more_than_one_can_be_calibrated_on():
    rows = torch.tensor([[0.6006, 0.4, 0.0]]).expand(
        9, 3
    )  # within the tolerance of `probabilities_of`
    calibrated = calibrate(Mass(), rows, [2] * 9, coverage=0.9)
    assert calibrated.threshold > 1
    assert calibrated(rows).contains([2] * 9).all()


def test_wrong_arguments_are_named():
    row = torch.tensor([[0.1, 0.4, 0.2, 0.3]])
    with pytest.raises(ValueError, match=r"between 0 and 1; got 1\.0"):
        calibrate(TopK(), row, [0], coverage=1.0)
    with pytest.raises(ValueError, match="between 0 and 1; got 0"):
        calibrate(TopK(), row, [0], coverage=0.5).coverage_interval(0.0)
    with pytest.raises(lb.errors.ShapeError, match="at least one example"):
        calibrate(TopK(), row[:0], [], coverage=0.5)


def test_sets_that_are_never_empty_hold_the_best_class_and_cover_at_least_as_much():
    logits = torch.randn(600, 4, generator=seeded(21), dtype=torch.float64)
    probabilities = logits.softmax(-1)
    labels = torch.multinomial(probabilities, 1, generator=seeded(22)).squeeze(-1)
    halves = slice(300), slice(300, 600)
    plain, full = (
        calibrate(
            LeastAmbiguous(),
            probabilities[halves[0]],
            labels[halves[0]],
            coverage=0.3,
            never_empty=never_empty,
        )(probabilities[halves[1]])
        for never_empty in (False, True)
    )
    empty = plain.size == 0
    assert 0 < empty.sum() < 300
    best = probabilities[halves[1]].argmax(-1)
    for row, members in enumerate(full.to_lists()):
        assert members == ([int(best[row])] if empty[row] else plain[row].to_lists()[0])
    covered = [sets.contains(labels[halves[1]]) for sets in (plain, full)]
    assert (covered[0] <= covered[1]).all()


def test_predictions_with_gradients_are_calibrated_with_and_shown_without_a_word(model):
    """Torch warns where a number with a gradient is read, once in a process."""
    inputs, labels = examples(100, seed=9)
    prediction = fit(model, prior_precision=1.0)(inputs.requires_grad_())
    assert prediction.mean.requires_grad
    torch.set_warn_always(True)
    try:
        calibrate(LeastAmbiguous(), prediction, labels, coverage=0.8)(prediction)
        calibrate_by_class(APS(None), prediction, labels, coverage=0.8)(prediction)
        assert "class" in repr(prediction)
    finally:
        torch.set_warn_always(False)
