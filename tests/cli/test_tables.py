"""Tables of examples, from a file or a pipe."""

import json

import numpy as np
import pytest
from cli_project import fails, records

from laplacebridge.cli.tables import TableBatches, column_names


@pytest.mark.parametrize("layout", ["csv", "csv with names", "lists", "objects"])
def test_features_come_from_standard_input(call, fitted, expected, folder, layout):
    with np.load(folder / "test_features.npz") as file:
        features, labels = file["features"].tolist(), file["labels"].tolist()
    lines = {
        "csv": [",".join(map(str, row)) for row in features],
        "csv with names": [
            "label," + ",".join(f"f{index}" for index in range(8)),
            *(f"{label}," + ",".join(map(str, row)) for row, label in zip(features, labels)),
        ],
        "lists": [json.dumps(row) for row in features],
        "objects": [
            json.dumps({"features": row, "label": label}) for row, label in zip(features, labels)
        ],
    }[layout]
    result = call(
        "predict", fitted.path, "-", "--batch-size", "50", "--quiet", text="\n".join(lines)
    )
    assert result.exit_code == 0, result.output
    rows = records(result.stdout)
    np.testing.assert_allclose([row["probabilities"] for row in rows], expected.mean, rtol=2e-5)
    has_labels = layout in {"csv with names", "objects"}
    assert [row.get("label") for row in rows] == (labels if has_labels else [None] * 60)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["standard input needs at least one example"]),
        ("1,2\n1,2,3\n", ["line 2", "needs 2 numbers", "has 3"]),
        ("[1, 2]\noops\n", ["line 2", "'oops'"]),
        ("[1, 2]\n", ["In batch 0", "could not run", "takes 8 features"]),
        ('{"pixels": [1, 2]}\n', ["line 1", "`features`"]),
        ("a,label\n1,cat\n", ["line 2"]),
    ],
    ids=["empty", "ragged", "not json", "too few", "other name", "label that is no number"],
)
def test_every_wrong_row_on_standard_input_has_its_message(call, fitted, text, words):
    fails(call("predict", fitted.path, "-", text=text), 1, *words)


def batch_of(tmp_path, text, class_names=(), name="rows.csv"):
    (tmp_path / name).write_text(text)
    batches = TableBatches(tmp_path / name, 10, class_names)
    (batch,) = batches
    return batches, batch


def test_a_first_row_with_a_number_is_not_taken_for_names(call, fitted):
    rows = "NA,2,3,4,5,6,7,8\n1,2,3,4,5,6,7,8\n"
    fails(call("predict", fitted.path, "-", text=rows), 1, "line 1", "'NA,2,3,4,5,6,7,8'")


@pytest.mark.parametrize("names", ["a,b,label", "0,1,label", " A , B , Label "])
def test_a_first_row_of_names_may_have_the_label(tmp_path, names):
    _, (values, labels) = batch_of(tmp_path, f"{names}\n1,2,0\n3,4,1\n")
    assert (values.tolist(), labels.tolist()) == ([[1, 2], [3, 4]], [0, 1])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.csv", "width,label,height\n1,owl,2\n3,cat,4\n5,owl,6\n"),
        (
            "rows.jsonl",
            (
                '{"inputs": [1, 2], "label": "owl"}\n{"features": [3, 4], "y": "cat"}\n{"inputs":'
                ' [5, 6], "y": "owl"}\n'
            ),
        ),
    ],
    ids=["csv", "json lines"],
)
def test_labels_may_be_names_of_classes(tmp_path, name, text):
    found, (values, labels) = batch_of(tmp_path, text, name=name)
    assert (found.class_names, labels.tolist()) == (("cat", "owl"), [1, 0, 1])
    assert values.tolist() == [[1, 2], [3, 4], [5, 6]]
    given, (_, labels) = batch_of(tmp_path, text, class_names=("owl", "dog", "cat"), name=name)
    assert (given.class_names, labels.tolist()) == (("owl", "dog", "cat"), [0, 2, 0])


def test_a_table_with_names_of_classes_is_fitted_and_predicted(call, folder, tmp_path, expected):
    names = ("cat", "dog", "owl")
    for part in ("train", "test"):
        with np.load(folder / f"{part}_features.npz") as file:
            rows = [
                ",".join([*map(str, features), names[label]])
                for features, label in zip(file["features"], file["labels"])
            ]
        header = ",".join([*(f"f{index}" for index in range(8)), "label"])
        (tmp_path / f"{part}.csv").write_text("\n".join([header, *rows]) + "\n")
    path = tmp_path / "c.safetensors"
    assert call("fit", tmp_path / "train.csv", "--head-only", "head.npz", "-o", path).exit_code == 0
    result = call("predict", path, tmp_path / "test.csv", "-q")
    rows = records(result.stdout)
    assert [row["predicted_name"] for row in rows] == [
        names[index] for index in expected.mean.argmax(-1)
    ]
    assert all(row["label_name"] == names[row["label"]] for row in rows)


@pytest.mark.parametrize("header", ["", "width,height,species\n"])
def test_words_at_the_end_of_rows_are_labels(tmp_path, header):
    text = f"{header}1,2,owl\n3,4,cat\n5,6,owl\n"
    found, (values, labels) = batch_of(tmp_path, text)
    assert (found.class_names, labels.tolist()) == (("cat", "owl"), [1, 0, 1])
    assert values.tolist() == [[1, 2], [3, 4], [5, 6]]
    names = column_names(tmp_path / "rows.csv")
    assert names == (["width", "height"] if header else None)


@pytest.mark.parametrize("last", ["NA", "", "?", "null"])
def test_a_number_that_is_missing_at_the_end_is_no_label(call, fitted, last):
    rows = f"1,2,3,4,5,6,7,{last}\n1,2,3,4,5,6,7,8\n"
    fails(call("predict", fitted.path, "-", text=rows), 1, "line 1", "needs numbers")


def test_too_few_names_in_a_table_are_not_guessed(call, fitted, tmp_path):
    row = ",".join(["0"] * 8)
    (tmp_path / "two.csv").write_text(f"a,b,c,d,e,f,g,h,label\n{row},cat\n{row},owl\n")
    result = call("predict", fitted.path, tmp_path / "two.csv")
    fails(result, 1, "has 3 classes", "two.csv names 2", "--classes")
    result = call("predict", fitted.path, tmp_path / "two.csv", "--classes", "classes.txt", "-q")
    assert [row["label"] for row in records(result.stdout)] == [0, 2]


def test_a_label_that_is_no_class_is_named_with_its_line(call, fitted, tmp_path):
    row = ",".join(["0"] * 8)
    (tmp_path / "cow.csv").write_text(f"a,b,c,d,e,f,g,h,label\n{row},cat\n{row},cow\n")
    result = call("predict", fitted.path, tmp_path / "cow.csv", "--classes", "classes.txt")
    fails(result, 1, "cow.csv, line 3", "'cow' is none of the classes cat, dog, owl")


def test_a_file_that_is_not_text_is_named(call, fitted, tmp_path):
    (tmp_path / "bin.csv").write_bytes(b"\x80\x81\xff\x00")
    fails(call("predict", fitted.path, tmp_path / "bin.csv"), 1, "bin.csv is not text", ".npz")
