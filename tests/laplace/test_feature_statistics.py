"""Sums over features add in any split, and say what NumPy says."""

import numpy as np
import pytest
import torch
from cases import seeded
from small_network import CLASSES, examples, trained_network
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import laplacebridge as lb
from laplacebridge.laplace import memory
from laplacebridge.laplace.feature_statistics import FeatureStatistics
from laplacebridge.laplace.interrupted import FitInterrupted

INPUTS, LABELS = examples(90)
OTHERS, OTHER_LABELS = examples(60, seed=1)


def fitted(batches=None, **options):
    batches = [(INPUTS, LABELS)] if batches is None else batches
    return lb.fit(trained_network(), batches, prior_precision=1.0, progress=False, **options)


def scores(classifier):
    with torch.no_grad():
        return classifier(OTHERS).ood_score


def test_a_batch_gives_the_sums_that_numpy_gives():
    features = torch.randn(20, 4, generator=seeded(0))
    logits, labels = torch.randn(20, 3, generator=seeded(1)), torch.arange(20) % 3
    sums = FeatureStatistics.of_batch(features, logits, labels)
    plain, energy = features.double().numpy(), -np.log(np.exp(logits.double().numpy()).sum(-1))
    np.testing.assert_allclose(sums.squares, plain.T @ plain)
    for k in range(3):
        np.testing.assert_allclose(sums.class_sums[k], plain[k::3].sum(0))
    np.testing.assert_allclose(sums.energies, [energy.sum(), (energy**2).sum()])
    assert sums.class_counts.tolist() == [7, 7, 6]


def test_without_labels_classes_are_those_that_the_network_predicts():
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    assert FeatureStatistics.of_batch(torch.ones(3, 2), logits).class_counts.tolist() == [1, 2]


@pytest.mark.parametrize("kind", lb.laplace.curvature.Curvature.__subclasses__())
def test_every_curvature_has_the_same_score(kind):
    torch.testing.assert_close(scores(fitted(curvature=kind)), scores(fitted()))


def test_batches_in_any_split_have_the_same_score():
    loader = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=7)
    torch.testing.assert_close(scores(fitted(loader)), scores(fitted()))


def test_a_fit_that_goes_on_has_the_score_of_the_whole():
    def stopped():
        yield INPUTS[:40], LABELS[:40]
        raise KeyboardInterrupt

    with pytest.raises(FitInterrupted) as caught:
        fitted(stopped())
    resumed = fitted([(INPUTS[40:], LABELS[40:])], resume=caught.value)
    torch.testing.assert_close(scores(resumed), scores(fitted()))


def test_sums_that_came_without_features_give_no_score():
    def stopped():
        yield INPUTS[:40], LABELS[:40]
        raise KeyboardInterrupt

    with pytest.raises(FitInterrupted) as caught:
        fitted(stopped())
    resumed = fitted([(INPUTS[40:], LABELS[40:])], resume=caught.value.curvature)
    with pytest.raises(lb.errors.InputError, match="feature_statistics=True"):
        scores(resumed)


def test_they_can_be_left_out():
    with pytest.raises(lb.errors.InputError, match="feature_statistics=True"):
        scores(fitted(feature_statistics=False))


def test_large_ones_are_made_when_they_are_asked_for(monkeypatch):
    monkeypatch.setattr(memory, "LARGEST_STATISTICS", 100)
    assert fitted().unusual is None
    assert fitted(feature_statistics=True).unusual is not None


def test_several_layers_have_the_score_of_the_head():
    torch.testing.assert_close(scores(fitted(layers="*")), scores(fitted()))


def test_without_features_before_a_head_several_layers_say_so():
    class Squashed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = trained_network()

        def forward(self, inputs):
            return self.inner(inputs).tanh()

    classifier = lb.fit(
        Squashed(), [(INPUTS, LABELS)], layers="*", prior_precision=1.0, progress=False
    )
    with pytest.raises(lb.errors.InputError, match="last layer is not linear"):
        scores(classifier)


def test_saved_they_hold_no_single_example(tmp_path):
    labels = LABELS.clamp_max(CLASSES - 2)
    labels[3] = CLASSES - 1  # the only one of its class
    classifier = fitted([(INPUTS, labels)])
    lb.save(classifier, tmp_path / "classifier.safetensors")
    loaded = lb.load(tmp_path / "classifier.safetensors", trained_network())
    torch.testing.assert_close(scores(loaded), scores(classifier), rtol=0, atol=0)
    distances = classifier.unusual.distances
    means = distances.means @ distances.basis.T / distances.scale + distances.center
    single = classifier.features(INPUTS[3:4])
    assert len(means) == CLASSES - 1
    assert (means - single).abs().amax(-1).min() > 0.05
