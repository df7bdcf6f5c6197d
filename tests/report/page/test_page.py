"""The page: one well-formed file that shows, escapes and repeats as data whatever an
evaluation holds.
"""

import base64
import hashlib
import json
import re
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from laplacebridge.report import page
from laplacebridge.report.page.glossary import WORDS, Explained
from laplacebridge.report.table import COLUMNS

SECTIONS = ["verdict", *page.SECTIONS]
PAGES = ["evaluation", "many_classes", "bare", "hostile"]


@pytest.fixture(scope="session")
def page_of(request):
    """The text of a page and its tree, made once for each evaluation."""
    made = {}

    def page(name):
        if name not in made:
            text = request.getfixturevalue(name).to_html()
            made[name] = text, parsed(text)
        return made[name]

    return page


def parsed(text):
    """The tree, by a parser for XML, which accepts nothing that is not closed, quoted
    and escaped.
    """
    return ElementTree.fromstring(text)  # noqa: S314 - our own page


def embedded(tree):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(tree.find(".//script[@id='laplacebridge-data']").text, parse_constant=refuse)


def text_of(element):
    return re.sub(r"[ \n]+", " ", "".join(element.itertext())).strip()


@pytest.mark.parametrize("name", PAGES)
def test_every_section_has_a_heading_and_says_how_to_read_it(name, page_of):
    _, tree = page_of(name)
    sections = tree.findall(".//section")
    assert [section.get("id") for section in sections] == SECTIONS
    for section in sections:
        assert text_of(section.find("h2"))
        assert len(text_of(section.find(".//p"))) > 20
    linked = {link.get("href") for link in tree.findall(".//nav//a")}
    assert linked == {f"#{section}" for section in SECTIONS[1:]}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_needs_nothing_from_elsewhere(name, page_of):
    text, tree = page_of(name)
    assert "://" not in text
    assert "@import" not in text
    for element in tree.iter():
        for attribute in ("src", "href", "srcset", "action", "data"):
            assert element.get(attribute, "#").startswith(("#", "data:"))
    policy = tree.find(".//meta[@http-equiv='Content-Security-Policy']").get("content")
    assert policy.startswith("default-src 'none';")
    assert tree.find(".//link[@rel='icon']").get("href") == "data:,"


@pytest.mark.parametrize("name", PAGES)
def test_ids_are_unique_and_everything_referred_to_is_there(name, page_of):
    text, tree = page_of(name)
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    used = re.findall(r'(?:url\(|href=")#([^")]+)', text) + [
        place for element in tree.iter() for place in element.get("aria-labelledby", "").split()
    ]
    assert len(used) > 50
    assert set(used) <= set(ids)


@pytest.mark.parametrize("name", PAGES)
def test_numbers_in_the_page_are_those_of_its_data(name, page_of, request):
    _, tree = page_of(name)
    data = embedded(tree)
    assert data == json.loads(json.dumps(request.getfixturevalue(name).to_dict(), allow_nan=False))
    shown = [element for element in tree.iter() if element.get("data-key")]
    assert len(shown) >= len(data["rows"]) * len(COLUMNS)
    for element in shown:
        value = data
        for part in element.get("data-key").split("."):
            value = value[int(part)] if isinstance(value, list) else value[part]
        assert element.get("data-value") == json.dumps(value)


@pytest.mark.parametrize("name", PAGES)
def test_pictures_and_plots_say_what_they_show(name, page_of):
    _, tree = page_of(name)
    drawn = tree.findall(".//svg")
    assert len(drawn) >= 7
    assert all(plot.get("role") == "img" and plot.get("aria-label") for plot in drawn)
    assert all(picture.get("alt") for picture in tree.findall(".//img"))


def test_plots_have_the_ink_of_the_page_and_no_ground(page_of):
    text, tree = page_of("evaluation")
    assert text.count("currentColor") > 100
    assert "#010203" not in text
    colours = {
        colour.lower()
        for element in tree.findall(".//svg//*")
        for colour in re.findall(r"#[0-9a-fA-F]{6}\b", element.get("style", ""))
    }
    assert colours == {"#0072b2", "#d55e00", "#767676"}


def test_the_best_value_of_a_column_is_marked_and_said(evaluation, page_of):
    _, tree = page_of("evaluation")
    for place, row in enumerate(evaluation.rows):
        for column in COLUMNS:
            key = f"rows.{place}.{column}" + (".estimate" if column == "auroc" else "")
            cell = tree.find(f".//td[@data-key='{key}']")
            is_best = row.method in evaluation.best(column)
            assert (cell.get("class") == "best") == is_best
            assert ("(best)" in text_of(cell)) == is_best
            assert text_of(cell).startswith(COLUMNS[column].text(row.value(column)))


def test_the_interval_of_the_auroc_is_shown(evaluation, page_of):
    _, tree = page_of("evaluation")
    interval = evaluation.rows[0].auroc
    cell = text_of(tree.find(".//td[@data-key='rows.0.auroc.estimate']"))
    assert cell.endswith(f"[{interval.low:.3f}, {interval.high:.3f}]")


def test_what_is_missing_is_said(page_of):
    _, tree = page_of("bare")
    assert "No unusual inputs were given" in text_of(tree.find(".//section[@id='unusual']"))
    assert "Intended use and limits were not stated" in text_of(
        tree.find(".//section[@id='identity']")
    )
    assert "There is no curve of other candidates: saved classifiers do not keep them" in text_of(
        tree.find(".//section[@id='details']")
    )
    assert text_of(tree.find(".//td[@data-key='rows.0.auroc']")) == "—"
    assert not tree.findall(".//img")
    assert embedded(tree)["prior"] is None


@pytest.mark.parametrize(
    ("name", "method"), [("evaluation", "given"), ("bare", "largest evidence of the training data")]
)
def test_the_page_says_how_the_prior_was_chosen_with_and_without_a_curve(name, method, page_of):
    _, tree = page_of(name)
    assert f"How it was chosen: {method}." in text_of(tree.find(".//section[@id='details']"))
    assert embedded(tree)["prior_method"] == method


def test_text_never_becomes_code(hostile, page_of):
    (text, tree), evil = page_of("hostile"), hostile.title
    assert "</script><script>" in evil
    assert len(tree.findall(".//script")) == 2  # the data, and what moves the controls
    assert text.lower().count("<script") == 2
    assert text.lower().count("</script") == 2
    assert "<!--" not in text
    data = embedded(tree)
    assert data["title"] == tree.find(".//h1").text == tree.find(".//title").text == evil
    assert data["identity"] == hostile.identity
    assert tree.find(".//th[@scope='row']").text == f"0 {evil}"
    card = tree.find(".//li[@class='card']")
    assert "".join(card.find(".//strong").itertext()) == f"2{evil}"
    assert "".join(card.find("blockquote").itertext()) == evil


def test_numbers_that_are_not_finite_are_null_and_said(page_of):
    _, tree = page_of("hostile")
    data = embedded(tree)
    assert (
        data["rows"][1]["nll"] is data["rows"][1]["distance"] is data["prior"]["scores"][0] is None
    )
    said = [
        "rows.1.nll is inf",
        "rows.1.distance is nan",
        "rows.1.microseconds is inf",
        "prior.scores.0 is inf",
    ]
    assert data["not_finite"] == said
    assert "; ".join(said) in text_of(tree.find(".//section[@id='methods']"))
    cells = [tree.find(f".//td[@data-key='rows.1.{column}']") for column in ("nll", "distance")]
    assert [(cell.get("data-value"), text_of(cell)) for cell in cells] == [
        ("null", "∞"),
        ("null", "not a number"),
    ]


def test_the_same_evaluation_gives_the_same_page_and_leaves_nothing_behind(bare, page_of):
    page_before, figures = page_of("bare")[0], pyplot.get_fignums()
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        assert bare.to_html() == page_before
        assert matplotlib.rcParams["font.size"] == 30
    assert pyplot.get_fignums() == figures


def test_a_section_may_go_on_on_the_next_page_of_paper(page_of):
    """Kept in one piece, the table would leave nothing but the title on the first page."""
    text, _ = page_of("evaluation")
    rules = [line.strip() for line in text.splitlines() if "break-inside: avoid" in line]
    assert len(rules) == 1
    assert "section" not in rules[0]


def test_only_the_script_of_the_page_may_run(page_of):
    text, tree = page_of("evaluation")
    policy = tree.find(".//meta[@http-equiv='Content-Security-Policy']").get("content")
    script = tree.findall(".//script")[1].text
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.endswith(f"script-src 'sha256-{digest}'")
    assert "unsafe-inline' ; script" not in policy
    assert not re.search(r"\son[a-z]+=", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))


def first_screen(tree):
    return tree.find(".//section[@id='verdict']")


def test_the_first_screen_says_what_it_can_do_with_lights_criteria_and_commands(
    evaluation, page_of
):
    _, tree = page_of("evaluation")
    screen = first_screen(tree)
    told = text_of(screen)
    assert text_of(screen.find("p[@class='words']")) == evaluation.headline
    figures = screen.findall("ul[@class='figures']/li")
    assert 3 <= len(figures) <= 5
    for shown, figure in zip(figures, evaluation.figures):
        assert shown.get("class") == figure.light.replace(" ", "-")
        assert figure.light in text_of(shown)
        assert figure.criterion in text_of(shown)
    assert evaluation.advice.sentences[0] in told
    codes = ["".join(code.itertext()) for code in screen.findall(".//pre/code")]
    assert codes[0] == evaluation.advice.code
    assert codes[1:] == ([evaluation.advice.command] if evaluation.advice.command else [])


@pytest.mark.parametrize("name", ["evaluation", "many_classes", "bare"])
def test_the_first_screen_has_no_term_that_is_not_in_the_glossary(name, page_of):
    """Terms: what has capitals inside, and the words of the field that are no plain
    English.
    """
    glossary = (Path(__file__).parents[3] / "docs" / "glossary.md").read_text("utf-8").lower()
    field = (
        "auroc", "ece", "nll", "aurc", "ood", "brier", "calibration", "interval", "risk",
        "race bridge", "temperature scaling", "energy", "held-out", "epistemic", "dirichlet",
        "posterior", "logit", "coverage", "defer", "monte carlo", "softmax", "marginal",
    )  # fmt: skip
    screen = first_screen(page_of(name)[1])
    told = " ".join(text_of(part) for part in screen.iter("p"))
    told += " ".join(text_of(part) for part in screen.iter("li"))
    used = [term for term in field if re.search(rf"\b{term}", told.lower())]
    used += [word.lower() for word in re.findall(r"\b[A-Z]{2,}\b", told)]
    assert used
    assert [term for term in used if term not in glossary] == []
    own = " ".join(f"{word} {meaning}" for word, meaning in WORDS.items()).lower()
    assert [term for term in used if term not in own] == []


def test_words_lead_to_their_meaning_once_each_and_stay_text(page_of):
    explained = Explained()
    told = explained("A risk, risks & <b>sets</b>: no riskier, nor a reset.")
    assert told.count("<a ") == 2
    assert '<a class="word" href="#word-risk" title="the error rate among answers">risk</a>' in told
    assert "risks &amp; &lt;b&gt;<a " in told
    assert explained("risk") == "risk"
    _, tree = page_of("evaluation")
    linked = [each.get("href")[1:] for each in tree.findall(".//a[@class='word']")]
    assert len(linked) == len(set(linked)) > 3
    assert set(linked) <= {each.get("id") for each in tree.findall(".//section[@id='words']//div")}


def test_words_of_the_page_are_in_its_own_list(page_of):
    _, tree = page_of("evaluation")
    words = text_of(tree.find(".//section[@id='words']"))
    for column in ("NLL", "ECE", "AURC", "AUROC", "Coverage", "Risk"):
        assert f"{column}:" in words


def test_every_method_is_explained_and_mapped_to_a_function(evaluation, page_of):
    _, tree = page_of("evaluation")
    names = tree.find(".//table[@class='names']")
    rows = {row.find("th").text: text_of(row) for row in names.findall("tbody/tr")}
    assert list(rows) == [row.method for row in evaluation.rows]
    assert "--bridge race" in rows["race"]
    assert "lb.temperature.temperature_scaling" in rows["temperature"]


def test_groups_classes_and_the_owners_words_are_shown(evaluation, page_of):
    _, tree = page_of("evaluation")
    classes = text_of(tree.find(".//section[@id='classes']"))
    for word in ("day", "night", "owl", "Most often taken for"):
        assert word in classes
    identity = text_of(tree.find(".//section[@id='identity']"))
    for word in ("Intended use", "sha256 of the test examples", "Approved by", "cat: "):
        assert word in identity


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_small(name, page_of):
    assert len(page_of(name)[0].encode()) < 1_000_000


def pixels(tree, place=0):
    picture = tree.findall(".//img")[place]
    kind, _, content = picture.get("src").partition(",")
    assert kind == "data:image/png;base64"
    return picture, imread(BytesIO(base64.b64decode(content)), format="png")


def test_images_are_shown_pixel_by_pixel_from_black_to_white(evaluation, page_of):
    _, tree = page_of("evaluation")
    for place, specimen in enumerate(evaluation.specimens):
        picture, shown = pixels(tree, place)
        image = specimen.image.expand(3, -1, -1).permute(1, 2, 0).numpy()
        expected = (image - image.min()) / (image.max() - image.min())
        np.testing.assert_allclose(shown[..., :3], expected, atol=0.5 / 255 + 1e-6)
        assert picture.get("class") == "pixels"


def test_a_large_image_is_thinned_out_and_an_even_one_is_black(page_of):
    _, tree = page_of("hostile")
    assert (pixels(tree, 0)[1][..., :3] == 0).all()
    picture, shown = pixels(tree, 1)
    assert shown.shape[:2] == (60, 120)
    assert picture.get("class") is None


def test_an_image_of_three_channels_has_its_colours(hostile, page_of):
    _, shown = pixels(page_of("hostile")[1], 2)
    image = hostile.specimens[2].image.permute(1, 2, 0).numpy()
    expected = (image - image.min()) / (image.max() - image.min())
    np.testing.assert_allclose(shown[..., :3], expected, atol=0.5 / 255 + 1e-6)


def contrast(one, other):
    luminances = []
    for colour in (one, other):
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
            for part in to_rgb(colour)
        ]
        luminances.append(float(np.dot(linear, [0.2126, 0.7152, 0.0722])))
    return (max(luminances) + 0.05) / (min(luminances) + 0.05)


def test_text_has_contrast_on_light_ground_on_dark_ground_and_on_paper(page_of):
    text, _ = page_of("evaluation")
    schemes = re.findall(r":root \{(.*?)\}", text, flags=re.DOTALL)
    assert len(schemes) == 3
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+): (#\w{6});", scheme))
        for ground in ("ground", "raised", "best"):
            assert contrast(colours["ink"], colours[ground]) > 7
            assert contrast(colours["soft"], colours[ground]) > 4.5
        assert contrast(colours["mark"], colours["ground"]) > 4.5
