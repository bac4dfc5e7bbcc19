"""The tables of docs/protocol.md, made from the declarations of messages.

To write them anew: python -m tests.support.protocol_tables
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.asyncapi import payload

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
HEADINGS = ("| field | type | meaning |", "| --- | --- | --- |")
_PLACE = re.compile(r"(<!-- fields of (\w+) -->\n\n)(?:\|[^\n]*\n)*\n?")


def tables() -> list[str]:
    """Names of the messages whose tables the page has."""
    return [name for _, name in _PLACE.findall(PAGE.read_text())]


def written(page: str) -> str:
    """The page with its tables as they have to be."""
    return _PLACE.sub(lambda place: f"{place[1]}{table(place[2])}\n", page)


def table(message: str) -> str:
    rows = [f"| {name} | {kind} | {about} |" for name, kind, about in fields(payload(message))]
    return "\n".join([*HEADINGS, *rows]) + "\n"


def fields(schema: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Name, type and meaning of each field, those of arrays in arrays behind the name of the outer one."""
    if "properties" in schema:
        begun = {key[1:]: value for key, value in schema.get("patternProperties", {}).items()}
        for name, item in schema["properties"].items():
            labelled = f", `{name}_<label>`" if f"{name}_" in begun else ""
            yield f"`{name}`{labelled}", words(item), item.get("description", "")
            if "properties" in item.get("items", {}):
                yield from ((f"`{name}` {inner}", *rest) for inner, *rest in fields(item["items"]))
        for name in begun:
            if name.rstrip("_") not in schema["properties"]:
                yield f"`{name}<label>`", words(begun[name]), begun[name].get("description", "")
        return
    for item in schema["items"][1]["items"]:
        yield from _item(item, "")


def _item(item: dict[str, Any], outer: str) -> Iterator[tuple[str, str, str]]:
    name = f"{outer}`{item['title']}`"
    yield name, words(item), item.get("description", "")
    inner = item.get("items", {})
    if isinstance(inner, dict) and isinstance(inner.get("items"), list):
        for part in inner["items"]:
            yield from _item(part, f"{name} ")
    for choice in item.get("oneOf", ()):
        for choice_part in choice["items"]:
            yield from _item(choice_part, f"{name} ")


def words(schema: dict[str, Any]) -> str:
    if schema.get("const") is not None:
        return f"`{str(schema['const']).lower() if isinstance(schema['const'], bool) else schema['const']}`"
    if "oneOf" in schema:
        return " or ".join(f"[{', '.join(part['title'] for part in choice['items'])}]" for choice in schema["oneOf"])
    if "enum" in schema:
        if len(schema["enum"]) > 6:
            return "word"
        return " or ".join(f"`{word}`" if isinstance(word, str) else str(word) for word in schema["enum"])
    kind = schema["type"]
    if isinstance(kind, list):
        return f"{words({**schema, 'type': kind[0]})}, or null"
    match kind:
        case "integer":
            return f"integer, {number(schema['minimum'])}..{number(schema['maximum'])}"
        case "number":
            return f"number{_interval(schema)}"
        case "string" if schema.get("format") == "date-time":
            return "time"
        case "string":
            unit = "bytes" if schema.get("format") == "binary" else "characters"
            return f"{_span(schema.get('minLength', 0), schema['maxLength'])} {unit}"
        case "array":
            text = f"array of {_span(schema.get('minItems', 0), schema['maxItems'])}"
            item = schema["items"]
            if isinstance(item, list):
                return f"[{', '.join(part['title'] for part in item)}]"
            return text if isinstance(item.get("items"), list) or "properties" in item else f"{text}: {words(item)}"
    return str(kind)


def number(value: int) -> str:
    """A number, near a power of 2 as such."""
    for base, more in ((abs(value), ""), (abs(value) + 1, "-1"), (abs(value) - 1, "+1")):
        if base >= 1 << 16 and base & (base - 1) == 0:
            return f"{'-' if value < 0 else ''}2^{base.bit_length() - 1}{more}"
    return str(value)


def _span(low: int, high: int) -> str:
    return str(high) if low == high else f"{low}..{number(high)}"


def _interval(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    match low, high, above, below:
        case None, None, None, None:
            return ""
        case _, None, None, None:
            return f", at least {low}"
        case None, None, _, None:
            return f", above {above}"
    opening = f"({above}" if low is None else f"[{low}"
    return f" in {opening}, {below})" if high is None else f" in {opening}, {high}]"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
