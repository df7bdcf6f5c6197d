"""The models of a server, by name and version."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from laplacebridge.errors import InputError
from laplacebridge.serve.batching import Batcher
from laplacebridge.serve.metrics import Metrics
from laplacebridge.serve.served import Served
from laplacebridge.serve.settings import Settings
from laplacebridge.serve.tensors import RequestError


@dataclass(frozen=True, eq=False)
class Entry:
    """One version of one model.

    Attributes:
        name: Of the model.
        version: A whole number, as text.
        served: What answers.
        batcher: The queue before it.
    """

    name: str
    version: str
    served: Served
    batcher: Batcher


class Models:
    """All models, each with its versions; the highest is the usual one.

    Args:
        served: By name and version.
        settings: Of the server.
        metrics: Where batches are noted.

    Raises:
        InputError: If there are none, or a name or version cannot stand in an address.
    """

    def __init__(
        self, served: Mapping[tuple[str, str], Served], settings: Settings, metrics: Metrics
    ) -> None:
        if not served:
            raise InputError("A server needs at least one model; got none.")
        self._entries: dict[str, dict[str, Entry]] = {}
        for (name, version), model in served.items():
            known = name and all(letter.isalnum() or letter in "-_." for letter in name)
            if not known or not version.isdecimal():
                raise InputError(
                    "A model needs a name of letters, digits, '-', '_' and '.', and a whole number"
                    f" as version; got '{name}' and '{version}'."
                )
            batcher = Batcher(
                model,
                max_rows=settings.max_batch,
                max_waiting=settings.max_waiting,
                observe=metrics.observer(name, version),
            )
            metrics.waiting.labels(name, version).set_function(batcher.__len__)
            entry = Entry(name, version, model, batcher)
            self._entries.setdefault(name, {})[version] = entry

    def find(self, name: str, version: str | None = None) -> Entry:
        """The model of a name, and of a version if one is asked for.

        Args:
            name: Of the model.
            version: A version; by default the highest.

        Raises:
            RequestError: If there is none.
        """
        versions = self._entries.get(name)
        if versions is None:
            raise RequestError(
                f"There is no model '{name[:60]}' here; there are {', '.join(self._entries)}.", 404
            )
        if version is None:
            return versions[max(versions, key=int)]
        if version not in versions:
            raise RequestError(
                f"The model '{name}' has no version '{version[:20]}'; it has"
                f" {', '.join(self.versions(name))}.",
                404,
            )
        return versions[version]

    def versions(self, name: str) -> list[str]:
        """All versions of a model, in order.

        Args:
            name: Of the model.
        """
        return sorted(self._entries[name], key=int)

    def __iter__(self) -> Iterator[Entry]:
        for name, versions in self._entries.items():
            yield from (versions[version] for version in self.versions(name))
