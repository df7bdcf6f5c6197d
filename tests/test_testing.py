"""The public checks tell what is wrong by the law that it breaks, and the input that
shows it. That what the library has passes them is in `laws/`.
"""

import dataclasses

import pytest
import torch
from cases import seeded

import laplacebridge as lb
from laplacebridge import sets
from laplacebridge.testing import check_bridge, check_covariance, check_score, check_set_rule


def changed(change):
    """A good bridge with its log-concentrations changed."""

    def bridge(gaussian):
        return lb.Dirichlet(
            change(gaussian, lb.bridges.one_vs_rest_bridge(gaussian).log_concentration)
        )

    return bridge


def _fails_for_wide(gaussian, log):
    return log.masked_fill(gaussian.variance > 1e9, float("nan"))


def _reads_one_float32(gaussian, log):
    return log + 1e-2 if log.dtype == torch.float32 else log


BRIDGES_WITH = {
    "every finite input gives a valid Dirichlet.*1000000000000.0": changed(_fails_for_wide),
    "every finite input gives a valid Dirichlet.*returned Tensor": lambda given: given.mean,
    "a structured covariance and the same as a matrix agree": changed(
        lambda given, log: log + (0.1 if isinstance(given.covariance, lb.Dense) else 0)
    ),
    "float32 agrees with float64": changed(_reads_one_float32),
    "rows do not see each other": changed(lambda _, log: log + 1e-3 * len(log)),
    "renaming classes renames the answer": changed(
        lambda _, log: log + 1e-3 * torch.arange(log.shape[-1]).to(log)
    ),
    "without variance the mean is softmax": changed(lambda _, log: log * 0.9),
    "gradients are finite” .*does not require grad": changed(lambda _, log: log.detach()),
    "a constant added to all logits changes nothing": changed(
        lambda given, log: log + 1e-4 * given.mean.mean(-1, keepdim=True).tanh()
    ),
    "noise common to all logits changes nothing": lb.bridges.laplace_bridge_raw,
    "the mean becomes softmax as variances vanish": lb.laplace_bridge,
}


@pytest.mark.parametrize("message", BRIDGES_WITH)
def test_a_wrong_bridge_is_told_which_law_it_breaks(message):
    claims = {"shift_invariant": False, "common_mode_invariant": False}
    with pytest.raises(AssertionError, match=rf"(?s)`check_bridge\(.*the law “({message})"):
        check_bridge(BRIDGES_WITH[message], **(claims if "softmax as" in message else {}))


@dataclasses.dataclass(frozen=True, eq=False)
class Wrong(lb.Diagonal):
    """A diagonal covariance that answers one question wrongly."""


def broken(name, answer):
    return type("Broken", (Wrong,), {name: answer})


COVARIANCES_WITH = {
    "`diagonal` is that": broken("diagonal", lambda self: self.variance + 1),
    "`row_sums` is that": broken("row_sums", lambda self: self.variance * 2),
    "`matvec` multiplies": broken("matvec", lambda self, vector: vector),
    "`column` is that": broken("column", lambda self, index: self.variance),
    "`centered` is CΣC": broken("centered", lambda self: self),
    "`scaled` multiplies": broken("scaled", lambda self, factor: self),
    "`to_dense` is symmetric": broken(
        "to_dense", lambda self: torch.ones(*self.shape, self.shape[1]).triu().double()
    ),
    "samples have this covariance": broken(
        "sample",
        lambda self, num, generator=None: lb.Diagonal(self.variance).sample(num, generator) * 1.1,
    ),
}


@pytest.mark.parametrize("message", COVARIANCES_WITH)
def test_a_wrong_covariance_is_told_which_law_it_breaks(message):
    variance = torch.rand(3, 4, generator=seeded(0), dtype=torch.float64) + 0.5
    with pytest.raises(AssertionError, match=rf"the law “{message}.*B = 3, K = 4"):
        check_covariance(COVARIANCES_WITH[message](variance))


def msp(prediction):
    return lb.scores.msp(prediction)


SCORES_WITH = {
    "higher is more unusual": lambda given: -msp(given),
    "every finite input has one number": lambda given: msp(given) + 0 * given.concentration.sum(-1),
    "the order of classes": lambda given: 1 - given.mean[:, 0],
    "rows do not see": lambda given: msp(given) - msp(given).mean(),
    "half precision": lambda given: msp(given).to(given.dtype),
    "float32 agrees": lambda given: msp(given) + (given.dtype == torch.float32),
    "no examples are refused": lambda given: msp(given) if len(given) else torch.zeros(0),
}


@pytest.mark.parametrize("message", SCORES_WITH)
def test_a_wrong_score_is_told_which_law_it_breaks(message):
    with pytest.raises(AssertionError, match=rf"(?s)`check_score\(.*the law “{message}"):
        check_score(SCORES_WITH[message], usual=[9.0, 1.0, 1.0], unusual=[4.0, 4.0, 3.0])


class WrongEntry(sets.Mass):
    def entry(self, prediction, labels):
        return super().entry(prediction, labels) * 0.9


class Shrinks(sets.Mass):
    def __call__(self, prediction, threshold):
        return super().__call__(prediction, 1 - threshold)

    def entry(self, prediction, labels):
        return 1 - super().entry(prediction, labels)


class NoEntry(sets.Mass):
    def entry(self, prediction, labels):
        return torch.zeros(len(labels), 2)


class AnyLabel(sets.Mass):
    def entry(self, prediction, labels):
        return super().entry(prediction, labels % prediction.num_classes)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (WrongEntry, "a label is in its set exactly from its entry on.*threshold 0"),
        (Shrinks, "a label is in its set exactly from its entry on"),
        (NoEntry, "`entry` is a number for each label"),
        (AnyLabel, "labels that are no classes are refused"),
    ],
)
def test_a_wrong_set_rule_is_told_which_law_it_breaks(rule, message):
    with pytest.raises(AssertionError, match=rf"`check_set_rule\(.*the law “({message})"):
        check_set_rule(rule())
