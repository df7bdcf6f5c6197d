"""The body of a request, which is read up to a limit and for a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request

from laplacebridge.serve.settings import Settings
from laplacebridge.serve.tensors import RequestError


async def read_body(request: Request, settings: Settings) -> bytes:
    """Reads the body of a request.

    Args:
        request: The request.
        settings: How many bytes it may have, and how many seconds it may take.

    Raises:
        RequestError: If it is longer than that, or takes longer.
    """
    limit = settings.max_bytes
    too_long = RequestError(f"The body of a request may have {limit} bytes.", 413)
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError("Bodies are read as they are, without a content encoding.", 415)
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length[:20]) > limit:
        raise too_long

    parts, size = [], 0
    try:
        async with _at_most(settings.request_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise too_long
                parts.append(part)
    except asyncio.TimeoutError as error:
        raise RequestError(
            f"The body must arrive in {settings.request_seconds:g} seconds.", 408
        ) from error
    return b"".join(parts)


@asynccontextmanager
async def _at_most(seconds: float) -> AsyncIterator[None]:
    """A limit on the time of what is inside; `wait_for` would make a task for each
    request.

    Raises:
        asyncio.TimeoutError: If it takes longer.
        asyncio.CancelledError: If something else ends the request.
    """
    task, late = asyncio.current_task(), False
    assert task is not None  # noqa: S101  (a request is answered in one)

    def end() -> None:
        nonlocal late
        late = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, end)
    try:
        yield
    except asyncio.CancelledError as error:
        if not late:
            raise
        # from Python 3.11 on a task counts who asks it to end: others may, at the same time
        if hasattr(task, "uncancel") and task.uncancel() > 0:
            raise
        raise asyncio.TimeoutError from error
    finally:
        timer.cancel()
