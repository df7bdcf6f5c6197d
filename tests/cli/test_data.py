"""Data that the user names: loaders are seeded, and classes must be those of the model."""

import pytest
import torch
from cli_project import MODEL, fails, records
from torch import nn

from laplacebridge.cli.data import Batches


def test_the_seed_repeats_loaders_that_draw_random_numbers(call, fitted):
    answers = [
        call("predict", fitted.path, "project_code:noisy", *MODEL, "--seed", seed, "-q").stdout
        for seed in (1, 1, 2)
    ]
    assert answers[0] == answers[1] != answers[2]


def test_class_names_must_be_those_of_the_model(call, fitted, tmp_path):
    (tmp_path / "two.txt").write_text("cat\ndog\n")
    result = call("predict", fitted.path, "test_features.npz", "--classes", tmp_path / "two.txt")
    fails(result, 1, "The model has 3 classes, and --classes names 2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('["cat", 3, "owl"]', ["needs one text for each class"]),
        ('["cat"', ["neither lines of text nor a JSON list"]),
        ("cat\ndog\ncat\n", ["names the class 'cat' more than once"]),
    ],
    ids=["a number", "damaged", "twice"],
)
def test_every_wrong_list_of_classes_has_its_message(call, prediction, tmp_path, text, words):
    (tmp_path / "classes.txt").write_text(text)
    fails(call("sets", prediction, "--classes", tmp_path / "classes.txt"), 1, *words)


def test_classes_may_be_a_json_list(call, prediction, tmp_path):
    (tmp_path / "classes.json").write_text('["a", "b", "c"]')
    result = call("sets", prediction, "--classes", tmp_path / "classes.json", "-q")
    assert {name for row in records(result.stdout) for name in row["set"]} <= {"a", "b", "c"}


def test_only_numbers_of_files_are_converted_to_the_type_of_the_network():
    network = nn.Linear(2, 2)
    values = [torch.zeros(3, 2, dtype=torch.float64), torch.zeros(3, 2, dtype=torch.int64)]
    from_file, from_loader = (
        Batches("data", values, is_loader=loader).prepared_for(network) for loader in (False, True)
    )
    assert [value.dtype for value in from_file] == [torch.float32, torch.int64]
    assert [value.dtype for value in from_loader] == [torch.float64, torch.int64]
    assert len(from_file) == 2
