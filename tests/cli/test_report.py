"""`laplacebridge report` on the user's own model."""

import json
import re
import shutil

import numpy as np
import pytest
from cli_project import MODEL, examples, fails

import laplacebridge as lb
from laplacebridge.cli.report import NOT_MET


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


def test_what_is_required_and_not_found_is_named_and_ends_with_a_code_of_its_own(
    call, fitted, tmp_path
):
    given = ("report", fitted.path, "test_features.npz", "-o", tmp_path / "r.html", "--force")
    met = call(*given, "--require", "accuracy>=0.5", "--require", "coverage >= 50%")
    assert met.exit_code == 0, met.output
    failed = call(
        *given, "--require", "accuracy>=0.5", "--require", "ece<1e-9", "--require", "auroc>=0.8"
    )
    assert failed.exit_code == NOT_MET
    assert "Not met: ece<1e-9: ece is 0." in failed.stderr
    assert "Not met: auroc>=0.8: auroc was not measured." in failed.stderr
    assert "accuracy" not in failed.stderr
    assert (tmp_path / "r.html").exists()  # to see why
    (tmp_path / "r.html").unlink()
    assert call(*given, "--require", "ece=0.1").exit_code == 1
    assert not (tmp_path / "r.html").exists()  # refused before any work


def test_costs_groups_card_and_author_are_on_the_page(call, fitted, tmp_path):
    (tmp_path / "groups.csv").write_text(
        "row,site\n" + "".join(f"{row},{'AB'[row % 2]}ville\n" for row in range(60))
    )
    (tmp_path / "card.md").write_text("## Intended use\nTo test.\n\n## Limits\nMade up.\n")
    result = call(
        "report", fitted.path, "test_features.npz", "--groups", tmp_path / "groups.csv", "--card", tmp_path / "card.md",
        "--author", "A. Tester", "--cost-wrong", "100", "--cost-defer", "5", "-o", tmp_path / "r.html",
        "--table", tmp_path / "r.json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    for text in ("Bville", "To test.", "Made up.", "A. Tester", "A wrong answer cost"[2:]):
        assert text in page
    record = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in record["groups"]] == ["Aville", "Bville"]
    assert (record["cost"]["wrong"], record["cost"]["is_example"]) == (100.0, False)
    hashes = {name for name in record["identity"] if name.startswith("sha256")}
    assert {
        f"sha256 of {fitted.path.name} (classifier)",
        "sha256 of test_features.npz (data)",
    } <= hashes


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_the_page_is_printed_too(call, fitted, tmp_path):
    result = call(
        "report", fitted.path, "test_features.npz", "-o", tmp_path / "r.html", "--pdf", tmp_path / "r.pdf"
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert result.stderr.rstrip().endswith(f"r.html and {tmp_path / 'r.pdf'}.")
    printed = (tmp_path / "r.pdf").read_bytes()
    assert printed.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 15


def test_without_a_browser_a_pdf_is_refused_before_any_work(call, fitted, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    result = call(
        "report", fitted.path, "test_features.npz", "-o", tmp_path / "r.html", "--pdf", tmp_path / "r.pdf"
    )  # fmt: skip
    assert result.exit_code == 1
    assert "A PDF needs Chromium" in result.stderr
    assert not list(tmp_path.iterdir())


def test_held_out_data_that_name_other_classes_are_refused(call, folder, fitted, tmp_path):
    data = np.load(folder / "held_out.npz")
    for name, classes in (("test", ["ant", "bee", "cat"]), ("held_out", ["bee", "cat", "dog"])):
        labels = np.array(classes)[data["labels"]]
        np.savez(tmp_path / f"{name}.npz", inputs=data["inputs"], labels=labels)
    files = (tmp_path / "test.npz", "--validation", tmp_path / "held_out.npz")
    output = tmp_path / "page.html"
    fails(
        call("report", fitted.path, *files, *MODEL, "-o", output),
        1,
        "name different classes (ant, dog)",
    )
    assert not output.exists()
