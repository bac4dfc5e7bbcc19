"""The judge of documents for an agent or a board: one state machine, without any I/O.

A document is untrusted bytes until all of this holds, checked in this order; the first that fails is the reason:

1. the envelope is well-formed, and of a kind that is expected;
2. every signature that counts is of a key that may sign this kind, and valid; the role's threshold is met;
3. it is this fleet's, and addressed to this device;
4. its version is higher than any that was ever accepted; the same version with the same content changes nothing, and
with other content is refused;
5. it is valid now. "Now" never goes back: it is at least the newest time that the gateway has signed;
6. its guarantees, derived anew, hold, are about what the device's owner has pinned, and keep to the owner's ceilings.

The gateway may also stop a device: nothing is drawn until a policy document is accepted that is newer than the stop
says. A stop that is sent again after such a document says nothing any more.

A new root document is signed by enough keys of the old root and enough of its own, and is exactly one version ahead. It
also forgets the signed time and stops, so that a stolen gateway key does no lasting harm. The bytes inside an envelope
are parsed only after point 2. Whatever is refused changes nothing. A board loads this only while there is something to
judge, one part after the other.
"""

import hashlib

from .messages import MessageError, Unpacker
from .trust import RefusedError, TrustState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    Check = tuple[bytes, tuple[bytes, ...], bytes]
    Verify = Callable[[list[Check]], bool]
    Content = tuple[dict[str, Any], list[bytes], int]
    Judged = tuple[TrustState | None, Content | None]

__all__ = ["Envelope", "Reader", "Root", "judge", "opened", "verify"]

_KINDS = ("root", "policy", "table", "time", "stop", "statement")
_ROLES = ("root", "policy", "gateway")
_MOST_KEYS = 16
_MOST_TEXT = 8192
_MOST_ITEMS = 64
_MOST_TIME = 1 << 53
_MOST_VERSION = (1 << 32) - 1


def judge(kind: str, payload: bytes, image: "Any", trusted: TrustState, now: int, verified: "Verify") -> "Judged":
    """Judge what has arrived where a `kind` is expected: root, policy, time or stop; `now` is Unix time in seconds.

    `image` is burnt in, or of an enrolment: whose device it is. `trusted` was accepted before; `verified` says whether
    signatures are right, of each the public key, the message in parts, and the signature. It returns what is to be
    stored, None if this changes nothing. Of a policy document it returns instead what is to change, the policies for
    boards, and how many there are for agents: point 6 is decided by `fugu.core.derived`. RefusedError says why not.
    """
    if kind == "root":
        return _follow(payload, trusted, verified), None
    envelope = opened(kind, payload, trusted, verified)
    if kind == "policy":
        return None, _policy(envelope, image, trusted, now)
    if kind == "stop":
        return _stop(envelope, image, trusted), None
    return _time(envelope, image, trusted), None


def opened(kind: str, payload: bytes, trusted: TrustState, verified: "Verify") -> "Envelope":
    """The envelope of a document of a kind, signed by those who may; its content has not been read."""
    root = Root(trusted.root)
    envelope = Envelope(payload)
    if envelope.kind != kind:
        raise RefusedError("malformed", "a %s document where a %s document was expected" % (envelope.kind, kind))
    verify(envelope, root.keys, root.roles["policy" if kind == "policy" else "gateway"], verified)
    return envelope


class Reader(Unpacker):
    """Reads values of any form but fractions, or leaves them out."""

    def map(self, max_pairs: int) -> int:
        """How many pairs follow."""
        code = self.take(1)[0]
        if code & 0xF0 != 0x80:
            raise MessageError("no map, or a large one")
        if code & 15 > max_pairs:
            raise MessageError("a map is too long")
        return code & 15

    def value(self) -> "Any":
        """The next value."""
        code = self.take(1)[0]
        if code in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[code]
        self.at -= 1
        if code & 0xE0 == 0xA0 or code in (0xD9, 0xDA):
            return self.text(_MOST_TEXT)
        if code & 0xF0 == 0x90 or code == 0xDC:
            return [self.value() for _ in range(self.array(_MOST_ITEMS))]
        if code in (0xC4, 0xC5):
            return self.binary(_MOST_TEXT)
        if code & 0xF0 != 0x80 and code != 0xDE:
            return self.number(-1 << 63, (1 << 64) - 1)
        self.take(1)
        values, count = {}, int.from_bytes(self.take(2), "big") if code == 0xDE else code & 15
        for _ in range(count):
            name = self.text(64)
            if name in values:
                raise MessageError("a field twice")
            values[name] = self.value()
        return values

    def skip(self) -> None:
        """Leave a value out, whatever it is."""
        remaining = 1
        while remaining:
            remaining -= 1
            code = self.take(1)[0]
            if code < 0x80 or code >= 0xE0 or code in (0xC0, 0xC2, 0xC3):
                continue
            if code < 0x90:
                remaining += 2 * (code & 15)
            elif code < 0xA0:
                remaining += code & 15
            elif code < 0xC0:
                self.take(code & 31)
            elif 0xC4 <= code <= 0xC6 or 0xD9 <= code <= 0xDB:
                self.take(int.from_bytes(self.take(1 << (code - 0xC4 if code < 0xC7 else code - 0xD9)), "big"))
            elif 0xCA <= code <= 0xD3:
                self.take((4, 8, 1, 2, 4, 8, 1, 2, 4, 8)[code - 0xCA])
            elif 0xDC <= code <= 0xDF:
                size = int.from_bytes(self.take(4 if code & 1 else 2), "big")
                remaining += size if code < 0xDE else 2 * size
            else:
                raise MessageError("a form that is not known")


class Envelope:
    """Bytes that somebody has signed, schema 10."""

    def __init__(self, payload: bytes) -> None:
        try:
            if payload[:1] != b"\x0a":
                raise MessageError("another schema")
            fields = Unpacker(payload, 1)
            if fields.array(3) != 3:
                raise MessageError("another number of fields")
            self.kind = fields.text(16)
            if self.kind not in _KINDS:
                raise MessageError("an unknown kind")
            self.payload = fields.binary(len(payload))
            if not self.payload:
                raise MessageError("nothing in it")
            self.signatures = {}
            count = fields.array(_MOST_KEYS)
            for _ in range(count):
                if fields.array(2) != 2:
                    raise MessageError("a signature of another form")
                name, signature = fields.binary(16), fields.binary(64)
                if len(name) != 16 or len(signature) != 64:
                    raise MessageError("a signature of another length")
                self.signatures[name] = signature
            if len(self.signatures) != count:
                raise MessageError("two signatures of one key")
            if fields.at != len(payload):
                raise MessageError("bytes follow the end")
        except MessageError as error:
            raise RefusedError("malformed", "no envelope: %s" % error) from None

    @property
    def message(self) -> tuple[bytes, ...]:
        """The signed bytes, in parts."""
        return b"fugu-edge/2/", self.kind.encode(), b"\0", self.payload

    @property
    def digest(self) -> bytes:
        """Digest of the content, without its signatures."""
        digest = hashlib.sha256()
        for part in self.message:
            digest.update(part)
        return digest.digest()


class Root:
    """A root document: public keys by name, and of each role the names of its keys and how many have to sign."""

    def __init__(self, payload: bytes) -> None:
        values = _document("root", payload, ("fleet", "version", "keys") + _ROLES)
        self.fleet, self.version, self.keys = values["fleet"], values["version"], {}
        roles, names = {}, []
        try:
            for name in values["keys"]:
                public = bytes.fromhex(values["keys"][name])
                if len(public) != 32 or hashlib.sha256(public).digest()[:16] != bytes.fromhex(name):
                    raise ValueError("a key of another name")
                self.keys[bytes.fromhex(name)] = public
            for role in _ROLES:
                signers = values[role]
                if (
                    set(signers) != {"keys", "threshold"}
                    or not 1 <= signers["threshold"] <= len(signers["keys"]) <= _MOST_KEYS
                ):
                    raise ValueError("a role of another form")
                roles[role] = [bytes.fromhex(name) for name in signers["keys"]], signers["threshold"]
                names += roles[role][0]
        except (ValueError, TypeError):
            raise RefusedError("malformed", "a signed root document is malformed") from None
        if len(names) != len(set(names)) or set(names) != set(self.keys):
            raise RefusedError("malformed", "a signed root document is malformed: every key has one role")
        self.roles = roles


def verify(
    envelope: Envelope, keys: dict[bytes, bytes], role: "tuple[Collection[bytes], int]", verified: "Verify"
) -> None:
    """Refuse an envelope unless enough of a role's keys have signed it, each of them validly; others do not count.

    A role is the names of its keys, and how many of them it takes.
    """
    names, threshold = role
    claimed = [name for name in envelope.signatures if name in names]
    if not claimed:
        raise RefusedError("wrong_role", "no key that may sign a %s document has signed it" % envelope.kind)
    message = envelope.message
    if not verified([(keys[name], message, envelope.signatures[name]) for name in claimed]):
        raise RefusedError("bad_signature", "a signature does not match the document")
    if len(claimed) < threshold:
        raise RefusedError("threshold", "%d of the %d signatures that are needed" % (len(claimed), threshold))


def _document(kind: str, payload: bytes, names: tuple[str, ...]) -> "dict[str, Any]":
    """The fields of a signed document; of policies in forms that are not read here, how many there are."""
    fields = Reader(payload)
    values: dict[str, Any] = {}
    try:
        for _ in range(fields.map(16)):
            name = fields.text(32)
            if name in values or name not in names + ("document",):
                raise MessageError("a field that is not known, or twice")
            if name in ("policies", "compiled"):
                values[name] = fields.array(64)
                for _ in range(values[name]):
                    fields.skip()
            else:
                values[name] = fields.value()
        if fields.at != len(payload):
            raise MessageError("bytes follow the end")
        if len(values) != len(names) + 1 or values["document"] != kind:
            raise MessageError("a field is missing, or it is of another kind")
        if "version" in values and not _is_integer(values["version"], 1, _MOST_VERSION):
            raise MessageError("a version that is none")
    except (MessageError, TypeError, RuntimeError) as error:  # a runtime error is one of too many levels
        raise RefusedError("malformed", "a signed %s document is malformed: %s" % (kind, error)) from None
    return values


def _all_bytes(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, bytes) for value in values)


def _is_integer(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _follow(payload: bytes, trusted: TrustState, verified: "Verify") -> TrustState | None:
    """Follow a chain of roots, schema 12, as far as it goes beyond the one in force."""
    fields = Unpacker(payload, 1)
    try:
        if payload[:1] != b"\x0c" or fields.array(1) != 1:
            raise MessageError("another schema")
        count = fields.array(256)
        if not count:
            raise MessageError("none at all")
        begin, remaining = fields.at, count
        for i in range(count):
            if Envelope(fields.binary(len(payload))).payload == trusted.root:  # those before have been followed
                begin, remaining = fields.at, count - i - 1
        if fields.at != len(payload):
            raise MessageError("bytes follow the end")
    except MessageError as error:
        raise RefusedError("malformed", "no root documents: %s" % error) from None
    fields.at = begin
    refusal = updated = last = None
    for _ in range(remaining):
        envelope = Envelope(fields.binary(len(payload)))
        if envelope.kind != "root":
            raise RefusedError("malformed", "a %s document among root documents" % envelope.kind)
        last = envelope.payload
        try:
            next_trust = _next_root(envelope, updated or trusted, verified)
        except RefusedError as error:  # one from before ours, unless none after it follows either
            refusal = error
        else:
            updated = next_trust
    if refusal is not None and last != (updated or trusted).root:
        raise refusal
    return updated


def _next_root(envelope: Envelope, trusted: TrustState, verified: "Verify") -> TrustState:
    current = Root(trusted.root)
    try:
        verify(envelope, current.keys, current.roles["root"], verified)
    except RefusedError as error:
        raise RefusedError("root", "a new root that the one in force has not signed: %s" % error.detail) from None
    root = Root(envelope.payload)
    try:
        verify(envelope, root.keys, root.roles["root"], verified)
    except RefusedError as error:
        raise RefusedError("root", "a new root that its own keys have not signed: %s" % error.detail) from None
    if root.fleet != current.fleet:
        raise RefusedError("not_addressed", "the root of fleet %s" % root.fleet)
    if root.version < current.version:
        raise RefusedError("replayed", "root version %d; %d is in force" % (root.version, current.version))
    if root.version == current.version:
        raise RefusedError("same_version", "another root of version %d" % root.version)
    if root.version != current.version + 1:
        raise RefusedError("root", "root version %d does not follow version %d" % (root.version, current.version))
    return trusted.with_changes(root=envelope.payload, time=0, stopped=0)


def _policy(envelope: Envelope, image: "Any", trusted: TrustState, now: int) -> "Content | None":
    names = ("fleet", "version", "to", "valid_from", "valid_until", "on_expiry", "policies", "compiled", "boards")
    values = _document("policy", envelope.payload, names)
    version, begin, end, to = values["version"], values["valid_from"], values["valid_until"], values["to"]
    is_well_formed = _is_integer(begin, 0, _MOST_TIME) and (end is None or _is_integer(end, begin + 1, _MOST_TIME))
    is_well_formed = is_well_formed and values["on_expiry"] in ("hold", "stop") and isinstance(to, dict)
    if (
        not is_well_formed
        or len([name for name in to if to[name] is not None]) != 1
        or not _all_bytes(values["boards"])
    ):
        raise RefusedError("malformed", "a signed policy document is malformed")
    is_addressed = to.get("everyone") is True or to.get("device") == image.DEVICE or to.get("group") in image.GROUPS
    if values["fleet"] != image.FLEET or not is_addressed:
        raise RefusedError("not_addressed", "a document for somebody else")
    newest = max(trusted.version, image.VERSION)
    if version < newest:
        raise RefusedError("replayed", "version %d; version %d has been accepted before" % (version, newest))
    if version == trusted.version:
        if envelope.digest != trusted.digest:
            raise RefusedError("same_version", "version %d has been accepted before, with other content" % version)
        return None
    moment = max(now, trusted.time)
    if moment < begin:
        raise RefusedError("not_yet_valid", "version %d is valid from %d on" % (version, begin))
    if end is not None and moment >= end:
        raise RefusedError("expired", "version %d was valid until %d" % (version, end))
    silent = values["on_expiry"] == "stop"
    changes = {"version": version, "digest": envelope.digest, "valid_until": end or 0, "silent_then": silent}
    return changes, values["boards"], values["policies"]


def _stop(envelope: Envelope, image: "Any", trusted: TrustState) -> TrustState | None:
    values = _document("stop", envelope.payload, ("fleet", "device", "version"))
    if values["fleet"] != image.FLEET or values["device"] != image.DEVICE:
        raise RefusedError("not_addressed", "a stop for somebody else")
    if values["version"] < max(trusted.version, trusted.stopped + 1):
        return None
    return trusted.with_changes(stopped=values["version"])


def _time(envelope: Envelope, image: "Any", trusted: TrustState) -> TrustState | None:
    values = _document("time", envelope.payload, ("fleet", "time"))
    if values["fleet"] != image.FLEET:
        raise RefusedError("not_addressed", "the time of another fleet")
    if not _is_integer(values["time"], 0, _MOST_TIME):
        raise RefusedError("malformed", "a time that is none")
    if values["time"] < trusted.time:
        raise RefusedError("replayed", "the time %d; %d has been before" % (values["time"], trusted.time))
    return trusted.with_changes(time=values["time"]) if values["time"] > trusted.time else None
