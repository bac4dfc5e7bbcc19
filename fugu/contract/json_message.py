"""Messages for people and their tools: one JSON object of a bounded size, each field taken once and strictly.

A message of one number has `value`, `low` and `high`. One with a number for each state, or coordinate, has `value_` and
so on, with its label (or 0, 1, 2) behind.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING
from datetime import datetime
from typing import Any, ClassVar, Self

from fugu.contract.errors import FrameError, Reason
from fugu.contract.message import Declared, FieldType, Many, Schema, Text, kind, length, limited, typed
from fugu.contract.sentences import instant_text, read_instant, unix_us

__all__ = ["Constant", "Fields", "JsonMessage", "Labels", "Number", "Numbers", "Objects", "Shares", "Time"]


class Time(FieldType):
    """A time with a time zone, from 1970 to 9999; RFC 3339 in UTC on the wire."""

    def check(self, value: Any, name: str) -> None:
        unix_us(value)

    def read(self, value: Any, name: str) -> datetime:
        return read_instant(value)

    def write(self, value: Any) -> str:
        return instant_text(value)

    def schema(self) -> Schema:
        return {"type": "string", "format": "date-time", "pattern": "Z$"}


class Number(FieldType):
    """A finite float in an interval such as "[0, 180)", whose ends may be infinite; JSON may write it as an integer."""

    def __init__(self, interval: str = "(-inf, inf)") -> None:
        self.interval = interval
        self._low, self._high = map(float, interval[1:-1].split(", "))

    def check(self, value: Any, name: str) -> None:
        finite(value, name)
        low = self._low < value or (self.interval[0] == "[" and self._low == value)
        high = value < self._high or (self.interval[-1] == "]" and self._high == value)
        if not (low and high):
            raise FrameError(f"{name} {value} is not in {self.interval}", Reason.OUT_OF_RANGE)

    def read(self, value: Any, name: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise FrameError(f"{name[:80]} is {kind(value)}, not a number", Reason.WRONG_TYPE)
        try:
            return finite(float(value), name[:80])
        except OverflowError:
            raise FrameError(f"{name[:80]} is beyond every float", Reason.OUT_OF_RANGE) from None

    def schema(self) -> Schema:
        found: Schema = {"type": "number"}
        for end, closed, limit in (
            (self._low, self.interval[0] == "[", "inimum"),
            (self._high, self.interval[-1] == "]", "aximum"),
        ):
            if math.isfinite(end):
                found[f"{'m' if closed else 'exclusiveM'}{limit}"] = int(end) if end == int(end) else end
        return found


class Constant(FieldType):
    """A field that always says the same; declared with `field(default=..., init=False)`."""

    def __init__(self, value: str | bool | None) -> None:
        self.value = value

    def check(self, value: Any, name: str) -> None:
        if type(value) is not type(self.value):
            raise FrameError(f"{name} is {kind(value)}, not {json.dumps(self.value)}", Reason.WRONG_TYPE)
        if value != self.value:
            raise FrameError(f"{name} is not {json.dumps(self.value)}", Reason.OUT_OF_RANGE)

    def schema(self) -> Schema:
        return {"type": "null"} if self.value is None else {"const": self.value}


class Labels(Many):
    """Names of different states, or of what else has a number each; at least `low`."""

    def __init__(self, low: int = 1) -> None:
        super().__init__(Text(1, 64), low, 255, "a state")

    def check(self, value: Any, name: str) -> None:
        super().check(value, name)
        if len(set(value)) != len(value):
            raise FrameError("two states have the same name", Reason.OUT_OF_RANGE)

    def read(self, value: Any, name: str) -> tuple[str, ...]:
        found = super().read(value, name)
        self.check(found, name)  # numbers that are read after it are named by it
        return found

    def schema(self) -> Schema:
        return super().schema() | {"uniqueItems": True}


class Shares(FieldType):
    """A number for each state, by label; a field of its own for each, `share_` and the label."""

    def __init__(self, number: Number) -> None:
        self.number = number

    def check(self, value: Any, name: str) -> None:
        Labels().check(tuple(value), "states")
        for number in value.values():
            self.number.check(number, "a share")


class Numbers(FieldType):
    """One number, or one for each label; a field of its own for each, named `column` or `column_<label>`."""

    def __init__(self, column: str, number: Number | None = None) -> None:
        self.column, self.number = column, number or Number()

    def check(self, value: Any, name: str) -> None:
        for number in value:
            self.number.check(number, self.column)


class JsonMessage(Declared):
    """Base of JSON messages, flat objects but for the objects of `Objects`.

    Fields with a default value may be missing, and are where they are empty.

    Attributes:
        MOST: bytes, at most.
    """

    __slots__ = ()
    MOST: ClassVar[int] = 1 << 20

    def labels(self) -> Sequence[str]:
        """Labels of its numbers; empty if it has one number."""
        return ()

    @classmethod
    def read_labels(cls, found: Mapping[str, Any], fields: Fields) -> Sequence[str]:
        """The same, of a message that is being read: from the fields that were read, and those that are left."""
        return ()

    def flat(self) -> dict[str, Any]:
        """The fields of the object by name, in their order; times are no text yet."""
        found: dict[str, Any] = {}
        columns = [(field.name, field.type) for field in self.fields if isinstance(field.type, Numbers)]
        for field in self.fields:
            value = getattr(self, field.name)
            if value == () and _optional(type(self), field.name):
                continue
            if isinstance(field.type, Shares):
                found |= {f"share_{label}": share for label, share in value.items()}
            elif not isinstance(field.type, Numbers):
                found[field.name] = value if isinstance(field.type, Time) else field.type.write(value)
            elif field.name == columns[0][0]:
                for place, end in enumerate(_ends(self.labels())):
                    found |= {f"{one.column}{end}": getattr(self, name)[place] for name, one in columns}
        return found

    def written(self) -> dict[str, Any]:
        """The object as JSON has it."""
        return {n: instant_text(value) if isinstance(value, datetime) else value for n, value in self.flat().items()}

    def encode(self) -> bytes:
        """Bytes of the message."""
        return json.dumps(self.written(), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Parse a message; the FrameError says what is wrong."""
        return cls.read(Fields(payload, cls.MOST))

    @classmethod
    def read(cls, fields: Fields) -> Self:
        """Make a message of the fields of an object, all of them."""
        found: dict[str, Any] = {}
        labels: Sequence[str] | None = None
        for field in cls.fields:
            name, kind = field.name, field.type
            if isinstance(kind, Constant):
                kind.check(fields.take(name), name)
            elif isinstance(kind, Shares):
                shares = ((label, f"share_{label}") for label in fields.names("share_"))
                found[name] = {label: kind.number.read(fields.take(one), one) for label, one in shares}
            elif isinstance(kind, Numbers):
                labels = cls.read_labels(found, fields) if labels is None else labels
                names = [kind.column + end for end in _ends(labels)]
                found[name] = tuple(kind.number.read(fields.take(one), one) for one in names)
            elif name in fields or not _optional(cls, name):
                found[name] = kind.read(fields.take(name), name)
        fields.done()
        return cls(**found)

    @classmethod
    def schema(cls) -> Schema:
        """JSON Schema of the object."""
        properties: dict[str, Schema] = {}
        patterns: dict[str, Schema] = {}
        optional = {field.name for field in cls.fields if _optional(cls, field.name)}
        for field in cls.fields:
            about = {"description": field.about} if field.about else {}
            if isinstance(field.type, Shares):
                patterns["^share_"] = field.type.number.schema() | about
            elif isinstance(field.type, Numbers):
                column, number = field.type.column, field.type.number.schema()
                properties[column] = number | about
                patterns[f"^{column}_"] = number | {"description": f"{field.about[:-1]}, by label."}
                optional.add(column)
            else:
                properties[field.name] = field.type.schema() | about
        found: Schema = {"type": "object", "properties": properties}
        found["required"] = [name for name in properties if name not in optional]
        return found | ({"patternProperties": patterns} if patterns else {}) | {"additionalProperties": False}


class Objects(FieldType):
    """An array of objects in an object."""

    def __init__(self, part: type[JsonMessage], most: int) -> None:
        self.part, self.most = part, most

    def check(self, value: Any, name: str) -> None:
        length(value, 0, self.most, name)
        for one in value:
            if not isinstance(one, self.part):
                raise FrameError(f"{name} hold a {kind(one)}", Reason.WRONG_TYPE)

    def read(self, value: Any, name: str) -> tuple[JsonMessage, ...]:
        return tuple(self.part.read(Fields.of(one)) for one in typed(value, list, name, "an array"))

    def write(self, value: Any) -> list[dict[str, Any]]:
        return [one.written() for one in value]

    def schema(self) -> Schema:
        return {"type": "array", "items": self.part.schema(), "maxItems": self.most}


class Fields:
    """The fields, not taken yet, of a UTF-8 JSON object of at most so many bytes; the FrameError says what is wrong."""

    def __init__(self, payload: bytes, most: int) -> None:
        limited(payload, most, "a message")
        try:
            self._left = typed(
                json.loads(payload.decode(), parse_constant=_no_number, object_pairs_hook=_once),
                dict,
                "message",
                "an object",
            )
        except FrameError:
            raise
        except (ValueError, RecursionError):
            raise FrameError("no JSON message") from None

    @classmethod
    def of(cls, value: Any) -> Self:
        """Those of an object inside another."""
        found = cls.__new__(cls)
        found._left = dict(typed(value, dict, "message", "an object"))
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def names(self, prefix: str) -> list[str]:
        """Suffixes of the names of fields that begin with a prefix, in their order."""
        return [name.removeprefix(prefix) for name in self._left if name.startswith(prefix)]

    def take(self, name: str) -> Any:
        """The value of a field."""
        try:
            return self._left.pop(name)
        except KeyError:
            raise FrameError(f"there is no field {name[:80]}", Reason.WRONG_LENGTH) from None

    def done(self) -> None:
        """Refuse fields that nobody has taken."""
        if self._left:
            raise FrameError(f"there is an unknown field {next(iter(self._left))[:80]!r}", Reason.WRONG_LENGTH)


def finite(value: Any, name: str) -> float:
    """Refuse what is no finite float."""
    if not math.isfinite(typed(value, float, name, "a float")):
        raise FrameError(f"{name} {value} is not finite", Reason.OUT_OF_RANGE)
    return float(value)


def _ends(labels: Iterable[str]) -> list[str]:
    return [f"_{label}" for label in labels] or [""]


def _optional(cls: type[JsonMessage], name: str) -> bool:
    field = cls.__dataclass_fields__[name]  # type: ignore[attr-defined]
    return field.init and field.default is not MISSING


def _no_number(_text: str) -> None:
    raise FrameError("no JSON message: NaN and infinities are no numbers of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise FrameError("no JSON message: a field is there twice")
    return found
