"""Configurations of releases, a gateway that makes them, and a subscriber that keeps what it gets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from fugu.contract.history import History
from fugu.contract.measure_frames import AnyFrame
from fugu.contract.policy import Policy
from fugu.contract.reports import AlarmCode, ReleaseFrame
from fugu.mqtt import Broker, Link
from gateway.estimates.catalogue import Catalogue
from gateway.loop.release_part import ReleasePart
from gateway.releases.ledger import Ledger
from gateway.releases.schedule import ReleaseSchedule, StoreProgress
from gateway.releases.setup import open_releases
from tests.support.brokers import Mosquitto
from tests.support.gateway_files import gateway_config
from tests.support.gateway_service import GatewayProcess
from tests.support.processes import Recorder
from tests.support.scenes import OTHER, Scene, catalogue, loop_of, policy

PUBLIC = '[audiences.public]\nepsilon = 1.0\nadversary = "informed"\n'
FLEET = (policy(1), policy(1, device="ring", table=OTHER))


def scheduled(name: str = "active", audience: str = "public", **more: object) -> str:
    """A release as TOML: a count of level 1 in windows of 20 ticks, with the whole allowance."""
    fields: dict[str, object] = {
        **{"name": name, "stream": "hr", "query": "count", "states": ["level 1"], "length": 20},
        "audience": audience,
        **({} if {"scale", "once"} & set(more) else {"share": 1.0}),
        **more,
    }
    # strings, numbers, booleans and lists of them look the same in TOML and JSON
    lines = [f"{key} = {json.dumps(value)}" for key, value in fields.items() if value is not None]
    return "\n".join(["[[releases]]", *lines, ""])


def write_config(folder: Path, *releases: str, audiences: str = PUBLIC) -> Path:
    path = folder / "releases.toml"
    path.write_text(audiences + "".join(releases))
    return path


class Bench:
    """A schedule on a recorder, without a broker; it can be opened anew as after a crash."""

    def __init__(
        self, folder: Path, *releases: str, audiences: str = PUBLIC, fleet: tuple[Policy, ...] = FLEET
    ) -> None:
        self.folder = folder
        self.fleet = fleet
        self.config = write_config(folder, *releases, audiences=audiences)
        self.counters: Counter[str] = Counter()
        self.now = 1000.0
        self.now_us = 2 * 10**15
        self.scene = Scene(folder / "s.sqlite", 8, fleet)
        self.open()

    def open(self, history: Callable[[str, str], History] | None = None) -> None:
        """Open the ledger and begin, with nothing in memory; `history` is of streams, by default as stored."""
        models = catalogue(self.fleet)
        models.retire(self.scene.store.policy_documents())
        opened = open_releases(
            self.config, self.folder / "l.sqlite", self.scene.store, models, lambda: self.now_us, history=history
        )
        self.ledger: Ledger = opened.ledger
        self.catalogue, self.jobs, self.maker = models, opened.jobs, opened.maker
        link = Link(Broker(), client_id="none")
        progress = StoreProgress(self.scene.store, self.scene.recorder.coverage_of)
        self.schedule = ReleaseSchedule(opened, progress, link, self.counters, lambda: self.now)

    def reopen(self) -> None:
        self.ledger.close()
        self.scene.reopen()
        self.open()

    def work(self, *arrived: AnyFrame, **sender: str) -> list[ReleaseFrame]:
        """Record what has arrived and do all that is due; all releases that there are."""
        if arrived:
            self.scene.record(*arrived, **sender)
        self.schedule.has_changed = True
        while self.schedule.busy:
            self.schedule.pump(idle=True)
        return self.frames

    @property
    def frames(self) -> list[ReleaseFrame]:
        return [ReleaseFrame.decode(entry.payload) for entry in self.ledger.entries()]


class Noted:
    """Messages to a monitor."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str]] = []
        self.held: dict[str, str] = {}

    def note(self, _code: AlarmCode, name: str, detail: str) -> None:
        """Something has happened."""
        self.notes.append((name, detail))

    def hold(self, _code: AlarmCode, details: Mapping[str, str]) -> None:
        self.held = dict(details)


def releasing(
    scene: Scene, config: Path, models: Catalogue, counters: Counter[str], noted: Noted, *, shared: bool = False
) -> ReleasePart:
    """The part of a gateway that makes releases of a scene, without a broker; its ledger is `s-ledger.sqlite`."""
    settings = gateway_config("home", Broker(), scene.path, config.parent, releases=config)
    progress = StoreProgress(scene.store, scene.recorder.coverage_of)
    objects = {"store": scene.store, "link": Link(Broker(), client_id="none"), "catalogue": models}
    loop = loop_of(**objects, counters=counters, monitor=noted)
    return ReleasePart(loop, config, settings, progress, shared=shared)


class Public(Recorder):
    """A subscriber of all releases; `seen` is called with each payload, in the network thread."""

    def __init__(self, mosquitto: Mosquitto, seen: Callable[[bytes], None] = lambda _: None) -> None:
        self._seen, self.retained = seen, list[bool]()
        super().__init__(mosquitto.broker, "fugu/2/home/release/+/+")

    def received(self, topic: str, payload: bytes, retained: bool) -> None:
        self._seen(payload)
        self.retained.append(retained)
        super().received(topic, payload, retained)

    @property
    def releases(self) -> list[ReleaseFrame]:
        return self.of("release", ReleaseFrame.decode)


def start_gateway(mosquitto: Mosquitto, folder: Path) -> GatewayProcess:
    """`fugu gateway run` with releases, in a process of its own."""
    return GatewayProcess(mosquitto, folder, releases="releases.toml", ledger="l.sqlite")
