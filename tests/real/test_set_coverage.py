"""Calibrated sets cover on real predictions as the theory says: beta-binomially,
exactly.

For a random split of any fixed pool of examples without ties, the number of covered
test examples is beta-binomial, whatever the model. So the mean over splits must lie
within the sampling error of that distribution's mean. Ties can only add coverage: a
rule that always keeps the best class covers at least as much as the model is accurate.
"""

import math

import pytest
import torch
from cases import SET_RULES, seeded
from scipy import stats
from sklearn.datasets import load_digits
from small_network import trained
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import laplacebridge as lb
from laplacebridge.sets import APS, RAPS, SetRule, calibrate

SPLITS = 200
FULL_SPLITS = 3  # for which sets are really made; for the rest membership is read off the entries
BAND = stats.norm.ppf(1 - 0.001 / 2)


class Known(SetRule):
    """A rule whose entries were computed before: a prediction is one entry."""

    def __init__(self, grows_with_threshold):
        self.grows_with_threshold = grows_with_threshold

    def __call__(self, prediction, threshold):
        raise NotImplementedError

    def entry(self, prediction, labels):
        return prediction


def digits():
    """A small network on some of scikit-learn's digits; its Dirichlets for the others.

    It is right on fewer of them than any set below must cover, so that no threshold
    lies where best classes tie.
    """
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=seeded(0))
    images, labels = (
        torch.tensor(images / 16, dtype=torch.float32)[order],
        torch.tensor(labels)[order],
    )
    training, judged = (images[:300], labels[:300]), (images[300:], labels[300:])
    model = trained(
        lambda: nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
        *training,
        steps=100,
        learning_rate=1e-3,
    )
    return predicted(model, training, judged)


def predicted(model, training, judged):
    loader = DataLoader(TensorDataset(*training), batch_size=500)
    classifier = lb.fit(model, loader, prior_precision=10.0, progress=False)
    images, labels = judged
    with torch.no_grad():
        logs = [classifier(part).dirichlet.log_concentration for part in images.split(500)]
    return lb.Dirichlet(torch.cat(logs).double()), labels


def examples(data):
    return data.scaled, data.labels


def cifar_10(folder):
    from laplacebridge_reproduction import data, models

    training, test = (data.find("cifar-10", split, folder) for split in ("train", "test"))
    network = models.pretrained("cifar-10-resnet20", folder)
    return predicted(network, examples(training[:5000]), examples(test[:4000]))


def cifar_100(folder):
    from laplacebridge_reproduction import data, models

    test = data.find("cifar-100", "test", folder)
    network = models.pretrained("cifar-100-resnet14", folder)
    return predicted(network, examples(test[:5000]), examples(test[5000:9000]))


RULES = {
    **SET_RULES,
    "APS randomised": lambda: APS(seeded(7)),
    "RAPS randomised": lambda: RAPS(penalty=0.01, free_places=2, generator=seeded(8)),
}


def check(rule, prediction, labels, coverage):
    entries = rule.entry(prediction, labels)
    half = len(labels) // 2
    covered, tied, generator = [], False, seeded(11)
    for split in range(SPLITS):
        order = torch.randperm(len(labels), generator=generator)
        chosen, fresh = order[:half], order[half:]
        calibrated = calibrate(
            Known(rule.grows_with_threshold), entries[chosen], labels[chosen], coverage=coverage
        )
        threshold = calibrated.threshold
        inside = (
            entries[fresh] <= threshold
            if rule.grows_with_threshold
            else entries[fresh] >= threshold
        )
        covered.append(inside.double().mean().item())
        tied = tied or ((entries - threshold).abs() < 1e-6 * abs(threshold) + 1e-12).sum() > 1
        if split < FULL_SPLITS and getattr(rule, "generator", None) is None:
            made = calibrate(rule, prediction[chosen], labels[chosen], coverage=coverage)
            assert made.threshold == pytest.approx(threshold)
            assert torch.equal(made(prediction[fresh]).contains(labels[fresh]), inside)
    expected = stats.betabinom(len(fresh), calibrated.rank, half + 1 - calibrated.rank)
    mean, error = (
        expected.mean() / len(fresh),
        BAND * expected.std() / len(fresh) / math.sqrt(SPLITS),
    )
    found = sum(covered) / SPLITS
    assert found > mean - error
    if not tied:
        assert found < mean + error


@pytest.mark.parametrize("coverage", [0.9, 0.95])
@pytest.mark.parametrize("name", RULES)
def test_calibrated_sets_cover_digits(name, coverage, digits_prediction):
    check(RULES[name](), *digits_prediction, coverage)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("network", [cifar_10, cifar_100], ids=["CIFAR-10", "CIFAR-100"])
def test_calibrated_sets_cover_real_images(network, name, image_predictions):
    for coverage in (0.9, 0.95):
        check(RULES[name](), *image_predictions(network), coverage)


@pytest.fixture(scope="module")
def digits_prediction():
    return digits()


@pytest.fixture(scope="module")
def image_predictions(data_folder):
    known = {}

    def of(network):
        if network not in known:
            known[network] = network(data_folder)
        return known[network]

    return of
