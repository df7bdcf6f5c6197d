"""What the documentation site needs beyond its pages: docstrings as Markdown, and a
watch on what pages load.

Named in mkdocs.yml twice, as a hook of MkDocs and as an extension of mkdocstrings'
parser.
"""

import re
import textwrap
from typing import Any

from griffe import Extension, Object
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

FORMULA = re.compile(r"^( *)\.\. math:: (.*(?:\n\1 +.*)*)", re.MULTILINE)
EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)
LOADED = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)"
)


def markdown(docstring: str) -> str:
    """A docstring with its formulas as MathML, which browsers show without a script,
    and examples as code.

    Args:
        docstring: As it stands in the source.
    """
    return EXAMPLE.sub(r"\1Examples:", FORMULA.sub(_formula, docstring))


def _formula(found: re.Match[str]) -> str:
    return textwrap.indent(convert(" ".join(found[2].split()), display="block"), found[1])


class Docstrings(Extension):
    """Rewrites every docstring when it is read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:  # noqa: ANN401
        """Called with every module, class, function and attribute.

        Args:
            obj: What was read.
            **_: What else the parser says.
        """
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def on_post_page(output: str, page: Any, **_: Any) -> str:  # noqa: ANN401
    """Called by MkDocs with every finished page.

    Args:
        output: The page.
        page: Where it comes from.
        **_: What else MkDocs says.

    Raises:
        PluginError: If the page would load something from another place.
    """
    elsewhere = LOADED.findall(output)
    if elsewhere:
        raise PluginError(
            f"{page.file.src_uri} loads {', '.join(elsewhere)}: the site must work without a"
            " network."
        )
    return output
