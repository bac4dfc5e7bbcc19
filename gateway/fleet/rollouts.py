"""Rollouts in the registry's file: every step is one transaction, and what is due is always read from the file.

So a gateway that is killed at any point goes on where it was: either a step with all its desired versions is there, or
nothing of it. Operators' actions come from another process, the command line, and take effect at the next step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from gateway.fleet.entries import Due, FleetError, RolloutPlan, UnknownNameError, stages_of
from gateway.fleet.registry import Registry
from gateway.fleet.rollout import ACTIVE, Offer, Report, StageCounts, State, advance, operated, tally

__all__ = ["Rollout", "Rollouts"]

_GATEWAY = "gateway"
_KEEP_CLOCK_US = 20_000_000
"""A step that changes nothing but the clock is written only this often, to spare the disk."""
_STATE = "phase, stage, approved, clock_us, seen_us, slot_us, cause"
_UNDER_WAY = "phase IN ('running', 'waiting', 'paused')"  # in the words of the index of those rollouts
_REPORTS = """
SELECT m.device, d.online, d.last_seen_us, w.version, r.in_force, r.version, r.outcome,
    (SELECT outcome FROM refusals f WHERE f.device=m.device AND f.version=:version
        AND f.time_us>=d.enrolled_us ORDER BY number DESC LIMIT 1)
FROM rollout_devices m JOIN devices d ON d.name=m.device LEFT JOIN desired w ON w.device=m.device
LEFT JOIN reported r ON r.device=m.device WHERE m.rollout=:rollout
"""


class Rollout(NamedTuple):
    """A rollout; `ended_us` is when it was completed, stopped or aborted, `tallies` how its stages stand, if asked."""

    plan: RolloutPlan
    state: State
    created_us: int
    ended_us: int | None
    tallies: tuple[StageCounts, ...] = ()


class Rollouts:
    """The rollouts of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._db = registry.db

    def preview(self, plan: RolloutPlan) -> tuple[tuple[str, ...], ...]:
        """The devices that each stage of a plan would add, if it started now.

        Raises FleetError if the rollout or a stage has no device, or all have a newer version already; UnknownNameError
        without the document.
        """
        with self._registry.snapshot():
            document = self._registry.document(plan.version)
            devices = {device.name: device for device in self._registry.devices()}
            stages = stages_of(plan, {name: one.groups for name, one in devices.items()}, document.target)
            desired = [devices[name].desired for stage in stages for name in stage]
            if all(one is not None and one.version > plan.version for one in desired):
                raise FleetError(f"every device of the plan should have a newer version than {plan.version} already")
            return stages

    def draft(self, plan: RolloutPlan, *, who: str, time_us: int) -> int:
        """Keep a plan, and return its number; its devices are chosen when it starts. Raises what `preview` does."""
        with self._registry.transaction():
            self.preview(plan)
            query = f"INSERT INTO rollouts (plan, {_STATE}, created_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
            number = int(self._db.execute(query, (plan.to_json(), *_row(State()), time_us)).lastrowid or 0)
            self._record(number, who, "draft", plan.to_json(), time_us)
            return number

    def start(self, number: int, *, who: str, time_us: int) -> None:
        """Choose the devices, and begin with the first stage.

        Raises what `preview` does; FleetError, too, if it was started before, or another is under way at one of its
        devices.
        """
        with self._registry.transaction():
            plan, state, *_ = self._load(number)
            began = operated(state, "start", time_us, self.preview(plan))
            rows = [
                (number, name, stage, place)
                for stage, names in enumerate(began.stages)
                for place, name in enumerate(names)
            ]
            query = "INSERT INTO rollout_devices (rollout, device, stage, place) VALUES (?, ?, ?, ?)"
            self._db.executemany(query, rows)
            count = len(rows)
            query = (
                f"SELECT rollout, COUNT(*) FROM rollout_devices JOIN rollouts ON rollout=number WHERE {_UNDER_WAY} "
                "AND device IN (SELECT device FROM rollout_devices WHERE rollout=?) GROUP BY rollout"
            )
            if other := self._db.execute(query, (number,)).fetchone():
                raise FleetError(
                    f"rollout {other[0]} is under way at {other[1]} of the {count} devices: let it end, or abort it"
                )
            self._save(number, state, began)
            self._record(number, who, "start", f"version {plan.version} for {count} devices", time_us)

    def operate(self, number: int, what: str, *, who: str, time_us: int) -> None:
        """Take a step of an operator: pause, resume, approve or abort. FleetError if it is not in a phase for that."""
        with self._registry.transaction():
            state = self._load(number).state
            self._save(number, state, operated(state, what, time_us), time_us)
            self._record(number, who, what, "", time_us)

    def step(self, number: int, time_us: int) -> tuple[str, ...]:
        """Do what is due in one rollout: what devices get, and is returned, is durable, or has not happened.

        Raises UnknownNameError if there is no such rollout; RegistryError if the file cannot be used: nothing was done.
        """
        with self._registry.transaction():
            plan, state, *_ = self._load(number)
            devices, following = advance(plan, state, self._reports(number, plan.version), time_us)
            quiet = replace(following, clock_us=state.clock_us, seen_us=state.seen_us) == state
            if following == state or (quiet and abs(time_us - state.seen_us) < _KEEP_CLOCK_US):
                return ()
            for device in devices:
                self._registry.want(device, plan.version, time_us, number)
            self._save(number, state, following, time_us)
            if (stage := following.stage) != state.stage:
                self._record(number, _GATEWAY, "stage", f"stage {stage + 1} of {len(following.stages)}", time_us)
            if following.phase != state.phase:
                self._record(number, _GATEWAY, following.phase, following.cause, time_us)
            return devices

    def due(self, time_us: int, limit: int = 100) -> list[Due]:
        """Do what is due in all rollouts, and say what is to be published now, longest waiting first.

        The same again is due until `Registry.published` is told that the broker has it.

        Raises RegistryError if the file cannot be used; nothing was done in the rollout that failed.
        """
        for number in self.active():
            self.step(number, time_us)
        return self._registry.unpublished(limit)

    def active(self) -> list[int]:
        """Numbers of the rollouts that are under way."""
        return self.numbers(f"WHERE {_UNDER_WAY}")

    def numbers(self, where: str = "") -> list[int]:
        """Numbers of all rollouts, or of some."""
        with self._registry.snapshot():
            return [row[0] for row in self._db.execute(f"SELECT number FROM rollouts {where} ORDER BY number")]

    def show(self, number: int) -> Rollout:
        """A rollout as it stands. Raises UnknownNameError if there is no such rollout."""
        with self._registry.snapshot():
            found = self._load(number)
            reports = self._reports(number, found.plan.version)
            return found._replace(tallies=tally(found.plan, found.state, reports))

    def _record(self, number: int, who: str, what: str, detail: str, time_us: int) -> None:
        self._registry.record(who, what, f"rollout {number}", detail, time_us=time_us)

    def _load(self, number: int) -> Rollout:
        with self._registry.snapshot():
            query = f"SELECT plan, created_us, ended_us, {_STATE} FROM rollouts WHERE number=?"
            if (row := self._db.execute(query, (number,)).fetchone()) is None:
                raise UnknownNameError(f"there is no rollout {number} in fleet {self._registry.fleet}")
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
        return Rollout(plan, State(phase, stages, stage, approved, clock, seen, slot, offers, cause), created, ended)

    def _save(self, number: int, before: State, after: State, time_us: int | None = None) -> None:
        """Write what is different."""
        columns = ", ".join(f"{column}=?" for column in _STATE.split(", "))
        ended = None if after.phase in ACTIVE or after.phase == "draft" else time_us
        query = f"UPDATE rollouts SET {columns}, ended_us=? WHERE number=?"
        self._db.execute(query, (*_row(after), ended, number))
        changed = [(*offer, number, name) for name, offer in after.offers.items() if before.offers.get(name) != offer]
        query = "UPDATE rollout_devices SET at_us=?, time_us=?, former=?, reached_us=? WHERE rollout=? AND device=?"
        self._db.executemany(query, changed)

    def _reports(self, number: int, version: int) -> Mapping[str, Report]:
        """Reports of the devices of a rollout about a version."""
        found = {}
        rows = self._db.execute(_REPORTS, {"rollout": number, "version": version})
        for device, online, last_seen, desired, in_force, latest, outcome, refused in rows:
            # failure after acceptance counts, a refusal before it does not
            answer: Any = (outcome if latest == version else refused) or ""
            answer = "accepted" if in_force == version and answer != "failed" else answer
            newest = max(desired or 0, in_force or 0)
            found[device] = Report(bool(online), last_seen, answer, in_force or desired, newest)
        return found


def _row(state: State) -> tuple[object, ...]:
    return (state.phase, state.stage, state.approved, state.clock_us, state.seen_us, state.slot_us, state.cause)
