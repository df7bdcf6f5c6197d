"""Thresholds for a risk or a share: what is promised holds in simulation, and what
cannot be promised is refused.
"""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from cases import seeded

import laplacebridge as lb
from laplacebridge.selective import calibrate, clopper_pearson_upper


def first(prediction):
    return prediction[:, 0]


def predictions(scores):
    """Predictions of class 0 whose `first` number is the score."""
    return torch.stack([scores, torch.full_like(scores, -math.inf)], -1)


def for_share(scores, share):
    return calibrate(first, predictions(scores), answer_share=share)


def for_risk(scores, correct, *, risk=0.05, **options):
    return calibrate(first, predictions(scores), (~correct).long(), risk=risk, **options)


def answers(rule, scores):
    return rule.answers(predictions(scores))


# Clopper–Pearson


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.9975])
@pytest.mark.parametrize("num_examples", [1, 7, 59, 1000, 100_000])
def test_the_bound_is_that_of_scipy(num_examples, confidence):
    for num_wrong in sorted(
        {0, 1, num_examples // 50, num_examples // 2, num_examples - 1, num_examples}
    ):
        exact = scipy.stats.binomtest(num_wrong, num_examples, alternative="less")
        expected = exact.proportion_ci(confidence, method="exact").high
        got = clopper_pearson_upper(num_wrong, num_examples, confidence=confidence)
        assert got == pytest.approx(expected, rel=1e-9)


def test_without_errors_the_bound_has_a_closed_form():
    assert clopper_pearson_upper(0, 59) == pytest.approx(1 - 0.05 ** (1 / 59), rel=1e-12)
    assert clopper_pearson_upper(0, 58) > 0.05 > clopper_pearson_upper(0, 59)


def test_with_nothing_right_every_rate_is_possible():
    assert clopper_pearson_upper(5, 5) == 1
    assert clopper_pearson_upper(0, 0) == 1


@pytest.mark.parametrize("counts", [(-1, 5), (6, 5)])
def test_errors_are_counted_among_examples(counts):
    with pytest.raises(ValueError, match="needs 0 ≤ num_wrong ≤ num_examples"):
        clopper_pearson_upper(*counts)


# a share of answers


def test_a_share_of_nine_tenths_takes_the_ninetieth_of_99_scores():
    rule = for_share(torch.arange(99.0).flip(0), 0.9)
    assert (rule.threshold, rule.num_answered, rule.num_examples) == (89.0, 90, 99)
    assert rule.answered_share == 90 / 99
    assert rule.risk_bound is rule.confidence is rule.num_wrong is None


@pytest.mark.parametrize("share", [0.5, 0.7, 0.95])
def test_a_new_example_is_answered_with_the_stated_probability(share):
    num_examples, num_sets = 39, 1500
    draws = torch.rand(num_sets, num_examples + 1, generator=seeded(0), dtype=torch.float64)
    answered = [answers(for_share(row[:-1], share), row[-1:]).item() for row in draws]
    expected = math.ceil(40 * share) / 40  # which is the stated probability, for a multiple of 1/40
    assert np.mean(answered) == pytest.approx(
        expected, abs=4 * math.sqrt(expected * (1 - expected) / num_sets)
    )


def test_all_examples_of_one_score_are_answered_or_none():
    scores = torch.tensor([1.0] * 5 + [2.0] * 10 + [3.0] * 5)
    rule = for_share(scores, 0.5)
    assert (rule.threshold, rule.num_answered) == (2.0, 15)
    assert torch.equal(answers(rule, scores), scores <= 2)


def test_too_few_examples_for_a_share_say_how_many_are_needed():
    with pytest.raises(
        ValueError, match=r"at least 99 examples .* 0\.99; got 98\. .* at most 0\.99"
    ):
        for_share(torch.arange(98.0), 0.99)
    assert for_share(torch.arange(99.0), 0.99).num_answered == 99


# an error rate among answers


def population(generator, num_examples, *, base, slope):
    """Scores uniform on [0, 1], wrong with chance base + slope·score: below t the risk
    is base + slope·t/2.
    """
    scores = torch.rand(num_examples, generator=generator, dtype=torch.float64)
    wrong = (
        torch.rand(num_examples, generator=generator, dtype=torch.float64) < base + slope * scores
    )
    return scores, ~wrong


def true_risk(threshold, base, slope):
    return base + slope * min(threshold, 1.0) / 2


def threshold_or_none(scores, correct, **options):
    try:
        return for_risk(scores, correct, **options).threshold
    except ValueError:
        return None


def loosest_that_seems_to_pass(scores, correct, risk, confidence):
    """What not to do: the bound of every threshold on its own, and then the loosest."""
    order = scores.argsort()
    errors, counts = np.cumsum(~correct[order].numpy()), np.arange(1, len(scores) + 1)
    bounds = scipy.stats.beta.ppf(confidence, errors + 1, np.maximum(counts - errors, 1e-300))
    passing = np.nonzero((bounds <= risk) & (errors < counts))[0]
    return scores[order[passing[-1]]].item() if len(passing) else None


@pytest.mark.parametrize(
    ("base", "slope", "fewest_found"),
    [(0.1001, 0.0, 0), (0.02, 0.2, 100), (0.12, -0.035, 0)],
    ids=["useless score", "good score", "score that ranks the wrong way"],
)
def test_the_true_risk_exceeds_the_target_in_at_most_one_data_set_of_twenty(
    base, slope, fewest_found
):
    generator, num_sets, found, misses = seeded(1), 400, 0, 0
    for _ in range(num_sets):
        scores, correct = population(generator, 600, base=base, slope=slope)
        threshold = threshold_or_none(scores, correct, risk=0.1, confidence=0.95)
        found += threshold is not None
        misses += threshold is not None and true_risk(threshold, base, slope) > 0.1
    assert found >= fewest_found
    assert misses <= 0.05 * num_sets + 2 * math.sqrt(0.05 * 0.95 * num_sets)


def test_the_loosest_of_all_thresholds_that_pass_alone_would_break_the_promise():
    generator, num_sets, misses, naive_misses = seeded(2), 300, 0, 0
    for _ in range(num_sets):
        scores, correct = population(
            generator, 400, base=0.1001, slope=0.0
        )  # every threshold is too risky
        misses += threshold_or_none(scores, correct, risk=0.1) is not None
        naive_misses += loosest_that_seems_to_pass(scores, correct, 0.1, 0.95) is not None
    assert misses <= 0.05 * num_sets
    assert naive_misses >= num_sets / 8


def test_tied_scores_keep_the_promise():
    # ten distinct scores; the risk is the mean over those that are answered
    generator, num_sets, found, misses = seeded(3), 300, 0, 0
    for _ in range(num_sets):
        scores = torch.randint(10, (600,), generator=generator).double()
        correct = torch.rand(600, generator=generator) >= 0.02 + 0.02 * scores
        threshold = threshold_or_none(scores, correct, risk=0.1)
        if threshold is not None:
            answered = torch.arange(10.0)[torch.arange(10) <= threshold]
            found += 1
            misses += (0.02 + 0.02 * answered).mean().item() > 0.1
    assert found > 60
    assert misses <= 0.05 * num_sets + 2 * math.sqrt(0.05 * 0.95 * num_sets)


def test_most_of_what_can_be_answered_is_answered():
    # below t the risk is 0.2·t/2, so that 0.05 is met up to t = 0.5
    generator = seeded(4)
    scores = torch.rand(20_000, generator=generator, dtype=torch.float64)
    correct = torch.rand(20_000, generator=generator, dtype=torch.float64) >= 0.2 * scores
    rule = for_risk(scores, correct, risk=0.05)
    assert 0.38 < rule.answered_share < 0.5
    assert rule.risk_bound <= 0.05


def test_the_rule_reports_what_it_saw():
    scores, correct = population(seeded(5), 1000, base=0.01, slope=0.1)
    rule = for_risk(scores, correct, risk=0.05, confidence=0.9, num_thresholds=10)
    answered = answers(rule, scores)
    assert rule.num_examples == 1000
    assert rule.num_answered == answered.sum()
    assert rule.num_wrong == (answered & ~correct).sum()
    assert rule.confidence == 0.9
    bound = clopper_pearson_upper(rule.num_wrong, rule.num_answered, confidence=1 - 0.1 / 10)
    assert rule.risk_bound == pytest.approx(bound, rel=1e-12)
    assert rule.risk_bound <= 0.05


def test_the_threshold_is_the_last_number_before_the_first_example_left_out():
    scores = torch.linspace(0, 1, 1000)
    rule = for_risk(scores, scores < 0.8, risk=0.02)
    first_left_out = scores[rule.num_answered]
    assert answers(rule, scores).sum() == rule.num_answered
    assert not answers(rule, first_left_out.reshape(1))
    assert answers(rule, torch.nextafter(first_left_out, torch.tensor(0.0)).reshape(1))
    assert not answers(rule, first_left_out.double().reshape(1))


def test_everything_is_answered_if_that_is_safe():
    rule = for_risk(
        torch.randn(300, generator=seeded(6)), torch.ones(300, dtype=torch.bool), risk=0.05
    )
    assert (rule.threshold, rule.answered_share) == (math.inf, 1.0)
    assert answers(rule, torch.tensor([1e30, math.inf])).all()


def test_a_single_threshold_asks_whether_everything_may_be_answered():
    correct = torch.ones(59, dtype=torch.bool)
    assert for_risk(torch.arange(59.0), correct, risk=0.05, num_thresholds=1).answered_share == 1
    with pytest.raises(ValueError, match=r"at least 59 examples .*; got 58"):
        for_risk(torch.arange(58.0), correct[:58], risk=0.05, num_thresholds=1)


@pytest.mark.parametrize(("risk", "fewest"), [(0.02, 297), (0.01, 597), (0.001, 5989)])
def test_even_without_an_error_a_small_risk_needs_many_examples(risk, fewest):
    correct = torch.ones(fewest, dtype=torch.bool)
    assert for_risk(torch.arange(float(fewest)), correct, risk=risk).risk_bound <= risk
    with pytest.raises(
        ValueError, match=f"at least {fewest} examples .* even if none is wrong; got {fewest - 1}"
    ):
        for_risk(torch.arange(fewest - 1.0), correct[1:], risk=risk)


def test_examples_of_one_score_are_answered_together():
    scores = torch.cat([torch.zeros(150), torch.ones(150)])
    correct = torch.cat(
        [torch.ones(150), torch.arange(150) % 2]
    ).bool()  # half of the second group is wrong
    rule = for_risk(scores, correct, risk=0.05)
    assert rule.num_answered == 150
    assert torch.equal(answers(rule, scores), scores == 0)


def test_the_order_of_examples_does_not_matter():
    scores, correct = population(seeded(7), 500, base=0.01, slope=0.1)
    scores = (20 * scores).round() / 20
    order = torch.randperm(500, generator=seeded(8))
    assert for_risk(scores[order], correct[order], risk=0.06) == for_risk(
        scores, correct, risk=0.06
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_scores_of_any_type_are_compared_exactly(dtype):
    scores = torch.rand(500, generator=seeded(9)).to(dtype)
    correct = scores < 0.7
    narrow, wide = (
        for_risk(scores, correct, risk=0.05),
        for_risk(scores.double(), correct, risk=0.05),
    )
    assert narrow == wide
    assert torch.equal(answers(narrow, scores), answers(wide, scores.double()))


# what cannot be promised


def test_a_target_out_of_reach_says_the_best_bound_and_how_many_examples_it_takes():
    # 1 of 50 wrong, everywhere alike, is within 3 %, but not provably so with 400
    # examples
    scores, correct = torch.arange(400.0), torch.arange(400) % 50 != 25
    with pytest.raises(
        ValueError, match=r"at most 0\.03 among its answers; the best bound .* is 0\.0\d+"
    ) as caught:
        for_risk(scores, correct, risk=0.03)
    needed = int(str(caught.value).split("Give about ")[1].split()[0])
    assert 1500 < needed < 6000
    repeats = math.ceil(needed / 400)
    more = torch.arange(400.0 * repeats)
    assert for_risk(more, correct.repeat(repeats), risk=0.03).risk_bound <= 0.03


def test_a_rate_above_the_target_everywhere_cannot_be_repaired_with_more_examples():
    correct = torch.arange(400) % 10 != 0
    with pytest.raises(ValueError, match=r"More examples would not help: allow a larger risk"):
        for_risk(torch.arange(400.0), correct, risk=0.03)


def test_a_rate_just_below_the_target_would_need_too_many_examples_to_advise():
    correct = (
        torch.arange(400) >= 12
    )  # the most confident are wrong: 12 of 400, and a larger share of any fewer
    with pytest.raises(ValueError, match=r"More examples would not help"):
        for_risk(torch.arange(400.0), correct, risk=0.0300001)


def test_answers_that_are_all_wrong_meet_no_target():
    with pytest.raises(
        ValueError,
        match=r"best bound .* is 1, with (\d+) of \1 answers wrong\. More examples would",
    ):
        for_risk(torch.arange(400.0), torch.zeros(400, dtype=torch.bool), risk=0.03)


def test_equal_scores_cannot_be_told_apart():
    correct = torch.arange(400) % 10 != 0
    with pytest.raises(ValueError, match="with 40 of 400 answers wrong"):
        for_risk(torch.zeros(400), correct, risk=0.03)


# what is refused


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 5.0, math.nan])
def test_shares_lie_between_zero_and_one(share):
    scores, correct = torch.arange(99.0), torch.ones(99, dtype=torch.bool)
    calls = {
        r"selective\.calibrate\(answer_share\)": lambda: for_share(scores, share),
        r"selective\.calibrate\(risk\)": lambda: for_risk(scores, correct, risk=share),
        r"selective\.calibrate\(confidence\)": lambda: for_risk(scores, correct, confidence=share),
        r"clopper_pearson_upper\(confidence\)": lambda: clopper_pearson_upper(
            1, 5, confidence=share
        ),
    }
    for name, call in calls.items():
        with pytest.raises(
            ValueError, match=rf"`{name}` needs a number between 0 and 1; got {share}"
        ):
            call()


def test_at_least_one_threshold_is_tried():
    with pytest.raises(ValueError, match=r"needs at least 1; got 0"):
        for_risk(torch.arange(99.0), torch.ones(99, dtype=torch.bool), num_thresholds=0)


def test_scores_are_numbers_of_at_least_one_example():
    bad, rule = torch.tensor([0.0, math.nan, 1.0]), for_share(torch.arange(9.0), 0.5)
    for call in (
        lambda scores: for_share(scores, 0.5),
        lambda scores: for_risk(scores, torch.ones(len(scores), dtype=torch.bool)),
        lambda scores: answers(rule, scores),
    ):
        with pytest.raises(ValueError, match="example 1 is NaN"):
            call(bad)
        with pytest.raises(lb.errors.ShapeError, match="needs at least one example; got none"):
            call(bad[:0])
