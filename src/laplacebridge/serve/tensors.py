"""Tensors of the Open Inference Protocol: their types, in JSON and in Triton's binary
form, checked while they are read.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from laplacebridge.errors import InputError

NUMBERS: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(bool),
    "UINT8": np.dtype("<u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("<i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
TEXT = "BYTES"
FREE = -1  # a dimension of any size
_LENGTH = struct.Struct("<I")  # before each text in the binary form


class RequestError(InputError):
    """A request that is refused, with the status that says why.

    Args:
        message: What was given, what is needed.
        status: Of HTTP.

    Example:
        >>> RequestError("shape [-1, 4] says no number of examples", 400).status
        400
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class TensorSpec:
    """What a model takes or gives under one name.

    Attributes:
        name: Its name.
        datatype: As the protocol calls it, such as FP32.
        shape: Its dimensions, examples first; −1 where any size is possible.
        meaning: What it is, for people.
        ragged: Whether rows are of unequal length, filled up with −1 or empty texts.

    Example:
        >>> TensorSpec.parsed("image:FP32:3,32,32").shape
        (-1, 3, 32, 32)
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    meaning: str = ""
    ragged: bool = False

    @classmethod
    def parsed(cls, text: str) -> "TensorSpec":
        """From ``NAME:DATATYPE:SIZE,SIZE,…``, without the dimension of examples.

        Args:
            text: Such as ``image:FP32:3,32,32`` or ``input_ids:INT64:-1``.

        Raises:
            InputError: If it is not of that form.
        """
        name, _, rest = text.partition(":")
        datatype, _, sizes = rest.partition(":")
        parts = [part.strip() for part in sizes.split(",")] if sizes else []
        if (
            not name
            or datatype not in NUMBERS
            or not all(part == str(FREE) or (part.isdecimal() and int(part)) for part in parts)
        ):
            raise InputError(
                "An input is written NAME:DATATYPE:SIZE,SIZE,… without the examples, as"
                f" image:FP32:3,32,32 or input_ids:INT64:-1; got '{text}'. Types are"
                f" {', '.join(NUMBERS)}."
            )
        return cls(name, datatype, (FREE, *map(int, parts)))

    def metadata(self) -> dict[str, Any]:
        """As the protocol describes it."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}

    def example(self, rows: int = 1) -> np.ndarray:
        """Zeros of that shape.

        Args:
            rows: How many examples; other free dimensions are of size 1.
        """
        sizes = [1 if size == FREE else size for size in self.shape[1:]]
        return np.zeros((rows, *sizes), NUMBERS[self.datatype])


def read_tensor(spec: TensorSpec, given: Mapping[str, Any], content: memoryview | None) -> Any:  # noqa: ANN401
    """One input of a request as an array, or the refusal of it.

    Args:
        spec: What the model takes.
        given: The input in the request's JSON.
        content: Its bytes, if it came in the binary form.

    Raises:
        RequestError: If type, shape or values are not what the model takes.
    """
    if given.get("datatype") != spec.datatype:
        raise RequestError(
            f"Input '{spec.name}' needs the datatype {spec.datatype}; got"
            f" {_shown(given.get('datatype'))}."
        )
    shape = _shape_of(spec, given.get("shape"))
    data = given.get("data")
    array = _from_json(spec, data, shape) if content is None else _from_bytes(spec, content, shape)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise RequestError(
            f"Input '{spec.name}' needs finite numbers within {spec.datatype}; row {row} (counted"
            " from 0) has NaN, infinity or a number beyond that range. Leave it out, or fill in"
            " what is missing."
        )
    return array


def _shape_of(spec: TensorSpec, given: Any) -> tuple[int, ...]:  # noqa: ANN401
    wanted = list(spec.shape)
    if not isinstance(given, list) or not all(type(size) is int for size in given):
        raise RequestError(
            f"Input '{spec.name}' needs a shape, a list of whole numbers like {wanted} with the"
            f" number of examples first; got {_shown(given)}."
        )
    fits = len(given) == len(wanted) and all(
        size > 0 and (need in {FREE, size}) for size, need in zip(given, wanted)
    )
    if not fits:
        raise RequestError(
            f"Input '{spec.name}' needs the shape {wanted}, where -1 stands for any positive size"
            f" that the request must state, and at least one example; got {_shown(given)}."
        )
    return tuple(given)


def _from_json(spec: TensorSpec, data: Any, shape: tuple[int, ...]) -> np.ndarray:  # noqa: ANN401
    if not isinstance(data, list):
        raise RequestError(
            f"Input '{spec.name}' needs `data`, a list of values, or its bytes and their number as"
            f" `binary_data_size`; got {_shown(data)}."
        )
    values, types, sizes = _flat(spec, data)
    if len(sizes) > 1 and tuple(sizes) != shape:
        raise RequestError(
            f"Input '{spec.name}' says shape {list(shape)}, and its lists have the shape {sizes}."
        )
    if len(values) != math.prod(shape):
        raise RequestError(
            f"Input '{spec.name}' says shape {list(shape)}, which has {math.prod(shape)} values;"
            f" got {len(values)}."
        )
    dtype = NUMBERS[spec.datatype]
    allowed: set[type] = {bool} if dtype.kind == "b" else {int}
    allowed |= {float} if dtype.kind == "f" else set()
    if not types <= allowed:
        names = {type(None): "null", str: "text", bool: "true or false", dict: "an object"}
        if dtype.kind == "b":
            names |= {int: "numbers", float: "numbers"}
        other = next(iter(types - allowed))
        raise RequestError(
            f"Input '{spec.name}' of type {spec.datatype} needs"
            f" {'true or false' if dtype.kind == 'b' else 'numbers'} alone; some of its data are"
            f" {names.get(other, 'numbers that are not whole')}."
        )
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if values and not limits.min <= min(values) <= max(values) <= limits.max:
            raise RequestError(
                f"Input '{spec.name}' needs numbers from {limits.min} to {limits.max}, the range of"
                f" {spec.datatype}; got one beyond."
            )
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused as that
        wide = np.array(values, np.float64 if dtype.kind == "f" else dtype)
        return wide.astype(dtype).reshape(shape)


def _flat(spec: TensorSpec, data: list[Any]) -> tuple[list[Any], set[type], list[int]]:
    """All values in order, their types, and the sizes of the lists in lists.

    Raises:
        RequestError: If these lists are not those of an array.
    """
    values, sizes = data, [len(data)]
    while (types := set(map(type, values))) == {list}:
        lengths = set(map(len, values))
        if len(lengths) > 1:
            raise RequestError(f"Input '{spec.name}' has lists of unequal length as data.")
        sizes.append(lengths.pop())
        values = list(chain.from_iterable(values))
    if list in types:
        raise RequestError(f"Input '{spec.name}' has values beside lists as data.")
    return values, types, sizes


def _from_bytes(spec: TensorSpec, content: memoryview, shape: tuple[int, ...]) -> np.ndarray:
    dtype = NUMBERS[spec.datatype]
    needed = math.prod(shape) * dtype.itemsize
    if len(content) != needed:
        raise RequestError(
            f"Input '{spec.name}' of type {spec.datatype} and shape {list(shape)} has {needed}"
            f" bytes; got {len(content)}."
        )
    if dtype.kind == "b" and any(byte > 1 for byte in content):
        raise RequestError(f"Input '{spec.name}' of type BOOL has bytes other than 0 and 1.")
    return np.frombuffer(content, dtype).reshape(shape)


def to_bytes(array: np.ndarray) -> bytes:
    """An output in the binary form.

    Args:
        array: Numbers, or texts as objects.
    """
    if array.dtype.kind != "O":
        return np.ascontiguousarray(array).tobytes()
    texts = [text.encode() for text in array.ravel()]
    return b"".join(_LENGTH.pack(len(text)) + text for text in texts)


def texts(values: Sequence[Any]) -> np.ndarray:
    """Texts as an array of objects.

    Args:
        values: Texts, or lists of them of equal length.
    """
    return np.array(values, dtype=object)


def _shown(value: Any) -> str:  # noqa: ANN401
    text = repr(value)
    return "none" if value is None else text if len(text) <= 60 else f"{text[:60]} …"
