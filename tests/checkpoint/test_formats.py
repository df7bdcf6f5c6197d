"""Files of every released format are read, and answer what they answered then.

`scripts/make_checkpoint_fixtures.py` wrote them. They are never written again.
"""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

import laplacebridge as lb

FOLDER = Path(__file__).parents[1] / "fixtures" / "checkpoints"
SCRIPT = Path(__file__).parents[2] / "scripts" / "make_checkpoint_fixtures.py"
ANSWERS = {
    name: answer
    for path in sorted(FOLDER.glob("version-*.json"))
    for name, answer in json.loads(path.read_text()).items()
}


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_checkpoint_fixtures", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_has_an_answer():
    assert {path.name for path in FOLDER.glob("*.safetensors")} == set(ANSWERS)
    assert len(ANSWERS) >= 7


@pytest.mark.parametrize("name", ANSWERS)
def test_a_file_of_a_released_format_answers_as_it_did(name, maker):
    classifier = lb.load(FOLDER / name, maker.network(), strict=True)
    found = classifier(maker.inputs(4)).dirichlet.log_concentration
    torch.testing.assert_close(found, torch.tensor(ANSWERS[name]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["kron", "layers"])
def test_scores_of_unusual_inputs_are_those_of_the_file_and_are_saved_again(kind, maker, tmp_path):
    """These files have a whitening for each distance, which nothing makes any more."""
    classifier = lb.load(FOLDER / f"version-3-{kind}.safetensors", maker.network())
    inputs = torch.cat([maker.inputs(3), 1e3 * maker.inputs(2)])
    expected = torch.tensor([0.985659, 1.272385, 1.721196, 18.207367, 4.851478])
    torch.testing.assert_close(classifier(inputs).ood_score, expected, rtol=1e-5, atol=0)
    lb.save(classifier, tmp_path / "again.safetensors")
    again = lb.load(tmp_path / "again.safetensors", maker.network())
    torch.testing.assert_close(again(inputs).ood_score, expected, rtol=1e-5, atol=0)
