"""A document at its devices: the one before it, the one that it restores, moved ticks, other fleets, and rollouts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fugu.contract.fleet_documents import Address, PolicyDocument
from fugu.contract.windows import Window
from gateway.fleet.documents import enter_document, former_document, other_ticks, restored_by, rollouts_at
from gateway.fleet.entries import FleetError
from gateway.fleet.keys import Root
from gateway.fleet.registry import Registry
from gateway.fleet.rollouts import Rollouts
from gateway.fleet.signing import Signed
from tests.support.processes import policy
from tests.support.signing import Keys, policy_document
from tests.support.simulated_fleets import START, plan

KEYS = Keys()
POLICY = policy(epoch_us=0, period_us=1_000_000)
WATCH = Address(device="watch")
WHO = {"actor": "ann", "time_us": START}


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    registry = Registry(tmp_path / "fleet.sqlite", fleet="home")
    for device in ("watch", "ring"):
        registry.enrol(device, ["wrists"] if device == "watch" else [], **WHO)
    yield registry
    registry.close()


@pytest.fixture
def root(tmp_path: Path) -> Root:
    (tmp_path / "root.envelope").write_bytes(KEYS.root_envelope())
    return Root.read(tmp_path / "root.envelope")


def enter(registry: Registry, root: Root, document: PolicyDocument) -> PolicyDocument:
    enter_document(registry, Signed.read(KEYS.signed(document), root), **WHO)
    return document


def document(version: int, to: Address = WATCH, frame_ticks: int = 10) -> PolicyDocument:
    return policy_document(POLICY.model_copy(update={"frame_ticks": frame_ticks}), version=version, to=to)


def test_the_document_before_is_the_newest_for_some_of_the_same_devices(registry: Registry, root: Root) -> None:
    everyone = enter(registry, root, document(1, Address(everyone=True)))
    own = enter(registry, root, document(2))
    enter(registry, root, document(3, Address(device="ring")))
    group = enter(registry, root, document(4, Address(group="wrists")))
    nobody = enter(registry, root, document(5, Address(group="nobody")))
    assert former_document(registry, everyone, [root]) is None
    assert former_document(registry, group, [root]) == own
    assert former_document(registry, nobody, [root]) is None
    assert former_document(registry, document(6, Address(group="nobody")), [root]) == nobody
    assert former_document(registry, document(7), [root]) == group


def test_the_content_of_the_document_just_before_at_the_same_place_is_not_restored(
    registry: Registry, root: Root
) -> None:
    enter(registry, root, document(1))
    enter(registry, root, document(2, Address(device="ring")))
    assert restored_by(registry, document(3)) is None
    enter(registry, root, document(3, frame_ticks=20))
    assert restored_by(registry, document(4)) == 1
    assert restored_by(registry, document(4, frame_ticks=30)) is None
    assert restored_by(registry, document(4, Address(group="wrists"))) is None


@pytest.mark.parametrize("field", ["epoch_us", "period_us"])
def test_ticks_of_another_clock_are_other_moments(field: str) -> None:
    clock = POLICY.clock.model_copy(update={field: 2_000_000})
    moved = policy_document(POLICY.model_copy(update={"clock": clock}))
    assert other_ticks(document(1), moved) == {"hr": "another epoch or period"}


@pytest.mark.parametrize("field", ["start", "length", "stride"])
def test_a_window_of_other_ticks_needs_another_name(field: str) -> None:
    def having(*windows: Window) -> PolicyDocument:
        return policy_document(policy(epoch_us=0, period_us=1_000_000, windows=windows, epsilon=20.0))

    window = Window(name="share", length=10, stride=20, start=0, states=(1,), scale="30")
    moved = window.model_copy(update={field: 15})
    assert other_ticks(having(window), having(moved)) == {"hr": "other ticks for window share"}
    assert other_ticks(having(window), having(moved.model_copy(update={"name": "other"}))) == {}
    assert other_ticks(having(window), having(window)) == {}


def test_a_document_of_another_fleet_is_not_entered(tmp_path: Path, root: Root) -> None:
    registry = Registry(tmp_path / "other.sqlite", fleet="other")
    with pytest.raises(FleetError, match="a document of fleet home; the registry is that of fleet other"):
        enter(registry, root, document(1))
    registry.close()


def test_only_rollouts_at_one_of_the_devices_are_met(registry: Registry, root: Root) -> None:
    enter(registry, root, document(1, Address(everyone=True)))
    rollouts = Rollouts(registry)
    number = rollouts.draft(plan(100), **WHO)
    rollouts.start(number, **WHO)
    assert rollouts_at(registry, ["ring"]) == [number]
    assert rollouts_at(registry, ["stranger"]) == []
