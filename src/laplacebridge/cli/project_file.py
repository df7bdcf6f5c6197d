"""`laplacebridge.toml` in the current folder: what commands need not be told again."""

import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from laplacebridge.errors import InputError

NAME = "laplacebridge.toml"
# What a file may say, and which argument or option of which command that is.
_ALL = ("fit", "merge", "predict", "report", "export", "score", "monitor")
_ON_CLASSES = (*(each for each in _ALL if each != "score"), "sets", "decide", "review", "serve")
_WRITTEN = {"fit": "output", "merge": "output"}
KEYS: dict[str, dict[str, str]] = {
    "model": dict.fromkeys((*_ALL, "serve"), "model"),
    "weights": dict.fromkeys((*_ALL, "serve"), "weights"),
    "head-only": dict.fromkeys((*_ALL, "serve"), "head_only"),
    "classifier": dict.fromkeys(_ALL, "classifier") | _WRITTEN | {"serve": "files"},
    "train": {"fit": "data"},
    "validation": dict.fromkeys(("fit", "merge", "report"), "validation"),
    "test": dict.fromkeys(("predict", "report", "export"), "data"),
    "classes": dict.fromkeys(_ON_CLASSES, "classes"),
    "size": dict.fromkeys(_ALL, "size"),
    "mean": dict.fromkeys(_ALL, "mean"),
    "std": dict.fromkeys(_ALL, "std"),
    "batch-size": dict.fromkeys((each for each in _ALL if each != "export"), "batch_size"),
    "device": dict.fromkeys((*(each for each in _ALL if each != "export"), "serve"), "device"),
}
NUMBERS = {"size", "batch-size"}
COLOURS = {"mean", "std"}  # one number, or one for each of three
# One that is given takes all of these in the file out: they belong together.
NETWORK = ("model", "weights", "head-only")


def defaults(command: str, given: Sequence[str]) -> dict[str, Any]:
    """What the file says about a command, by the names of its parameters; what is given
    on the command line wins over that.

    Args:
        command: The command.
        given: The rest of the command line.

    Raises:
        InputError: If the file says something that nobody knows.
    """
    path = Path(NAME)
    if command not in {*_ON_CLASSES, *_ALL} or not path.is_file() or _asks_for_help(given):
        return {}
    held = _checked(_read(path))
    left_out: tuple[str, ...] = NETWORK if _names_a_network(given) else ()
    if command == "report" and _has_option(given, "--head-only"):
        left_out += ("validation",)  # of another kind than the features that are judged
    if command == "serve":
        left_out += _not_served(held, given)
    return {
        KEYS[key][command]: [value] if KEYS[key][command] == "files" else value
        for key, value in held.items()
        if command in KEYS[key] and key not in left_out
    }


def says(command: str, parameter: str, value: object) -> bool:
    """Whether the file gives a parameter of a command this value.

    Args:
        command: The command.
        parameter: Its name in the command's function.
        value: What the command got.
    """
    return value is not None and defaults(command, ()).get(parameter) == str(value)


def output_option(command: str, output: Path) -> str:
    """What to call the place of a classifier that is written: where it was named.

    Args:
        command: The command that writes it.
        output: The file.
    """
    said = says(command, "output", output)
    return f"`classifier` in {NAME}, or --output" if said else "--output"


def _not_served(held: dict[str, Any], given: Sequence[str]) -> tuple[str, ...]:
    """Keys that do not go with what is served: the models of a list have networks of
    their own, and an .onnx file holds its network.
    """
    if _has_option(given, "--models"):
        return ("classifier", "classes", *NETWORK)
    names_files = any(Path(word.rpartition("=")[2]).suffix == ".safetensors" for word in given)
    is_onnx = str(held.get("classifier", "")).endswith(".onnx")
    return NETWORK if is_onnx and not names_files else ()


def _read(path: Path) -> dict[str, Any]:
    """The file's table.

    Raises:
        InputError: If it is no TOML.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of TOML, or of UTF-8
        raise InputError(f"{NAME} is no TOML: {error}.") from error


def _checked(held: dict[str, Any]) -> dict[str, Any]:
    """The values as on the command line.

    Raises:
        InputError: If a key is not known, or a value of another kind.
    """
    checked = {}
    for key, value in held.items():
        if key not in KEYS:
            close = difflib.get_close_matches(key, KEYS, n=1)
            meant = f" Is '{close[0]}' meant?" if close else ""
            raise InputError(f"{NAME} has '{key}', and may have {', '.join(KEYS)}.{meant}")
        if key in COLOURS:
            value = value if isinstance(value, list) else [value]
            right = all(isinstance(each, (int, float)) for each in value)
            kind = "a number or three"
        elif key in NUMBERS:
            right, kind = isinstance(value, int) and not isinstance(value, bool), "a whole number"
        else:
            right, kind = isinstance(value, str), "a text in quotes"
        if not right:
            raise InputError(f"{NAME} needs {kind} for '{key}'; got {held[key]!r}.")
        checked[key] = ",".join(map(str, value)) if key in COLOURS else value
    return checked


def _asks_for_help(given: Sequence[str]) -> bool:
    return "--help" in given or "-h" in given


def _has_option(given: Sequence[str], *names: str) -> bool:
    return any(word.split("=", maxsplit=1)[0] in names for word in given)


def _names_a_network(given: Sequence[str]) -> bool:
    """Whether an option or an argument is a network; what is written is none."""
    if _has_option(given, "--model", "--head-only"):
        return True
    return any(
        word.endswith(".onnx") and not word.startswith("-") and before not in {"-o", "--output"}
        for before, word in zip(["", *given], given)
    )
