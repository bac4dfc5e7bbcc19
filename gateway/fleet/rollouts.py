"""Rollouts in the registry's file: every step is one transaction, and what is due is always read from the file.

So a gateway that is killed at any point goes on where it was: either a step with all its desired versions is there, or
nothing of it. Operators' actions come from another process, the command line, and take effect at the next step.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.fleet import rollout as rules
from gateway.fleet.entries import Due, PlanError, RolloutError, UnknownNameError
from gateway.fleet.plan import Plan, stages_of
from gateway.fleet.registry import Registry
from gateway.fleet.rollout import ACTIVE, Action, Offer, OfferWayBack, Report, SetDesired, State, Tally

__all__ = ["Rollout", "Rollouts"]

_GATEWAY = "gateway"
_KEEP_CLOCK_US = 20_000_000
"""A step that changes nothing but the clock is written only this often, to spare the disk."""
_STATE = "phase, stage, approved, clock_us, seen_us, slot_us, cause"
_REPORTS = """
SELECT m.device, d.online, d.last_seen_us, w.version, r.in_force, r.version, r.outcome,
    (SELECT outcome FROM refusals f WHERE f.device=m.device AND f.version=:version
        AND f.time_us>=d.enrolled_us ORDER BY number DESC LIMIT 1)
FROM rollout_devices m JOIN devices d ON d.name=m.device LEFT JOIN desired w ON w.device=m.device
LEFT JOIN reported r ON r.device=m.device WHERE m.rollout=:rollout
"""


@dataclass(frozen=True, slots=True)
class Rollout:
    """A rollout, and how its devices stand.

    Attributes:
        tallies: one for each stage; empty for a draft.
        ended_us: when it was completed, stopped or aborted.
    """

    number: int
    plan: Plan
    state: State
    tallies: tuple[Tally, ...]
    created_us: int
    ended_us: int | None


class Rollouts:
    """The rollouts of a registry.

    Args:
        registry: an open registry; the same thread uses it.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def preview(self, plan: Plan) -> tuple[tuple[str, ...], ...]:
        """The devices that each stage of a plan would add, if it started now.

        Raises:
            PlanError: the rollout or a stage has no device, or all have a newer version already.
            UnknownNameError: there is no such document.
        """
        with self._registry.snapshot():
            document = self._registry.document(plan.version)
            devices = {device.name: device for device in self._registry.devices()}
            stages = stages_of(plan, {name: one.groups for name, one in devices.items()}, document.target)
            desired = [devices[name].desired for stage in stages for name in stage]
            if all(one is not None and one.version > plan.version for one in desired):
                raise PlanError(f"every device of the plan should have a newer version than {plan.version} already")
            return stages

    def draft(self, plan: Plan, *, who: str, time_us: int) -> int:
        """Keep a plan; its devices are chosen when it starts.

        Returns:
            The rollout's number.

        Raises:
            PlanError, UnknownNameError: as `preview` says.
        """
        with self._registry.transaction() as db:
            self.preview(plan)
            query = f"INSERT INTO rollouts (plan, {_STATE}, created_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
            number = int(db.execute(query, (plan.to_json(), *_row(State()), time_us)).lastrowid or 0)
            self._record(number, who, "draft", plan.to_json(), time_us)
            return number

    def start(self, number: int, *, who: str, time_us: int) -> None:
        """Choose the devices, and begin with the first stage.

        Raises:
            RolloutError: it was started before, or another one is under way at one of its devices.
            PlanError, UnknownNameError: as `preview` says.
        """
        with self._registry.transaction() as db:
            plan, state = self._load(number)
            began = rules.begin(state, self.preview(plan), time_us)
            rows = [
                (number, name, stage, place)
                for stage, names in enumerate(began.stages)
                for place, name in enumerate(names)
            ]
            query = "INSERT INTO rollout_devices (rollout, device, stage, place) VALUES (?, ?, ?, ?)"
            db.executemany(query, rows)
            other = db.execute(
                "SELECT rollout, COUNT(*) FROM rollout_devices JOIN rollouts ON rollout=number "
                "WHERE phase IN ('running', 'waiting', 'paused') AND device IN "
                "(SELECT device FROM rollout_devices WHERE rollout=:number) GROUP BY rollout",
                {"number": number},
            ).fetchone()
            if other:
                raise RolloutError(
                    f"rollout {other[0]} is under way at {other[1]} of the {len(rows)} devices: let it end, or abort it"
                )
            self._save(number, state, began)
            self._record(number, who, "start", f"version {plan.version} for {len(rows)} devices", time_us)

    def pause(self, number: int, *, who: str, time_us: int) -> None:
        """Let nothing happen until `resume`; a `RolloutError` if it is not under way."""
        self._operate(number, "pause", rules.pause, who, time_us)

    def resume(self, number: int, *, who: str, time_us: int) -> None:
        """Go on; a `RolloutError` if it is not paused."""
        self._operate(number, "resume", lambda state: rules.resume(state, time_us), who, time_us)

    def approve(self, number: int, *, who: str, time_us: int) -> None:
        """Open the gate that it waits at; a `RolloutError` if it does not wait."""
        self._operate(number, "approve", rules.approve, who, time_us)

    def abort(self, number: int, *, who: str, time_us: int) -> None:
        """End it; what was not sent yet is not sent. A `RolloutError` if it has ended already."""
        self._operate(number, "abort", rules.abort, who, time_us)

    def step(self, number: int, time_us: int) -> tuple[Action, ...]:
        """Do what is due in one rollout: what it does is durable, or has not happened.

        Returns:
            What was done.

        Raises:
            UnknownNameError: there is no such rollout.
            RegistryError: the file cannot be used; nothing was done.
        """
        with self._registry.transaction():
            plan, state = self._load(number)
            actions, following = rules.advance(plan, state, self._reports(number, plan.version), time_us)
            quiet = replace(following, clock_us=state.clock_us, seen_us=state.seen_us) == state
            if following == state or (quiet and abs(time_us - state.seen_us) < _KEEP_CLOCK_US):
                return ()
            for action in actions:
                if isinstance(action, SetDesired):
                    self._registry.want(action.device, action.version, time_us, number)
            self._save(number, state, following, time_us)
            self._tell(number, state, following, time_us)
            return actions

    def due(self, time_us: int, limit: int = 100) -> list[Due]:
        """Do what is due in all rollouts, and say what is to be published now, longest waiting first.

        The same again is due until `Registry.published` is told that the broker has it.

        Raises:
            RegistryError: the file cannot be used; nothing was done in the rollout that failed.
        """
        for number in self.active():
            self.step(number, time_us)
        return self._registry.unpublished(limit)

    def active(self) -> list[int]:
        """Numbers of the rollouts that are under way."""
        with self._registry.snapshot() as db:
            query = "SELECT number FROM rollouts WHERE phase IN ('running', 'waiting', 'paused') ORDER BY number"
            return [row[0] for row in db.execute(query)]

    def numbers(self) -> list[int]:
        """Numbers of all rollouts."""
        with self._registry.snapshot() as db:
            return [row[0] for row in db.execute("SELECT number FROM rollouts ORDER BY number")]

    def show(self, number: int) -> Rollout:
        """A rollout as it stands.

        Raises:
            UnknownNameError: there is no such rollout.
        """
        with self._registry.snapshot() as db:
            plan, state = self._load(number)
            times = db.execute("SELECT created_us, ended_us FROM rollouts WHERE number=?", (number,)).fetchone()
            tallies = rules.tally(plan, state, self._reports(number, plan.version))
            return Rollout(number, plan, state, tallies, *times)

    def way_back(self, number: int) -> OfferWayBack:
        """For each version that devices had before, those that were offered the rollout's.

        Raises:
            UnknownNameError: there is no such rollout.
        """
        with self._registry.snapshot():
            return rules.way_back(self._load(number)[1])

    def _operate(self, number: int, what: str, change: Callable[[State], State], who: str, time_us: int) -> None:
        with self._registry.transaction():
            _, state = self._load(number)
            following = change(state)
            self._save(number, state, following, time_us)
            self._record(number, who, what, "", time_us)

    def _tell(self, number: int, before: State, after: State, time_us: int) -> None:
        """What a rollout did by itself."""
        if after.stage != before.stage:
            self._record(number, _GATEWAY, "stage", f"stage {after.stage + 1} of {len(after.stages)}", time_us)
        if after.phase != before.phase:
            self._record(number, _GATEWAY, after.phase, after.cause, time_us)

    def _record(self, number: int, who: str, what: str, detail: str, time_us: int) -> None:
        self._registry.record(who, what, f"rollout {number}", detail, time_us=time_us)

    def _load(self, number: int) -> tuple[Plan, State]:
        with self._registry.snapshot() as db:
            row = db.execute(f"SELECT plan, {_STATE} FROM rollouts WHERE number=?", (number,)).fetchone()
            if row is None:
                raise UnknownNameError(f"there is no rollout {number} in fleet {self._registry.fleet}")
            members, offers = _members(db, number)
        phase, stage, approved, clock, seen, slot, cause = row[1:]
        plan = Plan.from_json(row[0])
        stages = tuple(tuple(members.get(i, ())) for i in range(len(plan.stages))) if members else ()
        return plan, State(phase, stages, stage, approved, clock, seen, slot, offers, cause)

    def _save(self, number: int, before: State, after: State, time_us: int | None = None) -> None:
        """Write what is different, as part of a transaction."""
        ended = None if after.phase in ACTIVE or after.phase == "draft" else time_us
        with self._registry.transaction() as db:
            columns = ", ".join(f"{column}=?" for column in _STATE.split(", "))
            db.execute(f"UPDATE rollouts SET {columns}, ended_us=? WHERE number=?", (*_row(after), ended, number))
            changed = [
                (*offer, number, name) for name, offer in after.offers.items() if before.offers.get(name) != offer
            ]
            query = "UPDATE rollout_devices SET at_us=?, time_us=?, former=?, reached_us=? WHERE rollout=? AND device=?"
            db.executemany(query, changed)

    def _reports(self, number: int, version: int) -> Mapping[str, Report]:
        with self._registry.snapshot() as db:
            rows = db.execute(_REPORTS, {"rollout": number, "version": version})
            return {row[0]: _report(version, *row[1:]) for row in rows}


def _members(db: sqlite3.Connection, number: int) -> tuple[dict[int, list[str]], dict[str, Offer]]:
    """The devices of each stage, and their offers."""
    members: dict[int, list[str]] = {}
    offers: dict[str, Offer] = {}
    query = (
        "SELECT stage, device, at_us, time_us, former, reached_us FROM rollout_devices WHERE rollout=? "
        "ORDER BY stage, place"
    )
    for stage, device, *offer in db.execute(query, (number,)):
        members.setdefault(stage, []).append(device)
        if offer[0] is not None:
            offers[device] = Offer(*offer)
    return members, offers


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
    former = in_force or desired
    return Report(bool(online), last_seen, answer, former, max(desired or 0, in_force or 0))


def _row(state: State) -> tuple[object, ...]:
    return (state.phase, state.stage, state.approved, state.clock_us, state.seen_us, state.slot_us, state.cause)
