"""How payloads are packed and strictly unpacked: a schema number in the first byte, then one msgpack array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgpack

from fugu.contract.errors import (
    FrameLengthError,
    FrameRangeError,
    FrameTypeError,
    MalformedFrameError,
    TrailingBytesError,
    UnknownSchemaError,
)

__all__ = ["array", "binary", "each", "fields", "identity", "integer", "kind", "length", "pack", "text"]

_T = TypeVar("_T")


def pack(schema: int, body: list[Any]) -> bytes:
    """Bytes of a payload: the schema number, then the msgpack array; floats travel as 32 bits."""
    packed: bytes = msgpack.packb(body, use_single_float=True)
    return bytes([schema]) + packed


def fields(payload: bytes, schema: int, count: int) -> list[Any]:
    """The fields of a payload of the given schema."""
    if not payload:
        raise MalformedFrameError("empty payload")
    if payload[0] != schema:
        raise UnknownSchemaError(f"schema {payload[0]}, expected {schema}")
    try:
        body = msgpack.unpackb(memoryview(payload)[1:], raw=False, strict_map_key=True)
    except msgpack.ExtraData:
        raise TrailingBytesError("bytes follow the end of the message") from None
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        raise MalformedFrameError("no msgpack message") from None
    return array(body, count, "message")


def kind(value: object) -> str:
    """The name of a value's type, for an error."""
    return type(value).__name__


def identity(value: Any) -> Any:
    """The value itself."""
    return value


def array(value: Any, count: int, name: str) -> list[Any]:
    """A decoded array of `count` fields."""
    if not isinstance(value, list):
        raise FrameTypeError(f"{name} is {kind(value)}, not an array")
    if len(value) != count:
        raise FrameLengthError(f"{name} has {len(value)} fields, not {count}")
    return value


def each(value: Any, item: Callable[[Any], _T], name: str) -> tuple[_T, ...]:
    """The decoded items of an array."""
    if not isinstance(value, list):
        raise FrameTypeError(f"{name} is {kind(value)}, not an array")
    return tuple([item(element) for element in value])


def integer(value: Any, low: int, high: int, name: str) -> None:
    """Refuse what is no integer in low..high."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise FrameTypeError(f"{name} is {kind(value)}, not an integer")
    if not low <= value <= high:
        raise FrameRangeError(f"{name} {value} is not in {low}..{high}")


def length(value: tuple[Any, ...] | bytes | str, low: int, high: int, name: str) -> None:
    """Refuse a length outside low..high."""
    if not low <= len(value) <= high:
        raise FrameLengthError(f"{name} has length {len(value)}, not {low}..{high}")


def binary(value: Any, low: int, high: int, name: str) -> None:
    """Refuse what is no byte string of low..high bytes."""
    if not isinstance(value, bytes):
        raise FrameTypeError(f"{name} is {kind(value)}, not a byte string")
    length(value, low, high, name)


def text(value: Any, low: int, high: int, name: str) -> None:
    """Refuse what is no string of low..high characters."""
    if not isinstance(value, str):
        raise FrameTypeError(f"{name} is {kind(value)}, not a string")
    length(value, low, high, name)
