"""What a broker is made with, and the files that follow from it: configuration, unit, and rules of the firewall."""

from __future__ import annotations

import os
import pwd
from typing import Annotated

from pydantic import Field

from fugu.contract._document import Document
from fugu.contract.topics import NAME_PATTERN
from gateway.deployment.accounts import Account
from gateway.deployment.limits import QUEUED_BYTES, QUEUED_MESSAGES, firewall, limits
from gateway.deployment.units import BROKER, unit

__all__ = ["AUTHORITY_DAYS", "DAYS", "LARGEST", "MIN_LARGEST", "Settings", "public_files"]

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
