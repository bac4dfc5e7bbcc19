"""Releases wait while new policies cannot be told to the ledger, and go on afterwards; refusals are alarms."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from fugu.contract.frames import PolicyStatus
from fugu.contract.policy import Policy
from fugu.contract.topics import topic_of
from fugu.contract.windows import Window
from fugu.host.database import AwayError, DatabaseError
from fugu.mqtt import Broker, Link
from gateway.loop import release_part
from gateway.parts.describe import Describing
from gateway.parts.part import Message
from gateway.releases.ledger import Ledger
from gateway.store.store import Store
from tests.support.release_scenes import FLEET, PUBLIC, Noted, releasing, scheduled, write_config
from tests.support.scenes import Scene, catalogue, frames, policy


class Parts:
    """The part of a gateway that makes releases, without a broker; 40 ticks are stored."""

    def __init__(
        self, folder: Path, *releases: str, audiences: str = PUBLIC, fleet: tuple[Policy, ...] = FLEET
    ) -> None:
        scene = Scene(folder / "s.sqlite", 8, fleet)
        scene.record(*frames([10] * 4))
        config = write_config(folder, *(releases or [scheduled(devices=["watch"])]), audiences=audiences)
        self.counters: Counter[str] = Counter()
        self.noted, models = Noted(), catalogue(fleet)
        self.part = releasing(scene, config, models, self.counters, self.noted)
        self.ledger = Ledger(folder / "s-ledger.sqlite", create=False)


def fails(with_error: DatabaseError) -> object:
    def fail(*_: object, **__: object) -> None:
        raise with_error

    return fail


def test_releases_wait_while_the_ledger_is_away_and_new_policies_are_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "set_allowances", fails(AwayError("no connection")))
        parts.part.renew()
        for _ in range(2):
            with pytest.raises(AwayError):
                parts.part.pump(idle=True)
    assert (parts.ledger.newest, parts.part.busy) == (0, False)
    parts.part.pump(idle=True)
    while parts.part.busy:
        parts.part.pump(idle=True)
    assert parts.ledger.newest > 0
    assert parts.counters["ledger_errors"] == 0


def test_releases_end_where_a_new_policy_cannot_be_accounted_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(tmp_path)
    monkeypatch.setattr(Ledger, "set_allowances", fails(DatabaseError("disk I/O error")))
    parts.part.renew()
    for _ in range(3):
        parts.part.pump(idle=True)
    assert (parts.ledger.newest, parts.counters["ledger_errors"]) == (0, 1)
    assert not parts.part.busy


def test_many_accounts_follow_policies_a_tenth_of_the_time_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then nothing is released; a device after another takes a new policy, and each time all would be asked."""
    parts = Parts(tmp_path)
    now = [1000.0]
    renewed: list[float] = []
    monkeypatch.setattr(release_part, "_FEW", 0)
    monkeypatch.setattr(release_part, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def renew(*_: object, **__: object) -> None:
        renewed.append(now[0])
        now[0] += 0.5

    monkeypatch.setattr(Ledger, "set_allowances", renew)
    for _ in range(4):
        parts.part.renew()
        parts.part.pump(idle=True)
        now[0] += 2.0
    assert renewed == [1000.0, 1006.5]
    assert parts.ledger.newest == 0


def test_a_refusal_is_held_until_the_device_accepts_a_document(tmp_path: Path) -> None:
    versions = Store(tmp_path / "s.sqlite").versions
    held: list[list[str]] = []
    link = Link(Broker(), client_id="none")
    describing = Describing(link, catalogue(FLEET), versions, Counter(), lambda _device: False, held.append)
    for reason, devices in (("guarantee", ["watch"]), ("", [])):
        status = PolicyStatus(1, b"12345678", reason, "", 1, False)
        for fleet, expected in (("other", held[-1:]), ("home", [devices])):
            describing.heard(Message(topic_of("policy_status", fleet, "watch"), status.encode()))
            describing.pump()
            assert held[-1:] == expected


def test_a_release_that_can_never_be_made_is_said_at_once_and_the_others_are_made(tmp_path: Path) -> None:
    """The device's own windows take more than one of two audiences is allowed."""
    window = Window(name="ten", length=10, stride=10, states=("level 1",), scale="20")
    fleet = (policy(1, windows=(window,)), policy(1, device="ring"))
    narrow = '[audiences.narrow]\nepsilon = 0.01\nadversary = "informed"\n'
    wide = '[audiences.wide]\nepsilon = 2.0\nadversary = "informed"\n'
    parts = Parts(
        tmp_path,
        *(
            scheduled("never", "narrow", devices=["watch"]),
            scheduled("made", "wide", devices=["watch"], source="symbols", share=0.25),
        ),
        audiences=narrow + wide,
        fleet=fleet,
    )
    why = parts.noted.held.pop("never")
    assert "nothing can be released, because windows of a policy that the device ran, or may run, take" in why
    assert "a new audience with a larger epsilon" in why
    assert parts.noted.held == {}
    parts.part.stored()
    while parts.part.busy:
        parts.part.pump(idle=True)
    assert {entry.name for entry in parts.ledger.entries()} == {"made"}
    assert (parts.counters["releases_refused"], parts.noted.notes) == (0, [])
    assert all(device != "watch" or first > 0 for (device, _), first in parts.part.needed().items())


def test_a_window_that_is_refused_is_noted_with_its_release_and_the_reason(tmp_path: Path) -> None:
    parts = Parts(tmp_path, scheduled("first", devices=["watch"]), scheduled("second", devices=["watch"]))
    parts.part.stored()
    while parts.part.busy:
        parts.part.pump(idle=True)
    assert parts.counters["releases_refused"] > 0
    assert {name for name, _ in parts.noted.notes} <= {"first", "second"}
    assert all("too much" in why for _, why in parts.noted.notes)
