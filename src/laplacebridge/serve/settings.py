"""What can be set about a server."""

from dataclasses import dataclass, field

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Settings:
    """What can be set about a server.

    Attributes:
        host: Where it listens: the loopback, so that no other machine reaches it.
        port: The port; 0 for one that is free.
        max_bytes: The largest body of a request.
        max_batch: Examples that are answered together; 1 answers requests one by one.
        max_waiting: Requests that may wait for a model before others get 503.
        max_connections: Connections that may be open.
        request_seconds: The longest that a request may take, its body included.
        idle_seconds: How long headers may take, and a connection be without a request.
        shutdown_seconds: How long requests in flight may take after SIGTERM.
        token: What clients must send as bearer token; None for none.
        log_level: The least serious events that are logged.

    Example:
        >>> Settings().host
        '127.0.0.1'
    """

    host: str = LOOPBACK
    port: int = 8080
    max_bytes: int = 16 * 2**20
    max_batch: int = 64
    max_waiting: int = 256
    max_connections: int = 1024
    request_seconds: float = 30.0
    idle_seconds: int = 10
    shutdown_seconds: int = 30
    token: str | None = field(default=None, repr=False)
    log_level: str = "info"


USUAL = Settings()
