"""Coverage in every class and in every group."""

import pytest
import torch

import laplacebridge as lb
from laplacebridge.sets import (
    APS,
    LeastAmbiguous,
    calibrate,
    calibrate_by_class,
    calibrate_by_group,
)

RARE = torch.tensor([0.85, 0.1, 0.05])


def uneven(number, generator):
    """Three classes, the rare ones hard to see."""
    labels = torch.multinomial(RARE.expand(number, -1), 1, generator=generator).squeeze(-1)
    seen = torch.nn.functional.one_hot(labels, 3).double() + torch.randn(
        number, 3, generator=generator, dtype=torch.float64
    )
    return (2 * seen + RARE.log()).softmax(-1), labels


def smallest(sets, labels, groups):
    return min(lb.metrics.coverage_by_group(sets, labels, groups).coverage)


@pytest.mark.parametrize("rule", [LeastAmbiguous, APS], ids=lambda rule: rule.__name__)
def test_the_coverage_holds_in_every_class_where_the_average_hides_a_rare_one(rule):
    generator = torch.Generator().manual_seed(0)
    averaged, by_class = [], []
    for _ in range(20):
        (known, labels), (fresh, truth) = uneven(1500, generator), uneven(3000, generator)
        averaged.append(smallest(calibrate(rule(), known, labels)(fresh), truth, truth))
        by_class.append(smallest(calibrate_by_class(rule(), known, labels)(fresh), truth, truth))
    assert sum(averaged) / 20 < 0.8
    assert sum(by_class) / 20 > 0.85  # the least of three estimates lies below 0.9


def test_the_coverage_holds_in_every_group():
    generator = torch.Generator().manual_seed(0)
    averaged, by_group = [], []
    for _ in range(20):
        (known, labels), (fresh, truth) = uneven(600, generator), uneven(3000, generator)
        # at night the labels are noise
        groups, fresh_groups = (
            ["night" if row % 4 == 0 else "day" for row in range(len(part))]
            for part in (known, fresh)
        )
        labels[::4], truth[::4] = labels[::4].flip(0), truth[::4].flip(0)
        averaged.append(
            smallest(calibrate(LeastAmbiguous(), known, labels)(fresh), truth, fresh_groups)
        )
        calibrated = calibrate_by_group(LeastAmbiguous(), known, labels, groups)
        by_group.append(smallest(calibrated(fresh, fresh_groups), truth, fresh_groups))
    assert sum(averaged) / 20 < 0.85
    assert sum(by_group) / 20 > 0.88


def test_too_few_examples_are_said_and_promise_nothing_but_everything():
    generator = torch.Generator().manual_seed(0)
    known, labels = uneven(60, generator)
    labels[:20], labels[labels == 2] = 1, 0
    with pytest.warns(UserWarning, match="at least 9 examples of each; class 2 has"):
        calibrated = calibrate_by_class(LeastAmbiguous(), known, labels)
    assert calibrated(known).mask()[:, 2].all()
    with pytest.warns(UserWarning, match="group 1 has fewer, and has sets of all classes"):
        grouped = calibrate_by_group(LeastAmbiguous(), known, labels, torch.arange(60) // 57)
    assert grouped(known[:1], [1]).size.tolist() == [3]
    with pytest.raises(lb.InputError, match="got 2"):
        grouped(known[:1], [2])


def test_bad_groups_and_coverages_are_refused():
    known, labels = uneven(60, torch.Generator().manual_seed(0))
    with pytest.raises(lb.errors.ShapeError, match="each of 60 examples"):
        calibrate_by_group(LeastAmbiguous(), known, labels, ["day"])
    for call in (calibrate_by_class, calibrate_by_group):
        groups = () if call is calibrate_by_class else (["day"] * 60,)
        with pytest.raises(lb.InputError, match="got 9"):
            call(LeastAmbiguous(), known, labels, *groups, coverage=9.0)
