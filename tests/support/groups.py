"""A group of homes: its helper's key, its document and policies for its members."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fugu.contract.chains import BinaryChains
from fugu.contract.discretisers import Thresholds
from fugu.contract.envelope import Envelope, sign
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
    """A document in its envelope."""
    return sign("group", document.payload, [key])


def shared(**changes: Any) -> SharedWindow:
    """The window of a policy for a document."""
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
