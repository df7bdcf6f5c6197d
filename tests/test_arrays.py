"""NumPy in, NumPy out: the same numbers, in the kind that was given."""

from functools import partial
from inspect import isfunction

import numpy as np
import pytest
import torch

import laplacebridge as lb
from laplacebridge import metrics, scores, selective, sets
from laplacebridge._arrays import to_tensors

GENERATOR = torch.Generator().manual_seed(0)
LOGITS = 2 * torch.randn(200, 4, generator=GENERATOR, dtype=torch.float64)
P = LOGITS.softmax(-1)
Y = torch.multinomial(P, 1, generator=GENERATOR).squeeze(-1)
CALIBRATED = sets.calibrate(sets.LeastAmbiguous(), P, Y)
RULE = selective.calibrate(scores.msp, P, answer_share=0.8)
FEATURES = torch.randn(200, 6, generator=GENERATOR, dtype=torch.float64).abs()
HEAD = torch.nn.Linear(6, 4, dtype=torch.float64).requires_grad_(False)
DOUBT, RIGHT = scores.msp(P), metrics.correct(P, Y)
OF_PROBABILITIES = (
    (scores, "msp", "entropy_of_mean"),
    (metrics, "mmc"),
)
OF_LOGITS = ("energy", "generalised_entropy", "max_logit", "msp_of_logits")
OF_LABELS = (
    *("accuracy", "brier", "correct", "nll", "ece", "adaptive_ece", "classwise_ece"),
    "reliability",
)
# values that only a Dirichlet or a prediction has; with these, the kind is theirs
OF_PREDICTIONS = {
    *("differential_entropy", "expected_entropy", "max_marginal_variance"),
    *("mutual_information", "negative_log_total", "dirichlet_multinomial_nll", "overlap_sets"),
}
OF_NO_ARRAYS = {"clopper_pearson_upper"}


def by_group(calibrate, *given):
    """Calibrated for two groups, and used."""
    prediction, labels = given
    return calibrate(prediction, labels, labels % 2)(prediction, labels % 2)


def sets_and(metric, *given):
    """A metric of sets."""
    return metric(CALIBRATED(given[0]), *given[1:])


CALLS = {
    **{name: (getattr(module, name), P) for module, *names in OF_PROBABILITIES for name in names},
    **{name: (getattr(scores, name), LOGITS) for name in OF_LOGITS},
    **{name: (getattr(metrics, name), P, Y) for name in OF_LABELS},
    "top_k_accuracy": (partial(metrics.top_k_accuracy, k=2), P, Y),
    "ash": (scores.ash, FEATURES, HEAD),
    "knn": (scores.knn, FEATURES, FEATURES),
    "react": (scores.react, FEATURES, FEATURES, HEAD),
    "vim": (scores.vim, FEATURES, FEATURES, HEAD),
    **{
        name: (getattr(scores, name), FEATURES, FEATURES, Y)
        for name in ("mahalanobis", "mahalanobis_plus_plus", "relative_mahalanobis")
    },
    "equal_width": (metrics.equal_width, DOUBT, 5),
    "equal_mass": (metrics.equal_mass, DOUBT, 5),
    "risk_coverage_curve": (metrics.risk_coverage_curve, DOUBT, RIGHT),
    "aurc": (metrics.aurc, DOUBT, RIGHT),
    **{
        name: (getattr(metrics, name), DOUBT[:100], DOUBT[100:])
        for name in ("auroc", "aupr", "fpr_at_tpr")
    },
    "mean_set_size": (partial(sets_and, metrics.mean_set_size), P),
    **{
        name: (partial(sets_and, getattr(metrics, name)), P, Y)
        for name in ("coverage", "coverage_by_size", "size_stratified_coverage")
    },
    "coverage_by_group": (partial(sets_and, metrics.coverage_by_group), P, Y, Y % 2),
    "bootstrap": (partial(metrics.bootstrap, metrics.accuracy), P, Y),
    "sets of a rule": (lambda given: sets.Mass()(given, 0.9), P),
    "entry": (sets.APS(None).entry, P, Y),
    "sets.calibrate": (sets.calibrate, sets.LeastAmbiguous(), P, Y),
    "calibrated sets": (CALIBRATED, P),
    "sets.calibrate_by_class": (
        lambda *given: sets.calibrate_by_class(sets.Mass(), *given)(given[0]),
        P,
        Y,
    ),
    "sets.calibrate_by_group": (
        partial(by_group, partial(sets.calibrate_by_group, sets.Mass())),
        P,
        Y,
    ),
    "cross_calibrate": (
        lambda *given: sets.cross_calibrate(sets.Mass(), [given[0]] * 2, [given[1]] * 2)(
            [given[0]] * 2
        ),
        P,
        Y,
    ),
    "selective.calibrate": (partial(selective.calibrate, scores.msp, risk=0.4), P, Y),
    "selective.calibrate_by_class": (
        lambda *given: selective.calibrate_by_class(scores.msp, *given, risk=0.7)(given[0]),
        P,
        Y,
    ),
    "selective.calibrate_by_group": (
        partial(by_group, partial(selective.calibrate_by_group, scores.msp, risk=0.7)),
        P,
        Y,
    ),
    "review": (selective.review, P, 5),
    "answers": (RULE.answers, P),
    "decisions": (RULE, P),
    "temperature_scaling": (lb.temperature.temperature_scaling, LOGITS, Y),
    "scaled": (lb.temperature.TemperatureScaling(2.0, 1.0, 1.0), LOGITS),
    "evaluate": (lb.report.evaluate, P, Y),
}


def test_every_public_function_is_called_with_arrays():
    for module in (sets, scores, metrics, selective, lb.report, lb.temperature):
        for name, found in vars(module).items():
            ours = isfunction(found) and found.__module__.startswith(module.__name__)
            if ours and not name.startswith("_"):
                known = {name, f"{module.__name__.rpartition('.')[2]}.{name}"}
                assert known & ({*CALLS} | OF_PREDICTIONS | OF_NO_ARRAYS), name


@pytest.mark.parametrize("name", sorted(OF_PREDICTIONS - {"overlap_sets"}))  # see its own tests
def test_what_needs_a_prediction_says_so_to_arrays_too(name):
    module = next(module for module in (scores, metrics, sets) if hasattr(module, name))
    votes = [Y.numpy()] if name == "dirichlet_multinomial_nll" else []
    with pytest.raises(lb.LaplaceBridgeError, match="Dirichlet"):
        getattr(module, name)(P.numpy(), *votes)


def flat(value):
    """All numbers of an answer, and the kinds that they are in."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return [np.asarray(value)], {type(value)}
    found, kinds = [], set()
    parts = vars(value).values() if hasattr(value, "__dict__") else ()
    for part in parts:
        numbers, more = flat(part)
        found, kinds = found + numbers, kinds | more
    return found, kinds


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_arrays_give_what_tensors_give_as_arrays(call):
    function, *arguments = call
    if isinstance(function, partial) and function.func is metrics.bootstrap:
        function = partial(function, generator=torch.Generator().manual_seed(1))
    expected = function(*arguments)
    if isinstance(function, partial) and function.func is metrics.bootstrap:
        function = partial(function, generator=torch.Generator().manual_seed(1))
    arrays = [each.numpy() if isinstance(each, torch.Tensor) else each for each in arguments]
    answer = function(*arrays)
    (wanted, _), (found, kinds) = flat(expected), flat(answer)
    assert kinds <= {np.ndarray}
    assert len(wanted) == len(found)
    for one, other in zip(wanted, found):
        np.testing.assert_allclose(one, other)
    if not found:
        assert repr(answer) == repr(expected)


def test_values_of_arrays_answer_with_arrays():
    found, expected = CALIBRATED(P.numpy()), CALIBRATED(P)
    assert isinstance(found.size, np.ndarray)
    np.testing.assert_array_equal(found.mask(), expected.mask().numpy())
    np.testing.assert_array_equal(found.contains(Y.numpy()), expected.contains(Y).numpy())
    assert found.to_lists() == expected.to_lists()
    assert repr(found) == repr(expected)
    assert found[3:5].to_lists() == expected[3:5].to_lists()
    assert metrics.coverage(found, Y.numpy()) == metrics.coverage(expected, Y)
    assert RULE(P.numpy()).to_lists() == RULE(P).to_lists()


def test_a_prediction_decides_the_kind():
    prediction = lb.predict(lb.LogitGaussian(LOGITS, lb.Diagonal(torch.ones_like(LOGITS))))
    assert isinstance(metrics.correct(prediction, Y.numpy()), torch.Tensor)


def test_arrays_of_any_layout_are_taken():
    odd = np.asfortranarray(P.numpy()[::-1])
    odd.flags.writeable = False
    np.testing.assert_allclose(scores.msp(odd), scores.msp(P.flip(0)).numpy())
    assert metrics.accuracy(P.numpy(), Y.numpy().astype(np.uint8)) == metrics.accuracy(P, Y)
    swapped = P.numpy().astype(P.numpy().dtype.newbyteorder())
    np.testing.assert_allclose(scores.msp(swapped), scores.msp(P).numpy())
    with pytest.raises(lb.errors.InputTypeError, match="return_inverse"):
        metrics.accuracy(P.numpy(), np.array(["cat"] * 200))


def test_frames_are_arrays_too():
    pd = pytest.importorskip("pandas")
    assert metrics.nll(pd.DataFrame(P.numpy()), pd.Series(Y.numpy())) == metrics.nll(P, Y)


def test_a_metric_of_arrays_is_given_arrays():
    def share(probabilities, labels):
        assert isinstance(probabilities, np.ndarray)
        return float((probabilities.argmax(-1) == labels).mean())

    interval = metrics.bootstrap(share, P.numpy(), Y.numpy(), num_resamples=50)
    assert interval.low < interval.estimate < interval.high


def test_a_frame_of_predictions_has_a_row_for_each():
    pytest.importorskip("pandas")
    prediction = lb.predict(lb.LogitGaussian(LOGITS, lb.Diagonal(torch.ones_like(LOGITS))))
    frame = prediction.to_pandas(["a", "b", "c", "d"])
    assert len(frame) == 200
    assert set(frame["label"]) <= set("abcd")
    np.testing.assert_allclose(frame["p(b)"], prediction.mean[:, 1].numpy())
    with pytest.raises(lb.errors.ShapeError, match="each of 4 classes; got 1"):
        prediction.to_pandas(["a"])


FEATURES = torch.rand(60, 5, generator=GENERATOR)
CLASSES = torch.arange(60) % 3
HEAD = torch.nn.Linear(5, 3)


@pytest.mark.parametrize(
    ("score", "known"),
    [
        (scores.mahalanobis, (FEATURES, CLASSES)),
        (scores.relative_mahalanobis, (FEATURES, CLASSES)),
        (scores.mahalanobis_plus_plus, (FEATURES, CLASSES)),
        (partial(scores.knn, neighbours=3), (FEATURES,)),
        (partial(scores.vim, head=HEAD), (FEATURES,)),
        (partial(scores.react, head=HEAD), (FEATURES,)),
        (partial(scores.ash, head=HEAD), ()),
    ],
    ids=["mahalanobis", "relative", "plus plus", "knn", "vim", "react", "ash"],
)
def test_scores_of_features_take_arrays(score, known):
    expected = score(FEATURES[:7], *known)
    found = score(FEATURES[:7].numpy(), *(each.numpy() for each in known))
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, expected.numpy())


def test_rows_of_probabilities_may_be_lists():
    assert metrics.nll(P.tolist(), Y.tolist()) == pytest.approx(metrics.nll(P, Y))
    np.testing.assert_allclose(scores.msp(P.tolist()), scores.msp(P).numpy())


@pytest.mark.parametrize("given", [[[0.5, 0.5], 3], [[0.5, 0.5], []], [[0.5, 0.5], None]])
def test_lists_that_are_no_rows_reach_the_checks_of_a_function_as_they_are(given):
    assert to_tensors(given) is given


def test_gaussians_are_made_of_arrays():
    given = lb.LogitGaussian.from_moments(LOGITS.numpy(), np.ones((200, 4)))
    torch.testing.assert_close(lb.predict(given).mean, lb.predict(given).mean)
    assert given.mean.dtype == torch.float64
    members = torch.stack([LOGITS, LOGITS + 1, LOGITS.flip(-1)])
    torch.testing.assert_close(
        lb.LogitGaussian.from_samples(members.numpy()).variance,
        lb.LogitGaussian.from_samples(members).variance,
    )


def test_groups_may_be_arrays_of_names():
    names = np.where(np.arange(200) % 2 == 0, "even", "odd")
    calibrated = sets.calibrate_by_group(sets.Mass(), P.numpy(), Y.numpy(), names)
    found = calibrated(P.numpy(), names)
    expected = sets.calibrate_by_group(sets.Mass(), P, Y, names.tolist())(P, names.tolist())
    assert found.to_lists() == expected.to_lists()


def test_a_report_on_arrays_is_written_like_one_on_tensors(tmp_path):
    for name, given in (("tensors", (P, Y)), ("arrays", (P.numpy(), Y.numpy()))):
        lb.report.evaluate(*given).save(tmp_path / f"{name}.html")
    pages = [(tmp_path / f"{name}.html").read_text("utf-8") for name in ("tensors", "arrays")]
    assert pages[0] == pages[1]
