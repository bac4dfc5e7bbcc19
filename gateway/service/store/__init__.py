"""What outlives the gateway, in one database; nobody outside this room holds its connection."""

from __future__ import annotations

from gateway.location import Location, Server
from gateway.service.store.database import StoreError
from gateway.service.store.store import Outgoing, Store, hold_store, store_bytes

__all__ = [
    "Location",
    "Outgoing",
    "Server",
    "Store",
    "StoreError",
    "hold_store",
    "store_bytes",
]
