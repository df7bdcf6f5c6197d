"""What commands leave behind: rows in every format, and outputs that are refused before
any work is done.
"""

import csv
import io
import json

import numpy as np
import pytest
import typer

from laplacebridge._extras import needs_extra
from laplacebridge.cli import console
from laplacebridge.cli.options import FileFormat
from laplacebridge.errors import LaplaceBridgeError

RECORDS = [
    {"row": 0, "probabilities": [0.25, 0.75], "set": ["ä", "b"], "score": None},
    {"row": 1, "probabilities": [1.0, 0.0], "set": [], "score": 2.5},
]


def written(file_format, **settings):
    stream = io.BytesIO()
    parts = [
        console.Rows([record], lambda record=record: {"row": np.array([record["row"]])})
        for record in RECORDS
    ]
    console.write_rows(stream, file_format, parts, **settings)
    return stream.getvalue()


def test_names_that_a_spreadsheet_would_compute_are_text_in_csv_and_as_they_are_elsewhere(
    monkeypatch,
):
    formula = '=HYPERLINK("http://x")'
    names = {"label_name": formula, "set": ["@b", "-1"], "top": ["+c", "-1e3"]}
    record = {"row": -1, **names, "top_probabilities": [0.5, -0.0], "score": -2.5}
    monkeypatch.setitem(globals(), "RECORDS", [record])
    rows = list(csv.reader(written(FileFormat.csv).decode().splitlines()))
    cells = dict(zip(*rows))
    assert cells["label_name"] == f"'{formula}"
    assert cells["set"] == "'@b;-1"
    assert (cells["top_1"], cells["top_2"]) == ("'+c", "-1e3")
    assert (cells["row"], cells["score"]) == ("-1", "-2.5")
    assert json.loads(written(FileFormat.jsonl)) == record


def test_the_same_rows_are_written_in_every_format():
    assert [json.loads(line) for line in written(FileFormat.jsonl).decode().splitlines()] == RECORDS
    rows = list(csv.reader(written(FileFormat.csv, class_names=("ä", "b")).decode().splitlines()))
    assert rows == [
        ["row", "p_ä", "p_b", "set", "score"],
        ["0", "0.25", "0.75", "ä;b", ""],
        ["1", "1.0", "0.0", "", "2.5"],
    ]
    with np.load(
        io.BytesIO(written(FileFormat.npz, class_names=("ä", "b"))), allow_pickle=False
    ) as file:
        assert (file["row"].tolist(), file["class_names"].tolist()) == ([0, 1], ["ä", "b"])


@pytest.mark.parametrize(
    ("output", "chosen", "expected"),
    [
        ("-", None, FileFormat.jsonl),
        ("rows.CSV", None, FileFormat.csv),
        ("rows.ndjson", None, FileFormat.jsonl),
        ("rows.csv", FileFormat.npz, FileFormat.npz),
    ],
)
def test_the_format_is_what_was_chosen_or_what_the_name_ends_in(
    tmp_path, monkeypatch, output, chosen, expected
):
    monkeypatch.chdir(tmp_path)
    assert console.require_rows_output(output, chosen, force=False) is expected


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("rows.xml", "does not say what to write"),
        ("there.csv", "exists"),
        ("folder.csv", "is a folder"),
        ("no/rows.csv", "there is no folder"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused(tmp_path, monkeypatch, output, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.csv").touch()
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(typer.BadParameter, match=words):
        console.require_rows_output(output, None, force=False)


def test_a_package_that_is_missing_is_named_with_the_extra_that_brings_it():
    message = r"A poem needs no_such_package.*pip install 'laplacebridge\[poems\]'"
    with pytest.raises(LaplaceBridgeError, match=message), needs_extra("poems", "A poem"):
        import no_such_package  # noqa: F401
