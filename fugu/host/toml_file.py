"""Configuration files: TOML that is read into a document, with one line for the first thing that is wrong."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from fugu.contract.errors import FuguError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

__all__ = ["read_toml", "toml_lines"]

_Model = TypeVar("_Model", bound="BaseModel")
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def read_toml(path: Path, model: type[_Model], refuse: type[FuguError]) -> _Model:
    """Read a file into a document, with its folder as context; `refuse` if it is unreadable, or a key is wrong."""
    from pydantic import ValidationError

    try:
        text = json.dumps(tomllib.loads(path.read_text()))
    except OSError as error:
        raise refuse(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise refuse(f"{path} is not TOML: {' '.join(str(error).split())}") from None
    try:
        return model.model_validate_json(text, context=path.parent)
    except ValidationError as error:
        raise refuse(f"{path}: {_first_problem(error, model)}") from None


def toml_lines(values: Mapping[str, object]) -> list[str]:
    """Write keys and values: texts, numbers, booleans, lists, tables. A key whose value is `None` is left out."""
    return [f"{key} = {_value(value)}" for key, value in values.items() if value is not None]


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(toml_lines(value))} }}"
    return json.dumps(value, ensure_ascii=False)


def _first_problem(error: ValidationError, model: type[BaseModel]) -> str:
    from fugu.contract._document import problem_words  # pydantic is loaded where an error of it is

    first = error.errors(include_url=False, include_input=False)[0]
    where, message = first["loc"], problem_words(first)
    if first["type"] in _UNKNOWN:
        near = get_close_matches(str(where[-1]), sorted(_keys(model, where[:-1])), n=1)
        message = "unknown key" + (f"; did you mean {near[0]}?" if near else "")
    return f"{'.'.join(map(str, where))}: {message}" if where else message


def _keys(annotation: object, where: Sequence[int | str]) -> set[str]:
    kinds = {name: kind for form in _forms(annotation) for name, kind in _fields(form).items()}
    if not where:
        return set(kinds)
    return _keys(kinds.get(str(where[0]), annotation), where[1:])  # an index, a name or the tag of a form: as it was


def _forms(annotation: object) -> Iterator[type[Any]]:
    if isinstance(annotation, type) and (hasattr(annotation, "model_fields") or is_dataclass(annotation)):
        yield annotation
    for part in get_args(annotation):
        yield from _forms(part)


def _fields(form: type[Any]) -> dict[str, object]:
    if is_dataclass(form):
        hints = get_type_hints(form)
        return {field.name: hints[field.name] for field in fields(form)}
    return {name: field.annotation for name, field in form.model_fields.items()}
