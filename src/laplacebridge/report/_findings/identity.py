"""Who and what a report is about: hashes of what was judged, and what its owner states."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError

CHUNK = 2**20


class Hashed:
    """Batches whose tensors are hashed as they pass.

    Args:
        batches: A loader.
    """

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches
        self._hash = hashlib.sha256()

    def __iter__(self) -> Iterator[Any]:
        self._hash = hashlib.sha256()
        for batch in self._batches:
            _add(self._hash, batch)
            yield batch

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]  # a TypeError says that it is not known

    @property
    def sha256(self) -> str:
        """Of all that has passed: types, shapes and numbers."""
        return self._hash.hexdigest()


def sha256_of_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Of tensors by name, in the order of their names."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(name.encode())
        _add(found, tensors[name])
    return found.hexdigest()


def sha256_of_path(path: Path) -> str:
    """Of a file; of a folder, the names and contents of all files in it."""
    found = hashlib.sha256()
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    for file in files:
        if path.is_dir():
            found.update(f"{file.relative_to(path).as_posix()}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
            while part := stream.read(CHUNK):
                found.update(part)
    return found.hexdigest()


def of_files(
    classifier: Path, data: str, weights: Path | None, head_only: Path | None, author: str | None
) -> dict[str, str]:
    """Who made the report, of which files, with their hashes."""
    named: dict[str, Path | None] = {
        "classifier": classifier,
        "data": Path(data),
        "weights": weights,
        "head": head_only,
    }
    found = {} if author is None else {"author": author}
    found["data"] = data
    for what, path in named.items():
        if path is not None and path.exists():
            found[f"sha256 of {path.name} ({what})"] = sha256_of_path(path)
    return found


def of_classifier(classifier: Classifier) -> dict[str, str]:
    """Hashes of the network's weights and of what was fitted to them."""
    fitted = dict(classifier.posterior.state_dict())
    return {
        "sha256 of the network's weights": sha256_of_tensors(classifier.network.model.state_dict()),
        "sha256 of the posterior": sha256_of_tensors(
            {name: value for name, value in fitted.items() if isinstance(value, Tensor)}
        ),
    }


def today() -> str:
    """Date and time, for people anywhere."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def read_card(path: Path) -> dict[str, str]:
    """What the owner states about a model: fields of a JSON object, or the headings of
    a Markdown file with the text below each.

    Args:
        path: ``card.json`` or ``card.md``.

    Raises:
        InputError: If it is neither.
    """
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix.lower() == ".json":
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise InputError(f"{path} is no JSON: {error}.") from error
        if not isinstance(fields, dict) or not all(isinstance(it, str) for it in fields.values()):
            raise InputError(
                f'{path} needs texts by name, as in {{"intended use": "…", "limits": "…"}}.'
            )
        return fields
    found: dict[str, str] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("#").strip()
            found[heading] = ""
        elif heading:
            found[heading] += f"{line}\n"
    stated = {name: body.strip() for name, body in found.items() if body.strip()}
    if not stated:
        raise InputError(
            f"{path} needs headings with text below them, as in '## Intended use', or JSON in a"
            " file that ends in .json."
        )
    return stated


def _add(found: Any, value: Any) -> None:  # noqa: ANN401 - hashlib's object, and any batch
    if isinstance(value, Tensor):
        plain = value.detach().cpu().contiguous()
        found.update(f"{plain.dtype}{tuple(plain.shape)}".encode())
        found.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, Mapping):
        for key in value:
            found.update(str(key).encode())
            _add(found, value[key])
    elif isinstance(value, (tuple, list)):
        for part in value:
            _add(found, part)
    else:
        found.update(repr(value).encode())
