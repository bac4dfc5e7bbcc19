"""MQTT topics: `fugu/2/{fleet}/...`, built and parsed in one place.

A name (fleet, device, stream) has 1 to 64 letters, digits, `_` or `-`, so it can hold no MQTT wildcard or separator;
some names are reserved, so that no topic can be taken for another. A release's audience is a part of its topic, so that
a broker's access list can tell audiences apart.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from fugu.contract.errors import TopicError

__all__ = [
    "ADDRESSES",
    "NAME_PATTERN",
    "RESERVED_DEVICES",
    "Kind",
    "Topic",
    "available_topic",
    "check_device_name",
    "committed_topic",
    "count_topic",
    "description_topic",
    "discovery_topic",
    "estimate_topic",
    "health_topic",
    "parse_topic",
    "policy_set_topic",
    "policy_status_topic",
    "release_topic",
    "root_topic",
    "status_topic",
    "stop_topic",
    "symbols_topic",
    "table_topic",
    "time_topic",
    "window_topic",
]

NAME_PATTERN = "^[A-Za-z0-9_-]{1,64}$"
RESERVED_DEVICES = frozenset({"estimate", "count", "description", "release", "health", "policy"})
"""Names that stand where a device's does; and `policy`, whose description would look like a policy for a device."""
RESERVED_AUDIENCES = RESERVED_DEVICES | {"symbols", "window", "table"}
"""Names that would make a release's topic look like that of a device called `release`, in access lists too."""
_NAME = re.compile(NAME_PATTERN)

OfFleet = Literal["root", "time", "health"]
OfDevice = Literal["status", "committed", "stop", "policy_set", "policy_status"]
OfStream = Literal["symbols", "window", "table", "estimate", "count", "description"]
Kind = Literal[OfFleet, OfDevice, OfStream, "release"]
ADDRESSES: dict[Kind, str] = {
    "symbols": "{device}/symbols/{stream}",
    "window": "{device}/window/{stream}",
    "status": "{device}/status",
    "policy_status": "{device}/policy/status",
    "committed": "{device}/committed",
    "table": "{device}/table/{stream}",
    "policy_set": "{device}/policy/set",
    "stop": "{device}/stop",
    "root": "root",
    "time": "time",
    "health": "health",
    "description": "description/{device}/{stream}",
    "estimate": "estimate/{device}/{stream}",
    "count": "count/{device}/{stream}",
    "release": "release/{audience}/{name}",
}
"""Below `fugu/2/{fleet}/`."""


class Topic(NamedTuple):
    """A parsed topic; `stream` is empty for topics of a whole device, `device` for those of releases."""

    kind: Kind
    fleet: str
    device: str = ""
    stream: str = ""
    audience: str = ""
    release: str = ""


def check_device_name(name: str) -> None:
    """Refuse by a TopicError what can be the name of no device, `+` too, which topics take for all of them."""
    if not _NAME.fullmatch(name) or name in RESERVED_DEVICES:
        raise TopicError(f"{name[:80]!r} is no name of a device: 1 to 64 letters, digits, '_' or '-', and not reserved")


def status_topic(fleet: str, device: str) -> str:
    """Topic of a device's retained birth and last-will message."""
    return _topic("status", fleet, device=device)


def committed_topic(fleet: str, device: str) -> str:
    """Topic on which the gateway tells a device what is durable."""
    return _topic("committed", fleet, device=device)


def symbols_topic(fleet: str, device: str, stream: str) -> str:
    """Topic of a stream's sanitised symbols."""
    return _topic("symbols", fleet, device=device, stream=stream)


def window_topic(fleet: str, device: str, stream: str) -> str:
    """Topic of a stream's noisy window counts."""
    return _topic("window", fleet, device=device, stream=stream)


def table_topic(fleet: str, device: str, stream: str) -> str:
    """Topic on which the gateway sends a measured stream's tables to its device."""
    return _topic("table", fleet, device=device, stream=stream)


def stop_topic(fleet: str, device: str) -> str:
    """Topic on which the gateway tells a device to draw nothing more; retained."""
    return _topic("stop", fleet, device=device)


def policy_set_topic(fleet: str, device: str) -> str:
    """Topic of the retained, signed policy document that a device is to follow."""
    return _topic("policy_set", fleet, device=device)


def policy_status_topic(fleet: str, device: str) -> str:
    """Topic on which a device says which policy document it follows, and what it has refused; retained."""
    return _topic("policy_status", fleet, device=device)


def root_topic(fleet: str) -> str:
    """Topic of a fleet's root documents, all that followed the first; retained."""
    return _topic("root", fleet)


def time_topic(fleet: str) -> str:
    """Topic of the time that a fleet's gateway signs; retained."""
    return _topic("time", fleet)


def health_topic(fleet: str) -> str:
    """Topic on which a fleet's gateway says how it is; retained, and its last will."""
    return _topic("health", fleet)


def estimate_topic(fleet: str, device: str, stream: str) -> str:
    """Topic of the gateway's smoothed estimate of a stream."""
    return _topic("estimate", fleet, device=device, stream=stream)


def count_topic(fleet: str, device: str, stream: str) -> str:
    """Topic of the gateway's report of each window that a device has counted."""
    return _topic("count", fleet, device=device, stream=stream)


def description_topic(fleet: str, device: str, stream: str) -> str:
    """Topic of what a stream is, and what it promises; retained."""
    return _topic("description", fleet, device=device, stream=stream)


def discovery_topic(fleet: str, device: str) -> str:
    """Home Assistant's own retained topic for a device, or, under `health`, the gateway; `parse_topic` refuses it.

    The fleet's name keeps those of other fleets apart.
    """
    if device in RESERVED_DEVICES - {"health"}:
        raise TopicError(f"no device is called {device!r}")
    return f"homeassistant/device/{_part(fleet)}/{_part(device)}/config"


def available_topic(fleet: str, device: str) -> str:
    """Where Home Assistant reads whether a device is there: `online` or `offline`; retained."""
    return f"{discovery_topic(fleet, device).removesuffix('config')}available"


def release_topic(fleet: str, audience: str, name: str) -> str:
    """Topic of the gateway's releases of one name for one audience; `+` stands for every one."""
    if audience in RESERVED_AUDIENCES:
        raise TopicError(f"{audience!r} cannot be the name of an audience")
    return _topic("release", fleet, audience=audience, name=name)


def parse_topic(topic: str) -> Topic:
    """Take a topic apart; TopicError if it is none of this protocol's version."""
    kind: Kind
    match topic.split("/"):
        case ["fugu", "2", fleet, ("estimate" | "count" | "description") as kind, device, stream]:
            names = {"device": device, "stream": stream}
        case ["fugu", "2", fleet, "release" as kind, audience, release]:
            names = {"audience": audience, "release": release}
        case ["fugu", "2", fleet, ("root" | "time" | "health") as kind]:
            names = {}
        case ["fugu", "2", fleet, device, "policy", ("set" | "status") as part]:
            kind, names = "policy_set" if part == "set" else "policy_status", {"device": device}
        case ["fugu", "2", fleet, device, ("status" | "committed" | "stop") as kind]:
            names = {"device": device}
        case ["fugu", "2", fleet, device, ("symbols" | "window" | "table") as kind, stream]:
            names = {"device": device, "stream": stream}
        case _:
            raise TopicError(f"not a topic of this protocol: {topic[:100]!r}")
    reserved = names.get("device") in RESERVED_DEVICES or names.get("audience") in RESERVED_AUDIENCES
    if reserved or not all(map(_NAME.fullmatch, (fleet, *names.values()))):
        raise TopicError(f"not a valid name in topic {topic[:100]!r}")
    return Topic(kind, fleet, **names)


def _topic(kind: Kind, fleet: str, **names: str) -> str:
    if (device := names.get("device")) in RESERVED_DEVICES:
        raise TopicError(f"no device is called {device!r}")
    parts = {name: _part(value) for name, value in names.items()}
    return f"fugu/2/{_part(fleet)}/{ADDRESSES[kind].format(**parts)}"


def _part(name: str) -> str:
    """A name as part of a topic; `+` stands for every name, in subscriptions."""
    if name != "+" and not _NAME.fullmatch(name):
        raise TopicError(f"{name[:80]!r} is not a name: 1 to 64 letters, digits, '_' or '-'")
    return name
