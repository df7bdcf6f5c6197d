"""Coverage and size of class sets, overall and by size, worked by hand."""

import pytest
import torch

import laplacebridge as lb
from laplacebridge import metrics
from laplacebridge.sets import ClassSets

SETS = ClassSets.from_lists([[0], [1], [2, 0], [1, 2, 3], [3, 2, 1, 0], []], num_classes=5)
LABELS = [0, 2, 0, 4, 0, 1]  # held, not, held, not, held, not


def test_coverage_is_the_share_of_sets_that_hold_the_label():
    assert metrics.coverage(SETS, LABELS) == 3 / 6
    assert metrics.coverage(SETS, torch.tensor(LABELS)) == 3 / 6


def test_the_mean_size_counts_empty_sets_too():
    assert metrics.mean_set_size(SETS) == pytest.approx((1 + 1 + 2 + 3 + 4 + 0) / 6)


def test_coverage_by_size_groups_sets_and_leaves_out_empty_groups():
    table = metrics.coverage_by_size(SETS, LABELS)
    # 0–1: three sets, one held; 2–3: two, one held; 4–5 (of 4–10): one, held
    assert table.smallest.tolist() == [0, 2, 4]
    assert table.largest.tolist() == [1, 3, 5]
    assert table.count.tolist() == [3, 2, 1]
    torch.testing.assert_close(
        table.coverage, torch.tensor([1 / 3, 1 / 2, 1.0], dtype=torch.float64)
    )


def test_groups_may_be_chosen():
    table = metrics.coverage_by_size(SETS, LABELS, groups=[0, 2])
    assert table.smallest.tolist() == [0, 1, 3]
    assert table.largest.tolist() == [0, 2, 5]
    assert table.count.tolist() == [1, 3, 2]
    torch.testing.assert_close(table.coverage, torch.tensor([0, 2 / 3, 1 / 2], dtype=torch.float64))
    everything = metrics.coverage_by_size(SETS, LABELS, groups=[])
    assert everything.coverage.tolist() == [metrics.coverage(SETS, LABELS)]


def test_size_stratified_coverage_is_the_smallest():
    assert metrics.size_stratified_coverage(SETS, LABELS) == pytest.approx(1 / 3)
    assert metrics.size_stratified_coverage(SETS, LABELS, groups=[0, 2]) == 0
    assert metrics.size_stratified_coverage(SETS, LABELS, groups=[0, 2], min_count=2) == 1 / 2


def test_groups_that_are_all_too_small_are_refused():
    with pytest.raises(ValueError, match="a group of at least 4 sets; the largest has 3"):
        metrics.size_stratified_coverage(SETS, LABELS, min_count=4)


@pytest.mark.parametrize("groups", [[3, 1], [1, 1], [-1, 2]], ids=str)
def test_groups_that_do_not_rise_are_refused(groups):
    with pytest.raises(ValueError, match=r"sizes that rise from 0 or more; got \["):
        metrics.coverage_by_size(SETS, LABELS, groups=groups)


@pytest.mark.parametrize(
    "metric", [metrics.coverage, metrics.coverage_by_size, metrics.size_stratified_coverage]
)
def test_labels_that_fit_no_set_are_refused(metric):
    with pytest.raises(ValueError, match="labels from 0 to 4; example 1 has 5"):
        metric(SETS, [0, 5, 0, 0, 0, 0])
    with pytest.raises(lb.errors.ShapeError, match="one integer label for each of 6 examples"):
        metric(SETS, [0, 1])


def test_no_sets_are_refused():
    none = ClassSets.from_lists([], num_classes=5)
    with pytest.raises(
        lb.errors.ShapeError,
        match=r"`coverage\(sets, labels\)` needs at least one example; got none",
    ):
        metrics.coverage(none, torch.zeros(0, dtype=torch.long))
    with pytest.raises(
        lb.errors.ShapeError, match=r"`mean_set_size\(sets\)` needs at least one example; got none"
    ):
        metrics.mean_set_size(none)
