"""Declaration of messages: dataclasses whose annotations say what each field may hold, and what it means.

From `Annotated[type, field type, "what it means"]` follow what is refused when a message is made or read, how it is
encoded, its JSON Schema in `docs/asyncapi.json` and its table in `docs/protocol.md`. Here are msgpack messages: a
schema number in the first byte, then one msgpack array. Decoding is strict: every deviation raises the one FrameError
that names it; what cannot be decoded cannot be made either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, dataclass_transform

import msgpack

from fugu.contract.errors import FrameError, Reason, length_error, range_error

__all__ = [
    "Binary",
    "Field",
    "FieldType",
    "Flag",
    "Integer",
    "Many",
    "Message",
    "Row",
    "Schema",
    "Text",
    "Word",
    "check_binary",
    "check_integer",
    "check_length",
    "check_size",
    "check_type",
    "frozen",
    "read_row",
    "row_schema",
]


Schema = dict[str, Any]
_Message = TypeVar("_Message", bound="Message")


class FieldType:
    """Type of a field's value; values travel unchanged unless `read` and `write` convert them."""

    def check(self, value: Any, name: str) -> None:
        """Refuse a value that a message's field may not have; `name` is the field in the error."""
        raise NotImplementedError

    def read(self, value: Any, name: str) -> Any:
        """Convert the msgpack or JSON form to a value; it is checked later."""
        return value

    def write(self, value: Any) -> Any:
        """Convert a value to its msgpack or JSON form."""
        return value

    def schema(self) -> Schema:
        """Return the JSON Schema of the form."""
        raise NotImplementedError


@dataclass(frozen=True)
class Integer(FieldType):
    """An integer in low..high."""

    low: int
    high: int

    def check(self, value: Any, name: str) -> None:
        if type(value) is not int or not self.low <= value <= self.high:
            check_integer(value, self.low, self.high, name)

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


class Flag(FieldType):
    """A boolean."""

    def check(self, value: Any, name: str) -> None:
        check_type(value, bool, name, "a boolean")

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Text(FieldType):
    """A printable string of low..high characters that matches a pattern, if there is one."""

    low: int
    high: int
    pattern: str = ""

    def check(self, value: Any, name: str) -> None:
        check_length(check_type(value, str, name, "a string"), self.low, self.high, name)
        if self.pattern and not re.fullmatch(self.pattern, value):
            raise range_error(f"{name} is not of the form {self.pattern}")
        if not value.isprintable():
            raise range_error(f"{name} is not printable")

    def schema(self) -> Schema:
        schema: Schema = {"type": "string", "minLength": self.low, "maxLength": self.high}
        return schema | ({"pattern": self.pattern} if self.pattern else {})


class Word(FieldType):
    """One of a closed set of words, or of the members of an enumeration."""

    def __init__(self, words: Iterable[str] | type[StrEnum]) -> None:
        self.words = tuple(words)
        self._constructor: Callable[[str], str] = words if isinstance(words, type) else str

    def check(self, value: Any, name: str) -> None:
        check_type(value, str, name, "a string")
        if value not in self.words:
            raise range_error(f"{name} is none of {', '.join(self.words)}")

    def read(self, value: Any, name: str) -> str:
        self.check(value, name)
        return self._constructor(value)

    def write(self, value: Any) -> str:
        return str(value)

    def schema(self) -> Schema:
        return {"type": "string", "enum": [str(word) for word in self.words]}


class Binary(FieldType):
    """A byte string of low..high bytes.

    `packed` describes numbers packed in the bytes, as in the introduction of the AsyncAPI document. First comes how
    often the parts are repeated, "" for as often as they fit. Then come the name, type, bits and count of each part.
    """

    def __init__(self, low: int, high: int, *packed: Any) -> None:
        self.low, self.high, self.packed = low, high, packed

    def check(self, value: Any, name: str) -> None:
        if type(value) is not bytes or not self.low <= len(value) <= self.high:
            check_binary(value, self.low, self.high, name)

    def schema(self) -> Schema:
        schema: Schema = {"type": "string", "format": "binary", "minLength": self.low, "maxLength": self.high}
        if self.packed:
            repetition, *parts = self.packed
            described_parts = [dict(zip(("title", "type", "bits", "times"), part, strict=True)) for part in parts]
            schema["x-fugu-packed"] = ({"count": repetition} if repetition else {}) | {"parts": described_parts}
        return schema


@dataclass(frozen=True)
class Many(FieldType):
    """A tuple of low..high values of one type, an array on the wire; `name` is the name of a value in errors.

    `ordered`: each value is there once, in the order of the words of `element_type`.
    """

    element_type: FieldType
    low: int
    high: int
    name: str
    ordered: bool = False

    def check(self, value: Any, name: str) -> None:
        check_length(value, self.low, self.high, name)
        check = self.element_type.check
        for element in value:
            check(element, self.name)
        if self.ordered and isinstance(self.element_type, Word):
            indices = [self.element_type.words.index(word) for word in value]
            if indices != sorted(set(indices)):
                raise range_error(f"{name} are not in order, or one is there twice")

    def read(self, value: Any, name: str) -> tuple[Any, ...]:
        check_type(value, list, name, "an array")
        if type(self.element_type).read is FieldType.read:
            return tuple(value)
        return tuple([self.element_type.read(element, self.name) for element in value])

    def write(self, value: Any) -> list[Any]:
        return [self.element_type.write(element) for element in value]

    def schema(self) -> Schema:
        schema = {"type": "array", "items": self.element_type.schema(), "minItems": self.low, "maxItems": self.high}
        return schema | ({"uniqueItems": True} if self.ordered else {})


class Field(NamedTuple):
    """A field of a message: its name, what it may hold, and what it means."""

    name: str
    type: FieldType
    description: str = ""


class Message:
    """Base of msgpack messages and their parts; subclasses are `frozen` and annotate their fields.

    Attributes:
        SCHEMA: the number of the schema; parts of messages have none.
        MOST_BYTES: the largest payload that is read, and what an error calls a message; None for a broker's limit.
        LAYOUT: names of declared fields and fields that are on the wire only, in their order; empty for `fields`.
        fields: the declared fields in their order.
        wire: the fields of the array in their order.
    """

    __slots__ = ()
    SCHEMA: ClassVar[int]
    MOST_BYTES: ClassVar[tuple[int, str] | None] = None
    LAYOUT: ClassVar[tuple[str | Field, ...]] = ()
    fields: ClassVar[tuple[Field, ...]] = ()
    wire: ClassVar[tuple[Field, ...]] = ()
    _checks: ClassVar[tuple[tuple[str, Callable[[Any, str], None]], ...]] = ()
    _names: ClassVar[tuple[str, ...]] = ()
    _readers: ClassVar[tuple[tuple[str, Callable[[Any, str], Any]], ...]] = ()
    _writers: ClassVar[tuple[tuple[int, Callable[[Any], Any]], ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        hints = cls.__annotations__
        if any(isinstance(hint, str) for hint in hints.values()):
            raise TypeError(f"{cls.__module__} declares messages: it cannot postpone annotations")
        cls.fields = tuple(Field(n, *hint.__metadata__) for n, hint in hints.items() if hasattr(hint, "__metadata__"))
        cls._checks = tuple((field.name, field.type.check) for field in cls.fields)
        fields = {field.name: field for field in cls.fields}
        cls.wire = tuple(fields[field] if isinstance(field, str) else field for field in cls.LAYOUT or tuple(fields))
        cls._names = tuple(field.name for field in cls.wire)
        types = [(index, field.name, field.type) for index, field in enumerate(cls.wire)]
        cls._readers = tuple((name, form.read) for _, name, form in types if type(form).read is not FieldType.read)
        cls._writers = tuple((index, form.write) for index, _, form in types if type(form).write is not FieldType.write)

    def __post_init__(self) -> None:
        for name, check in self._checks:
            check(getattr(self, name), name)
        self._check_consistency()

    def _check_consistency(self) -> None:
        """Refuse fields that contradict one another."""

    def row(self) -> list[Any]:
        """Return the values of the message's array."""
        field_values = [getattr(self, name) for name in self._names]
        for index, write in self._writers:
            field_values[index] = write(field_values[index])
        return field_values

    def encode(self) -> bytes:
        """Encode the message; floats travel as 32 bits."""
        packed: bytes = msgpack.packb(self.row(), use_single_float=True)
        return bytes([self.SCHEMA]) + packed

    @classmethod
    def read(cls, row: Any, name: str) -> Self:
        """Read a message or a part from its array; `name` is its name in errors."""
        field_values = dict(zip(cls._names, checked_row(row, len(cls._names), name), strict=True))
        for field, read in cls._readers:
            field_values[field] = read(field_values[field], field)
        return cls(**field_values)

    @classmethod
    def unpack(cls, payload: bytes) -> list[Any]:
        """Unpack the fields of a payload's array, which are not checked yet; FrameError for another message."""
        if cls.MOST_BYTES is not None:
            check_size(payload, *cls.MOST_BYTES)
        if not payload:
            raise FrameError("empty payload", Reason.EMPTY)
        if payload[0] != cls.SCHEMA:
            raise FrameError(f"schema {payload[0]}, expected {cls.SCHEMA}", Reason.UNKNOWN_SCHEMA)
        try:
            row = msgpack.unpackb(memoryview(payload)[1:], raw=False, strict_map_key=True)
        except msgpack.ExtraData:
            raise FrameError("bytes follow the end of the message", Reason.TRAILING_BYTES) from None
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
            raise FrameError("no msgpack message") from None
        return checked_row(row, len(cls.wire), "message")

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Parse a message; the FrameError says what is wrong."""
        return cls.read(cls.unpack(payload), "message")

    @classmethod
    def schema(cls) -> Schema:
        """Return the JSON Schema of the payload's two msgpack values."""
        number_schema = {"title": "schema", "const": cls.SCHEMA, "description": "The first byte."}
        return _tuple_schema("payload", number_schema, row_schema("fields", cls.wire))


@dataclass_transform(frozen_default=True)
def frozen(message: type[_Message]) -> type[_Message]:
    """Make the class of a message a frozen dataclass with slots."""
    return dataclass(frozen=True, slots=True)(message)


@dataclass(frozen=True)
class Row(FieldType):
    """A part of a message, as an array of its fields."""

    part: type[Message]
    description: str = ""

    def check(self, value: Any, name: str) -> None:
        check_type(value, self.part, name, f"a {self.part.__name__}")

    def read(self, value: Any, name: str) -> Message:
        return self.part.read(value, name)

    def write(self, value: Any) -> list[Any]:
        row: list[Any] = value.row()
        return row

    def schema(self) -> Schema:
        schema = row_schema(self.part.__name__, self.part.wire)
        return schema | ({"description": self.description} if self.description else {})


def checked_row(value: Any, field_count: int, name: str) -> list[Any]:
    """Return a decoded value as a list of fields; FrameError unless it is an array of `field_count` fields."""
    fields: list[Any] = check_type(value, list, name, "an array")
    if len(fields) != field_count:
        raise length_error(f"{name} has {len(fields)} fields, not {field_count}")
    return fields


def read_row(row: Any, wire: Sequence[Field], name: str) -> list[Any]:
    """Read and check the values of an array of fields."""
    field_values = []
    for field, value in zip(wire, checked_row(row, len(wire), name), strict=True):
        field_values.append(field.type.read(value, field.name))
        field.type.check(field_values[-1], field.name)
    return field_values


def row_schema(title: str, wire: Iterable[Field]) -> Schema:
    """Return the JSON Schema of an array of fields."""
    notes = [{"description": field.description} if field.description else {} for field in wire]
    parts = ({"title": field.name, **field.type.schema(), **note} for field, note in zip(wire, notes, strict=True))
    return _tuple_schema(title, *parts)


def _tuple_schema(title: str, *items: Schema) -> Schema:
    exact_length = {"minItems": len(items), "maxItems": len(items), "additionalItems": False}
    return {"title": title, "type": "array", "items": list(items), **exact_length}


def check_type(value: Any, expected_type: type, name: str, expected_form: str) -> Any:
    """Refuse a value that is not of a type; errors call the type `expected_form`. Return the value."""
    if not isinstance(value, expected_type):
        raise FrameError(f"{name} is {type(value).__name__}, not {expected_form}", Reason.WRONG_TYPE)
    return value


def check_integer(value: Any, low: int, high: int, name: str) -> None:
    """Refuse a value that is no integer in low..high."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise FrameError(f"{name} is {type(value).__name__}, not an integer", Reason.WRONG_TYPE)
    if not low <= value <= high:
        raise range_error(f"{name} {value} is not in {low}..{high}")


def check_length(value: tuple[Any, ...] | bytes | str, low: int, high: int, name: str) -> None:
    """Refuse a length outside low..high."""
    if not low <= len(value) <= high:
        raise length_error(f"{name} has length {len(value)}, not {low}..{high}")


def check_size(payload: bytes, max_bytes: int, subject: str) -> None:
    """Refuse a payload of more than `max_bytes` bytes; `subject` is its name in the error."""
    if len(payload) > max_bytes:
        raise length_error(f"{subject} of {len(payload)} bytes; at most {max_bytes} are allowed")


def check_binary(value: Any, low: int, high: int, name: str) -> None:
    """Refuse a value that is no byte string of low..high bytes."""
    check_length(check_type(value, bytes, name, "a byte string"), low, high, name)
