"""Do the symbols in a store come from the classes that their policies declare? For whoever runs the gateway.

Of each stream's year a stake of 1 is bet against the class, a 52nd part of it from each week on; what was won under one
policy is kept when the next comes. An alarm is raised where it reaches streams / rate, so that the probability of any
false alarm among all streams in a year is at most the rate. Stakes of weeks whose symbols are gone are lost with them;
a week of which some are gone is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from functools import cache
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract.chains import ChainClass
from fugu.contract.frames import SymbolFrame
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policies import read_policy
from fugu.contract.policy import Policy
from fugu.privacy.class_watch import WEEKS, Bets, noticeable, why_off
from gateway.location import Location
from gateway.store.store import Store, StoreError

__all__ = ["WatchedStream", "watch_store"]

_WEEK_US = 7 * 86_400_000_000
_LONG_GAP = 1_000


class WatchedStream(NamedTuple):
    """Result for a stream under its newest policy, and for its stored symbols.

    Attributes:
        off: why it is not watched, if it is not.
        notices: how many times less often than all chains of the class a chain changes its state that would be noticed
            in a week.
        evidence: the capital of the newest year, at its largest; `threshold` is that of an alarm.
        alarm, since: the ticks of the first alarm, exact to a frame, and the first that was looked at, or `None`.
    """

    device: str
    stream: str
    version: int
    off: str | None
    notices: float | None
    evidence: float
    threshold: float
    alarm: int | None
    since: int | None


def watch_store(location: Location, false_alarms: float) -> list[WatchedStream]:
    """Go through all symbols of a gateway's store, perhaps in shards or in use. StoreError if unreadable or a bad rate.

    `false_alarms` is the most that may be expected of a fleet in a year, all streams together.
    """
    if not 0.0 < false_alarms < 1.0:
        raise StoreError(f"a rate of false alarms is above 0 and below 1 for a fleet and year, got {false_alarms:g}")
    with closing(Store(location, create=False)) as store, store.snapshot():
        policies: dict[tuple[str, str], dict[int, Policy]] = {}
        for document in store.policy_documents():
            policy = read_policy(document.encode())
            if isinstance(policy, Policy) and policy.table is not None:
                policies.setdefault((policy.device, policy.stream), {})[policy.version] = policy
        threshold = len(policies) / false_alarms
        found = []
        for (device, stream), versions in sorted(policies.items()):
            number = store.stream_id(device, stream)
            gone = 0 if number is None else store.aged.begin(number)
            frames = store.symbols.following(number, gone) if number is not None else ()
            found.append(_watched(versions, frames, gone, threshold))
    return found


def _watched(versions: dict[int, Policy], frames: Iterable[SymbolFrame], gone: int, threshold: float) -> WatchedStream:
    newest = versions[max(versions)]
    week = max(1, _WEEK_US // newest.clock.period_us)
    off, notices = _why_off(newest), None
    if off is None and newest.table is not None:
        notices = _noticeable(newest.chains, newest.table, week, threshold)
        off = "off: with so much noise no departure would be noticed in a week" if notices is None else None
    named = newest.device, newest.stream, newest.version, off, notices
    if off is not None:
        return WatchedStream(*named, 0.0, threshold, None, None)
    year = begun = -1
    secured = evidence = 0.0
    bets: Bets | None = None
    version, after, shift, alarm, since = 0, 0, 0, None, None
    for frame in frames:
        this_week = frame.first // week
        if this_week * week < gone:
            continue
        if this_week // WEEKS != year:
            year, secured, evidence, version = this_week // WEEKS, 0.0, 0.0, 0
        if frame.policy_version != version:
            secured += bets.least if bets is not None and version else 0.0
            version = frame.policy_version
            policy = versions.get(version)
            bets = None if policy is None or _why_off(policy) else _bets(policy)
        if bets is None:
            continue
        since = frame.first if since is None else since
        if this_week != begun:
            begun = this_week
            bets.invest(1.0 / WEEKS)
        if frame.first > after + _LONG_GAP or frame.shift != shift:
            bets.forget()
        elif frame.first > after:
            bets.observe(np.full(frame.first - after, -1))
        bets.observe(np.frombuffer(frame.symbols, dtype=np.uint8).astype(np.int64))
        after, shift = frame.first + len(frame.symbols), frame.shift
        evidence = max(evidence, secured + bets.least)
        if alarm is None and evidence >= threshold:
            alarm = frame.first
    return WatchedStream(*named, evidence, threshold, alarm, since)


def _why_off(policy: Policy) -> str | None:
    if policy.missing_share:
        return "off: readings are expected to be missing, which looks like another chain"
    if policy.discretiser.kind == "baseline":
        return "off: a baseline has no states for a while after every start, which looks like another chain"
    return why_off(policy.chains, policy.guarantee.adversary)


def _bets(policy: Policy) -> Bets:
    assert policy.table is not None
    return Bets(policy.chains, _emission(policy.table))


@cache
def _noticeable(chains: ChainClass, table: NoiseTable, ticks: int, threshold: float) -> float | None:
    return noticeable(chains, _emission(table), ticks, threshold)


def _emission(table: NoiseTable) -> Floats:
    return np.array(table.weights(), dtype=np.float64) / SCALE
