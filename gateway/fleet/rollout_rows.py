"""The rows of rollouts in the registry's file; each method is part of a transaction or a snapshot of the registry."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gateway.fleet.plan import RolloutPlan
from gateway.fleet.rollout_state import Offer, Report, State

__all__ = ["RolloutRows", "Stored"]

_STATE = "phase, stage, approved, clock_us, seen_us, slot_us, cause"
_UNDER_WAY = "phase IN ('running', 'waiting', 'paused')"  # in the words of the index of those rollouts
_REPORTS = """
SELECT m.device, d.online, d.last_seen_us, w.version, r.in_force, r.version, r.outcome,
    (SELECT outcome FROM refusals f WHERE f.device=m.device AND f.version=:version
        AND f.time_us>=d.enrolled_us ORDER BY number DESC LIMIT 1)
FROM rollout_devices m JOIN devices d ON d.name=m.device LEFT JOIN desired w ON w.device=m.device
LEFT JOIN reported r ON r.device=m.device WHERE m.rollout=:rollout
"""


class Stored(NamedTuple):
    """A rollout as it is stored.

    Attributes:
        plan, state: what is to happen, and what has.
        created_us, ended_us: when it was drafted; when it was completed, stopped or aborted.
    """

    plan: RolloutPlan
    state: State
    created_us: int
    ended_us: int | None


class RolloutRows:
    """The rollouts of a registry, as rows."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def numbers(self, *, under_way: bool = False) -> list[int]:
        """Numbers of all rollouts, or of those that are under way."""
        where = f"WHERE {_UNDER_WAY}" if under_way else ""
        return [row[0] for row in self._db.execute(f"SELECT number FROM rollouts {where} ORDER BY number")]

    def add(self, plan: RolloutPlan, time_us: int) -> int:
        """Keep a plan; the number of its rollout."""
        query = f"INSERT INTO rollouts (plan, {_STATE}, created_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        return int(self._db.execute(query, (plan.to_json(), *_row(State()), time_us)).lastrowid or 0)

    def choose(self, number: int, stages: Iterable[Iterable[str]]) -> None:
        """Keep the devices of each stage, in their order."""
        rows = [(number, name, stage, place) for stage, names in enumerate(stages) for place, name in enumerate(names)]
        self._db.executemany("INSERT INTO rollout_devices (rollout, device, stage, place) VALUES (?, ?, ?, ?)", rows)

    def in_the_way(self, number: int) -> tuple[int, int] | None:
        """Another rollout that is under way at devices of this one, and at how many of them."""
        row: tuple[int, int] | None = self._db.execute(
            f"SELECT rollout, COUNT(*) FROM rollout_devices JOIN rollouts ON rollout=number WHERE {_UNDER_WAY} "
            "AND device IN (SELECT device FROM rollout_devices WHERE rollout=:number) GROUP BY rollout",
            {"number": number},
        ).fetchone()
        return row

    def load(self, number: int) -> Stored | None:
        """A rollout, none if there is none of this number."""
        query = f"SELECT plan, created_us, ended_us, {_STATE} FROM rollouts WHERE number=?"
        if (row := self._db.execute(query, (number,)).fetchone()) is None:
            return None
        text, created, ended, phase, stage, approved, clock, seen, slot, cause = row
        members: dict[int, list[str]] = {}
        offers: dict[str, Offer] = {}
        query = (
            "SELECT stage, device, at_us, time_us, former, reached_us FROM rollout_devices WHERE rollout=? "
            "ORDER BY stage, place"
        )
        for place, device, *offer in self._db.execute(query, (number,)):
            members.setdefault(place, []).append(device)
            if offer[0] is not None:
                offers[device] = Offer(*offer)
        plan = RolloutPlan.from_json(text)
        stages = tuple(tuple(members.get(i, ())) for i in range(len(plan.stages))) if members else ()
        return Stored(plan, State(phase, stages, stage, approved, clock, seen, slot, offers, cause), created, ended)

    def save(self, number: int, before: State, after: State, ended_us: int | None) -> None:
        """Write what is different."""
        columns = ", ".join(f"{column}=?" for column in _STATE.split(", "))
        query = f"UPDATE rollouts SET {columns}, ended_us=? WHERE number=?"
        self._db.execute(query, (*_row(after), ended_us, number))
        changed = [(*offer, number, name) for name, offer in after.offers.items() if before.offers.get(name) != offer]
        query = "UPDATE rollout_devices SET at_us=?, time_us=?, former=?, reached_us=? WHERE rollout=? AND device=?"
        self._db.executemany(query, changed)

    def reports(self, number: int, version: int) -> Mapping[str, Report]:
        """What the devices of a rollout say about a version."""
        rows = self._db.execute(_REPORTS, {"rollout": number, "version": version})
        return {row[0]: _report(version, *row[1:]) for row in rows}


def _report(
    version: int,
    online: int,
    last_seen: int,
    desired: int | None,
    in_force: int | None,
    latest: int | None,
    outcome: Any,
    refused: Any,
) -> Report:
    """What a device's rows say about a version: failure after acceptance counts, a refusal before it does not."""
    answer: Any = (outcome if latest == version else refused) or ""
    if in_force == version and answer != "failed":
        answer = "accepted"
    return Report(bool(online), last_seen, answer, in_force or desired, max(desired or 0, in_force or 0))


def _row(state: State) -> tuple[object, ...]:
    return (state.phase, state.stage, state.approved, state.clock_us, state.seen_us, state.slot_us, state.cause)
