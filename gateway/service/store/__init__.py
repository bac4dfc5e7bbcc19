"""What outlives the gateway, in one database; nobody outside this room holds its connection."""

from __future__ import annotations

from gateway.database import Lease
from gateway.location import Location, Server
from gateway.service.store.errors import StoreError
from gateway.service.store.store import Outgoing, Store, store_bytes

__all__ = [
    "Lease",
    "Location",
    "Outgoing",
    "Server",
    "Store",
    "StoreError",
    "store_bytes",
]
