"""Files: written atomically; safetensors and arrays read without pickle, with one
message for what cannot be read.
"""

import hashlib
import importlib
import os
import re
import stat
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from laplacebridge.errors import CheckpointError, InputError, LaplaceBridgeError

fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None
# Where files cannot be locked, what an interrupted process left is removed after a day.
_SECONDS_TO_KEEP = 86_400


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary file beside the wanted one, which takes its place in one step once
    all went well.

    After any failure, a full disk among them, the temporary file is gone and an old
    file is as it was. What a process that was killed left behind goes with the next
    write. File and folder are on the disk when this ends. A file that is replaced keeps
    its permissions; through a link, what it points to is replaced.

    Args:
        path: The wanted file.

    Yields:
        The path to write to; of a device or pipe, which cannot be replaced, its own.

    Raises:
        OSError: If the disk is full or the folder cannot be written to; it names the
            wanted file.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        yield target
        return
    temporary, handle = target, -1
    try:
        _remove_left_behind(target)
        temporary, handle = _locked_temporary(target)
        yield temporary
        temporary.chmod(_mode_for(target))
        with open(temporary, "rb+") as file:
            os.fsync(file)  # some file systems say only now that they are full
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except BaseException as error:
        if temporary != target:
            temporary.unlink(missing_ok=True)
        # the user knows nothing of the temporary file; errors of files that were read
        # keep their own name
        if isinstance(error, OSError) and error.errno and error.filename in {None, str(temporary)}:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise
    finally:
        if handle >= 0:
            os.close(handle)


def _locked_temporary(target: Path) -> tuple[Path, int]:
    """A new file beside the target, locked while its writer lives; closing gives it
    free.
    """
    while True:
        handle, name = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.name}.", suffix=".partial"
        )
        if fcntl is None:  # an open file could not be renamed there
            os.close(handle)
            return Path(name), -1
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(name):
            return Path(name), handle
        os.close(handle)  # another process took it for one left behind, before the lock


def _remove_left_behind(target: Path) -> None:
    """Removes temporary files of this target whose writers were killed."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]{{8}}\.partial")
    for other in target.parent.iterdir():
        if not pattern.fullmatch(other.name):
            continue
        try:
            with open(other, "rb") as file:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                elif time.time() - other.stat().st_mtime < _SECONDS_TO_KEEP:
                    continue
                other.unlink()
        except OSError:  # its writer is at work, or it is not ours to remove
            continue


def _sync_folder(folder: Path) -> None:
    """Makes a new name last through a loss of power, where folders can be synced."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows
        return
    try:
        os.fsync(handle)
    except OSError:  # some network file systems have no such thing, and need none
        pass
    finally:
        os.close(handle)


class TensorFile(NamedTuple):
    """What a safetensors file holds. Its tensors stay in the file until they are
    needed.
    """

    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def read_safetensors(path: Path) -> TensorFile:
    """Opens a safetensors file, once.

    Args:
        path: The file.

    Raises:
        CheckpointError: If it cannot be read as one.
        FileNotFoundError: If it is not there.
    """
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder; give the file in it that was saved.")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            return TensorFile(tensors, dict(file.metadata() or {}))
    except FileNotFoundError:
        raise
    except Exception as error:  # damage makes the reader raise whatever it happens to meet
        raise CheckpointError(
            f"{path} cannot be read as a safetensors file: it is damaged, cut short or of another"
            f" format ({error})."
        ) from error


def checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """A hash of everything that a file of tensors says: names, types, shapes, numbers
    and texts.

    Args:
        tensors: By name, on any device.
        metadata: Texts by name.
    """
    digest = hashlib.sha256(repr(sorted(metadata.items())).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(repr((name, str(tensor.dtype), tuple(tensor.shape))).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    return digest.hexdigest()


def write_safetensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> None:
    """Writes tensors and metadata atomically.

    Args:
        path: The file.
        tensors: By name, on any device.
        metadata: Texts by name.

    Raises:
        LaplaceBridgeError: If the disk is full; it names the file.
    """
    held = {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
    with atomic_write(path) as temporary:
        try:
            save_file(held, temporary, metadata=dict(metadata))
        except SafetensorError as error:
            raise LaplaceBridgeError(f"{path} could not be written: {error}") from error


def read_arrays(file: Path | BufferedIOBase, *, name: str = "") -> dict[str, np.ndarray]:
    """Arrays of an npz file.

    Args:
        file: The file, or a stream of it.
        name: What to call it in messages; by default its path.

    Raises:
        InputError: If it is damaged or holds Python objects.
    """
    try:
        with np.load(file, allow_pickle=False) as held:
            return {key: held[key] for key in held.files}
    except (
        ValueError,
        TypeError,
        AttributeError,
        EOFError,
        KeyError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise InputError(
            f"{name or file} cannot be read as an .npz file: it is damaged, of another format or"
            " holds Python objects, which are never unpickled. Write arrays of numbers with"
            " `numpy.savez(path, name=array)`."
        ) from error


def _mode_for(target: Path) -> int:
    """The permissions of the old file, or what a new one gets here; a temporary file is
    private at first.
    """
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
