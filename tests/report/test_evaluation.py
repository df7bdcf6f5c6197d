"""What was found, as values: columns, what is best, the numbers as JSON, and specimens
that can be shown.
"""

import dataclasses
import html
import json
import subprocess
import sys
from importlib import resources

import pytest
import torch

import laplacebridge as lb
from laplacebridge.report import Row
from laplacebridge.report._findings.gallery import Specimen
from laplacebridge.report.table import COLUMNS

PREDICTION = lb.Prediction(lb.Dirichlet(torch.zeros(1, 3)), torch.ones(1, 3))


def test_every_column_is_a_number_of_a_row_under_its_own_name():
    fields = {field.name for field in dataclasses.fields(Row)}
    assert set(COLUMNS) == fields - {"method", "evidence"}
    assert all(name == column.name for name, column in COLUMNS.items())
    assert len({column.heading for column in COLUMNS.values()}) == len(COLUMNS)


def test_the_best_of_a_column_is_its_largest_or_smallest_number_and_that_of_others_nothing(
    evaluation,
):
    for name, column in COLUMNS.items():
        values = {row.method: row.value(name) for row in evaluation.rows}
        pick = {"larger": max, "smaller": min}.get(column.better)
        target = pick(values.values()) if pick else None
        assert evaluation.best(name) == {
            method for method, value in values.items() if value == target
        }
    assert {name for name in COLUMNS if not evaluation.best(name)} == {"coverage"}


def test_numbers_that_are_not_finite_are_never_the_best(hostile):
    odd = hostile.rows[1].method
    assert not any(odd in hostile.best(column) for column in ("nll", "distance", "microseconds"))


def test_data_holds_every_number_as_it_is(evaluation):
    data = evaluation.to_dict()
    for row, found in zip(evaluation.rows, data["rows"]):
        assert found["method"] == row.method
        assert [found[column] for column in COLUMNS if column != "auroc"] == [
            row.value(column) for column in COLUMNS if column != "auroc"
        ]
        assert found["auroc"] == {
            "estimate": row.auroc.estimate,
            "low": row.auroc.low,
            "high": row.auroc.high,
            "level": 0.95,
        }
    sizes, sets = data["sets"]["sizes"], evaluation.sets
    assert sum(each["count"] for each in sizes) == len(evaluation.labels)
    assert sum(each["held"] for each in sizes) == int(sets.held.sum())
    assert data["sets"]["mean_size"] == sets.sizes.double().mean().item()
    assert data["sets"]["found"]["estimate"] == sets.held.double().mean().item()
    prior = evaluation.prior
    assert data["prior"] == {
        "candidates": list(prior.candidates),
        "scores": list(prior.scores),
        "chosen": 3.0,
        "meaning": "negative log likelihood of 150 validation examples",
    }
    assert data["identity"] == evaluation.identity
    assert data["card"] == {"intended use": "none"}
    assert data["headline"] == evaluation.headline
    assert data["not_finite"] == []
    assert json.loads(json.dumps(data, allow_nan=False)) == data


@pytest.mark.parametrize(
    ("image", "error", "message"),
    [
        (torch.zeros(8), lb.errors.ShapeError, "channels first"),
        (torch.zeros(0, 3), lb.errors.ShapeError, "channels first"),
        (torch.zeros(1, 1, 8, 8), lb.errors.ShapeError, "channels first"),
        (torch.full((4, 4), torch.nan), ValueError, "finite numbers"),
    ],
    ids=["vector", "empty", "batch", "NaN"],
)
def test_what_is_no_image_is_an_error(image, error, message):
    with pytest.raises(error, match=message):
        Specimen("typical", PREDICTION, 0, image)


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("accuracy", 0.93421, "93.4\u202f%"),
        ("nll", 0.12345, "0.1235"),
        ("auroc", 0.91, "0.910"),
        ("microseconds", 1234567.0, "1.23e+06"),
        ("microseconds", 1234.4, "1,234"),
        ("microseconds", 0.01234, "0.0123"),
        ("distance", float("-inf"), "−∞"),
        ("ece", None, "—"),
    ],
    ids=str,
)
def test_numbers_are_written_for_people(column, value, expected):
    assert COLUMNS[column].text(value) == expected


def test_the_verdict_is_the_headline_and_the_recommendation(evaluation):
    assert evaluation.verdict.splitlines() == [
        evaluation.headline,
        *evaluation.advice.sentences,
        evaluation.advice.beside,
    ]


def test_a_report_is_saved_as_a_page_or_as_its_record(evaluation, tmp_path):
    page, record = evaluation.save(tmp_path / "r.html"), evaluation.save(str(tmp_path / "r.json"))
    assert page.read_text("utf-8") == evaluation.to_html()
    assert json.loads(record.read_text("utf-8")) == json.loads(json.dumps(evaluation.to_dict()))
    assert {path.name for path in tmp_path.iterdir()} == {"r.html", "r.json"}


@pytest.mark.parametrize("name", ["evaluation", "bare", "many_classes", "hostile"])
def test_the_record_has_the_form_that_is_documented(name, request):
    jsonschema = pytest.importorskip("jsonschema")  # comes with what notebooks need
    schema = json.loads(
        resources.files("laplacebridge.report").joinpath("schema.json").read_text("utf-8")
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    record = json.loads(json.dumps(request.getfixturevalue(name).to_dict()))
    jsonschema.validate(record, schema)
    del record["figures"][0]["light"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(record, schema)


def test_every_field_of_the_record_is_described():
    path = resources.files("laplacebridge.report").joinpath("schema.json")

    def undescribed(part):
        if isinstance(part, list):
            return [name for each in part for name in undescribed(each)]
        if not isinstance(part, dict):
            return []
        fields = part.get("properties", {})
        bare = [name for name, field in fields.items() if not field.get("description")]
        return bare + [name for each in part.values() for name in undescribed(each)]

    assert undescribed(json.loads(path.read_text("utf-8"))) == []


def test_a_notebook_shows_the_first_screen(evaluation, hostile):
    shown = evaluation._repr_html_()
    for text in (evaluation.headline, evaluation.figures[0].text, evaluation.advice.sentences[0]):
        assert html.escape(text) in shown
    assert "<script" not in hostile._repr_html_()


def test_a_page_without_the_packages_that_draw_it_says_what_to_install():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import torch, laplacebridge as lb\n"
        "evaluation = object.__new__(lb.report.Evaluation)\n"
        "try: evaluation.to_html()\n"
        "except lb.LaplaceBridgeError as error: print(error)\n"
    )
    result = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "needs matplotlib" in result.stdout
    assert "pip install 'laplacebridge[report]'" in result.stdout
