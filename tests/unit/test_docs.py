"""The code in the guides runs, file by file, in the order in which it stands there."""

import re
from pathlib import Path

import pytest

GUIDES = sorted((Path(__file__).parents[2] / "docs" / "guide").glob("*.md"))


@pytest.mark.parametrize("guide", GUIDES, ids=[guide.stem for guide in GUIDES])
def test_the_code_of_a_guide_runs(guide):
    blocks = re.findall(r"```python\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    exec("\n".join(blocks), {})  # noqa: S102  (the project's own examples)


def test_the_guide_to_sets_shows_what_its_code_gives():
    guide = next(guide for guide in GUIDES if guide.stem == "sets")
    first, *_ = re.findall(r"```python\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    exec(first, names)  # noqa: S102
    shown = re.findall(r"^(sets\S.*?)\s+# (.+)$", first, re.MULTILINE)
    assert len(shown) == 4
    for expression, expected in shown:
        assert str(eval(expression, names)) == expected  # noqa: S307
