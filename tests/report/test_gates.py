"""Requirements are read, compared with what was found, and refused where they make no
sense.
"""

import pytest

import laplacebridge as lb
from laplacebridge.report import gates


def test_every_figure_that_can_be_required_is_measured(evaluation):
    found = gates.measured(evaluation.to_dict())
    assert set(found) == set(gates.MEASURED)
    own = evaluation.own_row
    assert (found["ece"], found["accuracy"]) == (own.ece, own.accuracy)
    assert found["coverage"] == evaluation.sets.held.double().mean().item()
    assert found["worst_class_accuracy"] == min(row.accuracy for row in evaluation.classes)
    assert found["worst_group_accuracy"] == min(row.accuracy.estimate for row in evaluation.groups)
    assert found["auroc"] == evaluation.scores[-1].auroc.estimate


@pytest.mark.parametrize(
    ("requirement", "is_met"),
    [
        ("accuracy>=0.5", True),
        ("accuracy >= 50%", True),
        ("accuracy<0.5", False),
        ("ece<=1e-9", False),
        ("set_size > 0.5", True),
    ],
)
def test_a_requirement_compares_what_was_found(requirement, is_met, evaluation):
    failed = evaluation.unmet([requirement])
    assert (failed == []) == is_met
    if not is_met:
        assert failed[0].startswith(f"{requirement}: ")
        assert " is " in failed[0]


def test_what_was_not_measured_meets_nothing(bare):
    assert bare.unmet(["auroc>=0.0"]) == ["auroc>=0.0: auroc was not measured"]


@pytest.mark.parametrize("wrong", ["ece", "ece=0.1", "ece<", "ECE<0.1", "ece<0.1.2", "f1>0.5", ""])
def test_what_cannot_be_read_is_an_error_that_says_what_can(wrong, evaluation):
    with pytest.raises(lb.InputError, match="A requirement"):
        evaluation.unmet([wrong])
    with pytest.raises(lb.InputError, match="A requirement"):
        gates.require_readable([wrong])
