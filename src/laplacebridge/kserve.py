"""Models behind KServe's server, for those on Kubernetes: HTTP and gRPC.

Needs the extra ``kserve``. Requests are checked by the function that
`laplacebridge serve` has, and answered together by the one thread that owns a model.
KServe's server itself listens on all interfaces and limits no body: keep it behind the
cluster's gateway.

    import kserve
    import laplacebridge as lb
    from laplacebridge.kserve import Model
    from laplacebridge.serve import ServedClassifier, TensorSpec

    classifier = lb.load("classifier.safetensors", build())
    served = ServedClassifier(classifier, [TensorSpec.parsed("image:FP32:3,32,32")])
    kserve.ModelServer().start([Model("digits", served)])
"""

import functools
import uuid
from typing import Any

import numpy as np

from laplacebridge._extras import needs_extra
from laplacebridge.errors import InputError

with needs_extra("kserve", "`laplacebridge.kserve`"):
    import kserve
    from grpc_interceptor import exceptions as grpc_errors
    from kserve.errors import InvalidInput
    from prometheus_client import REGISTRY
    from starlette.exceptions import HTTPException

from laplacebridge.serve.batching import Batcher
from laplacebridge.serve.metrics import Metrics
from laplacebridge.serve.protocol import InferRequest, checked_request
from laplacebridge.serve.served import Served
from laplacebridge.serve.settings import USUAL, Settings
from laplacebridge.serve.tensors import RequestError

_GRPC_ERRORS = {503: grpc_errors.Unavailable, 504: grpc_errors.DeadlineExceeded}


class Model(kserve.Model):  # type: ignore[misc,unused-ignore]
    """A model for `kserve.ModelServer`.

    Args:
        name: In addresses.
        served: What answers: a `ServedClassifier`, a
            `serve.onnx_file.ServedOnnx`, or one of your own.
        version: What metrics call it; KServe itself knows no versions.
        settings: Of these the size of batches, how many may wait, and for how long.
    """

    def __init__(
        self, name: str, served: Served, *, version: str = "1", settings: Settings = USUAL
    ) -> None:
        super().__init__(name)
        self.served, self.settings = served, settings
        self._batcher = Batcher(
            served,
            max_rows=settings.max_batch,
            max_waiting=settings.max_waiting,
            observe=_metrics().observer(name, version),
        )
        self._batcher.start()
        self.ready = True

    def load(self) -> bool:
        """Whether the model is ready, which it is once it was made."""
        return bool(self.ready)

    def stop(self) -> None:
        """Ends the thread of the model once nothing waits."""
        self.ready = False
        self._batcher.close()

    def get_input_types(self) -> list[dict[str, Any]]:
        """What the model takes."""
        return [spec.metadata() for spec in self.served.inputs]

    def get_output_types(self) -> list[dict[str, Any]]:
        """What the model gives."""
        return [spec.metadata() for spec in self.served.outputs]

    async def predict(self, payload: Any, headers: Any = None) -> Any:  # noqa: ANN401
        """The answer to a request of version 2 of the protocol.

        Args:
            payload: A `kserve.InferRequest`.
            headers: Of the request, of which none is used.

        Raises:
            InvalidInput: If it is a request of version 1, or anything about it is not
                as it should be.
            Exception: What KServe answers with 503 or 504, if too many wait, or too
                long.
        """  # noqa: DOC501
        if not isinstance(payload, kserve.InferRequest):
            raise InvalidInput(
                f"The model '{self.name}' takes requests of version 2 of the protocol:"
                f" /v2/models/{self.name}/infer."
            )
        try:
            asked = _checked(self.served, payload)
            answers = await self._batcher.answer(
                asked.inputs, frozenset(asked.outputs), asked.rows, self.settings.request_seconds
            )
        except InputError as error:
            raise _refusal(error, of_grpc=payload.from_grpc is True) from error
        outputs = []
        for spec in self.served.outputs:
            if spec.name in asked.outputs:
                array = np.ascontiguousarray(answers[spec.name])
                output = kserve.InferOutput(spec.name, list(array.shape), spec.datatype)
                output.set_data_from_numpy(array)  # KServe makes lists of it where JSON is wanted
                outputs.append(output)
        return kserve.InferResponse(
            payload.id or str(uuid.uuid4()),
            self.name,
            outputs,
            use_binary_outputs=payload.use_binary_outputs,
            requested_outputs=payload.request_outputs,
        )


def _checked(served: Served, payload: Any) -> InferRequest:  # noqa: ANN401
    """KServe's request, checked as any other is."""
    inputs, parts = [], []
    for each in payload.inputs:
        entry = {"name": each.name, "datatype": each.datatype, "shape": list(each.shape or ())}
        raw = each._raw_data
        if raw is None:
            entry["data"] = None if each.data is None else list(each.data)
        else:
            entry["parameters"] = {"binary_data_size": len(raw)}
            parts.append(bytes(raw))
        inputs.append(entry)
    wanted = [{"name": each.name} for each in payload.request_outputs or ()]
    return checked_request(
        served, {"inputs": inputs, "outputs": wanted}, memoryview(b"".join(parts))
    )


def _refusal(error: InputError, *, of_grpc: bool) -> Exception:
    """The refusal of a request, as KServe's servers tell it to clients."""
    status = error.status if isinstance(error, RequestError) else 400
    if of_grpc:
        return _GRPC_ERRORS.get(status, grpc_errors.InvalidArgument)(details=str(error))
    if status == 400:
        return InvalidInput(str(error))
    return HTTPException(status, str(error), {"retry-after": "1"} if status == 503 else None)


@functools.cache
def _metrics() -> Metrics:
    """Figures beside KServe's own, at its /metrics."""
    return Metrics(REGISTRY)
