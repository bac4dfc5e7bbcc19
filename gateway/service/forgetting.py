"""Erases from a store what a device has sent, and what the gateway has made of it.

What stays: which ticks the device has accounted for, its policies, the last tick that was released, and the ledger. So
the device is not asked for anything again, and nothing is charged or released anew.
"""

from __future__ import annotations

from contextlib import closing

from gateway.service.shard_files import store_of
from gateway.service.store import Location, Store, StoreError
from gateway.service.store.aged import Forgotten
from host.database import DatabaseError

__all__ = ["forget_device"]


def forget_device(location: Location, device: str) -> Forgotten:
    """Erase a device's symbols, points and windows, and what is known from them, and write the file anew without them.

    Args:
        location: of the store; its gateway must not be running.

    Raises:
        StoreError: one line that says what is wrong; it may be done again then, and again after it is done.
    """
    with closing(Store(store_of(location, device), create=False, hold="")) as store:
        try:
            with store.transaction():
                forgotten = store.aged.forget(device)
            if forgotten is None:
                raise StoreError(f"store {location.name} has nothing of a device {device}")
            store.rewrite()
        except DatabaseError as error:
            raise StoreError(
                f"cannot erase all of {device} from the store {location.name}: {error}; do it again"
            ) from None
    return forgotten
