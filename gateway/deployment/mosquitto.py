"""Mosquitto's configuration, unit and firewall rules, with limits from the number of accounts.

Measured with Mosquitto 2.0.11 and TLS 1.3: a silent connection costs 42 kB until it is closed after 90 to 94 seconds,
whatever the configuration says. A connection costs 57 kB after the handshake, and 113 kB when it has sent almost all of
the largest CONNECT. A waiting message of 74 bytes takes 432 bytes. At `memory_limit` Mosquitto ends the connection that
wants more, and goes on; TLS counts for the unit's `MemoryMax` only. `max_connections` counts after the TLS handshake:
before, only the number of open files limits connections.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from fugu.contract._document import Document
from fugu.contract.losses import Adversary
from fugu.contract.topics import NAME_PATTERN, available_topic, discovery_topic
from gateway.deployment.units import BROKER, unit
from gateway.health.shared_subscriptions import SharedSubscriptions

__all__ = [
    "AUTHORITY_DAYS",
    "MAX_KEEP_ALIVE",
    "SPARE_FILES",
    "Account",
    "Role",
    "Settings",
    "access_list",
    "limits",
    "public_files",
]


Role = Literal["gateway", "shard", "operator", "device", "site", "home-assistant", "reader", "helper", "removed"]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]


class Account(Document):
    """An account of the broker, and its rights.

    Attributes:
        audiences: the audiences whose releases a reader may read.
        left: audiences that a reader has left; what it read there still counts.
        epsilon, adversary, seconds: a reader's limit: the largest loss of a stretch over all these audiences.
        streams: the streams that a device may publish.
        former: streams that a device was allowed to publish before.
        uncleared: whether the broker may still retain messages of a removed device.
    """

    name: Name
    role: Role
    audiences: tuple[Name, ...] = ()
    left: tuple[Name, ...] = ()
    epsilon: float | None = Field(default=None, gt=0.0)
    adversary: Adversary | None = None
    seconds: int = Field(default=0, ge=0)
    streams: tuple[Name, ...] = ()
    former: tuple[Name, ...] = ()
    uncleared: bool = False

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if (self.role == "reader") != bool(self.all_audiences) and self.role != "removed":
            raise ValueError(f"account {self.name}: a reader has audiences, and nobody else has")
        if "site" in self.all_audiences:
            raise ValueError(f"account {self.name}: the site is a role of its own, and no audience of a reader")
        if bool(self.all_audiences) != (self.epsilon is not None and self.adversary is not None):
            raise ValueError(f"account {self.name}: a reader has a limit, and nobody else has")
        if self.streams and self.role not in ("device", "removed"):
            raise ValueError(f"account {self.name}: a device has streams, and nobody else has")
        return self

    @property
    def all_audiences(self) -> tuple[str, ...]:
        """All audiences that the account has ever belonged to; audiences that it has left come first."""
        return (*self.left, *self.audiences)

    def with_streams(self, streams: tuple[str, ...]) -> Account:
        """Return a device's account that may publish only these streams; its other streams become former streams."""
        former_streams = dict.fromkeys(stream for stream in (*self.former, *self.streams) if stream not in streams)
        return self.model_copy(update={"streams": tuple(dict.fromkeys(streams)), "former": tuple(former_streams)})

    def topics(self, fleet: str) -> list[str]:
        """Return all topics of or about a device on which the broker may retain messages."""
        streams = [f"{kind}/{stream}" for stream in (*self.streams, *self.former) for kind in _KINDS]
        own_topics = [f"{self.name}/{name}" for name in ("status", "policy/status", "policy/set", *streams)]
        descriptions = [f"description/{self.name}/{stream}" for stream in (*self.streams, *self.former)]
        return [f"fugu/2/{fleet}/{topic}" for topic in (*own_topics, *descriptions)]


_FRAMES = ("read +/symbols/+", "read +/window/+", "read +/status")
_REPORT = "read +/report/+"
_KINDS = ("symbols", "window", "report")
_ANSWERS = ("write +/committed", "write +/table/+", "write estimate/+/+", "write count/+/+", "write +/stop")
_REPORTS = ("read description/+/+", "read estimate/+/+", "read count/+/+", "read health")
_TOPICS: dict[Role, tuple[str, ...]] = {
    "gateway": (
        *(*_FRAMES, "read +/policy/status", *_ANSWERS, "read description/+/+", "write description/+/+"),
        *("write release/+/+", "write time", "write health", _REPORT),
        *("write group/+/request", "read group/+/answer", "read group/+/document"),
    ),
    "shard": (*_FRAMES, *_ANSWERS, _REPORT),
    "operator": (
        *("write +/policy/set", "read +/policy/set", "read +/policy/status", "read +/status", "write root"),
        *("read health", "read group/+/document"),
    ),
    "site": (*_FRAMES, *_REPORTS, "read release/+/+"),
    "home-assistant": _REPORTS,
    "helper": ("read group/+/request", *(f"write group/+/{name}" for name in ("document", "key", "answer"))),
}
_DEVICE = (
    *("write %u/status", "write %u/policy/status", "read %u/committed", "read %u/policy/set", "read %u/table/+"),
    *("read %u/stop", "read root", "read time", "read group/+/document", "read group/+/key"),
)


def access_list(fleet: str, accounts: Iterable[Account]) -> str:
    """Return Mosquitto's access list, which denies all topics that it does not name.

    Only the site may read releases for the audience `site`, which are not charged, because the site sees the symbols.
    The lines for devices are patterns, which Mosquitto applies to every account. All other accounts are therefore
    denied the topics below their own names, as a denial overrides a grant. The name itself is not denied: an account
    may be called `time`.

    A device may publish frames of its named streams only, which bounds the messages that it can leave at the broker.
    Operators may clear the messages of a removed device. The gateway may announce devices to Home Assistant if Home
    Assistant has an account.
    """
    root, account_list = f"fugu/2/{fleet}", list(accounts)
    removed_names = [account.name for account in account_list if account.uncleared]
    clear_rules = [f"write {topic}" for name in removed_names for topic in (f"{name}/+/#", f"description/{name}/+")]
    discovery: dict[Role, list[str]] = {}
    if any(account.role == "home-assistant" for account in account_list):
        makers = discovery_topic, available_topic
        discovery["gateway"] = ["read homeassistant/status", *(f"write {make(fleet, '+')}" for make in makers)]
        discovery["operator"] = [f"write {make(fleet, name)}" for name in removed_names for make in makers]
        discovery["home-assistant"] = ["read homeassistant/#", "write homeassistant/status"]
    lines = ["# Written by 'fugu deploy'; changes are lost when an account is added.", "", "# a device, under its name"]
    lines += [_rule_line("pattern", root, rule) for rule in _DEVICE]
    for account in account_list:
        if account.role != "device" or account.streams:
            lines += ["", f"# {account.role}", f"user {account.name}"]
        if account.role == "device":
            frame_rules = [f"write {account.name}/{kind}/{stream}" for stream in account.streams for kind in _KINDS]
            lines += [_rule_line("topic", root, rule) for rule in frame_rules]
            continue
        if account.role == "removed":
            lines.append("topic deny #")
            continue
        lines.append(f"topic deny {root}/{account.name}/+/#")
        release_rules = [f"read release/{audience}/+" for audience in account.audiences]
        rules = [*_TOPICS.get(account.role, ()), *release_rules, *(clear_rules if account.role == "operator" else [])]
        lines += [_rule_line("topic", root, rule) for rule in rules]
        lines += [f"topic {rule}" for rule in discovery.get(account.role, ())]
        lines += [f"topic read {topic}" for topic in SharedSubscriptions.topics if account.role == "gateway"]
    return "\n".join(lines) + "\n"


def _rule_line(rule_kind: str, root: str, rule: str) -> str:
    access, _, topic = rule.partition(" ")
    return f"{rule_kind} {access} {root}/{topic}"


QUEUED_MESSAGES, QUEUED_BYTES = 50_000, 32 << 20
_MESSAGE = 400
_TLS, _CONNECT = 64 << 10, 100 << 10
_BASE, _OTHER_BASE = 16 << 20, 32 << 20
_ACCOUNT = 32 << 10
_SPARE = 128
_SAME_SOURCE = 16
SPARE_FILES = 1024


class Limits(NamedTuple):
    """Limits in the configuration, the unit and the firewall.

    Attributes:
        connections: the most at once: two of each account, since a broken connection may outlast the start of the next,
            and some to spare.
        heap: bytes that Mosquitto allocates itself: for connections, a queue of each gateway, shard and subscriber of
            the site, and retained messages.
        memory: bytes of the process, with TLS.
        files: the most open files, with connections before their handshake.
        per_source: the most connections of one address: enough for all accounts, and not all connections.
    """

    connections: int
    heap: int
    memory: int
    files: int
    per_source: int


def limits(accounts: Sequence[Account]) -> Limits:
    """Compute the limits of a broker with these accounts."""
    count = sum(account.role != "removed" for account in accounts)
    queues = 1 + sum(account.role in ("gateway", "shard", "site", "home-assistant", "helper") for account in accounts)
    connections = 2 * count + _SPARE
    heap = _BASE + connections * _CONNECT + queues * (QUEUED_BYTES + QUEUED_MESSAGES * _MESSAGE) + count * _ACCOUNT
    memory = heap + connections * _TLS + _OTHER_BASE
    return Limits(connections, heap, memory, connections + SPARE_FILES, 2 * count + _SAME_SOURCE)


def firewall(fleet: str, port: int, limit: int) -> str:
    """Return rules for nftables that limit the connections of an IPv4 address, or of an IPv6 network of 64 bits.

    An address may have `limit` connections at once. It may open `limit` together, and then 5 a second.
    """
    sets, rules = [], []
    for version, source in ((4, "ip saddr"), (6, "ip6 saddr & ffff:ffff:ffff:ffff::")):
        sets.append(f"set new{version} {{ type ipv{version}_addr; size 65535; flags dynamic,timeout; timeout 1m; }}")
        sets.append(f"set open{version} {{ type ipv{version}_addr; size 65535; flags dynamic; }}")
        match = f"    meta nfproto ipv{version} tcp dport {port} ct state new"
        rate = f"limit rate over 5/second burst {limit} packets"
        rules.append(f"{match} add @new{version} {{ {source} {rate} }} drop")
        rules.append(f"{match} add @open{version} {{ {source} ct count over {limit} }} reject with tcp reset")
    chain = ["chain input {", "    type filter hook input priority filter - 10;", *rules, "}"]
    table = "\n".join(f"    {line}" for line in (*sets, *chain))
    return f"""\
# Written by 'fugu deploy' for the broker of fleet {fleet}; load it with nft -f.
# One address cannot take all connections. If each device has its own, {limit} may be far less.
table inet fugu_broker
delete table inet fugu_broker
table inet fugu_broker {{
{table}
}}
"""


DAYS, AUTHORITY_DAYS = 365, 3650
LARGEST = 1 << 18
MIN_LARGEST = 1 << 16
"""Bytes above the largest frame that a device may publish."""
_AROUND = 1 << 12
"""The most bytes of a packet besides its payload."""
MAX_KEEP_ALIVE = 600
"""Largest keep-alive in seconds, far above that of our clients, which is at most 300 (`fugu.mqtt.Broker`).

Mosquitto 2.0.21 ends some connections whose keep-alive equals this limit at once: its list of times is one second too
short (eclipse-mosquitto/mosquitto#3226). A connection that does not state its keep-alive has 60.
"""


class Settings(Document):
    """Settings of a broker, and its accounts.

    Attributes:
        hosts: names and addresses in the broker's certificate; clients use the first.
        bind: the address that the broker listens on; `None` means all.
        mutual: whether accounts have certificates (mutual TLS); otherwise they have passwords.
        boards: whether TLS 1.2 is enough, for microcontrollers: MicroPython has no other.
        days: for how long certificates of the broker and of accounts are valid.
        in_place: whether the broker runs in the folder that it was written to.
        largest: bytes of the largest message of any account.
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
    """Return the contents of a broker's files that follow from its settings and hold no secret, by file name."""
    broker_limits = limits(settings.accounts)
    firewall_rules = firewall(settings.fleet, settings.port, broker_limits.per_source)
    files = {"mosquitto.conf": _configuration(settings), "fugu-broker.nft": firewall_rules}
    if not settings.in_place:
        credential_names = ["mosquitto.conf", "ca.pem", "server.pem", "server.key", "access.acl"]
        credential_names += [] if settings.mutual else ["passwords"]
        unit_fields = {"MEMORY": str(broker_limits.memory), "FILES": str(broker_limits.files)}
        unit_fields["CREDENTIALS"] = BROKER.credentials(credential_names)
        files["fugu-broker.service"] = unit("fugu-broker.service", unit_fields)
    return files


def _account() -> str:
    """Return the name of this process's account, or any name without one: Mosquitto uses the name only under root."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return "mosquitto"


def _configuration(settings: Settings) -> str:
    tls = "tls_version tlsv1.2\nciphers ECDHE+AESGCM" if settings.boards else "tls_version tlsv1.3"
    user_line = f"user {_account()}\n" if settings.in_place else ""
    caps = limits(settings.accounts)
    login = "require_certificate true\nuse_identity_as_username true" if settings.mutual else "password_file passwords"
    return f"""\
# Written by 'fugu deploy' for fleet {settings.fleet}; changes are lost when an account is added.
# File names are relative: start Mosquitto in this folder.
# max_connections counts when TLS is done. Before, only open files do: {caps.files} (ulimit -n), as in its unit.
{user_line}
listener {settings.port}{"" if settings.bind is None else f" {settings.bind}"}
cafile ca.pem
certfile server.pem
keyfile server.key
{tls}
max_connections {caps.connections}
max_qos 1
{login}
allow_anonymous false
acl_file access.acl
# Nobody can end another's connection or take over its session by using its client id.
use_username_as_clientid true

# The database is written when the broker ends in order, and never before: writing it more often only wears disks out.
# After a power cut devices and the gateway publish again what was retained. A device keeps every frame until the
# gateway has said that it is durable.
persistence true
persistence_location {"./" if settings.in_place else f"{BROKER.state}/"}
autosave_interval 0
persistent_client_expiration 7d

# Memory: what is dropped from the queue of a gateway that is away, devices send again.
max_queued_messages {QUEUED_MESSAGES}
max_queued_bytes {QUEUED_BYTES}
max_inflight_messages 20
max_keepalive {MAX_KEEP_ALIVE}
memory_limit {caps.heap}
max_packet_size {settings.largest + _AROUND}
set_tcp_nodelay true
# How many shared subscriptions there are, for the gateway's alarm; whose they are, in the log, for 'fugu doctor'.
sys_interval 10
log_dest stderr
log_type error
log_type warning
log_type notice
log_type subscribe
"""
