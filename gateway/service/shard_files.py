"""The files of a store of several shards, and how a device's data gets into the file of the shard that owns it.

    home.db              the store of one gateway; with several shards, what the fleet has once
    home-shard-0.db ...  what each shard stores
    home-shards.db       what the shards and the fleet's process tell each other

Which device is where the files themselves say. A device is moved by one transaction of the file that gets it, then one
of the file that had it: killed in between and started again, the second is made up for. Nothing else may run meanwhile.
"""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from gateway.service.ownership import owner
from gateway.service.store import Location, Store, StoreError
from host.database import DatabaseError

__all__ = ["arrange", "channel_file", "delete_shard", "retired", "shard_file", "store_of", "stores"]

_log = logging.getLogger(__name__)


def shard_file(store: Location, index: int) -> Path:
    """Where a shard keeps its devices, beside the store; a `StoreError` if that is no file."""
    store = _file(store)
    return store.with_name(f"{store.stem}-shard-{index}{store.suffix}")


def channel_file(store: Location) -> Path:
    """Where shards and the fleet's process tell each other what they have to; a `StoreError` as above."""
    store = _file(store)
    return store.with_name(f"{store.stem}-shards{store.suffix}")


def stores(store: Location) -> dict[int, Path]:
    """The files of shards that there are, by index, whether or not there still is such a shard."""
    if not isinstance(store, Path):
        return {}
    name = re.compile(re.escape(store.stem) + "-shard-([0-9]{1,3})" + re.escape(store.suffix))
    found = {}
    if store.parent.is_dir():
        for path in store.parent.iterdir():
            if match := name.fullmatch(path.name):
                found[int(match[1])] = path
    return dict(sorted(found.items()))


def retired(store: Location, shards: int) -> dict[int, Path]:
    """Files of shards that there are no more; empty once `arrange` is done."""
    return {index: path for index, path in stores(store).items() if shards == 1 or index >= shards}


def arrange(home: Store, store: Location, shards: int, seal: Callable[[Store], None]) -> int:
    """Bring every device into the file of its owner; no shard may run.

    Args:
        home: open, and held by the caller.
        store: where it is.
        seal: leaves nothing in a store's journal.

    Returns:
        How many devices were moved.

    Raises:
        StoreError: a file cannot be used, or is; one line that says what to do.
    """
    present = stores(store)
    if shards == 1 and not present:
        return 0
    wanted = {} if shards == 1 else {index: shard_file(store, index) for index in range(shards)}
    moved = 0
    with ExitStack() as open_files:
        opened = {-1: home}
        for index, path in (present | wanted).items():
            opened[index] = open_files.enter_context(closing(Store(path, hold="")))
        try:
            for index, source in opened.items():
                targets = {one: -1 if shards == 1 else owner(one, shards) for one in source.devices()}
                gone = {device: target for device, target in targets.items() if target != index}
                if gone:
                    seal(source)
                    what = "the store" if index == -1 else f"shard {index}"
                    _log.warning("moving %d devices from %s to the shards that own them now", len(gone), what)
                for device, target in gone.items():
                    source.move_device(device, opened[target])
                if gone and not source.devices():
                    source.rewrite()
                moved += len(gone)
        except DatabaseError as error:
            raise StoreError(f"cannot move devices between the stores: {error}; start again") from None
    return moved


def delete_shard(path: Path) -> None:
    """Delete the file of a shard that there is no more, and what is beside it.

    Raises:
        StoreError: it is used, or not empty.
    """
    with closing(Store(path, hold="")) as opened:
        if opened.devices():
            raise StoreError(f"the store {path.name} still holds devices")
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm", f"{path.name}.lock"):
            path.with_name(name).unlink(missing_ok=True)


def store_of(store: Location, device: str) -> Location:
    """The file that holds what is stored of a device; the store itself if none does."""
    for path in stores(store).values():
        try:
            with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
                if db.execute("SELECT 1 FROM streams WHERE device=?", (device,)).fetchone():
                    return path
        except DatabaseError as error:
            raise StoreError(f"cannot read the store {path.name}: {error}") from None
    return store


def _file(store: Location) -> Path:
    if not isinstance(store, Path):
        raise StoreError(f"the store {store.name} is on a server: shards of one machine keep theirs in files")
    return store
