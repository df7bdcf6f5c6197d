"""What was found, as values: columns, what is best, the numbers as JSON, and specimens
that can be shown.
"""

import dataclasses
import json
import subprocess
import sys

import pytest
import torch

import laplacebridge as lb
from laplacebridge.report import Row
from laplacebridge.report.evaluation import COLUMNS, Specimen


def test_every_column_is_a_number_of_a_row_under_its_own_name():
    fields = {field.name for field in dataclasses.fields(Row)}
    assert set(COLUMNS) == fields - {"method", "losses"}
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
    assert {name for name in COLUMNS if not evaluation.best(name)} == {"set_size", "coverage"}


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
    sets = lb.overlap_sets(evaluation.prediction, 0.05)
    assert sum(data["set_sizes"]["counts"].values()) == len(evaluation.labels)
    assert data["set_sizes"]["mean"] == sets.size.double().mean().item()
    assert data["set_sizes"]["coverage"] == sets.contains(evaluation.labels).double().mean().item()
    prior = evaluation.prior
    assert data["prior"] == {
        "candidates": list(prior.candidates),
        "scores": list(prior.scores),
        "chosen": 3.0,
        "meaning": "negative log likelihood of 150 validation examples",
    }
    assert data["settings"] == evaluation.settings
    assert data["not_finite"] == []
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_few_set_sizes_have_a_line_each_and_many_are_put_together(evaluation, many_classes):
    few, many = (each.to_dict()["set_sizes"] for each in (evaluation, many_classes))
    assert [(group["smallest"], group["largest"]) for group in few["groups"]] == [
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 4),
    ]
    assert [group["count"] for group in few["groups"]] == list(few["counts"].values())
    assert len(many["counts"]) > 8
    assert many["groups"][-1]["largest"] == 300
    assert sum(group["count"] for group in many["groups"]) == len(many_classes.labels)


@pytest.mark.parametrize(
    ("image", "error", "message"),
    [
        (torch.zeros(8), lb.ShapeError, "channels first"),
        (torch.zeros(0, 3), lb.ShapeError, "channels first"),
        (torch.zeros(1, 1, 8, 8), lb.ShapeError, "channels first"),
        (torch.full((4, 4), torch.nan), ValueError, "finite numbers"),
    ],
    ids=["vector", "empty", "batch", "NaN"],
)
def test_what_is_no_image_is_an_error(image, error, message):
    with pytest.raises(error, match=message):
        Specimen("sure", lb.Dirichlet(torch.zeros(1, 3)), 0, image)


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


def test_sets_are_computed_once(evaluation):
    assert evaluation.sets is evaluation.sets


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
