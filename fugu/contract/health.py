"""How a fleet's gateway is, as JSON for people and their tools: it publishes that, retained, under `health`.

There is nothing of a reading in it: counts of frames, when they came, and what the gateway cannot use. Which alarms
there may be is a closed set. What was left out, to keep the message small, is counted.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from fugu.contract._document import FORMAT_NAME
from fugu.contract.errors import FrameRangeError
from fugu.contract.json_message import Constant, JsonMessage, Objects
from fugu.contract.message import Flag, Integer, Many, Text, Word

__all__ = ["MAX_NAMES", "AlarmCode", "Health", "HealthAlarm"]

MAX_NAMES = 8
_COUNT = Integer(0, 2**53)


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
class HealthAlarm(JsonMessage):
    """An alarm, of all the devices that have it together."""

    code: Annotated[AlarmCode, Word(AlarmCode), "What is wrong."]
    since: Annotated[int, _COUNT, "When the oldest of them began, in Unix seconds."]
    count: Annotated[int, _COUNT, "How often it has happened since."]
    names: Annotated[
        tuple[str, ...], Many(Text(0, 200), 0, MAX_NAMES, "name"), "Of devices, or of what else the code is about."
    ]
    others: Annotated[int, _COUNT, "How many more there are."]
    advice: Annotated[str, Text(0, 300), "What to do."]


@dataclass(frozen=True, slots=True)
class Health(JsonMessage):
    """How a gateway is."""

    MOST: ClassVar[int] = 1 << 15

    format: Annotated[str, Constant(FORMAT_NAME)] = field(default=FORMAT_NAME, init=False)
    online: Annotated[bool, Flag(), "False is the last will: nothing else is known then."]
    time: Annotated[int, _COUNT, "Of this message, in Unix seconds."] = 0
    since: Annotated[int, _COUNT, "When the gateway started, in Unix seconds."] = 0
    devices: Annotated[int, _COUNT, "Devices that have policies."] = 0
    heard: Annotated[int, _COUNT, "Of them, those that have sent a frame since the start."] = 0
    frames: Annotated[int, _COUNT, "Frames that were stored since the start."] = 0
    refused: Annotated[int, _COUNT, "Messages that could not be used since the start."] = 0
    alarms: Annotated[
        tuple[HealthAlarm, ...],
        Objects(HealthAlarm, len(AlarmCode)),
        "Of each code at most one, in their order.",
    ] = ()

    def _consistent(self) -> None:
        codes = [alarm.code for alarm in self.alarms]
        if codes != sorted(set(codes), key=list(AlarmCode).index):
            raise FrameRangeError("alarms are not in their order, or one is there twice")

    def flat(self) -> dict[str, Any]:
        """The fields; of a gateway that has gone, nothing but that."""
        found = JsonMessage.flat(self)
        return found if self.online else {name: found[name] for name in ("format", "online")}
