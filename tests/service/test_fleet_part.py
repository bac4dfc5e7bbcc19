"""What a fleet has once: releases wait while new policies cannot be told to the ledger, and go on afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from fugu.contract.frames import PolicyStatus
from fugu.contract.reports import AlarmCode
from fugu.contract.topics import policy_status_topic
from fugu.host.database import AwayError, DatabaseError
from fugu.mqtt import Broker, Link
from gateway.fleet_part import FleetPart
from gateway.releases.ledger import Ledger
from gateway.releases.schedule import StoreProgress
from gateway.settings import GatewaySettings
from tests.support.release_scenes import FLEET, scheduled, write_config
from tests.support.scenes import Scene, catalogue, frames


class Parts:
    """The part of a gateway that makes releases, without a broker; 40 ticks are stored."""

    def __init__(self, folder: Path) -> None:
        scene = Scene(folder / "s.sqlite", 8, FLEET)
        scene.record(*frames([10] * 4))
        config = write_config(folder, scheduled(devices=["watch"]))
        settings = GatewaySettings("home", Broker(), folder / "s.sqlite", folder, releases=config)
        self.counters: Counter[str] = Counter()
        self.held: dict[AlarmCode, tuple[str, ...]] = {}
        progress = StoreProgress(scene.store, scene.recorder)
        link = Link(Broker(), client_id="none")
        self.part = FleetPart(settings, link, scene.store, catalogue(FLEET), progress, None, self.counters, self.holds)
        self.ledger = Ledger(folder / "s-ledger.sqlite", create=False)

    def holds(self, code: AlarmCode, names: Iterable[str]) -> None:
        """As a monitor does."""
        self.held[code] = tuple(names)

    def round(self) -> None:
        """All that is to be done once."""
        for pump in self.part.pumps(idle=True):
            pump()


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
                parts.round()
    assert (parts.ledger.newest, parts.part.busy) == (0, False)
    parts.round()
    while parts.part.busy:
        parts.round()
    assert parts.ledger.newest > 0
    assert parts.counters["ledger_errors"] == 0
    parts.part.stop()


def test_releases_end_where_a_new_policy_cannot_be_accounted_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(tmp_path)
    monkeypatch.setattr(Ledger, "set_allowances", fails(DatabaseError("disk I/O error")))
    parts.part.renew()
    for _ in range(3):
        parts.round()
    assert (parts.ledger.newest, parts.counters["ledger_errors"]) == (0, 1)
    assert not parts.part.busy
    parts.part.stop()


def test_a_refusal_is_an_alarm_until_the_device_accepts_a_document(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    for reason, held in (("guarantee", ("watch",)), ("", ())):
        said = PolicyStatus(1, b"12345678", reason, "", 1, False)
        for fleet, expected in (("other", parts.held.get(AlarmCode.POLICY_REFUSED)), ("home", held)):
            parts.part.heard(policy_status_topic(fleet, "watch"), said.encode())
            assert parts.held.get(AlarmCode.POLICY_REFUSED) == expected
