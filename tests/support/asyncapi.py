"""Messages read by the AsyncAPI document alone, as somebody would who has nothing else."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any

import msgpack

DOCUMENT: dict[str, Any] = json.loads((Path(__file__).parents[2] / "docs" / "asyncapi.json").read_text())


def follow(node: Any) -> Any:
    """Target of a reference; anything else as it is."""
    while isinstance(node, dict) and "$ref" in node:
        node = reduce(lambda node, key: node[key], node["$ref"].removeprefix("#/").split("/"), DOCUMENT)
    return node


def payload(message: str) -> dict[str, Any]:
    """The schema of a message's payload, with its parts in place."""
    return _inlined(DOCUMENT["components"]["schemas"][message])


def _inlined(node: Any) -> Any:
    if isinstance(node, list):
        return [_inlined(part) for part in node]
    if not isinstance(node, dict):
        return node
    node = {**follow(node), **{name: value for name, value in node.items() if name != "$ref"}}
    schema = {name: _inlined(value) for name, value in node.items()}
    match schema:
        case {"anyOf": [{"type": kind} as first, {"type": "null"}]} if "enum" not in first:
            del schema["anyOf"]
            return {**first, **schema, "type": [kind, "null"]}
    return schema


def values(message: bytes) -> list[Any]:
    """The two msgpack values of a message."""
    unpacker = msgpack.Unpacker(raw=False, strict_map_key=True)
    unpacker.feed(message)
    return list(unpacker)


def plain(value: Any) -> Any:
    """The same with a character for each byte, as JSON Schema has binary strings."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return [plain(part) for part in value] if isinstance(value, list) else value


def named(schema: dict[str, Any], value: Any) -> Any:
    """A decoded value, with the names that the schema has for it, and what is packed taken apart."""
    if "oneOf" in schema:
        schema = next(option for option in schema["oneOf"] if option["maxItems"] == len(value))
    if not isinstance(value, list):
        return value
    if not isinstance(schema["items"], list):
        return [named(schema["items"], part) for part in value]
    fields = {item["title"]: named(item, part) for item, part in zip(schema["items"], value, strict=True)}
    for item in schema["items"]:
        if "x-fugu-packed" in item:
            fields[item["title"]] = unpacked(fields[item["title"]], item["x-fugu-packed"], fields)
    return fields


def unpacked(packed: bytes, form: dict[str, Any], fields: dict[str, Any]) -> list[dict[str, list[int]]]:
    """The numbers in a byte string."""
    bits = iter("".join(f"{byte:08b}" for byte in packed))
    parts = [(part, *(int(fields.get(part[name], part[name])) for name in ("bits", "times"))) for part in form["parts"]]
    each = sum(size * times for _, size, times in parts)
    count = fields[form["count"]] if "count" in form else 8 * len(packed) // each

    def number(size: int, kind: str) -> int:
        number = int("".join(next(bits) for _ in range(size)), 2)
        return number - (1 << size) if kind == "int" and number >> (size - 1) else number

    return [
        {part["title"]: [number(size, part["type"]) for _ in range(times)] for part, size, times in parts}
        for _ in range(count)
    ]
