"""The addresses of a server: the Open Inference Protocol, version 2, figures for
Prometheus, and a page for people.
"""

import base64
import hashlib
import hmac
import importlib.resources
import re
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from laplacebridge import _provenance
from laplacebridge.errors import InputError
from laplacebridge.serve.body import read_body
from laplacebridge.serve.logs import Log
from laplacebridge.serve.metrics import Metrics
from laplacebridge.serve.models import Entry, Models
from laplacebridge.serve.protocol import HEADER_LENGTH, read_request, write_response
from laplacebridge.serve.served import Served
from laplacebridge.serve.settings import USUAL, Settings
from laplacebridge.serve.tensors import RequestError

EXTENSIONS = ["binary_tensor_data", "model_repository"]
OPEN_PATHS = ("/", "/v2/health/live", "/v2/health/ready")  # without a token
_JSON = "application/json"
_SECONDS_TO_RETRY = 1
Endpoint = Callable[[Request], Awaitable[Response]]


def create_app(
    served: Mapping[tuple[str, str], Served],
    settings: Settings = USUAL,
    log: Log | None = None,
) -> FastAPI:
    """The application of a server, for any ASGI server; `run` is one with the right
    limits on connections.

    Args:
        served: Models by name and version.
        settings: What can be set.
        log: Where events go.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from laplacebridge import fit
        >>> from laplacebridge.serve import ServedClassifier
        >>> classifier = fit(nn.Linear(4, 3), [torch.eye(4)], prior_precision=1.0, progress=False)
        >>> create_app({("digits", "1"): ServedClassifier(classifier)}).title
        'laplacebridge'
    """
    metrics = Metrics()
    server = _Addresses(Models(served, settings, metrics), settings, metrics, log or Log())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        server.start()
        yield
        server.close()

    app = FastAPI(
        title="laplacebridge", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )
    model = "/v2/models/{name}"
    version = model + "/versions/{version}"
    for path, method, endpoint in (
        # first, because routes are tried in turn
        *((f"{prefix}/infer", "POST", server.infer) for prefix in (model, version)),
        ("/", "GET", server.page),
        ("/metrics", "GET", server.figures),
        ("/v2", "GET", server.about),
        ("/v2/health/live", "GET", server.live),
        ("/v2/health/ready", "GET", server.ready),
        ("/v2/repository/index", "POST", server.index),
        *((prefix, "GET", server.model) for prefix in (model, version)),
        *((f"{prefix}/ready", "GET", server.model_ready) for prefix in (model, version)),
    ):
        # a request is checked by `read_request`: FastAPI's own parsing would come on top
        app.router.add_route(path, _guarded(server, endpoint, path), methods=[method])
    app.add_exception_handler(HTTPException, server.unknown_address)  # type: ignore[arg-type,unused-ignore]
    return app


def _guarded(server: "_Addresses", endpoint: Endpoint, path: str) -> Endpoint:
    """An endpoint behind the token, whose failures are answers, and which is logged."""

    async def guarded(request: Request) -> Response:
        start = time.perf_counter()
        try:
            server.require_token(request)
            response = await endpoint(request)
        except RequestError as error:
            response = _refusal(str(error), error.status)
        except ClientDisconnect:
            response = _refusal("The client went away.", 400)
        except InputError as error:  # what the network makes of these inputs alone
            response = _refusal(str(error), 400)
        except Exception as error:
            server.log(
                "error",
                "failure",
                # where, but not the message, which may hold inputs
                error=type(error).__name__,
                places=[
                    f"{place.filename}:{place.lineno}"
                    for place in traceback.extract_tb(error.__traceback__)
                ],
            )
            response = _refusal("The server failed on this request; its log says where.", 500)
        server.note(request, path, response.status_code, time.perf_counter() - start)
        return response

    return guarded


class _Addresses:
    """What is answered under each address."""

    def __init__(self, models: Models, settings: Settings, metrics: Metrics, log: Log) -> None:
        self.models, self.settings, self.metrics, self.log = models, settings, metrics, log
        self._page, self._policy = _read_page()

    def start(self) -> None:
        for entry in self.models:
            entry.batcher.start()

    def close(self) -> None:
        for entry in self.models:
            entry.batcher.close()

    def require_token(self, request: Request) -> None:
        token = self.settings.token
        if token is None or request.scope["path"] in OPEN_PATHS:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        # headers were decoded as Latin-1, whatever clients wrote
        same = hmac.compare_digest(given.strip().encode("latin-1"), token.encode())
        if not same or scheme.lower() != "bearer":
            raise RequestError("This server needs the header 'Authorization: Bearer TOKEN'.", 401)

    def note(self, request: Request, address: str, status: int, seconds: float) -> None:
        """Counts and logs a request that was answered."""
        found: dict[str, Any] = request.scope.get("laplacebridge", {})
        if request.scope["path"].endswith("/infer"):
            model = (found.get("model", "unknown"), found.get("version", "unknown"))
            self.metrics.note(*model, status, seconds)
        level = "error" if status >= 500 else "info"
        if self.log.writes(level):
            self.log(
                level,
                "request",
                method=request.method,
                address=address,
                status=status,
                milliseconds=round(1000 * seconds, 3),
                **found,
            )

    async def page(self, _: Request) -> Response:
        headers = {"content-security-policy": self._policy, "x-content-type-options": "nosniff"}
        return Response(self._page, media_type="text/html", headers=headers)

    async def figures(self, _: Request) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def about(self, _: Request) -> Response:
        version = _provenance.versions()["laplacebridge"]
        return _json({"name": "laplacebridge", "version": version, "extensions": EXTENSIONS})

    async def live(self, _: Request) -> Response:
        return _json({"live": True})

    async def ready(self, _: Request) -> Response:
        return _json({"ready": True})

    async def index(self, _: Request) -> Response:
        return _json(
            [{"name": each.name, "version": each.version, "state": "READY"} for each in self.models]
        )

    async def model(self, request: Request) -> Response:
        entry = self._entry(request)
        versions = self.models.versions(entry.name)
        return _json({"name": entry.name, "versions": versions, **entry.served.metadata()})

    async def model_ready(self, request: Request) -> Response:
        entry = self._entry(request)
        return _json({"name": entry.name, "ready": True})

    async def infer(self, request: Request) -> Response:
        entry = self._entry(request)
        found = {"model": entry.name, "version": entry.version}
        request.scope["laplacebridge"] = found
        body = await read_body(request, self.settings)
        asked = read_request(entry.served, body, request.headers.get(HEADER_LENGTH))
        request.scope["laplacebridge"] = {**found, "rows": asked.rows}
        limit = self.settings.request_seconds
        answers = await entry.batcher.answer(
            asked.inputs,
            frozenset(asked.outputs),
            asked.rows,
            limit if asked.seconds is None else min(limit, asked.seconds),
        )
        about = {"model_name": entry.name, "model_version": entry.version}
        content, headers = write_response(asked, entry.served, answers, about)
        return Response(content, headers=headers)

    async def unknown_address(self, request: Request, error: HTTPException) -> Response:
        sentence = (
            f"{request.method} is not for this address."
            if error.status_code == 405
            else "There is nothing at this address; the protocol's addresses begin with /v2."
        )
        self.note(request, "unknown", error.status_code, 0.0)
        return _refusal(sentence, error.status_code)

    def _entry(self, request: Request) -> Entry:
        return self.models.find(request.path_params["name"], request.path_params.get("version"))


def _json(value: Any) -> Response:  # noqa: ANN401
    return Response(orjson.dumps(value), media_type=_JSON)


def _refusal(sentence: str, status: int) -> Response:
    headers = {}
    if status in {408, 413, 415}:  # the rest of the body is not read
        headers["connection"] = "close"
    if status == 503:
        headers["retry-after"] = str(_SECONDS_TO_RETRY)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(
        orjson.dumps({"error": sentence}), status_code=status, media_type=_JSON, headers=headers
    )


def _read_page() -> tuple[str, str]:
    """The page for people, and a policy that lets only its own script run."""
    page = (importlib.resources.files("laplacebridge.serve") / "page.html").read_text("utf-8")
    parts = {}
    for tag in ("script", "style"):
        found = re.search(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert found is not None  # noqa: S101  (it is our own page)
        digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        parts[tag] = f"'sha256-{digest}'"
    return page, (
        f"default-src 'none'; script-src {parts['script']}; style-src {parts['style']};"
        " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    )
