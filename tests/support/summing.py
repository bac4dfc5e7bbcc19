"""A gateway's parts for sums of homes on one store, on a clock that the test sets."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from fugu.contract.group_frames import OpeningRequest, Report, pack_numbers
from fugu.contract.groups import GroupDocument, SharedWindow
from fugu.contract.reports import ReleaseFrame
from fugu.contract.topics import topic_of
from gateway.estimates.catalogue import Catalogue
from gateway.loop.recorder import Recorder
from gateway.loop.sums import Reports, Sums
from gateway.parts import Message
from gateway.releases.config import ReleaseConfig
from gateway.releases.jobs import allowances
from gateway.releases.ledger import Ledger
from gateway.releases.maker import Maker
from gateway.releases.setup import history_in_store
from gateway.releases.sums import SumReleases, SumWindow
from gateway.store.location import Location
from gateway.store.shards import Shard, owner
from gateway.store.store import Store
from tests.support.groups import Member, member_policy, signed
from tests.support.opening import DOCUMENT, HOMES, Helper
from tests.support.scenes import loop_of
from tests.support.wires import Wire

WINDOW = SharedWindow.of(signed(DOCUMENT))
NUMBER = 5
DUE = DOCUMENT.due_us(NUMBER)
ANSWER = topic_of("group_answer", "home", DOCUMENT.name)


class ReleasePart:
    """The ledger of a store, whose accounts follow the policies, and what was reserved in it."""

    def __init__(self, maker: Maker, config: ReleaseConfig) -> None:
        self.maker = maker
        self.config = config
        self.sums = SumReleases(maker, config.audiences)
        self.refused: list[dict[str, str]] = []

    def publish_sums(self, groups: Any) -> None:
        self.topics = self.sums.topics(groups)

    def refusal(self, window: SumWindow) -> str:
        granted, self.impossible = allowances(self.config, (), self.maker.catalogue)
        self.maker.ledger.set_allowances(granted, time_us=0)
        return self.sums.refusal(window)

    def release(self, window: SumWindow, numbers: Sequence[tuple[int, int]]) -> None:
        self.refused.append(self.sums.reserve(window, numbers))


class Site:
    """A gateway's parts that sums need, on one store; with `shards`, as many others take the reports."""

    def __init__(
        self,
        folder: Path,
        document: GroupDocument = DOCUMENT,
        homes: Sequence[str] | None = None,
        *,
        location: Location | None = None,
        shards: int = 1,
        releases: ReleaseConfig | None = None,
    ) -> None:
        self.now_us = document.begins_us(NUMBER)
        shared = SharedWindow.of(signed(document))
        location = location or folder / "store.sqlite"
        self.store = Store(location)
        self.store.arrange(shards, lambda: None)
        self.catalogue = Catalogue("home")
        for name in homes or [home.name for home in HOMES]:
            self.catalogue.add(member_policy(name, shared))
        self.counters: Counter[str] = Counter()
        self.recorder = Recorder(self.store, self.catalogue, 0, self.counters)
        self.owed: list[str] = []
        self.ledger = Ledger(folder / "ledger.sqlite")
        history = partial(history_in_store, self.store, self.catalogue)
        maker = Maker(self.store, self.catalogue, self.ledger, lambda below: 0, lambda: self.now_us, history)
        self.lost: list[tuple[str, str]] = []
        self.line = Wire()
        self.seconds = 0.0
        loop = loop_of(
            store=self.store,
            link=self.line,
            catalogue=self.catalogue,
            counters=self.counters,
            monitor=Mock(note=lambda _code, name, why: self.lost.append((name, why))),
            now_us=lambda: self.now_us,
            seconds=lambda: self.seconds,
        )

        def taking(store: Store, recorder: Recorder) -> Reports:
            return Reports(dataclasses.replace(loop, store=store), recorder, self.owed.append)

        self.stores = [Store(location, shard=Shard(index, shards)) for index in range(shards if shards > 1 else 0)]
        others = [(store, Recorder(store, self.catalogue, 0, self.counters)) for store in self.stores]
        self.shards = [taking(*store) for store in others or [(self.store, self.recorder)]]
        self.reports = self.shards[0]
        self.releasing = ReleasePart(maker, releases or ReleaseConfig())
        self.sums = Sums(loop, self.releasing)
        self.sums.pump()  # what was due before the group came is nobody's

    def report(
        self,
        place: int,
        helper: Helper,
        count: int,
        number: int = NUMBER,
        previous: int = -1,
        key: int | None = None,
        version: int = 1,
    ) -> None:
        """Let a home report a count, with the key of another if that is said; a generator gives its mask."""
        home = HOMES[place] if key is None else Member(HOMES[place].name, HOMES[key].key)
        mask = random.Random(place).getrandbits(64)
        sealed = home.sealed(helper.key, DOCUMENT, number, [mask])
        report = Report(
            version, DOCUMENT.name, previous, number, DOCUMENT.digest, (10,), pack_numbers([count - mask]), sealed
        )
        reports = self.shards[owner(home.name, len(self.shards))]
        reports.heard(Message(topic_of("report", "home", home.name, "power"), report.encode()))
        reports.pump()

    def round(self) -> list[OpeningRequest]:
        before = len(self.line.sent)
        for _ in range(3):
            self.sums.pump()
        return [OpeningRequest.decode(payload) for _, payload in self.line.sent[before:]]

    def released(self) -> list[ReleaseFrame]:
        return [ReleaseFrame.decode(bytes(entry.payload)) for entry in self.ledger.entries()]

    def answer(self, payload: bytes) -> None:
        self.sums.heard(Message(ANSWER, payload))
        self.sums.pump()

    def close(self) -> None:
        for store in (*self.stores, self.store):
            store.close()
        self.ledger.close()


def take(helper: Helper, asked: Sequence[OpeningRequest]) -> bytes:
    """The helper's answer to the pages of a request."""
    (answer,) = [opened for page in asked if (opened := helper.group.add_page(page, helper.elapsed)) is not None]
    return answer


def settled(site: Site, helper: Helper, homes: int = 5, version: int = 1) -> list[OpeningRequest]:
    """A window that is due, with so many reports; what was asked."""
    for place in range(homes):
        site.report(place, helper, place, version=version)
    site.now_us = DUE
    return site.round()
