"""The likelihood of votes: against a product over votes, one after the other, and at
the edges of its range."""

import math

import pytest
import torch

import laplacebridge as lb
from laplacebridge.metrics import dirichlet_multinomial_nll, nll


def one_after_the_other(concentration, votes):
    """−log of Pólya's urn, vote by vote, in Python's own numbers."""
    surprise = 0.0
    for row, counts in zip(concentration.tolist(), votes.tolist()):
        urn = list(row)
        for label, count in enumerate(counts):
            for _ in range(count):
                surprise -= math.log(urn[label] / sum(urn))
                urn[label] += 1
    return surprise / int(votes.sum())


@pytest.mark.parametrize("scale", [1e-3, 1.0, 40.0, 1e6])
def test_is_that_of_an_urn(scale):
    generator = torch.Generator().manual_seed(0)
    concentration = scale * torch.rand(20, 4, generator=generator, dtype=torch.float64)
    votes = torch.randint(0, 9, (20, 4), generator=generator)
    found = dirichlet_multinomial_nll(lb.Dirichlet(concentration.log()), votes)
    assert found == pytest.approx(one_after_the_other(concentration, votes), rel=1e-10)


def test_a_single_vote_is_a_label():
    dirichlet = lb.Dirichlet(torch.randn(10, 3, generator=torch.Generator().manual_seed(1)))
    labels = torch.arange(10) % 3
    votes = torch.nn.functional.one_hot(labels, 3)
    assert dirichlet_multinomial_nll(dirichlet, votes) == pytest.approx(nll(dirichlet, labels))


@pytest.mark.parametrize("shift", [-650.0, -60.0, 60.0, 90.0, 650.0])
def test_holds_where_concentrations_are_tiny_or_huge(shift):
    log = torch.tensor([[shift, shift + 1]], dtype=torch.float64)
    found = dirichlet_multinomial_nll(lb.Dirichlet(log), torch.tensor([[2, 1]]))
    share = math.exp(1) / (1 + math.exp(1))
    if shift > 0:  # votes are independent
        expected = -(2 * math.log(1 - share) + math.log(share)) / 3
    else:  # after the first, all should be the same: the other costs α
        log_total = shift + math.log(1 + math.exp(1))
        expected = (log_total + math.log(2) - shift - (shift + 1)) / 3
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        (torch.ones(2, 2), "shape (1, 2); got (2, 2)"),
        (torch.tensor([[-1, 2]]), "0 or more"),
        (torch.tensor([[0.5, 2]]), "whole"),
        (torch.tensor([[0, 0]]), "at least one vote"),
    ],
)
def test_what_are_no_votes_is_refused(votes, message):
    with pytest.raises(lb.errors.LaplaceBridgeError) as found:
        dirichlet_multinomial_nll(lb.Dirichlet(torch.zeros(1, 2)), votes)
    assert message in str(found.value)
