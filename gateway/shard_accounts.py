"""The accounts of a gateway's shards, at a broker that gives every account one connection.

Shard 0 of a gateway whose account is `gateway` has the account `gateway-0`, if its files lie beside the gateway's:
`password-0` beside `password`, or `client-0.pem` and `client-0.key` beside `client.pem` and `client.key`. Where no
shard has such files, all connect with the gateway's account, as most brokers allow.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fugu.contract.errors import FuguError
from fugu.mqtt import Broker

__all__ = ["numbered", "own_account", "shard_account"]


class ShardAccountError(FuguError):
    """Some shards of a gateway have accounts, and this one has none."""


def numbered(file: str, index: int | str) -> str:
    """The file of a shard that is beside one of the gateway's: the index is put before what the name ends with.

    Args:
        index: or what stands for it, such as `%i` in a unit.
    """
    path = Path(file)
    return str(path.with_name(f"{path.stem}-{index}{path.suffix}"))


def own_account(gateway: Broker, index: int) -> Broker | None:
    """How a shard connects with an account of its own; none if it has no files."""
    given = (gateway.password_file, gateway.cert_file, gateway.key_file)
    files = [None if file is None else numbered(file, index) for file in given]
    if not any(files) or not all(Path(file).exists() for file in files if file is not None):
        return None
    name = None if gateway.username is None else f"{gateway.username}-{index}"
    return replace(gateway, username=name, password_file=files[0], cert_file=files[1], key_file=files[2])


def shard_account(gateway: Broker, index: int, count: int) -> Broker:
    """How one of so many shards connects.

    Raises:
        ShardAccountError: others have accounts of their own, and this one has none.
    """
    if (own := own_account(gateway, index)) is not None:
        return own
    if any(own_account(gateway, one) for one in range(count)):
        raise ShardAccountError(f"shard {index} has no account, and others have: see fugu deploy gateway --shards")
    return gateway
