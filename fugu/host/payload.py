"""Payloads of local devices: the value at a path of a message, and when the device was last heard.

A path is keys and list indices, joined by dots: `ENERGY.Power`, `outputs.0`. A key that holds a dot, a comma or a
quote is written in double quotes, as in JSON: `"1.7.0"`, `meter."1.7.0"`. Several paths are joined by commas.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, NamedTuple

from fugu.host.csv_file import moment

__all__ = ["MalformedError", "ResentCheck", "message", "parse_path", "quoted_key", "value_at"]

MAX_PAYLOAD_BYTES = 1 << 16
_KEY = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^".,]*)\s*([.,]|$)')
_PLAIN = re.compile(r'[^".,]+')
_LAST_SEEN = "last_seen"
"""The key in which Zigbee2MQTT says when the device was last heard: milliseconds since 1970, or ISO 8601."""
_MILLISECONDS = re.compile(r"\d{12,14}")
_EARLIEST = 1e9
"""Unix time of 2001: a smaller number is no time of a message, but perhaps its age."""
_FRESH_SECONDS = 60.0


class MalformedError(ValueError):
    """A payload is too long, empty, no text, or not JSON, or has null, an object or a list at the path."""


class Message(NamedTuple):
    """The value at a path, and the Unix time when its device was last heard; None where the payload has none."""

    value: str | None
    last_seen: float | None = None


@lru_cache(maxsize=64)
def parse_path(path: str) -> tuple[tuple[str, ...], ...]:
    """Return the keys of each path in a list of paths. The ValueError says in a line how keys are written."""
    paths: list[list[str]] = [[]]
    position, separator = 0, "."
    while separator:
        match = _KEY.match(path, position)
        if match is None:
            raise ValueError(f'path {path!r}: a key with a dot, a comma or a quote is written as in JSON: "1.7.0"')
        key, separator = match.groups()
        try:
            paths[-1].append(json.loads(key) if key.startswith('"') else key.strip())
        except ValueError:
            raise ValueError(f"path {path!r}: {key} is no text of JSON") from None
        if separator == ",":
            paths.append([])
        position = match.end()
    return tuple(map(tuple, paths))


def quoted_key(key: str) -> str:
    """Write a key as in a path, in double quotes if it needs them."""
    return key if _PLAIN.fullmatch(key) and key == key.strip() else json.dumps(key, ensure_ascii=False)


def message(payload: bytes, path: str | None) -> Message:
    """Read the value at a path of a UTF-8 payload of at most 64 KiB, as it is written there.

    Values at several paths are joined by commas. Without a path, the payload is the value. Raises MalformedError, which
    holds nothing of the payload.
    """
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise MalformedError
    last_seen = None
    try:
        value_text = payload.decode()
        if path is not None:
            document = json.loads(value_text, parse_int=str, parse_float=str, parse_constant=str)
            path_values = [_value_at_keys(document, keys) for keys in parse_path(path)]
            last_seen = _last_seen(document)
            if None in path_values:
                return Message(None, last_seen)
            value_text = ",".join(value for value in path_values if value is not None)
    except (ValueError, RecursionError):
        raise MalformedError from None
    if not (value_text := value_text.strip()):
        raise MalformedError
    return Message(value_text, last_seen)


def value_at(payload: bytes, path: str | None) -> str | None:
    """Read only the value of a message; arguments and errors as of `message`."""
    return message(payload, path).value


def _value_at_keys(value: Any, keys: tuple[str, ...]) -> str | None:
    for key in keys:
        if isinstance(value, dict):
            if key not in value:
                return None
            value = value[key]
        elif isinstance(value, list) and key.isascii() and key.isdigit():
            if len(key) > 9 or int(key) >= len(value):
                return None
            value = value[int(key)]
        else:
            return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        raise MalformedError
    return value


def _last_seen(document: Any) -> float | None:
    time_text = document.get(_LAST_SEEN) if isinstance(document, dict) else None
    if not isinstance(time_text, str):
        return None
    seconds = int(time_text) / 1000.0 if _MILLISECONDS.fullmatch(time_text) else moment(time_text)
    return seconds if seconds >= _EARLIEST else None


class ResentCheck:
    """Tells measurements from values that a bridge sends again, by the `last_seen` of their messages.

    A message was sent again if its `last_seen` is that of the message before. A message that is more than a minute old
    was sent again, too, unless it is later than the message before. A message without `last_seen` is a measurement.
    """

    def __init__(self) -> None:
        self._newest: float | None = None

    def is_new(self, last_seen: float | None, now: float) -> bool:
        """True for a measurement; `now` is the Unix time at which its message came."""
        if last_seen is None:
            return True
        newest_before, self._newest = self._newest, last_seen
        if newest_before is not None and last_seen > newest_before:
            return True
        return last_seen != newest_before and now - last_seen <= _FRESH_SECONDS
