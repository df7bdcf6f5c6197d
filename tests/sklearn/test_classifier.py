"""`LaplaceBridgeClassifier` is a classifier of scikit-learn, and says how sure it is."""

import io
import warnings
from functools import partial

import joblib
import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    RepeatedStratifiedKFold,
    cross_val_score,
    train_test_split,
)
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import laplacebridge as lb
from laplacebridge.sklearn import LaplaceBridgeClassifier

NAMES = np.array(["setosa", "versicolor", "virginica"])
pytestmark = pytest.mark.filterwarnings("ignore:With .* held-out labels:UserWarning")


def scaled(classifier):
    return make_pipeline(StandardScaler(), classifier)


@pytest.fixture(scope="module")
def iris():
    inputs, labels = load_iris(return_X_y=True)
    return train_test_split(inputs, NAMES[labels], random_state=0, stratify=labels)


@pytest.fixture(scope="module")
def fitted(iris):
    train, _, labels, _ = iris
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LaplaceBridgeClassifier(scaled(LogisticRegression())).fit(train, labels)


def test_answers_have_the_shapes_and_classes_of_scikit_learn(iris, fitted):
    _, test, _, truth = iris
    probabilities = fitted.predict_proba(test)
    lower, upper = fitted.predict_interval(test)
    assert fitted.classes_.tolist() == NAMES.tolist()
    assert fitted.n_features_in_ == 4
    np.testing.assert_allclose(probabilities.sum(-1), 1)
    top = np.arange(len(test)), probabilities.argmax(-1)
    inside = (lower[top] < probabilities[top]) & (probabilities[top] < upper[top])
    assert inside.mean() > 0.9  # the mean of a skewed distribution may lie beyond a quantile
    assert fitted.score(test, truth) > 0.9
    assert fitted.predict_set(test).dtype == bool
    assert fitted.predict_set(test).any(-1).all()
    wider, narrower = (fitted.predict_interval(test, level)[1] for level in (0.99, 0.5))
    assert (wider >= narrower).all()


def test_a_decision_names_classes_of_the_user_and_why(iris, fitted):
    _, test, _, _ = iris
    decisions = fitted.decision(np.concatenate([test, 100 * test[:5]]))
    assert {decision.action for decision in decisions[: len(test)]} >= {"answer"}
    for decision in decisions:
        assert set(decision.classes) <= set(NAMES)
        assert len(decision.classes) == {"answer": 1, "set": 2, "defer": 0}[decision.action]
    assert all(
        decision.action == "defer" and decision.reason in {"unusual", "both"}
        for decision in decisions[-5:]
    )


def test_usual_inputs_score_higher_as_with_other_detectors(iris, fitted):
    _, test, _, _ = iris
    assert fitted.score_samples(test).min() > fitted.score_samples(100 * test).max()


def test_far_away_nothing_is_known(iris, fitted):
    _, test, _, _ = iris
    far = fitted.predict_proba(1e4 * test)
    np.testing.assert_allclose(far, 1 / 3, atol=0.1)
    lower, upper = fitted.predict_interval(1e4 * test)
    assert (upper - lower).min() > 0.9


def test_clones_grids_scores_pipelines_and_joblib(iris, fitted):
    train, test, labels, _ = iris
    assert clone(fitted).get_params().keys() == fitted.get_params().keys()
    grid = GridSearchCV(
        LaplaceBridgeClassifier(scaled(LogisticRegression()), cv=2),
        {"estimator__logisticregression__C": [0.01, 1.0]},
        scoring="neg_log_loss",
        cv=2,
    ).fit(train, labels)
    assert grid.best_params_["estimator__logisticregression__C"] == 1.0
    outside = make_pipeline(StandardScaler(), LaplaceBridgeClassifier(cv=2))
    assert cross_val_score(outside, train, labels, cv=3, scoring="neg_log_loss").mean() > -0.4
    file = io.BytesIO()
    joblib.dump(fitted, file)
    file.seek(0)
    loaded = joblib.load(file)
    np.testing.assert_array_equal(loaded.predict_proba(test), fitted.predict_proba(test))
    np.testing.assert_array_equal(loaded.predict_set(test), fitted.predict_set(test))


def test_frames_in_and_out(iris, fitted):
    pd = pytest.importorskip("pandas")
    train, test, labels, _ = iris
    columns = list("abcd")
    train, test = (
        pd.DataFrame(part, columns=columns, index=np.arange(len(part)) + 7)
        for part in (train, test)
    )
    model = clone(fitted).set_output(transform="pandas").fit(train, pd.Series(labels))
    assert model.feature_names_in_.tolist() == columns
    probabilities, (lower, _) = model.predict_proba(test), model.predict_interval(test)
    for frame in (probabilities, lower, model.predict_set(test)):
        assert frame.columns.tolist() == NAMES.tolist()
        assert frame.index.equals(test.index)
    assert model.decision(test).columns.tolist() == ["action", "classes", "reason"]
    np.testing.assert_allclose(
        model.set_output(transform="default").predict_proba(test), probabilities
    )
    with pytest.raises(lb.InputError, match="'pandas'"):
        model.set_output(transform="excel")


def test_sparse_inputs_give_what_dense_ones_give():
    inputs, labels = load_digits(return_X_y=True)
    inputs, labels = inputs[:300] / 16, labels[:300]
    dense, thin = (
        LaplaceBridgeClassifier(cv=2).fit(form(inputs[:250]), labels[:250])
        for form in (np.asarray, sparse.csr_array)
    )
    np.testing.assert_allclose(
        thin.predict_proba(sparse.csr_array(inputs[250:])),
        dense.predict_proba(inputs[250:]),
        atol=1e-6,
    )


@pytest.mark.parametrize("freeze", ["frozen", "prefit"])
def test_a_trained_classifier_is_calibrated_and_not_trained_again(iris, freeze):
    train, test, labels, truth = iris
    trained = scaled(LogisticRegression()).fit(train[:60], labels[:60])
    weights = trained[-1].coef_.copy()
    model = (
        LaplaceBridgeClassifier(FrozenEstimator(trained))
        if freeze == "frozen"
        else LaplaceBridgeClassifier(trained, cv="prefit")
    ).fit(train[60:], labels[60:], X_train=train[:60], y_train=labels[:60])
    assert model.estimator_ is trained
    np.testing.assert_array_equal(trained[-1].coef_, weights)
    assert model.score(test, truth) > 0.9
    assert not model.fold_estimators_
    assert model.predict_set(test, coverage=0.8).sum(-1).mean() < 1.5
    with pytest.raises(lb.InputError, match="does not know"):
        model.fit(train[60:], np.char.add(labels[60:], "?"))


def test_training_data_are_for_trained_classifiers_alone(iris):
    train, _, labels, _ = iris
    with pytest.raises(lb.InputError, match="already trained"):
        LaplaceBridgeClassifier().fit(train, labels, X_train=train, y_train=labels)


def test_a_network_is_wrapped_as_it_is(iris):
    train, test, labels, truth = iris
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    codes = torch.from_numpy(np.searchsorted(NAMES, labels))
    inputs = torch.from_numpy(train).float()
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(150):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(inputs[:60]), codes[:60]).backward()
        optimiser.step()
    model = LaplaceBridgeClassifier(network).fit(train[60:], labels[60:])
    assert model.score(test, truth) > 0.85
    own = network(torch.from_numpy(test).float()).softmax(-1).detach().numpy()
    assert log_loss(truth, model.predict_proba(test)) < log_loss(truth, own) + 0.05
    assert model.predict_interval(test)[0].shape == (len(test), 3)


def test_a_network_takes_frames(iris):
    pd = pytest.importorskip("pandas")
    train, test, labels, _ = iris
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is not trained
        warnings.filterwarnings("error", message=".*not writable")
        of_frames = LaplaceBridgeClassifier(network).fit(pd.DataFrame(train), pd.Series(labels))
        of_arrays = LaplaceBridgeClassifier(network).fit(train, labels)
        LaplaceBridgeClassifier(cv=2).fit(pd.DataFrame(train), labels)
    answers = of_frames.predict_proba(pd.DataFrame(test))
    np.testing.assert_allclose(answers, of_arrays.predict_proba(test), rtol=1e-6)


def test_other_classifiers_have_sets_and_decisions_and_say_what_they_lack(iris):
    train, test, labels, _ = iris
    model = LaplaceBridgeClassifier(RandomForestClassifier(20, random_state=0)).fit(train, labels)
    np.testing.assert_array_equal(model.predict_proba(test), model.estimator_.predict_proba(test))
    assert model.classifier_ is None
    assert model.predict_set(test, coverage=0.8).any(-1).all()
    assert {decision.action for decision in model.decision(test)} >= {"answer"}
    assert model.decision(test, risk=0.2)[0].action == "answer"
    for method in ("predict_interval", "score_samples", "prediction"):
        assert not hasattr(model, method)
        with pytest.raises(lb.LaplaceBridgeError, match="RandomForestClassifier has none"):
            getattr(model, method)


def test_a_risk_bounds_the_share_of_wrong_answers():
    inputs, labels = load_breast_cancer(return_X_y=True)
    train, test, labels, truth = train_test_split(inputs, labels, random_state=1)
    model = LaplaceBridgeClassifier(scaled(LogisticRegression()), cv=3).fit(train, labels)
    decisions = model.decision(test, risk=0.05)
    answered = [row for row, decision in enumerate(decisions) if decision.action == "answer"]
    assert len(answered) > 100
    assert np.mean([decisions[row].classes[0] != truth[row] for row in answered]) < 0.05
    with pytest.raises(lb.InputError, match="needs at least"):
        model.decision(test, risk=0.001)


def test_bad_arguments_are_refused_in_words(iris):
    train, test, labels, _ = iris
    with pytest.raises(lb.InputError, match="predict_proba"):
        LaplaceBridgeClassifier(LinearSVC()).fit(train, labels)
    with pytest.raises(lb.InputError, match="'prefit'; got 'fitted'"):
        LaplaceBridgeClassifier(cv="fitted").fit(train, labels)
    with pytest.raises(lb.InputError, match="between 0 and 1; got 90"):
        LaplaceBridgeClassifier(coverage=90.0).fit(train, labels)
    with pytest.raises(lb.InputError, match="every class among the training rows"):
        LaplaceBridgeClassifier(cv=GroupKFold(3).split(train, groups=labels)).fit(train, labels)
    with pytest.raises(NotFittedError):
        LaplaceBridgeClassifier().predict_set(test)


def test_too_few_to_hold_out_are_fitted_by_evidence_and_have_no_sets():
    inputs, labels = np.eye(3), ["a", "b", "c"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LaplaceBridgeClassifier().fit(inputs, labels)
    assert model.predict_proba(inputs).shape == (3, 3)
    with pytest.raises(lb.InputError, match="too few to hold some out"):
        model.predict_set(inputs)


@pytest.mark.slow
@pytest.mark.parametrize("load", [load_breast_cancer, load_wine, load_digits])
def test_probabilities_are_not_worse_than_the_classifiers_own_beyond_chance(load):
    inputs, labels = load(return_X_y=True)
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=5, random_state=0)
    differences = []
    for train, test in folds.split(inputs, labels):
        model = LaplaceBridgeClassifier(scaled(LogisticRegression(max_iter=1000)))
        model.fit(inputs[train], labels[train])
        own = log_loss(labels[test], model.estimator_.predict_proba(inputs[test]))
        differences.append(log_loss(labels[test], model.predict_proba(inputs[test])) - own)
    # folds share training data: the corrected variance of Nadeau and Bengio (2003)
    variance = np.var(differences, ddof=1) * (1 / len(differences) + 1 / 4)
    assert np.mean(differences) < 2 * np.sqrt(variance)
    assert np.mean(differences) < 0.005  # and chance is not all that hides it


def test_intervals_hold_the_true_probability():
    generator = np.random.default_rng(0)
    held = []
    for _ in range(8):
        weight = generator.normal(size=3)
        inputs = generator.normal(size=(1300, 3))
        true = 1 / (1 + np.exp(-inputs @ weight))
        labels = (generator.random(1300) < true).astype(int)
        model = LaplaceBridgeClassifier(LogisticRegression()).fit(inputs[:300], labels[:300])
        lower, upper = model.predict_interval(inputs[300:])
        held.append(np.mean((lower[:, 1] <= true[300:]) & (true[300:] <= upper[:, 1])))
    assert 0.85 < np.mean(held) <= 1.0  # 0.54 with a prior chosen by validation alone


def test_the_rows_to_look_at_first_are_named_with_the_reason(iris, fitted):
    train, test, labels, _ = iris
    far = np.concatenate([test, 100 * test[:2]])
    cases = fitted.review(far, n=6)
    assert {case.row for case in cases[:2]} == {len(test), len(test) + 1}
    assert {case.reason for case in cases[:2]} <= {"unusual", "both"}
    assert cases[2].reason == "ambiguous"
    assert {case.predicted for case in cases} <= set(NAMES)
    doubt = 1 - fitted.predict_proba(test).max(-1)
    assert cases[2].row == doubt.argmax()
    forest = LaplaceBridgeClassifier(RandomForestClassifier(20, random_state=0)).fit(train, labels)
    assert forest.review(test, n=1)[0].row == (1 - forest.predict_proba(test).max(-1)).argmax()


def test_a_review_as_a_frame_keeps_the_index_of_its_rows(iris, fitted):
    pd = pytest.importorskip("pandas")
    train, test, labels, _ = iris
    index = [f"flower {row}" for row in range(len(test))]
    model = clone(fitted).set_output(transform="pandas").fit(train, labels)
    found = model.review(pd.DataFrame(test, index=index), n=3)
    assert found.index.tolist() == [index[row] for row in found["row"]]
    assert found.columns[1] == "reason"


def test_a_report_is_written_about_rows_that_were_not_seen(iris, fitted, tmp_path):
    train, test, labels, truth = iris
    found = fitted.report(test, truth, tmp_path / "report.html", ood=20 * test[:10], progress=False)
    assert "versicolor" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert found.class_names == tuple(NAMES)
    probabilities = torch.from_numpy(fitted.predict_proba(test))
    torch.testing.assert_close(found.prediction.mean.double(), probabilities)
    with pytest.raises(lb.InputError, match="class 'rose'"):
        fitted.report(test, np.where(truth == "setosa", "rose", truth))
    several = fitted.report(
        test,
        truth,
        ood={"far": 20 * test[:10], "near": 2 * test[:10]},
        validation=(train, labels),
        progress=False,
    )
    assert set(several.ood) == {"far", "near"}
    with pytest.raises(lb.InputError, match="pair"):
        fitted.report(test, truth, validation=train)
    forest = LaplaceBridgeClassifier(RandomForestClassifier(5, random_state=0)).fit(train, labels)
    judged = forest.report(test, truth, tmp_path / "forest.html")  # by its probabilities alone
    assert judged.own_row.accuracy == forest.score(test, truth)
    assert judged.intervals is None
    assert "no intervals" in (tmp_path / "forest.html").read_text(encoding="utf-8")
    with pytest.raises(lb.InputError, match="last linear layer"):
        forest.report(test, truth, ood=test)


@pytest.fixture
def by_skorch():
    """Makes networks that skorch trains."""
    skorch = pytest.importorskip("skorch")
    return partial(
        skorch.NeuralNetClassifier,
        torch.nn.Linear,
        module__in_features=4,
        module__out_features=3,
        criterion=torch.nn.CrossEntropyLoss,
        max_epochs=20,
        lr=0.1,
        train_split=None,
        verbose=0,
    )


@pytest.mark.crosscheck
@pytest.mark.parametrize(
    "kind", ["float32", "float64", "double weights", "frame", "pipeline", "alone"]
)
def test_a_network_of_skorch_is_trained_and_wrapped(iris, by_skorch, kind, tmp_path):
    """On what other classifiers take: names as labels, frames, and double precision."""
    pd = pytest.importorskip("pandas")
    train, test, labels, truth = iris
    net = by_skorch(module__dtype=torch.float64 if kind == "double weights" else torch.float32)
    if kind == "float32":
        train, test = train.astype(np.float32), test.astype(np.float32)
    if kind == "frame":
        train, test = pd.DataFrame(train).add_prefix("column "), pd.DataFrame(test)
    if kind == "pipeline":
        net = make_pipeline(StandardScaler(), net)
    if kind == "alone":
        net = make_pipeline(net)
    model = LaplaceBridgeClassifier(net, cv=2)
    torch.manual_seed(0)
    model.fit(train, labels)
    assert list(model.classes_) == list(NAMES)
    assert (model.predict(test) == truth).mean() > 0.6
    lower, upper = model.predict_interval(test)
    assert (lower <= upper).all()
    codes = np.searchsorted(NAMES, truth)
    assert model.predict_set(test)[np.arange(len(truth)), codes].mean() > 0.8
    assert {case.action for case in model.decision(test)} <= {"answer", "set", "defer"}
    assert model.score_samples(50 * test).max() < model.score_samples(test).min()
    joblib.dump(model, tmp_path / "model.joblib")
    loaded = joblib.load(tmp_path / "model.joblib")
    assert np.array_equal(loaded.predict_proba(test), model.predict_proba(test))


@pytest.mark.crosscheck
@pytest.mark.filterwarnings("ignore:The network fits")  # hardly trained
def test_wrapping_changes_nothing_of_what_skorch_trains(iris, by_skorch):
    train, _, labels, _ = iris
    codes = np.searchsorted(NAMES, labels)
    torch.manual_seed(0)
    alone = by_skorch().fit(train.astype(np.float32), codes)
    torch.manual_seed(0)
    wrapped = LaplaceBridgeClassifier(by_skorch(), cv=2).fit(train, labels)
    assert wrapped.estimator_.module_.weight.equal(alone.module_.weight)
    search = GridSearchCV(
        LaplaceBridgeClassifier(by_skorch(), cv=2),
        {"estimator__lr": [1e-6, 0.1]},
        cv=2,
        error_score="raise",
    )
    assert search.fit(train, labels).best_params_ == {"estimator__lr": 0.1}


def test_rows_that_a_trained_classifier_has_not_seen_are_not_called_its_training_data(iris):
    train, test, labels, truth = iris
    trained = LogisticRegression().fit(train, labels)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The held-out data are the training data")
        model = LaplaceBridgeClassifier(trained, cv="prefit").fit(test, truth)
        with pytest.raises(UserWarning, match="are the training data"):
            model.fit(train, labels, X_train=train, y_train=labels)


def test_a_hard_problem_with_balanced_classes_is_not_called_untrained():
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(300, 3))
    labels = (generator.random(300) < 0.2 + 0.1 * (inputs[:, 0] > 0)).astype(int)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The network gets")
        LaplaceBridgeClassifier(LogisticRegression(class_weight="balanced")).fit(inputs, labels)


def test_a_report_speaks_of_columns_and_of_scikit_learn(tmp_path):
    pd = pytest.importorskip("pandas")
    inputs, labels = load_wine(return_X_y=True, as_frame=True)
    train, test, known, truth = train_test_split(inputs, labels, test_size=0.5, random_state=0)
    model = LaplaceBridgeClassifier(scaled(LogisticRegression())).fit(train, known)
    found = model.report(test, truth, tmp_path / "report.html", ood=5 * test + 3, progress=False)
    named = {name for specimen in found.specimens for name in specimen.cells}
    assert named
    assert named <= set(inputs.columns)
    assert "model.predict_proba(X_new)" in found.advice.code
    assert "model.score_samples(X_new)" in found.advice.code
    assert found.advice.command == ""
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "train_loader, val_loader=val_loader)\nprediction" not in page
    pairs = pd.DataFrame({"a": [0.0, 1.0] * 20, "b": range(40)})
    network = MLPClassifier((3,), max_iter=20, random_state=0)  # whose features have no names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        perceptron = LaplaceBridgeClassifier(network, cv=2).fit(pairs, [0, 1] * 20)
        judged = perceptron.report(pairs, [0, 1] * 20, progress=False)
    assert not {"a", "b"} & {name for each in judged.specimens for name in each.cells}
