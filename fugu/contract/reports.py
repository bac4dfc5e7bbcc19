"""Reports of the gateway on streams, releases and itself, for people and their tools: flat JSON.

Estimates follow from what devices have published, so they cost no privacy. All floats are 64-bit and are written
exactly: an epsilon or a charge must not be rounded by being sent. `health` is retained and holds nothing of a reading;
names that are left out, to keep the message small, are counted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr
from pydantic.dataclasses import dataclass

from fugu.contract._document import FORMAT_NAME
from fugu.contract.errors import length_error, range_error
from fugu.contract.frames import MAX_FRAME_TICKS, MAX_TICK, MAX_WINDOW_TICKS, WINDOW_NAME_PATTERN, WindowFrame
from fugu.contract.json_message import DISTINCT, PRINTABLE, JsonMessage, Label, Numbers, Time, read_object
from fugu.contract.losses import Adversary
from fugu.contract.measure_frames import MAX_MEASURE_TICKS
from fugu.contract.message import check_integer, check_length
from fugu.contract.queries import QUERIES, Query, QueryKind, Unit
from fugu.contract.sentences import sum_condition, unix_us
from fugu.contract.topics import NAME_PATTERN
from fugu.contract.windows import Mechanism

if TYPE_CHECKING:
    from fugu.contract.descriptions import DescribedPromise
    from fugu.contract.guarantee import Guarantee
    from fugu.contract.windows import QueryDocument

__all__ = [
    "CONFIDENCE",
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


def _check_intervals(values: Sequence[float], lows: Sequence[float], highs: Sequence[float]) -> None:
    """Refuse values that do not each lie in their own interval."""
    if not all(lowest <= value <= highest for lowest, value, highest in zip(lows, values, highs, strict=True)):
        raise range_error("a value is not inside its interval")


CONFIDENCE = 0.95
"""The confidence of the intervals of estimates and counts."""
_SLACK = 1e-3
_Probability = Annotated[StrictFloat, Field(ge=0, le=1 + _SLACK)]
_Tick = Annotated[StrictInt, Field(ge=0, le=MAX_TICK)]
_Positive = Annotated[StrictFloat, Field(gt=0)]
_Unit = Annotated[StrictStr, Field(min_length=1, max_length=32), PRINTABLE]
_Width = Annotated[StrictFloat, Field(ge=0)]
_TickTime = Annotated[Time, "Of the tick."]
_TickNumber = Annotated[_Tick, "Its number."]
_Latitude = Annotated[StrictFloat, Field(ge=-90, le=90), "Degrees."]
_Longitude = Annotated[StrictFloat, Field(ge=-180, le=180), "Degrees."]
_Mean = Annotated[Numbers, "Posterior mean."]
_High = Annotated[Numbers, "Its interval's end."]
_Confidence = Annotated[StrictFloat, Field(gt=0, lt=1), "Of the interval."]
_States = Annotated[
    tuple[Label, ...], Field(min_length=1, max_length=255, json_schema_extra={"uniqueItems": True}), DISTINCT
]
_Blocks = Annotated[tuple[Label, ...], Field(max_length=255, json_schema_extra={"uniqueItems": True}), DISTINCT]
Epsilon = Annotated[
    _Positive,
    "What the policy promises, over all that the stream tells, in nats; the description says of which stretch.",
]
EpsilonOrNone = Annotated[_Positive | None, "What the policy promises of a tick, in nats; null: there is no bound."]
Against = Annotated[Adversary, "Against whom."]
Useful = Annotated[
    StrictBool, "Whether the plan found answers like this one twice as good as guessing; false if nobody compared."
]
Protection = Annotated[
    StrictInt,
    Field(ge=0, le=2**16),
    "The least number of possible states that any one was hidden among, itself included; 1: one was "
    "exposed, 0: nothing was released.",
]
_INTERVALS = {"values": "value", "low": "low", "high": "high"}
_SMOOTHED = (
    "Ticks whose `lag` later points are complete with this message; each is told once, unless a late frame changes it."
)


@dataclass(frozen=True)
class StateEstimate(JsonMessage):
    """The states of consecutive ticks, by all that the gateway knows."""

    constants = ("unit",)
    columns: ClassVar[Mapping[str, str]] = {"shares": "share"}

    time: Annotated[Time, "Of the newest tick."]
    since: Annotated[Time, "Of the first tick."]
    tick: Annotated[_Tick, "Number of the newest tick."]
    ticks: Annotated[StrictInt, Field(ge=1, le=MAX_TICK), "The number of ticks."]
    state: Annotated[Label, "The most likely state at the newest tick."]
    probability: Annotated[_Probability, "Of this state."]
    shares: Annotated[
        dict[Label, _Probability],
        Field(min_length=1, max_length=255),
        "The mean probability of each state over the ticks.",
    ]
    unit: Literal[None] = field(default=None, kw_only=True)
    epsilon: Epsilon
    adversary: Against
    useful: Useful

    def __post_init__(self) -> None:
        _check_times(self.since, self.time)
        if self.state not in self.shares:
            raise range_error("state is none of those that have a share")
        if abs(sum(self.shares.values()) - 1.0) > _SLACK:
            raise range_error(f"shares sum to {sum(self.shares.values())}")


_LAG = Annotated[StrictInt, Field(ge=1, le=MAX_FRAME_TICKS), "The number of later ticks whose points were used."]


@dataclass(frozen=True)
class SmoothedPlace(JsonMessage):
    """The place of a tick, estimated with later points as well."""

    time: _TickTime
    tick: _TickNumber
    lag: _LAG
    latitude: _Latitude
    longitude: _Longitude
    deviation: Annotated[_Width, "Metres: root mean square distance of the true cell."]


@dataclass(frozen=True)
class PlaceEstimate(JsonMessage):
    """The place of a tick, estimated when its point came."""

    time: _TickTime
    tick: _TickNumber
    latitude: _Latitude
    longitude: _Longitude
    accuracy: Annotated[_Width, "Metres: the true place is this near with posterior probability 0.95."]
    semi_major: Annotated[_Width, "Metres: half-axis of an ellipse about the place that holds the true one as likely."]
    semi_minor: Annotated[_Width, "Metres: its other half-axis."]
    orientation: Annotated[StrictFloat, Field(ge=0, lt=180), "Of the longer one, degrees clockwise from north."]
    protection: Protection
    epsilon: EpsilonOrNone
    adversary: Against
    useful: Useful
    smoothed: Annotated[tuple[SmoothedPlace, ...], Field(max_length=MAX_MEASURE_TICKS), _SMOOTHED] = ()

    def __post_init__(self) -> None:
        if self.semi_minor > self.semi_major:
            raise range_error("semi_minor is above semi_major")


@dataclass(frozen=True)
class SmoothedValue(JsonMessage):
    """The measurement of a tick, estimated with later points as well."""

    columns: ClassVar[Mapping[str, str]] = {"values": "value", "deviations": "deviation"}

    time: _TickTime
    tick: _TickNumber
    lag: _LAG
    values: _Mean
    deviations: Annotated[tuple[_Width, ...], "Posterior standard deviation."]

    def __post_init__(self) -> None:
        check_length(self.values, 1, 3, "values")
        check_length(self.deviations, len(self.values), len(self.values), "deviations")


@dataclass(frozen=True)
class ValueEstimate(JsonMessage):
    """The measurement of a tick, 1 to 3 numbers, estimated when its point came."""

    columns = _INTERVALS

    time: _TickTime
    tick: _TickNumber
    values: _Mean
    low: Annotated[Numbers, "Its interval of posterior probability 0.95."]
    high: _High
    unit: Annotated[_Unit | None, "Of the values."]
    protection: Protection
    epsilon: EpsilonOrNone
    adversary: Against
    useful: Useful
    smoothed: Annotated[tuple[SmoothedValue, ...], Field(max_length=MAX_MEASURE_TICKS), _SMOOTHED] = ()

    def __post_init__(self) -> None:
        check_length(self.values, 1, 3, "values")
        _check_intervals(self.values, self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class WindowCount(JsonMessage):
    """The noisy counts of a window, counted by a device."""

    constants = ("unit",)
    columns = _INTERVALS

    time: Annotated[Time, "End of the window."]
    since: Annotated[Time, "Its beginning."]
    window: Annotated[
        StrictStr, Field(min_length=1, max_length=32, pattern=WINDOW_NAME_PATTERN), "Its name in the policy."
    ]
    states: Annotated[_States, "Labels of the states that were counted; of a histogram, all."]
    blocks: Annotated[_Blocks, "Blocks of the local day, which have a number each."] = ()
    values: Annotated[Numbers, "The counts with noise, which may be below zero."]
    low: Annotated[Numbers, "The interval that holds the true count."]
    high: _High
    confidence: _Confidence
    observed: Annotated[
        StrictInt,
        Field(ge=1, le=MAX_WINDOW_TICKS),
        "Ticks on which the device was running; the others are in no count.",
    ]
    unit: Annotated[Literal["ticks"], "Of the values."] = "ticks"
    epsilon: Epsilon
    adversary: Against
    useful: Annotated[
        StrictBool,
        "Whether the plan found answers like this one twice as good as guessing. False if nobody compared, and if the "
        "device was running for less than half of the window.",
    ]

    @classmethod
    def of(
        cls,
        frame: WindowFrame,
        question: "QueryDocument",
        states: tuple[str, ...],
        noise_bound: int,
        time_of: Callable[[int, int], datetime],
        promise: "Guarantee | DescribedPromise",
        useful_for: str | None,
    ) -> Self:
        """Make the report of a window frame.

        The noise of a count is in -noise_bound..noise_bound with probability `CONFIDENCE`. `time_of(tick, shift)` is
        the time of a tick, with numbers `shift` ticks ahead of the wall clock.
        """
        return cls(
            time=time_of(frame.last + 1, frame.shift),
            since=time_of(frame.first, frame.shift),
            window=frame.window,
            states=states,
            blocks=() if (blocks := question.query.blocks) is None else blocks.labels,
            values=tuple(float(count) for count in frame.counts),
            low=tuple(float(count - noise_bound) for count in frame.counts),
            high=tuple(float(count + noise_bound) for count in frame.counts),
            confidence=CONFIDENCE,
            observed=frame.observed,
            epsilon=promise.epsilon or 0.0,
            adversary=promise.adversary,
            useful=useful_for == "share" and 2 * frame.observed >= frame.length,
        )

    @classmethod
    def labels_of(cls, fields: Mapping[str, Any], number_count: int) -> Any:
        """Return the blocks, the states if each has a number, or nothing for a single number."""
        if blocks := fields.get("blocks"):
            return blocks
        labels = () if number_count == 1 else fields.get("states")
        if isinstance(labels, list) and len(labels) == 1:
            raise length_error("one number is called value, without the name of a state")
        return labels

    def __post_init__(self) -> None:
        _check_times(self.since, self.time)
        if self.blocks and len(self.values) != len(self.blocks):
            raise length_error(f"{len(self.values)} values of {len(self.blocks)} blocks")
        if not self.blocks and len(self.values) not in (1, len(self.states)):
            raise length_error(f"{len(self.values)} values beside {len(self.states)} states")
        _check_intervals(self.values, self.low, self.high)


Estimate = StateEstimate | PlaceEstimate | ValueEstimate


def decode_estimate(payload: bytes) -> Estimate:
    """Parse an estimate of one of the three kinds; the FrameError says what is wrong."""
    fields = read_object(payload, JsonMessage.MAX_BYTES)
    if "state" in fields:
        return StateEstimate.read(fields)
    return (PlaceEstimate if "latitude" in fields else ValueEstimate).read(fields)


def _check_times(since: datetime, time: datetime) -> None:
    if unix_us(since) > unix_us(time):
        raise range_error("since is after time")


Noise = Literal["discrete-laplace", "device-windows", "mixed"]
_Name = Annotated[StrictStr, Field(min_length=1, max_length=64, pattern=NAME_PATTERN)]
_MAX_DEVICES = 2**32 - 1
_DeviceTicks = Annotated[StrictInt, Field(ge=0, le=(MAX_TICK + 1) * _MAX_DEVICES)]
_Scale = Annotated[StrictStr, Field(min_length=1, max_length=39, pattern="^[1-9][0-9]{0,18}(/[1-9][0-9]{0,18})?$")]


@dataclass(frozen=True, kw_only=True)
class ReleaseFrame(JsonMessage):
    """A statistic of a window of one or many devices, with noise."""

    constants = ("noisy",)
    columns = _INTERVALS | {"standard_errors": "standard_error"}

    time: Annotated[Time, "End of the window."]
    since: Annotated[Time, "Its beginning."]
    name: Annotated[_Name, "Of the release, and the last part of its topic."]
    stream: Annotated[_Name, "The stream that was counted."]
    audience: Annotated[_Name, "Whom the promise is for."]
    query: Annotated[
        QueryKind,
        "What was asked: how many ticks were in the states, a histogram of all states, their relative frequency, or "
        "their mean dwell time in ticks.",
    ]
    states: Annotated[_States, "Labels of the states that were asked for; of a histogram, all."]
    devices: Annotated[StrictInt, Field(ge=1, le=_MAX_DEVICES), "The number of devices that were counted together."]
    first: Annotated[StrictInt, Field(ge=0, le=MAX_TICK), "First tick of the window, by the wall clock."]
    length: Annotated[StrictInt, Field(ge=1, le=MAX_TICK + 1), "Its number of ticks."]
    observed: Annotated[_DeviceTicks, "Ticks that had a symbol or were counted, over all devices."]
    values: Annotated[Numbers, "An unbiased estimate, which may be below zero."]
    low: Annotated[Numbers, "The interval that holds the true value at least as often as `confidence` says."]
    high: _High
    standard_errors: Annotated[tuple[_Width, ...], "Estimate of the error of randomised response and noise together."]
    unit: Annotated[Unit, "Of the values; share for a frequency."]
    confidence: _Confidence
    epsilon: Annotated[
        _Positive,
        "What the audience is promised, over all releases, in nats; the site, by the policies of what is counted.",
    ]
    adversary: Against
    stretch_ticks: Annotated[
        StrictInt, Field(ge=1, le=MAX_TICK), "How many ticks in a row lose no more than epsilon; 1: a single tick."
    ]
    mechanism: Annotated[
        Mechanism,
        "By whose rule that is kept; of wasserstein and group, the release is the only one that there ever is.",
    ]
    noise: Annotated[
        Noise,
        "Who adds it: the gateway to counts of symbols (discrete-laplace), devices to "
        "windows that they counted (device-windows), or each to a part (mixed).",
    ]
    scale: Annotated[_Scale, "Of the noise, the largest: an integer, 20, or a fraction in lowest terms, 7/3."]
    charge: Annotated[
        _Width,
        "What this adds to the loss of each tick, in nats; the most over its devices. 0 of "
        "windows, which the devices have released; the whole of epsilon where the mechanism does not compose.",
    ]
    entry: Annotated[StrictInt, Field(ge=1, le=2**62), "Number of its entry in the gateway's ledger."]
    noisy: Annotated[Literal[True], "Never the plain count."] = field(default=True, kw_only=True)
    useful: Annotated[StrictBool, "Whether the plans of all its devices found such shares worth knowing."]
    helper: Annotated[
        StrictStr,
        Field(max_length=35, pattern="^(([0-9]{5} ){5}[0-9]{5})?$"),
        "Of a sum of homes the digits of the helper's key, else empty. Epsilon holds if the helper keeps its word and "
        "`honest` of these homes are real and honest. Otherwise a home's exact count may be known.",
    ]
    honest: Annotated[StrictInt, Field(ge=0, le=_MAX_DEVICES), "The number of these homes, for a sum of homes; else 0."]

    @property
    def condition(self) -> str:
        """The condition of the epsilon of a sum of homes, in a sentence; empty for other releases."""
        return sum_condition(self.name, self.helper, self.honest) if self.honest else ""

    @classmethod
    def labels_of(cls, fields: Mapping[str, Any], number_count: int) -> Any:
        """Return the states of a histogram, which has a number for each, or nothing for other queries."""
        query = fields.get("query")
        if not isinstance(query, str) or query not in QUERIES:
            return None
        return fields.get("states") if QUERIES[query].per_state else ()

    def __post_init__(self) -> None:
        check_integer(self.length, 1, MAX_TICK - self.first + 1, "length")
        check_integer(self.observed, 0, self.length * self.devices, "observed")
        value_count = len(self.definition.groups(self.states))
        for name in ("values", "standard_errors"):
            check_length(getattr(self, name), value_count, value_count, name)
        _check_intervals(self.values, self.low, self.high)
        if str(Fraction(self.scale)) != self.scale:
            raise range_error(f"scale {self.scale} is not in lowest terms")
        if unix_us(self.since) >= unix_us(self.time):
            raise range_error("since is not before time")
        if self.unit != self.definition.unit:
            raise range_error(f"unit is not {self.definition.unit}")

    @property
    def definition(self) -> Query:
        """The query of the release."""
        return QUERIES[self.query]

    @property
    def last(self) -> int:
        """The last tick of the window."""
        return self.first + self.length - 1


MAX_NAMES = 8
_Named = Annotated[StrictStr, Field(max_length=200), PRINTABLE]
_Count = Annotated[StrictInt, Field(ge=0, le=2**53)]


class AlarmCode(StrEnum):
    """The code of an alarm; docs/protocol.md says what each code means."""

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


@dataclass(frozen=True)
class HealthAlarm(JsonMessage):
    """An alarm, for all devices that have it."""

    code: Annotated[AlarmCode, "What is wrong."]
    since: Annotated[_Count, "When the oldest alarm of this code began, in Unix seconds."]
    count: Annotated[_Count, "How often it has happened since."]
    names: Annotated[tuple[_Named, ...], Field(max_length=MAX_NAMES), "Of devices, or of other subjects of the code."]
    others: Annotated[_Count, "The number of further names."]
    advice: Annotated[StrictStr, Field(max_length=300), "What to do.", PRINTABLE]


@dataclass(frozen=True)
class Health(JsonMessage):
    """State of a gateway."""

    MAX_BYTES = 38 << 10
    constants = ("format",)

    format: Literal["fugu/2"] = field(default=FORMAT_NAME, kw_only=True)
    online: Annotated[StrictBool, "False is the last will: nothing else is known then."]
    time: Annotated[_Count, "Of this message, in Unix seconds."] = 0
    since: Annotated[_Count, "When the gateway started, in Unix seconds."] = 0
    devices: Annotated[_Count, "Devices that have policies."] = 0
    heard: Annotated[_Count, "Devices that have sent a frame since the start."] = 0
    frames: Annotated[_Count, "Frames that were stored since the start."] = 0
    refused: Annotated[_Count, "Messages that could not be used since the start."] = 0
    alarms: Annotated[
        tuple[HealthAlarm, ...], Field(max_length=len(AlarmCode)), "Of each code at most one, in their order."
    ] = ()

    def __post_init__(self) -> None:
        codes = [alarm.code for alarm in self.alarms]
        if codes != sorted(set(codes), key=list(AlarmCode).index):
            raise range_error("alarms are not in their order, or one is there twice")

    def flat(self) -> dict[str, Any]:
        """Return the fields of the object; of a gateway that has gone, only that it is not online."""
        fields = super().flat()
        return fields if self.online else {name: fields[name] for name in ("format", "online")}
