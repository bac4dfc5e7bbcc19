"""Sessions at the broker of shards that there are no more: ended, so that nothing waits there for nobody.

The store of such a shard, empty by then, is what is known of it: it is deleted once its session has ended.
"""

from __future__ import annotations

from collections.abc import Mapping

from fugu.mqtt import Broker, Link
from gateway.location import Location
from gateway.service.shard_stores import delete_shard
from gateway.shard_accounts import own_account

__all__ = ["RetiredShards", "client_id"]


def client_id(fleet: str, shard: int | None = None) -> str:
    """Of the session of a gateway, or of one of its shards."""
    return f"gateway-{fleet}" if shard is None else f"gateway-{fleet}-{shard}"


class RetiredShards:
    """Used by the gateway's worker.

    Args:
        stores: of those shards, by index.
    """

    def __init__(self, fleet: str, broker: Broker, stores: Mapping[int, Location]) -> None:
        self._fleet = fleet
        self._broker = broker
        self._stores = dict(stores)
        self._link: Link | None = None

    def pump(self) -> None:
        """End one session after the other: a connection that does not go on with it ends it."""
        if not self._stores:
            return
        index = min(self._stores)
        if self._link is None:
            account = own_account(self._broker, index) or self._broker
            self._link = Link(account, client_id=client_id(self._fleet, index))
            self._link.start()
        self._link.maintain()
        if self._link.connected:
            self.stop()
            delete_shard(self._stores.pop(index))

    def stop(self) -> None:
        """Leave the rest to the next start."""
        if self._link is not None:
            self._link.stop()
            self._link = None
