"""A group of homes: its helper's key, its document and policies for its members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, MLKEM768X25519PublicKey, Suite

from fugu.contract.chains import BinaryChains
from fugu.contract.discretisers import Thresholds
from fugu.contract.envelope import Envelope, sign, signed_bytes
from fugu.contract.group_frames import OpeningKey, SealedMasks, header, pack_numbers
from fugu.contract.groups import GroupDocument, SharedWindow
from fugu.contract.guarantee import Guarantee
from fugu.contract.policy import Clock, Policy

HELPER = Ed25519PrivateKey.from_private_bytes(b"h" * 32)
PUBLIC = HELPER.public_key().public_bytes_raw()


def group(**changes: Any) -> GroupDocument:
    """A document of windows of ten seconds, for three honest homes and none that colludes."""
    fields: dict[str, Any] = {
        **{"fleet": "home", "name": "street", "helper": PUBLIC.hex(), "stream": "power"},
        **{"states": ("low", "high"), "count": ("high",), "epoch_us": 0, "period_us": 1_000_000},
        **{"length": 10, "honest": 3, "colluding": 0, "noise": 3_000_000_000, "deadline": 5},
    }
    return GroupDocument(**fields | changes)


def signed(document: GroupDocument, key: Ed25519PrivateKey = HELPER) -> Envelope:
    return sign("group", document.payload, [key])


def shared(**changes: Any) -> SharedWindow:
    return SharedWindow.of(signed(group(**changes)))


def member_policy(device: str, *sums: SharedWindow, version: int = 1, **changes: Any) -> Policy:
    """A policy that does nothing but report shares, with a promise that is true because it promises next to nothing."""
    first = sums[0].group
    fields: dict[str, Any] = {
        "chains": BinaryChains(q=(0.1, 0.2), r=(0.2, 0.3)),
        "guarantee": Guarantee(epsilon=50.0, adversary="informed"),
        "sums": sums,
    }
    return Policy(
        **{"fleet": first.fleet, "device": device, "stream": first.stream, "version": version},
        clock=Clock(epoch_us=first.epoch_us, period_us=first.period_us),
        discretiser=Thresholds(edges=(0.5,), states=first.states),
        **fields | changes,
    )


class Member:
    """A home that reports what it is told to; `key` is its device's."""

    def __init__(self, name: str, key: Ed25519PrivateKey | None = None) -> None:
        self.name = name
        self.key = key or Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32, b"\0"))

    @property
    def public(self) -> bytes:
        return self.key.public_key().public_bytes_raw()

    def sealed(
        self,
        opening: OpeningKey,
        document: GroupDocument,
        number: int,
        masks: Sequence[int],
        instead: Mapping[str, Any] | None = None,
    ) -> SealedMasks:
        """Masks for the helper; `instead` is what the header says otherwise, by the names of `header`."""
        fields = {"fleet": document.fleet, "device": self.name, "document_digest": document.digest}
        head = header(**{**fields, "window_number": number, "opening_key": opening.digest, **(instead or {})})
        public = MLKEM768X25519PublicKey(
            MLKEM768PublicKey.from_public_bytes(opening.key[:1184]),
            X25519PublicKey.from_public_bytes(opening.key[1184:]),
        )
        suite = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
        ciphertext = suite.encrypt(pack_numbers(masks), public, info=head)
        return self.signed(opening.digest, head, ciphertext)

    def signed(self, opening_digest: bytes, head: bytes, ciphertext: bytes) -> SealedMasks:
        """Sealed masks with a signature over a header and a ciphertext."""
        signature = self.key.sign(signed_bytes("report", head + ciphertext))
        return SealedMasks(self.name, opening_digest, self.public, ciphertext, signature)
