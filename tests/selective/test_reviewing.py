"""The order in which a person should look at predictions, and the reasons."""

import numpy as np
import pytest
import torch

import laplacebridge as lb
from laplacebridge.prediction import Prediction
from laplacebridge.selective import reviewing
from laplacebridge.unusual import Unusual

P = torch.tensor([[0.98, 0.01, 0.01], [0.5, 0.4, 0.1], [0.7, 0.2, 0.1]])


def prediction(probabilities, scores, num_reference=999):
    """A prediction with scores of unusual inputs, beside a reference of 0, 1, …"""
    dirichlet = lb.Dirichlet((100 * probabilities).log())
    reference = torch.arange(num_reference).to(probabilities.dtype)
    return Prediction(dirichlet, torch.ones_like(probabilities), Unusual(scores, reference))


def test_the_most_doubtful_label_comes_first():
    cases = lb.review(P)
    assert [case.row for case in cases] == [1, 2, 0]
    assert [case.reason for case in cases] == ["ambiguous", "ambiguous", ""]
    assert [case.chance_wrong for case in cases] == pytest.approx([0.5, 0.3, 0.02])
    assert cases[0].why == "0 (0.5) or 1 (0.4)"
    assert cases[0].ood_quantile is None
    assert [case.row for case in lb.review(P, n=1)] == [1]


def test_an_input_unlike_all_others_comes_first_however_sure_its_label_is():
    cases = lb.review(prediction(P, torch.tensor([5000.0, 3.0, 500.0])), class_names="abc")
    assert [case.row for case in cases] == [0, 1, 2]
    assert [case.reason for case in cases] == ["unusual", "ambiguous", "ambiguous"]
    # p = 1/1000, adjusted for three inputs: a guess among three, nearly
    assert cases[0].chance_wrong == pytest.approx(0.003 * 0.02 + 0.997 * 2 / 3)
    assert cases[0].why == "a (0.98); more unusual than 99.9% of held-out inputs"
    doubtful = prediction(P[[1]], torch.tensor([5000.0]))
    assert lb.review(doubtful)[0].reason == "both"
    assert lb.review(doubtful)[0].why.startswith("0 (0.5) or 1 (0.4); more unusual")


def test_as_many_unusual_inputs_as_there_should_be_change_nothing():
    scores = torch.arange(999).float()  # as unusual as the held-out data are
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.randn(999, 3, generator=generator).softmax(-1)
    found = [case.row for case in lb.review(prediction(probabilities, scores))]
    assert found == [case.row for case in lb.review(probabilities)]


def test_false_discovery_rates_are_those_of_scipy():
    from scipy.stats import false_discovery_control

    generator = torch.Generator().manual_seed(0)
    scores = 1500 * torch.rand(50, generator=generator, dtype=torch.float64)
    probabilities = torch.tensor([1.0, 0.0]).double().clamp(1e-12).expand(50, 2)
    probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    given = prediction(probabilities, scores)
    cases = sorted(lb.review(given))
    expected = 1 - false_discovery_control(1 - given.ood_quantile.numpy())
    np.testing.assert_allclose([case.chance_wrong for case in cases], expected / 2, atol=1e-9)


def test_equally_unusual_inputs_are_ordered_by_their_score():
    given = prediction(P[[0, 0, 0]], torch.tensor([2000.0, 9000.0, 4000.0]))
    assert [case.row for case in lb.review(given)] == [1, 2, 0]


def test_without_held_out_data_doubt_decides_alone():
    given = prediction(P, torch.tensor([5000.0, 3.0, 500.0]), num_reference=0)
    assert [case.row for case in lb.review(given)] == [1, 2, 0]
    assert lb.review(given)[0].ood_quantile is None


def test_arrays_frames_and_predictions_are_taken():
    pd = pytest.importorskip("pandas")
    expected = lb.review(P)
    assert lb.review(P.numpy()) == expected
    assert lb.review(pd.DataFrame(P.numpy())) == expected
    frame = pd.DataFrame(expected)
    assert frame.columns.tolist() == list(lb.selective.ReviewCase._fields)
    assert isinstance(expected[0].row, int)
    assert isinstance(expected[0].chance_wrong, float)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "positive whole number of cases; got 0"),
        ({"class_names": ["a"]}, "each of 3 classes; got 1"),
        ({"ambiguous_above": 2.0}, "from 0 to 1; got 2"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(lb.InputError, match=message):
        lb.review(P, **options)


@pytest.mark.parametrize("number", ["a", 2.5])
def test_a_number_of_cases_is_a_whole_one(number):
    unchecked = reviewing._require_arguments
    while hasattr(unchecked, "__wrapped__"):  # before the tests' own check of types
        unchecked = unchecked.__wrapped__
    with pytest.raises(lb.InputError, match="positive whole number"):
        unchecked(number, None, 0.1, 3)
