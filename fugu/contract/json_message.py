"""Messages for people and their tools: a JSON object of a bounded size, each field once and with a strict type.

A message of one number has `value`, `low` and `high`. A message with a number for each state or coordinate has
`value_` and so on, followed by the label (or 0, 1, 2). Messages are pydantic dataclasses; a wrong message is a
FrameError, whether it is read or made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Self, get_origin

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    StrictFloat,
    StrictStr,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo
from pydantic.functional_validators import ModelWrapValidatorHandler

from fugu.contract._document import refusal
from fugu.contract.errors import FrameError, length_error, refuse_unprintable
from fugu.contract.message import Schema, check_size, check_type
from fugu.contract.sentences import instant_text, read_instant, unix_us

__all__ = ["DISTINCT", "PRINTABLE", "JsonMessage", "Label", "Numbers", "Time", "read_object"]


def _read_time(value: Any) -> datetime:
    time = value if isinstance(value, datetime) else read_instant(value)
    unix_us(time)
    return time


def _refuse_duplicates(labels: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(labels)) != len(labels):
        raise ValueError("two states have the same name")
    return labels


Time = Annotated[
    datetime, PlainValidator(_read_time), WithJsonSchema({"type": "string", "format": "date-time", "pattern": "Z$"})
]
"""A time with a time zone, from 1970 to 9999; RFC 3339 in UTC on the wire."""
PRINTABLE = AfterValidator(refuse_unprintable)
DISTINCT = AfterValidator(_refuse_duplicates)
Label = Annotated[StrictStr, Field(min_length=1, max_length=64), PRINTABLE]
"""The name of a state, or of another thing that has a number."""
Numbers = tuple[StrictFloat, ...]
"""One number, or one for each label."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class JsonMessage:
    """Base of JSON messages: flat objects, apart from arrays of other messages; types of fields are strict.

    Fields with a default value may be missing, unless they are constants. A text in an annotation is its description.

    Attributes:
        MAX_BYTES: the most bytes of a message.
        constants: fields that are always on the wire, though they have a default value.
        columns: names on the wire of fields with a number for each label, which follows the name.
    """

    MAX_BYTES: ClassVar[int] = 1 << 20
    constants: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[Mapping[str, str]] = {}

    def labels(self) -> Sequence[str]:
        """Return the labels of the numbers, or nothing for a single number."""
        labels: Sequence[str] = self.labels_of(vars(self), len(getattr(self, next(iter(self.columns)))))
        return labels

    @classmethod
    def labels_of(cls, fields: Mapping[str, Any], number_count: int) -> Any:
        """Return the labels of a message's numbers, which other fields may name; "0", "1", "2" for coordinates.

        Fields may be raw: what is no label is refused later, as the message is validated.
        """
        return [str(axis) for axis in range(number_count)] if number_count > 1 else ()

    def flat(self) -> dict[str, Any]:
        """Return the fields of the object by name, in their order; times are not text yet."""
        fields: dict[str, Any] = {}
        for name, field in _fields(type(self)).items():
            value = getattr(self, name)
            if name not in self.columns:
                if value != () or field.default != ():
                    holds_messages = isinstance(value, tuple) and value and isinstance(value[0], JsonMessage)
                    fields[name] = [part.json_fields() for part in value] if holds_messages else value
            elif isinstance(value, Mapping):
                fields |= {f"{self.columns[name]}_{label}": number for label, number in value.items()}
            elif name == next(iter(self.columns)):
                for index, suffix in enumerate([f"_{label}" for label in self.labels()] or [""]):
                    fields |= {column + suffix: getattr(self, name)[index] for name, column in self.columns.items()}
        return fields

    def json_fields(self) -> dict[str, Any]:
        """Return the fields of the object as JSON has them."""
        return {
            name: instant_text(value) if isinstance(value, datetime) else value for name, value in self.flat().items()
        }

    def encode(self) -> bytes:
        """Encode the message."""
        return json.dumps(self.json_fields(), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Parse a message; the FrameError says what is wrong."""
        return cls.read(read_object(payload, cls.MAX_BYTES))

    @classmethod
    def read(cls, fields: dict[str, Any]) -> Self:
        """Make a message of the fields of a JSON object, with columns by label."""
        message: Self = cls.__pydantic_validator__.validate_python(fields, context=_WIRE)  # type: ignore[attr-defined]
        return message

    @model_validator(mode="wrap")
    @classmethod
    def _validate(cls, fields: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        if info.context is _WIRE and isinstance(fields, dict):
            fields = cls._gather_columns(fields)
        try:
            return handler(fields)
        except ValidationError as error:
            raise refusal(error, "message") from None

    @classmethod
    def _gather_columns(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Gather the columns of an object's fields into the fields of the class."""
        for name in cls.constants:
            _refuse_missing(name, fields)
        if not cls.columns:
            return fields
        first_column = next(iter(cls.columns.values()))
        labelled_count = sum(name.startswith(f"{first_column}_") for name in fields)
        number_count = 1 if first_column in fields else max(2, labelled_count)
        labels = cls.labels_of(fields, number_count)
        for name, column in cls.columns.items():
            if name != column and name in fields:
                raise length_error(f"{name}: is no key of this")
            if get_origin(_fields(cls)[name].annotation) is dict:
                column_names = [column_name for column_name in fields if column_name.startswith(f"{column}_")]
                fields[name] = {column_name[len(column) + 1 :]: fields.pop(column_name) for column_name in column_names}
            elif isinstance(labels, list | tuple) and all(isinstance(label, str) for label in labels):
                column_names = [f"{column}_{label}" for label in labels] or [column]
                for column_name in column_names:
                    _refuse_missing(column_name, fields)
                column_numbers = [fields[column_name] for column_name in column_names]
                for column_name in column_names:
                    fields.pop(column_name, None)
                fields[name] = column_numbers
        return fields

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> Schema:
        schema = handler.resolve_ref_schema(handler(core_schema))
        properties: dict[str, Schema] = {}
        patterns: dict[str, Schema] = {}
        for name, field in schema["properties"].items():
            column, description = cls.columns.get(name), _description(cls, name)
            number_schema = field.get("items") or field.get("additionalProperties")
            if column is None:
                properties[name] = field | description
                continue
            if "items" in field:
                properties[column] = number_schema | description
            patterns[f"^{column}_"] = number_schema | {"description": f"{description['description'][:-1]}, by label."}
        schema["properties"] = properties
        schema["required"] = sorted({*schema["required"], *cls.constants} - {*cls.columns})
        if patterns:
            schema["patternProperties"] = patterns
        return schema


def read_object(payload: bytes, max_bytes: int) -> dict[str, Any]:
    """Parse a UTF-8 JSON object of at most `max_bytes` bytes into its fields; the FrameError says what is wrong."""
    check_size(payload, max_bytes, "a message")
    try:
        decoded = json.loads(payload.decode(), parse_constant=_refuse_constant, object_pairs_hook=_unique_fields)
    except (ValueError, RecursionError):
        raise FrameError("no JSON message") from None
    fields: dict[str, Any] = check_type(decoded, dict, "message", "an object")
    return fields


_WIRE = object()
"""The context of validation for fields that were read from the wire."""


def _fields(cls: type[JsonMessage]) -> dict[str, FieldInfo]:
    return cls.__pydantic_fields__  # type: ignore[attr-defined,no-any-return]


def _description(cls: type[JsonMessage], name: str) -> Schema:
    texts = [text for text in _fields(cls)[name].metadata if isinstance(text, str)]
    return {"description": texts[0]} if texts else {}


def _refuse_missing(name: str, fields: Mapping[str, Any]) -> None:
    if name not in fields:
        raise length_error(f"{name[:80]}: is missing")


def _refuse_constant(_text: str) -> None:
    raise FrameError("no JSON message: NaN and infinities are no numbers of JSON")


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise FrameError("no JSON message: a field is there twice")
    return fields
