"""The curvature is that of the loss that was minimised: compared with autograd's
Hessian.
"""

import warnings

import pytest
import torch
from cases import seeded
from torch import nn
from torch.nn.functional import cross_entropy

import laplacebridge as lb
from laplacebridge.laplace import Diag, DiagKron, Full, Kron
from laplacebridge.laplace.layers.curvature import NetworkCurvature
from laplacebridge.laplace.layers.network import LinearisedNetwork
from laplacebridge.laplace.loss import Loss

NUM_CLASSES, NUM_FEATURES, NUM_EXAMPLES = 3, 4, 40
WEIGHT = torch.tensor([0.5, 2.0, 7.0], dtype=torch.float64)


def problem(seed=0):
    generator = seeded(seed)
    head = nn.Linear(NUM_FEATURES, NUM_CLASSES).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    inputs = torch.randn(NUM_EXAMPLES, NUM_FEATURES, generator=generator, dtype=torch.float64)
    labels = torch.randint(NUM_CLASSES, (NUM_EXAMPLES,), generator=generator)
    weights = 3 * torch.rand(NUM_EXAMPLES, generator=generator, dtype=torch.float64)
    return head, inputs, labels, weights


def hessian(head, inputs, minimised):
    """Of a loss in weights and bias of the head, the bias as last column."""
    trained = torch.cat([head.weight, head.bias.unsqueeze(-1)], -1).detach().flatten()
    ones = torch.cat([inputs, inputs.new_ones(len(inputs), 1)], -1)

    def loss(flat):
        return minimised(ones @ flat.view(NUM_CLASSES, -1).T)

    return torch.autograd.functional.hessian(loss, trained)


def fitted(head, batches, **loss):
    return lb.fit(head, batches, curvature=Full, prior_precision=1.0, progress=False, **loss)


def found(classifier):
    posterior = classifier.posterior
    vectors = posterior.vectors.flatten(0, 1)
    return (vectors * posterior.values) @ vectors.T


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_curvature_is_the_hessian_of_torchs_loss(weight, smoothing):
    head, inputs, labels, _ = problem()

    def minimised(logits):  # the mean is what is minimised; there are N of it
        return NUM_EXAMPLES * cross_entropy(
            logits, labels, weight=weight, label_smoothing=smoothing
        )

    batches = [(inputs[:15], labels[:15]), (inputs[15:], labels[15:])]
    classifier = fitted(head, batches, class_weight=weight, label_smoothing=smoothing)
    expected = hessian(head, inputs, minimised)
    torch.testing.assert_close(found(classifier), expected, rtol=1e-9, atol=1e-9)
    assert classifier.log_likelihood == pytest.approx(
        -float(minimised(head(inputs)).detach()), rel=1e-12
    )


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_weights_of_examples_are_those_of_their_losses(weight):
    head, inputs, labels, weights = problem(1)

    def minimised(logits):
        losses = cross_entropy(logits, labels, weight=weight, reduction="none")
        scale = 1 if weight is None else weights.sum() / (weights * weight[labels]).sum()
        return scale * (weights * losses).sum()

    classifier = fitted(head, [(inputs, labels, weights)], class_weight=weight, sample_weights=True)
    expected = hessian(head, inputs, minimised)
    torch.testing.assert_close(found(classifier), expected, rtol=1e-9, atol=1e-9)
    assert classifier.log_likelihood == pytest.approx(
        -float(minimised(head(inputs)).detach()), rel=1e-12
    )


def test_all_weights_and_smoothing_together_are_torchs_mean_over_repeated_examples():
    """The reference is torch's own loss throughout, with its own divisor."""
    head, inputs, labels, _ = problem(8)
    times = torch.arange(NUM_EXAMPLES) % 4
    repeated, truth = inputs.repeat_interleave(times, 0), labels.repeat_interleave(times)

    def minimised(logits):
        return len(truth) * cross_entropy(logits, truth, weight=WEIGHT, label_smoothing=0.2)

    together = {"class_weight": WEIGHT, "label_smoothing": 0.2, "sample_weights": True}
    batches = [(inputs[rows], labels[rows], times[rows]) for rows in torch.arange(40).split(15)]
    classifier = fitted(head, batches, **together)
    expected = hessian(head, repeated, minimised)
    torch.testing.assert_close(found(classifier), expected, rtol=1e-9, atol=1e-9)
    assert classifier.log_likelihood == pytest.approx(
        -float(minimised(head(repeated)).detach()), rel=1e-12
    )

    def summed(logits):  # as a training loop of one's own has it
        losses = cross_entropy(logits, labels, weight=WEIGHT, label_smoothing=0.2, reduction="none")
        return (times * losses).sum()

    scale = times.sum() / (times * WEIGHT[labels]).sum()
    torch.testing.assert_close(
        found(classifier), scale * hessian(head, inputs, summed), rtol=1e-9, atol=1e-9
    )


def test_ratios_of_class_weights_matter_and_not_their_size():
    head, inputs, labels, _ = problem(2)
    once, again = (
        fitted(head, [(inputs, labels)], class_weight=factor * WEIGHT) for factor in (1, 40)
    )
    torch.testing.assert_close(found(once), found(again))
    assert once.log_likelihood == pytest.approx(again.log_likelihood)


@pytest.mark.parametrize("kind", [Diag, Kron, DiagKron, Full])
def test_a_weight_of_two_is_an_example_twice_and_of_zero_none(kind):
    head, inputs, labels, _ = problem(3)
    weights = torch.arange(NUM_EXAMPLES) % 3
    repeated = inputs.repeat_interleave(weights, 0), labels.repeat_interleave(weights)
    common = {"curvature": kind, "prior_precision": 0.3, "progress": False}
    weighted = lb.fit(head, [(inputs, labels, weights)], sample_weights=True, **common)
    plain = lb.fit(head, [repeated], **common)
    torch.testing.assert_close(
        weighted.logits(inputs).covariance.to_dense(), plain.logits(inputs).covariance.to_dense()
    )
    assert weighted.log_likelihood == pytest.approx(plain.log_likelihood)


@pytest.mark.parametrize("kind", [Diag, Kron, Full])
def test_layers_have_the_same_weights(kind):
    head, inputs, labels, weights = problem(4)
    loss = Loss(class_weight=WEIGHT, label_smoothing=0.1)
    masses = loss.weights(labels, weights)
    network = LinearisedNetwork(nn.Sequential(head), ["0"])
    part, logits = NetworkCurvature.of_batch(kind, network(inputs), masses)
    ones = torch.cat([inputs, inputs.new_ones(len(inputs), 1)], -1)
    expected = kind.of_batch(ones, logits.softmax(-1), masses)
    (block,) = part.blocks.values()
    for name, tensor in expected.tensors().items():
        if name != "num_examples" or kind is Kron:  # the others do not use it
            torch.testing.assert_close(
                getattr(block, name).reshape(tensor.shape), tensor, rtol=1e-9, atol=1e-9
            )


def test_mappings_have_weights_under_their_name():
    head, inputs, labels, weights = problem(5)
    named = {"input": inputs, "labels": labels, "sample_weight": weights}
    by_name = fitted(head, [named], sample_weights=True)
    torch.testing.assert_close(
        found(by_name), found(fitted(head, [(inputs, labels, weights)], sample_weights=True))
    )


@pytest.mark.filterwarnings("ignore:The network fits its training labels")
def test_held_out_batches_have_the_same_form():
    head, inputs, labels, weights = problem(6)
    held_out = [(inputs, labels, weights)]
    classifier = lb.fit(
        head,
        held_out,
        val_loader=held_out,
        sample_weights=True,
        class_weight=WEIGHT,
        progress=False,
    )
    assert classifier.prior_choice.width is not None


@pytest.mark.parametrize(
    ("batch", "options", "words"),
    [
        (2, {"class_weight": [1.0, 2.0]}, "one weight for each of 3 classes; got 2"),
        (2, {"class_weight": [1.0, -2.0, 1.0]}, "one positive number for each class"),
        (1, {"class_weight": WEIGHT}, "needs labels; batch 0"),
        (2, {"label_smoothing": 1.0}, "share from 0 to below 1; got 1.0"),
        (2, {"sample_weights": True}, "batches (inputs, labels, weights)"),
    ],
)
def test_what_is_wrong_is_said(batch, options, words):
    head, inputs, labels, _ = problem()
    given = (inputs, labels)[:batch]
    with pytest.raises(lb.LaplaceBridgeError) as error:
        lb.fit(head, [given], prior_precision=1.0, progress=False, **options)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("weights", "words"),
    [(torch.ones(7), "7 weights for 40 predictions"), (-torch.ones(NUM_EXAMPLES), "negative")],
)
def test_wrong_weights_of_examples_are_refused(weights, words):
    head, inputs, labels, _ = problem()
    with pytest.raises(lb.LaplaceBridgeError) as error:
        fitted(head, [(inputs, labels, weights)], sample_weights=True)
    assert words in str(error.value)


def test_class_weights_of_an_interrupted_fit_go_on():
    head, inputs, labels, _ = problem(7)

    def stopped():
        yield inputs[:20], labels[:20]
        raise KeyboardInterrupt

    with pytest.raises(lb.FitInterrupted) as interrupted:
        fitted(head, stopped(), class_weight=WEIGHT)
    resumed = fitted(
        head, [(inputs[20:], labels[20:])], class_weight=WEIGHT, resume=interrupted.value
    )
    whole = fitted(head, [(inputs, labels)], class_weight=WEIGHT)
    torch.testing.assert_close(found(resumed), found(whole))
    with pytest.raises(lb.InputError, match="sums alone do not say"):
        fitted(head, [(inputs, labels)], class_weight=WEIGHT, resume=interrupted.value.curvature)


def test_a_weighted_network_below_the_commonest_class_is_not_called_untrained():
    head, inputs, _, _ = problem()
    labels = torch.zeros(len(inputs), dtype=torch.long)
    labels[:4] = 1
    with pytest.warns(UserWarning, match="Is it trained"):
        fitted(head, [(inputs, labels)])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The network gets")
        fitted(head, [(inputs, labels)], class_weight=[1.0, 9.0, 1.0])
