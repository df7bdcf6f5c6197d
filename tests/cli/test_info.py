"""`laplacebridge info` says what is in a file."""

import json

import torch
from cli_project import fails
from safetensors.torch import save_file

import laplacebridge as lb


def test_info_names_the_versions(run):
    result = run("info")
    assert result.returncode == 0
    for name in ("laplacebridge", "torch", "python", "system", "threads"):
        assert any(line.startswith(name) for line in result.stdout.splitlines())


def test_info_says_what_is_in_a_file(run, fitted, trained, prediction):
    told = json.loads(run("info", fitted.path, "--json").stdout)
    assert (told["classes"], told["features"], told["head"]) == (3, 8, "2")
    assert (told["posterior"], told["bridge"]) == ("KronPosterior", "race")
    assert told["prior_chosen_by"] == "largest evidence of the training data"
    assert told["training_accuracy"] == lb.load(fitted.path, trained).labels.accuracy > 0.5
    lines = run("info", prediction).stdout.splitlines()
    assert "rows         60" in lines
    assert "class names  cat, dog, owl" in lines
    assert "labels       yes" in lines


def test_info_shows_the_rule_that_a_file_carries(run, fitted, trained, tmp_path):
    assert json.loads(run("info", fitted.path, "--json").stdout)["rule"] is None
    classifier = lb.load(fitted.path, trained)
    usual = classifier.predict_features(torch.randn(200, 8, generator=torch.manual_seed(0)))
    rule = lb.selective.calibrate(lb.scores.msp, usual, answer_share=0.5)
    sets = lb.sets.calibrate(lb.sets.LeastAmbiguous(), usual, usual.label, coverage=0.9)
    path = tmp_path / "carries.safetensors"
    lb.save(
        classifier.with_rule(rule, sets=sets, max_set_size=2, class_names=["cat", "dog", "owl"]),
        path,
    )
    told = json.loads(run("info", path, "--json").stdout)
    assert told["rule"] == f"msp at most {rule.threshold:.6g}"
    assert told["sets"] == f"LeastAmbiguous at {sets.threshold:.6g}"
    assert (told["max_set_size"], told["class_names"]) == (2, ["cat", "dog", "owl"])
    assert "nothing is promised about errors" in told["promises"][0]
    assert "at least 0.9" in told["promises"][1]
    assert "unusual_above" not in told
    assert "max set size" in run("info", path).stdout


def test_info_refuses_what_it_does_not_know(call, folder, tmp_path):
    save_file({"weight": torch.ones(2, 2)}, tmp_path / "other.safetensors")
    fails(call("info", tmp_path / "other.safetensors"), 1, "not a classifier saved by")
    fails(call("info", "classes.txt"), 1, "classes.txt is no saved classifier: it looks like text")
