"""`laplacebridge fit --layers`: a posterior over several layers, from the command line
to its predictions.
"""

import json

import pytest
import torch
from cli_project import examples

import laplacebridge as lb

MODEL = ("--model", "project_code:network", "--weights", "weights.pt")


@pytest.fixture
def fitted(call, tmp_path):
    path = tmp_path / "classifier.safetensors"
    layers = ("--layers", "0", "--layers", "2*")
    return path, call("fit", "train.npz", *MODEL, *layers, "--prior-precision", "2", "-o", path)


def test_several_layers_are_fitted_as_the_library_does(fitted, trained):
    path, result = fitted
    assert result.exit_code == 0, result.output
    inputs, labels = examples(200, seed=0)
    right = (trained(inputs).argmax(-1) == labels).double().mean()
    told = (
        f"2 layers with 67 weights, 3 classes, training accuracy {right:.1%}, NetworkPosterior,"
        " prior precision 2 ("
    )
    assert told in result.stderr
    by_hand = lb.fit(trained, [(inputs, labels)], layers="*", prior_precision=2.0, progress=False)
    queries = examples(60, seed=1).inputs
    saved = lb.load(path, trained).logits(queries).covariance.to_dense()
    torch.testing.assert_close(
        saved, by_hand.logits(queries).covariance.to_dense(), rtol=1e-4, atol=1e-5
    )


def test_predictions_need_the_whole_network(fitted, call, trained):
    path, _ = fitted
    result = call("predict", path, "test.npz", *MODEL)
    assert result.exit_code == 0, result.output
    found = [json.loads(line)["probabilities"] for line in result.stdout.splitlines()]
    expected = lb.load(path, trained)(examples(60, seed=1).inputs).mean
    torch.testing.assert_close(torch.tensor(found), expected, rtol=1e-4, atol=1e-6)
    refused = call("predict", path, "test_features.npz")
    assert refused.exit_code == 2
    assert "covers the layers 0, 2" in " ".join(refused.output.replace("│", " ").split())


def test_info_names_the_layers(fitted, call):
    told = json.loads(call("info", fitted[0], "--json").stdout)
    assert (told["layers"], told["posterior"], told["classes"]) == (
        ["0", "2"],
        "NetworkPosterior",
        3,
    )
    assert "head" not in told


def test_a_choice_that_contradicts_itself_or_matches_nothing_is_refused(call, tmp_path):
    path = tmp_path / "classifier.safetensors"
    both = call("fit", "train.npz", *MODEL, "--layers", "*", "--head", "2", "-o", path)
    assert both.exit_code == 2
    assert "--head or --layers" in both.output
    nothing = call("fit", "train.npz", *MODEL, "--layers", "conv*", "-o", path)
    assert nothing.exit_code != 0
    assert "matches no linear layer" in nothing.output + nothing.stderr + str(nothing.exception)
    assert not path.exists()
