"""Mutants as data: read, found in the product wherever their function is by now, and planted.

mutmut and cosmic-ray make their own mutants and name them by file and position: neither survives a move.
"""

from __future__ import annotations

import ast
import hashlib
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["KINDS", "PRODUCT", "Mutant", "Place", "changed", "find", "functions", "mutants", "planted", "text"]

PRODUCT = ("edge_agent", "firmware_sim", "fugu", "fugu_cli", "fugu_helper", "gateway")
KINDS = ("privacy", "loss", "other")
TABLE = Path(__file__).parents[1] / "mutants" / "mutants.toml"


class Mutant(NamedTuple):
    """A change to one function, or to what a class declares.

    Attributes:
        subject: what it is a fault of, and whose tests are to kill it.
        kind: `privacy` if more is told than is promised, `loss` if data are lost, or `other`.
        function: its qualified name in its module, or that of a class, whatever the module. Where several packages have
            one that is alike, it stands behind its package and a slash.
        before, after: the source text that is there once in what has this name, and what replaces it.
        tests: files that are to kill it.
        equivalent: why it changes nothing that anybody can observe, so that no test can kill it; else empty.
    """

    subject: str
    kind: str
    function: str
    before: str
    after: str
    tests: tuple[str, ...]
    equivalent: str = ""

    @property
    def name(self) -> str:
        """Short, and the same wherever its function is moved."""
        return hashlib.sha256(repr((self.function, self.before, self.after)).encode()).hexdigest()[:10]


class Place(NamedTuple):
    """The source of a function or class: lines first..last of a file, counted from 0, the last one left out."""

    path: Path
    first: int
    last: int


def mutants() -> list[Mutant]:
    subjects = tomllib.loads(TABLE.read_text())
    return [
        Mutant(subject, *mutant[:4], tuple(values["tests"]), *mutant[4:])
        for subject, values in subjects.items()
        for mutant in values["mutants"]
    ]


def functions(root: Path) -> dict[str, list[Place]]:
    """Where the functions and classes of the product are that mutants change, by qualified name."""
    places: dict[str, list[Place]] = defaultdict(list)
    last = {re.split("[./]", mutant.function)[-1] for mutant in mutants()}
    pattern = re.compile(rf"^ *(?:async )?(?:def|class) (?:{'|'.join(last)})\b", re.MULTILINE)
    for package in PRODUCT:
        for path in sorted((root / package).rglob("*.py")):
            source = path.read_text()
            for name, node in _named(ast.parse(source), "") if pattern.search(source) else ():
                assert node.end_lineno is not None
                places[name].append(Place(path, node.lineno - 1, node.end_lineno))
    return places


def _named(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    for node in _statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name, node
            yield from _named(node, f"{prefix}{node.name}.")
        else:
            yield from _named(node, prefix)


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Statements directly in a statement that may hold a function: expressions hold none that has a name."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        if isinstance(children := getattr(tree, field, None), list):
            yield from children


def find(mutant: Mutant, places: dict[str, list[Place]]) -> Place:
    """The one function or class that a mutant changes; its text has to be there exactly once."""
    package, _, name = mutant.function.rpartition("/")
    own = [place for place in places.get(name, []) if not package or package in place.path.parts]
    counts = [(text(place).count(mutant.before), place) for place in own]
    if sum(count for count, _ in counts) != 1:
        raise ValueError(f"{mutant.function} has {mutant.before!r} {sum(count for count, _ in counts)} times, not once")
    return max(counts)[1]


def text(place: Place) -> str:
    return "".join(place.path.read_text().splitlines(keepends=True)[place.first : place.last])


def planted(mutant: Mutant, place: Place) -> str:
    """The source of the whole file with a mutant in it."""
    lines = place.path.read_text().splitlines(keepends=True)
    return "".join([*lines[: place.first], changed(mutant, place), *lines[place.last :]])


def changed(mutant: Mutant, place: Place) -> str:
    """The source of the function alone, with a mutant in it."""
    return text(place).replace(mutant.before, mutant.after)
