"""What a loader yields: mistakes of the first day get an answer that says what to do."""

import re

import numpy as np
import pytest
import torch
from cases import seeded
from small_network import CLASSES, FEATURES, examples, fit
from torch import nn
from torch.utils.data import TensorDataset

import laplacebridge as lb
from laplacebridge.laplace.batch_checks import require_loader

INPUTS, LABELS = examples(20)
HOT = nn.functional.one_hot(LABELS, CLASSES)
ONE_BATCH = (
    r"Give `\[\(inputs, labels\)\]`.*`DataLoader\(TensorDataset\(inputs, labels\),"
    r" batch_size=128\)`"
)
RIGHT_ORDER = r"Are inputs and labels in the right order\?"


def with_one(value):
    inputs = INPUTS.clone()
    inputs[3, 1] = value
    return inputs


NOT_LOADERS = {
    "pair": (
        (INPUTS, LABELS),
        r"got a pair of torch.float32 \(20, 5\) and torch.int64 \(20,\). " + ONE_BATCH,
    ),
    "pair in a list": ([INPUTS, LABELS], "got a pair of .*" + ONE_BATCH),
    "pair with one-hot labels": (
        (INPUTS, HOT),
        r"got a pair of .* torch.int64 \(20, 3\). " + ONE_BATCH,
    ),
    "pair of arrays": (
        (INPUTS.numpy(), LABELS.numpy()),
        r"batches of tensors; got a pair of ndarray \(20, 5\)",
    ),
    "tensor": (INPUTS, r"got a Tensor of shape \(20, 5\).*Without labels give `\[inputs\]`"),
    "array": (INPUTS.numpy(), r"got a ndarray of shape \(20, 5\)"),
    "one mapping": (
        {"input": INPUTS, "labels": LABELS},
        r"got a single mapping, dict. Put it into a list: `\[batch\]`",
    ),
}


@pytest.mark.parametrize("name", NOT_LOADERS)
def test_tensors_in_place_of_a_loader_are_named_with_what_to_give(model, name):
    given, message = NOT_LOADERS[name]
    with pytest.raises(TypeError, match="needs a loader as `train_loader`.*" + message):
        fit(model, given)
    with pytest.raises(TypeError, match="needs a loader as `val_loader`.*" + message):
        fit(model, val_loader=given)


def test_two_batches_of_inputs_are_not_taken_for_a_pair(model):
    for batches in (
        [INPUTS[:10], INPUTS[10:]],
        (INPUTS[:10], INPUTS[10:]),
        [INPUTS[:15], INPUTS[15:]],
    ):
        expected = fit(model, [INPUTS], prior_precision=1.0).logits(INPUTS).variance
        torch.testing.assert_close(
            fit(model, batches, prior_precision=1.0).logits(INPUTS).variance, expected
        )


FLAT = nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, CLASSES))
WORDS = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, CLASSES))
PIXELS = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, CLASSES, 1))
IMAGES = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(2 * 6 * 6, CLASSES))

BAD_BATCHES = {
    "another type": (
        FLAT,
        (INPUTS.double(), LABELS),
        r"are torch.float64.*inputs with `.to\(torch.float32\)`",
    ),
    "another device": (
        FLAT,
        (INPUTS.to("meta"), LABELS),
        r"The model is on cpu: move the inputs there",
    ),
    "swapped": (FLAT, (LABELS, INPUTS), r"are torch.int64 \(20,\): .*" + RIGHT_ORDER),
    "swapped, no such word": (
        WORDS,
        (torch.tensor([9]), torch.zeros(1, 4).long()),
        "out of range.*" + RIGHT_ORDER,
    ),
    "swapped, too many labels": (
        WORDS,
        (LABELS, torch.zeros(20, 4).long()),
        "ones and zeros that do not add up to one.*" + RIGHT_ORDER,
    ),
    "swapped, measurements": (
        WORDS,
        (LABELS, INPUTS),
        r"shape \(20, 5\), whose rows are not prob.*" + RIGHT_ORDER,
    ),
    "one example": (
        FLAT[1],
        (INPUTS[0], LABELS[0]),
        r"of shape \(5,\), without a first dim.*`inputs.unsqueeze\(0\)`",
    ),
    "one image": (
        IMAGES,
        (torch.zeros(3, 8, 8), 1),
        r"a single label: is this one example.*`DataLoader\(dataset, ",
    ),
    "one image of pixels": (
        PIXELS,
        (torch.zeros(3, 8, 8), torch.zeros(8, 8)),
        r"\(6, 8, 8\), without a first dim",
    ),
    "NaN": (
        FLAT,
        (with_one(torch.nan), LABELS),
        r"Batch 0 .* row 3. Its inputs hold NaN or infinity: leave such",
    ),
    "infinity": (
        FLAT,
        (with_one(-torch.inf), LABELS),
        r"Batch 0 .* row 3. Its inputs hold NaN or infinity",
    ),
    "labels in between": (
        FLAT,
        (INPUTS, LABELS + 0.5),
        "are not whole numbers. A class is an integer.*" + RIGHT_ORDER,
    ),
    "labels that are words": (
        FLAT,
        (INPUTS, ["cat"] * 20),
        "labels of type list that make no tensor.*number the names",
    ),
    "labels from one": (
        FLAT,
        (INPUTS, LABELS + 1),
        "labels from 1 to 3; the model has 3 classes, counted from 0",
    ),
    "negative labels": (FLAT, (INPUTS, LABELS - 1), "labels from -1 to 1; the model has 3 classes"),
    "one-hot integers": (
        FLAT,
        (INPUTS, HOT),
        r"60 labels for 20 predictions.*one-hot integers take `.argmax\(-1\)`",
    ),
    "several classes at once": (
        FLAT,
        (INPUTS, torch.ones(20, 3)),
        r"shape \(20, 3\), ones and zeros.*multi_label=True",
    ),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_batch_that_cannot_be_used_is_answered_with_what_to_do(name):
    network, batch, message = BAD_BATCHES[name]
    with pytest.raises(ValueError, match=message):
        fit(network, [batch])


@pytest.mark.parametrize("name", ["another type", "swapped", "one example", "labels in between"])
def test_validation_batches_get_the_same_answers(name):
    network, batch, message = BAD_BATCHES[name]
    with pytest.raises(ValueError, match=message):
        fit(network, [examples(20)], val_loader=[batch])


def test_a_data_set_in_place_of_its_loader_is_answered_with_a_loader(model):
    data = TensorDataset(INPUTS, LABELS)
    with pytest.raises(
        TypeError,
        match=r"got a data set, TensorDataset. Give `DataLoader\(dataset, batch_size=128\)`",
    ):
        require_loader("batches", data)
    with pytest.raises(lb.errors.ShapeError, match=r"DataLoader\(dataset, batch_size=128\)"):
        fit(model, (data[row] for row in range(20)))


def test_one_example_is_refused_by_predictions_too(model):
    classifier = fit(model, prior_precision=1.0)
    with pytest.raises(lb.errors.ShapeError, match=r"`inputs.unsqueeze\(0\)`"):
        classifier(INPUTS[0])
    assert len(classifier(INPUTS[0].unsqueeze(0))) == 1


@pytest.mark.parametrize("layers", [None, "*"])
def test_nan_of_the_weights_is_told_from_nan_of_the_inputs(layers):
    broken = nn.Linear(FEATURES, CLASSES)
    with torch.no_grad():
        broken.weight[0, 0] = torch.nan
    with pytest.raises(
        ValueError,
        match=r"Batch 0 .* Its inputs are finite: look for NaN among the model's weights",
    ):
        fit(broken, [(INPUTS, LABELS)], layers=layers)
    with pytest.raises(ValueError, match=r"row 3. Its inputs hold NaN or infinity"):
        fit(nn.Linear(FEATURES, CLASSES), [(with_one(torch.nan), LABELS)], layers=layers)


def test_masked_classes_are_something_that_follows_the_head_and_not_nan():
    class Masked(nn.Linear):
        def forward(self, inputs):
            return (
                super().forward(inputs).masked_fill(torch.tensor([False, False, True]), -torch.inf)
            )

    with pytest.raises(lb.HeadNotFoundError, match="something follows it"):
        fit(nn.Sequential(nn.Linear(FEATURES, 4), Masked(4, CLASSES)), [(INPUTS, LABELS)])


def test_an_error_of_the_library_itself_is_not_taken_for_one_of_the_batch(model, monkeypatch):
    def broken(*_):
        raise RuntimeError("of its own")

    monkeypatch.setattr("laplacebridge.laplace.head_fitting.require_memory", broken)
    with pytest.raises(RuntimeError, match=r"^of its own$"):
        fit(model)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"image": INPUTS, "label": LABELS}, "it takes 'input', and not 'image'"),
        (([INPUTS], LABELS), "Inputs within another list"),
        (({"input": INPUTS}, LABELS), "one mapping with all names and `labels`"),
    ],
    ids=["another name", "within a list", "within a mapping"],
)
def test_inputs_that_do_not_reach_the_network_are_refused_with_what_it_takes(model, batch, words):
    with pytest.raises(lb.InputError, match=re.escape(words)):
        fit(model, [batch])


def test_the_error_of_the_model_is_kept_as_the_cause():
    with pytest.raises(ValueError, match="could not run") as caught:
        fit(FLAT, [(LABELS, INPUTS)])
    assert isinstance(caught.value.__cause__, IndexError)
    assert re.search(re.escape(str(caught.value.__cause__)), str(caught.value))


@pytest.mark.parametrize(
    "labels",
    [
        LABELS.numpy(),
        LABELS.tolist(),
        LABELS.float(),
        LABELS.float().unsqueeze(-1),
        HOT.float(),
        0.8 * HOT + 0.2 / 3,
    ],
    ids=["array", "list", "floats", "column of floats", "one-hot", "smoothed"],
)
def test_labels_may_be_written_in_several_ways(model, labels):
    expected = fit(model, [(INPUTS, LABELS)], prior_precision=1.0).evidence()
    assert fit(model, [(INPUTS, labels)], prior_precision=1.0).evidence() == pytest.approx(
        expected, rel=1e-9
    )


def test_labels_of_one_logit_may_be_a_column_as_its_loss_takes_them():
    head, truth = nn.Linear(FEATURES, 1), torch.rand(20, generator=seeded(0)) > 0.5
    likelihoods = [
        fit(head, [(INPUTS, labels)], prior_precision=1.0).log_likelihood
        for labels in (truth, truth.long(), truth.float().unsqueeze(-1), np.asarray(truth))
    ]
    with torch.no_grad():
        loss = nn.functional.binary_cross_entropy_with_logits(
            head(INPUTS).squeeze(-1), truth.float(), reduction="sum"
        )
    assert likelihoods == pytest.approx([-loss.item()] * 4, rel=1e-6)
