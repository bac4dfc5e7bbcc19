"""How a fleet's gateway is, as JSON for people and their tools: it publishes that, retained, under `health`.

There is nothing of a reading in it: counts of frames, when they came, and what the gateway cannot use. Which alarms
there may be is a closed set. What was left out, to keep the message small, is counted.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from fugu.contract._document import FORMAT_NAME
from fugu.contract._wire import integer, length, text
from fugu.contract.errors import FrameError, FrameRangeError, FrameTypeError, MalformedFrameError

__all__ = ["MAX_HEALTH_BYTES", "MAX_NAMES", "AlarmCode", "Health", "HealthAlarm", "decode_health", "encode_health"]

MAX_NAMES = 8
MAX_HEALTH_BYTES = 1 << 15
MAX_COUNT = 2**53
MAX_NAME = 200
MAX_ADVICE = 300


class AlarmCode(StrEnum):
    """What an operator has to look at; docs/protocol.md says what each code means."""

    CONFLICT = "conflict"
    STOPPED = "stopped"
    UNKNOWN_DEVICE = "unknown-device"
    POLICY_REFUSED = "policy-refused"
    FUTURE = "future"
    FLOOD = "flood"
    REPEATS = "repeats"
    SILENT = "silent"
    RELEASE_REFUSED = "release-refused"
    STORE = "store"
    LEDGER = "ledger"
    STUCK = "stuck"
    BROKER = "broker"
    SHARD = "shard"
    CERTIFICATE = "certificate"


@dataclass(frozen=True, slots=True)
class HealthAlarm:
    """An alarm, of all the devices that have it together.

    Attributes:
        code: what is wrong.
        since: when the oldest of them began, in Unix seconds.
        count: how often it has happened since.
        names: of devices (or of releases, files, ...) that have it; the first few.
        others: how many more there are.
        advice: what to do, in a sentence.
    """

    code: AlarmCode
    since: int
    count: int
    names: tuple[str, ...]
    others: int
    advice: str

    def __post_init__(self) -> None:
        """Refuse values that no message can hold."""
        integer(self.since, 0, MAX_COUNT, "since")
        integer(self.count, 0, MAX_COUNT, "count")
        integer(self.others, 0, MAX_COUNT, "others")
        length(self.names, 0, MAX_NAMES, "names")
        for name in self.names:
            text(name, 0, MAX_NAME, "name")
        text(self.advice, 0, MAX_ADVICE, "advice")


@dataclass(frozen=True, slots=True)
class Health:
    """How a gateway is.

    Attributes:
        online: false is the last will: nothing else is known then.
        time: of this message, in Unix seconds.
        since: when the gateway started, in Unix seconds.
        devices: that have policies.
        heard: of them, those that have sent a frame since the start.
        frames: that were stored since the start.
        refused: messages that could not be used since the start.
        alarms: of each code at most one, in the order of the codes.
    """

    online: bool
    time: int = 0
    since: int = 0
    devices: int = 0
    heard: int = 0
    frames: int = 0
    refused: int = 0
    alarms: tuple[HealthAlarm, ...] = ()

    def __post_init__(self) -> None:
        """Refuse values that no message can hold."""
        if not isinstance(self.online, bool):
            raise FrameTypeError("online is not a boolean")
        for name in ("time", "since", "devices", "heard", "frames", "refused"):
            integer(getattr(self, name), 0, MAX_COUNT, name)
        codes = [alarm.code for alarm in self.alarms]
        if codes != sorted(set(codes), key=list(AlarmCode).index):
            raise FrameRangeError("alarms are not in their order, or one is there twice")


def encode_health(health: Health) -> bytes:
    """Bytes of the message."""
    fields = asdict(health) if health.online else {"online": False}
    return json.dumps({"format": FORMAT_NAME, **fields}, separators=(",", ":")).encode()


def decode_health(payload: bytes) -> Health:
    """Parse a message.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    if len(payload) > MAX_HEALTH_BYTES:
        raise FrameRangeError(f"a message of {len(payload)} bytes; at most {MAX_HEALTH_BYTES} are allowed")
    try:
        fields = json.loads(payload)
        if fields.pop("format") != FORMAT_NAME:
            raise FrameRangeError("not of this format")
        alarms = tuple(_alarm(**alarm) for alarm in fields.pop("alarms", ()))
        return Health(**fields, alarms=alarms)
    except FrameError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise MalformedFrameError("no JSON of a gateway's health") from None


def _alarm(code: str, names: Any, **fields: Any) -> HealthAlarm:
    if not isinstance(names, list):
        raise FrameTypeError("names are no list")
    return HealthAlarm(AlarmCode(code), names=tuple(names), **fields)
