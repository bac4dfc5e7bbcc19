"""What a broker may take of the machine, from the number of its accounts; and the same at the machine's edge.

Measured with Mosquitto 2.0.11 and TLS 1.3: a connection that says nothing costs 42 kB until it is closed after 90 to 94
seconds, whatever the configuration says; 57 kB if it has shaken hands, 113 kB if it has sent almost all of the largest
CONNECT. A message of 74 bytes that waits takes 432 bytes. At `memory_limit` Mosquitto ends the connection that wants
more, and lives on; TLS is not in that count, but in the unit's `MemoryMax`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gateway.deployment.accounts import Account

__all__ = ["Limits", "firewall", "limits"]

QUEUED_MESSAGES, QUEUED_BYTES = 50_000, 32 << 20
_MESSAGE = 400
_TLS, _CONNECT = 64 << 10, 100 << 10
_BASE, _OTHER_BASE = 16 << 20, 32 << 20
_ACCOUNT = 32 << 10
_SPARE = 128
_SAME_SOURCE = 16
_FILES = 1024


class Limits(NamedTuple):
    """What the configuration, the unit and the firewall say.

    Attributes:
        connections: at once: two of each account, since one that was cut off may still be there when the next comes,
            and some to spare.
        heap: bytes that Mosquitto allocates itself: connections, one queue of each gateway, shard and subscriber of the
            site, and what accounts retain.
        memory: bytes of the process, with TLS.
        files: that it may have open.
        per_source: connections at once of one address: all accounts may be behind one, and others have still some.
    """

    connections: int
    heap: int
    memory: int
    files: int
    per_source: int


def limits(accounts: Sequence[Account]) -> Limits:
    """The limits of a broker with these accounts."""
    count = sum(account.role != "removed" for account in accounts)
    queues = 1 + sum(account.role in ("gateway", "shard", "site", "home-assistant") for account in accounts)
    connections = 2 * count + _SPARE
    heap = _BASE + connections * _CONNECT + queues * (QUEUED_BYTES + QUEUED_MESSAGES * _MESSAGE) + count * _ACCOUNT
    memory = heap + connections * _TLS + _OTHER_BASE
    return Limits(connections, heap, memory, connections + _FILES, 2 * count + _SAME_SOURCE)


def firewall(fleet: str, port: int, most: int) -> str:
    """Rules for nftables: how many connections an address may have, and begin, of IPv6 a network of 64 bits.

    Args:
        most: connections of one address at once; as many may begin together, and 5 a second after that.
    """
    sources = ((4, "nfproto ipv4", "ip saddr"), (6, "nfproto ipv6", "ip6 saddr & ffff:ffff:ffff:ffff::"))
    sets, rules = [], []
    for version, family, source in sources:
        sets.append(f"set new{version} {{ type ipv{version}_addr; size 65535; flags dynamic,timeout; timeout 1m; }}")
        sets.append(f"set open{version} {{ type ipv{version}_addr; size 65535; flags dynamic; }}")
        begun = f"meta {family} tcp dport {port} ct state new"
        rate = f"limit rate over 5/second burst {most} packets"
        rules.append(f"{begun} add @new{version} {{ {source} {rate} }} drop")
        rules.append(f"{begun} add @open{version} {{ {source} ct count over {most} }} reject with tcp reset")
    lines = [
        *sets,
        "chain input {",
        "    type filter hook input priority filter - 10;",
        *(f"    {one}" for one in rules),
        "}",
    ]
    return "\n".join(
        [
            f"# Written by 'fugu deploy' for the broker of fleet {fleet}; load it with nft -f.",
            f"# One address cannot take all connections. If each device has its own, {most} may be far less.",
            "table inet fugu_broker",
            "delete table inet fugu_broker",
            "table inet fugu_broker {",
            *(f"    {line}" for line in lines),
            "}",
            "",
        ]
    )
