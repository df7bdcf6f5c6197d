"""Structured logs: one line of JSON for each event, never with inputs in them."""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, TextIO

import orjson

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class Log:
    """Writes events as lines of JSON.

    Args:
        level: The least that is written: info for every request, warning for those that
            failed on the server's side.
        stream: Where to; by default standard error.

    Example:
        >>> Log("warning").writes("info")
        False
    """

    def __init__(self, level: str = "info", stream: TextIO | None = None) -> None:
        self._least, self._stream = LEVELS[level], stream

    def writes(self, level: str) -> bool:
        """Whether events of a level are written.

        Args:
            level: Such as info.
        """
        return LEVELS[level] >= self._least

    def __call__(self, level: str, event: str, **facts: Any) -> None:  # noqa: ANN401
        """Writes an event.

        Args:
            level: How serious it is.
            event: What happened, in a word.
            facts: More about it; nothing of what clients send but names that are known.
        """
        if self.writes(level):
            self._write(level, event, facts)

    def announce(self, event: str, **facts: Any) -> None:  # noqa: ANN401
        """Writes what whoever starts a server waits for, at any level.

        Args:
            event: What happened.
            facts: More about it.
        """
        self._write("info", event, facts)

    def _write(self, level: str, event: str, facts: dict[str, Any]) -> None:
        time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        line = orjson.dumps({"time": time, "level": level, "event": event, **facts}).decode()
        stream = self._stream or sys.stderr
        stream.write(f"{line}\n")
        stream.flush()


class _Forwarded(logging.Handler):
    """What uvicorn and this library log, as events, without what they fill in."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        told = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
        facts = {"message": told} if kind is None else {"message": told, "error": kind.__name__}
        level = "error" if record.levelno >= logging.ERROR else "warning"
        self.log(level, record.name.partition(".")[0], **facts)


@contextmanager
def forwarded_to(log: Log) -> Iterator[None]:
    """While this lasts, what uvicorn and this library log and what Python warns of are
    events of a log, with the place but without the words of a warning, in which inputs
    may be.

    Args:
        log: Where they go.
    """
    handler, show = _Forwarded(log), warnings.showwarning
    loggers = [logging.getLogger(name) for name in ("uvicorn", "laplacebridge")]

    def forward(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object
    ) -> None:
        log("warning", "warning", category=category.__name__, place=f"{filename}:{lineno}")

    propagated = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.propagate = False
        logger.addHandler(handler)
    warnings.showwarning = forward  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.showwarning = show
        for logger, propagate in zip(loggers, propagated):
            logger.removeHandler(handler)
            logger.propagate = propagate
