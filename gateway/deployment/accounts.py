"""Who may connect to the broker: accounts, their roles, and the lines of Mosquitto's password file and access list."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fugu.contract._document import Document
from fugu.contract.guarantee import Adversary
from fugu.contract.topics import NAME_PATTERN, discovery_topic

__all__ = ["Account", "Role", "access_list", "new_password", "password_line"]

Role = Literal["gateway", "shard", "operator", "device", "site", "home-assistant", "reader", "removed"]

_ITERATIONS = 101
"""Mosquitto's own number; more would only slow the broker down, since a password of 256 random bits is not guessed."""
_SALT_BYTES = 12  # the only length that Mosquitto 2.0 reads

Name = Annotated[str, Field(pattern=NAME_PATTERN)]


class Account(Document):
    """One name at the broker, and what it may do there.

    Attributes:
        audiences: of a reader: those whose releases it may read.
        left: of a reader: those that it belonged to before; what was read was read.
        epsilon, adversary: of a reader: the most that it may be told, over all these audiences.
        streams: of a device: those that it may publish.
        former: of a device: those that it might publish before.
        uncleared: of a device that was removed: the broker may still have what it retained.
    """

    name: Name
    role: Role
    audiences: tuple[Name, ...] = ()
    left: tuple[Name, ...] = ()
    epsilon: float | None = Field(default=None, gt=0.0)
    adversary: Adversary | None = None
    streams: tuple[Name, ...] = ()
    former: tuple[Name, ...] = ()
    uncleared: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.role == "reader") != bool(self.ever) and self.role != "removed":
            raise ValueError(f"account {self.name}: a reader has audiences, and nobody else has")
        if "site" in self.ever:
            raise ValueError(f"account {self.name}: the site is a role of its own, and no audience of a reader")
        if bool(self.ever) != (self.epsilon is not None and self.adversary is not None):
            raise ValueError(f"account {self.name}: a reader has a limit, and nobody else has")
        if self.streams and self.role not in ("device", "removed"):
            raise ValueError(f"account {self.name}: a device has streams, and nobody else has")
        return self

    @property
    def ever(self) -> tuple[str, ...]:
        """All audiences that the account ever belonged to, the first one first."""
        return (*self.left, *self.audiences)

    def with_streams(self, streams: tuple[str, ...]) -> Account:
        """A device that may publish these streams, and no others any more."""
        gone = dict.fromkeys(one for one in (*self.former, *self.streams) if one not in streams)
        return self.model_copy(update={"streams": tuple(dict.fromkeys(streams)), "former": tuple(gone)})

    def topics(self, fleet: str) -> list[str]:
        """All topics of a device, and about it, on which the broker may have something retained."""
        streams = [f"{kind}/{stream}" for stream in (*self.streams, *self.former) for kind in ("symbols", "window")]
        mine = [f"{self.name}/{one}" for one in ("status", "policy/status", "policy/set", *streams)]
        described = [f"description/{self.name}/{stream}" for stream in (*self.streams, *self.former)]
        return [f"fugu/2/{fleet}/{one}" for one in (*mine, *described)]


_FRAMES = ("read +/symbols/+", "read +/window/+", "read +/status")
_ANSWERS = ("write +/committed", "write +/table/+", "write estimate/+/+", "write count/+/+", "write +/stop")
_REPORTS = ("read description/+/+", "read estimate/+/+", "read count/+/+", "read health")
_TOPICS: dict[Role, tuple[str, ...]] = {
    "gateway": (
        *(*_FRAMES, "read +/policy/status", *_ANSWERS, "read description/+/+", "write description/+/+"),
        *("write release/+/+", "write time", "write health"),
    ),
    "shard": (*_FRAMES, *_ANSWERS),
    "operator": (
        *("write +/policy/set", "read +/policy/set", "read +/policy/status", "read +/status", "write root"),
        "read health",
    ),
    "site": (*_FRAMES, *_REPORTS, "read release/+/+"),
    "home-assistant": _REPORTS,
}
_DEVICE = (
    *("write %u/status", "write %u/policy/status", "read %u/committed", "read %u/policy/set", "read %u/table/+"),
    *("read %u/stop", "read root", "read time"),
)


def new_password() -> str:
    """A random password of 256 bits, of letters, digits, `_` and `-`."""
    return secrets.token_urlsafe(32)


def password_line(name: str, password: str, salt: bytes | None = None) -> str:
    """A line of a Mosquitto 2 password file: `name:$7$iterations$salt$hash`, by PBKDF2 with SHA-512.

    Args:
        salt: 12 bytes; random ones if there are none.
    """
    salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    return f"{name}:$7${_ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def access_list(fleet: str, accounts: Iterable[Account]) -> str:
    """Mosquitto's access list: what is not named here is denied.

    Releases for the audience `site` are named by no line but the site's: they are not charged, because the site sees
    the symbols anyway. The lines for devices are patterns, which Mosquitto applies to every account. All others are
    therefore denied what lies under their own names, and a denial goes before whatever grants (below the name only: an
    account may be called `time`). Of frames a device may publish those of its streams, by name: what it can leave at
    the broker is bounded by its topics. Operators may clear what a device has left that was removed. Where Home
    Assistant has an account, and nowhere else, the gateway may tell it of devices.
    """
    root, known = f"fugu/2/{fleet}", list(accounts)
    removed = [account.name for account in known if account.uncleared]
    cleared = [f"write {topic}" for name in removed for topic in (f"{name}/+/#", f"description/{name}/+")]
    discovery: dict[Role, list[str]] = {}
    if any(account.role == "home-assistant" for account in known):
        discovery["gateway"] = ["read homeassistant/status", f"write {discovery_topic(fleet, '+')}"]
        discovery["operator"] = [f"write {discovery_topic(fleet, name)}" for name in removed]
        discovery["home-assistant"] = ["read homeassistant/#", "write homeassistant/status"]
    lines = ["# Written by 'fugu deploy'; changes are lost when an account is added.", "", "# a device, under its name"]
    lines += [_line("pattern", root, entry) for entry in _DEVICE]
    for account in known:
        if account.role != "device" or account.streams:
            lines += ["", f"# {account.role}", f"user {account.name}"]
        if account.role == "device":
            frames = [f"write {account.name}/{kind}/{one}" for one in account.streams for kind in ("symbols", "window")]
            lines += [_line("topic", root, entry) for entry in frames]
            continue
        if account.role == "removed":
            lines.append("topic deny #")
            continue
        lines.append(f"topic deny {root}/{account.name}/+/#")
        readable = [f"read release/{audience}/+" for audience in account.audiences]
        granted = [*_TOPICS.get(account.role, ()), *readable, *(cleared if account.role == "operator" else [])]
        lines += [_line("topic", root, entry) for entry in granted]
        lines += [f"topic {entry}" for entry in discovery.get(account.role, ())]
    return "\n".join(lines) + "\n"


def _line(kind: str, root: str, entry: str) -> str:
    access, _, topic = entry.partition(" ")
    return f"{kind} {access} {root}/{topic}"
