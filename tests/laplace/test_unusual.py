"""The score of unusual inputs: its formula, its quantile's guarantee, and what it is
without held-out data.
"""

import numpy as np
import pytest
import torch
from cases import seeded
from scipy import special
from small_network import FEATURES, examples, trained_network

import laplacebridge as lb
from laplacebridge.laplace.unusual import surprise
from laplacebridge.unusual import Unusual

INPUTS, LABELS = examples(200)
HELD_OUT = examples(101, seed=1)


def fitted(**options):
    return lb.fit(trained_network(), [(INPUTS, LABELS)], progress=False, **options)


@pytest.fixture(scope="module")
def classifier():
    return fitted(val_loader=[HELD_OUT])


def test_the_score_is_that_of_its_formula(classifier):
    with torch.no_grad():
        held_out, others = (
            classifier.features(rows) for rows in (HELD_OUT[0], 3 * examples(50, seed=2)[0])
        )
        head = classifier.network.head
        score = classifier.unusual

        def parts(features):
            energy = -torch.logsumexp(head(features), -1)
            parts = torch.cat([energy.unsqueeze(-1), score.distances(features)], -1)
            return parts.detach().double().numpy()

        found = classifier.predict_features(others).ood_score
    usual = parts(held_out)[0::2]
    z = (parts(others) - usual.mean(0)) / usual.std(0, ddof=1)
    expected = -special.log_ndtr(np.array([-1, 1, 1]) - z).sum(-1)
    np.testing.assert_allclose(found, expected, rtol=0.01, atol=0.1)


def test_a_state_brings_all_of_the_score(classifier):
    other = lb.fit(trained_network(), [(3 * INPUTS + 1, LABELS)], progress=False)
    same = fitted(val_loader=[HELD_OUT])
    other.unusual.reference = torch.zeros_like(same.unusual.reference)
    other.load_state_dict(same.state_dict())
    inputs = examples(50, seed=2)[0]
    torch.testing.assert_close(other(inputs).ood_score, classifier(inputs).ood_score)


def test_a_long_tail_of_low_energies_does_not_silence_the_energy(classifier):
    """What is usual upwards is not what is usual downwards."""
    parts = torch.randn(400, 3, generator=seeded(8), dtype=torch.float64)
    skewed = parts.clone()
    skewed[:, 0] = torch.where(parts[:, 0] < -1.6, 10 * parts[:, 0], parts[:, 0])
    energies = [
        classifier.unusual.calibrated_by(rows).usual[:, 0].tolist() for rows in (parts, skewed)
    ]
    (_, plain), (mean, above) = energies
    assert plain == pytest.approx(1, abs=0.15)
    assert mean < -0.5
    assert above < skewed[:, 0].std() / 2
    # too few say both sides together
    few = classifier.unusual.calibrated_by(skewed[:180]).usual[1, 0]
    assert float(few) == pytest.approx(float(skewed[:180:2, 0].std()), rel=1e-5)


def test_the_surprise_is_that_of_a_normal_variable():
    deviations = torch.linspace(-8, 40, 4000, dtype=torch.float64)
    expected = -special.log_ndtr(-deviations.numpy())
    np.testing.assert_allclose(surprise(deviations), expected, rtol=0.07)
    assert (surprise(deviations).diff() > 0).all()


def test_unlike_inputs_have_higher_scores(classifier):
    with torch.no_grad():
        like = classifier(examples(300, seed=3)[0])
        unlike = classifier(20 * torch.randn(300, FEATURES, generator=seeded(4)))
    assert lb.metrics.auroc(like.ood_score, unlike.ood_score) > 0.9
    assert unlike.ood_quantile.median() > like.ood_quantile.median()


def test_quantiles_count_held_out_scores_below():
    unusual = Unusual(torch.tensor([0.0, 1.0, 1.5, 9.0]), torch.tensor([0.0, 1.0, 2.0]))
    assert unusual.quantile().tolist() == [0, 0.25, 0.5, 0.75]


def test_what_is_usual_and_what_scores_then_are_come_from_different_examples(classifier):
    """The guarantee of quantiles rests on it: scores of examples that said what is
    usual are not those of new ones.
    """
    with torch.no_grad():
        rest = classifier(HELD_OUT[0][1::2]).ood_score
    assert len(HELD_OUT[0][1::2]) == len(classifier.unusual.reference)
    torch.testing.assert_close(classifier.unusual.reference, rest.sort().values)


def test_a_usual_input_seldom_has_a_high_quantile():
    """P(quantile ≥ 1 − α) ≤ α, over held-out data and new inputs alike: few held-out
    examples, many repetitions.
    """
    found = []
    for seed in range(40):
        classifier = fitted(val_loader=[examples(20, seed=100 + seed)], prior_precision=1.0)
        with torch.no_grad():
            found.append(classifier(examples(200, seed=500 + seed)[0]).ood_quantile)
    quantiles = torch.cat(found)
    for level in (0.5, 0.2, 0.1):
        error = 3 * (level * (1 - level) / 40) ** 0.5  # as if each fit had one new input
        assert (quantiles >= 1 - level).float().mean() <= level + error / 2


def test_without_held_out_data_the_score_is_there_and_the_quantile_says_what_is_missing():
    prediction = fitted(prior_precision=1.0)(INPUTS[:5])
    assert prediction.ood_score.isfinite().all()
    with pytest.raises(lb.errors.InputError, match="val_loader"):
        prediction.ood_quantile  # noqa: B018
    assert "ood_quantile" not in prediction.numpy()


def test_rows_types_and_arrays_carry_the_score(classifier):
    with torch.no_grad():
        prediction = classifier(HELD_OUT[0])
    torch.testing.assert_close(prediction[3:7].ood_score, prediction.ood_score[3:7])
    torch.testing.assert_close(prediction.to(torch.float64).ood_quantile, prediction.ood_quantile)
    arrays = prediction.numpy()
    np.testing.assert_array_equal(arrays["ood_score"], prediction.ood_score)
    np.testing.assert_array_equal(arrays["ood_quantile"], prediction.ood_quantile)


def test_another_prior_or_bridge_has_the_same_score(classifier):
    with torch.no_grad():
        expected = classifier(INPUTS).ood_score
        for other in (classifier.with_prior(3.0), classifier.with_bridge(lb.laplace_bridge)):
            torch.testing.assert_close(other(INPUTS).ood_score, expected)


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e6, 1e30])
def test_the_score_is_finite_for_every_finite_input(classifier, size):
    with torch.no_grad():
        assert (
            classifier(size * torch.randn(20, FEATURES, generator=seeded(5)))
            .ood_score.isfinite()
            .all()
        )


def test_a_bridge_by_itself_has_no_score():
    gaussian = lb.LogitGaussian(torch.zeros(1, 3), lb.Diagonal(torch.ones(1, 3)))
    with pytest.raises(lb.errors.InputError, match="a bridge by itself"):
        lb.predict(gaussian).ood_score  # noqa: B018
