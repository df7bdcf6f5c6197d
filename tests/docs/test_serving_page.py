"""The lines of curl on the page about serving are run, against a server as it
describes.
"""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_project import examples, trained_network
from serving import running

import laplacebridge as lb

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "serving.md"
SERVE = re.search(
    r"^    laplacebridge (serve .*?)\n\n", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
).group(1)
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_lines_of_curl_give_answers(tmp_path):
    network = trained_network()
    data, held_out = examples(200, seed=0), examples(100, seed=1)
    classifier = lb.fit(network, [tuple(data)], val_loader=[tuple(held_out)], progress=False)
    lb.save(classifier, tmp_path / "classifier.safetensors")
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    (tmp_path / "names.txt").write_text("iris\nrose\ntulip")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "network.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))\n"
    )
    command = ("-m", "laplacebridge", *shlex.split(SERVE.replace("\\\n", "")), "--port", "0")
    replies = []
    with running(*command, folder=tmp_path) as server:
        for block in BLOCKS:
            line = block.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}")
            result = subprocess.run(  # noqa: S603  (the project's own page)
                ["/bin/bash", "-ec", line], capture_output=True, text=True, check=True, timeout=60
            )
            assert '"error"' not in result.stdout
            replies.append(result.stdout)
    assert len(replies) == 3
    assert '"ready":true' in replies[0]
    assert '"decision"' in replies[1]
    assert '"upper"' in replies[2]


def test_the_outputs_in_the_table_are_those_of_a_server():
    network = trained_network()
    classifier = lb.fit(
        network,
        [tuple(examples(200, seed=0))],
        val_loader=[tuple(examples(100, seed=1))],
        progress=False,
    )
    from laplacebridge.serve import ServedClassifier, TensorSpec

    served = ServedClassifier(
        classifier, [TensorSpec.parsed("x:FP32:4")], class_names=("a", "b", "c")
    )
    page = PAGE.read_text("utf-8")
    named = set(re.findall(r"`([a-z_]+)`", page))
    assert {spec.name for spec in served.outputs} <= named
    table = page[page.index("| output |") : page.index("Everything else on request")]
    by_default = [
        name
        for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`([a-z_]+)`", cell)
    ]
    assert tuple(by_default) == served.default_outputs
    assert np.isfinite(
        served.answer({"x": np.zeros((1, 4), np.float32)}, frozenset())["probability"]
    ).all()
