"""`laplacebridge bench` times every method."""

import json

from laplacebridge.bridges import BRIDGES


def test_bench_gives_multiples_of_softmax(call):
    result = call("bench", "--classes", "5", "--repetitions", "1", "--examples", "8", "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    by_name = {row["method"]: row for row in rows}
    assert by_name["softmax"]["times_softmax"] == 1
    assert by_name.keys() >= BRIDGES.keys()
    assert all(row["microseconds"] > 0 for row in rows)
    table = call("bench", "--classes", "5,7", "--repetitions", "1", "--examples", "8")
    assert "K = 7" in table.stdout
    assert "race mean" in table.stdout
    wrong = call("bench", "--classes", "one")
    assert wrong.exit_code == 2
    assert "10,1000" in wrong.stderr
