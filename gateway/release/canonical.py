"""The one way to write a document, so that equal ones have equal bytes, and their digest names them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["canonical", "digest", "inputs_digest"]


def canonical(document: Mapping[str, Any]) -> bytes:
    """The one way to write a document of plain values."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(document: bytes) -> str:
    """The SHA-256 of canonical bytes, as hexadecimal digits."""
    return hashlib.sha256(document).hexdigest()


def inputs_digest(question: bytes, first: int, inputs: bytes) -> str:
    """The digest of what was read for a question about the window that begins at a wall tick, all of it canonical."""
    return digest(canonical({"question": digest(question), "first": first, "inputs": digest(inputs)}))
