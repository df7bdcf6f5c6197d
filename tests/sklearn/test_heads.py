"""A head of a classifier gives the classifier's own probabilities."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVC

from laplacebridge.sklearn.heads import head_of

ACTIVATIONS = ["identity", "logistic", "tanh", "relu"]
CLASSIFIERS = {
    "logistic regression": LogisticRegression(max_iter=1000),
    "no intercept": LogisticRegression(fit_intercept=False, max_iter=1000),
    "discriminant analysis": LinearDiscriminantAnalysis(),
    "pipeline": make_pipeline(
        StandardScaler(), make_pipeline(PolynomialFeatures(2), LogisticRegression(max_iter=1000))
    ),
    **{
        f"perceptron, {name}": make_pipeline(
            StandardScaler(), MLPClassifier((8, 5), activation=name, max_iter=20, random_state=0)
        )
        for name in ACTIVATIONS
    },
}


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("classifier", CLASSIFIERS.values(), ids=CLASSIFIERS.keys())
def test_softmax_of_the_head_is_what_the_classifier_says(classifier, classes):
    inputs, labels = load_iris(return_X_y=True)
    inputs, labels = inputs[labels < classes], labels[labels < classes]
    classifier.fit(inputs, labels)
    head = head_of(classifier, inputs)
    logits = head.linear()(head.features(inputs)).detach()
    if classes == 2:
        logits = torch.cat([torch.zeros_like(logits), logits], -1)
    np.testing.assert_allclose(
        logits.softmax(-1).numpy(), classifier.predict_proba(inputs), atol=1e-12
    )


def test_one_against_the_rest_has_the_same_order_of_classes():
    inputs, labels = load_iris(return_X_y=True)
    classifier = make_pipeline(StandardScaler(), SGDClassifier(loss="log_loss", random_state=0))
    classifier.fit(inputs, labels)
    head = head_of(classifier, inputs)
    logits = head.linear()(head.features(inputs)).detach()
    np.testing.assert_array_equal(logits.argmax(-1).numpy(), classifier.predict(inputs))


@pytest.mark.parametrize("classifier", [GaussianNB(), SVC(kernel="linear"), SGDClassifier()])
def test_others_have_none(classifier):
    inputs, labels = load_iris(return_X_y=True)
    assert head_of(classifier.fit(inputs, labels), inputs) is None
