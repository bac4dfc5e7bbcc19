"""Signed documents in an order of their own, and the digest of a device's verdicts on them.

Keys, documents, forgeries and clocks come from SHA-256 of the names, so that they are the same everywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.compiler import compile_board_policy, compile_policy
from fugu.contract.discretisers import Thresholds
from fugu.contract.envelope import Envelope, Signature, encode_roots
from fugu.contract.errors import TrustError
from fugu.contract.fleet_documents import Address, Enrolment, PolicyDocument, compile_for_boards
from fugu.contract.guarantee import Guarantee
from fugu.contract.noise_table import NoiseTable
from fugu.contract.pins import pins_of
from fugu.contract.policy import Clock
from fugu.contract.trust import Trust
from fugu.contract.windows import Window
from tests.support.board_policies import board_policy, quick
from tests.support.device_source import Source
from tests.support.signing import NOW, Keys, policy_document

__all__ = [
    "DOCUMENTS",
    "FEW_DOCUMENTS",
    "MANY_DOCUMENTS",
    "OWN",
    "Sent",
    "enrolment",
    "sent",
    "verdicts",
    "verdicts_digest",
]

DOCUMENTS = "documents, pins and ceilings"
FEW_DOCUMENTS, MANY_DOCUMENTS = 70, 2000
HOUR = Window(name="hour", length=600, stride=600, states=(1,), scale="40")
OWN = quick(board_policy(HOUR))
"""The policy that the device runs at first, and whose fields are pinned."""


class Sent(NamedTuple):
    """A message to a device, and what its clock says, in Unix seconds."""

    kind: str
    now: int
    payload: bytes


def _keys(name: str) -> Keys:
    source = Source(f"keys of {name}")
    return Keys(*([Ed25519PrivateKey.from_private_bytes(source.take(32)) for _ in range(n)] for n in (3, 3, 1)))


def enrolment() -> Enrolment:
    """Enrolment of the device: its owner accepts epsilon 4 of a tick, and has pinned its policy."""
    return _keys("first").enrolment(ceiling=4.0, pins={OWN.stream: pins_of(OWN)})


POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {"frame_ticks": 20},
    {"table": NoiseTable.binary(1_600_000_000, 1_600_000_000)},
    {"windows": ()} | {"windows_guarantee": None},
    {"windows": (HOUR.model_copy(update={"scale": "60"}),)},
    # what its owner has pinned
    {"clock": Clock(epoch_us=0, period_us=500_000)},
    {"discretiser": Thresholds(edges=(80.0,), states=("low", "high"))},
    {"chains": BoundedChains(states=2, odds_ratio=1.4)},
    {"chains": BinaryChains(q=(0.2, 0.3), r=(0.3, 0.4))},
    {"guarantee": Guarantee(epsilon=4.0, adversary="informed")},
    {"windows": (HOUR.model_copy(update={"scale": "10"}),)},
    # above the ceiling, and below what is true
    {"guarantee": Guarantee(epsilon=4.1, adversary="universal")},
    {"guarantee": Guarantee(epsilon=0.5, adversary="universal")},
    {"windows_guarantee": Guarantee(epsilon=0.001, adversary="universal")},
    {"table": NoiseTable.binary(1000, 1000)},
)
_FIELDS: tuple[dict[str, Any], ...] = (
    *[{}] * 8,
    {"to": Address(device="ring")},
    {"to": Address(group="wrists")},
    {"to": Address(group="ankles")},
    {"to": Address(everyone=True)},
    {"fleet": "away"},
    {"valid_from": NOW + 50},
    {"valid_until": NOW + 20, "on_expiry": "stop"},
)


class _Operator:
    """Sender of the documents: versions, roots and the clock, as far as they have come."""

    def __init__(self) -> None:
        self.source = Source(DOCUMENTS)
        self.keys = [_keys("first")]
        self.roots = [self.keys[0].root_envelope()]
        self.version, self.now, self.time = 1, NOW, NOW
        self.past: list[Sent] = []

    def message(self) -> Sent:
        """The next message: a new one, one of before, or one that somebody has changed."""
        source = self.source
        self.now += source.below(3)
        if self.past and not source.below(6):
            return source.among(self.past[-20:])._replace(now=self.now)
        kind = source.among(("policy",) * 12 + ("time", "time", "stop", "root"))
        sent = Sent(kind, self.now, getattr(self, f"_{kind}")())
        self.past.append(sent)
        if source.below(12):
            return sent
        return sent._replace(payload=self._changed(sent.payload))

    def _changed(self, payload: bytes) -> bytes:
        at = self.source.below(len(payload))
        flipped = payload[:at] + bytes([payload[at] ^ (1 << self.source.below(8))]) + payload[at + 1 :]
        return self.source.among((flipped, payload[:at], payload + b"\0", b""))

    def _policy(self) -> bytes:
        source = self.source
        self.version += source.among((0, 1, 1, 1, 3))
        version = max(1, self.version - source.among((0, 0, 0, 0, 0, 1)))
        changes, fields = source.among((*POLICIES[:5] * 2, *POLICIES)), source.among(_FIELDS)
        policy = OWN.model_copy(update={"version": version, **changes})
        document = compile_for_boards(policy_document(policy, version=version, **fields), {})
        if not changes and not source.below(5):  # bytes of a later version
            other = policy.model_copy(update={"version": version + 1})
            forms = {"compiled": (compile_policy(other).hex(),), "boards": (compile_board_policy(other).hex(),)}
            document = document.model_copy(update=forms)
        return self._signed(document).encode()

    def _signed(self, document: PolicyDocument) -> Envelope:
        keys = self.keys[-1]
        signers = self.source.among(
            (*[keys.policy[:2]] * 9, keys.policy[1:], keys.policy, keys.policy[:1], keys.root[:2], self.keys[0].policy)
        )
        envelope = keys.envelope(document, signers)
        if self.source.below(15):
            return envelope
        first, *others = envelope.signatures
        return replace(envelope, signatures=(Signature(first.key, bytes(64)), *others))

    def _time(self) -> bytes:
        self.time += self.source.among((0, 5, 60, -1))
        return self._gateway().signed_time(self.time, self.source.among(("home",) * 9 + ("away",)))

    def _stop(self) -> bytes:
        version = max(1, self.version - self.source.among((0, 1, 2)))
        return self._gateway().signed_stop(version, self.source.among(("watch",) * 7 + ("ring",)))

    def _gateway(self) -> Keys:
        return self.source.among((*[self.keys[-1]] * 7, self.keys[0]))

    def _root(self) -> bytes:
        number = len(self.roots) + 1
        if number < 6 and self.source.below(2):
            following = _keys(f"root {number}")
            self.roots.append(following.root_envelope(number, *self.keys[-1].root[:2]))
            self.keys.append(following)
            return encode_roots(self.roots)
        stranger = _keys("stranger")
        return encode_roots(self.source.among((self.roots, self.roots[-1:], [stranger.root_envelope(number)])))


def sent(count: int) -> Iterator[Sent]:
    operator = _Operator()
    return islice(iter(operator.message, None), count)


def verdicts(count: int) -> Iterator[str]:
    """An agent's word on each: why it is refused, and where it stands then."""
    trust = Trust(enrolment())
    for kind, now, payload in sent(count):
        reason = "accepted"
        try:
            trust.judge(payload, kind, now)
        except TrustError as error:
            reason = error.reason
        state = trust.state
        root = hashlib.sha256(state.root).hexdigest()[:8]
        yield f"{kind} {reason} {state.version} {state.time} {state.stopped} {root}"


def verdicts_digest(lines: Iterator[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()[:32]
