"""MQTT topics: `fugu/2/{fleet}/...`, built and parsed in one place.

A name (fleet, device, stream) has 1 to 64 letters, digits, `_` or `-`, so it can hold no MQTT wildcard or separator.
Some names are reserved, so that no topic can be taken for another. A release's audience is a part of its topic, so that
a broker's access list can tell audiences apart.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, cast

from fugu.contract.errors import TopicError

__all__ = [
    "ADDRESSES",
    "NAME_PATTERN",
    "RESERVED_AUDIENCES",
    "RESERVED_DEVICES",
    "Kind",
    "Topic",
    "available_topic",
    "check_device_name",
    "discovery_topic",
    "parse_topic",
    "topic_of",
]

NAME_PATTERN = "^[A-Za-z0-9_-]{1,64}$"
RESERVED_DEVICES = frozenset({"estimate", "count", "description", "release", "health", "policy", "group"})
"""Words that stand in the place of a device; and `policy`, whose description would look like a policy for a device."""
RESERVED_AUDIENCES = RESERVED_DEVICES | {"symbols", "window", "table", "report"}
"""Names that would make a release's topic look like that of a device called `release`, in access lists too."""
_NAME = re.compile(NAME_PATTERN)

OfFleet = Literal["root", "time", "health"]
OfDevice = Literal["status", "committed", "stop", "policy_set", "policy_status"]
OfStream = Literal["symbols", "window", "report", "table", "estimate", "count", "description"]
OfGroup = Literal["group_document", "group_key", "group_request", "group_answer"]
Kind = Literal[OfFleet, OfDevice, OfStream, OfGroup, "release"]
ADDRESSES: dict[Kind, str] = {
    "symbols": "{device}/symbols/{stream}",
    "window": "{device}/window/{stream}",
    "report": "{device}/report/{stream}",
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
    "group_document": "group/{group}/document",
    "group_key": "group/{group}/key",
    "group_request": "group/{group}/request",
    "group_answer": "group/{group}/answer",
}
"""The topics below `fugu/2/{fleet}/`."""
_NAMES = {kind: re.findall(r"{(\w+)}", address) for kind, address in ADDRESSES.items()}
_NAME_FORM = NAME_PATTERN.strip("^$")
_FORMS = {
    **dict.fromkeys(("stream", "name", "group"), f"({_NAME_FORM})"),
    "device": f"((?!(?:{'|'.join(RESERVED_DEVICES)})/){_NAME_FORM})",
    "audience": f"((?!(?:{'|'.join(RESERVED_AUDIENCES)})/){_NAME_FORM})",
}
_ADDRESS_FORM = "|".join(f"(?P<{kind}>{address.format_map(_FORMS)})" for kind, address in ADDRESSES.items())
_TOPIC = re.compile(f"fugu/2/({_NAME_FORM})/(?:{_ADDRESS_FORM})")
"""The names of a topic, after the fleet and all below it; the last group that has a name is the kind."""


class Topic(NamedTuple):
    """A parsed topic; `stream` is empty for topics of a whole device, `device` for those of releases and groups."""

    kind: Kind
    fleet: str
    device: str = ""
    stream: str = ""
    audience: str = ""
    name: str = ""
    group: str = ""


def check_device_name(name: str) -> None:
    """Refuse, by a TopicError, a name that no device can have; also `+`, which stands for all devices in topics."""
    if not _NAME.fullmatch(name) or name in RESERVED_DEVICES:
        raise TopicError(f"{name[:80]!r} is no name of a device: 1 to 64 letters, digits, '_' or '-', and not reserved")


def topic_of(kind: Kind, fleet: str, *names: str) -> str:
    """Make a topic from the names in its address, in their order; `+` stands for every name."""
    name_of_part = dict(zip(_NAMES[kind], names, strict=True))
    if (device := name_of_part.get("device")) in RESERVED_DEVICES:
        raise TopicError(f"no device is called {device!r}")
    if (audience := name_of_part.get("audience")) in RESERVED_AUDIENCES:
        raise TopicError(f"{audience!r} cannot be the name of an audience")
    address = ADDRESSES[kind].format(**{part: _checked_name(name) for part, name in name_of_part.items()})
    return f"fugu/2/{_checked_name(fleet)}/{address}"


def discovery_topic(fleet: str, device: str) -> str:
    """Return Home Assistant's retained topic of a device, or of the gateway under `health`; `parse_topic` refuses it.

    The fleet's name keeps the topics of fleets apart.
    """
    if device in RESERVED_DEVICES - {"health"}:
        raise TopicError(f"no device is called {device!r}")
    return f"homeassistant/device/{_checked_name(fleet)}/{_checked_name(device)}/config"


def available_topic(fleet: str, device: str) -> str:
    """Return the retained topic where Home Assistant reads whether a device is `online` or `offline`."""
    return f"{discovery_topic(fleet, device).removesuffix('config')}available"


def parse_topic(topic: str) -> Topic:
    """Parse a topic; TopicError if it is not a topic of this protocol's version."""
    match = _TOPIC.fullmatch(topic)
    if match is None:
        raise TopicError(f"not a topic of this protocol, or one with a name that is not valid: {topic[:100]!r}")
    kind = cast(Kind, match.lastgroup)
    fleet, _, *names = filter(None, match.groups())
    return Topic(kind, fleet, **dict(zip(_NAMES[kind], names, strict=True)))


def _checked_name(name: str) -> str:
    """Return a name as part of a topic, `+` for every name in subscriptions; TopicError for others."""
    if name != "+" and not _NAME.fullmatch(name):
        raise TopicError(f"{name[:80]!r} is not a name: 1 to 64 letters, digits, '_' or '-'")
    return name
