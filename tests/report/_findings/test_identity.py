"""Hashes follow contents, and what an owner states is read from JSON or Markdown."""

import hashlib

import pytest
import torch

import laplacebridge as lb
from laplacebridge.report._findings import identity


def test_a_file_is_hashed_by_its_bytes_and_a_folder_by_names_and_contents(tmp_path):
    file = tmp_path / "one" / "a.bin"
    file.parent.mkdir()
    file.write_bytes(b"abc")
    assert identity.sha256_of_path(file) == hashlib.sha256(b"abc").hexdigest()
    before = identity.sha256_of_path(file.parent)
    file.rename(file.with_name("b.bin"))
    assert identity.sha256_of_path(file.parent) != before


def test_batches_are_hashed_by_their_numbers_types_and_shapes():
    def digest(batches):
        hashed = identity.Hashed(batches)
        assert [len(batch) for batch in hashed] == [len(batch) for batch in batches]
        return hashed.sha256

    batch = (torch.eye(2), torch.tensor([0, 1]))
    assert digest([batch]) == digest([(torch.eye(2), torch.tensor([0, 1]))])
    assert len({
        digest([batch]),
        digest([(torch.eye(2).double(), batch[1])]),
        digest([(torch.eye(2).reshape(1, 4), batch[1])]),
        digest([{"x": batch[0], "labels": batch[1]}]),
        digest([batch, batch]),
    }) == 5  # fmt: skip


def test_a_card_is_json_or_markdown(tmp_path):
    path = tmp_path / "card.json"
    path.write_text('{"intended use": "digits", "limits": "no letters"}', "utf-8")
    assert identity.read_card(path) == {"intended use": "digits", "limits": "no letters"}
    page = tmp_path / "card.md"
    page.write_text("# A model\n\n## Intended use\n\ndigits\nonly\n\n## Empty\n", "utf-8")
    assert identity.read_card(page) == {"Intended use": "digits\nonly"}
    for text, name in (("[1]", path), ('{"a": 1}', path), ("{", path), ("no heading", page)):
        name.write_text(text, "utf-8")
        with pytest.raises(lb.InputError, match=name.name):
            identity.read_card(name)
