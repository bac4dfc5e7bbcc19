"""What outlives the gateway, in one SQLite file; nobody outside this room holds its connection."""

from __future__ import annotations

from gateway.service.store.store import Outgoing, Store, StoreError, estimates_waiting, hold_store

__all__ = ["Outgoing", "Store", "StoreError", "estimates_waiting", "hold_store"]
