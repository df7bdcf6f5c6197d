"""Several labels at once on the command line: fit, info, predict and report."""

import csv
import json

import numpy as np
import pytest
import torch
from cli_project import MODEL, examples

import laplacebridge as lb
from laplacebridge.multi_label import per_label

NAMES = ("even", "large", "loop")


def answers(labels):
    """Three questions about a class."""
    return torch.stack([labels % 2 == 0, labels > 0, labels == 2], -1).float()


@pytest.fixture(scope="module")
def data(folder):
    for name, count, seed in (("train", 200, 0), ("test", 60, 1), ("held_out", 120, 2)):
        inputs, labels = examples(count, seed=seed)
        np.savez(folder / f"{name}_labels.npz", inputs=inputs, labels=answers(labels))
    inputs, labels = examples(60, seed=1)
    with (folder / "test_labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{n}" for n in range(4)), *(f"label_{name}" for name in NAMES)])
        writer.writerows(torch.cat([inputs.double(), answers(labels).double()], -1).tolist())
    with (folder / "test_labels.jsonl").open("w") as file:
        for row, label in zip(inputs.double().tolist(), answers(labels).tolist()):
            file.write(json.dumps({"inputs": row, "labels": label}) + "\n")
    (folder / "labels.txt").write_text("\n".join(NAMES))
    return inputs, answers(labels)


@pytest.fixture
def saved(call, data, tmp_path):
    path = tmp_path / "labels.safetensors"
    result = call(
        *("fit", "train_labels.npz", "--multi-label", "--validation", "held_out_labels.npz"),
        *(*MODEL, "-o", path, "--json"),
    )
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["multi_label"], summary["classes"]) == (True, 3)
    assert summary["bridge"] == "logistic"
    return path


def test_predictions_are_those_of_the_library(call, saved, data, trained, tmp_path):
    inputs, labels = data
    expected = lb.load(saved, trained)(inputs)
    of_labels = per_label(lb.metrics.nll, expected, labels)
    for source in ("test_labels.npz", "test_labels.csv", "test_labels.jsonl"):
        path = tmp_path / f"{source}.npz"
        classes = ("--classes", "labels.txt")
        result = call("predict", saved, source, *MODEL, *classes, "-o", path, "--json")
        assert result.exit_code == 0, result.output
        with np.load(path) as arrays:
            np.testing.assert_allclose(
                arrays["probabilities"], expected.mean.numpy(), rtol=1e-5, atol=1e-7
            )
            np.testing.assert_array_equal(arrays["labels"], labels.numpy())
            np.testing.assert_allclose(
                arrays["ood_quantile"], expected.ood_quantile.numpy(), atol=1e-6
            )
        rows = json.loads(result.stdout)["labels"]
        assert [row["label"] for row in rows] == list(NAMES)
        assert [row["nll"] for row in rows] == pytest.approx(of_labels.tolist(), rel=1e-4)


def test_rows_have_names_and_the_summary_a_line_for_each_label(call, saved):
    result = call("predict", saved, "test_labels.csv", *MODEL)
    assert result.exit_code == 0, result.output
    first = json.loads(result.stdout.splitlines()[0])
    assert set(first["applies"]) <= set(NAMES)
    assert len(first["interval_low"]) == 3
    assert all(
        low <= mean <= high
        for low, mean, high in zip(
            first["interval_low"], first["probabilities"], first["interval_high"]
        )
    )
    assert [line.split()[0] for line in result.stderr.splitlines()[-3:]] == list(NAMES)
    as_csv = call("predict", saved, "test_labels.csv", *MODEL, "--format", "csv")
    heading = as_csv.stdout.splitlines()[0].split(",")
    assert {"p_even", "low_large", "high_loop", "epistemic_even"} <= set(heading)


def test_info_and_report_know_them(call, saved, tmp_path):
    facts = json.loads(call("info", saved, "--json").stdout)
    assert (facts["labels_at_once"], facts["bridge"], facts["ood_score"]) == (3, "logistic", True)
    page, table = tmp_path / "r.html", tmp_path / "r.json"
    options = ("--ood", "test_labels.npz", "-o", page, "--table", table)
    result = call("report", saved, "test_labels.csv", *MODEL, *options)
    assert result.exit_code == 0, result.output
    assert "loop" in page.read_text(encoding="utf-8")
    record = json.loads(table.read_text())
    assert [row["name"] for row in record["labels"]] == list(NAMES)
    assert record["headline"] in result.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("predict", "{saved}", "test_labels.npz", *MODEL, "--top", "2"), "--top"),
        (("predict", "{saved}", "test_labels.npz", *MODEL, "--threshold", "0.1"), "--threshold"),
        (("report", "{saved}", "test_labels.npz", *MODEL, "--require", "ece<1"), "--require"),
        (("report", "{saved}", "test_labels.npz", *MODEL, "--table", "a.csv"), ".json"),
        (("monitor", "{saved}", "test.npz", *MODEL, "--save-baseline", "{new}"), "several labels"),
        (("fit", "train.npz", "--multi-label", *MODEL, "-o", "{new}"), "a one or a zero"),
        (("fit", "train_labels.npz", *MODEL, "-o", "{new}"), "--multi-label"),
        (
            ("fit", "train_labels.npz", "--multi-label", "--layers", "*", *MODEL, "-o", "{new}"),
            "leave out --layers",
        ),
    ],
)
def test_what_cannot_be_is_refused(call, saved, tmp_path, command, words):
    filled = [
        part.format(saved=saved, new=tmp_path / "new.safetensors") if "{" in part else part
        for part in command
    ]
    result = call(*filled)
    assert result.exit_code != 0
    assert words in " ".join(result.output.split()), result.output
    assert not (tmp_path / "new.safetensors").exists()


def test_network_and_labels_are_exported_as_one_file(call, saved, data, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
    pytest.importorskip("onnxscript", reason="needs the extra `onnx`")
    path = tmp_path / "labels.onnx"
    result = call("export", saved, "test_labels.npz", *MODEL, "-o", path)
    assert result.exit_code == 0, result.output
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (found,) = session.run(["lb_probabilities"], {"input": data[0].numpy()})
    predictions = tmp_path / "predictions.npz"
    assert call("predict", saved, "test_labels.npz", *MODEL, "-o", predictions).exit_code == 0
    with np.load(predictions) as file:
        np.testing.assert_allclose(found, file["probabilities"], rtol=0, atol=1e-5)


def test_commands_for_one_class_say_that_predictions_have_several_labels(call, saved, tmp_path):
    path = tmp_path / "predictions.npz"
    assert call("predict", saved, "test_labels.npz", *MODEL, "-o", path, "-q").exit_code == 0
    for command in ("sets", "decide", "review"):
        result = call(command, path)
        assert result.exit_code == 1
        assert "several labels at once" in result.stderr
