"""Devices are moved while shards start, live and die at every moment of it: nothing accepted is lost or there twice.

A shard of the old number has looked at the layout before devices are moved, and goes on at one moment in the middle of
that. One that is thought dead has its store until that moment. What either stores counts as accepted only if its
transaction was. The process of the fleet ends where it finds that it has lost something, and is started again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress

import pytest

from fugu.contract.frames import SymbolFrame
from fugu.host.database import AwayError, DatabaseError
from fugu.host.held_files import FileLostError
from gateway.service.ownership import owner
from gateway.service.policies import Catalogue
from gateway.service.recorder import Recorder
from gateway.service.shard_channel import ShardChannel
from gateway.service.shard_stores import arrange, channel_of, shard_store, stores
from gateway.service.store import Lease, Location, Server, Store, StoreError, moving
from gateway.service.symbols.arrivals import Arrivals, Received
from tests.support.brokers import wait_until
from tests.support.scenes import frames, policy
from tests.support.sealing import seal

DEVICES = ("sensor-0", "sensor-2", "sensor-6")
POLICIES = tuple(policy(device=device) for device in DEVICES)
OLD, NEW = 2, 3
MOMENTS = ("held", "zeroed", "sealed", "copied", "removed", "moved")
Accepted = dict[str, list[SymbolFrame]]


def all_frames(device: str) -> list[SymbolFrame]:
    """What a device ever sends."""
    return frames([10] * 12, seed=DEVICES.index(device))


class Shard:
    """A shard's process, in steps."""

    def __init__(self, store: Location, index: int, shards: int, accepted: Accepted) -> None:
        self._where = store
        self._index = index
        self._shards = shards
        self._accepted = accepted
        self.runs = False

    def look(self) -> bool:
        """Whether it may take its store."""
        with closing(ShardChannel(channel_of(self._where))) as channel:
            return channel.shards == self._shards

    def take(self) -> None:
        """Take its store, look again, and run or let go."""
        self._store = Store(shard_store(self._where, self._index), lease=Lease(take=True))
        with closing(ShardChannel(channel_of(self._where), Lease(f"shard-{self._index}", take=True))) as channel:
            self.runs = channel.shards == self._shards
        if self.runs:
            known = Catalogue("home")
            for one in POLICIES:
                known.add(one)
            self._recorder = Recorder(self._store, known, 8, Counter())
        else:
            self._store.close()

    def work(self) -> None:
        """Store the next frame of each of its devices, if it runs; it ends where it is told that it is not the one."""
        for device in DEVICES if self.runs else ():
            if owner(device, self._shards) == self._index:
                frame = all_frames(device)[len(self._accepted[device])]
                try:
                    self._recorder.record(Arrivals.of(self._recorder.streams, [Received(device, "hr", frame)]))
                except FileLostError:
                    self.stop()
                    return
                except AwayError:
                    return
                self._accepted[device].append(frame)

    def stop(self) -> None:
        """End in order."""
        if self.runs:
            self.runs = False
            self._store.close()


def start_fleet(store: Location, shards: int, at: Callable[[str], None] = lambda _moment: None) -> None:
    """As the fleet's process does; `at` is called at every moment of it.

    Raises:
        FuguError, DatabaseError: it ends.
    """

    class Channel(ShardChannel):
        def begin(self, shards: int) -> None:
            at("moved" if shards else "held")
            super().begin(shards)
            at("begun" if shards else "zeroed")

    def sealing(source: Store) -> None:
        seal(source)
        at("sealed")

    with ExitStack() as opened:
        home = opened.enter_context(closing(Store(store, lease=Lease(take=True))))
        channel = opened.enter_context(closing(Channel(channel_of(store), Lease("fleet", take=True))))
        arrange(home, channel, store, shards, sealing)


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[str], None]]:
    """What happens when a device has been copied or removed: `at`."""
    found: dict[str, Callable[[str], None]] = {"at": lambda _moment: None}
    for step, moment in (("copy_device", "copied"), ("remove_device", "removed")):
        real = getattr(moving, step)

        def hooked(*arguments: object, real: Callable[..., None] = real, moment: str = moment) -> None:
            real(*arguments)
            found["at"](moment)

        monkeypatch.setattr(moving, step, hooked)
    return found


def check(store: Location, shards: int, accepted: Accepted) -> None:
    """What was accepted of every device is in the store of its owner, and nowhere else."""
    places = {-1: store, **stores(store)}
    found: dict[str, list[int]] = {device: [] for device in DEVICES}
    for index, place in places.items():
        with closing(Store(place)) as opened:
            for device in opened.devices():
                found[device].append(index)
                number = opened.stream_id(device, "hr")
                assert number is not None
                stored = b"".join(one.symbols for one in opened.symbols.following(number, 0))
                assert stored == b"".join(one.symbols for one in accepted[device])
    assert found == {device: [owner(device, shards)] for device in DEVICES}


def filled(store: Location) -> Accepted:
    """A fleet of two shards, each of which has stored something and has ended."""
    accepted: Accepted = {device: [] for device in DEVICES}
    start_fleet(store, OLD)
    for index in range(OLD):
        shard = Shard(store, index, OLD, accepted)
        assert shard.look()
        shard.take()
        shard.work()
        shard.stop()
    check(store, OLD, accepted)
    return accepted


@pytest.mark.long
@pytest.mark.parametrize(("moment", "index"), [(moment, i % OLD) for i, moment in enumerate(MOMENTS)])
def test_a_shard_of_the_old_number_that_goes_on_in_the_middle(
    server: Server, moments: dict[str, Callable[[str], None]], moment: str, index: int
) -> None:
    accepted = filled(server)
    late = Shard(server, index, OLD, accepted)
    assert late.look()
    took = [False]

    def at(now: str) -> None:
        if now == moment and not took[0]:
            took[0] = True
            late.take()
        late.work()

    moments["at"] = at
    before = {device: len(some) for device, some in accepted.items()}
    with suppress(StoreError, DatabaseError):
        start_fleet(server, NEW, at)
    assert took[0]
    late.work()
    ran = {device: len(some) for device, some in accepted.items()} != before
    assert ran == (moment == "held")  # with the old layout it runs only if that has not gone yet
    moments["at"] = lambda _moment: None
    start_fleet(server, NEW)  # the layout is 0: whoever still has a store is none that may
    wait_until(lambda: late.work() or not late.runs, "the end of the shard of before")
    check(server, NEW, accepted)
    new = Shard(server, 2, NEW, accepted)
    assert new.look()
    new.take()
    new.work()
    new.stop()
    check(server, NEW, accepted)


@pytest.mark.long
def test_devices_of_a_shard_that_lives_are_not_moved(server: Server) -> None:
    accepted = filled(server)
    shard = Shard(server, 1, OLD, accepted)
    shard.take()
    for _ in range(2):
        with pytest.raises(StoreError, match=r"another gateway runs with the store .* shard-1"):
            start_fleet(server, NEW)
        shard.work()
        assert shard.runs
    start_fleet(server, OLD)  # of the same number: it goes on, and needs nothing of the shards
    shard.work()
    assert shard.runs
    shard.stop()
    start_fleet(server, NEW)
    check(server, NEW, accepted)


@pytest.mark.long
@pytest.mark.parametrize("moment", ["held", "copied", "moved"])
def test_a_process_of_the_fleet_that_was_thought_dead_moves_nothing_any_more(
    server: Server, moments: dict[str, Callable[[str], None]], moment: str
) -> None:
    accepted = filled(server)
    reached = [False]

    def at(now: str) -> None:
        if now == moment and not reached[0]:
            reached[0] = True
            if moment == "held":  # those that it holds, it holds with the old layout: they are refused to others
                with pytest.raises(StoreError, match="another gateway runs"):
                    start_fleet(server, OLD + 2)
            else:
                start_fleet(server, OLD + 2)  # another one is started elsewhere, and done

    moments["at"] = at
    with pytest.raises((StoreError, DatabaseError), match=r"another process has taken|no connection|start again"):
        start_fleet(server, NEW, at)
    assert reached[0]
    if moment == "held":
        start_fleet(server, NEW)
    check(server, NEW if moment == "held" else OLD + 2, accepted)


@pytest.mark.long
@pytest.mark.parametrize("moment", ["held", "copied", "removed"])
def test_a_process_of_the_fleet_that_is_killed_is_made_up_for(
    location: Location, moments: dict[str, Callable[[str], None]], moment: str
) -> None:
    accepted = filled(location)

    def at(now: str) -> None:
        if now == moment:
            raise KeyboardInterrupt

    moments["at"] = at
    with pytest.raises(KeyboardInterrupt):
        start_fleet(location, NEW, at)
    assert Shard(location, 0, OLD, accepted).look() == (moment == "held")
    moments["at"] = lambda _moment: None
    start_fleet(location, OLD)
    check(location, OLD, accepted)
    start_fleet(location, 1)
    with closing(Store(location)) as home:
        assert home.devices() == sorted(DEVICES)
