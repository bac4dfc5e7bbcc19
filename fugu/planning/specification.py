"""Files that say what is to be planned: TOML or JSON, an object at the top, with known keys."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fugu.planning.errors import PlanningError

__all__ = ["read_specification", "refuse_unknown"]


def read_specification(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    """Read a file, JSON if it is named so or begins with a brace, else TOML; PlanningError if it is neither.

    `keys` are some that it has, for the message if it is no object.
    """
    content = path.read_bytes()
    json_first = path.suffix == ".json" or content.lstrip()[:1] == b"{"
    try:
        document = json.loads(content) if json_first else tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        kind = "JSON" if json_first else "TOML"
        raise PlanningError(f"{path} is not {kind}: {error}") from None
    if not isinstance(document, dict):
        raise PlanningError(f"{path}: a specification is an object with the keys {', '.join(keys)}")
    return document


def refuse_unknown(given: dict[str, Any], known: Sequence[str], where: str = "") -> None:
    """Refuse an object with an unknown key, with a PlanningError."""
    for key in given:
        if key not in known:
            raise PlanningError(f"{where}unknown key {key!r:.60}; known are {', '.join(known)}")
