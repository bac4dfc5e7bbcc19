"""Rollouts in the file: whoever opens it goes on where the last one was, and no step is ever half done."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from fugu.contract.errors import FuguError
from gateway.fleet.entries import FleetError, PolicyReport, RegistryError, RolloutPlan, Stage, Target
from gateway.fleet.registry import Registry
from gateway.fleet.rollouts import Rollout, Rollouts
from tests.support.simulated_fleets import PERCENT, SECOND, START, SimulatedFleet, document, names, new_registry, plan

WHO = {"actor": "ann", "time_us": START}


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """Twenty devices, two of them canaries, and three documents."""
    registry = new_registry(tmp_path / "fleet.sqlite", names(20), canaries=names(2), versions=3)
    yield registry
    registry.close()


def started(rollouts: Rollouts, some: RolloutPlan) -> int:
    """A rollout that has begun."""
    number = rollouts.draft(some, **WHO)
    rollouts.start(number, **WHO)
    return number


def accept(registry: Registry, devices: list[str], version: int = 1) -> None:
    """Let devices accept a document."""
    registry.note_reports(PolicyReport(name, version, "accepted", "", START) for name in devices)


def test_from_draft_to_the_end(registry: Registry) -> None:
    rollouts = Rollouts(registry)
    some = plan(Stage(group="canary"), Stage(50 * PERCENT, gate=True), 100, seed="x")
    number = rollouts.draft(some, **WHO)
    assert rollouts.show(number).state.phase == "draft"
    assert rollouts.due(START) == []
    preview = rollouts.preview(some)
    rollouts.start(number, **WHO)
    assert {due.device for due in rollouts.due(START + SECOND)} == set(names(2)) == set(preview[0])
    accept(registry, names(2))
    rollouts.due(START + 2 * SECOND)
    assert rollouts.show(number).state.phase == "waiting"
    rollouts.operate(number, "approve", actor="bob", time_us=START + 3 * SECOND)
    for seconds in range(4, 10):
        due = rollouts.due(START + seconds * SECOND)
        accept(registry, [device.device for device in due])
        registry.note_published((device.device, device.version) for device in due)
    shown = rollouts.show(number)
    assert shown.state.phase == "completed"
    assert shown.state.stages == preview
    assert [tally.accepted for tally in shown.tallies] == [len(stage) for stage in preview]
    assert shown.ended_us is not None
    assert rollouts.active() == []
    events = [(event.who, event.what) for event in registry.history() if event.subject == f"rollout {number}"]
    assert events == [
        *[("ann", "draft"), ("ann", "start"), ("gateway", "waiting"), ("bob", "approve"), ("gateway", "stage")],
        *[("gateway", "stage"), ("gateway", "completed")],
    ]


def test_operators_from_another_process_take_effect_at_the_next_step(registry: Registry, tmp_path: Path) -> None:
    rollouts = Rollouts(registry)
    number = started(rollouts, plan(pace=60, patience_seconds=3600))
    other = Registry(tmp_path / "fleet.sqlite")
    operator = Rollouts(other)
    assert len(rollouts.due(START + SECOND)) == 2
    operator.operate(number, "pause", actor="bob", time_us=START + SECOND)
    assert rollouts.due(START + 5 * SECOND) == []  # not even what was about to be sent
    operator.operate(number, "resume", actor="bob", time_us=START + 5 * SECOND)
    assert len(rollouts.due(START + 6 * SECOND)) == 3
    operator.operate(number, "abort", actor="bob", time_us=START + 6 * SECOND)
    assert rollouts.due(START + 60 * SECOND) == []
    other.desire(["d000"], 1, **WHO)
    assert [device.device for device in rollouts.due(START + 61 * SECOND)] == ["d000"]  # by hand it can be sent still
    assert len(rollouts.show(number).state.offers) == 3
    assert [event.what for event in other.history()][-4:] == ["pause", "resume", "abort", "push"]
    for what in ("pause", "resume", "abort", "approve"):
        with pytest.raises(FleetError):
            operator.operate(number, what, **WHO)
    with pytest.raises(FleetError):
        operator.start(number, **WHO)
    with pytest.raises(FuguError):
        operator.show(99)


def test_it_stops_by_errors_and_offers_the_way_back_to_what_each_device_had(registry: Registry) -> None:
    rollouts = Rollouts(registry)
    registry.desire(names(5), 1, **WHO)
    accept(registry, names(4))
    registry.desire(["d000"], 2, **WHO)
    registry.note_reports([PolicyReport("d000", 2, "refused", "ceiling", START)])  # so it goes back to 1, not to 2
    number = started(rollouts, plan(version=3, error=10))
    rollouts.step(number, START + SECOND)
    registry.note_reports([PolicyReport(name, 3, "refused", "ceiling", START) for name in ("d003", "d004")])
    actions = rollouts.step(number, START + 2 * SECOND)
    assert not actions
    assert rollouts.show(number).state.way_back() == {1: tuple(names(5)), None: tuple(names(20)[5:])}
    assert registry.history()[-1].detail.startswith("stage 1: 2 of 20 devices refused (2)")
    # the way back is a new document, and a new rollout may carry it at once
    registry.add_document(document(4, restores=1), **WHO)
    other = started(rollouts, plan(version=4))
    rollouts.step(other, START + 3 * SECOND)
    assert {device.desired.version for device in registry.devices() if device.desired} == {4}


def test_a_device_that_boasts_of_refusing_other_versions_still_counts_as_it_answered(registry: Registry) -> None:
    rollouts = Rollouts(registry)
    number = started(rollouts, plan())
    rollouts.step(number, START + SECOND)
    registry.note_reports(
        [
            *(PolicyReport("d000", 1, "accepted", "", START), PolicyReport("d000", 99, "refused", "forged", START)),
            *(PolicyReport("d001", 1, "refused", "ceiling", START), PolicyReport("d001", 99, "refused", "x", START)),
            *(PolicyReport("d002", 1, "refused", "late", START), PolicyReport("d002", 1, "accepted", "", START)),
        ]
    )
    (tally,) = rollouts.show(number).tallies
    assert (tally.accepted, tally.refused, tally.out) == (2, 1, 0)


def test_a_device_that_boasts_of_a_version_that_nobody_signed_is_out_and_stops_nobody(registry: Registry) -> None:
    rollouts = Rollouts(registry)
    registry.note_reports([PolicyReport("d000", 2**32 - 1, "accepted", "", START)])
    number = started(rollouts, plan())
    accept(registry, [due.device for due in rollouts.due(START + SECOND)])
    rollouts.step(number, START + 2 * SECOND)
    shown = rollouts.show(number)
    assert (shown.state.phase, shown.tallies[0].out, shown.tallies[0].accepted) == ("completed", 1, 19)
    assert registry.newest_version() == 3


def test_a_rollout_where_nothing_happens_is_hardly_ever_written(registry: Registry) -> None:
    rollouts = Rollouts(registry)
    number = started(rollouts, plan(patience_seconds=3600))
    rollouts.step(number, START + SECOND)

    def writes(first: int, count: int) -> int:
        seen = set()
        for seconds in range(first, first + count):
            rollouts.step(number, START + seconds * SECOND)
            seen.add(rollouts.show(number).state.seen_us)
        return len(seen) - 1

    assert writes(2, 100) == 5
    before = registry.db.total_changes
    rollouts.operate(number, "pause", actor="bob", time_us=START + 102 * SECOND)
    after_pause = registry.db.total_changes
    assert after_pause > before
    assert writes(103, 100) == 0
    assert registry.db.total_changes == after_pause


def test_two_rollouts_never_meet_at_a_device(registry: Registry) -> None:
    rollouts = Rollouts(registry)
    number = started(rollouts, plan(groups=("canary",)))
    second = rollouts.draft(plan(version=2), **WHO)
    with pytest.raises(FleetError, match=f"rollout {number} is under way at 2 of the 20 devices"):
        rollouts.start(second, **WHO)
    assert rollouts.show(second).state.phase == "draft"
    rollouts.operate(number, "abort", **WHO)
    rollouts.start(second, **WHO)
    with pytest.raises(FleetError, match="cannot start"):
        rollouts.start(second, **WHO)


def test_plans_that_reach_nobody_are_refused_before_anything_is_written(registry: Registry) -> None:
    rollouts = Rollouts(registry)
    registry.add_document(document(4, Target("group", "nobody")), **WHO)
    registry.desire(names(20), 3, **WHO)
    for some, error, text in (
        (plan(version=4), FleetError, "none of the devices"),
        (plan(version=2), FleetError, "newer version than 2 already"),
        (plan(version=9), FuguError, "no document of version 9"),
    ):
        with pytest.raises(error, match=text):
            rollouts.draft(some, **WHO)
    assert rollouts.numbers() == []


def test_a_push_by_hand_takes_a_device_out_of_the_rollout(registry: Registry) -> None:
    rollouts = Rollouts(registry)
    number = started(rollouts, plan())
    rollouts.step(number, START + SECOND)
    registry.desire(["d000"], 2, **WHO)
    registry.remove("d001", **WHO)
    assert rollouts.show(number).tallies[0].out == 2
    assert {due.version for due in registry.unpublished(100) if due.device == "d000"} == {2}


def _played(folder: Path, seed: int | None) -> tuple[list[tuple[int, str, int]], Rollout, list[tuple[object, ...]]]:
    """A rollout to sixty devices; with a seed, the gateway is killed and reopened before random steps."""
    folder.mkdir()
    path = folder / "fleet.sqlite"
    registry = new_registry(path, names(60), canaries=names(3))
    fleet = SimulatedFleet(registry, refusing=frozenset(names(4)[2:]), offline=frozenset(names(20)[10:]))
    some = plan(Stage(group="canary", success=60 * PERCENT), 10, 50, 100, error=40, pace=120, patience_seconds=30)
    number = started(fleet.rollouts, some)
    generator = random.Random(seed)
    while fleet.rollouts.active():
        if seed is not None and generator.random() < 0.3:
            fleet.reopen(path)
        fleet.step()
    shown = fleet.rollouts.show(number)
    history = [event[1:] for event in fleet.registry.history()]
    fleet.registry.close()
    return fleet.given, shown, history


def test_restarts_in_the_middle_change_no_action_and_no_moment(tmp_path: Path) -> None:
    expected = _played(tmp_path / "undisturbed", None)
    assert expected[1].state.phase == "completed"
    for seed in range(2):
        assert _played(tmp_path / str(seed), seed) == expected


def test_a_device_that_is_removed_and_enrolled_again_gets_the_document_and_answers_anew(registry: Registry) -> None:
    rollouts = Rollouts(registry)
    registry.note_reports([PolicyReport("d001", 1, "refused", "ceiling", START - SECOND)])
    registry.remove("d001", actor="ann", time_us=START)
    registry.enrol("d001", actor="ann", time_us=START)
    first, *others = rollouts.preview(plan(50, 100))[0]
    number = started(rollouts, plan(50, 100, success=100, error=5))
    registry.note_published((due.device, 1) for due in rollouts.due(START + SECOND))
    rollouts.due(START + 2 * SECOND)
    accept(registry, [first, *others])
    rollouts.due(START + 3 * SECOND)
    assert rollouts.show(number).state.stage == 1
    registry.remove(first, actor="ann", time_us=START + 3 * SECOND)
    registry.enrol(first, actor="ann", time_us=START + 3 * SECOND)
    assert first in {due.device for due in rollouts.due(START + 4 * SECOND)}
    accept(registry, names(20))
    rollouts.due(START + 5 * SECOND)
    assert rollouts.show(number).state.phase == "completed"


def test_a_full_disk_or_a_locked_file_leaves_no_half_written_step(tmp_path: Path) -> None:
    path = tmp_path / "fleet.sqlite"
    new_registry(path, names(500), versions=2).close()
    registry = Registry(path, busy_seconds=0.05)
    rollouts = Rollouts(registry)
    number = started(rollouts, plan())
    before = rollouts.show(number)
    (pages,) = registry.db.execute("PRAGMA page_count").fetchone()
    registry.db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(RegistryError, match="nothing was done: database or disk is full"):
        rollouts.due(START + SECOND)
    assert rollouts.show(number) == before
    assert registry.unpublished(1) == []
    registry.db.execute("PRAGMA max_page_count=1000000")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(RegistryError, match="nothing was done: database is locked"):
        rollouts.due(START + SECOND)
    assert rollouts.show(number) == before
    other.execute("ROLLBACK")
    assert len(rollouts.due(START + SECOND, 1000)) == 500
