"""The code of a page of documentation: how it is run, and how what it gives is compared
with what the page shows.

Blocks of Python run one after another, with the names of those before them. Two things
are claims and are checked: `expression  # → value` gives that value, to the digits
shown and up to a colon, after which it is explained; and a block of text right after a
block of Python is what that block prints.
"""

import ast
import contextlib
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"\s*```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"#\s*→\s*(.+)$")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?(?: %)?")


def run(path: Path) -> None:
    """Runs the code of a page and checks its claims."""
    page = path.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": path.stem}
    for block in BLOCK.finditer(page):
        if block[1] != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            _run_block(
                block[2], f"{path.name}, line {page[: block.start()].count(chr(10)) + 2}", names
            )
        if shown := PRINTED.match(page, block.end()):
            assert same_text(printed.getvalue(), shown[1]), (
                f"{path.name} shows\n{shown[1]}not\n{printed.getvalue()}"
            )


def _run_block(code: str, place: str, names: dict[str, object]) -> None:
    lines = code.splitlines()
    for statement in ast.parse(code).body:
        claim = SHOWN.search(lines[statement.end_lineno - 1])
        source = ast.unparse(statement)
        if claim is None:
            # compiled one by one, so that a failure names the page and its block
            exec(compile(ast.Module([statement], []), place, "exec"), names)  # noqa: S102  (the project's own pages)
            continue
        assert isinstance(statement, ast.Expr), (
            f"{place}: only an expression can show a value, not `{source}`"
        )
        value = eval(compile(ast.Expression(statement.value), place, "eval"), names)  # noqa: S307
        assert shows(value, claim[1]), (
            f"{place}: `{source}` gives {value}, the page shows {claim[1]}"
        )


def shows(value: object, shown: str) -> bool:
    """Whether a comment shows a value: its text, or its numbers in order."""
    claimed = re.split(r"[:;](?: |$)", shown)[0].strip()
    if str(value) == claimed:
        return True
    numbers = NUMBER.findall(claimed)
    values = list(_numbers(value))
    return bool(values) and len(numbers) == len(values) and all(map(_rounds_to, values, numbers))


def same_text(printed: str, shown: str) -> bool:
    """Whether two texts have the same words and, to the digits of the second, the same
    numbers.
    """
    words = [NUMBER.sub("#", " ".join(text.split())) for text in (printed, shown)]
    numbers = [NUMBER.findall(text) for text in (printed, shown)]
    return words[0] == words[1] and all(
        _rounds_to(_value(first), second) for first, second in zip(*numbers)
    )


def _numbers(value: object) -> Iterator[float]:
    if isinstance(value, torch.Tensor):
        yield from value.flatten().tolist()
    elif isinstance(value, (bool, int, float)):
        yield value
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for part in value:
            yield from _numbers(part)


def _value(shown: str) -> float:
    percent = shown.endswith("%")
    return float(shown.removesuffix("%").replace(",", "")) / (100 if percent else 1)


def _rounds_to(value: float, shown: str) -> bool:
    """Within one unit of the last digit shown: trained networks differ a little between
    machines.
    """
    if isinstance(value, int) and not shown.endswith("%"):
        return value == _value(shown)
    mantissa, _, exponent = shown.removesuffix(" %").partition("e")
    decimals = (
        len(mantissa.partition(".")[2]) - int(exponent or 0) + (2 if shown.endswith("%") else 0)
    )
    return abs(value - _value(shown)) <= 1.001 * 10.0**-decimals
