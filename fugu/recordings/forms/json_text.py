"""JSON as rows of text: flat records by the paths of their values, from lines, lists and documents that are long.

A column is named as the `path` of a sensor: keys joined by dots, with quotes where a key needs them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, TextIO, TypeVar

from fugu.host.payload import quoted_key
from fugu.recordings.table import Record

__all__ = ["cell", "flat", "items", "parsed", "with_documents"]

_T = TypeVar("_T")
_BLOCK, _TOGETHER = 1 << 16, 2_000
_MOST_ITEM = 1 << 22
"""Characters of an item of a list."""
_SPACE, _BRACKETS = re.compile(r"[\s,]*"), re.compile(r"[\s,\[\]]*")
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def parsed(text: str) -> Any:
    """A document, with numbers as they are written; None if it is no JSON."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def with_documents(items: Iterable[_T], text_of: Callable[[_T], str]) -> Iterator[tuple[_T, Any]]:
    """Items, each with the document that is its text, as `parsed`; objects are decoded many at once."""
    rest = iter(items)
    while block := [*islice(rest, _TOGETHER)]:
        yield from zip(block, _together([text_of(item) for item in block]), strict=True)


def _together(texts: list[str]) -> list[Any]:
    if all(text[:1] == "{" and text[-1:] == "}" for text in texts):
        together = parsed(f"[{','.join(texts)}]")
        if isinstance(together, list) and len(together) == len(texts):
            return together
    return [parsed(text) for text in texts]


def cell(value: Any) -> str:
    """A single value as text; empty for null, and for what is none."""
    if isinstance(value, str):
        return value.strip()
    return {True: "true", False: "false"}.get(value, "") if isinstance(value, bool) else ""


def flat(document: Any) -> Record:
    """The single values of a document by their paths; those of lists by their indices."""
    record: Record = {}
    if isinstance(document, dict | list):
        _flatten(document, "", record)
    return record


def _flatten(document: Any, before: str, record: Record) -> None:
    pairs = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in pairs:
        name = before + _quoted(key)
        if isinstance(value, str):  # as numbers are
            record[name] = value.strip()
        elif isinstance(value, dict | list):
            _flatten(value, f"{name}.", record)
        else:
            record[name] = cell(value)


@lru_cache(maxsize=4096)
def _quoted(key: str | int) -> str:
    return quoted_key(str(key))


def items(text: TextIO, key: str = "", *, nested: bool = False) -> Iterator[Any]:
    """The items of the first list of a document, or of the first that has a key, one by one.

    Of a `nested` list they are the items of its lists.

    Raises:
        ValueError: it is no such JSON, or an item is too long.
    """
    buffer, at, ended, closed, between = "", None, False, False, _BRACKETS if nested else _SPACE
    begin = re.compile(rf'"{re.escape(key)}"\s*:\s*\[' if key else r"\[")
    while True:
        if at is None and (match := begin.search(buffer)):
            at = match.end()
        while at is not None:
            match = between.match(buffer, at)
            assert match is not None
            at = match.end()
            closed = match[0].rstrip().endswith("]") if match[0].strip() else closed
            if buffer[at : at + 1] == "]" or (closed and ended and at == len(buffer)):
                return
            try:
                item, end = _DECODER.raw_decode(buffer, at)
            except (ValueError, RecursionError):
                break
            if end == len(buffer) and not ended:  # a number may go on
                break
            yield item
            at = end
        if at is not None:
            buffer, at = buffer[at:], 0
        elif len(buffer) > _MOST_ITEM:
            buffer = buffer[-_BLOCK:]
        if ended or len(buffer) > _MOST_ITEM:
            raise ValueError
        block = text.read(_BLOCK)
        ended = not block
        buffer += block
