"""Rollouts in the registry's file: every step is one transaction, and what is due is always read from the file.

So a gateway that is killed at any point goes on where it was: either a step with all its desired versions is there, or
nothing of it. Operators' actions come from another process, the command line, and take effect at the next step.
"""

from __future__ import annotations

from dataclasses import replace

from gateway.fleet.entries import Due, FleetError, RolloutPlan, UnknownNameError, stages_of
from gateway.fleet.registry import Registry
from gateway.fleet.registry_file import Rollout
from gateway.fleet.rollout import ACTIVE, State, advance, operated, tally

__all__ = ["Rollouts"]

_GATEWAY = "gateway"
_KEEP_CLOCK_US = 20_000_000
"""A step that changes nothing but the clock is written only this often, to spare the disk."""


class Rollouts:
    """The rollouts of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._rows = registry.rollouts

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
            number = self._rows.add(plan, time_us)
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
            self._rows.choose(number, began.stages)
            count = sum(map(len, began.stages))
            if other := self._rows.in_the_way(number):
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
            devices, following = advance(plan, state, self._rows.reports(number, plan.version), time_us)
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
        with self._registry.snapshot():
            return self._rows.numbers(under_way=True)

    def numbers(self) -> list[int]:
        """Numbers of all rollouts."""
        with self._registry.snapshot():
            return self._rows.numbers()

    def show(self, number: int) -> Rollout:
        """A rollout as it stands. Raises UnknownNameError if there is no such rollout."""
        with self._registry.snapshot():
            found = self._load(number)
            reports = self._rows.reports(number, found.plan.version)
            return found._replace(tallies=tally(found.plan, found.state, reports))

    def _record(self, number: int, who: str, what: str, detail: str, time_us: int) -> None:
        self._registry.record(who, what, f"rollout {number}", detail, time_us=time_us)

    def _load(self, number: int) -> Rollout:
        with self._registry.snapshot():
            if (found := self._rows.load(number)) is None:
                raise UnknownNameError(f"there is no rollout {number} in fleet {self._registry.fleet}")
            return found

    def _save(self, number: int, before: State, after: State, time_us: int | None = None) -> None:
        self._rows.save(number, before, after, None if after.phase in ACTIVE or after.phase == "draft" else time_us)
