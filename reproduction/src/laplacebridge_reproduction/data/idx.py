"""The idx format of MNIST and its relatives: a header of sizes, then bytes; compressed
with gzip or not.
"""

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np

from laplacebridge_reproduction.data.dataset import DamagedFileError

_GZIP = b"\x1f\x8b"
_BYTES = 8  # the code of the format for unsigned bytes


def read_idx(path: Path) -> np.ndarray:
    """The array of bytes in an idx file, with the shape that its header gives.

    Args:
        path: The file; whether it is compressed is seen from its content.

    Raises:
        DamagedFileError: If it is cut short, damaged or of another format.
    """
    content = path.read_bytes()
    if content.startswith(_GZIP):
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise DamagedFileError(
                f"{path} cannot be decompressed: {error}. Fetch it again."
            ) from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _BYTES:
        raise DamagedFileError(
            f"{path} must start like an idx file of bytes, with 00 00 08; got"
            f" {content[:3].hex(' ')}."
        )
    dimensions = content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise DamagedFileError(
            f"{path} ends within its header, after {len(content)} bytes. Fetch it again."
        )
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    expected = int(np.prod(shape, dtype=object))
    if len(content) - start != expected:
        raise DamagedFileError(
            f"{path} must hold {expected} bytes after its header, of shape {shape}; got"
            f" {len(content) - start}. Fetch it again."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
