"""Bootstrap intervals hold the truth as often as they say, for every metric that has a
true value.
"""

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import torch
from cases import seeded
from torch import Generator, Tensor

import laplacebridge as lb
from laplacebridge import _blocks, metrics
from laplacebridge.metrics import resampling
from laplacebridge.metrics.calibration_error_interval import _nearest_gaps
from laplacebridge.sets import ClassSets

NUM_EXAMPLES = 400


@dataclass(frozen=True)
class Case:
    """A metric, random data for it and the value that endless data would give."""

    metric: Callable[..., float]
    data: Callable[[Generator], tuple[Any, ...]]
    truth: float
    paired: bool = True


def predictions(generator: Generator, excess: float = 0.1) -> tuple[Tensor, Tensor]:
    """Two classes with confidence uniform on [1/2, 1], right with a chance that is
    lower by some excess.
    """
    confidence = 0.5 + 0.5 * torch.rand(NUM_EXAMPLES, generator=generator, dtype=torch.float64)
    right = torch.rand(NUM_EXAMPLES, generator=generator, dtype=torch.float64) < confidence - excess
    return torch.stack([confidence, 1 - confidence], -1), (~right).long()


def expected(
    if_right: Callable[[float], float], if_wrong: Callable[[float], float], excess: float = 0.1
) -> float:
    """The mean over those predictions of a number that depends on confidence."""

    def at(confidence):
        chance = confidence - excess
        return 2 * (chance * if_right(confidence) + (1 - chance) * if_wrong(confidence))

    return scipy.integrate.quad(at, 0.5, 1)[0]


def scores(generator: Generator) -> tuple[Tensor, Tensor]:
    """Standard normal in distribution, and around 3/2 out of it."""
    id_scores = torch.randn(NUM_EXAMPLES, generator=generator, dtype=torch.float64)
    return id_scores, 1.5 + torch.randn(NUM_EXAMPLES // 2, generator=generator, dtype=torch.float64)


def average_precision() -> float:
    """Of endless scores, with half as many OOD as ID."""

    def at(threshold):
        found, wrongly = scipy.special.ndtr(1.5 - threshold), 2 * scipy.special.ndtr(-threshold)
        density = math.exp(-0.5 * (threshold - 1.5) ** 2) / math.sqrt(2 * math.pi)
        return density * found / (found + wrongly)

    return scipy.integrate.quad(at, -8, 10)[0]


def answers(generator: Generator) -> tuple[Tensor, Tensor]:
    """Scores uniform on [0, 1], wrong with chance 0.4 times the score: the risk at
    coverage u is 0.2 u.
    """
    score = torch.rand(NUM_EXAMPLES, generator=generator, dtype=torch.float64)
    return score, torch.rand(NUM_EXAMPLES, generator=generator, dtype=torch.float64) > 0.4 * score


def class_sets(generator: Generator) -> tuple[ClassSets, Tensor]:
    """Sets of the first 1 to 4 of 5 classes, equally often; the label is in with chance
    0.88.
    """
    size = torch.randint(1, 5, (NUM_EXAMPLES,), generator=generator)
    inside = torch.rand(NUM_EXAMPLES, generator=generator) < 0.88
    members = torch.cat([torch.arange(int(length)) for length in size])
    return ClassSets(members, size, 5), torch.where(inside, 0, 4)


CASES = {
    "accuracy": Case(metrics.accuracy, predictions, 0.65),
    "top_k_accuracy": Case(partial(metrics.top_k_accuracy, k=1), predictions, 0.65),
    "nll": Case(
        metrics.nll, predictions, expected(lambda c: -math.log(c), lambda c: -math.log(1 - c))
    ),
    "brier": Case(
        metrics.brier, predictions, expected(lambda c: 2 * (1 - c) ** 2, lambda c: 2 * c**2)
    ),
    "mmc": Case(metrics.mmc, lambda generator: predictions(generator)[:1], 0.75),
    "auroc": Case(
        metrics.auroc, scores, float(scipy.special.ndtr(1.5 / math.sqrt(2))), paired=False
    ),
    "aupr": Case(metrics.aupr, scores, average_precision(), paired=False),
    "fpr_at_tpr": Case(
        metrics.fpr_at_tpr,
        scores,
        float(scipy.special.ndtr(scipy.special.ndtri(0.95) - 1.5)),
        paired=False,
    ),
    "coverage": Case(metrics.coverage, class_sets, 0.88),
    "mean_set_size": Case(metrics.mean_set_size, lambda generator: class_sets(generator)[:1], 2.5),
    "aurc": Case(metrics.aurc, answers, 0.1),
    "ece": Case(metrics.ece, predictions, 0.1),
    "ece, slight": Case(metrics.ece, partial(predictions, excess=0.03), 0.03),
    "adaptive_ece": Case(metrics.adaptive_ece, predictions, 0.1),
}


def share_that_holds_the_truth(
    case: Case, num_data_sets: int, num_resamples: int, level: float = 0.95
) -> float:
    held = 0
    for seed in range(num_data_sets):
        generator = seeded(seed)
        arguments = case.data(generator)
        interval = metrics.bootstrap(
            case.metric,
            *arguments,
            num_resamples=num_resamples,
            level=level,
            generator=generator,
            paired=case.paired,
        )
        held += interval.low <= case.truth <= interval.high
    return held / num_data_sets


ALL_CASES = pytest.mark.parametrize("name", CASES)
# whose interval is read from resampled values
RESAMPLED = pytest.mark.parametrize("name", [name for name in CASES if "ece" not in name])


@pytest.mark.slow
@ALL_CASES
def test_intervals_of_95_percent_hold_the_truth_93_to_97_percent_of_the_time(name):
    share = share_that_holds_the_truth(CASES[name], num_data_sets=1000, num_resamples=1000)
    assert 0.93 <= share <= 0.97


@ALL_CASES
def test_intervals_hold_the_truth_about_as_often_as_they_say(name):
    # expected are 38 and 20 of 40, with standard deviations of 1.4 and 3.2
    assert share_that_holds_the_truth(CASES[name], num_data_sets=40, num_resamples=100) >= 34 / 40
    assert (
        share_that_holds_the_truth(CASES[name], num_data_sets=40, num_resamples=100, level=0.5)
        <= 29 / 40
    )


@pytest.mark.slow
def test_the_error_of_a_calibrated_model_is_found_to_be_possibly_zero_in_all_but_one_tail():
    calibrated = Case(metrics.ece, partial(predictions, excess=0.0), 0.0)
    assert (
        0.96
        <= share_that_holds_the_truth(calibrated, num_data_sets=1000, num_resamples=1000)
        <= 0.99
    )


@pytest.mark.parametrize("metric", [metrics.ece, metrics.adaptive_ece])
def test_the_estimate_of_a_calibrated_model_is_positive_and_its_interval_reaches_zero(metric):
    intervals = [
        metrics.bootstrap(
            metric,
            *predictions(seeded(seed), excess=0.0),
            num_resamples=200,
            generator=seeded(seed),
        )
        for seed in range(20)
    ]
    assert min(interval.estimate for interval in intervals) > 0.02
    assert sum(interval.low == 0 for interval in intervals) >= 18


@RESAMPLED
def test_many_resamples_at_once_are_the_same_as_one_after_another(name):
    case = CASES[name]
    arguments = case.data(seeded(0))
    settings = {"num_resamples": 50, "paired": case.paired}
    at_once = metrics.bootstrap(case.metric, *arguments, generator=seeded(1), **settings)
    one_by_one = metrics.bootstrap(
        lambda *given: case.metric(*given), *arguments, generator=seeded(1), **settings
    )
    for end in ("estimate", "low", "high"):
        assert getattr(at_once, end) == pytest.approx(getattr(one_by_one, end), rel=1e-12)


@ALL_CASES
def test_the_estimate_is_the_metric_and_the_same_seed_gives_the_same_interval(name):
    case = CASES[name]
    arguments = case.data(seeded(2))
    state = torch.get_rng_state()
    first, second = (
        metrics.bootstrap(
            case.metric, *arguments, num_resamples=60, generator=seeded(3), paired=case.paired
        )
        for _ in range(2)
    )
    assert first == second
    assert first.estimate == case.metric(*arguments)
    assert first.low < first.high
    assert torch.equal(torch.get_rng_state(), state)


# as it is called since SciPy 1.15
RNG = "rng" if "rng" in inspect.signature(scipy.stats.bootstrap).parameters else "random_state"


def test_the_interval_of_a_mean_is_close_to_that_of_scipy():
    skewed = torch.randn(400, generator=seeded(4), dtype=torch.float64).exp()
    ours = metrics.bootstrap(
        lambda values: values.mean().item(), skewed, num_resamples=5000, generator=seeded(5)
    )
    theirs = scipy.stats.bootstrap(
        (skewed.numpy(),),
        np.mean,
        n_resamples=5000,
        method="BCa",
        **{RNG: np.random.default_rng(6)},
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.05 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.05 * width)
    # it leans to the side of the long tail
    assert ours.high - ours.estimate > 1.15 * (ours.estimate - ours.low)


def test_a_higher_level_gives_a_wider_interval():
    arguments = predictions(seeded(7))
    narrow, wide = (
        metrics.bootstrap(metrics.nll, *arguments, level=level, generator=seeded(8))
        for level in (0.5, 0.99)
    )
    assert wide.low < narrow.low < narrow.high < wide.high


def test_paired_arguments_keep_their_rows_together_and_others_do_not():
    values = torch.randn(100, generator=seeded(9), dtype=torch.float64)

    def difference(first, second):
        return (first.mean() - second.mean()).item()

    together = metrics.bootstrap(
        difference, values, values.clone(), num_resamples=100, generator=seeded(10)
    )
    assert (together.low, together.high) == (0, 0)
    apart = metrics.bootstrap(
        difference, values, values.clone(), num_resamples=500, generator=seeded(10), paired=False
    )
    # two standard errors of a difference of means either way
    assert apart.high - apart.low == pytest.approx(
        2 * 1.96 * math.sqrt(2 * values.var().item() / 100), rel=0.15
    )


def test_keywords_are_set_with_partial():
    probabilities = torch.randn(50, 4, generator=seeded(11)).softmax(-1)
    labels = torch.randint(4, (50,), generator=seeded(12))
    top_two = metrics.bootstrap(
        partial(metrics.top_k_accuracy, k=2), probabilities, labels, num_resamples=50
    )
    assert top_two.estimate == metrics.top_k_accuracy(probabilities, labels, k=2)
    coarse = metrics.bootstrap(
        partial(metrics.ece, num_bins=1), probabilities, labels, num_resamples=50
    )
    assert coarse.estimate == metrics.ece(probabilities, labels, num_bins=1)
    id_scores, ood_scores = scores(seeded(13))
    kept = partial(metrics.aupr, id_positive=True)
    turned = metrics.bootstrap(kept, id_scores, ood_scores, num_resamples=50, paired=False)
    assert turned.low < kept(id_scores, ood_scores) < turned.high


def test_a_mean_of_your_own_that_carries_its_numbers_has_the_interval_of_one_that_does_not():
    prediction, labels = predictions(seeded(20))

    def spherical(prediction, labels):
        return spherical.per_example(prediction, labels).mean().item()

    def share_of_the_length(prediction, labels):
        return prediction.gather(-1, labels.unsqueeze(-1)).squeeze(-1) / prediction.norm(dim=-1)

    spherical.per_example = share_of_the_length
    settings = {"num_resamples": 50, "generator": seeded(21)}
    carried = metrics.bootstrap(spherical, prediction, labels, **settings)
    settings["generator"] = seeded(21)
    one_by_one = metrics.bootstrap(lambda *given: spherical(*given), prediction, labels, **settings)
    assert (carried.low, carried.high) == pytest.approx((one_by_one.low, one_by_one.high), rel=1e-9)


def test_numbers_that_a_metric_is_not_the_mean_of_are_refused():
    prediction, labels = predictions(seeded(22))

    @functools.wraps(metrics.accuracy)  # which copies attributes
    def error_rate(prediction, labels):
        return 1 - metrics.accuracy(prediction, labels)

    with pytest.raises(
        ValueError, match=r"mean of its own `metric\.per_example`; got 0\.\d+ and a mean of 0\.\d+"
    ):
        metrics.bootstrap(error_rate, prediction, labels)


def test_dirichlets_and_lists_of_labels_are_resampled_like_probabilities_and_tensors():
    log = torch.randn(60, 3, generator=seeded(14), dtype=torch.float64)
    labels = torch.randint(3, (60,), generator=seeded(15))
    for metric in (metrics.brier, lambda prediction, truth: metrics.brier(prediction, truth)):
        ours = metrics.bootstrap(
            metric, lb.Dirichlet(log), labels.tolist(), num_resamples=50, generator=seeded(16)
        )
        twin = metrics.bootstrap(
            metric, log.softmax(-1), labels, num_resamples=50, generator=seeded(16)
        )
        assert ours.low == pytest.approx(twin.low, rel=1e-12)
        assert ours.high == pytest.approx(twin.high, rel=1e-12)


def test_memory_does_not_grow_with_the_number_of_resamples(monkeypatch):
    arguments = predictions(seeded(17))
    whole = metrics.bootstrap(metrics.nll, *arguments, num_resamples=100, generator=seeded(18))
    monkeypatch.setattr(_blocks, "ELEMENTS_AT_ONCE", 7 * NUM_EXAMPLES)
    assert (
        max(len(rows) for (rows,) in resampling.resampled_rows([NUM_EXAMPLES], 100, seeded(18)))
        == 7
    )
    in_blocks = metrics.bootstrap(metrics.nll, *arguments, num_resamples=100, generator=seeded(18))
    assert in_blocks.low == pytest.approx(whole.low, rel=1e-12)
    assert in_blocks.high == pytest.approx(whole.high, rel=1e-12)


@pytest.mark.parametrize(
    ("length", "num_groups"), [(2, 2), (150, 150), (401, 200), (1000, 200), (1003, 200)]
)
def test_each_group_is_left_out_once_and_groups_are_of_one_size(length, num_groups):
    kept = torch.cat(list(resampling.rows_without_a_group(length)))
    assert len(kept) == num_groups
    left_out = [set(range(length)) - set(rows.tolist()) for rows in kept]
    assert {len(group) for group in left_out} == {length // num_groups}
    assert len(set.union(*left_out)) == num_groups * (length // num_groups)


def test_an_answer_that_never_varies_has_a_point_for_an_interval():
    sure = torch.eye(2)[torch.zeros(30, dtype=torch.long)]
    interval = metrics.bootstrap(metrics.accuracy, sure, [0] * 30, num_resamples=100)
    assert (interval.low, interval.high) == (1, 1)
    interval = metrics.bootstrap(metrics.ece, 0.75 * sure + 0.125, [0] * 30, num_resamples=100)
    assert (interval.low, interval.high) == pytest.approx((0.125, 0.125))


def test_gaps_move_to_a_sum_by_amounts_in_proportion_to_their_variances():
    nearest = _nearest_gaps(torch.tensor([3.0, 1.0]), torch.tensor([1.0, 1.0]))
    for theta, expected in (
        (4, [3, 1]),
        (6, [4, 2]),
        (3, [2.5, 0.5]),
        (2, [2, 0]),
        (1, [1, 0]),
        (0, [0, 0]),
    ):
        torch.testing.assert_close(
            nearest(float(theta)), torch.tensor(expected, dtype=torch.float32)
        )
    nearest = _nearest_gaps(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 1.0]))
    torch.testing.assert_close(nearest(7.0), torch.tensor([5.0, 2.0]))
    torch.testing.assert_close(nearest(2.5), torch.tensor([2.0, 0.5]))


def test_an_interval_prints_as_an_estimate_and_its_ends():
    assert str(metrics.Interval(0.91249, 0.9031, 0.92149, 0.95)) == "0.912 [0.903, 0.921]"


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, math.nan])
def test_a_level_that_is_no_chance_is_refused(level):
    with pytest.raises(ValueError, match="chance between 0 and 1; got"):
        metrics.bootstrap(metrics.mmc, torch.full((5, 2), 0.5), level=level)


def test_too_few_resamples_for_the_level_are_refused():
    with pytest.raises(ValueError, match=r"at least 40 resamples for a level of 0\.95; got 39"):
        metrics.bootstrap(metrics.mmc, torch.full((5, 2), 0.5), num_resamples=39)


def test_arguments_of_different_lengths_are_refused_unless_they_are_independent():
    id_scores, ood_scores = scores(seeded(19))
    with pytest.raises(lb.errors.ShapeError, match=r"same length.*got 400 and 200.*`paired=False`"):
        metrics.bootstrap(metrics.auroc, id_scores, ood_scores)


def test_fewer_than_two_examples_are_refused():
    with pytest.raises(lb.errors.ShapeError, match="at least two examples of each kind; got 1"):
        metrics.bootstrap(metrics.mmc, torch.full((1, 2), 0.5))
    with pytest.raises(
        lb.errors.ShapeError, match="needs what the metric is to be computed from; got nothing"
    ):
        metrics.bootstrap(metrics.mmc)


def test_a_metric_that_is_not_finite_is_refused():
    impossible = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.5, 0.5]])
    with pytest.raises(
        ValueError, match=r"finite on the data and on every resample; got inf\. The NLL is infinite"
    ):
        metrics.bootstrap(metrics.nll, impossible, [1, 0, 0])
    with pytest.raises(ValueError, match=r"finite on the data and on every resample; got nan"):
        metrics.bootstrap(
            lambda values: values.std().item() / (values.std().item() > 0 or math.nan),
            torch.eye(3)[0],
        )


def test_an_error_that_has_no_valid_interval_is_refused():
    with pytest.raises(
        ValueError, match=r"upward bias of `classwise_ece`.*Use `ece` or `adaptive_ece`"
    ):
        metrics.bootstrap(metrics.classwise_ece, *predictions(seeded(20)))


def test_what_the_metric_refuses_is_refused_in_its_words():
    with pytest.raises(
        ValueError,
        match=r"`accuracy\(prediction, labels\)` needs labels from 0 to 1; example 1 has 2",
    ):
        metrics.bootstrap(metrics.accuracy, torch.full((2, 2), 0.5), [0, 2])
