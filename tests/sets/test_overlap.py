"""Uncertainty-aware top-k: the shipped search gives what Algorithm 1 gives."""

import warnings

import numpy as np
import pytest
import torch
from cases import seeded
from scipy import special
from sets_oracle import literal_overlap_set

import laplacebridge as lb
from laplacebridge.sets import Overlap, overlap_sets

# what concentrations of any size give is the matter here; the warning has a test of its own
pytestmark = pytest.mark.filterwarnings("ignore:These predictions have next to no width")

ROWS = 5
# Decimal logarithm of the largest concentration; before 1.17, SciPy has no quantiles
# for more to compare with.
LARGEST = 9 if np.isnan(special.betainccinv(1e11, 1e12, 1e-4)) else 12
DIRICHLETS_PER_SEED = 1000


def dirichlet(*rows, dtype=torch.float64):
    return lb.Dirichlet.from_concentration(torch.tensor(rows, dtype=dtype))


def random_concentrations(generator):
    """Rows of one kind: spread over many magnitudes, with ties, nearly equal, or of two
    levels only.
    """
    classes = max(2, int(np.exp(generator.uniform(np.log(2), np.log(1000)))))
    low, high = sorted(generator.uniform(-6, LARGEST, 2))
    spread = generator.uniform(low, high, (ROWS, classes))
    kinds = (
        spread,
        np.round(spread),
        spread.mean() + generator.normal(size=(ROWS, classes)) * 10 ** generator.uniform(-7, 0),
        np.where(np.arange(classes) < classes // 2, spread[:, :1] + 0.3, spread[:, :1]),
    )
    return np.exp(
        np.log(10.0 ** np.clip(kinds[generator.integers(4)], -6, LARGEST))
    )  # as a Dirichlet gives them back


@pytest.mark.parametrize("seed", range(10))
def test_equals_the_algorithm_as_printed_on_ten_thousand_dirichlets(seed):
    generator = np.random.default_rng(seed)
    for _ in range(DIRICHLETS_PER_SEED // ROWS):
        concentrations = random_concentrations(generator)
        threshold = float(10 ** generator.uniform(-6, np.log10(0.99)))
        found = overlap_sets(
            lb.Dirichlet(torch.from_numpy(concentrations).log()), threshold
        ).to_lists()
        assert found == [literal_overlap_set(row, threshold) for row in concentrations]


def test_two_classes_overlap_while_the_lower_quantile_is_below_a_half():
    # with K = 2, π₂ = 1 − π₁, so the upper quantile of the second is 1 − the lower one
    # of the first
    for first, expected in ((10.0, [0, 1]), (14.0, [0, 1]), (18.0, [0]), (40.0, [0])):
        marginal = dirichlet([first, 6.0]).marginal(0)
        assert (marginal.quantile(0.025) < 0.5).item() == (len(expected) == 2)
        assert overlap_sets(dirichlet([first, 6.0]), 0.05).to_lists() == [expected]


def test_the_set_is_a_prefix_of_the_ranking_that_grows_as_the_threshold_falls():
    concentrations = torch.exp(2 * torch.randn(50, 30, generator=seeded(0), dtype=torch.float64))
    prediction = lb.Dirichlet(concentrations.log())
    ranking = concentrations.argsort(dim=-1, descending=True, stable=True)
    before = torch.zeros(50, dtype=torch.long)
    for threshold in (1.0, 0.5, 0.1, 0.01, 1e-4, 1e-12, 0.0):
        sets = overlap_sets(prediction, threshold)
        assert (sets.size >= before.clamp_min(1)).all()
        for members, order in zip(sets, ranking.tolist()):
            assert members == order[: len(members)]
        before = sets.size


def test_threshold_one_keeps_the_first_class_and_threshold_zero_all():
    prediction = dirichlet([1.0, 2.0, 3.0, 3.0])
    assert overlap_sets(prediction, 1.0).to_lists() == [[2]]
    assert overlap_sets(prediction, 0.0).to_lists() == [[2, 3, 1, 0]]


def test_equal_classes_are_all_in_or_all_out_and_come_in_order():
    flat = dirichlet([2.0] * 100)
    assert overlap_sets(flat, 0.9).to_lists() == [list(range(100))]
    pairs = dirichlet([1e6, 1.0, 1e6, 1.0])
    assert overlap_sets(pairs, 0.05).to_lists() == [[0, 2]]


def test_a_cap_cuts_the_set_to_its_prefix_and_ties_to_the_lowest_classes():
    assert overlap_sets(dirichlet([2.0] * 30), 0.05, max_size=10).to_lists() == [list(range(10))]
    assert overlap_sets(dirichlet([5.0, 1.0, 6.0]), 0.05, max_size=1).to_lists() == [[2]]


def test_the_authors_one_sided_overlap_is_half_the_threshold():
    concentrations = torch.exp(2 * torch.randn(40, 20, generator=seeded(1), dtype=torch.float64))
    prediction = lb.Dirichlet(concentrations.log())
    overlap = 0.1
    expected = []
    for row in range(len(concentrations)):  # the rule as the authors coded it
        order = concentrations[row].argsort(descending=True).tolist()
        bound = prediction[row].marginal(order[0]).quantile(overlap)
        members = [order[0]]
        for place in order[1:10]:
            if prediction[row].marginal(place).quantile(1 - overlap) < bound:
                break
            members.append(place)
        expected.append(members)
    assert overlap_sets(prediction, threshold=2 * overlap, max_size=10).to_lists() == expected


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16], ids=["float32", "float64", "bfloat16"]
)
@pytest.mark.parametrize("scale", [-1e4, -80.0, 0.0, 80.0, 1e4])
def test_every_finite_concentration_gives_a_set_with_its_best_class(dtype, scale):
    log = (scale + 10 * torch.randn(20, 12, generator=seeded(2))).to(dtype)
    sets = overlap_sets(lb.Dirichlet(log), 0.05)
    assert (sets.size >= 1).all()
    assert sets.contains(log.argmax(-1)).all()


def test_the_entry_is_where_the_label_leaves_its_set():
    concentrations = torch.exp(2 * torch.randn(30, 15, generator=seeded(3), dtype=torch.float64))
    prediction = lb.Dirichlet(concentrations.log())
    labels = torch.randint(15, (30,), generator=seeded(4))
    entries = Overlap().entry(prediction, labels)
    assert ((entries > 0) & (entries <= 1)).all()
    for row, (label, entry) in enumerate(zip(labels.tolist(), entries.tolist())):
        if entry == 1:
            assert label == concentrations[row].argmax()
            continue
        assert not overlap_sets(prediction[row], entry * (1 + 1e-6)).contains([label]).item()
        assert overlap_sets(prediction[row], entry * (1 - 1e-6)).contains([label]).item()


def test_sets_are_exact_a_millionth_beside_where_a_class_leaves_them():
    # what decides without the mass itself must leave these to the mass
    second = torch.logspace(-1, 5, 25, dtype=torch.float64).repeat(12)
    ratio = torch.tensor([1.01, 1.3, 2.0, 4.0], dtype=torch.float64).repeat_interleave(75)
    rest = torch.tensor([1e-3, 1.0, 1e3], dtype=torch.float64).repeat_interleave(25).repeat(4)
    alpha = torch.stack([second * ratio, second, rest * second, rest * second], -1)
    alpha[:, 2:] = torch.minimum(alpha[:, 2:], 0.99 * second.unsqueeze(-1))
    entries = Overlap().entry(lb.Dirichlet(alpha.log()), torch.ones(len(alpha), dtype=torch.long))
    tried = 0
    for row, entry in zip(alpha, entries.tolist()):
        if 1e-6 < entry < 0.999:
            one = lb.Dirichlet(row.log().unsqueeze(0))
            assert 1 in overlap_sets(one, entry * (1 - 1e-6)).to_lists()[0]
            assert 1 not in overlap_sets(one, entry * (1 + 1e-6)).to_lists()[0]
            tried += 1
    assert tried > 150


def test_labels_that_are_nearly_impossible_still_have_an_entry():
    entries = Overlap().entry(
        dirichlet([1e-6, 1e-9, 1e-7], [1e10, 1.0, 1e-6], [1e-20, 1e-25, 1e-30]), [1, 2, 1]
    )
    assert (entries >= 0).all()
    assert (entries < 1).all()


def test_wrong_predictions_and_thresholds_are_named():
    prediction = dirichlet([1.0, 2.0])
    with pytest.raises(ValueError, match=r"from 0 to 1; got 1\.5"):
        overlap_sets(prediction, 1.5)
    with pytest.raises(ValueError, match="at least 1, for the best class; got 0"):
        overlap_sets(prediction, max_size=0)
    with pytest.raises(lb.errors.ShapeError, match="at least one example"):
        overlap_sets(prediction[:0])
    with pytest.raises(
        lb.InputError, match=r"needs a `Dirichlet`; got Tensor\..*marginals.*`Mass` or `APS`"
    ):
        Overlap()(torch.tensor([[0.5, 0.5]]), 0.05)
    with pytest.raises(ValueError, match="row 0 has NaN or infinity"):
        overlap_sets(lb.Dirichlet(torch.tensor([[0.0, float("nan")]])))


def test_predictions_without_width_are_warned_of():
    alpha = torch.tensor([[6.0, 5.0, 1.0], [8.0, 1.0, 1.0]])
    with pytest.warns(UserWarning, match="next to no width"):
        overlap_sets(lb.Dirichlet.from_concentration(1e7 * alpha))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        overlap_sets(lb.Dirichlet.from_concentration(1e3 * alpha))
