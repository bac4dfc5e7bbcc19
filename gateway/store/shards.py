"""The shard that owns a device, and the account with which each shard connects.

Ownership is highest-random-weight (rendezvous) hashing, the same in every process. A device belongs to the shard with
the largest hash of the shard's index and the device's name. So from N to N + 1 shards only the new shard's devices
move, about 1 / (N + 1) of all. From N + 1 to N shards only the devices of the removed shard move.

A broker may give every account one connection. Shard 0 of a gateway whose account is `gateway` has the account
`gateway-0`, if its files lie beside the gateway's: `password-0` beside `password`, or `client-0.pem` and `client-0.key`
beside `client.pem` and `client.key`. If no shard has such files, all connect with the gateway's account, as most
brokers allow.

Source: Thaler, Ravishankar: Using Name-Based Mappings to Increase Hit Rates (IEEE/ACM Transactions on Networking 1998).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from fugu.contract.errors import UsageError
from fugu.mqtt import Broker

__all__ = ["MOST_SHARDS", "Shard", "numbered_path", "own_account", "read_role"]


MOST_SHARDS = 256


def owner(device: str, shards: int) -> int:
    """The index of the shard, of `shards`, that a device belongs to."""
    return max(range(shards), key=lambda index: (blake2b(f"{index}/{device}".encode(), digest_size=8).digest(), index))


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` shards; the first has index 0."""

    index: int
    count: int

    def owns(self, device: str) -> bool:
        """Tell whether a device belongs to this shard."""
        return owner(device, self.count) == self.index

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def read_role(role: str) -> tuple[int, Shard | None]:
    """Read a process's role, `i/N` or `fleet/N`. Return N and the shard, `None` for the process of the whole fleet.

    Raises UsageError for other text, or if there is no such shard.
    """
    if not (match := re.fullmatch("([0-9]{1,3}|fleet)/([0-9]{1,3})", role)):
        raise UsageError(f"a shard is INDEX/COUNT or fleet/COUNT, like 0/4, not {role[:80]!r}")
    shard_count = int(match[2])
    shard = None if match[1] == "fleet" else Shard(int(match[1]), shard_count)
    if not 2 <= shard_count <= MOST_SHARDS or (shard is not None and shard.index >= shard_count):
        raise UsageError(f"there is no shard {role}: of 2 to {MOST_SHARDS} the first is 0")
    return shard_count, shard


def numbered_path(file: str, index: int | str) -> str:
    """The path of a shard's file beside the gateway's: the index, or `%i`, is put before the ending of the name."""
    path = Path(file)
    return str(path.with_name(f"{path.stem}-{index}{path.suffix}"))


def own_account(gateway: Broker, index: int) -> Broker | None:
    """The connection of a shard with an account of its own; `None` if the account has no files, or one is missing."""
    paths = (gateway.password_file, gateway.cert_file, gateway.key_file)
    files = [None if file is None else numbered_path(file, index) for file in paths]
    if not any(files) or not all(Path(file).exists() for file in files if file is not None):
        return None
    username = None if gateway.username is None else f"{gateway.username}-{index}"
    return replace(gateway, username=username, password_file=files[0], cert_file=files[1], key_file=files[2])
