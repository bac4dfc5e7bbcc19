"""One store for several shards: each sees its own devices' rows alone, and the fleet's process sees all, soon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from fugu.contract.frames import WindowFrame
from fugu.contract.windows import Window
from gateway.cluster.duties import FleetProgress
from gateway.estimates.catalogue import Catalogue
from gateway.loop.recorder import Recorder
from gateway.releases.inputs import Question
from gateway.releases.schedule import NotKnownError, StoreProgress
from gateway.releases.statistics import Query
from gateway.store.journal import ReceivedFrame
from gateway.store.location import Server
from gateway.store.shards import Shard, owner
from gateway.store.store import Store
from tests.support.scenes import Scene, final_state, frames, policy

pytestmark = pytest.mark.processes

DEVICES = tuple(f"sensor-{index}" for index in range(1, 8))
HIGH = Window(name="high", length=10, stride=10, start=0, states=(1,), scale="20")
POLICIES = tuple(policy(device=device, windows=(HIGH,)) for device in DEVICES)
SHARDS = 3


@pytest.fixture
def scenes(server: Server) -> Iterator[list[Scene]]:
    """A recorder of each shard."""
    scenes = [Scene(server, policies=POLICIES, shard=Shard(index, SHARDS)) for index in range(SHARDS)]
    yield scenes
    for scene in scenes:
        scene.store.close()


def of(scenes: list[Scene], device: str) -> Scene:
    """That of the shard that owns a device."""
    return scenes[owner(device, SHARDS)]


def made_of(device: str) -> list[ReceivedFrame]:
    """Frames of symbols with a gap, and windows."""
    some = frames([10, 30, 5, 40], gaps=[0, 0, 7], seed=len(device) + DEVICES.index(device))
    windows = [WindowFrame(1, "high", i - 1, i, 10 * i, 10, 10, (i,)) for i in range(3)]
    return [ReceivedFrame(device, "hr", frame) for frame in (*some, *windows)]


def question(*devices: str, windows: bool = False) -> Question:
    return Question(
        *("active", "hr", devices, ("level 0", "level 1"), Query("frequency", (1,)), 20, "symbols", "chain", 0.9),
        *(dict.fromkeys(devices, HIGH) if windows else {}, frozenset()),
    )


def test_a_shard_sees_nothing_of_others_devices(scenes: list[Scene], server: Server) -> None:
    for device in DEVICES:
        of(scenes, device).receive(made_of(device))
    for index, scene in enumerate(scenes):
        mine = {device for device in DEVICES if owner(device, SHARDS) == index}
        store = scene.store
        wait = store.outbox(0, 2)
        assert {outgoing.place.device for outgoing in wait} <= mine
        seen = {outgoing.place.device for outgoing in wait}
        while wait := store.outbox(wait[-1].serial, 2):
            seen |= {outgoing.place.device for outgoing in wait}
        assert seen == mine
        assert {sequence.device for sequence in store.aged.sequences(0, 1000)} == mine
        assert {place.device for place in store.places(store.symbols.tail.sequences)} == mine
        assert {place.device for place in store.places(store.symbols.unreported())} == mine
        assert {place.device for place in store.places([*store.newest_frames()])} == mine
        assert len(store.policy_documents()) == 2 * len(mine)
    scenes[0].recorder.seal(now=True)
    with closing(Store(server)) as whole:
        devices = {place.device for place in whole.places(whole.symbols.tail.sequences)}
    assert devices == {device for device in DEVICES if owner(device, SHARDS) != 0}


def test_a_shard_says_and_stops_its_own_contradictions_only(scenes: list[Scene]) -> None:
    for device in DEVICES:
        of(scenes, device).store.conflicts.note(device, "hr", 0, 1)
        of(scenes, device).store.conflicts.stop(device, 1)
    for index, scene in enumerate(scenes):
        mine = {device for device in DEVICES if owner(device, SHARDS) == index}
        assert {device for device, *_ in scene.store.conflicts.all_conflicts()} == mine
        assert scene.store.conflicts.stops().keys() == mine


def test_the_fleet_sees_what_shards_have_stored_whatever_they_seal(scenes: list[Scene], server: Server) -> None:
    missing: list[int] = []
    with closing(Store(server)) as store:
        progress = FleetProgress(store, SHARDS, lambda: tuple(missing))
        asked = [question(*DEVICES), question(*DEVICES, windows=True), *(question(device) for device in DEVICES)]

        def look() -> None:
            progress._look_at = 0.0
            assert progress.refresh()

        def as_a_recorder_sees_it() -> None:
            look()
            fresh = Scene(server, policies=POLICIES)
            with closing(fresh.store):
                plain = StoreProgress(fresh.store, fresh.recorder.coverage_of)
                for question in asked:
                    assert progress.newest_ticks(question) == plain.newest_ticks(question)
                    assert progress.wall_tick(question, {DEVICES[0]: 17}) == plain.wall_tick(question, {DEVICES[0]: 17})
                    for tick in (0, 15, 50, 1000):
                        assert progress.next_frame(question, tick) == plain.next_frame(question, tick)
                        assert progress.complete(question, tick, tick + 19) == plain.complete(question, tick, tick + 19)

        as_a_recorder_sees_it()
        for turn in range(4):
            for device in DEVICES:
                of(scenes, device).receive([made_of(device)[turn]])
                if turn and device in DEVICES[:3]:
                    of(scenes, device).receive([made_of(device)[3 + turn]])
            as_a_recorder_sees_it()
            scenes[turn % SHARDS].recorder.seal(now=True)
            as_a_recorder_sees_it()
        for device in DEVICES:  # what it has read of the journal is stored once, sealed or not
            number = store.numbers("hr", [device])[device]
            symbols = b"".join(frame.symbols for frame in store.symbols.following(number, 0))
            assert symbols == b"".join(received.frame.symbols for received in made_of(device)[:4])
        look()
        assert not progress.refresh(), "not all the time"
        missing.append(1)
        assert not progress.note_return()
        for missing[:] in ((1,), ()):  # no release is made before devices of a shard that is back are waited for again
            with pytest.raises(NotKnownError, match=r"shards \(1,\) are missing"):
                progress.newest_ticks(asked[0])
        assert progress.note_return()
        assert progress.newest_ticks(asked[0])
        assert not progress.note_return()


@pytest.mark.long
def test_whoever_has_a_device_after_another_goes_on_where_that_one_was(server: Server, tmp_path: Path) -> None:
    """From 3 shards to 2, to one, and to 3: after each the same as in a file, and watermarks' numbers rise."""
    file = Scene(tmp_path / "s.sqlite", policies=POLICIES)
    reserved = 0
    for turn, shards in enumerate((3, 2, 1, 3)):
        with closing(Store(server)) as store:
            store.arrange(shards, partial(seal, store))
            assert store.shards == shards
            assert not store.symbols.tail.row_count
            assert store.reserved_counter() >= reserved
        scenes = [
            Scene(server, policies=POLICIES, shard=Shard(index, shards) if shards > 1 else None)
            for index in range(shards)
        ]
        for device in DEVICES:
            sent = made_of(device)
            some = [sent[turn], *sent[4 : 5 + turn], sent[max(turn - 1, 0)]]  # the last one again
            scenes[owner(device, shards)].receive(some)
            file.receive(some)
            assert scenes[owner(device, shards)].committed(device) == file.committed(device)
        reserved += 1000
        scenes[0].store.reserve_counter(reserved)
        for scene in scenes:
            scene.store.close()
    assert sum((scene.counters for scene in scenes), Counter()) > Counter(duplicate=len(DEVICES))
    whole = Scene(server, policies=POLICIES)
    for device in DEVICES:
        assert final_state(whole, device) == final_state(file, device)
    for scene in (whole, file):
        scene.store.close()


def seal(store: Store) -> None:
    """Leave nothing in a store's journal, as a gateway does."""
    catalogue = Catalogue("home")
    catalogue.retire(store.policy_documents())
    Recorder(store, catalogue, 8, Counter()).seal(now=True)
