"""Trust of a device: the documents that it has accepted, in a file that is replaced as a whole."""

import hashlib
import os
import struct

__all__ = ["RefusedError", "TrustState", "load", "read_file", "replace_file", "short_digest", "unpack"]

_MAGIC = b"FGT\x02"
_HEAD = ">4sIQIQB32s16s"
_CHECK = 16
_NOT_THERE = 2


class RefusedError(Exception):
    """A document is refused; `reason` is a word as in the agent's status, `detail` a sentence."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


class TrustState:
    """Stored facts about documents; 0 stands for none.

    `root` is the root document in force, empty for a board of no fleet; `enrolled` is the digest of the root at
    enrolment. `version`, `digest`, `valid_until` and `policies` are of the newest policy document that was ever
    accepted; `policies` are the policies that a board runs, or the document itself for an agent. After `valid_until`
    nothing is drawn if `silent_then`. `time` is the newest signed time, in Unix seconds. Nothing is drawn under
    documents up to version `stopped`.
    """

    def __init__(self, root: bytes) -> None:
        self.root, self.enrolled = root, short_digest(root)
        self.version = self.valid_until = self.time = self.stopped = 0
        self.digest = bytes(32)
        self.silent_then = False
        self.policies: list[bytes] = []

    def with_changes(self, **changes: object) -> "TrustState":
        """Return a copy with changed fields."""
        state = TrustState(self.root)
        for fields in (self.__dict__, changes):
            for name in fields:
                setattr(state, name, fields[name])
        return state

    def under(self, root: bytes) -> "TrustState":
        """Return the trust of a device that is enrolled with a root.

        If it was enrolled with another root before, trust in the roots since then ends, while versions go on.
        """
        new_trust = TrustState(root)
        if new_trust.enrolled == self.enrolled:
            return self
        return self.with_changes(root=root, time=0, stopped=0, enrolled=new_trust.enrolled)

    def expired(self, seconds: int) -> bool:
        """True if the document has expired at a Unix time, or at the newest signed time, as no clock goes back."""
        return self.valid_until > 0 and max(seconds, self.time) >= self.valid_until

    def stale(self, seconds: int, max_age: int) -> bool:
        """True if the document has expired, or the signed time is more than `max_age` seconds away; 0 for any age."""
        return self.expired(seconds) or (max_age > 0 and abs(seconds - self.time) > max_age)

    def silent(self, seconds: int, version: int) -> str | None:
        """Return the status code that forbids draws at a Unix time under a version's policies, or None."""
        if self.stopped >= max(version, 1):
            return "stopped"
        return "policy-expired" if self.silent_then and self.expired(seconds) else None

    def pack(self) -> bytearray:
        """Pack the trust as bytes that `unpack` reads."""
        head = (_MAGIC, self.version, self.time, self.stopped, self.valid_until, self.silent_then, self.digest)
        packed = bytearray(struct.pack(_HEAD, *head, self.enrolled))
        for document in [self.root] + self.policies:
            packed += struct.pack(">I", len(document)) + document
        return packed + short_digest(packed)

    def store(self, path: str) -> None:
        """Store the trust in a file; errors as for `replace_file`."""
        replace_file(path, self.pack())


def short_digest(content: bytes | bytearray) -> bytes:
    """Return the first half of the SHA-256 of some bytes."""
    return hashlib.sha256(content).digest()[:_CHECK]


def read_file(path: str) -> bytes | None:
    """Return the content of a file, None without the file. OSError if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        if error.errno == _NOT_THERE:
            return None
        raise


def replace_file(path: str, content: bytes | bytearray) -> None:
    """Replace a file, which littlefs renames atomically. After an OSError the old file is there."""
    with open(path + ".new", "wb") as file:
        file.write(content)
    os.rename(path + ".new", path)


def load(path: str, root: bytes) -> TrustState:
    """Read the stored trust of a device enrolled with a root; without a file, make a new trust. OSError as `unpack`."""
    packed = read_file(path)
    return TrustState(root) if packed is None else unpack(packed).under(root)


def unpack(packed: bytes) -> TrustState:
    """Unpack a packed trust; OSError if it is damaged.

    No power cut damages it, and versions must not begin again, so the board stays silent.
    """
    offset, end = struct.calcsize(_HEAD), len(packed) - _CHECK
    if end < offset or short_digest(packed[:end]) != packed[end:] or packed[:4] != _MAGIC:
        raise OSError("what is kept of earlier documents is damaged: flash the board anew")
    head = struct.unpack_from(_HEAD, packed)
    documents = []
    while offset < end:
        size = struct.unpack_from(">I", packed, offset)[0]
        documents.append(packed[offset + 4 : offset + 4 + size])
        offset += 4 + size
    state = TrustState(documents[0])
    _, state.version, state.time, state.stopped, state.valid_until, silent, state.digest, state.enrolled = head
    state.silent_then = bool(silent)
    state.policies = documents[1:]
    return state
