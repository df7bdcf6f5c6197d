"""Requests and responses of the Open Inference Protocol, version 2: a request is
checked completely before anything is done with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from laplacebridge.serve.served import Served
from laplacebridge.serve.tensors import TEXT, RequestError, read_tensor, to_bytes

HEADER_LENGTH = "Inference-Header-Content-Length"
_MICROSECONDS = 1e-6


@dataclass(frozen=True)
class InferRequest:
    """A request that a model can answer.

    Attributes:
        inputs: Arrays by name, all of the same number of examples.
        outputs: What is wanted, and whether in the binary form.
        rows: How many examples.
        request_id: What the client calls it.
        seconds: How long the client waits, if it says.
    """

    inputs: dict[str, np.ndarray]
    outputs: dict[str, bool]
    rows: int
    request_id: str | None = None
    seconds: float | None = None


def read_request(served: Served, body: bytes, header_length: str | None) -> InferRequest:
    """A request out of its bytes.

    Args:
        served: The model that it is for.
        body: JSON, and after it the tensors in the binary form.
        header_length: How many bytes the JSON has, if tensors follow.

    Raises:
        RequestError: If anything about it is not as it should be.
    """
    text, binary = _apart(body, header_length)
    try:
        given = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RequestError(
            f"The request needs JSON, which has no NaN and no infinity: {error}."
        ) from error
    return checked_request(served, given, binary)


def checked_request(served: Served, given: Any, binary: memoryview) -> InferRequest:  # noqa: ANN401
    """A request that was read already.

    Args:
        served: The model that it is for.
        given: The request's JSON object.
        binary: The tensors in the binary form, one after another.

    Raises:
        RequestError: If anything about it is not as it should be.
    """
    if not isinstance(given, dict):
        raise RequestError(f"The request needs a JSON object; got {_kind(given)}.")
    request_id, parameters = given.get("id"), given.get("parameters") or {}
    if not isinstance(request_id, str | None):
        raise RequestError(f"`id` needs a text; got {_kind(request_id)}.")
    if not isinstance(parameters, dict):
        raise RequestError(f"`parameters` needs an object; got {_kind(parameters)}.")
    inputs = _inputs(served, given.get("inputs"), binary)
    outputs = _outputs(served, given.get("outputs"), _flag(parameters, "binary_data_output"))
    rows = {len(array) for array in inputs.values()}
    if len(rows) > 1:
        raise RequestError(
            "All inputs need the same number of examples, the first of their sizes; got"
            f" {', '.join(f'{name}: {len(array)}' for name, array in inputs.items())}."
        )
    return InferRequest(inputs, outputs, rows.pop(), request_id, _seconds(parameters))


def _apart(body: bytes, header_length: str | None) -> tuple[memoryview, memoryview]:
    view = memoryview(body)
    if header_length is None:
        return view, view[:0]
    if not header_length.isdecimal() or int(header_length[:20]) > len(body):
        raise RequestError(
            f"{HEADER_LENGTH} needs the number of bytes of the JSON at the beginning of the"
            f" body, at most its {len(body)}; got '{header_length[:20]}'."
        )
    end = int(header_length)
    return view[:end], view[end:]


def _inputs(served: Served, given: Any, binary: memoryview) -> dict[str, np.ndarray]:  # noqa: ANN401
    specs = {spec.name: spec for spec in served.inputs}
    inputs: dict[str, np.ndarray] = {}
    for entry in _entries("inputs", given, specs, needed=True):
        name, size = entry["name"], _parameters(entry).get("binary_data_size")
        if name in inputs:
            raise RequestError(f"Input '{name}' is given more than once.")
        content = None
        if size is not None:
            if type(size) is not int or not 0 <= size <= len(binary) or "data" in entry:
                raise RequestError(
                    f"Input '{name}' needs `data` or its bytes after the JSON, whose number is"
                    f" `binary_data_size`; {len(binary)} bytes are left, and it says"
                    f" {str(size)[:20]}."
                )
            content, binary = binary[:size], binary[size:]
        inputs[name] = read_tensor(specs[name], entry, content)
    missing = [name for name in specs if name not in inputs]
    if missing:
        raise RequestError(f"The input '{missing[0]}' is missing; the model takes {_named(specs)}.")
    if len(binary):
        raise RequestError(
            f"{len(binary)} bytes after the JSON belong to no input: state `binary_data_size` and"
            f" {HEADER_LENGTH}."
        )
    return inputs


def _outputs(served: Served, given: Any, binary: bool) -> dict[str, bool]:  # noqa: ANN401
    if given is None or given == []:
        return dict.fromkeys(served.default_outputs, binary)
    wanted: dict[str, bool] = {}
    for entry in _entries("outputs", given, {spec.name: spec for spec in served.outputs}):
        parameters = _parameters(entry)
        if "classification" in parameters:
            raise RequestError(
                "`classification` is not known here: ask for `label`, `top_labels` or"
                " `probabilities`."
            )
        wanted[entry["name"]] = _flag(parameters, "binary_data", binary)
    return wanted


def _entries(
    what: str,
    given: Any,  # noqa: ANN401
    specs: Mapping[str, Any],
    *,
    needed: bool = False,
) -> list[dict[str, Any]]:
    """The inputs or outputs of a request, each with a name that the model knows.

    Raises:
        RequestError: If there are none, or others.
    """
    if not isinstance(given, list) or (needed and not given):
        raise RequestError(f"`{what}` needs a list of objects with names; got {_kind(given)}.")
    for entry in given:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise RequestError(f"Each of `{what}` needs an object with a `name`.")
        if name not in specs:
            raise RequestError(
                f"There is no '{name[:60]}' among the {what} of this model: {_named(specs)}."
            )
        if "shared_memory_region" in _parameters(entry):
            raise RequestError("Shared memory is not used here: send the tensors themselves.")
    return given


def _parameters(entry: Mapping[str, Any]) -> dict[str, Any]:
    parameters = entry.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise RequestError(f"`parameters` needs an object; got {_kind(parameters)}.")
    return parameters


def _flag(parameters: Mapping[str, Any], name: str, usual: bool = False) -> bool:
    value = parameters.get(name, usual)
    if not isinstance(value, bool):
        raise RequestError(f"The parameter `{name}` needs true or false; got {_kind(value)}.")
    return value


def _seconds(parameters: Mapping[str, Any]) -> float | None:
    timeout = parameters.get("timeout")
    if timeout is None or timeout == 0:
        return None
    if type(timeout) is not int or timeout < 0:
        raise RequestError("The parameter `timeout` needs a whole number of microseconds.")
    return timeout * _MICROSECONDS


def _kind(value: Any) -> str:  # noqa: ANN401
    kinds = {list: "a list", dict: "an object", str: "a text", bool: "true or false"}
    return "none" if value is None else kinds.get(type(value), "a number")


def _named(specs: Mapping[str, Any]) -> str:
    return ", ".join(specs)


def write_response(
    request: InferRequest, served: Served, answers: Mapping[str, np.ndarray], about: dict[str, str]
) -> tuple[bytes, dict[str, str]]:
    """The body of a response, and its headers.

    Args:
        request: What was asked.
        served: The model.
        answers: Arrays by name, of this request's examples.
        about: The model's name and version.
    """
    specs = {spec.name: spec for spec in served.outputs}
    outputs, parts = [], []
    for name, binary in request.outputs.items():
        array = answers[name]
        entry: dict[str, Any] = {
            "name": name,
            "datatype": specs[name].datatype,
            "shape": list(array.shape),
        }
        if binary:
            parts.append(to_bytes(array))
            entry["parameters"] = {"binary_data_size": len(parts[-1])}
        elif specs[name].datatype == TEXT:
            entry["data"] = array.ravel().tolist()
        else:
            entry["data"] = np.ascontiguousarray(array).ravel()
        outputs.append(entry)
    head: dict[str, Any] = {**about, "outputs": outputs}
    if request.request_id is not None:
        head["id"] = request.request_id
    text = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
    if not parts:
        return text, {"content-type": "application/json"}
    headers = {"content-type": "application/octet-stream", HEADER_LENGTH: str(len(text))}
    return b"".join([text, *parts]), headers
