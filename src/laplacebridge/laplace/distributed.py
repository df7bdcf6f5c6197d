"""Fitting on several processes: each sums over its shard, and the sums add up.

Processes that add must all come to the same point, so they first tell each other how
they fared: what fails in one fails in all, with the same words, and nobody waits for a
process that has gone.
"""

import itertools
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import distributed

from laplacebridge.errors import InputError, LaplaceBridgeError
from laplacebridge.laplace.label_statistics import LabelStatistics
from laplacebridge.laplace.sums import Sums

# Other machines may round otherwise; other data choose other numbers.
ROUNDING = 1e-6
# Between two questions whether the others are well.
SECONDS = 1.0
_parts = itertools.count()  # of work that processes do side by side, in the same order


class Shard(NamedTuple):
    """What one process tells the others about its sums, which must be alike to add.

    Attributes:
        covered: The weights that the sums are of.
        layout: The sums without their numbers, on the device "meta".
        num_classes: K.
        has_labels: Whether all of its examples have labels.
        has_likelihood: Whether their likelihood is known.
        scale: What the head's outputs are multiplied by to give logits.
        shift_labels: Whether labels are of the next token.
    """

    covered: dict[str, Any]
    layout: Sums
    num_classes: int
    has_labels: bool
    has_likelihood: bool
    scale: float
    shift_labels: bool

    def described(self) -> str:
        """The weights and the sums, in words to compare."""
        shapes = {name: tuple(tensor.shape) for name, tensor in self.layout.tensors().items()}
        return f"{type(self.layout).__name__} of {self.covered} with {shapes}"


def is_distributed() -> bool:
    """Whether several processes fit together, as under ``torchrun``."""
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


def gathered(value: Any) -> list[Any]:  # noqa: ANN401
    """What every process gave, in the order of their ranks; if there is one, it alone.

    Args:
        value: What this process gives; small.
    """
    if not is_distributed():
        return [value]
    found: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, value)
    return found


class AnotherFailed(Exception):  # noqa: N818 (nobody outside sees it)
    """Another process has failed, and will say why."""


class Others:
    """The other processes, while each does its part: they hear of a failure before they
    have come to the end of theirs.
    """

    def __init__(self) -> None:
        self._key = f"laplacebridge/failed/{next(_parts)}"
        self._asked = time.monotonic()

    def require_well(self) -> None:
        """Asks, at most once in `SECONDS`.

        Raises:
            AnotherFailed: If one of them has failed.
        """
        if is_distributed() and time.monotonic() - self._asked > SECONDS:
            self._asked = time.monotonic()
            if _store().check([self._key]):
                raise AnotherFailed

    def tell(self) -> None:
        """Says that this process has failed."""
        _store().set(self._key, "")

    def forget(self) -> None:
        """Takes back what `tell` said, once all have heard it."""
        _store().delete_key(self._key)


def _store() -> Any:  # noqa: ANN401
    # What the processes found each other by; no public name leads to it.
    return distributed.distributed_c10d._get_default_store()


@contextmanager
def same_fate(what: str) -> Iterator[Others]:
    """What fails in one process fails in all, with the same error.

    Args:
        what: What is done here, for the error.

    Yields:
        Others: The other processes, to be asked on the way whether they are well.

    Raises:
        InputError: If it failed in one of several processes.
        KeyboardInterrupt: If this process was interrupted.
    """
    others = Others()
    problem: BaseException | None = None
    heard: AnotherFailed | None = None
    try:
        yield others
    except AnotherFailed as error:
        heard = error
    except (Exception, KeyboardInterrupt) as error:
        if not is_distributed():
            raise
        problem = error
        others.tell()
    messages = gathered(_message(problem))
    if problem is not None:
        others.forget()
    for rank, message in enumerate(messages):
        if message is not None:
            if isinstance(problem, KeyboardInterrupt):
                raise problem
            raise InputError(
                f"Process {rank} of {distributed.get_world_size()} (counted from 0) could not"
                f" {what}, so that all stop: {message}"
            ) from problem
    if heard is not None:  # half of a part must not pass for the whole
        raise InputError(f"Another process could not {what}, so that all stop.") from heard


def _message(problem: BaseException | None) -> str | None:
    if problem is None:
        return None
    if isinstance(problem, LaplaceBridgeError):
        return str(problem)
    return f"{type(problem).__name__}: {problem}"


def common_shard(mine: Shard | None) -> Shard | None:
    """The shard that those of all processes are like; None if all are empty.

    Args:
        mine: This process's; None if it is empty.

    Raises:
        InputError: If two of them are of other weights or sums.
    """
    every = {rank: shard for rank, shard in enumerate(gathered(mine)) if shard is not None}
    if not every:
        return None
    first, *others = every
    for other in others:
        if every[other].described() != every[first].described():
            raise InputError(
                "Processes that fit together need the same network, curvature and `layers`;"
                f" process {first} sums {every[first].described()}, and process {other}"
                f" {every[other].described()}."
            )
    return every[first]._replace(
        has_labels=all(shard.has_labels for shard in every.values()),
        has_likelihood=all(shard.has_likelihood for shard in every.values()),
    )


def require_same(what: str, value: float, advice: str) -> None:
    """Makes sure that all processes came to the same number.

    Args:
        what: The number's name.
        value: What this process has.
        advice: What may be the cause.

    Raises:
        InputError: If they did not.
    """
    found = gathered(value)
    if not all(math.isclose(other, found[0], rel_tol=ROUNDING) for other in found):
        raise InputError(
            f"The processes chose different values as {what}: {', '.join(map(str, found))}."
            f" {advice}"
        )


def summed(curvature: Sums) -> Sums:
    """The sum of a curvature over all processes; every process gets the same.

    Args:
        curvature: This process's sums; those of unequal shards, or of none, add like
            any others.
    """
    total = {name: tensor.clone() for name, tensor in curvature.tensors().items()}
    for tensor in total.values():
        distributed.all_reduce(tensor, op=distributed.ReduceOp.SUM)
    return curvature.with_tensors(total)


def summed_labels(labels: LabelStatistics, device: torch.device) -> LabelStatistics:
    """What the labels of all processes say; every process gets the same.

    Args:
        labels: What this process's labels say.
        device: Where to add, which the group of processes must be able to.
    """
    known = labels.log_likelihood is not None
    sums = (
        labels.log_likelihood or 0.0,
        labels.num_correct,
        labels.squared_error,
        labels.fourth_power,
        labels.sample_weight,
        labels.class_weight,
    )
    numbers = torch.tensor(sums, dtype=torch.float64, device=device)
    counts = labels.class_counts.to(device, copy=True)
    for tensor in (numbers, counts):
        distributed.all_reduce(tensor, op=distributed.ReduceOp.SUM)
    likelihood, num_correct, *others = numbers.tolist()
    return LabelStatistics(likelihood if known else None, int(num_correct), counts.cpu(), *others)
