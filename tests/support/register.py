"""The register of docs/privacy.md, as data."""

from __future__ import annotations

import dataclasses
import pkgutil
import re
import typing
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from fugu import contract
from fugu.contract._document import Document
from fugu.contract.message import Declared
from fugu.contract.topics import parse_topic

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"
NAMES = {"fleet": "home", "device": "watch", "stream": "hr", "audience": "public", "name": "active"}
HEADINGS = ("topic", "message", "fields", "readers", "may depend on", "covered by")


class Row(NamedTuple):
    """A row of the register's first table.

    Attributes:
        topic: with a name for every part that has one.
        kind: of the topic.
        messages, fields: names.
        readers: kinds of accounts.
        depends, covered: in words.
    """

    topic: str
    kind: str
    messages: tuple[str, ...]
    fields: tuple[str, ...]
    readers: frozenset[str]
    depends: str
    covered: str


def rows() -> list[Row]:
    """The table of topics."""
    found = []
    for topic, message, fields, readers, depends, covered in _table(HEADINGS):
        (template,) = _coded(topic)
        name = template.format(**NAMES)
        found.append(
            Row(
                *(name, parse_topic(name).kind, _coded(message), _coded(fields)),
                *(frozenset(readers.split(", ")), depends, covered),
            )
        )
    return found


def observables() -> list[list[str]]:
    """The table of what else can be seen."""
    return _table(("observable", "who sees it", "may depend on", "why no reading, and what tests it"))


def messages() -> dict[str, set[str]]:
    """Every dataclass, and every part of a description, with its fields: what the contract can encode."""
    found: dict[str, set[str]] = {}
    for module in pkgutil.iter_modules(contract.__path__, "fugu.contract."):
        for name, thing in vars(import_module(module.name)).items():
            if name.startswith("encode_"):
                for kind in typing.get_type_hints(thing).values():
                    _collect(kind, found)
            if isinstance(thing, type) and issubclass(thing, Declared) and thing.fields:
                found[name] = {field.name for field in thing.fields}
    return found


def _collect(kind: Any, found: dict[str, set[str]]) -> None:
    for argument in typing.get_args(kind):
        _collect(argument, found)
    if not isinstance(kind, type) or not kind.__module__.startswith("fugu.contract.") or kind.__name__ in found:
        return
    home = vars(import_module(kind.__module__))
    described = issubclass(kind, Document) and kind.__module__ == "fugu.contract.descriptions"
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields") or described:
        found[kind.__name__] = set(kind.__annotations__)
        for annotation in kind.__annotations__.values():
            for word in re.findall(r"\w+", str(annotation)):
                _collect(home.get(word), found)


def _coded(cell: str) -> tuple[str, ...]:
    """What stands between backticks."""
    return tuple(re.findall("`([^`]+)`", cell))


def _table(headings: tuple[str, ...]) -> list[list[str]]:
    """The rows of the table with these headings."""
    lines = PAGE.read_text().splitlines()
    start = lines.index("| " + " | ".join(headings) + " |") + 2
    found = []
    for line in lines[start:]:
        if not line.startswith("| "):
            break
        found.append([cell.strip() for cell in line.strip("|").split(" | ")])
        assert len(found[-1]) == len(headings), f"a row of {len(found[-1])} cells: {line}"
    return found
