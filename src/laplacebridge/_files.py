"""Files: written atomically; safetensors and arrays read without pickle, with one
message for what cannot be read.
"""

import os
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from laplacebridge.errors import CheckpointError, InputError, LaplaceBridgeError


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary file beside the wanted one, which takes its place in one step once
    all went well.

    After any failure, a full disk among them, the temporary file is gone and an old
    file is as it was. A file that is replaced keeps its permissions.

    Args:
        path: The wanted file.

    Yields:
        The path to write to; of a device or pipe, which cannot be replaced, its own.

    Raises:
        OSError: If the disk is full or the folder cannot be written to; it names the
            wanted file.
    """
    target = (
        path.resolve()
    )  # through a link, so that what it points to is replaced and not the link
    replaces = target.is_file() or not target.exists()
    temporary = target
    try:
        if replaces:
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            os.close(handle)
            temporary = Path(name)
        yield temporary
        if replaces:
            temporary.chmod(_mode_for(target))
            with open(temporary, "rb") as file:
                os.fsync(file)  # some file systems say only now that they are full
            os.replace(temporary, target)
    except BaseException as error:
        if temporary != target:
            temporary.unlink(missing_ok=True)
        # the user knows nothing of the temporary file; errors of files that were read
        # keep their own name
        if isinstance(error, OSError) and error.errno and error.filename in {None, str(temporary)}:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise


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
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            return TensorFile(tensors, dict(file.metadata() or {}))
    except FileNotFoundError:
        raise
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read as a safetensors file: it is damaged, cut short or of another"
            f" format ({error})."
        ) from error


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
