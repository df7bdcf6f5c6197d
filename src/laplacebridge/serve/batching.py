"""Requests that wait are answered together, by the one thread that owns the model.

There is no waiting by the clock for a batch to fill: while the model works, requests
gather, and the next batch is whatever has gathered once the loop has read all that has
arrived. Without that last step the first answer that is sent would bring a batch of
one, before the others that were answered with it can ask again; these are waited for,
but not for long beside the time that a batch takes. The clock ends it where requests
never cease to arrive, and where the loop that was reading is gone. A request was
checked before it comes here. If a batch fails all the same, because one of its inputs
leads the network beyond numbers, it is halved until the request that fails is alone;
the others are answered.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from laplacebridge.serve.gathering import LONGEST_GATHER, Gather, patience_after
from laplacebridge.serve.served import Served
from laplacebridge.serve.tensors import RequestError

_LOG = logging.getLogger(__name__)
Answers = dict[str, np.ndarray]
# Called with the requests of a batch and its answers, before they are handed out.
Observer = Callable[[int, Mapping[str, np.ndarray]], None]


class OverloadedError(RequestError):
    """Too many requests wait already."""

    def __init__(self) -> None:
        super().__init__("Too many requests are waiting; try again in a second.", 503)


class StoppedError(RequestError):
    """The model takes no requests any more, or not yet."""

    def __init__(self) -> None:
        super().__init__("This model is not running; try again in a second.", 503)


class TooLateError(RequestError):
    """The time of a request was over before it was answered."""

    def __init__(self) -> None:
        super().__init__("The time for this request was over before it was answered.", 504)


@dataclass(eq=False)
class Job:
    """A request that waits for its answers.

    Attributes:
        inputs: Arrays by name.
        wanted: Names of outputs.
        rows: How many examples.
        deadline: When it is no longer of use, by `time.monotonic`.
        future: Where its answers go.
    """

    inputs: Mapping[str, np.ndarray]
    wanted: frozenset[str]
    rows: int
    deadline: float
    future: "asyncio.Future[Answers]"
    key: tuple[object, ...] = field(init=False)

    def __post_init__(self) -> None:
        # only examples of one shape stand in one array
        self.key = tuple((name, array.shape[1:]) for name, array in sorted(self.inputs.items()))


class Batcher:
    """The queue of one model, and the thread that works on it.

    Args:
        served: The model.
        max_rows: Examples in a batch; a request of more is a batch of its own.
        max_waiting: Requests that may wait.
        observe: Called after each batch.
    """

    def __init__(
        self,
        served: Served,
        *,
        max_rows: int = 64,
        max_waiting: int = 256,
        observe: Observer | None = None,
    ) -> None:
        self.served, self.max_rows, self.max_waiting = served, max_rows, max_waiting
        self.observe = observe
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = True
        self._arrived, self._gathering = 0, Gather(until=0.0)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to work, also after an end."""
        with self._changed:
            if not self._closed:
                return
            before, self._closed = self._thread, False
            # a daemon: a network that hangs must not keep a process that was told to end
            self._thread = threading.Thread(
                target=self._work, args=(before,), name="laplacebridge-model", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Ends the thread once nothing waits; what comes later is refused."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._waiting)

    async def answer(
        self, inputs: Mapping[str, np.ndarray], wanted: frozenset[str], rows: int, seconds: float
    ) -> Answers:
        """The answers to one request.

        Args:
            inputs: Arrays by name, checked.
            wanted: Names of outputs.
            rows: How many examples.
            seconds: How long they are of use.

        Raises:
            StoppedError: If it was closed.
            OverloadedError: If too many wait.
            TooLateError: If there was no answer in time.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answers] = loop.create_future()
        now = time.monotonic()
        job = Job(inputs, wanted, rows, now + seconds, future)
        with self._changed:
            if self._closed:
                raise StoppedError
            if len(self._waiting) >= self.max_waiting:
                raise OverloadedError
            self._waiting.append(job)
            self._arrived += 1
            # only the first that waits: the model is due to take what has gathered already,
            # and may need a moment to hear of it
            if len(self._waiting) == 1 and self._gathering.until <= now:
                gathering = self._begin(Gather(now + LONGEST_GATHER, arrived=self._arrived))
                loop.call_soon(self._gather, loop, gathering)
        # not `wait_for`, which makes a task for each request
        timer = loop.call_later(seconds, _expire, future)
        try:
            return await future
        finally:
            timer.cancel()

    def _begin(self, gathering: Gather) -> Gather:
        """Lets a gather take the place of any other; needs the lock."""
        self._gathering = gathering
        self._changed.notify_all()  # of the time by which it is over
        return gathering

    def _gather(self, loop: asyncio.AbstractEventLoop, gathering: Gather) -> None:
        """Lets the model begin once a batch is full, or no more is to be expected."""
        with self._changed:
            if gathering is not self._gathering:
                return
            waiting = sum(job.rows for job in self._waiting)
            goes_on = gathering.goes_on(self._arrived, time.monotonic())
            if goes_on and waiting < self.max_rows:
                loop.call_soon(self._gather, loop, gathering)
                return
            gathering.until = 0.0
            self._changed.notify_all()

    def _work(self, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()  # one thread at a time owns the model
        while True:
            with self._changed:
                while not self._closed:
                    # whatever became of the loop that reads, the clock ends the waiting
                    left = self._gathering.until - time.monotonic()
                    if self._waiting and left <= 0:
                        break
                    self._changed.wait(left if left > 0 else None)
                if not self._waiting:
                    return
                jobs = self._taken()
            if jobs:
                self._run(jobs)

    def _taken(self) -> list[Job]:
        """The oldest request, and those after it that fit into its batch."""
        taken: list[Job] = []
        left: deque[Job] = deque()
        rows, now = 0, time.monotonic()
        for job in self._waiting:
            if job.future.done() or job.deadline < now:  # its client has its refusal already
                continue
            fits = not taken or (job.key == taken[0].key and rows + job.rows <= self.max_rows)
            if fits:
                taken.append(job)
                rows += job.rows
            else:
                left.append(job)
        self._waiting = left
        return taken

    def _run(self, jobs: Sequence[Job]) -> None:
        """Answers requests, halves a batch that fails, and tells each what came of it."""
        wanted, began = frozenset[str]().union(*(job.wanted for job in jobs)), time.monotonic()
        try:
            answers = self.served.answer(_joined(jobs), wanted)
            parts = self.served.split(answers, [job.rows for job in jobs])
        except Exception as error:  # whatever a network does, the thread lives on
            if len(jobs) == 1:
                self._hand_out([(jobs[0], error)], began)
                return
            middle = len(jobs) // 2
            self._run(jobs[:middle])
            self._run(jobs[middle:])
            return
        self._note(len(jobs), answers)
        results: list[tuple[Job, Answers | Exception]] = list(zip(jobs, parts))
        self._hand_out(results, began)

    def _note(self, num_requests: int, answers: Answers) -> None:
        """Figures that cannot be kept are no reason to keep the answers back."""
        if self.observe is None:
            return
        try:
            self.observe(num_requests, answers)
        except Exception as error:
            # its message may hold inputs
            _LOG.error(f"A batch was not counted: {type(error).__name__}")

    def _hand_out(self, results: "Sequence[tuple[Job, Answers | Exception]]", began: float) -> None:
        """Gives answers, or what went wrong, to the requests, in the loop that waits
        for them; the next batch begins when their clients had the time to ask again.
        """
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Job, Answers | Exception]]] = {}
        for job, result in results:
            by_loop.setdefault(job.future.get_loop(), []).append((job, result))
        now = time.monotonic()
        with self._changed:
            expected = self._arrived + len(results)
            gathering = self._begin(
                Gather(now + LONGEST_GATHER, expected, patience_after(now - began))
            )
        for loop, own in by_loop.items():
            with contextlib.suppress(RuntimeError):  # it is closed: nobody waits there any more
                loop.call_soon_threadsafe(self._deliver, loop, gathering, own)

    def _deliver(
        self,
        loop: asyncio.AbstractEventLoop,
        gathering: Gather,
        results: "Sequence[tuple[Job, Answers | Exception]]",
    ) -> None:
        for job, result in results:
            if job.future.done():
                continue
            if isinstance(result, Exception):
                job.future.set_exception(_of_a_future(result))
            else:
                job.future.set_result(result)
        # in the next round, because clients run after this one
        loop.call_soon(self._gather, loop, gathering)


def _of_a_future(error: Exception) -> Exception:
    """An error that a future takes: `StopIteration`, which ends coroutines, is not one."""
    if isinstance(error, StopIteration):
        return RuntimeError(f"The network raised {error!r}.")
    return error


def _expire(future: "asyncio.Future[Answers]") -> None:
    if not future.done():
        future.set_exception(TooLateError())


def _joined(jobs: Sequence[Job]) -> Mapping[str, np.ndarray]:
    if len(jobs) == 1:
        return jobs[0].inputs
    return {name: np.concatenate([job.inputs[name] for job in jobs]) for name in jobs[0].inputs}
