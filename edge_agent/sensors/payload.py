"""What a message of a local device says: the whole payload, or values inside a JSON document."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["MalformedError", "value_at"]

MAX_PAYLOAD_BYTES = 1 << 16


class MalformedError(ValueError):
    """A payload is too long, no text, not JSON, or has something at the path that is no single value."""


def value_at(payload: bytes, path: str | None) -> str | None:
    """The value in a payload, as text; numbers and names as they were written.

    Args:
        payload: UTF-8, at most 64 KiB.
        path: keys and indices of lists, joined by dots; several paths, joined by commas, give several values, joined by
            commas; none: the payload is the value.

    Returns:
        The value, or none where the payload has nothing at a path.

    Raises:
        MalformedError: there is no value; nothing of the payload is in it.
    """
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise MalformedError
    try:
        text = payload.decode()
        if path is not None:
            document = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
            values = [_walk(document, one.strip().split(".")) for one in path.split(",")]
            if None in values:
                return None
            text = ",".join(value for value in values if value is not None)
    except (ValueError, RecursionError):
        raise MalformedError from None
    if not (text := text.strip()):
        raise MalformedError
    return text


def _walk(found: Any, keys: list[str]) -> str | None:
    """The value at the end of a path, none if it leads nowhere."""
    for key in keys:
        if isinstance(found, dict):
            if key not in found:
                return None
            found = found[key]
        elif isinstance(found, list) and key.isascii() and key.isdigit():
            if len(key) > 9 or int(key) >= len(found):
                return None
            found = found[int(key)]
        else:
            return None
    if isinstance(found, bool):
        return "true" if found else "false"
    if not isinstance(found, str):
        raise MalformedError
    return found
