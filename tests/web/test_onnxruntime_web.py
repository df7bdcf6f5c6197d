"""Exported files run in onnxruntime-web, under Node and in a browser, with the numbers
of ONNX Runtime.

Needs its files: `npm install --no-save onnxruntime-web` in the clone, or
ONNXRUNTIME_WEB, the folder `dist` of the package.
"""

import functools
import http.server
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import chromium
import numpy as np
import onnx_cases
import pytest
import torch

pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
pytest.importorskip("onnxscript", reason="needs the extra `onnx`")

from laplacebridge.onnx import Wanted, append_answers

pytestmark = pytest.mark.crosscheck
ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("run_model.mjs")
PAGE = ROOT / "examples" / "browser" / "write_digits.py"
PARTS = ("probabilities", "interval", "total", "epistemic", "aleatoric", "label", "ood_quantile")


@pytest.fixture(scope="module")
def dist():
    folder = Path(
        os.environ.get("ONNXRUNTIME_WEB", ROOT / "node_modules" / "onnxruntime-web" / "dist")
    )
    if not (folder / "ort.wasm.min.mjs").exists():
        pytest.skip("needs onnxruntime-web: `npm install --no-save onnxruntime-web`")
    return folder


def in_node(dist, path, inputs):
    node = shutil.which("node") or pytest.skip("needs Node")
    shape = ",".join(map(str, inputs.shape))
    finished = subprocess.run(  # noqa: S603
        [node, str(SCRIPT), str(dist), str(path), shape],
        input=json.dumps(inputs.flatten().tolist()),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    found = json.loads(finished.stdout.splitlines()[-1])
    return {
        name: np.array(value["numbers"], dtype=float).reshape(value["shape"])
        for name, value in found.items()
    }


@pytest.mark.parametrize(
    ("curvature", "bridge", "num_classes"),
    [
        *itertools.product(["diag", "kron", "full"], ["one-vs-rest", "race"], [10]),
        ("kron", "race", 1000),  # has branches
    ],
)
def test_the_numbers_are_the_same_under_node(curvature, bridge, num_classes, dist, tmp_path):
    classifier = onnx_cases.classifier_of(curvature, bridge, num_classes)
    model = onnx_cases.head_graph(classifier.network.model)
    append_answers(model, classifier, features="x", logits="logits", wanted=Wanted(PARTS))
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    inputs = torch.randn(7, onnx_cases.NUM_FEATURES, generator=torch.Generator().manual_seed(1))
    inputs[5], inputs[6] = inputs[5] * 30, inputs[6] * 0.01
    found, expected = (
        in_node(dist, path, inputs),
        onnx_cases.run(onnx_cases.session_of(model), inputs),
    )
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=2e-5, rtol=1e-4, err_msg=name)
    assert max(onnx_cases.differences(found, classifier(inputs)).values()) < 1


@pytest.fixture(scope="module")
def page(dist, tmp_path_factory):
    """The folder of the page, and its address."""
    folder = tmp_path_factory.mktemp("page")
    command = [sys.executable, "-W", "ignore", str(PAGE), str(folder)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert finished.returncode == 0, finished.stderr[-2000:]
    shutil.copytree(dist, folder / "ort")
    handler = functools.partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}/index.html"
    server.shutdown()
    server.server_close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, *_):
        pass


def test_the_page_answers_in_a_browser_as_the_file_does_here(page, tmp_path):
    folder, address = page
    images = json.loads((folder / "images.json").read_text(encoding="utf-8"))
    session = onnx_cases.session_of(str(folder / "model.onnx"))
    with chromium.opened(tmp_path / "profile") as browser:
        browser.open(address)
        browser.value(
            "new Promise(done => { const look = () => document.body.dataset.ready ? done()"
            " : setTimeout(look, 50); look(); })"
        )
        assert browser.complaints() == []
        assert all(url.startswith(address.rpartition("/")[0]) for url in browser.requested())
        shown = browser.value("document.getElementById('decision').textContent")
        assert shown.startswith("0 with ")
        assert browser.value("document.querySelectorAll('#classes tr').length") == 7
        for image in images[::7]:
            pixels = np.array(image["pixels"], dtype=np.float32).reshape(1, 1, 8, 8)
            expected = onnx_cases.run(session, pixels)
            found = browser.value(f"window.answer({json.dumps(image['pixels'])})")
            assert set(found) == set(expected)
            for name, value in expected.items():
                np.testing.assert_allclose(found[name], value[0].ravel(), atol=2e-5, rtol=1e-4)
        # the unknown digits are at the end
        browser.value("[...document.querySelectorAll('button')].at(-1).onclick()")
        assert browser.value("document.getElementById('decision').textContent") != shown
