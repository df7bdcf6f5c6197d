"""Threads share a network: each gets its own answer, and the network is left as it was."""

import copy
import pickle
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from cases import seeded
from torch import nn

import laplacebridge as lb
from laplacebridge.laplace.running import eval_mode

THREADS, CALLS = 8, 2000
REQUESTS = torch.randn(40, 3, 4, generator=seeded(1))  # each another input


class WorksAfterItsHead(nn.Module):
    """Sleeps after its head, as a network does that logs, checks or copies there: other
    threads run meanwhile.
    """

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Tanh(), nn.Linear(6, 6)
        )
        self.head = nn.Linear(6, 3)

    def forward(self, inputs):
        logits = self.head(self.body(inputs))
        time.sleep(0.001)
        return logits


@pytest.fixture(autouse=True)
def _frequent_switches():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return WorksAfterItsHead()


def fitted(model, prior_precision=1.0, **options):
    return lb.fit(
        model,
        [torch.randn(20, 4, generator=seeded(0))],
        prior_precision=prior_precision,
        bridge=lb.laplace_bridge,
        progress=False,
        **options,
    )


def in_threads(function, arguments):
    def apart(argument):  # each thread has a mode of its own for gradients
        with torch.no_grad():
            return function(argument)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(apart, arguments))


def answers(classifier):
    with torch.no_grad():
        return [classifier(request).dirichlet.log_concentration for request in REQUESTS]


def wrong_answers(classifiers, calls):
    """How many of so many calls from all threads get another answer than alone."""
    expected = [answers(classifier) for classifier in classifiers]
    choices = [(call % len(classifiers), call % len(REQUESTS)) for call in range(calls)]

    def differs(choice):
        which, request = choice
        found = classifiers[which](REQUESTS[request]).dirichlet.log_concentration
        return not torch.equal(found, expected[which][request])

    return sum(in_threads(differs, choices))


def state_of(model):
    modes = [module.training for module in model.modules()]
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    hooks = [len(module._forward_hooks) for module in model.modules()]
    return modes, tensors, hooks


def assert_unchanged(model, before):
    modes, tensors, hooks = state_of(model)
    assert modes == before[0]
    assert hooks == before[2]
    for name, tensor in tensors.items():
        assert torch.equal(tensor, before[1][name]), name


@pytest.mark.parametrize("training", [False, True])
def test_threads_get_their_own_answers_of_a_classifier(model, training):
    model.train(training)
    model.body[2].train(not training)  # one layer in another mode than the rest
    classifier, before = fitted(model), state_of(model)
    assert wrong_answers([classifier], CALLS) == 0
    assert_unchanged(model, before)


@pytest.mark.parametrize("training", [False, True])
def test_two_classifiers_share_a_network(model, training):
    model.train(training)
    of_a_part = nn.Sequential(model.body, model.head).train(training)
    classifiers, before = [fitted(model), fitted(model, 5.0), fitted(of_a_part)], state_of(model)
    assert wrong_answers(classifiers, CALLS // 2) == 0
    assert_unchanged(model, before)


@pytest.mark.parametrize("training", [False, True])
def test_threads_get_their_own_answers_of_several_layers(model, training):
    model.train(training)
    classifier, before = fitted(model, layers=["body.4", "head"]), state_of(model)
    assert wrong_answers([classifier], CALLS // 10) == 0
    assert_unchanged(model, before)


@pytest.mark.parametrize("layers", [None, "*"])
def test_fits_run_while_others_predict(model, layers):
    classifier, before = fitted(model.train()), state_of(model)
    alone = answers(fitted(model, layers=layers))

    def fit_or_predict(call):
        if call % 8:
            return torch.equal(classifier(REQUESTS[0]).dirichlet.log_concentration, predictions[0])
        return all(map(torch.equal, answers(fitted(model, layers=layers))[:2], alone[:2]))

    predictions = answers(classifier)
    assert all(in_threads(fit_or_predict, range(80)))
    assert_unchanged(model, before)


def test_dropout_in_another_thread_changes_no_prediction(model):
    classifier, before = fitted(model.eval()), state_of(model)
    expected = answers(classifier)

    def drop_or_predict(call):
        if call % 8:
            found = classifier(REQUESTS[call % 40]).dirichlet.log_concentration
            return torch.equal(found, expected[call % 40])
        lb.sources.dropout_gaussian(model, REQUESTS[0], num_samples=5)
        return True

    assert all(in_threads(drop_or_predict, range(200)))
    assert_unchanged(model, before)


def test_a_network_in_training_mode_goes_back_to_it_with_the_last_call(model):
    model.train()
    first, second = eval_mode(model), eval_mode(model)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not any(module.training for module in model.modules())
    second.__exit__(None, None, None)
    assert all(module.training for module in model.modules())


def test_networks_that_fail_leave_others_alone(model):
    model.train()
    classifier, before = fitted(model), state_of(model)
    expected = answers(classifier)

    def fails_or_predicts(call):
        if call % 2:
            return torch.equal(classifier(REQUESTS[0]).dirichlet.log_concentration, expected[0])
        with pytest.raises(lb.InputError):
            classifier(torch.ones(3, 9))
        return True

    assert all(in_threads(fails_or_predicts, range(200)))
    assert_unchanged(model, before)


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],  # noqa: S301
    ids=["copied", "pickled"],
)
def test_a_network_is_copied_while_others_predict(model, copied):
    classifier = fitted(model.eval())
    expected = answers(classifier)
    copies = []
    handle = model.body.register_forward_hook(lambda *_: copies.append(copied(model.head)))
    classifier(REQUESTS[0])
    handle.remove()
    assert copies[0]._forward_hooks  # it was made during the call
    model.head = copies[0]
    for found, one in zip(answers(fitted(model)), expected):
        assert torch.equal(found, one)
