"""`laplacebridge reproduce`, run as a user would."""

import json
import subprocess
import sys

from cli_project import run_in


def test_a_figure_is_computed_shown_and_written(tmp_path):
    result = run_in(tmp_path, "reproduce", "figure2", "--profile", "smoke")
    assert result.returncode == 0, result.stderr
    assert "Beta(4, 2)" in result.stdout
    assert {path.name for path in (tmp_path / "laplacebridge-reproduction").iterdir()} == {
        "figure2.json",
        "figure2.md",
        "figure2.png",
        "figure2.pdf",
        "figure2.tex",
        "figure2.csv",
    }
    record = json.loads(
        (tmp_path / "laplacebridge-reproduction" / "figure2.json").read_text(encoding="utf-8")
    )
    assert (record["artifact"], record["profile"], record["seed"]) == ("figure2", "smoke", 0)
    refused = run_in(tmp_path, "reproduce", "figure2", "--profile", "smoke")
    assert refused.returncode == 2
    assert "--force" in refused.stderr


def test_what_was_computed_is_shown_again_without_computing(tmp_path):
    assert (
        run_in(tmp_path, "reproduce", "figure2", "--profile", "smoke", "--format", "csv").returncode
        == 0
    )
    folder = tmp_path / "laplacebridge-reproduction"
    assert {path.name for path in folder.iterdir()} == {"figure2.json", "figure2.csv"}
    record = json.loads((folder / "figure2.json").read_text(encoding="utf-8"))
    record["result"]["distributions"][0]["distance"] = 0.4321
    (folder / "figure2.json").write_text(json.dumps(record), encoding="utf-8")
    assert run_in(tmp_path, "reproduce", "figure2", "--render", "--format", "tex").returncode == 0
    assert "0.432" in (folder / "figure2.tex").read_text(encoding="utf-8")


def test_what_cannot_be_shown_again_is_named(call, tmp_path):
    missing = call("reproduce", "figure2", "--render", "-o", str(tmp_path))
    assert missing.exit_code == 2
    assert "without --render" in missing.stderr
    (tmp_path / "figure2.json").write_text("{", encoding="utf-8")
    damaged = call("reproduce", "figure2", "--render", "-o", str(tmp_path))
    assert damaged.exit_code == 2
    assert "damaged" in damaged.stderr
    unknown = call("reproduce", "figure2", "--format", "docx")
    assert unknown.exit_code == 2
    assert "md, tex, csv, png, pdf" in unknown.stderr


def test_what_there_is_can_be_listed_and_what_there_is_not_is_named(call):
    listed = call("reproduce", "list")
    assert listed.exit_code == 0
    assert "figure5  " in listed.stdout
    unknown = call("reproduce", "figure99")
    assert unknown.exit_code == 2
    assert "figure99" in unknown.stderr
    assert "figure5" in unknown.stderr
    profile = call("reproduce", "figure2", "--profile", "huge")
    assert profile.exit_code == 2
    assert "'smoke', 'small', 'paper'" in profile.stderr


HELP = """
import sys
from laplacebridge.cli.main import app
app(["--help"], standalone_mode=False)
print(sorted({"matplotlib", "pooch", "sklearn", "PIL"} & set(sys.modules)))
"""


def test_the_list_of_commands_has_it_and_imports_nothing_heavy_for_it():
    shown = subprocess.run(  # noqa: S603
        [sys.executable, "-c", HELP], capture_output=True, text=True, check=True
    ).stdout
    assert "tables and figures of the paper" in " ".join(shown.split())
    assert shown.splitlines()[-1] == "[]"
