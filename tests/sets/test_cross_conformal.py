"""Sets calibrated across folds hold their labels as often as is promised."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import laplacebridge as lb
from laplacebridge.sets import APS, LeastAmbiguous, Mass, TopK, calibrate, cross_calibrate

FOLDS, EXAMPLES, FRESH = 5, 100, 200


def problem(generator):
    """Few examples for many weights, so that the models of the folds differ."""
    weight = generator.normal(size=(12, 4))
    inputs = generator.normal(size=(EXAMPLES + FRESH, 12))
    labels = np.array([np.argmax(row + generator.gumbel(size=4)) for row in inputs @ weight])
    return inputs, labels


def calibrated_sets(rule, coverage, generator):
    inputs, labels = problem(generator)
    held, wanted, fresh = [], [], []
    for fold in range(FOLDS):
        out = np.arange(EXAMPLES) % FOLDS == fold
        rows = np.flatnonzero(~out)
        model = LogisticRegression(C=1e3, max_iter=2000).fit(inputs[rows], labels[rows])
        held.append(torch.from_numpy(model.predict_proba(inputs[:EXAMPLES][out])))
        wanted.append(torch.from_numpy(labels[:EXAMPLES][out]))
        fresh.append(torch.from_numpy(model.predict_proba(inputs[EXAMPLES:])))
    calibrated = cross_calibrate(rule, held, wanted, coverage=coverage)
    return calibrated, calibrated(fresh), torch.from_numpy(labels[EXAMPLES:])


@pytest.mark.parametrize("rule", [LeastAmbiguous, APS, Mass], ids=lambda rule: rule.__name__)
def test_sets_hold_the_label_as_often_as_asked(rule):
    generator = np.random.default_rng(1)
    covered, promised = [], 0.0
    for _ in range(15):
        calibrated, sets, labels = calibrated_sets(rule(), 0.8, generator)
        covered.append(lb.metrics.coverage(sets, labels))
        promised = calibrated.promised_coverage
    assert promised < 0.6 < 0.8
    assert np.mean(covered) > 0.8 - 2 * np.std(covered, ddof=1) / len(covered) ** 0.5
    assert np.mean(covered) < 0.99


def test_folds_of_one_model_give_the_sets_of_split_calibration():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(400, 6, generator=generator, dtype=torch.float64)
    probabilities = logits.softmax(-1)
    labels = torch.multinomial(probabilities, 1, generator=generator).squeeze(-1)
    rows = torch.arange(200).reshape(4, 50)
    fresh = probabilities[200:]
    for rule in (LeastAmbiguous(), Mass(), TopK()):
        across = cross_calibrate(
            rule, [probabilities[part] for part in rows], [labels[part] for part in rows]
        )
        split = calibrate(rule, probabilities[:200], labels[:200])
        assert torch.equal(across([fresh] * 4).mask(), split(fresh).mask())


def test_a_drawing_rule_draws_once_for_all_classes_of_an_example():
    probabilities = torch.full((200, 4), 0.25, dtype=torch.float64)
    folds, labels = [probabilities] * 2, [torch.arange(200) % 4] * 2
    sets = cross_calibrate(APS(), folds, labels, coverage=0.5)(folds).to_lists()
    # one number for each example and model: equally probable classes enter in order
    assert all(members == list(range(len(members))) for members in sets)


def test_what_is_missing_is_named():
    probabilities = torch.full((4, 2), 0.5)
    with pytest.raises(lb.errors.ShapeError, match="at least two folds"):
        cross_calibrate(LeastAmbiguous(), [probabilities], [[0, 1, 0, 1]])
    with pytest.raises(lb.errors.ShapeError, match="each of 2 folds; got 1 entries"):
        cross_calibrate(LeastAmbiguous(), [probabilities] * 2, [[0, 1, 0, 1]])
    with pytest.raises(lb.InputError, match="at least 9 examples"):
        cross_calibrate(LeastAmbiguous(), [probabilities] * 2, [[0, 1, 0, 1]] * 2)
    with pytest.raises(lb.InputError, match=r"got 1\.5"):
        cross_calibrate(LeastAmbiguous(), [probabilities] * 2, [[0, 1, 0, 1]] * 2, coverage=1.5)
    calibrated = cross_calibrate(
        LeastAmbiguous(), [probabilities] * 2, [[0, 1, 0, 1]] * 2, coverage=0.5
    )
    with pytest.raises(lb.errors.ShapeError, match="each of 2 folds; got 1 entries"):
        calibrated([probabilities])


def test_a_set_is_never_empty_if_that_is_asked():
    sure = torch.tensor([[0.99, 0.01]]).repeat(20, 1)
    for never_empty, size in ((False, 0), (True, 1)):
        calibrated = cross_calibrate(
            LeastAmbiguous(), [sure] * 2, [[0] * 20] * 2, coverage=0.5, never_empty=never_empty
        )
        assert calibrated([torch.tensor([[0.6, 0.4]])] * 2).size.tolist() == [size]
