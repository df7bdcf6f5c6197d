"""Rules on probabilities, worked by hand."""

import math

import pytest
import torch
from cases import seeded

from laplacebridge.sets import APS, RAPS, LeastAmbiguous, Mass, TopK

ROW = torch.tensor([[0.1, 0.4, 0.2, 0.3]], dtype=torch.float64)


def test_top_k_takes_the_most_probable():
    assert TopK()(ROW, 3).to_lists() == [[1, 3, 2]]
    assert TopK()(ROW, 9).to_lists() == [[1, 3, 2, 0]]


def test_mass_takes_the_fewest_classes_that_hold_it():
    for mass, expected in (
        (0.0, [1]),
        (0.35, [1]),
        (0.5, [1, 3]),
        (0.71, [1, 3, 2]),
        (0.95, [1, 3, 2, 0]),
    ):
        assert Mass()(ROW, mass).to_lists() == [expected]


def test_least_ambiguous_takes_what_is_probable_enough():
    for probability, expected in ((0.5, []), (0.4, [1]), (0.25, [1, 3]), (0.0, [1, 3, 2, 0])):
        assert LeastAmbiguous()(ROW, probability).to_lists() == [expected]


def test_aps_scores_are_the_mass_up_to_the_label():
    for label, score in ((1, 0.4), (3, 0.7), (2, 0.9), (0, 1.0)):
        assert APS(None).entry(ROW, [label]).item() == pytest.approx(score)


def test_randomised_aps_scores_lie_between_the_mass_before_and_after_the_label():
    rows = ROW.expand(2000, 4)
    scores = APS(seeded(0)).entry(rows, torch.full((2000,), 3))
    assert 0.4 <= scores.min() < 0.41
    assert 0.69 < scores.max() <= 0.7
    assert abs(scores.mean().item() - 0.55) < 5 * 0.3 / math.sqrt(12 * 2000)


@pytest.mark.parametrize("rule", [APS, RAPS])
def test_numbers_are_drawn_by_default_and_the_same_again(rule):
    rows, labels = ROW.expand(50, 4), torch.full((50,), 3)
    first, again = rule(), rule()
    drawn = first.entry(rows, labels)
    torch.testing.assert_close(drawn, again.entry(rows, labels), rtol=0, atol=0)
    assert len(drawn.unique()) == 50
    assert not torch.equal(drawn, first.entry(rows, labels))  # anew for every example
    assert len(rule(generator=None).entry(rows, labels).unique()) == 1


def test_raps_adds_a_penalty_for_every_place_beyond_the_free_ones():
    rule = RAPS(penalty=0.1, free_places=2, generator=None)
    for label, score in ((1, 0.4), (3, 0.7), (2, 0.9 + 0.1), (0, 1.0 + 0.2)):
        assert rule.entry(ROW, [label]).item() == pytest.approx(score)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="k ≥ 1; got 0"):
        TopK()(ROW, 0)
    with pytest.raises(ValueError, match=r"from 0 to 1; got 1\.2"):
        Mass()(ROW, 1.2)
    with pytest.raises(ValueError, match=r"from 0 to 1; got -0\.1"):
        LeastAmbiguous()(ROW, -0.1)
    with pytest.raises(ValueError, match="add up to 1; row 0 adds up to 10"):
        Mass()(torch.tensor([[1.0, 4.0, 2.0, 3.0]]), 0.95)
    with pytest.raises(ValueError, match=r"row 0 holds -1.*logits\.softmax"):
        Mass()(torch.tensor([[-1.0, 2.0]]), 0.95)
    with pytest.raises(ValueError, match="row 0 holds nan"):
        Mass()(torch.tensor([[float("nan"), 1.0]]), 0.95)
