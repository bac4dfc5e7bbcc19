"""Who has said a watermark: HMAC-SHA256 under a key that a device and its gateway share, and nobody else.

What is authenticated is the domain, the fleet's name and the device's, each followed by a zero byte, then the counter
in 8 bytes, the highest first, then the streams as they are packed in the message.
"""

from __future__ import annotations

import hmac
from dataclasses import replace

from fugu.contract.frames import Committed, packed_streams
from fugu.contract.message import binary

__all__ = ["KEY_BYTES", "is_authentic", "sign_committed"]

KEY_BYTES = 32
_DOMAIN = "fugu/2 committed"


def sign_committed(key: bytes, fleet: str, device: str, message: Committed) -> Committed:
    """The message with its tag, under a key of 32 bytes."""
    return replace(message, tag=_tag(key, fleet, device, message))


def is_authentic(key: bytes, fleet: str, device: str, message: Committed) -> bool:
    """True if the holder of the key has said this, counter and all, to this device; takes as long either way."""
    return hmac.compare_digest(message.tag, _tag(key, fleet, device, message))


def _tag(key: bytes, fleet: str, device: str, message: Committed) -> bytes:
    binary(key, KEY_BYTES, KEY_BYTES, "key")
    head = b"".join(name.encode() + b"\0" for name in (_DOMAIN, fleet, device))
    return hmac.digest(key, head + message.counter.to_bytes(8, "big") + packed_streams(message), "sha256")
