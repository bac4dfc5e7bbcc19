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
    "NAME_PATTERN",
    "RESERVED_DEVICES",
    "Topic",
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
RESERVED_AUDIENCES = frozenset({"symbols", "window", "table"})
"""Further names that would make a release's topic look like that of a device called `release`, in access lists too."""
_ROOT = "fugu/2"
_NAME = re.compile(NAME_PATTERN)

Kind = Literal[
    "status",
    "committed",
    "symbols",
    "window",
    "table",
    "estimate",
    "count",
    "description",
    "release",
    "policy_set",
    "policy_status",
    "root",
    "time",
    "health",
    "stop",
]


class Topic(NamedTuple):
    """A parsed topic; `stream` is empty for topics of a whole device, `device` for those of releases."""

    kind: Kind
    fleet: str
    device: str
    stream: str
    audience: str = ""
    release: str = ""


def check_device_name(name: str) -> None:
    """Refuse by a TopicError what can be the name of no device, `+` too, which topics take for all of them."""
    if not _NAME.fullmatch(name) or name in RESERVED_DEVICES:
        raise TopicError(f"{name[:80]!r} is no name of a device: 1 to 64 letters, digits, '_' or '-', and not reserved")


def status_topic(fleet: str, device: str) -> str:
    """Topic of a device's retained birth and last-will message."""
    return f"{_ROOT}/{_part(fleet)}/{_device(device)}/status"


def committed_topic(fleet: str, device: str) -> str:
    """Topic on which the gateway tells a device what is durable."""
    return f"{_ROOT}/{_part(fleet)}/{_device(device)}/committed"


def symbols_topic(fleet: str, device: str, stream: str) -> str:
    """Topic of a stream's sanitised symbols."""
    return f"{_ROOT}/{_part(fleet)}/{_device(device)}/symbols/{_part(stream)}"


def window_topic(fleet: str, device: str, stream: str) -> str:
    """Topic of a stream's noisy window counts."""
    return f"{_ROOT}/{_part(fleet)}/{_device(device)}/window/{_part(stream)}"


def table_topic(fleet: str, device: str, stream: str) -> str:
    """Topic on which the gateway sends a measured stream's tables to its device."""
    return f"{_ROOT}/{_part(fleet)}/{_device(device)}/table/{_part(stream)}"


def stop_topic(fleet: str, device: str) -> str:
    """Topic on which the gateway tells a device to draw nothing more; retained."""
    return f"{_ROOT}/{_part(fleet)}/{_device(device)}/stop"


def policy_set_topic(fleet: str, device: str) -> str:
    """Topic of the retained, signed policy document that a device is to follow."""
    return f"{_ROOT}/{_part(fleet)}/{_device(device)}/policy/set"


def policy_status_topic(fleet: str, device: str) -> str:
    """Topic on which a device says which policy document it follows, and what it has refused; retained."""
    return f"{_ROOT}/{_part(fleet)}/{_device(device)}/policy/status"


def root_topic(fleet: str) -> str:
    """Topic of a fleet's root documents, all that followed the first; retained."""
    return f"{_ROOT}/{_part(fleet)}/root"


def time_topic(fleet: str) -> str:
    """Topic of the time that a fleet's gateway signs; retained."""
    return f"{_ROOT}/{_part(fleet)}/time"


def health_topic(fleet: str) -> str:
    """Topic on which a fleet's gateway says how it is; retained, and its last will."""
    return f"{_ROOT}/{_part(fleet)}/health"


def estimate_topic(fleet: str, device: str, stream: str) -> str:
    """Topic of the gateway's smoothed estimate of a stream."""
    return f"{_ROOT}/{_part(fleet)}/estimate/{_device(device)}/{_part(stream)}"


def count_topic(fleet: str, device: str, stream: str) -> str:
    """Topic of the gateway's report of each window that a device has counted."""
    return f"{_ROOT}/{_part(fleet)}/count/{_device(device)}/{_part(stream)}"


def description_topic(fleet: str, device: str, stream: str) -> str:
    """Topic of what a stream is, and what it promises; retained."""
    return f"{_ROOT}/{_part(fleet)}/description/{_device(device)}/{_part(stream)}"


def discovery_topic(fleet: str, device: str) -> str:
    """Home Assistant's own retained topic for a device, or, under `health`, the gateway; `parse_topic` refuses it.

    The fleet's name keeps those of other fleets apart.
    """
    return f"homeassistant/device/{_part(fleet)}/{device if device == 'health' else _device(device)}/config"


def release_topic(fleet: str, audience: str, name: str) -> str:
    """Topic of the gateway's releases of one name for one audience; `+` stands for every one."""
    if audience in RESERVED_AUDIENCES | RESERVED_DEVICES:
        raise TopicError(f"{audience!r} cannot be the name of an audience")
    return f"{_ROOT}/{_part(fleet)}/release/{_part(audience)}/{_part(name)}"


def parse_topic(topic: str) -> Topic:
    """Take a topic apart; TopicError if it is none of this protocol's version."""
    match topic.split("/"):
        case ["fugu", "2", fleet, ("estimate" | "count" | "description") as kind, device, stream]:
            parsed = Topic(kind, fleet, device, stream)
        case ["fugu", "2", fleet, "release", audience, name]:
            valid = all(_NAME.fullmatch(one) for one in (fleet, audience, name))
            if not valid or audience in RESERVED_AUDIENCES | RESERVED_DEVICES:
                raise TopicError(f"not a valid name in topic {topic[:100]!r}")
            return Topic("release", fleet, "", "", audience, name)
        case ["fugu", "2", fleet, ("root" | "time" | "health") as kind]:
            if not _NAME.fullmatch(fleet):
                raise TopicError(f"not a valid name in topic {topic[:100]!r}")
            return Topic(kind, fleet, "", "")
        case ["fugu", "2", fleet, device, "policy", ("set" | "status") as part]:
            parsed = Topic("policy_set" if part == "set" else "policy_status", fleet, device, "")
        case ["fugu", "2", fleet, device, ("status" | "committed" | "stop") as kind]:
            parsed = Topic(kind, fleet, device, "")
        case ["fugu", "2", fleet, device, ("symbols" | "window" | "table") as kind, stream]:
            parsed = Topic(kind, fleet, device, stream)
        case _:
            raise TopicError(f"not a topic of this protocol: {topic[:100]!r}")
    names = [parsed.fleet, parsed.device] + ([parsed.stream] if parsed.stream else [])
    if not all(_NAME.fullmatch(name) for name in names) or parsed.device in RESERVED_DEVICES:
        raise TopicError(f"not a valid name in topic {topic[:100]!r}")
    if parsed.kind in ("symbols", "window", "table", "estimate", "count", "description") and not parsed.stream:
        raise TopicError(f"no stream in topic {topic[:100]!r}")
    return parsed


def _part(name: str) -> str:
    """A name as part of a topic; `+` stands for every name, in subscriptions."""
    if name != "+" and not _NAME.fullmatch(name):
        raise TopicError(f"{name[:80]!r} is not a name: 1 to 64 letters, digits, '_' or '-'")
    return name


def _device(name: str) -> str:
    if name in RESERVED_DEVICES:
        raise TopicError(f"no device is called {name!r}")
    return _part(name)
