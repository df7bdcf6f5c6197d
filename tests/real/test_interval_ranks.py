"""Intervals of classes of every rank on real heads of 100 and 1000 classes, against the
posterior that they come from, sampled."""

import warnings

import pytest
import torch
from rank_coverage import coverage_by_rank

import laplacebridge as lb
from laplacebridge_reproduction.data import find
from laplacebridge_reproduction.models import pretrained

pytestmark = [pytest.mark.data, pytest.mark.slow]
SAMPLES = 1000


def cifar_100(folder):
    network = pretrained("cifar-100-resnet14", folder)
    training, test = (find("cifar-100", split, folder) for split in ("train", "test"))
    loader = [(part.inputs.float() / 255, part.labels) for part in (training[:1500],)]
    return lb.fit(network, loader, prior_precision=5.0, progress=False), (
        test[:60].inputs.float() / 255
    )


def imagenet(folder):
    features = find("imagenet-features", "test", folder)
    head = pretrained("imagenet-efficientnet-lite0", folder)._fc
    loader = [(features[::2].inputs.float(), features[::2].labels)]
    classifier = lb.fit(head, loader, prior_precision=560.0, progress=False)
    return classifier, features[1:41:2].inputs.float()


@pytest.mark.parametrize("case", [cifar_100, imagenet])
def test_intervals_cover_classes_of_every_rank(case, data_folder):
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of few examples
        classifier, inputs = case(data_folder)
        found = coverage_by_rank(
            classifier.logits(inputs), SAMPLES, torch.Generator().manual_seed(0)
        )
    assert (50, 100) in found
    for ranks, shares in found.items():
        assert 0.93 <= float(shares.mean()) <= 0.97, (ranks, float(shares.mean()))
