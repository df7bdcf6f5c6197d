"""Laws that every rule for class sets obeys: those of the public check, and more."""

import pytest
import torch
from cases import SET_RULES, seeded

import laplacebridge as lb
from laplacebridge.sets import calibrate

RULES = pytest.mark.parametrize("name", SET_RULES)
BATCH, CLASSES = 60, 12


def prediction(seed, batch=BATCH, classes=CLASSES, dtype=torch.float64):
    log = 2 * torch.randn(batch, classes, generator=seeded(seed), dtype=torch.float64)
    return lb.Dirichlet((log + torch.log(torch.tensor(classes / 2))).to(dtype))


def thresholds(rule, given, labels):
    """From strict to loose, between the entries of the labels, where nothing is decided
    by rounding.
    """
    ordered = rule.entry(given, labels).unique()
    apart = ordered.diff() > 1e-9
    between = ((ordered[1:] + ordered[:-1]) / 2)[apart].tolist()
    return between if rule.grows_with_threshold else between[::-1]


def labels_of(seed, batch=BATCH):
    return torch.randint(CLASSES, (batch,), generator=seeded(seed))


@RULES
def test_it_passes_the_public_check(name):
    lb.testing.check_set_rule(SET_RULES[name]())


@RULES
def test_float32_and_half_predictions_give_valid_sets_close_to_those_in_float64(name):
    rule, given, labels = SET_RULES[name](), prediction(7), labels_of(8)
    for threshold in thresholds(rule, given, labels)[::10]:
        exact = rule(given, threshold).size
        for dtype, share in ((torch.float32, 0.97), (torch.bfloat16, 0.6)):
            size = rule(given.to(dtype), threshold).size
            assert ((size >= 0) & (size <= CLASSES)).all()
            assert (size == exact).double().mean() >= share


@RULES
def test_calibrated_sets_cover_their_calibration_labels_as_often_as_the_rank_says(name):
    rule, given, labels = SET_RULES[name](), prediction(9, batch=200), labels_of(10, batch=200)
    for coverage in (0.5, 0.9, 0.97):
        calibrated = calibrate(rule, given, labels, coverage=coverage)
        covered = int(calibrated(given).contains(labels).sum())
        assert covered >= calibrated.rank >= coverage * (len(labels) + 1)
        if len(rule.entry(given, labels).unique()) == 200:  # without ties, exactly
            assert covered == calibrated.rank


@pytest.mark.filterwarnings("ignore:These predictions have next to no width")
@RULES
def test_one_hundred_thousand_classes_are_stored_by_members_alone(name):
    rule, classes = SET_RULES[name](), 100_000
    log = 3 * torch.randn(4, classes, generator=seeded(11))
    log[:, 5] = 25.0
    labels = torch.tensor([5, 5, 5, 5])
    for row, entry in enumerate(rule.entry(lb.Dirichlet(log), labels).tolist()):
        sets = rule(
            lb.Dirichlet(log), entry * (1 + 1e-6 if rule.grows_with_threshold else 1 - 1e-6)
        )
        assert sets.contains(labels)[row]
        assert sets.classes.numel() == sets.size.sum() < 100


@RULES
def test_labels_out_of_range_and_empty_predictions_are_named(name):
    rule = SET_RULES[name]()
    with pytest.raises(ValueError, match=f"labels from 0 to {CLASSES - 1}"):
        rule.entry(prediction(12), torch.full((BATCH,), CLASSES))
    with pytest.raises(lb.errors.ShapeError, match="at least one example"):
        rule(prediction(12)[:0], 0.5)
