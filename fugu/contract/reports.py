"""Reports of the gateway on streams, releases and itself, for people and their tools: flat JSON.

Estimates follow from what devices have published, so they cost no privacy. All floats are 64-bit, and written so that
they come back: an epsilon or a charge must not be rounded by being sent. `health` is retained and holds nothing of a
reading; what was left out, to keep the message small, is counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from fugu.contract._document import FORMAT_NAME
from fugu.contract.errors import FrameError, Reason
from fugu.contract.frames import MAX_FRAME_TICKS, MAX_TICK, MAX_WINDOW_TICKS, WINDOW_NAME_PATTERN
from fugu.contract.json_message import Constant, Fields, JsonMessage, Labels, Number, Numbers, Objects, Shares, Time
from fugu.contract.losses import Adversary
from fugu.contract.measure_frames import MAX_MEASURE_TICKS
from fugu.contract.message import FieldType, Flag, Integer, Many, Schema, Text, Word, integer, length
from fugu.contract.queries import QUERIES, WINDOW_QUERIES, Query, QueryKind
from fugu.contract.sentences import sum_condition, unix_us
from fugu.contract.topics import NAME_PATTERN
from fugu.contract.windows import Mechanism

__all__ = [
    "MAX_NAMES",
    "AlarmCode",
    "Estimate",
    "Health",
    "HealthAlarm",
    "Noise",
    "PlaceEstimate",
    "ReleaseFrame",
    "SmoothedPlace",
    "SmoothedValue",
    "StateEstimate",
    "ValueEstimate",
    "WindowCount",
    "decode_estimate",
]


class _OrNone(FieldType):
    """None (null in JSON), or what another type allows."""

    def __init__(self, type: FieldType) -> None:
        self.type = type

    def check(self, value: Any, name: str) -> None:
        if value is not None:
            self.type.check(value, name)

    def read(self, value: Any, name: str) -> Any:
        return None if value is None else self.type.read(value, name)

    def schema(self) -> Schema:
        found = self.type.schema()
        return found | {"type": [found["type"], "null"]}


def _check_intervals(values: Sequence[float], low: Sequence[float], high: Sequence[float]) -> None:
    """Refuse values that do not all lie in an interval of their own."""
    for name, column in (("low", tuple(low)), ("high", tuple(high))):
        length(column, len(values), len(values), name)
    if not all(first <= value <= last for first, value, last in zip(low, values, high, strict=True)):
        raise FrameError("a value is not inside its interval", Reason.OUT_OF_RANGE)


_SLACK: Final = 1e-3
_PROBABILITY = Number(f"[0, {1.0 + _SLACK}]")
_TICK = Integer(0, MAX_TICK)
_PROTECTION = Integer(0, 2**16)
Epsilon = Annotated[
    float,
    Number("(0, inf)"),
    "What the policy promises, over all that the stream tells, in nats; the description says of which stretch.",
]
EpsilonOrNone = Annotated[
    float | None, _OrNone(Number("(0, inf)")), "What the policy promises of a tick, in nats; null: there is no bound."
]
Against = Annotated[str, Word(get_args(Adversary)), "Against whom."]
Useful = Annotated[
    bool, Flag(), "Whether the plan found answers like this one twice as good as guessing; false if nobody compared."
]
Protection = Annotated[
    int, _PROTECTION, "The least number of possible states that any one was hidden among, itself included; 1: one was "
    "exposed, 0: nothing was released."
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class StateEstimate(JsonMessage):
    """The states of consecutive ticks, as far as the gateway knows by now."""

    time: Annotated[datetime, Time(), "Of the newest tick."]
    since: Annotated[datetime, Time(), "Of the first one."]
    tick: Annotated[int, _TICK, "Number of the newest tick."]
    ticks: Annotated[int, Integer(1, MAX_TICK), "How many there are."]
    state: Annotated[str, Text(1, 64), "The most likely one at the newest tick."]
    probability: Annotated[float, _PROBABILITY, "That it is this one."]
    shares: Annotated[
        Mapping[str, float], Shares(_PROBABILITY), "Of each state its mean probability over the ticks, by label."
    ]
    unit: Annotated[None, Constant(None)] = field(default=None, init=False)
    epsilon: Epsilon
    adversary: Against
    useful: Useful

    def _consistent(self) -> None:
        _check_times(self.since, self.time)
        if self.state not in self.shares:
            raise FrameError("state is none of those that have a share", Reason.OUT_OF_RANGE)
        if abs(sum(self.shares.values()) - 1.0) > _SLACK:
            raise FrameError(f"shares sum to {sum(self.shares.values())}", Reason.OUT_OF_RANGE)


_LAG = Annotated[int, Integer(1, MAX_FRAME_TICKS), "Ticks of later points that it has seen."]


@dataclass(frozen=True, slots=True)
class SmoothedPlace(JsonMessage):
    """Where something was at a tick, as far as the gateway knows now that later points have come."""

    time: Annotated[datetime, Time(), "Of the tick."]
    tick: Annotated[int, _TICK, "Its number."]
    lag: _LAG
    latitude: Annotated[float, Number("[-90, 90]"), "Degrees."]
    longitude: Annotated[float, Number("[-180, 180]"), "Degrees."]
    deviation: Annotated[float, Number("[0, inf)"), "Metres: root mean square of how far the true cell is from it."]


@dataclass(frozen=True, slots=True)
class PlaceEstimate(JsonMessage):
    """Where something was at a tick, as far as the gateway knew when it had come."""

    time: Annotated[datetime, Time(), "Of the tick."]
    tick: Annotated[int, _TICK, "Its number."]
    latitude: Annotated[float, Number("[-90, 90]"), "Degrees."]
    longitude: Annotated[float, Number("[-180, 180]"), "Degrees."]
    accuracy: Annotated[
        float, Number("[0, inf)"), "Metres: the true place is this near with posterior probability 0.95."
    ]
    semi_major: Annotated[
        float, Number("[0, inf)"), "Metres: half-axis of an ellipse about the place that holds the true one as likely."
    ]
    semi_minor: Annotated[float, Number("[0, inf)"), "Metres: its other half-axis."]
    orientation: Annotated[float, Number("[0, 180)"), "Of the longer one, degrees clockwise from north."]
    protection: Protection
    epsilon: EpsilonOrNone
    adversary: Against
    useful: Useful
    smoothed: Annotated[
        tuple[SmoothedPlace, ...],
        Objects(SmoothedPlace, MAX_MEASURE_TICKS),
        "Ticks whose `lag` later points are complete with this message; each is told once, unless a late frame changes "
        "it.",
    ] = ()

    def _consistent(self) -> None:
        if self.semi_minor > self.semi_major:
            raise FrameError("semi_minor is above semi_major", Reason.OUT_OF_RANGE)


class _Coordinates(JsonMessage):
    __slots__ = ()
    values: tuple[float, ...]

    def labels(self) -> Sequence[str]:
        """Numbers of its coordinates, if it has several."""
        return [str(axis) for axis in range(len(self.values))] if len(self.values) > 1 else ()

    @classmethod
    def read_labels(cls, found: Mapping[str, Any], fields: Fields) -> Sequence[str]:
        """The same, by the names that are there."""
        return () if "value" in fields else [str(axis) for axis in range(max(2, len(fields.names("value_"))))]


@dataclass(frozen=True, slots=True)
class SmoothedValue(_Coordinates):
    """A measurement at a tick, as far as the gateway knows now that later points have come."""

    time: Annotated[datetime, Time(), "Of the tick."]
    tick: Annotated[int, _TICK, "Its number."]
    lag: _LAG
    values: Annotated[tuple[float, ...], Numbers("value"), "Posterior mean."]
    deviations: Annotated[tuple[float, ...], Numbers("deviation", Number("[0, inf)")), "Posterior standard deviation."]

    def _consistent(self) -> None:
        length(self.values, 1, 3, "values")
        length(self.deviations, len(self.values), len(self.values), "deviations")


@dataclass(frozen=True, slots=True)
class ValueEstimate(_Coordinates):
    """A measurement of 1 to 3 numbers at a tick, as far as the gateway knew when it had come."""

    time: Annotated[datetime, Time(), "Of the tick."]
    tick: Annotated[int, _TICK, "Its number."]
    values: Annotated[tuple[float, ...], Numbers("value"), "Posterior mean."]
    low: Annotated[tuple[float, ...], Numbers("low"), "Its interval of posterior probability 0.95."]
    high: Annotated[tuple[float, ...], Numbers("high"), "Its interval's end."]
    unit: Annotated[str | None, _OrNone(Text(1, 32)), "Of the values."]
    protection: Protection
    epsilon: EpsilonOrNone
    adversary: Against
    useful: Useful
    smoothed: Annotated[
        tuple[SmoothedValue, ...],
        Objects(SmoothedValue, MAX_MEASURE_TICKS),
        "Ticks whose `lag` later points are complete with this message; each is told once, unless a late frame changes "
        "it.",
    ] = ()

    def _consistent(self) -> None:
        length(self.values, 1, 3, "values")
        _check_intervals(self.values, self.low, self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCount(JsonMessage):
    """The noisy counts of a window that a device has counted."""

    time: Annotated[datetime, Time(), "End of the window."]
    since: Annotated[datetime, Time(), "Its beginning."]
    window: Annotated[str, Text(1, 32, WINDOW_NAME_PATTERN), "Its name in the policy."]
    states: Annotated[tuple[str, ...], Labels(), "Labels of the states that were counted; of a histogram, all."]
    blocks: Annotated[tuple[str, ...], Labels(0), "Blocks of the local day, which have a number each."] = ()
    values: Annotated[tuple[float, ...], Numbers("value"), "What was counted, with noise, so below zero at times."]
    low: Annotated[tuple[float, ...], Numbers("low"), "The interval that holds the true count."]
    high: Annotated[tuple[float, ...], Numbers("high"), "Its interval's end."]
    confidence: Annotated[float, Number("(0, 1)"), "Of the interval."]
    observed: Annotated[
        int, Integer(1, MAX_WINDOW_TICKS), "Ticks on which the device was running; the others are in no count."
    ]
    unit: Annotated[str, Word({one.unit: None for one in WINDOW_QUERIES.values()}), "Of the values."]
    epsilon: Epsilon
    adversary: Against
    useful: Annotated[
        bool,
        Flag(),
        "Whether the plan found answers like this one twice as good as guessing; false if nobody compared, and if the "
        "device was running for less than half of the window.",
    ]

    def labels(self) -> Sequence[str]:
        """The states, if each has a number."""
        return self.blocks or (self.states if len(self.values) > 1 else ())

    @classmethod
    def read_labels(cls, found: Mapping[str, Any], fields: Fields) -> Sequence[str]:
        """The same, by the names that are there."""
        if blocks := found.get("blocks"):
            return tuple(blocks)
        labels: Sequence[str] = () if "value" in fields else found["states"]
        if len(labels) == 1:
            raise FrameError("one number is called value, without the name of a state", Reason.WRONG_LENGTH)
        return labels

    def _consistent(self) -> None:
        _check_times(self.since, self.time)
        if self.blocks and len(self.values) != len(self.blocks):
            raise FrameError(f"{len(self.values)} values of {len(self.blocks)} blocks", Reason.WRONG_LENGTH)
        if not self.blocks and len(self.values) not in (1, len(self.states)):
            raise FrameError(f"{len(self.values)} values beside {len(self.states)} states", Reason.WRONG_LENGTH)
        _check_intervals(self.values, self.low, self.high)


Estimate = StateEstimate | PlaceEstimate | ValueEstimate


def decode_estimate(payload: bytes) -> Estimate:
    """Parse an estimate, of whichever of the three; the FrameError says what is wrong."""
    fields = Fields(payload, JsonMessage.MOST)
    if "state" in fields:
        return StateEstimate.read(fields)
    return (PlaceEstimate if "latitude" in fields else ValueEstimate).read(fields)


def _check_times(since: datetime, time: datetime) -> None:
    if unix_us(since) > unix_us(time):
        raise FrameError("since is after time", Reason.OUT_OF_RANGE)


Noise = Literal["discrete-laplace", "device-windows", "mixed"]
_NAME = Text(1, 64, NAME_PATTERN)
_MOST_DEVICES = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFrame(JsonMessage):
    """A statistic of a window of one or many devices, with noise."""

    time: Annotated[datetime, Time(), "End of the window."]
    since: Annotated[datetime, Time(), "Its beginning."]
    name: Annotated[str, _NAME, "Of the release, and the last part of its topic."]
    stream: Annotated[str, _NAME, "The stream that was counted."]
    audience: Annotated[str, _NAME, "Whom the promise is for."]
    query: Annotated[
        QueryKind,
        Word(get_args(QueryKind)),
        "What was asked: the count of ticks in the states, a histogram with a "
        "count of each state, their relative frequency, or the mean dwell time in them, in ticks.",
    ]
    states: Annotated[tuple[str, ...], Labels(), "Labels of the states that were asked for; of a histogram, all."]
    devices: Annotated[int, Integer(1, _MOST_DEVICES), "How many devices were counted together."]
    first: Annotated[int, Integer(0, MAX_TICK), "First tick of the window, by the wall clock."]
    length: Annotated[int, Integer(1, MAX_TICK + 1), "Its number of ticks."]
    observed: Annotated[
        int, Integer(0, (MAX_TICK + 1) * _MOST_DEVICES), "Ticks that had a symbol or were counted, over all devices."
    ]
    values: Annotated[tuple[float, ...], Numbers("value"), "An unbiased estimate, which may be below zero."]
    low: Annotated[
        tuple[float, ...],
        Numbers("low"),
        "The interval that holds the true value at least as often as `confidence` says.",
    ]
    high: Annotated[tuple[float, ...], Numbers("high"), "Its interval's end."]
    standard_errors: Annotated[
        tuple[float, ...],
        Numbers("standard_error", Number("[0, inf)")),
        "Estimate of the error of randomised response and noise together.",
    ]
    unit: Annotated[str, Word(("ticks", "share")), "Of the values; share for a frequency."]
    confidence: Annotated[float, Number("(0, 1)"), "Of the interval."]
    epsilon: Annotated[
        float,
        Number("(0, inf)"),
        "What the audience is promised, over all releases, in nats; the site, by the policies of what is counted.",
    ]
    adversary: Annotated[str, Word(get_args(Adversary)), "Against whom."]
    stretch_ticks: Annotated[
        int, Integer(1, MAX_TICK), "How many ticks in a row lose no more than epsilon; 1: a single tick."
    ]
    mechanism: Annotated[
        Mechanism,
        Word(get_args(Mechanism)),
        "By whose rule that is kept; of wasserstein and group, the release is the only one that there ever is.",
    ]
    noise: Annotated[
        Noise,
        Word(get_args(Noise)),
        "Who adds it: the gateway to counts of symbols (discrete-laplace), devices to "
        "windows that they counted (device-windows), or each to a part (mixed).",
    ]
    scale: Annotated[
        str,
        Text(1, 39, "^[1-9][0-9]{0,18}(/[1-9][0-9]{0,18})?$"),
        "Of the noise, the largest: an integer, 20, or a fraction in lowest terms, 7/3.",
    ]
    charge: Annotated[
        float,
        Number("[0, inf)"),
        "What this adds to the loss of each tick, in nats; the most over its devices. 0 of "
        "windows, which the devices have released; the whole of epsilon where the mechanism does not compose.",
    ]
    entry: Annotated[int, Integer(1, 2**62), "Number of its entry in the gateway's ledger."]
    noisy: Annotated[bool, Constant(True), "Never the plain count."] = field(default=True, init=False)
    useful: Annotated[bool, Flag(), "Whether the plans of all its devices found such shares worth knowing."]
    helper: Annotated[
        str,
        Text(0, 35, "^(([0-9]{5} ){5}[0-9]{5})?$"),
        "Of a sum of homes the digits of the helper's key: epsilon holds if the helper keeps its word and `honest` of "
        "these homes are real and honest; otherwise a home's exact count may be known. Else empty.",
    ]
    honest: Annotated[int, Integer(0, _MOST_DEVICES), "Of a sum of homes, how many that are; else 0."]

    @property
    def condition(self) -> str:
        """Sentence without which the epsilon of a sum of homes is not said; empty of other releases."""
        return sum_condition(self.name, self.helper, self.honest) if self.honest else ""

    def labels(self) -> Sequence[str]:
        """The states, of a histogram."""
        return self.states if self.asked.each else ()

    @classmethod
    def read_labels(cls, found: Mapping[str, Any], fields: Fields) -> Sequence[str]:
        """The same."""
        return found["states"] if QUERIES[found["query"]].each else ()

    def _consistent(self) -> None:
        integer(self.length, 1, MAX_TICK - self.first + 1, "length")
        integer(self.observed, 0, self.length * self.devices, "observed")
        count = len(self.asked.groups(self.states))
        for name in ("values", "standard_errors"):
            length(getattr(self, name), count, count, name)
        _check_intervals(self.values, self.low, self.high)
        if str(Fraction(self.scale)) != self.scale:
            raise FrameError(f"scale {self.scale} is not in lowest terms", Reason.OUT_OF_RANGE)
        if unix_us(self.since) >= unix_us(self.time):
            raise FrameError("since is not before time", Reason.OUT_OF_RANGE)
        if self.unit != self.asked.unit:
            raise FrameError(f"unit is not {self.asked.unit}", Reason.OUT_OF_RANGE)

    @property
    def asked(self) -> Query:
        """Query of the window."""
        return QUERIES[self.query]

    @property
    def last(self) -> int:
        """Last tick of the window."""
        return self.first + self.length - 1


MAX_NAMES = 8
_COUNT = Integer(0, 2**53)


class AlarmCode(StrEnum):
    """Alarm for an operator; docs/protocol.md says what each code means."""

    CONFLICT = "conflict"
    STOPPED = "stopped"
    UNKNOWN_DEVICE = "unknown-device"
    POLICY_REFUSED = "policy-refused"
    FUTURE = "future"
    MALFORMED = "malformed"
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
    CLOCK = "clock"
    SUBSCRIPTIONS = "subscriptions"


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
    """State of a gateway."""

    MOST: ClassVar[int] = 38 << 10

    format: Annotated[str, Constant(FORMAT_NAME)] = field(default=FORMAT_NAME, init=False)
    online: Annotated[bool, Flag(), "False is the last will: nothing else is known then."]
    time: Annotated[int, _COUNT, "Of this message, in Unix seconds."] = 0
    since: Annotated[int, _COUNT, "When the gateway started, in Unix seconds."] = 0
    devices: Annotated[int, _COUNT, "Devices that have policies."] = 0
    heard: Annotated[int, _COUNT, "Of them, those that have sent a frame since the start."] = 0
    frames: Annotated[int, _COUNT, "Frames that were stored since the start."] = 0
    refused: Annotated[int, _COUNT, "Messages that could not be used since the start."] = 0
    alarms: Annotated[
        tuple[HealthAlarm, ...], Objects(HealthAlarm, len(AlarmCode)), "Of each code at most one, in their order."
    ] = ()

    def _consistent(self) -> None:
        codes = [alarm.code for alarm in self.alarms]
        if codes != sorted(set(codes), key=list(AlarmCode).index):
            raise FrameError("alarms are not in their order, or one is there twice", Reason.OUT_OF_RANGE)

    def flat(self) -> dict[str, Any]:
        """The fields; of a gateway that has gone, nothing but that."""
        found = JsonMessage.flat(self)
        return found if self.online else {name: found[name] for name in ("format", "online")}
