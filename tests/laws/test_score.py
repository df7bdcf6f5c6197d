"""Laws that every score obeys, over the library's own lists of them: those of the
public check, and tighter ones of our own.
"""

import itertools
import math

import pytest
import torch
from cases import seeded

import laplacebridge as lb
from laplacebridge.scores import DIRICHLET_SCORES, LOGIT_SCORES, SCORES

OF_DIRICHLETS = SCORES | DIRICHLET_SCORES
EVERY_SCORE = pytest.mark.parametrize("name", [*OF_DIRICHLETS, *LOGIT_SCORES])
FLOATS = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
HALVES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
EXTREMES = [-3e38, -20_000.0, -300.0, -45.0, -1.0, 0.0, 3.0, 60.0, 300.0, 20_000.0, 3e38]

# The same label noise or the same evidence, more of the other: what each score is made
# to see.
USUAL_AND_UNUSUAL = {
    # a likely label against an open one, equally well known
    "msp": ([9.0, 1.0, 1.0], [4.0, 4.0, 3.0]),
    "entropy_of_mean": ([9.0, 1.0, 1.0], [4.0, 4.0, 3.0]),
    "expected_entropy": ([9.0, 1.0, 1.0], [4.0, 4.0, 3.0]),
    # the same mean from much evidence against little
    "mutual_information": ([40.0, 20.0, 20.0], [4.0, 2.0, 2.0]),
    "differential_entropy": ([40.0, 20.0, 20.0], [4.0, 2.0, 2.0]),
    "negative_log_total": ([40.0, 20.0, 20.0], [4.0, 2.0, 2.0]),
    "max_marginal_variance": ([40.0, 20.0, 20.0], [4.0, 2.0, 2.0]),
    # one large logit against none
    "msp_of_logits": ([5.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
    "energy": ([5.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
    "max_logit": ([5.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
    "generalised_entropy": ([5.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
}


def score(name, numbers):
    """A score of log-concentrations, or of the same numbers as logits."""
    if name in LOGIT_SCORES:
        return LOGIT_SCORES[name](numbers)
    return OF_DIRICHLETS[name](lb.Dirichlet(numbers))


def ordinary(seed, batch=40, classes=6, dtype=torch.float64):
    return (2 * torch.randn(batch, classes, generator=seeded(seed), dtype=torch.float64)).to(dtype)


def test_every_score_has_a_pair_that_says_what_it_sees():
    assert set(USUAL_AND_UNUSUAL) == {*OF_DIRICHLETS, *LOGIT_SCORES}


@EVERY_SCORE
def test_it_passes_the_public_check(name):
    usual, unusual = USUAL_AND_UNUSUAL[name]
    of_logits = name in LOGIT_SCORES
    lb.testing.check_score(
        LOGIT_SCORES[name] if of_logits else OF_DIRICHLETS[name],
        usual=usual,
        unusual=unusual,
        of_logits=of_logits,
        bounded_below=name != "differential_entropy",
    )


@EVERY_SCORE
@FLOATS
@pytest.mark.parametrize("classes", [2, 3])
def test_every_finite_input_has_a_score(name, dtype, classes):
    rows = torch.tensor(list(itertools.product(EXTREMES, repeat=classes)), dtype=dtype)
    scores = score(name, rows)
    assert scores.shape == (len(rows),)
    assert scores.dtype == dtype
    if name != "differential_entropy":
        assert scores.isfinite().all()
        return
    # −∞ is the one infinity: where 1/α of a class, or for 3e38 the entropy itself, is
    # beyond the type
    representable = ((rows > -80) & (rows < 1e30)).all(-1)
    assert representable.sum() == 7**classes
    assert scores[representable].isfinite().all()
    assert (scores[(rows < -1000).any(-1)] == -torch.inf).all()
    assert not (scores.isnan() | (scores == torch.inf)).any()


@EVERY_SCORE
@FLOATS
def test_a_hundred_thousand_classes_have_a_score(name, dtype):
    generator = seeded(0)
    rows = torch.stack(
        [
            torch.zeros(100_000),
            torch.full((100_000,), 30.0),
            5 * torch.randn(100_000, generator=generator),
        ]
    )
    assert score(name, rows.to(dtype)).isfinite().all()


@FLOATS
@pytest.mark.parametrize(
    ("name", "largest"),
    [
        ("msp", 2 / 3),
        ("entropy_of_mean", math.log(3)),
        ("expected_entropy", math.log(3)),
        ("mutual_information", math.log(3)),
        ("max_marginal_variance", 1 / 4),
    ],
)
def test_uncertainties_stay_within_their_bounds(name, largest, dtype):
    rows = torch.tensor(list(itertools.product(EXTREMES, repeat=3)), dtype=dtype)
    scores = score(name, rows).double()
    assert (scores >= 0).all()
    assert (scores <= largest + 100 * torch.finfo(dtype).eps).all()


@EVERY_SCORE
def test_float32_agrees_with_float64(name):
    rows = ordinary(4, dtype=torch.float32)
    narrow, wide = score(name, rows), score(name, rows.double())
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow.double(), wide, rtol=2e-5, atol=2e-5)


@EVERY_SCORE
@HALVES
def test_half_precision_is_scored_in_float32(name, dtype):
    rows = ordinary(5, dtype=dtype)
    got = score(name, rows)
    assert got.dtype == torch.float32
    assert torch.equal(got, score(name, rows.float()))


@EVERY_SCORE
def test_gradients_match_finite_differences(name):
    rows = ordinary(6, batch=3, classes=4).requires_grad_()
    assert torch.autograd.gradcheck(lambda given: score(name, given), (rows,), atol=1e-6, rtol=1e-4)


@EVERY_SCORE
@FLOATS
def test_gradients_are_finite_where_concentrations_are_extreme(name, dtype):
    values = [-70.0, -30.0, -1.0, 0.0, 3.0, 40.0]
    rows = torch.tensor(list(itertools.product(values, repeat=3)), dtype=dtype).requires_grad_()
    score(name, rows).sum().backward()
    assert rows.grad.isfinite().all()


@EVERY_SCORE
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_is_named(name, bad):
    rows = torch.zeros(4, 3)
    rows[2, 1] = bad
    with pytest.raises(ValueError, match=r"row 2 (holds|has) (nan|inf|NaN)"):
        score(name, rows)
