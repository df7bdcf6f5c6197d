"""The demo, run as a user would: a table, a verdict, four files, and the same numbers
every time.
"""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import warnings

import pytest
import torch
from cli_project import run_in

import laplacebridge as lb
from laplacebridge import datasets
from laplacebridge.cli import demo as command
from laplacebridge.report.table import COLUMNS

FILES = set(command.FILES)
SAMPLED = ["MC-10", "MC-100", "MC-1000"]
METHODS = [
    "MAP",
    "temperature",
    "probit",
    *SAMPLED,
    "laplace",
    "laplace-norm",
    "kl",
    "one-vs-rest",
    "race",
]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return folder, run_in(folder, "demo")


def numbers(path):
    """The table without its timings."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return {
        row["method"]: {name: row[name] for name in COLUMNS if name != "microseconds"}
        for row in rows
    }


def test_it_ends_with_the_table_and_a_verdict(demo):
    _, result = demo
    assert result.returncode == 0, result.stderr
    headings = [column.heading for column in COLUMNS.values()]
    for word in (
        *METHODS,
        *headings,
        "Beside temperature scaling",
        "Recommendation",
        "Seed 0",
        torch.__version__.split("+")[0],
    ):
        assert word in result.stdout
    assert "nan" not in result.stdout
    assert "…" not in result.stdout  # no column is cut off
    assert result.stderr.startswith("Training a small network")
    assert "Written to laplacebridge-demo" in result.stderr.splitlines()[-1]


def test_it_writes_its_files_and_leaves_nothing_else(demo):
    folder, _ = demo
    assert {path.name for path in (folder / "laplacebridge-demo").iterdir()} == FILES
    with open(folder / "laplacebridge-demo" / "table.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == METHODS
    shown = numbers(folder / "laplacebridge-demo" / "table.json")
    for row in rows:
        assert float(row["nll"]) == shown[row["method"]]["nll"]
        assert float(row["auroc"]) == shown[row["method"]]["auroc"]["estimate"]
        assert float(row["auroc_low"]) == shown[row["method"]]["auroc"]["low"]


def test_the_saved_classifier_gives_the_numbers_of_the_table(demo):
    folder, _ = demo
    data = datasets.digits(0)
    network = datasets.trained_network(data.train, seed=0)
    classifier = lb.load(folder / "laplacebridge-demo" / "classifier.safetensors", network)
    with torch.no_grad():
        prediction = classifier(data.test[0])
    shown = numbers(folder / "laplacebridge-demo" / "table.json")["race"]
    assert lb.metrics.accuracy(prediction, data.test[1]) == pytest.approx(shown["accuracy"])
    assert lb.metrics.nll(prediction, data.test[1]) == pytest.approx(shown["nll"], rel=1e-5)


def test_the_bridge_is_as_close_to_sampling_as_it_says(demo):
    folder, _ = demo
    shown = numbers(folder / "laplacebridge-demo" / "table.json")
    assert shown["race"]["distance"] < shown["MC-1000"]["distance"] < shown["MC-10"]["distance"]
    assert shown["race"]["distance"] < shown["laplace"]["distance"] / 5


def test_a_second_run_refuses_to_overwrite_and_gives_the_same_numbers_when_told_to(demo):
    folder, _ = demo
    before = (folder / "laplacebridge-demo" / "table.json").read_bytes()
    refused = run_in(folder, "demo")
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert (folder / "laplacebridge-demo" / "table.json").read_bytes() == before
    first = numbers(folder / "laplacebridge-demo" / "table.json")
    again = run_in(folder, "demo", "--force", "--json")
    assert again.returncode == 0, again.stderr
    assert numbers(folder / "laplacebridge-demo" / "table.json") == first
    assert json.loads(again.stdout)["rows"][0]["method"] == "MAP"  # and nothing but JSON


def test_the_unknown_digits_are_in_no_other_part():
    data = datasets.digits(3)
    assert set(data.unknown[1].tolist()) == set(datasets.UNKNOWN)
    for part in (data.train, data.validation, data.test):
        assert set(part[1].tolist()) == set(datasets.KNOWN)


def test_the_table_shows_a_win_that_matters_and_where_there_is_none(demo):
    folder, _ = demo
    record = json.loads((folder / "laplacebridge-demo" / "wrong-unit.json").read_text("utf-8"))
    noticed = {name: found["estimate"] for name, found in record["alarm"]["noticed"].items()}
    assert noticed["mean perimeter × 25.4"] > 0.9
    assert noticed["mean perimeter ÷ 10"] < 0.3
    assert "“mean perimeter ÷ 10”" in record["headline"]  # said on the first screen
    assert "clearly better at noticing unusual inputs" in record["advice"]["beside"]
    assert "not clearly different in" in record["advice"]["beside"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [21, 22, 23])  # none was looked at before they stood here
def test_the_wrong_unit_is_noticed_on_other_seeds_too_and_not_by_temperature_scaling(seed):
    data = datasets.cells(seed)
    network = datasets.trained_network(data.train, seed=seed, epochs=datasets.CELL_EPOCHS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it says of a network that fits too well
        classifier = lb.fit(
            network,
            datasets.loader(data.train),
            val_loader=datasets.loader(data.validation),
            progress=False,
        )
    with torch.no_grad():
        logits = network(data.validation[0])
        scaling = lb.temperature.temperature_scaling(logits, data.validation[1])
        usual, sure = classifier(data.test[0]), scaling(network(data.test[0]))
        for name, rows in data.wrong_unit.items():
            ours = lb.metrics.auroc(usual.ood_score, classifier(rows).ood_score)
            theirs = lb.metrics.auroc(lb.scores.msp(sure), lb.scores.msp(scaling(network(rows))))
            if "×" in name:
                assert ours > 0.9
                assert theirs < 0.6
            else:
                assert ours < 0.75  # and nobody notices what is too small


@pytest.mark.slow
def test_served_pages_are_opened_in_a_browser_and_served_until_an_interrupt(tmp_path):
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path / "opened"}\n')
    browser.chmod(0o755)
    process = subprocess.Popen(  # noqa: S603 - this very package
        [sys.executable, "-m", "laplacebridge", "demo", "--serve", "-o", str(tmp_path / "demo")],
        env=os.environ | {"BROWSER": str(browser)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # a shell may have started this in the background, where interrupts are ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        found = next(
            filter(None, (re.search(r"http://127\.0\.0\.1:\d+", line) for line in process.stderr))
        )
        for name in ("report.html", "wrong-unit.html"):
            with urllib.request.urlopen(f"{found[0]}/{name}", timeout=30) as answer:  # noqa: S310
                assert answer.read() == (tmp_path / "demo" / name).read_bytes()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[1].endswith("Stopped.\n")
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "opened").read_text() == f"{found[0]}/report.html\n"
