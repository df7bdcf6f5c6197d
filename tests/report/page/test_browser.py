"""The page in a real browser: nothing asked of the network, nothing complained about,
nothing wider than the screen.
"""

import base64
import itertools
import json

import chromium
import numpy as np
import pytest

pytestmark = pytest.mark.slow

WIDE, NARROW, NARROWEST, PAPER = chromium.WIDE, 390, 320, 718


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium.opened(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


@pytest.fixture(scope="module")
def file_of(request, tmp_path_factory):
    """The file of a page, written once for each evaluation."""
    folder = tmp_path_factory.mktemp("pages")

    def path(name):
        file = folder / f"{name}.html"
        if not file.exists():
            file.write_text(request.getfixturevalue(name).to_html(), "utf-8")
        return file

    return path


PAGES = pytest.mark.parametrize("name", ["evaluation", "many_classes", "bare", "hostile"])


def test_requests_and_complaints_of_a_page_are_noticed(browser, tmp_path):
    page = tmp_path / "noisy.html"
    page.write_text(
        "<title>x</title><script>console.error('no'); fetch('http://127.0.0.1:9/x')</script>",
        "utf-8",
    )
    browser.open(page)
    assert "http://127.0.0.1:9/x" in browser.requested()
    assert {event["method"] for event in browser.complaints()} >= {
        "Runtime.consoleAPICalled",
        "Log.entryAdded",
    }


@PAGES
def test_a_page_asks_for_nothing_and_complains_about_nothing(name, browser, file_of):
    browser.open(file_of(name))
    assert browser.complaints() == []
    asked = [url for url in browser.requested() if not url.startswith("data:")]
    assert asked == [file_of(name).as_uri()]
    assert browser.value("document.documentElement.lang") == "en"


@PAGES
def test_numbers_in_the_document_are_those_of_the_data(name, browser, file_of, request):
    browser.open(file_of(name))
    data = json.loads(browser.value("document.getElementById('laplacebridge-data').textContent"))
    assert data == json.loads(json.dumps(request.getfixturevalue(name).to_dict()))
    shown = browser.value(
        "[...document.querySelectorAll('[data-key]')].map(e => [e.dataset.key, e.dataset.value])"
    )
    assert len(shown) > 40
    for key, text in shown:
        value = data
        for part in key.split("."):
            value = value[int(part)] if isinstance(value, list) else value[part]
        assert json.loads(text) == value


@PAGES
def test_every_section_is_seen(name, browser, file_of):
    browser.open(file_of(name))
    sections = browser.value(
        "[...document.querySelectorAll('nav a')].map(a =>"
        " document.querySelector(a.getAttribute('href')).getBoundingClientRect().height)"
    )
    assert len(sections) == 11
    assert min(sections) > 50
    plots = browser.value(
        "[...document.querySelectorAll('svg')].map(e => e.getBoundingClientRect().width)"
    )
    assert min(plots) > 200


@PAGES
@pytest.mark.parametrize("width", [WIDE, 768, NARROW, NARROWEST])
def test_the_page_is_no_wider_than_the_screen(name, width, browser, file_of):
    browser.open(file_of(name), width=width)
    assert browser.value("document.documentElement.scrollWidth") <= width
    # the table scrolls by itself, and the smallest text of the plots can be read
    smallest = browser.value(
        "Math.min(...[...document.querySelectorAll('svg.plot text')].map(e =>"
        " e.getBoundingClientRect().height))"
    )
    assert smallest > 8


def test_a_page_wider_than_the_screen_would_be_noticed(browser, tmp_path):
    page = tmp_path / "wide.html"
    page.write_text(
        "<meta name=viewport content='width=device-width'><p style='width: 900px'>x</p>", "utf-8"
    )
    browser.open(page, width=NARROW)
    assert browser.value("document.documentElement.scrollWidth") > NARROW


@PAGES
def test_paper_is_white_and_holds_the_whole_table(name, browser, file_of):
    browser.open(file_of(name), width=PAPER, scheme="dark", media="print")
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert (
        browser.value("document.querySelector('.methods').getBoundingClientRect().right") <= PAPER
    )
    assert base64.b64decode(browser.call("Page.printToPDF")["data"]).startswith(b"%PDF")


@pytest.mark.parametrize("width", [WIDE, NARROW], ids=["wide", "narrow"])
def test_light_and_dark_pages_look_the_part(width, browser, file_of, tmp_path):
    brightness = {}
    for scheme in ("light", "dark"):
        browser.open(file_of("evaluation"), width=width, scheme=scheme)
        picture = browser.screenshot(tmp_path / f"{scheme}-{width}.png")
        assert picture.shape[1] in {width, width - 15}  # less a scroll bar
        brightness[scheme] = float(np.median(picture))
        ink = browser.value("getComputedStyle(document.body).color")
        inks = browser.value(
            "[...new Set([...document.querySelectorAll('svg.plot text')].map(e =>"
            " getComputedStyle(e).fill))]"
        )
        assert inks == [ink]
    assert brightness["light"] > 0.95
    assert brightness["dark"] < 0.15


def test_the_slider_and_the_costs_work_without_a_network(browser, file_of):
    browser.open(file_of("evaluation"))
    move = """(place => {
      const slider = document.getElementById("risk-slider");
      slider.value = place; slider.dispatchEvent(new Event("input"));
      return [document.getElementById("risk-words").textContent,
              document.getElementById("share-answer").textContent];
    })"""
    data = json.loads(browser.value("document.getElementById('laplacebridge-data').textContent"))
    rules = data["decisions"]["rules"]
    assert len(rules) > 1
    for place in (0, len(rules) - 1):
        words, answered = browser.value(f"{move}({place})")
        share = f"{100 * rules[place]['answered']['estimate']:.1f}\u202f%"
        assert words.startswith(f"At most {100 * rules[place]['risk']:.1f}\u202f% wrong answers")
        assert answered == share
    assert not browser.value("document.getElementById('risk-control').hidden")
    said = browser.value(
        """(() => { const cost = document.getElementById("cost-wrong"); cost.value = 1e9;
        cost.dispatchEvent(new Event("input"));
        return document.getElementById("cost-words").textContent; })()"""
    )
    assert "costs" in said
    assert browser.complaints() == []


def test_without_scripts_the_tables_stand_and_the_controls_are_hidden(browser, file_of):
    browser.open(file_of("evaluation"), scripts=False)
    visible = "getComputedStyle(document.getElementById('{}')).display"
    assert browser.value(visible.format("risk-control")) == "none"
    assert browser.value(visible.format("risk-table")) == "table"


@PAGES
def test_headings_go_down_one_step_at_a_time_and_controls_have_names(name, browser, file_of):
    browser.open(file_of(name))
    levels = browser.value(
        "[...document.querySelectorAll('h1, h2, h3, h4')].map(e => Number(e.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    unnamed = browser.value(
        "[...document.querySelectorAll('input')].filter(e => e.labels.length === 0).length"
    )
    assert unnamed == 0
    scrolling = browser.value(
        "[...document.querySelectorAll('.scroll')].every(e => e.tabIndex === 0)"
    )
    assert scrolling  # by keyboard


@PAGES
def test_the_first_page_of_paper_is_not_empty_and_nothing_is_cut(name, browser, file_of):
    browser.open(file_of(name), width=PAPER, media="print")
    bottom = browser.value("document.querySelector('.figures').getBoundingClientRect().bottom")
    assert bottom < 900 or name == "hostile"  # of about 1000: figures are on the first page
    cut = browser.value(
        "[...document.querySelectorAll('svg.plot text')].filter(e => {"
        " const box = e.getBoundingClientRect(), plot = e.closest('svg').getBoundingClientRect();"
        " return box.left + 2 < plot.left || box.right - 2 > plot.right ||"
        " box.top + 2 < plot.top || box.bottom - 2 > plot.bottom; }).map(e => e.textContent)"
    )
    assert cut == []
    wide = browser.value(
        "[...document.querySelectorAll('table, pre, .card')].filter(e =>"
        f" e.getBoundingClientRect().right > {PAPER} || e.scrollWidth > e.clientWidth + 1)"
        ".map(e => e.textContent.slice(0, 40))"
    )
    assert wide == [] or name == "hostile"  # names of 100 characters without a space
    assert browser.value("getComputedStyle(document.querySelector('.signoff')).display") == "grid"


CONTRAST = """(() => {
  const channel = c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) =>
    0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
  const ground = element => {
    for (let e = element; e; e = e.parentElement) {
      const found = rgb(getComputedStyle(e).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement, style = getComputedStyle(element);
    if (!texts.currentNode.data.trim() || element.closest("script, .hidden, svg")) continue;
    if (!element.getClientRects().length) continue;
    const [one, two] = [light(rgb(style.color)), light(ground(element))];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    found.push([ratio, element.className || element.tagName, texts.currentNode.data.trim().slice(0, 30)]);
  }
  return found.sort((a, b) => a[0] - b[0]);
})()"""


@pytest.mark.parametrize(
    ("scheme", "media"), [("light", "screen"), ("dark", "screen"), ("light", "print")]
)
def test_every_text_stands_out_from_what_is_behind_it(scheme, media, browser, file_of):
    browser.open(file_of("evaluation"), scheme=scheme, media=media)
    found = browser.value(CONTRAST)
    assert len(found) > 300
    assert found[0][0] >= 4.5, found[:5]


def test_grey_on_grey_would_be_noticed(browser, tmp_path):
    page = tmp_path / "grey.html"
    page.write_text("<p style='color: #888; background: #eee'>grey</p>", "utf-8")
    browser.open(page)
    assert browser.value(CONTRAST)[0][0] < 4.5


def press(browser, key, code):
    for kind in ("rawKeyDown", "keyUp"):
        browser.call(
            "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
        )


def test_the_page_is_used_by_keyboard_alone(browser, file_of):
    browser.open(file_of("evaluation"))
    active = (
        "[document.activeElement.id || document.activeElement.className,"
        " getComputedStyle(document.activeElement).outlineStyle]"
    )
    seen = []
    for _ in range(60):
        press(browser, "Tab", 9)
        seen.append(browser.value(active))
        if seen[-1][0] == "risk-slider":
            break
    names = [name for name, _ in seen]
    assert names[0] == "skip"  # past the first screen, for those who know it
    assert {"word", "risk-slider"} <= set(names)
    assert all(outline != "none" for _, outline in seen)  # it is seen where one is
    before = browser.value("document.getElementById('risk-words').textContent")
    place = browser.value("document.getElementById('risk-slider').value")
    press(browser, *(("ArrowLeft", 37) if int(place) else ("ArrowRight", 39)))
    assert browser.value("document.getElementById('risk-words').textContent") != before


@PAGES
def test_every_picture_has_a_name_for_those_who_do_not_see_it(name, browser, file_of):
    browser.open(file_of(name))
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    pictures = [
        node for node in nodes if node["role"]["value"] in {"image", "img"} and not node["ignored"]
    ]
    assert len(pictures) == browser.value(
        "document.querySelectorAll('svg, img, [role=img]:not(svg)').length"
    )
    assert all(node["name"]["value"] for node in pictures)


@pytest.mark.parametrize("name", ["evaluation", "many_classes", "bare"])
def test_names_of_functions_are_not_broken_into_letters(name, browser, file_of):
    browser.open(file_of(name), width=NARROW)
    lines = browser.value(
        "[...document.querySelectorAll('.names code')].map(code => code.getClientRects().length)"
    )
    assert lines
    assert max(lines) <= 3
