"""Street View House Numbers: cropped digits, one MATLAB file for each split."""

import zlib
from pathlib import Path

import numpy as np

from laplacebridge_reproduction.data.dataset import DamagedFileError, DataSet, from_bytes

DIGITS = tuple("0123456789")
_ZERO = 10  # how the files write the label of the digit 0


def read_svhn(path: Path, *, name: str = "SVHN") -> DataSet:
    """The cropped digits of a ``train_32x32.mat`` or ``test_32x32.mat``. The label is
    the digit.

    Raises:
        DamagedFileError: If it is cut short, damaged or of another format.
    """
    from scipy.io import loadmat  # takes long to import, and few need it
    from scipy.io.matlab import MatReadError

    try:
        file = loadmat(path, variable_names=["X", "y"])
        images, labels = file["X"], file["y"].reshape(-1)
    except (
        MatReadError,
        OSError,
        TypeError,
        ValueError,
        LookupError,
        NotImplementedError,
        zlib.error,
    ) as error:
        raise DamagedFileError(
            f"{path} cannot be read as a MATLAB file with `X` and `y`: {type(error).__name__}"
            f" {error}. Fetch it again."
        ) from error
    if images.ndim != 4 or images.shape[:3] != (32, 32, 3) or images.dtype != np.uint8:
        raise DamagedFileError(
            f"{path} must hold `X` as bytes of shape (32, 32, 3, N); got {images.dtype}"
            f" {images.shape}. Is it the format with cropped digits?"
        )
    return from_bytes(
        name, images.transpose(3, 2, 0, 1), np.where(labels == _ZERO, 0, labels), DIGITS, path
    )
