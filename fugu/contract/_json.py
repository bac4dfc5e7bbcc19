"""How JSON messages are read: one object, of a bounded size, each field taken once and strictly."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from fugu.contract._wire import kind, length
from fugu.contract.errors import FrameError, FrameLengthError, FrameRangeError, FrameTypeError, MalformedFrameError
from fugu.contract.instants import instant_text, read_instant

__all__ = ["Fields", "encode", "finite", "labels", "numbered", "truth"]


class Fields:
    """The fields of a message that are not taken yet.

    Args:
        payload: UTF-8 JSON of one object.
        most: bytes, at most.

    Raises:
        FrameError: the subclass that says what is wrong.
    """

    def __init__(self, payload: bytes, most: int) -> None:
        if len(payload) > most:
            raise FrameLengthError(f"a message of {len(payload)} bytes; at most {most} are allowed")
        try:
            found = json.loads(payload.decode(), parse_constant=_no_number, object_pairs_hook=_once)
        except FrameError:
            raise
        except (ValueError, RecursionError):
            raise MalformedFrameError("no JSON message") from None
        if not isinstance(found, dict):
            raise FrameTypeError(f"message is {kind(found)}, not an object")
        self._left: dict[str, Any] = found

    def __contains__(self, name: str) -> bool:
        """Whether a field is there, and not taken."""
        return name in self._left

    def names(self, prefix: str) -> list[str]:
        """What follows a prefix in the names of the fields that have it, in their order."""
        return [name.removeprefix(prefix) for name in self._left if name.startswith(prefix)]

    def take(self, name: str) -> Any:
        """The value of a field."""
        try:
            return self._left.pop(name)
        except KeyError:
            raise FrameLengthError(f"there is no field {name[:80]}") from None

    def number(self, name: str) -> float:
        """A number, which JSON may write as an integer."""
        return _number(self.take(name), name)

    def number_or_none(self, name: str) -> float | None:
        """A number, or none for null."""
        found = self.take(name)
        return None if found is None else _number(found, name)

    def numbers(self, name: str, endings: Sequence[str]) -> tuple[float, ...]:
        """A number of this name, or one for each ending, with `_` between."""
        return tuple(self.number(each) for each in numbered(name, endings))

    def time(self, name: str) -> datetime:
        """A time in its form for people."""
        return read_instant(self.take(name))

    def array(self, name: str) -> tuple[Any, ...]:
        """The values of an array."""
        found = self.take(name)
        if not isinstance(found, list):
            raise FrameTypeError(f"{name} is {kind(found)}, not an array")
        return tuple(found)

    def none(self, name: str) -> None:
        """Refuse anything but null."""
        found = self.take(name)
        if found is not None:
            raise FrameTypeError(f"{name} is {kind(found)}, not null")

    def done(self) -> None:
        """Refuse fields that nobody has taken."""
        if self._left:
            raise FrameLengthError(f"there is an unknown field {next(iter(self._left))[:80]!r}")


def encode(fields: dict[str, Any]) -> bytes:
    """Bytes of a message; times in their form for people."""
    written = {name: instant_text(value) if isinstance(value, datetime) else value for name, value in fields.items()}
    return json.dumps(written, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def numbered(name: str, endings: Sequence[str]) -> list[str]:
    """Names of the fields for one number, or for one of each ending; no two are equal if no two endings are."""
    return [f"{name}_{ending}" for ending in endings] or [name]


def finite(value: Any, name: str) -> float:
    """Refuse what is no finite float."""
    if not isinstance(value, float):
        raise FrameTypeError(f"{name} is {kind(value)}, not a float")
    if not math.isfinite(value):
        raise FrameRangeError(f"{name} {value} is not finite")
    return value


def truth(value: Any, name: str) -> bool:
    """Refuse what is no boolean."""
    if not isinstance(value, bool):
        raise FrameTypeError(f"{name} is {kind(value)}, not a boolean")
    return value


def labels(values: Any, most: int) -> None:
    """Refuse what are no names of different states."""
    length(values, 1, most, "states")
    for value in values:
        if not isinstance(value, str):
            raise FrameTypeError(f"a state is {kind(value)}, not a string")
        length(value, 1, 64, "a state")
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise FrameRangeError("a state's name is no Unicode text")
    if len(set(values)) != len(values):
        raise FrameRangeError("two states have the same name")


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FrameTypeError(f"{name[:80]} is {kind(value)}, not a number")
    try:
        return finite(float(value), name[:80])
    except OverflowError:
        raise FrameRangeError(f"{name[:80]} is beyond every float") from None


def _no_number(_text: str) -> None:
    raise MalformedFrameError("no JSON message: NaN and infinities are no numbers of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MalformedFrameError("no JSON message: a field is there twice")
    return found
