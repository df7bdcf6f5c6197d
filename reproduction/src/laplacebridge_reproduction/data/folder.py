"""The folder that holds data sets and weights, and what happens when a file is not in
it.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import pooch

from laplacebridge.errors import LaplaceBridgeError

VARIABLE = "LAPLACEBRIDGE_DATA"
CACHE_VARIABLE = "LAPLACEBRIDGE_CACHE"


class DataMissingError(LaplaceBridgeError, FileNotFoundError):
    """A data set or published weights are neither in the data folder nor to be had over
    the network.
    """


@dataclass(frozen=True)
class Remote:
    """A published file.

    Attributes:
        path: Its place inside the data folder.
        address: Where it is published; empty if it must be obtained by hand.
        checksum: What the publisher says of its content, as ``md5:…`` or ``sha256:…``;
            None if nothing.
        without: What cannot be done without it, and what still can.
    """

    path: str
    address: str
    checksum: str | None
    without: str


def cache_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder for what can be made again: the given one, LAPLACEBRIDGE_CACHE, or
    ~/.cache/laplacebridge.

    Example:
        >>> cache_folder("kept").name
        'kept'
    """
    return Path(
        folder or os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "laplacebridge"
    )


@dataclass(frozen=True)
class Folder:
    """A data folder, which may be filled over the network.

    Attributes:
        path: The folder.
        download: Whether to fetch what is missing.
    """

    path: Path
    download: bool = True

    @classmethod
    def named(cls, folder: str | os.PathLike[str] | None, *, download: bool) -> "Folder":
        """The given folder, or LAPLACEBRIDGE_DATA, or a folder in the cache.

        Args:
            folder: The folder, or None for the default.
            download: Whether to fetch what is missing.
        """
        return cls(Path(folder or os.environ.get(VARIABLE) or cache_folder() / "data"), download)

    def existing(self, *paths: str) -> Path | None:
        """The first of several places, relative to the folder, that exists; None if
        none does.
        """
        places = (self.path / path for path in paths)
        return next((place for place in places if place.exists()), None)

    def file(self, remote: Remote) -> Path:
        """The local copy of a published file, fetched if need be.

        Raises:
            DataMissingError: If it is not there and cannot be fetched.
        """
        found = self.existing(remote.path)
        if found is not None:
            return found
        if not self.download:
            raise self.missing(remote, "Downloading was not asked for.")
        if not remote.address:
            raise self.missing(remote, "It cannot be downloaded.")
        target = self.path / remote.path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            pooch.retrieve(
                remote.address, known_hash=remote.checksum, fname=target.name, path=target.parent
            )
        except (
            OSError,
            ValueError,
        ) as error:  # no network, a full disk; another content than was published
            with contextlib.suppress(OSError):  # not empty, or not ours
                target.parent.rmdir()
            reason = f"{type(error).__name__}: {error}".rstrip(".")
            raise self.missing(remote, f"It could not be downloaded ({reason}).") from error
        return target

    def missing(self, remote: Remote, reason: str) -> DataMissingError:
        """The error for a file that is not there."""
        source = f" from {remote.address}" if remote.address else ""
        return DataMissingError(
            f"{remote.path} is not in {self.path}. {reason} Put the file{source} there as"
            f" {self.path / remote.path}, or name the folder that has {remote.path} as `folder` or"
            f" in the environment variable {VARIABLE}. {remote.without}"
        )
