"""Erases from a store what a device has sent, and what the gateway has made of it.

What stays: which ticks the device has accounted for, its policies, the last tick that was released, and the ledger
without the sums of releases that it was a part of. So the device is not asked for anything again, and nothing is
charged or released anew.
"""

from __future__ import annotations

import time
from contextlib import closing

from fugu.host.database import DatabaseError
from gateway.database import is_there
from gateway.releases.entries import KIND, LedgerError
from gateway.releases.ledger import Ledger, ledger_beside
from gateway.service.store import Lease, Location, Store, StoreError
from gateway.service.store.aged import Forgotten

__all__ = ["forget_device"]


def forget_device(location: Location, device: str, ledger: Location | None = None) -> Forgotten:
    """Erase a device's symbols, points and windows, and what is known from them, and write the file anew without them.

    Args:
        location: of the store; its gateway must not be running, and shards that run anyway end.
        ledger: of its releases, if there are any; beside the store if not given.

    Raises:
        StoreError: one line that says what is wrong; it may be done again then, and again after it is done.
        LedgerError: the store's releases were charged to a ledger that is not there, or is another one.
    """
    charged = _ledger(location, ledger)
    with closing(Store(location, create=False, lease=Lease())) as store:
        try:
            with store.new_generation():
                forgotten = store.aged.forget(device)
            if forgotten is None:
                raise StoreError(f"store {location.name} has nothing of a device {device}")
            store.rewrite()
        except DatabaseError as error:
            raise StoreError(
                f"cannot erase all of {device} from the store {location.name}: {error}; do it again"
            ) from None
    if charged is not None:
        with closing(Ledger(charged, create=False)) as opened:
            try:
                opened.forget(device, time_us=time.time_ns() // 1000)
            except DatabaseError as error:
                raise StoreError(
                    f"cannot erase all of {device} from the ledger {charged.name}: {error}; do it again"
                ) from None
    return forgotten


def _ledger(store: Location, ledger: Location | None) -> Location | None:
    """Where the store's releases were charged, if there were any."""
    with closing(Store(store, create=False)) as opened:
        bound = opened.releases.charged().ledger
    if not bound:
        return None
    found = ledger or ledger_beside(store)
    if is_there(found, KIND):
        with closing(Ledger(found, create=False)) as known:
            if known.identity == bound:
                return found
    raise LedgerError(
        f"{found.name} is not the ledger that releases of {store.name} were charged to: name that one with --ledger"
    )
