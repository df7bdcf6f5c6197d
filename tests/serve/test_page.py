"""The page of a server in a real browser: a person sends an example and sees the
answer.
"""

import json

import chromium
import pytest
from serving import outputs_of, running, tensor
from small_network import FEATURES

import laplacebridge as lb

pytestmark = pytest.mark.slow

WAIT = """new Promise((done, fail) => {{
  const end = Date.now() + 20000;
  (function look() {{
    const found = {expression};
    if (found) done(found); else if (Date.now() > end) fail('not seen'); else setTimeout(look, 50);
  }})();
}})"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium.opened(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


def seen(browser, expression):
    return browser.value(WAIT.format(expression=expression))


def send(browser, text):
    browser.value("document.getElementById('answers').replaceChildren()")
    browser.value(f"document.getElementById('data').value = {json.dumps(text)}")
    browser.value("document.getElementById('send').click()")


def test_a_person_sends_an_example_and_sees_the_answer(browser, server):
    home = f"http://127.0.0.1:{server.port}/"
    browser.open(home)
    takes = seen(browser, "document.getElementById('takes').textContent")
    assert takes == f"takes features: FP32 {FEATURES}"
    models = browser.value("[...document.querySelectorAll('option')].map(e => e.textContent)")
    assert models == ["digits, version 1", "digits, version 2"]
    row = [0.02, 0.4, 0.0, 0.0, 0.0]
    expected = outputs_of(server.infer({"inputs": [tensor([row])]}))
    send(browser, json.dumps(row))
    assert seen(browser, "document.querySelector('article h2')?.textContent") == (
        f"Class {expected['label_name'][0]}"
    )
    shown = browser.value("document.querySelector('article dl').textContent")
    low, high = expected["interval"][0]
    assert f"interval{low:.4f} to {high:.4f}" in shown
    assert f"decision{expected['decision'][0]}" in shown
    meter = browser.value("document.querySelector('meter').value")
    assert meter == pytest.approx(expected["probability"][0])
    send(browser, "0 0 0 0 0\n9, 9, 9, 9, 9")  # two rows, as a table has them
    assert seen(browser, "document.querySelectorAll('article').length") == 2
    assert browser.complaints() == []
    assert {url for url in browser.requested() if not url.startswith("data:")} == {
        home,
        f"{home}v2/repository/index",
        f"{home}v2/models/digits/versions/1",
        f"{home}v2/models/digits/versions/1/infer",
    }


def test_several_labels_are_shown_without_what_fills_them_up(browser, several, tmp_path):
    lb.save(several[0], tmp_path / "labels.safetensors")
    command = ("-m", "laplacebridge", "serve", "--port", "0", "labels.safetensors")
    with running(*command, folder=tmp_path) as server:
        rows = [[0.0] * FEATURES, [-2.0] * FEATURES, [2.0] * FEATURES]
        found = outputs_of(server.infer({"inputs": [tensor(rows)]}, "labels"))
        browser.open(f"http://127.0.0.1:{server.port}/")
        seen(browser, "document.getElementById('takes').textContent")
        send(browser, json.dumps(rows))
        assert seen(browser, "document.querySelectorAll('article').length") == 3
        shown = browser.value("[...document.querySelectorAll('dl')].map(e => e.textContent)")
    assert len({len([each for each in row if each]) for row in found["label_names"]}) > 1
    for text, names in zip(shown, found["label_names"]):
        assert text.startswith(f"labels{', '.join(filter(None, names)) or 'none'}label names")


def test_what_is_wrong_is_said_on_the_page(browser, server):
    browser.open(f"http://127.0.0.1:{server.port}/")
    seen(browser, "document.getElementById('takes').textContent")
    send(browser, "[1, 2, 3]")
    problem = seen(browser, "document.getElementById('problem').textContent")
    assert "5 values" in problem
    send(browser, "[1, 2")
    assert "JSON" in seen(browser, "document.getElementById('problem').textContent")
    assert browser.value("document.querySelectorAll('article').length") == 0


@pytest.mark.parametrize("width", [1280, 320])
def test_the_page_is_no_wider_than_the_screen(browser, server, width):
    browser.open(f"http://127.0.0.1:{server.port}/", width=width)
    seen(browser, "document.getElementById('takes').textContent")
    send(browser, "[0, 0, 0, 0, 0]")
    seen(browser, "document.querySelector('article')")
    assert browser.value("document.documentElement.scrollWidth") <= width


def test_only_the_script_of_the_page_itself_may_run(browser, server):
    policy = server.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    browser.open(f"http://127.0.0.1:{server.port}/")
    browser.value(
        "(() => { const e = document.createElement('script'); e.textContent = 'window.evil = 1';"
        " document.body.append(e); })()"
    )
    assert browser.value("window.evil === undefined")


def test_a_token_is_typed_in(browser, project, serve_command):
    token = {"LAPLACEBRIDGE_TOKEN": "open-sesame"}
    with running(*serve_command, "head.safetensors", folder=project, **token) as server:
        browser.open(f"http://127.0.0.1:{server.port}/")
        assert "Bearer" in seen(browser, "document.getElementById('problem').textContent")
        browser.value(
            "(() => { const e = document.getElementById('token'); e.value = 'open-sesame';"
            " e.dispatchEvent(new Event('change')); })()"
        )
        assert "FP32 16" in seen(browser, "document.getElementById('takes').textContent")
