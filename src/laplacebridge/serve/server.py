"""A server that listens, and ends when it is told to."""

import contextlib
import gc
import signal
import socket
import threading
from collections.abc import Iterator, Mapping

import uvicorn

from laplacebridge.errors import LaplaceBridgeError
from laplacebridge.serve.app import create_app
from laplacebridge.serve.connection import LimitedConnection
from laplacebridge.serve.logs import Log, forwarded_to
from laplacebridge.serve.served import Served
from laplacebridge.serve.settings import USUAL, Settings


class Server(uvicorn.Server):  # type: ignore[misc,unused-ignore]
    """uvicorn's server, which logs where it listens, and for which SIGTERM is a way to
    end well: it stops accepting, answers what is in flight, and returns.

    Args:
        config: Of uvicorn.
        log: Where events go.
    """

    def __init__(self, config: uvicorn.Config, log: Log) -> None:
        super().__init__(config)
        self.log = log

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to listen, and says where.

        Args:
            sockets: Those to listen on, if they are open already.

        Raises:
            LaplaceBridgeError: If the address cannot be had.
            SystemExit: If uvicorn ends for another reason.
        """
        try:
            await super().startup(sockets=sockets)
        except SystemExit as error:  # uvicorn's way to say that an address cannot be had
            reason = error.__context__
            if not isinstance(reason, OSError):
                raise
            raise LaplaceBridgeError(
                f"The server cannot listen on {self.config.host}, port {self.config.port}:"
                f" {reason.strerror or reason}. Another program may have that port, or the host is"
                " not one of this machine: give another `--port` (0 for a free one) or `--host`."
            ) from reason
        for server in self.servers:
            for each in server.sockets:
                host, port = each.getsockname()[:2]
                shown = f"[{host}]" if ":" in host else host
                self.log.announce("listening", address=f"http://{shown}:{port}")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles signals while the server runs; uvicorn would raise them again at the
        end, and the process would seem killed.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = (signal.SIGINT, signal.SIGTERM)
        before = {each: signal.signal(each, self.handle_exit) for each in handled}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def run(served: Mapping[tuple[str, str], Served], settings: Settings = USUAL) -> None:
    """Serves models until SIGTERM or SIGINT, then answers what is in flight and
    returns.

    Args:
        served: Models by name and version.
        settings: What can be set.

    Example:
        >>> from laplacebridge import InputError
        >>> try:
        ...     run({})
        ... except InputError as error:
        ...     print(error)
        A server needs at least one model; got none.
    """
    log = Log(settings.log_level)
    config = uvicorn.Config(
        create_app(served, settings, log),
        host=settings.host,
        port=settings.port,
        http=LimitedConnection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=settings.idle_seconds,
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )
    server = Server(config, log)
    with _short_collections(), forwarded_to(log):
        server.run()
    log.announce("ended")


@contextlib.contextmanager
def _short_collections() -> Iterator[None]:
    """Keeps the collector of garbage from going through what stays for the life of the
    server: torch alone has so many objects that every full collection would hold up all
    requests for a tenth of a second.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
