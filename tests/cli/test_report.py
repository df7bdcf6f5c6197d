"""`laplacebridge report` on the user's own model."""

import json

import numpy as np
import pytest
from cli_project import MODEL, examples

import laplacebridge as lb


@pytest.fixture(scope="module")
def reported(run, fitted, folder):
    """A report on test data, with OOD inputs and validation data."""
    return run(
        "report", fitted.path, "test.npz", *MODEL, "--ood", "held_out.npz", "--validation", "held_out.npz",
        "--classes", "classes.txt", "--title", "Cats & <dogs>", "--table", "report.json", "-o", "report.html",
    )  # fmt: skip


def test_the_page_and_the_table_are_written_and_the_verdict_is_said(reported, folder):
    assert reported.returncode == 0, reported.stderr
    assert "Recommendation: " in reported.stdout
    assert "Answered by itself" in reported.stdout
    assert reported.stderr.endswith("Written to report.html.\n")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Cats &amp; &lt;dogs&gt;" in page
    assert "owl" in page
    assert "How it was chosen: largest evidence of the training data." in page
    numbers = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert numbers["title"] == "Cats & <dogs>"
    assert numbers["rows"][0]["method"] == "MAP"
    assert all(row["auroc"] is not None for row in numbers["rows"])


def test_a_classifier_of_several_layers_is_reported_on_with_its_network(call, trained, tmp_path):
    data = examples(200, seed=0)
    fitted = lb.fit(trained, [data], layers="*", prior_precision=2.0, progress=False)
    lb.save(fitted, tmp_path / "classifier.safetensors")
    result = call(
        "report", tmp_path / "classifier.safetensors", "test.npz", *MODEL, "--ood", "held_out.npz", "--json",
        "-o", tmp_path / "report.html",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "2 layers" in (tmp_path / "report.html").read_text(encoding="utf-8")
    race = next(row for row in json.loads(result.stdout)["rows"] if row["method"] == "race")
    inputs, labels = examples(60, seed=1)
    assert race["nll"] == pytest.approx(lb.metrics.nll(fitted(inputs), labels), rel=1e-4)


def test_features_are_enough_and_ood_inputs_are_not_needed(call, fitted, tmp_path):
    result = call(
        "report",
        fitted.path,
        "test_features.npz",
        "-o",
        tmp_path / "r.html",
        "--table",
        tmp_path / "t.csv",
    )
    assert result.exit_code == 0, result.output
    header, first, *_ = (tmp_path / "t.csv").read_text(encoding="utf-8").splitlines()
    assert header.startswith("method,accuracy,nll")
    assert first.endswith(",,")  # no AUROC, no ends
    assert "temperature" not in first


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nowhere.safetensors", "test.npz"), 2, "nowhere.safetensors"),
        (("{classifier}", "nowhere.npz"), 2, "nowhere.npz"),
        (("{classifier}", "test_features.npz", "--table", "table.xlsx"), 2, ".csv or .json"),
        (("{classifier}", "test_features.npz", "-o", "no/such/folder/report.html"), 2, "no folder"),
        (("{classifier}", "unlabelled.npz"), 1, "label"),
    ],
    ids=["no classifier", "no data", "unknown table", "no folder", "no labels"],
)
def test_what_is_wrong_is_said_in_one_message(
    call, fitted, folder, tmp_path, arguments, code, message
):
    np.savez(folder / "unlabelled.npz", features=np.load(folder / "test_features.npz")["features"])
    output = () if "-o" in arguments else ("-o", tmp_path / "page.html")
    result = call(
        "report", *(str(argument).format(classifier=fitted.path) for argument in arguments), *output
    )
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())
