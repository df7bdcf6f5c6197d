"""Rules on probabilities, worked by hand, and their guarantees."""

import math

import pytest
import torch
from cases import seeded
from scipy import stats

import laplacebridge as lb
from laplacebridge.sets import (
    APS,
    RAPS,
    LeastAmbiguous,
    Mass,
    TopK,
    calibrate,
    least_ambiguous_sets,
    mass_sets,
    top_k_sets,
)
from laplacebridge.sets.ranking import leading

ROW = torch.tensor([[0.1, 0.4, 0.2, 0.3]], dtype=torch.float64)


def test_top_k_takes_the_most_probable():
    assert top_k_sets(ROW, 3).to_lists() == [[1, 3, 2]]
    assert top_k_sets(ROW, 9).to_lists() == [[1, 3, 2, 0]]


def test_mass_takes_the_fewest_classes_that_hold_it():
    for mass, expected in ((0.0, [1]), (0.35, [1]), (0.5, [1, 3]), (0.71, [1, 3, 2]), (0.95, [1, 3, 2, 0])):
        assert mass_sets(ROW, mass).to_lists() == [expected]


def test_least_ambiguous_takes_what_is_probable_enough():
    for probability, expected in ((0.5, []), (0.4, [1]), (0.25, [1, 3]), (0.0, [1, 3, 2, 0])):
        assert least_ambiguous_sets(ROW, probability).to_lists() == [expected]


def test_aps_scores_are_the_mass_up_to_the_label():
    for label, score in ((1, 0.4), (3, 0.7), (2, 0.9), (0, 1.0)):
        assert APS().entry(ROW, [label]).item() == pytest.approx(score)


def test_randomised_aps_scores_lie_between_the_mass_before_and_after_the_label():
    rows = ROW.expand(2000, 4)
    scores = APS(seeded(0)).entry(rows, torch.full((2000,), 3))
    assert 0.4 <= scores.min() < 0.41
    assert 0.69 < scores.max() <= 0.7
    assert abs(scores.mean().item() - 0.55) < 5 * 0.3 / math.sqrt(12 * 2000)


def test_raps_adds_a_penalty_for_every_place_beyond_the_free_ones():
    rule = RAPS(penalty=0.1, free_places=2)
    for label, score in ((1, 0.4), (3, 0.7), (2, 0.9 + 0.1), (0, 1.0 + 0.2)):
        assert rule.entry(ROW, [label]).item() == pytest.approx(score)


def test_equal_values_rank_by_class_also_where_the_cut_goes_through_them():
    values = torch.tensor([[1.0, 3.0, 1.0, 3.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0, 9.0]])
    for length in range(1, 7):
        ranked, classes = leading(values, length)
        assert classes.tolist() == [[1, 3, 0, 2, 4, 5][:length], [5, 0, 1, 2, 3, 4][:length]]
        assert torch.equal(ranked, values.gather(-1, classes))


def test_the_calibrated_threshold_is_the_entry_of_the_right_rank():
    probabilities = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    rows = torch.stack([probabilities, 1 - probabilities], -1)
    calibrated = calibrate(LeastAmbiguous(), rows, [0] * 19, coverage=0.9)
    assert calibrated.rank == 18  # ⌈20 · 0.9⌉, though 20 · 0.9 rounds to slightly more in other cases
    assert calibrated.threshold == pytest.approx(0.10)
    assert calibrated.expected_coverage == pytest.approx(0.9)
    assert calibrate(LeastAmbiguous(), rows[:9], [0] * 9, coverage=0.7).rank == 7  # 10 · 0.7 = 7.000000000000001


def test_the_interval_of_coverage_is_that_of_the_beta_distribution():
    rows = torch.rand(99, 1, generator=seeded(1), dtype=torch.float64)
    calibrated = calibrate(LeastAmbiguous(), torch.cat([rows, 1 - rows], -1), [0] * 99, coverage=0.9)
    expected = stats.beta(90, 10).interval(0.95)
    assert calibrated.coverage_interval() == pytest.approx(expected)
    assert "between 0.834 and 0.950 with 95 % chance, from 99 examples" in repr(calibrated)


def test_coverage_of_continuous_scores_is_beta_binomial_on_simulated_data():
    trials, calibration, fresh, coverage = 300, 50, 200, 0.8
    generator, covered = seeded(2), []
    for _ in range(trials):
        log = torch.randn(calibration + fresh, 5, generator=generator, dtype=torch.float64)
        labels = torch.multinomial(log.softmax(-1), 1, generator=generator).squeeze(-1)
        rule = APS(generator)
        calibrated = calibrate(rule, log[:calibration].softmax(-1), labels[:calibration], coverage=coverage)
        covered.append(calibrated(log[calibration:].softmax(-1)).contains(labels[calibration:]).double().mean().item())
    expected = stats.betabinom(fresh, calibrated.rank, calibration + 1 - calibrated.rank)
    error = 4 * expected.std() / fresh / math.sqrt(trials)
    assert abs(sum(covered) / trials - expected.mean() / fresh) < error


@pytest.mark.parametrize(("coverage", "fewest"), [(0.5, 1), (0.9, 9), (0.95, 19), (0.99, 99)])
def test_calibration_sets_too_small_for_the_coverage_are_refused(coverage, fewest):
    rows = torch.full((fewest, 2), 0.5)
    calibrate(Mass(), rows, [0] * fewest, coverage=coverage)
    if fewest > 1:
        with pytest.raises(
            ValueError, match=f"at least {fewest} examples for a coverage of {coverage:g}; got {fewest - 1}"
        ):
            calibrate(Mass(), rows[1:], [0] * (fewest - 1), coverage=coverage)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="k ≥ 1; got 0"):
        top_k_sets(ROW, 0)
    with pytest.raises(ValueError, match=r"from 0 to 1; got 1\.2"):
        mass_sets(ROW, 1.2)
    with pytest.raises(ValueError, match=r"from 0 to 1; got -0\.1"):
        least_ambiguous_sets(ROW, -0.1)
    with pytest.raises(ValueError, match=r"between 0 and 1; got 1\.0"):
        calibrate(TopK(), ROW, [0], coverage=1.0)
    with pytest.raises(ValueError, match="between 0 and 1; got 0"):
        calibrate(TopK(), ROW, [0], coverage=0.5).coverage_interval(0.0)
    with pytest.raises(lb.ShapeError, match="at least one example"):
        calibrate(TopK(), ROW[:0], [], coverage=0.5)
    with pytest.raises(ValueError, match="add up to 1; row 0 adds up to 10"):
        mass_sets(torch.tensor([[1.0, 4.0, 2.0, 3.0]]))
    with pytest.raises(ValueError, match=r"row 0 holds -1.*logits\.softmax"):
        mass_sets(torch.tensor([[-1.0, 2.0]]))
    with pytest.raises(ValueError, match="row 0 holds nan"):
        mass_sets(torch.tensor([[float("nan"), 1.0]]))
