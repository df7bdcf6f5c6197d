"""What runs bulk scoring: this process, or the workers of a Dask cluster.

A file of scores appears complete or not at all, and is passed over when it is there; so
an engine may run a job twice, or die, without harm.
"""

import functools
import logging
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import typer

from laplacebridge._extras import needs_extra
from laplacebridge._scoring import Scored, score_source
from laplacebridge._scoring_sources import ImageFiles, open_source
from laplacebridge.classifier import Classifier
from laplacebridge.cli.data import Batches
from laplacebridge.cli.models import load_classifier, seed_everything
from laplacebridge.cli.options import BridgeName
from laplacebridge.cli.readers import Preparation
from laplacebridge.errors import LaplaceBridgeError

LOCAL, DASK = "local", "dask://"
SECONDS_TO_CONNECT = 10


@dataclass(frozen=True)
class Job:
    """What goes into one file of scores.

    Attributes:
        source: A file, or a folder of images.
        target: The file of scores.
        images: Names of the images, if it is of images.
    """

    source: str
    target: str
    images: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scoring:
    """How jobs are done, wherever that is.

    Attributes:
        folder: Where the command was called: paths begin there, modules are found
            there.
        classifier: The saved classifier.
        holds: What is scored, ``inputs`` or unknown.
        model: ``package.module:factory``.
        weights: A file of the network's weights.
        head_only: A file with its last layer.
        device: Where to compute.
        seed: For the user's factory.
        bridge: The name of another bridge than the saved one.
        keep: Columns to copy.
        batch_size: Rows in memory at a time.
        force: Whether to replace scores of another classifier.
        preparation: What is done to images.
        run_id: Differs from run to run. A worker outlives runs and keeps a classifier
            for all files of one: the next may have another at the same path.
    """

    folder: str
    classifier: str
    holds: str = ""
    model: str | None = None
    weights: str | None = None
    head_only: str | None = None
    device: str = "cpu"
    seed: int = 0
    bridge: str | None = None
    keep: tuple[str, ...] = ()
    batch_size: int = 1024
    force: bool = False
    preparation: Preparation = field(default_factory=Preparation)
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def run(self, job: Job) -> Scored:
        """Does one job.

        Args:
            job: What is scored, and where to.
        """
        classifier = _loaded(self)
        source, target = Path(self.folder, job.source), Path(self.folder, job.target)
        target.parent.mkdir(parents=True, exist_ok=True)
        images = [source / name for name in job.images]
        return score_source(
            classifier,
            ImageFiles(source, images, self.preparation)
            if images
            else open_source(source, self.preparation),
            target,
            keep=self.keep,
            batch_size=self.batch_size,
            replace=self.force,
        )

    def path(self, name: str | None) -> Path | None:
        """A path as the user meant it.

        Args:
            name: As the user wrote it, if at all.
        """
        return None if name is None else Path(self.folder, name)


@functools.lru_cache(maxsize=1)
def _loaded(scoring: Scoring) -> Classifier:
    """The classifier, once for each run in each process."""
    if scoring.folder not in sys.path:
        sys.path.insert(0, scoring.folder)
    seed_everything(scoring.seed)
    return load_classifier(
        Path(scoring.folder, scoring.classifier),
        Batches("the data", (), holds=scoring.holds),
        model=scoring.model,
        weights=scoring.path(scoring.weights),
        head_only=scoring.path(scoring.head_only),
        device=scoring.device,
        bridge=None if scoring.bridge is None else BridgeName(scoring.bridge),
        multi_label=True,
    )


def results(engine: str, scoring: Scoring, jobs: Sequence[Job]) -> Iterator[tuple[int, Scored]]:
    """What becomes of each job, with its number, as they end.

    Args:
        engine: ``local``, or ``dask://HOST:PORT`` of a scheduler.
        scoring: How jobs are done.
        jobs: The jobs.
    """
    if engine == LOCAL:
        return ((number, scoring.run(job)) for number, job in enumerate(jobs))
    if not engine.startswith(DASK) or not engine.removeprefix(DASK):
        raise typer.BadParameter(
            f"needs 'local' or dask://HOST:PORT of a scheduler; got '{engine}'.",
            param_hint="--engine",
        )
    return _dask(f"tcp://{engine.removeprefix(DASK)}", scoring, jobs)


def _dask(address: str, scoring: Scoring, jobs: Sequence[Job]) -> Iterator[tuple[int, Scored]]:
    with needs_extra("dask", "Scoring on a Dask cluster"):
        from distributed import Client, as_completed
        from distributed.client import FutureCancelledError
        from distributed.comm import CommClosedError
    # what goes wrong is said here in a sentence, not in tracebacks of Dask's own log
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=SECONDS_TO_CONNECT)
    except OSError as error:
        raise LaplaceBridgeError(
            f"There is no Dask scheduler at {address}: {error}. `dask scheduler` starts one."
        ) from error
    done = 0
    with client:
        numbers = {
            # a result that was lost with its worker is computed again: the file is there
            client.submit(scoring.run, job, pure=False): number
            for number, job in enumerate(jobs)
        }
        try:
            for future in as_completed(numbers):
                result = future.result()
                done += 1
                yield numbers.pop(future), result
        except (FutureCancelledError, CommClosedError) as error:
            raise LaplaceBridgeError(
                f"The Dask scheduler at {address} went away when {done} of {len(jobs)} files were"
                " reported. Start the command again: what is scored is passed over."
            ) from error
