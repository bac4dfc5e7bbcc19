"""The judge of documents for an agent or a board: one state machine, without any I/O.

A document is untrusted bytes until all points hold. They are checked in this order, and the first that fails is the
reason of the refusal:

1. The envelope is well-formed and of the expected kind.
2. Every signature that counts is valid and by a key that may sign this kind; the role's threshold is met.
3. The document is of this fleet and addressed to this device.
4. Its version is higher than every accepted one. The same version with the same content changes nothing; with other
content it is refused.
5. It is valid now. "Now" never goes back: it is at least the newest time that the gateway has signed.
6. Its guarantees hold when they are derived again, cover what the device's owner has pinned, and keep to the owner's
ceilings.

The gateway may also stop a device. The device then draws nothing until it accepts a policy document whose version is
above that of the stop. A stop that is sent again after such a document has no effect.

A new root document is signed by enough keys of the old root and enough of its own, and is exactly one version ahead.
Following it forgets the signed time and stops, so that a stolen gateway key does no lasting harm. The bytes inside an
envelope are parsed only after point 2. A refused document changes nothing. A board loads this module only while there
is a document to judge.
"""

import hashlib

from .messages import MessageError, Unpacker
from .trust import RefusedError, TrustState, short_digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Check = tuple[bytes, tuple[bytes, ...], bytes]
    Verify = Callable[[list[Check]], bool]
    Content = tuple[dict[str, Any], list[bytes], int]
    Judged = tuple[TrustState | None, Content | None]

__all__ = ["Envelope", "Reader", "Root", "judge", "open_envelope", "verify"]

_KINDS = ("root", "policy", "table", "time", "stop", "statement")
_ROLES = ("root", "policy", "gateway")
_MOST_KEYS = 16
_MOST_TEXT = 8192
_MOST_ITEMS = 64
_MOST_TIME = 1 << 53
_MOST_VERSION = (1 << 32) - 1


def judge(kind: str, payload: bytes, image: "Any", state: TrustState, now: int, signatures_match: "Verify") -> "Judged":
    """Judge a document where a `kind` is expected: root, policy, time or stop; RefusedError says why it is refused.

    `image` has the device's fleet, name and groups. `state` is the trust before, `now` Unix time in seconds.
    `signatures_match` tells whether signatures are valid; each is a public key, a message in parts, and a signature.
    Return the trust to store and the content of a policy document; both are None if nothing changes. The content is
    the changes of the trust, the policies for boards, and the number of all policies: `fugu.core.derived` decides
    point 6 before they are stored.
    """
    if kind == "root":
        return _follow_roots(payload, state, signatures_match), None
    envelope = open_envelope(kind, payload, state, signatures_match)
    if kind == "policy":
        return None, _judge_policy(envelope, image, state, now)
    if kind == "stop":
        return _judge_stop(envelope, image, state), None
    return _judge_time(envelope, image, state), None


def open_envelope(kind: str, payload: bytes, state: TrustState, signatures_match: "Verify") -> "Envelope":
    """Parse the envelope of a document of a kind and check its signatures; the content is not read."""
    root = Root(state.root)
    envelope = Envelope(payload)
    if envelope.kind != kind:
        raise RefusedError("malformed", "a %s document where a %s document was expected" % (envelope.kind, kind))
    verify(envelope, root, "policy" if kind == "policy" else "gateway", signatures_match)
    return envelope


class Reader(Unpacker):
    """Reads or skips msgpack values of all forms but fractions."""

    def map(self, max_size: int) -> int:
        """Read the head of a map. Return the number of pairs that follow."""
        return self._length("a map", max_size, 0x80, 15, {0xDE: 2})

    def value(self) -> "Any":
        """Read the next value."""
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
        fields = {}
        for _ in range(self.map(0xFFFF)):
            name = self.text(64)
            if name in fields:
                raise MessageError("a field twice")
            fields[name] = self.value()
        return fields

    def skip(self) -> None:
        """Skip the next value, of any form."""
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
    """A signed payload of some kind, schema 10: `signatures` by the name of the key."""

    def __init__(self, payload: bytes) -> None:
        try:
            reader = Unpacker(payload, b"\x0a")
            reader.row(3, "another number of fields")
            self.kind = reader.text(16)
            if self.kind not in _KINDS:
                raise MessageError("an unknown kind")
            self.payload = reader.binary(len(payload))
            if not self.payload:
                raise MessageError("nothing in it")
            self.signatures = {}
            signature_count = reader.array(_MOST_KEYS)
            for _ in range(signature_count):
                reader.row(2, "a signature of another form")
                name, signature = reader.binary(16), reader.binary(64)
                if len(name) != 16 or len(signature) != 64:
                    raise MessageError("a signature of another length")
                self.signatures[name] = signature
            if len(self.signatures) != signature_count:
                raise MessageError("two signatures of one key")
            reader.end()
        except MessageError as error:
            raise RefusedError("malformed", "no envelope: %s" % error) from None

    @property
    def message(self) -> tuple[bytes, ...]:
        """The signed bytes, in parts."""
        return b"fugu-edge/2/", self.kind.encode(), b"\0", self.payload

    @property
    def digest(self) -> bytes:
        """SHA-256 of the signed bytes, without the signatures."""
        digest = hashlib.sha256()
        for part in self.message:
            digest.update(part)
        return digest.digest()


class Root:
    """A root document: public keys by name, and for each role the names of its keys and how many have to sign."""

    def __init__(self, payload: bytes) -> None:
        fields = _read_fields("root", payload, ("fleet", "version", "keys") + _ROLES)
        self.fleet, self.version, self.keys = fields["fleet"], fields["version"], {}
        roles, signers = {}, []
        try:
            if len(self.fleet.encode()) > 64:  # a refusal names it, and a board's status has no room for more
                raise ValueError("a fleet of another form")
            for name in fields["keys"]:
                key = bytes.fromhex(fields["keys"][name])
                if len(key) != 32 or short_digest(key) != bytes.fromhex(name):
                    raise ValueError("a key of another name")
                self.keys[bytes.fromhex(name)] = key
            for role in _ROLES:
                rule = fields[role]
                if set(rule) != {"keys", "threshold"} or not 1 <= rule["threshold"] <= len(rule["keys"]) <= _MOST_KEYS:
                    raise ValueError("a role of another form")
                roles[role] = [bytes.fromhex(name) for name in rule["keys"]], rule["threshold"]
                signers += roles[role][0]
        except (ValueError, TypeError, IndexError, AttributeError):
            raise RefusedError("malformed", "a signed root document is malformed") from None
        if len(signers) != len(set(signers)) or set(signers) != set(self.keys):
            raise RefusedError("malformed", "a signed root document is malformed: every key has one role")
        self.roles = roles


def verify(envelope: Envelope, root: Root, role: str, signatures_match: "Verify") -> None:
    """Refuse an envelope unless enough keys of a role have signed it, all of them validly; other keys do not count."""
    names, threshold = root.roles[role]
    signers = [name for name in envelope.signatures if name in names]
    if not signers:
        raise RefusedError("wrong_role", "no key that may sign a %s document has signed it" % envelope.kind)
    message = envelope.message
    if not signatures_match([(root.keys[name], message, envelope.signatures[name]) for name in signers]):
        raise RefusedError("bad_signature", "a signature does not match the document")
    if len(signers) < threshold:
        raise RefusedError("threshold", "%d of the %d signatures that are needed" % (len(signers), threshold))


def _read_fields(kind: str, payload: bytes, names: tuple[str, ...]) -> "dict[str, Any]":
    """Read the fields of a signed document; `policies` and `compiled` are only counted."""
    reader = Reader(payload)
    fields: dict[str, Any] = {}
    try:
        for _ in range(reader.map(15)):
            name = reader.text(32)
            if name in fields or name not in names + ("document",):
                raise MessageError("a field that is not known, or twice")
            if name in ("policies", "compiled"):
                fields[name] = reader.array(64)
                for _ in range(fields[name]):
                    reader.skip()
            else:
                fields[name] = reader.value()
        reader.end()
        if len(fields) != len(names) + 1 or fields["document"] != kind:
            raise MessageError("a field is missing, or it is of another kind")
        if "version" in fields and not _is_integer(fields["version"], 1, _MOST_VERSION):
            raise MessageError("a version that is none")
    except (MessageError, TypeError, RuntimeError) as error:  # a runtime error is one of too many levels
        raise RefusedError("malformed", "a signed %s document is malformed: %s" % (kind, error)) from None
    return fields


def _is_integer(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _follow_roots(payload: bytes, state: TrustState, signatures_match: "Verify") -> TrustState | None:
    """Follow a chain of root documents, schema 12, from the root in force. Return the new trust, None if unchanged."""
    try:
        reader = Unpacker(payload, b"\x0c")
        reader.row(1, "another schema")
        root_count = reader.array(256)
        if not root_count:
            raise MessageError("none at all")
        begin, remaining = reader.at, root_count
        for index in range(root_count):
            if Envelope(reader.binary(len(payload))).payload == state.root:  # roots up to this one were followed before
                begin, remaining = reader.at, root_count - index - 1
        reader.end()
    except MessageError as error:
        raise RefusedError("malformed", "no root documents: %s" % error) from None
    reader.at = begin
    refusal = new_state = last_root = None
    for _ in range(remaining):
        envelope = Envelope(reader.binary(len(payload)))
        if envelope.kind != "root":
            raise RefusedError("malformed", "a %s document among root documents" % envelope.kind)
        last_root = envelope.payload
        try:
            new_state = _next_root(envelope, new_state or state, signatures_match)
        except RefusedError as error:  # a root before the one in force; an error if no later root follows
            refusal = error
    if refusal is not None and last_root != (new_state or state).root:
        raise refusal
    return new_state


def _next_root(envelope: Envelope, state: TrustState, signatures_match: "Verify") -> TrustState:
    """Return the trust under the next root. RefusedError unless the old and the new root's keys have signed it."""
    roots = []
    for payload, signers in ((state.root, "the one in force has"), (envelope.payload, "its own keys have")):
        roots.append(Root(payload))
        try:
            verify(envelope, roots[-1], "root", signatures_match)
        except RefusedError as error:
            raise RefusedError("root", "a new root that %s not signed: %s" % (signers, error.detail)) from None
    old_root, new_root = roots
    if new_root.fleet != old_root.fleet:
        raise RefusedError("not_addressed", "the root of fleet %s" % new_root.fleet)
    if new_root.version < old_root.version:
        raise RefusedError("replayed", "root version %d; %d is in force" % (new_root.version, old_root.version))
    if new_root.version == old_root.version:
        raise RefusedError("same_version", "another root of version %d" % new_root.version)
    if new_root.version != old_root.version + 1:
        raise RefusedError("root", "root version %d does not follow version %d" % (new_root.version, old_root.version))
    return state.with_changes(root=envelope.payload, time=0, stopped=0)


def _judge_policy(envelope: Envelope, image: "Any", state: TrustState, now: int) -> "Content | None":
    """Judge a policy document by points 3 to 5 of its rules. Return its content, None if it was accepted before."""
    field_names = ("fleet", "version", "to", "valid_from", "valid_until", "on_expiry", "policies", "compiled", "boards")
    fields = _read_fields("policy", envelope.payload, field_names)
    version, begin, end, to = fields["version"], fields["valid_from"], fields["valid_until"], fields["to"]
    board_policies = fields["boards"]
    if not (
        _is_integer(begin, 0, _MOST_TIME)
        and (end is None or _is_integer(end, begin + 1, _MOST_TIME))
        and fields["on_expiry"] in ("hold", "stop")
        and isinstance(to, dict)
        and len([name for name in to if to[name] is not None]) == 1
        and isinstance(board_policies, list)
        and all(isinstance(policy, bytes) for policy in board_policies)
    ):
        raise RefusedError("malformed", "a signed policy document is malformed")
    is_addressed = to.get("everyone") is True or to.get("device") == image.DEVICE or to.get("group") in image.GROUPS
    if fields["fleet"] != image.FLEET or not is_addressed:
        raise RefusedError("not_addressed", "a document for somebody else")
    last_version = max(state.version, image.VERSION)
    if version < last_version:
        raise RefusedError("replayed", "version %d; version %d has been accepted before" % (version, last_version))
    if version == state.version:
        if envelope.digest != state.digest:
            raise RefusedError("same_version", "version %d has been accepted before, with other content" % version)
        return None
    newest_time = max(now, state.time)
    if newest_time < begin:
        raise RefusedError("not_yet_valid", "version %d is valid from %d on" % (version, begin))
    if end is not None and newest_time >= end:
        raise RefusedError("expired", "version %d was valid until %d" % (version, end))
    silent = fields["on_expiry"] == "stop"
    changes = {"version": version, "digest": envelope.digest, "valid_until": end or 0, "silent_then": silent}
    return changes, board_policies, fields["policies"]


def _judge_stop(envelope: Envelope, image: "Any", state: TrustState) -> TrustState | None:
    """Judge a stop. Return the stopped trust, None if a newer document or stop is in force."""
    fields = _read_fields("stop", envelope.payload, ("fleet", "device", "version"))
    if fields["fleet"] != image.FLEET or fields["device"] != image.DEVICE:
        raise RefusedError("not_addressed", "a stop for somebody else")
    if fields["version"] < max(state.version, state.stopped + 1):
        return None
    return state.with_changes(stopped=fields["version"])


def _judge_time(envelope: Envelope, image: "Any", state: TrustState) -> TrustState | None:
    """Judge a signed time. Return the trust with the newer time, None if the time is the same."""
    fields = _read_fields("time", envelope.payload, ("fleet", "time"))
    if fields["fleet"] != image.FLEET:
        raise RefusedError("not_addressed", "the time of another fleet")
    if not _is_integer(fields["time"], 0, _MOST_TIME):
        raise RefusedError("malformed", "a time that is none")
    if fields["time"] < state.time:
        raise RefusedError("replayed", "the time %d; %d has been before" % (fields["time"], state.time))
    return state.with_changes(time=fields["time"]) if fields["time"] > state.time else None
