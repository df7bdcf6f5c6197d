"""What counts as a prediction, as labels and as scores, and what is said of anything
else.
"""

import pytest
import torch
from cases import seeded

import laplacebridge as lb
from laplacebridge._checks import labels_of, values_of
from laplacebridge._predictions import probabilities_of


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str
)
def test_softmax_of_any_type_is_accepted_and_widened(dtype):
    probabilities = (3 * torch.randn(50, 1000, generator=seeded(0))).softmax(-1).to(dtype)
    found = probabilities_of("call(prediction)", probabilities)
    assert found.dtype in {torch.float32, torch.float64}
    torch.testing.assert_close(found, probabilities.to(found.dtype), rtol=0, atol=0)


def test_one_hundred_thousand_probabilities_in_float32_add_up_to_one():
    probabilities = torch.randn(4, 100_000, generator=seeded(1)).softmax(-1)
    assert probabilities_of("call(prediction)", probabilities) is probabilities


def test_a_dirichlet_is_its_mean():
    dirichlet = lb.Dirichlet.from_concentration(torch.tensor([[1.0, 3.0]]))
    torch.testing.assert_close(
        probabilities_of("call(prediction)", dirichlet), torch.tensor([[0.25, 0.75]])
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            torch.tensor([[0.5, 0.6]]),
            r"`call\(x\)` needs rows that add up to 1; row 0 adds up to 1\.1",
        ),
        (torch.tensor([[0.5, 0.5], [2.0, -1.0]]), r"row 1 holds -1.*logits\.softmax"),
        (torch.tensor([[float("nan"), 1.0]]), "row 0 holds nan"),
        (torch.tensor([[float("inf"), 1.0]]), "row 0 holds inf"),
        (torch.zeros(0, 3), "at least one example; got none"),
        (torch.ones(3, 1), "at least K = 2 classes"),
        (torch.ones(3), r"shape \(B, K\)"),
        (torch.ones(3, 2, dtype=torch.long), "floating-point"),
        (lb.Dirichlet(torch.tensor([[0.0, float("nan")]])), "row 0 has NaN"),
        (lb.Dirichlet(torch.zeros(0, 2)), "at least one example"),
    ],
    ids=[
        "sum",
        "logits",
        "nan",
        "inf",
        "empty",
        "one class",
        "vector",
        "integers",
        "nan α",
        "no Dirichlet",
    ],
)
def test_what_is_no_prediction_is_named(given, message):
    with pytest.raises((lb.errors.ShapeError, ValueError), match=message):
        probabilities_of("call(x)", given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0, 1, 3], "labels from 0 to 2; example 2 has 3"),
        ([0, -1, 0], "example 1 has -1.*counted from 0"),
        ([0, 1], "one integer label for each of 3 examples"),
        (torch.eye(3, dtype=torch.long), r"argmax\(-1\)"),
        (torch.tensor([0.0, 1.0, 2.0]), "got torch.float32"),
        (torch.tensor([True, False, True]), "got torch.bool"),
    ],
    ids=["too large", "negative", "too few", "one-hot", "float", "bool"],
)
def test_what_are_no_labels_is_named(given, message):
    with pytest.raises((lb.errors.ShapeError, ValueError), match=message):
        labels_of("call(labels)", given, 3, 3)


def test_labels_of_any_integer_type_become_int64():
    assert (
        labels_of("call(labels)", torch.tensor([2, 0], dtype=torch.uint8), 2, 3).dtype
        == torch.int64
    )


def test_scores_may_be_infinite_but_not_nan():
    assert values_of("call(scores)", torch.tensor([0.0, float("inf")])).tolist() == [
        0.0,
        float("inf"),
    ]
    with pytest.raises(ValueError, match="example 1 is NaN"):
        values_of("call(scores)", torch.tensor([0.0, float("nan")]))
    with pytest.raises(lb.errors.ShapeError, match="at least one example"):
        values_of("call(scores)", torch.zeros(0))
