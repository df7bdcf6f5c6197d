"""`laplacebridge review`: the order is the library's, in every format."""

import csv
import json

import numpy as np
import torch
from cli_project import fails, records

import laplacebridge as lb

NAMES = ("cat", "dog", "owl")


def test_cases_are_those_of_the_library(run, prediction):
    result = run("review", prediction, "-n", "5")
    assert result.returncode == 0, result.stderr
    with np.load(prediction) as file:
        dirichlet = lb.Dirichlet(torch.from_numpy(file["log_concentration"]))
    expected = lb.review(dirichlet, 5, class_names=NAMES)
    rows = records(result.stdout)
    assert [row["row"] for row in rows] == [case.row for case in expected]
    assert [row["why"] for row in rows] == [case.why for case in expected]
    np.testing.assert_allclose(
        [row["chance_wrong"] for row in rows], [case.chance_wrong for case in expected], rtol=1e-6
    )
    assert [row["predicted"] for row in rows] == [case.predicted for case in expected]
    with np.load(prediction) as file:
        given = [NAMES[file["labels"][case.row]] for case in expected]
    assert [row["label"] for row in rows] == given
    assert given != [case.predicted for case in expected]
    assert "5 of 60 predictions to look at" in result.stderr


def test_unusual_inputs_come_first_and_files_say_so(call, prediction, tmp_path):
    with np.load(prediction) as file:
        held = dict(file)
    surest = int(held["probabilities"].max(-1).argmax())
    held["score_ood_quantile"] = np.where(np.arange(60) == surest, 0.9999, 0.3)
    np.savez(tmp_path / "strange.npz", **held)
    path = tmp_path / "queue.csv"
    result = call("review", tmp_path / "strange.npz", "-n", "2", "-o", path, "--json")
    assert json.loads(result.stdout)["reasons"]["unusual"] == 1
    with path.open() as stream:
        rows = list(csv.DictReader(stream))
    assert rows[0]["row"] == str(surest)
    assert rows[0]["reason"] == "unusual"
    assert "more unusual than 100.0% of held-out inputs" in rows[0]["why"]
    call("review", tmp_path / "strange.npz", "-o", tmp_path / "queue.npz")
    with np.load(tmp_path / "queue.npz") as file:
        assert file["row"][0] == surest
        assert (np.diff(file["chance_wrong"]) <= 0).all()


def test_labels_that_nobody_gave_are_not_made_up(call, prediction, tmp_path):
    with np.load(prediction) as file:
        held = dict(file)
    held["labels"][:] = -100
    np.savez(tmp_path / "ignored.npz", **held)
    rows = records(call("review", tmp_path / "ignored.npz", "-q").stdout)
    assert {row["label"] for row in rows} == {None}
    del held["labels"]
    np.savez(tmp_path / "without.npz", **held)
    rows = records(call("review", tmp_path / "without.npz", "-q").stdout)
    assert len(rows) == 60
    assert all("label" not in row and row["predicted"] in NAMES for row in rows)


def test_bad_arguments_are_refused(call, prediction):
    fails(call("review", prediction, "-n", "0"), 2, "--number")
    fails(call("review", "absent.npz"), 2, "absent.npz")
