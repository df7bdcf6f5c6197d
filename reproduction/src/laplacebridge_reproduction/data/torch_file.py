"""What `torch.save` wrote, read as data: numbers, strings, containers and tensors,
never code.
"""

from pathlib import Path
from typing import Any

import torch

from laplacebridge_reproduction.data.dataset import DamagedFileError


def read_torch(path: Path) -> Any:  # noqa: ANN401
    """The content of a file, on the CPU.

    Raises:
        DamagedFileError: If it is cut short, damaged, of another format, or holds more
            than data.
    """
    with path.open("rb") as stream:
        try:
            return torch.load(stream, map_location="cpu", weights_only=True)
        except Exception as error:  # of any type: the reader follows what the damaged file says
            reason = str(error).partition("\n")[0].rstrip(".")
            raise DamagedFileError(
                f"{path} cannot be read as weights: {reason}. Fetch it again."
            ) from error
