"""Ledgers and releases that the tests share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from fugu.contract.chains import BoundedChains
from fugu.contract.windows import Mechanism
from fugu.privacy.chain_class import ReleaseClass
from gateway.releases.audit import Audit, TrustedPolicies, replay_ledger
from gateway.releases.entries import AccountKey, Allowance, Content, Entry, Promise, Release
from gateway.releases.ledger import Ledger
from gateway.store.location import Location

ALLOWED = 300_000_000_000
"""0.3 nats."""
PROMISE = Promise(1.0, "informed")
FREE = (BoundedChains(states=2, odds_ratio=1.0),)
"""Readings that do not depend on each other: a tick may be told as much as is promised, by the chain accountant."""


def key(device: str = "watch", stream: str = "hr", audience: str = "public") -> AccountKey:
    return AccountKey(device, stream, audience)


def allow(
    ledger: Ledger,
    *devices: str,
    allowance: int = ALLOWED,
    base: int = 0,
    streams: Sequence[str] = ("hr",),
    audiences: Sequence[str] = ("public",),
    promise: Promise = PROMISE,
    mechanism: Mechanism = "chain",
    chains: tuple[ReleaseClass, ...] = FREE,
    time_us: int = 1,
) -> None:
    """Open or change the accounts of devices, `watch` if none is named."""
    accounts = [
        Allowance(AccountKey(*of), allowance, base, promise, 10**6, mechanism, chains)
        for of in product(devices or ("watch",), streams, audiences)
    ]
    ledger.set_allowances(accounts, time_us=time_us)


def open_ledger(location: Location, *devices: str, allowance: int = ALLOWED, base: int = 0) -> Ledger:
    """A ledger with an account for each device, `watch` if none is named."""
    ledger = Ledger(location)
    allow(ledger, *devices, allowance=allowance, base=base)
    return ledger


def release(first: int, last: int, charge: int = ALLOWED, *devices: str, **more: object) -> Release:
    """A release over some ticks, of `watch` if no device is named."""
    audience = more.get("audience", "public")
    fields: dict[str, object] = {
        **{"name": "count", "audience": audience, "stream": "hr", "first": first, "last": last},
        **{"charges": dict.fromkeys(devices or ("watch",), charge), "mechanism": "chain", "noise": "discrete-laplace"},
        **{"scale": "20", "since_us": first * 10**6},
        **{"topic": f"fugu/2/home/release/{audience}/count", **more},
    }
    return Release(**fields)


def charges_replayed(ledger: Ledger, published: Mapping[int, bytes] | None = None) -> Audit:
    """Findings of an audit about charges; these releases have no sums that they could be computed from."""
    with ledger.snapshot() as rows:
        return replay_ledger(rows, published or {}, TrustedPolicies())


def reserve(ledger: Ledger, release: Release, payload: bytes = b"\0payload", progress: int | None = None) -> Entry:
    """Reserve a release at a fixed time."""
    return ledger.reserve(release, lambda _: drawn(payload), time_us=5, progress=progress)


def drawn(payload: bytes) -> Content:
    """The charges of a ledger add up, whichever they were: no question has asked for that."""
    return Content(payload, b"{}", b"{}")


def inputs_of(ledger: Ledger) -> dict[int, dict[str, Any]]:
    """By entry, the sums that a release was computed from, and the noise."""
    with ledger.snapshot() as rows:
        return {row["number"]: json.loads(row["inputs"]) for row in rows.entries()}
