"""Calibrated sets agree with MAPIE's: the same thresholds, and the same sets where both
define them alike.
"""

import numpy as np
import pytest
import torch

from laplacebridge.sets import APS, RAPS, LeastAmbiguous, calibrate, cross_calibrate

pytestmark = pytest.mark.crosscheck

SEED, CLASSES, CALIBRATION, FRESH = 3, 8, 400, 300


class Given:
    """A classifier whose inputs are its probabilities."""

    classes_ = np.arange(CLASSES)
    _estimator_type = "classifier"

    def fit(self, inputs, labels):
        return self

    def predict(self, inputs):
        return inputs.argmax(-1)

    def predict_proba(self, inputs):
        return inputs

    def __sklearn_is_fitted__(self):
        return True


def numbers_of_mapie(rule_class, uniforms, **settings):
    """A rule that draws what MAPIE draws: u there is counted from the other end."""

    class Drawn(rule_class):
        def uniforms(self, probabilities):
            return torch.from_numpy(
                1 - np.random.RandomState(uniforms).uniform(size=len(probabilities))
            )

    return Drawn(**settings)


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(SEED)
    logits = 2 * generator.normal(size=(CALIBRATION + FRESH, CLASSES))
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    labels = np.array([generator.choice(CLASSES, p=row) for row in probabilities])
    return probabilities, labels


def mapie_sets(data, conformity_score, confidence_level, **predict):
    classification = pytest.importorskip("mapie.classification")
    probabilities, labels = data
    theirs = classification.SplitConformalClassifier(
        Given(),
        confidence_level=confidence_level,
        conformity_score=conformity_score,
        prefit=True,
        random_state=SEED,
    )
    theirs.conformalize(probabilities[:CALIBRATION], labels[:CALIBRATION])
    _, inside = theirs.predict_set(probabilities[CALIBRATION:], **predict)
    return theirs._mapie_classifier, inside[:, :, 0]


def ours(data, rule, confidence_level):
    probabilities, labels = (torch.from_numpy(array) for array in data)
    calibrated = calibrate(
        rule, probabilities[:CALIBRATION], labels[:CALIBRATION], coverage=confidence_level
    )
    return calibrated, probabilities[CALIBRATION:]


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_least_ambiguous_sets_are_those_of_mapie(data, coverage):
    theirs, inside = mapie_sets(data, "lac", coverage)
    calibrated, fresh = ours(data, LeastAmbiguous(), coverage)
    np.testing.assert_allclose(
        1 - calibrated.threshold, theirs.conformity_score_function_.quantiles_[0], rtol=1e-6
    )
    np.testing.assert_array_equal(calibrated(fresh).mask().numpy(), inside)


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_randomised_adaptive_sets_are_those_of_mapie(data, coverage):
    theirs, inside = mapie_sets(
        data, "aps", coverage, conformity_score_params={"include_last_label": "randomized"}
    )
    calibrated, fresh = ours(data, numbers_of_mapie(APS, SEED), coverage)
    np.testing.assert_allclose(
        calibrated.threshold, theirs.conformity_score_function_.quantiles_[0], rtol=1e-6
    )
    np.testing.assert_array_equal(calibrated(fresh).mask().numpy(), inside)


def test_regularised_scores_and_sets_are_those_of_mapie_at_its_penalty(data):
    # MAPIE chooses penalty and free places on a part of the data and calibrates on the
    # rest; without its last label a set is that of u = 1, but never empty
    theirs, inside = mapie_sets(
        data, "raps", 0.9, conformity_score_params={"include_last_label": False}
    )
    score = theirs.conformity_score_function_
    settings = {
        "penalty": float(np.ravel(score.lambda_star)[0]),
        "free_places": int(np.ravel(score.k_star)[0]),
    }
    assert settings["penalty"] > 0
    fresh = torch.from_numpy(data[0][CALIBRATION:])
    found = RAPS(**settings, generator=None)(fresh, float(np.ravel(score.quantiles_)[0])).mask()
    found[torch.arange(len(found)), fresh.argmax(-1)] = True
    np.testing.assert_array_equal(found.numpy(), inside)


@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_sets_across_folds_are_those_of_mapie(coverage):
    # with n + 1 a multiple of ten both count the same: MAPIE asks for α(n − 1) labels as
    # loose, we for more than α(n + 1) − 1
    classification = pytest.importorskip("mapie.classification")
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import KFold

    generator = np.random.default_rng(SEED)
    inputs = generator.normal(size=(399 + FRESH, 5))
    labels = np.array(
        [
            np.argmax(row + generator.gumbel(size=4))
            for row in inputs @ generator.normal(size=(5, 4))
        ]
    )
    train, train_labels, fresh = inputs[:399], labels[:399], inputs[399:]
    theirs = classification.CrossConformalClassifier(
        LogisticRegression(), confidence_level=coverage, conformity_score="lac", cv=KFold(5)
    ).fit_conformalize(train, train_labels)
    _, inside = theirs.predict_set(fresh, agg_scores="crossval")
    held, wanted, says = [], [], []
    for rows, out in KFold(5).split(train):
        model = LogisticRegression().fit(train[rows], train_labels[rows])
        held.append(torch.from_numpy(model.predict_proba(train[out])))
        wanted.append(torch.from_numpy(train_labels[out]))
        says.append(torch.from_numpy(model.predict_proba(fresh)))
    sets = cross_calibrate(LeastAmbiguous(), held, wanted, coverage=coverage)(says)
    np.testing.assert_array_equal(sets.mask().numpy(), inside[:, :, 0])
