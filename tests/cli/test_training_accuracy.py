"""`laplacebridge fit` says how much of the training data the network gets right, and warns when it learnt nothing."""

import json

import numpy as np
import pytest
import torch
from cases import seeded
from cli_project import examples
from torch import nn

import laplacebridge as lb
from laplacebridge.cli.training_accuracy import CountedBatches, answers_for

MODEL = ("--model", "project_code:network")


@pytest.mark.parametrize("fit_options", [(), ("--layers", "*", "--prior-precision", "1")], ids=["head", "layers"])
def test_the_summary_has_the_accuracy_of_the_network_on_the_training_data(call, trained, tmp_path, fit_options):
    weights = ("--weights", "weights.pt", "--batch-size", "30", "--json")
    result = call("fit", "train.npz", *MODEL, *weights, *fit_options, "-o", tmp_path / "c.safetensors")
    assert result.exit_code == 0, result.output
    inputs, labels = examples(200, seed=0)
    right = (trained(inputs).argmax(-1) == labels).double().mean().item()
    assert json.loads(result.stdout)["training_accuracy"] == pytest.approx(right)
    assert result.stderr == ""


def test_without_labels_no_accuracy_is_said(call, tmp_path):
    options = ("--weights", "weights.pt", "--prior-precision", "1", "-o", tmp_path / "c.safetensors")
    result = call("fit", "project_code:unlabelled", *MODEL, *options)
    assert result.exit_code == 0, result.output
    assert "accuracy" not in result.stderr


def test_a_network_without_its_weights_is_warned_about(run, tmp_path):
    result = run("fit", "train.npz", *MODEL, "--prior-precision", "1", "-q", "-o", tmp_path / "c.safetensors")
    assert result.returncode == 0
    assert result.stderr.startswith("Warning: The network gets ")
    assert "Without --weights it is as its factory returns it." in result.stderr


def test_weights_with_labels_of_other_inputs_are_warned_about(run, folder, tmp_path):
    with np.load(folder / "train_features.npz") as file:
        np.savez(tmp_path / "mixed.npz", features=file["features"], labels=np.roll(file["labels"], 7))
    head = ("--head-only", "head.npz", "--prior-precision", "1")
    result = run("fit", tmp_path / "mixed.npz", *head, "-o", tmp_path / "c.safetensors")
    assert "Are these the weights of this network" in result.stderr


@pytest.mark.parametrize(
    ("labels", "right", "is_near"),
    [
        ([0] * 90 + [1] * 10, 90, True),  # always the commonest class
        ([0] * 90 + [1] * 10, 92, False),
        ([0] * 50 + [1] * 50, 54, True),
        ([0] * 50 + [1] * 50, 56, False),
    ],
    ids=["commonest", "more than the commonest", "chance", "more than chance"],
)
def test_chance_is_the_share_of_the_commonest_class(labels, right, is_near):
    counted = CountedBatches([], nn.Identity())
    counted.labels.update(labels)
    counted.right = right
    assert counted.is_near_chance() == is_near


def test_answers_are_counted_for_examples_tokens_pixels_and_single_logits():
    generator = seeded(0)
    flat, tokens, pixels = (torch.randn(*shape, generator=generator) for shape in ((6, 3), (2, 5, 3), (2, 3, 4, 5)))
    assert answers_for(flat, torch.zeros(6)).equal(flat.argmax(-1))
    assert answers_for(tokens, torch.zeros(2, 5)).equal(tokens.argmax(-1).flatten())
    assert answers_for(pixels, torch.zeros(2, 4, 5)).equal(pixels.argmax(1).flatten())
    assert answers_for(torch.tensor([0.3, -0.2]), torch.zeros(2)).tolist() == [1, 0]
    assert answers_for(torch.tensor([[0.3], [-0.2]]), torch.zeros(2)).tolist() == [1, 0]


def test_answers_that_cannot_be_assigned_are_not_guessed():
    assert answers_for(torch.zeros(2, 3, 3), torch.zeros(2, 3)) is None  # three classes, or three tokens
    assert answers_for(torch.zeros(5, 2), torch.zeros(10)) is None  # a part of a batch, not ten single logits


def test_labels_that_stand_for_none_are_not_counted():
    model = nn.Linear(4, 3)
    inputs, labels = examples(40, seed=3)
    kept = torch.arange(40) % 4 != 0
    counted = CountedBatches([(inputs, torch.where(kept, labels, -100))], model)
    lb.fit(model, counted, prior_precision=1.0, progress=False)
    assert counted.labels.total() == 30
    assert counted.accuracy == (model(inputs).argmax(-1) == labels)[kept].double().mean().item()
    assert not model._forward_hooks  # the network is left as it was


@pytest.mark.parametrize("left_out", [0, 1], ids=["all labels", "some without"])
def test_a_batch_that_the_fit_runs_in_parts_is_counted_whole(monkeypatch, left_out):
    monkeypatch.setattr("laplacebridge._blocks.BYTES_AT_ONCE", 1)  # one example at a time
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    inputs, labels = examples(12, seed=3)
    labels[:left_out] = -100
    counted = CountedBatches([(inputs, labels)], model)
    lb.fit(model, counted, layers="*", prior_precision=1.0, progress=False)
    assert counted.labels.total() == 12 - left_out
    assert counted.accuracy == (model(inputs).argmax(-1) == labels)[left_out:].double().mean().item()
