"""JSON as rows of text: flat records by the paths of their values, from lines, lists and documents that are long.

A column is named as the `path` of a sensor: keys joined by dots, with quotes where a key needs them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TextIO

from fugu.host.payload import quoted_key
from fugu.recordings.records import Record

__all__ = ["cell", "flat", "items", "parsed"]

_BLOCK = 1 << 16
_MOST_ITEM = 1 << 22
"""Characters of an item of a list."""
_SPACE = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def parsed(text: str) -> Any:
    """A document, with numbers as they are written; None if it is no JSON."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def cell(value: Any) -> str:
    """A single value as text; empty for null, and for what is none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.strip() if isinstance(value, str) else ""


def flat(document: Any, before: str = "") -> Record:
    """The single values of a document by their paths; those of lists by their indices."""
    if isinstance(document, dict | list):
        pairs = document.items() if isinstance(document, dict) else enumerate(document)
        record: Record = {}
        for key, value in pairs:
            record |= flat(value, f"{before}{quoted_key(str(key))}.")
        return record
    return {before[:-1]: cell(document)} if before else {}


def items(text: TextIO, key: str = "") -> Iterator[Any]:
    """The items of the first list of a document, or of the first that has a key, one by one.

    Raises:
        ValueError: it is no such JSON, or an item is too long.
    """
    buffer, at, ended = "", None, False
    begin = re.compile(rf'"{re.escape(key)}"\s*:\s*\[' if key else r"\[")
    while True:
        if at is None and (match := begin.search(buffer)):
            at = match.end()
        while at is not None:
            match = _SPACE.match(buffer, at)
            assert match is not None
            at = match.end()
            if buffer[at : at + 1] == "]":
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
