"""Statuses and watermarks of a board, with the parts of msgpack and HMAC-SHA256 that they need."""

import hashlib
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["MessageError", "Unpacker", "hmac", "policy_status", "read_watermark", "status"]

_VERSION = "micropython-1"
_MOST_TICK = 1 << 53


class MessageError(Exception):
    """The bytes are not what their schema says."""


def _pack(value: "Any") -> bytes:
    """Pack a boolean, an integer from 0 on, text or bytes of at most 255 bytes, or a list of at most 15 of these.

    The form is the shortest. MessageError for an integer that is too large.
    """
    if value is True or value is False:
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, str):
        text = value.encode()
        return (bytes([0xA0 | len(text)]) if len(text) < 32 else bytes([0xD9, len(text)])) + text
    if isinstance(value, bytes):
        return bytes([0xC4, len(value)]) + value
    if isinstance(value, list):
        return bytes([0x90 | len(value)]) + b"".join([_pack(part) for part in value])
    if value < 128:
        return bytes([value])
    for code, form, size in ((0xCC, ">BB", 8), (0xCD, ">BH", 16), (0xCE, ">BI", 32), (0xCF, ">BQ", 64)):
        if value < 1 << size:
            return struct.pack(form, code, value)
    raise MessageError("a number that is too large")


_NUMBERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}


class Unpacker:
    """Reads msgpack values one after the other, behind the byte of a schema if there is one.

    MessageError for other bytes.
    """

    def __init__(self, payload: bytes, schema: bytes = b"") -> None:
        self.payload = payload
        self.at = len(schema)
        if payload[: self.at] != schema:
            raise MessageError("another schema")

    def take(self, size: int) -> bytes:
        """Read the next `size` bytes."""
        end = self.at + size
        if end > len(self.payload):
            raise MessageError("cut short")
        chunk = self.payload[self.at : end]
        self.at = end
        return chunk

    def number(self, low: int, high: int) -> int:
        """Read an integer within bounds."""
        code = self.take(1)[0]
        if code < 0x80 or code >= 0xE0:
            value = code if code < 0x80 else code - 256
        elif code in _NUMBERS:
            form = _NUMBERS[code]
            value = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        else:
            raise MessageError("no integer")
        if not low <= value <= high:
            raise MessageError("a number is out of range")
        return value

    def _length(self, kind: str, max_size: int, prefix: int, mask: int, codes: dict[int, int]) -> int:
        """Read the length of a value: the bits `mask` of its short form, or `codes[code]` bytes after a code."""
        code = self.take(1)[0]
        if code in codes:
            size = int.from_bytes(self.take(codes[code]), "big")
        elif code & ~mask == prefix:
            size = code & mask
        else:
            raise MessageError("no " + kind.partition(" ")[2])
        if size > max_size:
            raise MessageError(kind + " is too long")
        return size

    def array(self, max_size: int) -> int:
        """Read the head of an array. Return the number of values that follow."""
        return self._length("an array", max_size, 0x90, 15, {0xDC: 2})

    def row(self, size: int, problem: str) -> None:
        """Read the head of an array of `size` values; a MessageError with the problem if it has another number."""
        if self.array(size) != size:
            raise MessageError(problem)

    def end(self) -> None:
        """Refuse bytes that follow."""
        if self.at != len(self.payload):
            raise MessageError("bytes follow the end")

    def text(self, max_size: int) -> str:
        """Read a string."""
        try:
            return self.take(self._length("a string", max_size, 0xA0, 31, {0xD9: 1, 0xDA: 2})).decode()
        except UnicodeError:
            raise MessageError("no text") from None

    def binary(self, max_size: int) -> bytes:
        """Read a byte string."""
        return self.take(self._length("a byte string", max_size, -1, 0, {0xC4: 1, 0xC5: 2, 0xC6: 4}))


def status(is_online: bool, depth: int, codes: list[int], streams: list[list[object]], randomness: str = "") -> bytes:
    """Encode a device's status; `streams` are lists of stream, policy version and next tick.

    `randomness` is as in the image; the program's version says so if it is only computational.
    """
    suffix = " (computational)" if randomness.startswith("computational") else ""
    return b"\x03" + _pack([is_online, _VERSION + suffix, depth, codes, streams])


def policy_status(version: int, judged_digest: bytes, reason: str, detail: str, refusals: int, is_stale: bool) -> bytes:
    """Encode a device's status about the policy documents that it is sent."""
    return b"\x0b" + _pack([version, judged_digest, reason, detail, refusals, is_stale])


def read_watermark(payload: bytes, key: bytes, fleet: str, device: str) -> "tuple[int, list[Any]]":
    """Read a watermark. Return its counter, and (sequence, last durable tick, gaps) of each stream and window.

    MessageError if it is malformed, or if its tag is not by the holder of the key.
    """
    fields = Unpacker(payload, b"\x02")
    fields.row(3, "another number of fields")
    counter, tag = fields.number(0, (1 << 64) - 1), fields.binary(32)
    begin, commits = fields.at, []
    for _ in range(fields.array(64)):
        fields.row(3, "a stream of another form")
        name, last_tick, gaps = fields.text(97), fields.number(-1, _MOST_TICK), []
        for _ in range(fields.array(32)):
            fields.row(2, "a gap of another form")
            low, high = fields.number(-1, _MOST_TICK), fields.number(0, _MOST_TICK)
            if low >= high:
                raise MessageError("an empty gap")
            gaps.append((low, high))
        commits.append((name, last_tick, gaps))
    fields.end()
    signed_head = b"fugu/2 committed\0" + fleet.encode() + b"\0" + device.encode() + b"\0" + struct.pack(">Q", counter)
    if not _are_equal(hmac(key, signed_head + payload[begin:]), tag):
        raise MessageError("somebody else has said it")
    return counter, commits


def hmac(key: bytes, message: bytes) -> bytes:
    """Return the HMAC-SHA256 of a message under a key of at most 64 bytes."""
    key = key + bytes(64 - len(key))
    inner = hashlib.sha256(bytes([byte ^ 0x36 for byte in key]))
    inner.update(message)
    outer = hashlib.sha256(bytes([byte ^ 0x5C for byte in key]))
    outer.update(inner.digest())
    return outer.digest()


def _are_equal(first: bytes, other: bytes) -> bool:
    """True if two byte strings are equal; the time taken does not depend on where they differ."""
    if len(first) != len(other):
        return False
    difference = 0
    for a, b in zip(first, other):
        difference |= a ^ b
    return not difference
