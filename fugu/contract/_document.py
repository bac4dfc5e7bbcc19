"""The base of every document that comes from outside: immutable, strictly typed, without unknown fields."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import Annotated, ClassVar, Final, Literal, Self, TypeVar

import msgpack
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from fugu.contract.errors import FrameError, FuguError, PolicyError, Reason, refuse_unprintable

__all__ = [
    "FORMAT_NAME",
    "Document",
    "DocumentFile",
    "Printable",
    "first_problem",
    "problem_words",
    "read_document",
    "refusal",
    "write_document",
]

FORMAT_NAME: Final = "fugu/2"


Printable = Annotated[str, AfterValidator(refuse_unprintable)]
"""A text without characters that a terminal could obey."""


class Document(BaseModel):
    """An immutable document; unknown fields, coercions, infinities and NaN are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    hex_lists: ClassVar[tuple[str, ...]] = ()
    """Fields with lists of texts of hexadecimal digits; each text is written as bytes."""

    @model_validator(mode="after")
    def _check_document(self) -> Self:
        try:
            self._check_consistency()
        except FuguError as error:
            raise ValueError(str(error)) from None
        return self

    def _check_consistency(self) -> None:
        """Refuse fields that contradict one another, by a ValueError or an error of this project."""


class DocumentFile(Document):
    """A document that is kept as a file and names the version of its format; other versions are refused.

    Attributes:
        remedy: what to do about a file of another version.
    """

    remedy: ClassVar[str]
    format: Literal["fugu/2"] = FORMAT_NAME

    @classmethod
    def refuse_other_format(cls, json_text: str | bytes) -> None:
        """Refuse a JSON form that does not name this version; the PolicyError is one line that says what to do."""
        try:
            document = json.loads(json_text)
        except (ValueError, RecursionError):
            return  # no JSON at all: reading it will say so
        if isinstance(document, dict) and document.get("format") != FORMAT_NAME:
            raise PolicyError(f"not of format {FORMAT_NAME}, as this program's files are: {cls.remedy}")


_Read = TypeVar("_Read", bound=Document)


def first_problem(error: ValidationError, subject: str = "") -> str:
    """Name the first wrong field and the reason in a line; `subject` stands for a document that is wrong as a whole."""
    problem = error.errors(include_url=False, include_input=False)[0]
    path, reason = ".".join(map(str, problem["loc"])) or subject, problem_words(problem)
    return f"{path}: {reason}" if path else reason


def refusal(error: ValidationError, subject: str) -> FrameError:
    """Make the FrameError of a message from its first wrong field; `subject` names the message."""
    problem_type = error.errors(include_url=False, include_input=False)[0]["type"]
    if problem_type == "json_invalid":
        reason = Reason.MALFORMED
    elif problem_type in _KEYS or problem_type.endswith(("too_long", "too_short")):
        reason = Reason.WRONG_LENGTH
    else:
        reason = Reason.WRONG_TYPE if problem_type.endswith("_type") else Reason.OUT_OF_RANGE
    return FrameError(first_problem(error, subject)[:300], reason)


def problem_words(problem: ErrorDetails) -> str:
    """Say in words what is wrong with a field."""
    context = problem.get("ctx", {})
    if problem["type"] == "union_tag_invalid":
        tags = str(context["expected_tags"]).replace("'", "")
        matches = get_close_matches(str(context["tag"]), tags.split(", "), n=1)
        suggestion = f"did you mean {matches[0]}?" if matches else f"it is one of {tags}"
        return f"no {str(context['discriminator']).strip(chr(39))} is called {context['tag']!r}: {suggestion}"
    if problem["type"] == "union_tag_not_found":
        return f"it has no {str(context['discriminator']).strip(chr(39))}"
    template = _PROBLEMS.get(problem["type"])
    return problem["msg"].removeprefix("Value error, ") if template is None else template.format_map(context)


_WHOLE, _NUMBER, _TABLE = "must be a whole number", "must be a number", "must be a table of keys and values"
_LIST, _TEXT = "must be a list", "must be a text"
_KEYS = {"missing": "is missing"} | dict.fromkeys(
    ("extra_forbidden", "unexpected_keyword_argument"), "is no key of this"
)
_PROBLEMS = {
    **_KEYS,
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    **dict.fromkeys(("string_type", "string_unicode"), _TEXT),
    "string_too_short": "must have at least {min_length} letters",
    "string_too_long": "must have at most {max_length} letters",
    "too_short": "must have at least {min_length} of them",
    "too_long": "must have at most {max_length} of them",
    "string_pattern_mismatch": "must be of the form {pattern}",
    "bool_type": "must be true or false",
    "finite_number": "must be a finite number",
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing", "int_parsing_size"), _WHOLE),
    **dict.fromkeys(("float_type", "float_parsing"), _NUMBER),
    **dict.fromkeys(("tuple_type", "list_type", "frozen_set_type", "set_type"), _LIST),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "dataclass_type"), _TABLE),
}
"""Words for pydantic's names of problems."""


def write_document(document: Document) -> bytes:
    """Pack a document as the bytes that an envelope holds. PolicyError if a whole number has more than 64 bits."""
    fields = document.model_dump(mode="json")
    fields |= {name: [bytes.fromhex(digits) for digits in fields[name]] for name in document.hex_lists}
    try:
        packed: bytes = msgpack.packb(fields)
    except OverflowError:
        raise PolicyError("a whole number has more than 64 bits") from None
    return packed


def read_document(document_class: type[_Read], payload: bytes) -> _Read:
    """Parse a document whose signatures have been checked; the PolicyError names the first wrong field."""
    try:
        fields = msgpack.unpackb(payload, raw=False, strict_map_key=True)
        if not all(isinstance(value, bytes) for name in document_class.hex_lists for value in fields[name]):
            raise ValueError("text where bytes are expected")
        return document_class.model_validate_json(json.dumps(fields, default=bytes.hex))
    except ValidationError as error:
        raise PolicyError(first_problem(error, "document")) from None
    except (ValueError, KeyError, TypeError, RecursionError, msgpack.UnpackException):
        raise PolicyError("no msgpack document") from None
