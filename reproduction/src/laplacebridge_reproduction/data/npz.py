"""Arrays in an npz file, without pickle."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from laplacebridge_reproduction.data.dataset import DamagedFileError


def read_npz(path: Path, *names: str) -> list[np.ndarray]:
    """Some of the arrays in a file.

    Raises:
        DamagedFileError: If it is cut short, damaged or of another format, or one of
            them is not in it.
    """
    try:
        # opened here, because numpy leaves a damaged file open
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return [file[name] for name in names]
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        wanted = ", ".join(f"`{name}`" for name in names)
        raise DamagedFileError(
            f"{path} cannot be read as an npz file with {wanted}: {error}. Fetch it again."
        ) from error
