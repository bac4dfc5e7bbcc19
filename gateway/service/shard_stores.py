"""The stores of a fleet's shards, and how a device's data gets into the store of the shard that owns it.

    home.db              the store of one gateway; with several shards, what the fleet has once
    home-shard-0.db ...  what each shard stores
    home-shards.db       what the shards and the fleet's process tell each other: the channel

On a server the same are schemas beside that of the store. Which device is where the stores themselves say; the channel
says for how many shards they are arranged, or 0 while devices are being moved. A device is moved by one transaction of
the store that gets it, then one of the store that had it: killed in between and started again, the second is made up
for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from fugu.host.database import DatabaseError
from gateway.database import Lease, delete_part, parts_of
from gateway.location import Location, part_of
from gateway.service.ownership import owner
from gateway.service.shard_channel import ShardChannel
from gateway.service.store import Store, StoreError
from gateway.service.store.store import KIND

__all__ = [
    "arrange",
    "channel_of",
    "delete_shard",
    "forget_layout",
    "is_shared",
    "retired",
    "shard_store",
    "snapshots",
    "store_of",
    "stores",
]

_log = logging.getLogger(__name__)
_SHARD, _CHANNEL = "shard-", "shards"


def shard_store(store: Location, index: int) -> Location:
    """Where a shard keeps its devices."""
    return part_of(store, f"{_SHARD}{index}")


def channel_of(store: Location) -> Location:
    """Where shards and the fleet's process tell each other what they have to."""
    return part_of(store, _CHANNEL)


def stores(store: Location) -> dict[int, Location]:
    """The stores of shards that there are, by index, whether or not there still is such a shard.

    Raises:
        StoreError: the server does not say.
    """
    found = {name.removeprefix(_SHARD): place for name, place in parts_of(store, KIND, _SHARD).items()}
    return dict(sorted((int(index), place) for index, place in found.items() if index.isdecimal()))


def is_shared(store: Location) -> bool:
    """Whether a store has ever been that of several shards.

    Raises:
        StoreError: the server does not say.
    """
    return bool(parts_of(store, KIND, _CHANNEL) or stores(store))


@contextmanager
def snapshots(store: Location) -> Iterator[list[Store]]:
    """A state of a store, and one of each of its shards' stores; gateways may be running.

    Raises:
        StoreError: there is no such store, or one cannot be read.
    """
    with ExitStack() as opened:
        some = [opened.enter_context(closing(Store(place, create=False))) for place in (store, *stores(store).values())]
        for one in some:
            opened.enter_context(one.snapshot())
        yield some


def retired(store: Location, shards: int) -> dict[int, Location]:
    """Stores of shards that there are no more; empty once `arrange` is done."""
    return {index: place for index, place in stores(store).items() if shards == 1 or index >= shards}


def arrange(home: Store, channel: ShardChannel, store: Location, shards: int, seal: Callable[[Store], None]) -> int:
    """Bring every device into the store of its owner, if they are arranged for another number of shards.

    Files are looked at in any case: a copy of one may have been put back, and no shard lives without this process. On a
    server shards may live while this process starts, and are left alone if the number is the same.

    A shard begins in this order: it waits until the channel says its number of shards (the layout); it takes its store
    and holds it; it looks at the layout again, and lets go if that is another. Here all stores are held first; then the
    layout becomes 0; then it is seen of each store whether it is still held; then devices are moved; then the layout
    becomes the new one. Every write is one by whoever holds the store at that moment, and who holds it last was the
    last to take it (`gateway.database.Lease`). So of a shard that has looked the first time before the layout became 0
    there are three cases:

    - It takes its store before it is held here. Then this is refused while it lives, because here a store is not
      taken by force; but for a layout of 0, with which no shard goes on.
    - It takes its store from this process before the layout becomes 0. It may go on with the old layout, but then this
      process finds that it has lost the store before it has moved anything, and ends.
    - It takes its store after that. It looks afterwards, finds 0, and lets go; or it finds the layout that it wants,
      because this process was done. What this process still had to write in that store fails, so that it ends
      with a layout of 0 unless it had written all there.

    A shard that was thought dead, and another process of the fleet, have lost their stores or the channel with the
    same effect. Whatever is not finished is done by the next start.

    Args:
        home: open, and held by the caller.
        channel: open, and held by the caller.
        store: where `home` is.
        shards: how many there are from now on.
        seal: leaves nothing in a store's journal.

    Returns:
        How many devices were moved.

    Raises:
        StoreError: a store cannot be used, or is; one line that says what to do.
    """
    before = channel.shards
    moved = 0
    if before != shards or isinstance(store, Path):
        with ExitStack() as held:
            opened = _open_all(held, store, shards, Lease(take=before == 0)) | {-1: home}
            try:
                targets = {index: _misplaced(index, one, shards) for index, one in opened.items()}
                if before != shards or any(targets.values()):
                    channel.begin(0)
                    for each in opened.values():
                        each.check()
                    moved = sum(_move(index, opened, gone, seal) for index, gone in targets.items())
            except DatabaseError as error:
                raise StoreError(f"cannot move devices between the stores: {error}; start again") from None
    channel.begin(shards)
    return moved


def _open_all(held: ExitStack, store: Location, shards: int, lease: Lease) -> dict[int, Store]:
    """Every store of a shard that there is, or is to be."""
    wanted = {} if shards == 1 else {index: shard_store(store, index) for index in range(shards)}
    places = stores(store) | wanted
    return {index: held.enter_context(closing(Store(place, lease=lease))) for index, place in places.items()}


def _misplaced(index: int, store: Store, shards: int) -> dict[str, int]:
    """The devices in a store that belong elsewhere, and where; -1 is the store of the whole fleet."""
    targets = {device: -1 if shards == 1 else owner(device, shards) for device in store.devices()}
    return {device: target for device, target in targets.items() if target != index}


def _move(index: int, opened: dict[int, Store], gone: dict[str, int], seal: Callable[[Store], None]) -> int:
    """Move devices out of a store; how many."""
    if gone:
        source = opened[index]
        seal(source)
        what = "the store" if index == -1 else f"shard {index}"
        _log.warning("moving %d devices from %s to the shards that own them now", len(gone), what)
        for device, target in gone.items():
            source.move_device(device, opened[target])
        if not source.devices():
            source.rewrite()
    return len(gone)


def forget_layout(store: Location) -> None:
    """Let the next start look where devices are, whatever was said before.

    Raises:
        FuguError: it cannot be said, or a gateway runs.
    """
    if parts_of(store, KIND, _CHANNEL):
        with closing(ShardChannel(channel_of(store), Lease("fleet"))) as channel:
            channel.begin(0)


def delete_shard(place: Location) -> None:
    """Delete the store of a shard that there is no more, and what is beside it.

    Raises:
        StoreError: it is used, or not empty.
    """
    with closing(Store(place, lease=Lease())) as opened:
        if opened.devices():
            raise StoreError(f"the store {place.name} still holds devices")
    delete_part(place, KIND)


def store_of(store: Location, device: str) -> Location:
    """The store that holds what is stored of a device; that of the whole fleet if none of a shard does.

    Raises:
        StoreError: one cannot be read.
    """
    for place in stores(store).values():
        try:
            with closing(Store(place, create=False)) as opened:
                if opened.knows(device):
                    return place
        except DatabaseError as error:
            raise StoreError(f"cannot read the store {place.name}: {error}") from None
    return store
