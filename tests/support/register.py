"""The register of docs/privacy.md, as data."""

from __future__ import annotations

import dataclasses
import pkgutil
import re
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from fugu import contract
from fugu.contract import descriptions
from fugu.contract._document import Document
from fugu.contract.json_message import JsonMessage
from fugu.contract.message import Message
from fugu.contract.topics import parse_topic

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"
NAMES = {"fleet": "home", "device": "watch", "stream": "hr", "audience": "public", "name": "active", "group": "street"}
HEADINGS = ("topic", "message", "fields", "readers", "may depend on", "covered by")


class Row(NamedTuple):
    """A row of the register's first table; its topic has a name for every part that has one."""

    topic: str
    kind: str
    messages: tuple[str, ...]
    fields: tuple[str, ...]
    readers: frozenset[str]
    depends: str
    covered: str


def rows() -> list[Row]:
    rows = []
    for topic, message, fields, readers, depends, covered in _table(HEADINGS):
        (template,) = _coded(topic)
        name = template.format(**NAMES)
        rows.append(
            Row(
                *(name, parse_topic(name).kind, _coded(message), _coded(fields)),
                *(frozenset(readers.split(", ")), depends, covered),
            )
        )
    return rows


def observables() -> list[list[str]]:
    return _table(("observable", "who sees it", "may depend on", "why no reading, and what tests it"))


def messages() -> dict[str, set[str]]:
    """Every dataclass, and every part of a description, with its fields: what the contract can encode."""
    messages: dict[str, set[str]] = {}
    for module in pkgutil.iter_modules(contract.__path__, "fugu.contract."):
        for name, thing in vars(import_module(module.name)).items():
            if not isinstance(thing, type) or thing.__module__ != module.name:
                continue
            described = issubclass(thing, Document) and thing.__module__ == descriptions.__name__
            flat = issubclass(thing, JsonMessage) and thing is not JsonMessage
            if described or flat or (issubclass(thing, Message) and thing.fields):
                _collect(name, thing, messages)
    return messages


def _collect(name: str, kind: type, fields: dict[str, set[str]]) -> None:
    """The fields of a message, and those of what its fields are made of."""
    hints = typing.get_type_hints(kind, include_extras=True)
    own = kind.model_fields if issubclass(kind, Document) else kind.__annotations__
    fields[name] = {field for field in own if typing.get_origin(hints[field]) is not ClassVar}
    for field in fields[name]:
        for part in _parts(hints[field]):
            _collect(part.__name__, part, fields)


def _parts(hint: Any) -> Iterator[type]:
    for argument in typing.get_args(hint):
        yield from _parts(argument)
    if isinstance(hint, type) and (hasattr(hint, "_fields") or dataclasses.is_dataclass(hint)):
        yield hint


def _coded(cell: str) -> tuple[str, ...]:
    return tuple(re.findall("`([^`]+)`", cell))


def _table(headings: tuple[str, ...]) -> list[list[str]]:
    """The rows of the table with these headings."""
    lines = PAGE.read_text().splitlines()
    start = lines.index("| " + " | ".join(headings) + " |") + 2
    cells = []
    for line in lines[start:]:
        if not line.startswith("| "):
            break
        cells.append([cell.strip() for cell in line.strip("|").split(" | ")])
        assert len(cells[-1]) == len(headings), f"a row of {len(cells[-1])} cells: {line}"
    return cells
