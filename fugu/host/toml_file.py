"""Configuration files: TOML that is read into a pydantic model. An error names the first wrong key, in one line."""

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


def read_toml(path: Path, model: type[_Model], error_type: type[FuguError]) -> _Model:
    """Read a file into a model, with its folder as context. `error_type` if it cannot be read, or a key is wrong."""
    from pydantic import ValidationError

    try:
        json_text = json.dumps(tomllib.loads(path.read_text()))
    except OSError as error:
        raise error_type(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise error_type(f"{path} is not TOML: {' '.join(str(error).split())}") from None
    try:
        return model.model_validate_json(json_text, context=path.parent)
    except ValidationError as error:
        raise error_type(f"{path}: {_first_problem(error, model)}") from None


def toml_lines(values: Mapping[str, object]) -> list[str]:
    """Write keys and values as TOML lines: texts, numbers, booleans, lists of these, tables. A `None` is left out."""
    return [f"{key} = {_toml_value(value)}" for key, value in values.items() if value is not None]


def _toml_value(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(toml_lines(value))} }}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON leaves this character as it is


def _first_problem(error: ValidationError, model: type[BaseModel]) -> str:
    from fugu.contract._document import problem_words  # pydantic is loaded where an error of it is

    first_error = error.errors(include_url=False, include_input=False)[0]
    location, message = first_error["loc"], problem_words(first_error)
    if first_error["type"] in _UNKNOWN:
        similar_keys = get_close_matches(str(location[-1]), sorted(_keys(model, location[:-1])), n=1)
        message = "unknown key" + (f"; did you mean {similar_keys[0]}?" if similar_keys else "")
    return f"{'.'.join(map(str, location))}: {message}" if location else message


def _keys(annotation: object, path: Sequence[int | str]) -> set[str]:
    hints = {name: hint for model in _models(annotation) for name, hint in _fields(model).items()}
    if not path:
        return set(hints)
    return _keys(hints.get(str(path[0]), annotation), path[1:])  # an index, a name or a tag does not change the type


def _models(annotation: object) -> Iterator[type[Any]]:
    if isinstance(annotation, type) and (hasattr(annotation, "model_fields") or is_dataclass(annotation)):
        yield annotation
    for type_argument in get_args(annotation):
        yield from _models(type_argument)


def _fields(model: type[Any]) -> dict[str, object]:
    if is_dataclass(model):
        hints = get_type_hints(model)
        return {field.name: hints[field.name] for field in fields(model)}
    return {name: field.annotation for name, field in model.model_fields.items()}
