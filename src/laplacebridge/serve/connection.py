"""Connections that cannot be held open for nothing: headers have a size and a time."""

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

HEADER_BYTES = 32 * 1024


class LimitedConnection(HttpToolsProtocol):  # type: ignore[misc,unused-ignore]
    """uvicorn's connection, with limits on what comes before the body of a request.

    A connection that sends no complete headers in time is closed with 408, one whose
    headers are too long with 431. The time is uvicorn's ``timeout_keep_alive``.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments, **keywords)
        self._header_bytes = 0
        self._in_headers = True
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override,unused-ignore]
        """Starts the time of the first headers."""
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the time."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Counts what belongs to headers.

        Args:
            data: What was received.
        """
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_headers:
            self._header_bytes += len(data)
            self._limit_headers()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._in_headers, self._header_bytes = True, 0
        if self._header_timer is None:
            self._start_timer()

    def on_headers_complete(self) -> None:
        """The end of headers: a request that is too long here is never run."""
        self._stop_timer()
        self._in_headers = False
        lengths = (len(name) + len(value) for name, value in self.headers)
        self._header_bytes = len(self.url) + sum(lengths)
        if self._limit_headers():
            self.headers.clear()
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Part of a body; that of a refused request is nothing."""
        if self.cycle is not None and not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The end of a request."""
        if self.cycle is not None and not self.transport.is_closing():
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What cannot be read as HTTP."""
        self._refuse(400, msg)

    def _limit_headers(self) -> bool:
        if self._header_bytes <= HEADER_BYTES:
            return False
        self._refuse(431, f"The headers of a request may have {HEADER_BYTES} bytes.")
        return True

    def _start_timer(self) -> None:
        self._header_timer = self.loop.call_later(self.timeout_keep_alive, self._too_slow)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _too_slow(self) -> None:
        self._refuse(
            408, f"The headers of a request must arrive in {self.timeout_keep_alive} seconds."
        )

    def _refuse(self, status: int, sentence: str) -> None:
        if self.transport.is_closing():
            return
        content = json.dumps({"error": sentence}).encode()
        head = (
            b"content-type: application/json\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n" % len(content)
        )
        self.transport.write(STATUS_LINE[status] + head + content)
        self.transport.close()
