"""`laplacebridge reproduce`, run as a user would."""

import json

from cli_project import run_in


def test_a_figure_is_computed_shown_and_written(tmp_path):
    result = run_in(tmp_path, "reproduce", "figure2", "--profile", "smoke")
    assert result.returncode == 0, result.stderr
    assert "Beta(4, 2)" in result.stdout
    assert {path.name for path in (tmp_path / "reproduction").iterdir()} == {
        "figure2.json",
        "figure2.md",
        "figure2.png",
    }
    record = json.loads((tmp_path / "reproduction" / "figure2.json").read_text(encoding="utf-8"))
    assert (record["artifact"], record["profile"], record["seed"]) == ("figure2", "smoke", 0)
    refused = run_in(tmp_path, "reproduce", "figure2", "--profile", "smoke")
    assert refused.returncode == 2
    assert "--force" in refused.stderr


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
    assert "smoke, small, paper" in profile.stderr
