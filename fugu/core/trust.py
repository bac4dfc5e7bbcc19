"""The documents that a board has accepted, in a file that is replaced as a whole: littlefs renames at one moment."""

import hashlib
import os
import struct

__all__ = ["RefusedError", "TrustState", "load"]

_MAGIC = b"FGT\x01"
_HEAD = ">4sIQIQB32s16s"
_CHECK = 16
_NOT_THERE = 2


class RefusedError(Exception):
    """A document is refused: a reason as in the agent's status, and the same in words."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


class TrustState:
    """Stored facts about documents; 0 stands for none.

    `root` is the one in force, empty for a board of no fleet. `version`, `digest`, the compiled `policies` and
    `valid_until` are of the newest policy document that was ever accepted; after that time nothing is drawn if
    `silent_then`. `time` is the newest that was signed, in Unix seconds. Nothing is drawn under documents up to the
    version `stopped`.
    """

    def __init__(self, root: bytes) -> None:
        self.root = root
        self.version = self.valid_until = self.time = self.stopped = 0
        self.digest = bytes(32)
        self.silent_then = False
        self.policies: list[bytes] = []

    def with_changes(self, **values: object) -> "TrustState":
        """The same with other values."""
        other = TrustState(self.root)
        for name in ("version", "digest", "policies", "valid_until", "silent_then", "time", "stopped"):
            setattr(other, name, getattr(self, name))
        for name in values:
            setattr(other, name, values[name])
        return other

    def store(self, path: str, enrolled: bytes) -> None:
        """Replace the file; `enrolled` is the root burnt into the image. After an OSError the old one is there."""
        head = (_MAGIC, self.version, self.time, self.stopped, self.valid_until, self.silent_then, self.digest)
        data = bytearray(struct.pack(_HEAD, *head, hashlib.sha256(enrolled).digest()[:16]))
        for part in [self.root] + self.policies:
            data += struct.pack(">H", len(part)) + part
        data += hashlib.sha256(data).digest()[:_CHECK]
        with open(path + ".new", "wb") as file:
            file.write(data)
        os.rename(path + ".new", path)


def load(path: str, enrolled: bytes) -> TrustState:
    """Read the stored trust; a new one if there is no file. OSError if it cannot be read, or is damaged.

    No power cut damages it, and versions must not begin anew. If another root is burnt into the image than before, the
    trust in all roots that were followed since ends; versions go on.
    """
    trusted = TrustState(enrolled)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        if error.errno == _NOT_THERE:
            return trusted
        raise
    at, end = struct.calcsize(_HEAD), len(data) - _CHECK
    if end < at or hashlib.sha256(data[:end]).digest()[:_CHECK] != data[end:] or data[:4] != _MAGIC:
        raise OSError("what is kept of earlier documents is damaged: flash the board anew")
    head = struct.unpack_from(_HEAD, data)
    _, trusted.version, time, stopped, trusted.valid_until, silent, trusted.digest, began = head
    trusted.silent_then = bool(silent)
    parts = []
    while at < end:
        size = struct.unpack_from(">H", data, at)[0]
        parts.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    trusted.policies = parts[1:]
    if began == hashlib.sha256(enrolled).digest()[:16]:
        trusted.root, trusted.time, trusted.stopped = parts[0], time, stopped
    return trusted
