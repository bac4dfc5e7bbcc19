"""Releases wait while new policies cannot be told to the ledger, and go on afterwards; refusals are alarms."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fugu.contract.frames import PolicyStatus
from fugu.contract.topics import policy_status_topic
from fugu.host.database import AwayError, DatabaseError
from fugu.mqtt import Broker, Link
from gateway.describe import Describing
from gateway.release_part import Releasing
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
        progress = StoreProgress(scene.store, scene.recorder)
        link = Link(Broker(), client_id="none")
        self.part = Releasing(config, settings, link, scene.store, catalogue(FLEET), progress, self.counters)
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
    parts.part.close()


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
    parts.part.close()


def test_a_refusal_is_held_until_the_device_accepts_a_document() -> None:
    held: list[list[str]] = []
    link = Link(Broker(), client_id="none")
    describing = Describing(link, catalogue(FLEET), Counter(), lambda _device: False, held.append)
    for reason, devices in (("guarantee", ["watch"]), ("", [])):
        said = PolicyStatus(1, b"12345678", reason, "", 1, False)
        for fleet, expected in (("other", held[-1:]), ("home", [devices])):
            describing.heard(policy_status_topic(fleet, "watch"), said.encode())
            assert held[-1:] == expected
