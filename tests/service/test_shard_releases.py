"""Releases about the devices of several shards: the same as of one store, whoever is missing or started again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fugu.contract.release_frames import ReleaseFrame, decode_release
from fugu.host.database import DatabaseError
from fugu.host.held_files import FileLostError
from fugu.mqtt import Broker, Link
from gateway.releases.audit import verify
from gateway.releases.counts import Counts, StoreCounting
from gateway.releases.entries import canonical
from gateway.releases.inputs import Question
from gateway.releases.ledger import Ledger
from gateway.releases.schedule import NotKnownError, ReleaseSchedule, StoreProgress
from gateway.releases.setup import open_releases
from gateway.service.ownership import Shard, owner
from gateway.service.policies import Catalogue
from gateway.service.recorder import Recorder
from gateway.service.shard_channel import Asked, ShardChannel, ShardChannelError
from gateway.service.shard_part import ShardPart
from gateway.service.shard_releases import ShardCounting, ShardProgress
from gateway.service.shard_stores import arrange, channel_of, shard_store
from gateway.service.store import Store
from tests.support.release_scenes import scheduled, write_config
from tests.support.scenes import OTHER, Scene, catalogue, frames, policy
from tests.support.sealing import seal

DEVICES = ("sensor-0", "sensor-2", "sensor-6", "sensor-7")
POLICIES = tuple(policy(device=device, **({"table": OTHER} if device == "sensor-6" else {})) for device in DEVICES)
SHARDS = 3
LINK = Link(Broker(), client_id="none")


def filled(folder: Path, sizes: tuple[int, ...] = (10, 10, 10)) -> Path:
    """A store with frames of all devices, moved to its shards."""
    scene = Scene(folder / "s.sqlite", policies=POLICIES)
    for seed, device in enumerate(DEVICES):
        for frame in frames(list(sizes), seed=seed):
            scene.record(frame, device=device)
    with closing(ShardChannel(channel_of(scene.path))) as channel:
        arrange(scene.store, channel, scene.path, SHARDS, seal)
    scene.store.close()
    return scene.path


class Running:
    """A shard without a broker, as its worker runs it."""

    def __init__(self, store: Path, index: int, shards: int = SHARDS) -> None:
        shard = Shard(index, shards)
        self.counters: Counter[str] = Counter()
        self.catalogue = Catalogue("home", shard.owns)
        for one in POLICIES:
            self.catalogue.add(one)
        self.store = Store(shard_store(store, index))
        self.channel = ShardChannel(channel_of(store))
        self.recorder = Recorder(self.store, self.catalogue, 8, self.counters)
        parts = (shard, LINK, self.store, self.catalogue, self.recorder, self.channel, self.counters)
        self.part = ShardPart(*parts)

    def work(self) -> None:
        """Answer all that is asked."""
        self.part._look_at = self.part._refresh_at = 0.0
        self.part.stored()
        self.part.pump()
        while self.part.busy:
            self.part.pump()

    def close(self) -> None:
        self.store.close()
        self.channel.close()


class Fleet:
    """The process of the whole fleet, without a broker."""

    def __init__(self, store: Path, *releases: str) -> None:
        self.counters: Counter[str] = Counter()
        self.missing: tuple[int, ...] = ()
        self.store = Store(store)
        self.channel = ShardChannel(channel_of(store))
        self.channel.begin(SHARDS)
        counting = ShardCounting(self.channel, SHARDS, self.counters)
        progress = ShardProgress(self.channel, SHARDS, lambda: self.missing)
        config = write_config(store.parent, *releases)
        made = open_releases(
            *(config, store.with_name("l.sqlite"), self.store, catalogue(POLICIES), lambda: 2 * 10**15),
            counting=counting,
        )
        self.ledger: Ledger = made.ledger
        self.schedule = ReleaseSchedule(made.jobs, made.maker, progress, made.record, LINK, self.counters)

    def work(self, *shards: Running) -> None:
        """Let all of them work for as long as there is anything to do."""
        for _ in range(12):
            self.schedule.stored()
            while self.schedule.busy:
                self.schedule.pump(idle=True)
            for shard in shards:
                shard.work()

    @property
    def frames(self) -> list[ReleaseFrame]:
        """What has been reserved, in order."""
        return [decode_release(entry.payload) for entry in self.ledger.entries()]

    def close(self) -> None:
        self.store.close()
        self.channel.close()
        self.ledger.close()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three shards' files with thirty ticks of each device."""
    return filled(tmp_path)


@pytest.fixture
def shards(store: Path) -> Iterator[list[Running]]:
    with closing(ShardChannel(channel_of(store))) as channel:
        channel.begin(SHARDS)
    running = [Running(store, index) for index in range(SHARDS)]
    yield running
    for one in running:
        one.close()


def question(name: str = "active", devices: tuple[str, ...] = DEVICES, kind: str = "count") -> Question:
    """A question about all devices."""
    from gateway.releases.statistics import Query

    labels = POLICIES[0].discretiser.states
    states = (0, 1) if kind == "histogram" else (1,)
    query = Query(kind, states)  # type: ignore[arg-type]
    return Question(name, "hr", devices, labels, query, 20, "best", "chain", 0.95, {}, frozenset())


def drain(work: Iterator[bool], shards: list[Running]) -> Counts:
    """Let a count and shards go on until it is done."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            found: Counts = ended.value
            return found
        for shard in shards:
            shard.work()


@pytest.mark.parametrize("kind", ["count", "histogram", "dwell"])
def test_shards_count_what_one_store_would(tmp_path: Path, store: Path, shards: list[Running], kind: str) -> None:
    (tmp_path / "one").mkdir()
    alone = Scene(tmp_path / "one" / "s.sqlite", policies=POLICIES)
    for seed, device in enumerate(DEVICES):
        for frame in frames([10, 10, 10], seed=seed):
            alone.record(frame, device=device)
    known = catalogue(POLICIES)
    asked = question(kind=kind)
    expected = drain(StoreCounting(alone.store, known).count(asked, 5), [])
    with closing(ShardChannel(channel_of(store))) as channel:
        found = drain(ShardCounting(channel, SHARDS, Counter()).count(asked, 5), shards)
        ours, theirs = (json.loads(canonical(one.document())) for one in (found, expected))
        for one in (ours, theirs):  # the order of tables says nothing
            tables = [json.dumps(rows) for rows in one.pop("tables")]
            for part in ("tally", "beside"):
                one[part] = sorted([tables[place], *rest] for place, *rest in one[part])
            one["symbols"] = {device: [tables[place] for place in used] for device, used in one["symbols"].items()}
        assert ours == theirs
        assert set(ours["symbols"]) == set(DEVICES)
        progress = ShardProgress(channel, SHARDS, lambda: ())
        here = StoreProgress(alone.store, alone.recorder)
        for ask in (
            lambda one: one.reached(asked),
            lambda one: one.complete(asked, 0, 29),
            lambda one: one.complete(asked, 0, 30),
            lambda one: one.next_frame(asked, 25),
            lambda one: one.next_frame(asked, 40),
            lambda one: one.wall_tick(asked, {"sensor-2": 7}),
        ):
            with pytest.raises(NotKnownError):
                ask(progress)
            for shard in shards:
                shard.work()
            assert ask(progress) == ask(here)


def test_a_missing_shard_delays_a_release_and_then_its_devices_are_in_it(store: Path, shards: list[Running]) -> None:
    fleet = Fleet(store, scheduled())
    fleet.work(*shards[:2])
    assert fleet.frames == []
    fleet.work(*shards)
    (frame,) = fleet.frames
    assert (frame.first, frame.devices, frame.observed) == (0, len(DEVICES), 20 * len(DEVICES))
    fleet.work(*shards)
    assert len(fleet.frames) == 1
    assert verify(fleet.ledger).problems == ()
    assert fleet.channel.questions() == [one for one in fleet.channel.questions() if not one.name.startswith("count")]
    fleet.close()


def test_nothing_is_decided_while_a_shard_is_missing_although_it_has_answered(
    store: Path, shards: list[Running]
) -> None:
    fleet = Fleet(store, scheduled())
    fleet.missing = (1,)
    fleet.work(*shards)
    assert fleet.frames == []
    fleet.missing = ()
    fleet.work(*shards)
    assert len(fleet.frames) == 1
    fleet.close()


def asked_until_counting(fleet: Fleet, shards: list[Running]) -> None:
    """Until all shards are asked to count, and all but the last one have."""
    while not any(one.name == "count:active" for one in fleet.channel.questions()):
        fleet.schedule.stored()
        while fleet.schedule.busy:
            fleet.schedule.pump(idle=True)
        if not any(one.name == "count:active" for one in fleet.channel.questions()):
            for shard in shards:
                shard.work()
    for shard in shards[:-1]:
        shard.work()


def test_whoever_is_started_again_between_question_and_answer_the_population_stays_and_it_is_released_once(
    store: Path, shards: list[Running]
) -> None:
    fleet = Fleet(store, scheduled())
    asked_until_counting(fleet, shards)
    (before,) = [one for one in fleet.channel.questions() if one.name == "count:active"]
    fleet.close()
    fleet = Fleet(store, scheduled(devices=list(DEVICES[:2])))  # fewer would take part now
    again = [shards[0], *(Running(store, index) for index in (1, 2))]
    fleet.work(again[0], again[1])
    assert [one for one in fleet.channel.questions() if one.name == "count:active"] in ([before], [])
    fleet.work(*again)
    assert [frame.devices for frame in fleet.frames] == [len(DEVICES)]
    assert fleet.frames[0].observed == 20 * len(DEVICES)
    fleet.close()
    fleet = Fleet(store, scheduled())
    fleet.work(*again)
    assert len(fleet.frames) == 1
    assert [one.counters["answers"] > 0 for one in again] == [True] * 3
    for one in again[1:]:
        one.close()
    fleet.close()


def test_an_answer_is_given_once_even_by_a_shard_that_was_started_again(store: Path, shards: list[Running]) -> None:
    with closing(ShardChannel(channel_of(store))) as channel:
        work = ShardCounting(channel, SHARDS, Counter()).count(question(), 0)
        assert next(work)
        shards[0].work()
        ((asked, _),) = [found for found in [channel.question("count:active")] if found]
        first = channel.answers(asked)
        with Closing(store, 0) as again:
            again.work()
            assert again.counters["answers"] == 0
        assert channel.answers(asked) == first


def test_answers_to_another_question_or_about_others_devices_are_refused(store: Path, shards: list[Running]) -> None:
    counters: Counter[str] = Counter()
    with closing(ShardChannel(channel_of(store))) as channel:
        work = ShardCounting(channel, SHARDS, counters).count(question(), 0)
        assert next(work)
        for shard in shards[1:]:
            shard.work()
        found = channel.question("count:active")
        assert found is not None
        asked, document = found
        theirs = Counts.of_document(question(), channel.answers(asked)[1])
        channel.answer(0, Asked(asked.name, "0" * 64), {})
        assert next(work)
        assert counters["answers_refused"] == 1
        channel.answer(0, asked, theirs.document())  # of devices that are shard 1's
        assert next(work)
        assert counters["answers_refused"] == 1  # once a shard
        channel._db.execute("DELETE FROM answers WHERE shard=0")
        assert set(drain(work, [Running(store, 0)]).tables) == set(DEVICES)
        assert document["first"] == 0


def test_a_fleet_that_is_started_again_is_answered_again_by_shards_that_go_on(
    store: Path, shards: list[Running]
) -> None:
    with closing(ShardChannel(channel_of(store))) as channel:
        for _ in range(2):
            progress = ShardProgress(channel, SHARDS, lambda: ())
            with pytest.raises(NotKnownError):
                progress.reached(question())
            for shard in shards:
                shard.work()
            assert progress.reached(question()) == (29, 29)
            channel.begin(SHARDS)


def test_a_refusal_of_one_shard_refuses_the_release(store: Path, shards: list[Running]) -> None:
    fleet = Fleet(store, scheduled())
    asked_until_counting(fleet, shards)
    found = fleet.channel.question("count:active")
    assert found is not None
    fleet.channel.answer(2, found[0], {"refused": "it says nothing"})
    fleet.work()
    assert (fleet.counters["releases_refused"], fleet.frames) == (1, [])
    fleet.close()


def test_shards_of_another_number_answer_nothing_and_end(store: Path, shards: list[Running]) -> None:
    stranger = Running(store, 0, 2)
    with closing(ShardChannel(channel_of(store))) as channel:
        work = ShardCounting(channel, SHARDS, Counter()).count(question(), 0)
        assert next(work)
        with pytest.raises(FileLostError, match="for 3 shards now, not for 2"):
            stranger.work()
        assert stranger.counters["answers"] == 0
    stranger.close()


def test_nothing_is_forgotten_before_it_is_known_what_releases_need(store: Path) -> None:
    with closing(ShardChannel(channel_of(store))) as channel:
        channel.begin(SHARDS)
        assert not channel.known
        with pytest.raises(DatabaseError):
            channel.needed()
        channel.say_needed({("sensor-0", "hr"): 20})
        assert channel.needed() == {("sensor-0", "hr"): 20}
        channel.begin(SHARDS)
        assert not channel.known


def test_a_file_that_is_none_of_shards_is_refused(store: Path) -> None:
    with pytest.raises(ShardChannelError, match="is no channel of shards"):
        ShardChannel(store)


class Closing(Running):
    def __enter__(self) -> Closing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def test_a_message_of_a_device_of_another_shard_ends_the_subscription_to_it(store: Path, shards: list[Running]) -> None:
    mine = next(device for device in DEVICES if owner(device, SHARDS) == 0)
    other = next(device for device in DEVICES if owner(device, SHARDS) != 0)
    assert shards[0].part.heard(f"fugu/2/home/{other}/symbols/hr")
    assert not shards[0].part.heard(f"fugu/2/home/{mine}/symbols/hr")
    assert shards[0].counters["strays"] == 1


@pytest.mark.parametrize("what", ["count", "reached"])
def test_what_is_withdrawn_and_asked_again_between_two_looks_is_answered_again(
    store: Path, shards: list[Running], what: str
) -> None:
    document = {"question": question().document(), "what": what, "shards": SHARDS, "first": 0}
    with closing(ShardChannel(channel_of(store))) as channel:
        asked = channel.ask("active", document)
        for _ in range(2):
            for shard in shards:
                shard.work()
            assert len(channel.answers(asked)) == len({owner(device, SHARDS) for device in DEVICES})
            channel.withdraw(["active"])
            assert channel.ask("active", document) == asked
