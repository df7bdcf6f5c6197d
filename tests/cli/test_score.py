"""`laplacebridge score`: files, folders and images, and what does the work."""

import json
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import laplacebridge as lb
from laplacebridge.cli import engines, score
from laplacebridge.cli.main import app

parquet = pytest.importorskip("pyarrow.parquet")
pillow = pytest.importorskip("PIL.Image")
SIDE = 4
CODE = f"""
from torch import nn

def network():
    return nn.Sequential(nn.Flatten(), nn.Linear({3 * SIDE * SIDE}, 8), nn.ReLU(), nn.Linear(8, 3))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A network of small images, and a folder of such images in two subfolders."""
    folder = tmp_path_factory.mktemp("scored")
    (folder / "scored_code.py").write_text(CODE)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 8), nn.ReLU(), nn.Linear(8, 3))
    torch.save(network.state_dict(), folder / "weights.pt")
    inputs, labels = torch.rand(60, 3, SIDE, SIDE), torch.arange(60) % 3
    classifier = lb.fit(network, [(inputs, labels)], prior_precision=1.0, progress=False)
    lb.save(classifier, folder / "classifier.safetensors")
    generator = np.random.default_rng(0)
    for name in ("cats", "dogs"):
        (folder / "images" / name).mkdir(parents=True)
        for index in range(5):
            pixels = generator.integers(0, 256, (SIDE, SIDE, 3), np.uint8)
            pillow.fromarray(pixels).save(folder / "images" / name / f"{index}.png")
    return folder, classifier


@pytest.fixture
def call(project, monkeypatch):
    monkeypatch.chdir(project[0])
    network = ("--model", "scored_code:network", "--weights", "weights.pt")

    def run(*arguments):
        command = ["score", "classifier.safetensors", *map(str, arguments), *network]
        return CliRunner().invoke(app, [*command, "--json"])

    return run


def test_images_of_a_folder_are_scored_in_parts_with_their_names(
    call, project, tmp_path, monkeypatch
):
    monkeypatch.setattr(score, "IMAGES_TOGETHER", 3)
    folder, classifier = project
    options = ("--mean", "0.5", "--std", "0.25", "-o", tmp_path)
    first = call("images", *options)
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["files"] == 4
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet"))
    assert written == [
        f"{name}/images-0000{part}.parquet" for name in ("cats", "dogs") for part in (0, 1)
    ]
    tables = [parquet.read_table(tmp_path / name).to_pydict() for name in written[:2]]
    names = [name for table in tables for name in table["file"]]
    assert names == [f"{index}.png" for index in range(5)]
    pixels = np.stack([np.asarray(pillow.open(folder / "images/cats" / name)) for name in names])
    inputs = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        expected = classifier((inputs - 0.5) / 0.25)
    found = [value for table in tables for value in table["probability"]]
    np.testing.assert_allclose(found, expected.mean.amax(-1), atol=1e-6)
    assert json.loads(call("images", *options).stdout)["skipped"] == 4
    # one image more changes the last part of its folder alone
    pillow.open(folder / "images/dogs/0.png").save(folder / "images/dogs/9.png")
    again = json.loads(call("images", *options).stdout)
    (folder / "images/dogs/9.png").unlink()
    assert (again["rows"], again["skipped"]) == (11, 3)


def test_another_preparation_is_not_mixed_in(call, tmp_path):
    assert call("images", "-o", tmp_path).exit_code == 0
    again = call("images", "--mean", "0.5", "-o", tmp_path)  # scored again, not passed over
    assert json.loads(again.stdout)["skipped"] == 0


def test_a_folder_is_a_source_of_score_file_too(project, tmp_path):
    folder, classifier = project
    source, target = folder / "images/cats", tmp_path / "cats.parquet"
    scored = lb.score_file(
        classifier, source, target, prepare=lambda image: torch.full((3, SIDE, SIDE), 0.5)
    )
    assert scored.rows == 5
    assert np.ptp(parquet.read_table(target).to_pydict()["probability"]) < 1e-6
    with pytest.raises(lb.InputError, match="needs images"):
        lb.score_file(classifier, tmp_path, target)
    with pytest.raises(lb.InputError, match="no column 'id'"):
        lb.score_file(classifier, source, tmp_path / "other.parquet", keep=["id"])


def test_functions_that_prepare_otherwise_are_told_apart(project, tmp_path):
    folder, classifier = project
    source, target = folder / "images/cats", tmp_path / "cats.parquet"

    def filled(value):
        return lambda image: torch.full((3, SIDE, SIDE), value)

    prepares = [
        *(filled(0.5), filled(0.5), filled(0.6)),
        lambda image: torch.zeros(3, SIDE, SIDE),
        lambda image: torch.ones(3, SIDE, SIDE),
    ]
    skipped = [lb.score_file(classifier, source, target, prepare=each).skipped for each in prepares]
    assert skipped == [False, True, False, False, False]


def test_images_of_several_shapes_are_refused(project, tmp_path):
    folder, classifier = project
    lengths = iter(range(4, 9))
    with pytest.raises(lb.InputError, match=r"\(5,\).*\(4,\).*in `prepare` \(`--size 224`"):
        lb.score_file(
            classifier,
            folder / "images/cats",
            tmp_path / "cats.parquet",
            prepare=lambda image: torch.zeros(next(lengths)),
        )


def test_a_process_that_outlives_a_run_loads_the_classifier_of_the_next(project, monkeypatch):
    folder, _ = project
    monkeypatch.chdir(folder)
    options = {"holds": "inputs", "model": "scored_code:network", "weights": "weights.pt"}
    first, second = (
        engines.Scoring(str(folder), "classifier.safetensors", **options) for _ in range(2)
    )
    sent = pickle.loads(pickle.dumps(first))  # noqa: S301 - as it reaches a worker
    assert engines._loaded(first) is engines._loaded(sent)
    assert engines._loaded(second) is not engines._loaded(first)


def test_what_cannot_be_scored_is_refused(call, project, tmp_path):
    folder, _ = project
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        ((tmp_path / "empty",), "no images"),
        (("images", "--engine", "spark"), "dask://HOST:PORT"),
        (("images/cats", "images/dogs"), "would both be scored"),
        (("images", "--mean", "a"), "needs one number or three"),
    ):
        result = call(*arguments, "-o", tmp_path / "out")
        assert result.exit_code in {1, 2}
        assert words in " ".join(result.stderr.replace("│", " ").split())
    (folder / "images/cats/broken.png").write_bytes(b"no image")
    result = call("images/cats", "-o", tmp_path / "out")
    (folder / "images/cats/broken.png").unlink()
    assert result.exit_code == 1
    assert "damaged" in result.stderr
    assert not list((tmp_path / "out").rglob("*.parquet"))
