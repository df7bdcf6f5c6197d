"""What is said where a rule of sets is missing."""

import numpy as np
import pytest
import torch

import laplacebridge as lb
from laplacebridge.sets import (
    APS,
    calibrate,
    calibrate_by_class,
    calibrate_by_group,
    cross_calibrate,
)

ROWS, LABELS = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 1])
CALLS = {
    calibrate: (ROWS, LABELS),
    calibrate_by_class: (ROWS, LABELS),
    calibrate_by_group: (ROWS, LABELS, ["day", "night"]),
    cross_calibrate: ([ROWS, ROWS], [LABELS, LABELS]),
}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_call_without_a_rule_is_told_to_give_one(call):
    arguments = CALLS[call]
    asked = rf"`{call.__name__}\(rule, .*needs a rule of sets first.*LeastAmbiguous\(\)"
    for given in (arguments, (APS, *arguments), ("aps", *arguments)):
        with pytest.raises(lb.errors.InputTypeError, match=asked):
            call(*given)
    with pytest.raises(lb.errors.InputTypeError, match="got the class APS, without its brackets"):
        call(APS, *arguments)
    with pytest.raises(lb.errors.InputTypeError, match="got none"):
        call()


def test_a_rule_may_be_named_and_arrays_come_back_as_arrays():
    given = calibrate(rule=APS(), prediction=ROWS.numpy(), labels=LABELS.numpy(), coverage=0.5)
    assert isinstance(given(ROWS.numpy()).classes, np.ndarray)
