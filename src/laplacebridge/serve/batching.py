"""Requests that wait are answered together, by the one thread that owns the model.

There is no waiting by the clock for a batch to fill: while the model works, requests
gather, and the next batch is whatever has gathered once the loop has read all that has
arrived. Without that last step the first answer that is sent would bring a batch of one,
before the others that were answered with it can ask again. A request was checked before
it comes here. If a batch fails all the same, because one of its inputs leads the network
beyond numbers, it is halved until the request that fails is alone; the others are
answered.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from laplacebridge.serve.served import Served
from laplacebridge.serve.tensors import RequestError

# From an answer that is sent to the next request of its client in the queue: one round of
# the loop to send it, one to read, one to check.
_QUIET_ROUNDS = 3
Answers = dict[str, np.ndarray]
# Called with the requests of a batch and its answers, before they are handed out.
Observer = Callable[[int, Mapping[str, np.ndarray]], None]


class OverloadedError(RequestError):
    """Too many requests wait already."""

    def __init__(self) -> None:
        super().__init__("Too many requests are waiting; try again in a second.", 503)


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
        self._closed = False
        self._arrived, self._gathering = 0, False
        # a daemon: a network that hangs must not keep a process that was told to end
        self._thread = threading.Thread(target=self._work, name="laplacebridge-model", daemon=True)

    def start(self) -> None:
        """Begins to work."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread once nothing waits."""
        with self._changed:
            self._closed = True
            self._changed.notify()

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
            OverloadedError: If too many wait.
            TooLateError: If there was no answer in time.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answers] = loop.create_future()
        job = Job(inputs, wanted, rows, time.monotonic() + seconds, future)
        with self._changed:
            if len(self._waiting) >= self.max_waiting:
                raise OverloadedError
            self._waiting.append(job)
            self._arrived += 1
            if not self._gathering:
                self._gathering = True
                loop.call_soon(self._gather, loop, self._arrived, 0)
        # not `wait_for`, which makes a task for each request
        timer = loop.call_later(seconds, _expire, future)
        try:
            return await future
        finally:
            timer.cancel()

    def _gather(self, loop: asyncio.AbstractEventLoop, arrived: int, quiet: int) -> None:
        """Lets the model begin once rounds of the loop bring nothing new, or a batch is
        full.
        """
        with self._changed:
            quiet = quiet + 1 if self._arrived == arrived else 0
            waiting = sum(job.rows for job in self._waiting)
            if quiet < _QUIET_ROUNDS and waiting < self.max_rows:
                loop.call_soon(self._gather, loop, self._arrived, quiet)
                return
            self._gathering = False
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                while self._gathering or not self._waiting:
                    if self._closed:
                        break
                    self._changed.wait()
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
        wanted = frozenset[str]().union(*(job.wanted for job in jobs))
        try:
            answers = self.served.answer(_joined(jobs), wanted)
            if self.observe is not None:
                self.observe(len(jobs), answers)
        except Exception as error:  # whatever a network does, the thread lives on
            if len(jobs) == 1:
                self._hand_out([(jobs[0], error)])
                return
            middle = len(jobs) // 2
            self._run(jobs[:middle])
            self._run(jobs[middle:])
            return
        start, results = 0, []
        for job in jobs:
            results.append((job, self.served.rows_of(answers, slice(start, start + job.rows))))
            start += job.rows
        self._hand_out(results)

    def _hand_out(self, results: "Sequence[tuple[Job, Answers | Exception]]") -> None:
        """Gives answers, or what went wrong, to the requests, in the loop that waits for
        them; the next batch begins when their clients had the time to ask again.
        """
        loop = results[0][0].future.get_loop()
        with self._changed:
            begins, self._gathering = not self._gathering, True

        def deliver() -> None:
            for job, result in results:
                if job.future.done():
                    continue
                if isinstance(result, Exception):
                    job.future.set_exception(_of_a_future(result))
                else:
                    job.future.set_result(result)
            if begins:  # in the next round, because clients run after this one
                loop.call_soon(self._gather, loop, self._arrived, 0)

        try:
            loop.call_soon_threadsafe(deliver)
        except RuntimeError:  # the loop is closed: nobody waits any more
            self._gathering = False


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
