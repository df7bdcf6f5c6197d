"""`ClassSets` is a list of sets, stored by their members."""

import pytest
import torch

import laplacebridge as lb
from laplacebridge.sets import ClassSets

LISTS = [[2, 0], [], [1], [3, 1, 0, 2]]


def sets():
    return ClassSets.from_lists(LISTS, num_classes=4)


def test_lists_come_back_and_iteration_gives_them():
    assert sets().to_lists() == LISTS
    assert list(sets()) == LISTS
    assert len(sets()) == 4
    assert sets().size.tolist() == [2, 0, 1, 4]


def test_the_mask_holds_the_members_and_no_others():
    mask = sets().mask()
    assert [row.nonzero().squeeze(-1).tolist() for row in mask] == [
        sorted(members) for members in LISTS
    ]


def test_contains_asks_each_set_for_its_own_label():
    assert sets().contains([0, 0, 1, 3]).tolist() == [True, False, True, True]
    assert sets().contains(torch.tensor([1, 1, 0, 0])).tolist() == [False, False, False, True]


def test_names_replace_numbers():
    assert sets().to_names(["a", "b", "c", "d"])[0] == ["c", "a"]
    with pytest.raises(lb.errors.ShapeError, match="a name for each of 4 classes; got 3"):
        sets().to_names(["a", "b", "c"])


def test_rows_are_chosen_as_from_a_tensor():
    assert sets()[0].to_lists() == [[2, 0]]
    assert sets()[-1].to_lists() == [[3, 1, 0, 2]]
    assert sets()[1:3].to_lists() == [[], [1]]
    assert sets()[torch.tensor([3, 3, 0])].to_lists() == [LISTS[3], LISTS[3], LISTS[0]]
    assert sets()[torch.tensor([False, True, True, False])].to_lists() == [[], [1]]
    assert len(sets()[:0]) == 0
    with pytest.raises(IndexError):
        sets()[4]


def test_what_is_shown_says_how_large_the_sets_are():
    assert repr(sets()) == "ClassSets(4 sets of 4 classes, mean size 1.75: [2, 0], [], [1], …)"


def test_wrong_sets_and_labels_are_named():
    with pytest.raises(lb.errors.ShapeError, match=r"set 1 is \[4\]"):
        ClassSets.from_lists([[0], [4]], num_classes=4)
    with pytest.raises(lb.errors.ShapeError, match=r"set 0 is \[1, 1\]"):
        ClassSets.from_lists([[1, 1]], num_classes=4)
    with pytest.raises(
        lb.errors.ShapeError, match="as many classes as the sizes add up to, 3; got 2"
    ):
        ClassSets(torch.tensor([0, 1]), torch.tensor([3]), 4)
    with pytest.raises(ValueError, match="labels from 0 to 3; example 2 has 7"):
        sets().contains([0, 0, 7, 0])
    with pytest.raises(lb.errors.ShapeError, match="one integer label for each of 4 examples"):
        sets().contains([0, 0])
