"""Batches are compared with a baseline: changed ones give an alarm, unchanged ones at
most at the stated rate.
"""

import json

import pytest
import torch
from cases import seeded

import laplacebridge as lb
from laplacebridge.report.monitor import Baseline, compare
from laplacebridge.unusual import Unusual

K = 5


def predictions(count, seed, *, shift=0.0, certain=3.0, classes=K):
    """Predictions whose classes are even, with a score of unusual inputs beside them."""
    labels = torch.randint(classes, (count,), generator=seeded(seed))
    noise = torch.randn(count, K, generator=seeded(seed + 1))
    logits = certain * torch.nn.functional.one_hot(labels, K) + noise
    prediction = lb.predict(lb.LogitGaussian(logits, lb.Diagonal(0.5 * torch.ones(count, K))))
    score = torch.randn(count, generator=seeded(seed + 2)) + shift
    return lb.Prediction(
        prediction.dirichlet, prediction.log_odds_variance, Unusual(score, score.sort().values)
    )


BASELINE = Baseline.of(predictions(800, 0))


def test_unchanged_batches_give_alarms_at_most_at_the_stated_rate():
    """60 batches at a rate of 5 %: more than 8 alarms would be a chance of 0.3 %."""
    alarms = 0
    for place in range(60):
        before = Baseline.of(predictions(150, 10_000 + 7 * place))
        now = predictions(100, 50_000 + 7 * place)
        alarms += compare(before, now, alarm_rate=0.05, seed=place).is_alarm
    assert alarms <= 8


@pytest.mark.slow
@pytest.mark.parametrize(("before", "now"), [(40, 40), (400, 60), (60, 400)])
def test_false_alarms_stay_below_the_stated_rate_over_many_batches(before, now):
    """1000 batches at 10 %: 129 alarms or more would be a chance of 0.2 %; and the test
    is no stub that never gives one.
    """
    everything = predictions((before + now) * 1000, 3)
    order = torch.arange(len(everything)).split([before, now] * 1000)
    alarms = sum(
        compare(
            Baseline.of(everything[first]), everything[second], alarm_rate=0.1, seed=place
        ).is_alarm
        for place, (first, second) in enumerate(zip(order[::2], order[1::2]))
    )
    assert 20 <= alarms < 129


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"shift": 0.7}, "score of unusual inputs"),
        ({"certain": 1.0}, "doubt"),
        ({"certain": 1.0}, "share deferred"),
        ({"classes": 3}, "predicted classes"),
    ],
    ids=["score", "doubt", "deferred", "classes"],
)
def test_what_has_changed_gives_an_alarm(changes, name):
    found = compare(BASELINE, predictions(300, 99, **changes))
    assert found.is_alarm
    assert next(test for test in found.tests if test.name.startswith(name)).is_alarm


def test_what_has_not_changed_is_not_blamed():
    found = compare(BASELINE, predictions(300, 99, shift=0.7))
    assert [test.is_alarm for test in found.tests] == [True, False, False, False]
    assert json.loads(json.dumps(found.to_dict()))["alarm"] is True


def test_a_baseline_is_saved_and_read_and_others_are_refused(tmp_path):
    path = tmp_path / "baseline.json"
    BASELINE.save(path)
    assert Baseline.load(path) == BASELINE
    record = json.loads(path.read_text("utf-8"))
    for change, message in (
        ({"format": "other"}, "is no baseline"),
        ({"version": 99}, "newer version"),
        ({"surprise": 1}, "is damaged"),
    ):
        path.write_text(json.dumps(record | change), "utf-8")
        with pytest.raises(lb.InputError, match=message):
            Baseline.load(path)
    path.write_text("[", "utf-8")
    with pytest.raises(lb.InputError, match="is no baseline"):
        Baseline.load(path)


def test_a_batch_of_another_classifier_is_refused():
    prediction = predictions(50, 1)
    plain = lb.Prediction(prediction.dirichlet, prediction.log_odds_variance)
    with pytest.raises(lb.InputError, match="same classifier"):
        compare(BASELINE, plain)
    with pytest.raises(lb.InputError, match="between 0 and 1"):
        compare(BASELINE, prediction, alarm_rate=0.0)
    with pytest.raises(lb.errors.ShapeError, match="at least two"):
        Baseline.of(prediction[:1])
