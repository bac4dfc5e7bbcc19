"""Mosquitto's configuration, unit and firewall rules, with limits from the number of accounts.

Measured with Mosquitto 2.0.11 and TLS 1.3: a connection that says nothing costs 42 kB until it is closed after 90 to 94
seconds, whatever the configuration says; 57 kB if it has shaken hands, 113 kB if it has sent almost all of the largest
CONNECT. A message of 74 bytes that waits takes 432 bytes. At `memory_limit` Mosquitto ends the connection that wants
more, and lives on; TLS is not in that count, but in the unit's `MemoryMax`.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

from fugu.contract._document import Document
from fugu.contract.topics import NAME_PATTERN
from gateway.deployment.accounts import Account
from gateway.deployment.units import BROKER, unit

__all__ = ["AUTHORITY_DAYS", "Settings", "public_files"]

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


DAYS, AUTHORITY_DAYS = 365, 3650
LARGEST = 1 << 18
MIN_LARGEST = 1 << 16
"""Above the largest frame that a device may publish."""
_AROUND = 1 << 12
"""Bytes of a packet that are not payload."""
_KEEP_ALIVE = 60
Name = Annotated[str, Field(pattern=NAME_PATTERN)]


class Settings(Document):
    """What a broker was made with, and its accounts.

    Attributes:
        hosts: names and addresses in the broker's certificate; clients are told the first.
        bind: address that it listens on; none means all.
        mutual: whether accounts have certificates; if not, they have passwords.
        boards: whether TLS 1.2 will do, for microcontrollers: MicroPython has no other.
        days: how long certificates hold, those of the broker and of accounts.
        in_place: whether it runs in the folder that it was written to.
        largest: bytes of the largest message, whoever publishes it.
    """

    fleet: Name
    hosts: tuple[str, ...] = Field(min_length=1)
    port: int = Field(ge=1, le=65535)
    bind: str | None = None
    mutual: bool = False
    boards: bool = False
    in_place: bool = False
    days: int = Field(default=DAYS, ge=1, le=20_000)
    largest: int = Field(default=LARGEST, ge=MIN_LARGEST, le=1 << 24)
    accounts: tuple[Account, ...] = ()


def public_files(settings: Settings) -> dict[str, str]:
    """By name, the files of a broker's folder that follow from its settings and hold no secret."""
    most = limits(settings.accounts)
    files = {
        "mosquitto.conf": _configuration(settings),
        "fugu-broker.nft": firewall(settings.fleet, settings.port, most.per_source),
    }
    if not settings.in_place:
        names = ["mosquitto.conf", "ca.pem", "server.pem", "server.key", "access.acl"]
        names += [] if settings.mutual else ["passwords"]
        fields = {
            "CREDENTIALS": "\n".join(f"LoadCredential={name}:{BROKER.config}/{name}" for name in names),
            "MEMORY": str(most.memory),
            "FILES": str(most.files),
        }
        files["fugu-broker.service"] = unit("fugu-broker.service", fields)
    return files


def _account() -> str:
    """Who runs this, by name; in a container it may have none, and Mosquitto then looks at the name as root only."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return "mosquitto"


def _configuration(settings: Settings) -> str:
    tls = "tls_version tlsv1.2\nciphers ECDHE+AESGCM" if settings.boards else "tls_version tlsv1.3"
    owner = f"user {_account()}\n" if settings.in_place else ""
    most = limits(settings.accounts)
    who = "require_certificate true\nuse_identity_as_username true" if settings.mutual else "password_file passwords"
    return f"""\
# Written by 'fugu deploy' for fleet {settings.fleet}; changes are lost when an account is added.
# File names are relative: start Mosquitto in this folder.
{owner}
listener {settings.port}{"" if settings.bind is None else f" {settings.bind}"}
cafile ca.pem
certfile server.pem
keyfile server.key
{tls}
max_connections {most.connections}
max_qos 1
{who}
allow_anonymous false
acl_file access.acl
# Nobody can end another's connection or take over its session by using its client id.
use_username_as_clientid true

# The database is written when the broker ends in order, and never before: to write it anew with every change, or every
# so often, wears disks out for nothing. After a power cut devices and the gateway say again what was retained, and a
# device keeps every frame until the gateway has said that it is durable.
persistence true
persistence_location {"./" if settings.in_place else f"{BROKER.state}/"}
autosave_interval 0
persistent_client_expiration 7d

# Memory: what is dropped from the queue of a gateway that is away, devices send again.
max_queued_messages {QUEUED_MESSAGES}
max_queued_bytes {QUEUED_BYTES}
max_inflight_messages 20
max_keepalive {_KEEP_ALIVE}
memory_limit {most.heap}
max_packet_size {settings.largest + _AROUND}
set_tcp_nodelay true
sys_interval 0
log_dest stderr
log_type error
log_type warning
log_type notice
"""
