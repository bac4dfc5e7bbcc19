"""Trust of a device: the documents that it has accepted, as bytes of a file that is replaced as a whole."""

import hashlib
import os
import struct

__all__ = ["RefusedError", "TrustState", "load", "unpack"]

_MAGIC = b"FGT\x02"
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

    `root` is the one in force, empty for a board of no fleet; `enrolled` names the one that it began with. `version`,
    `digest`, `valid_until` and `policies` are of the newest policy document that was ever accepted: `policies` is what
    a board runs, or the document that an agent reads again. After that time nothing is drawn if `silent_then`. `time`
    is the newest that was signed, in Unix seconds. Nothing is drawn under documents up to the version `stopped`.
    """

    def __init__(self, root: bytes) -> None:
        self.root, self.enrolled = root, hashlib.sha256(root).digest()[:16]
        self.version = self.valid_until = self.time = self.stopped = 0
        self.digest = bytes(32)
        self.silent_then = False
        self.policies: list[bytes] = []

    def with_changes(self, **values: object) -> "TrustState":
        """The same with other values."""
        other = TrustState(self.root)
        for name in ("enrolled", "version", "digest", "policies", "valid_until", "silent_then", "time", "stopped"):
            setattr(other, name, getattr(self, name))
        for name in values:
            setattr(other, name, values[name])
        return other

    def under(self, root: bytes) -> "TrustState":
        """The same on a device that is enrolled with a root.

        If it was another before, the trust in all roots that were followed since ends; versions go on.
        """
        new_trust = TrustState(root)
        if new_trust.enrolled == self.enrolled:
            return self
        return self.with_changes(root=root, time=0, stopped=0, enrolled=new_trust.enrolled)

    def expired(self, seconds: int) -> bool:
        """True if the document's time is over, by a Unix time or the newest signed one: no clock goes back."""
        return self.valid_until > 0 and max(seconds, self.time) >= self.valid_until

    def stale(self, seconds: int, max_age: int) -> bool:
        """True if it is, or the newest signed time is further away than `max_age` seconds, unless that is 0."""
        return self.expired(seconds) or (max_age > 0 and abs(seconds - self.time) > max_age)

    def silent(self, seconds: int, version: int) -> str | None:
        """The code that says that nothing may be drawn, at a Unix time under policies of a version."""
        if self.stopped >= max(version, 1):
            return "stopped"
        return "policy-expired" if self.silent_then and self.expired(seconds) else None

    def pack(self) -> bytearray:
        """Bytes that `unpack` reads."""
        head = (_MAGIC, self.version, self.time, self.stopped, self.valid_until, self.silent_then, self.digest)
        packed = bytearray(struct.pack(_HEAD, *head, self.enrolled))
        for part in [self.root] + self.policies:
            packed += struct.pack(">I", len(part)) + part
        return packed + hashlib.sha256(packed).digest()[:_CHECK]

    def store(self, path: str) -> None:
        """Replace the file; littlefs renames at one moment. After an OSError the old one is there."""
        with open(path + ".new", "wb") as file:
            file.write(self.pack())
        os.rename(path + ".new", path)


def load(path: str, root: bytes) -> TrustState:
    """Read the stored trust of a device enrolled with a root; a new one if there is no file. OSError as of `unpack`."""
    try:
        with open(path, "rb") as file:
            packed = file.read()
    except OSError as error:
        if error.errno == _NOT_THERE:
            return TrustState(root)
        raise
    return unpack(packed).under(root)


def unpack(packed: bytes) -> TrustState:
    """Trust that was packed. OSError if it is damaged: no power cut does that, and versions must not begin anew."""
    offset, end = struct.calcsize(_HEAD), len(packed) - _CHECK
    if end < offset or hashlib.sha256(packed[:end]).digest()[:_CHECK] != packed[end:] or packed[:4] != _MAGIC:
        raise OSError("what is kept of earlier documents is damaged: flash the board anew")
    head = struct.unpack_from(_HEAD, packed)
    parts = []
    while offset < end:
        size = struct.unpack_from(">I", packed, offset)[0]
        parts.append(packed[offset + 4 : offset + 4 + size])
        offset += 4 + size
    trusted = TrustState(parts[0])
    _, trusted.version, trusted.time, trusted.stopped, trusted.valid_until, silent, *names = head
    trusted.digest, trusted.enrolled = names
    trusted.silent_then = bool(silent)
    trusted.policies = parts[1:]
    return trusted
