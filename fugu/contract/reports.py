"""What the gateway says of streams to people and their tools: flat JSON, one message for each frame of a device.

Estimates are of states, of places, or of other measurements; counts are of windows that a device has counted. All of
it follows from what the device has published, so that it costs no privacy. docs/protocol.md has the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fugu.contract._json import Fields, encode, finite, labels, numbered, truth
from fugu.contract._wire import integer, length, text
from fugu.contract.errors import FrameLengthError, FrameRangeError
from fugu.contract.frames import MAX_TICK, MAX_WINDOW_NAME
from fugu.contract.instants import unix_us
from fugu.contract.mechanisms import ADVERSARIES
from fugu.contract.window_frames import MAX_WINDOW_TICKS

__all__ = [
    "MAX_REPORT_BYTES",
    "Estimate",
    "PlaceEstimate",
    "StateEstimate",
    "ValueEstimate",
    "WindowCount",
    "decode_count",
    "decode_estimate",
    "encode_report",
    "report_fields",
]

MAX_REPORT_BYTES = 1 << 20
_MOST_STATES = 255
_SLACK = 1e-3
_UNIT = "ticks"
_PLACE = ("latitude", "longitude", "accuracy", "semi_major", "semi_minor", "orientation")


@dataclass(frozen=True, slots=True)
class StateEstimate:
    """The states of consecutive ticks, as far as the gateway knows by now.

    Attributes:
        time: of the newest tick.
        since: of the first one.
        tick: number of the newest tick.
        ticks: how many there are.
        state: the most likely one at the newest tick.
        probability: that it is this one.
        shares: of each state its mean probability over the ticks; what share of them it had, as far as is known.
        epsilon, adversary: what the stream's policy promises of a tick.
        useful: whether the plan found such states worth knowing.
    """

    time: datetime
    since: datetime
    tick: int
    ticks: int
    state: str
    probability: float
    shares: Mapping[str, float]
    epsilon: float
    adversary: str
    useful: bool

    def __post_init__(self) -> None:
        """Refuse values that no message can hold."""
        _check_times(self.since, self.time)
        integer(self.tick, 0, MAX_TICK, "tick")
        integer(self.ticks, 1, MAX_TICK, "ticks")
        labels(tuple(self.shares), _MOST_STATES)
        text(self.state, 1, 64, "state")
        if self.state not in self.shares:
            raise FrameRangeError("state is none of those that have a share")
        for share in (self.probability, *self.shares.values()):
            if not 0.0 <= finite(share, "a probability") <= 1.0 + _SLACK:
                raise FrameRangeError(f"{share} is not a probability")
        if abs(sum(self.shares.values()) - 1.0) > _SLACK:
            raise FrameRangeError(f"shares sum to {sum(self.shares.values())}")
        _check_promise(self)


@dataclass(frozen=True, slots=True)
class PlaceEstimate:
    """Where something was at a tick, as far as the gateway knew when it had come.

    Attributes:
        time, tick: of the tick.
        latitude, longitude: in degrees.
        accuracy: metres; the true place is this near with posterior probability .95.
        semi_major, semi_minor: metres; half-axes of an ellipse about this place that holds the true one with the same
            probability, or more.
        orientation: of its longer axis, in degrees clockwise from north.
        protection: the least number of possible states that any one was hidden among, itself included; 1 says that some
            state is exposed, 0 that nothing was released.
        epsilon, adversary: what the whole stream tells of a tick; no epsilon if nothing is promised of that.
        useful: whether the plan found such places worth knowing.
    """

    time: datetime
    tick: int
    latitude: float
    longitude: float
    accuracy: float
    semi_major: float
    semi_minor: float
    orientation: float
    protection: int
    epsilon: float | None
    adversary: str
    useful: bool

    def __post_init__(self) -> None:
        """Refuse values that no message can hold."""
        _check_measured(self)
        for name, most in (("latitude", 90.0), ("longitude", 180.0)):
            if not abs(finite(getattr(self, name), name)) <= most:
                raise FrameRangeError(f"{name} {getattr(self, name)} is not in -{most:g}..{most:g}")
        for name in ("accuracy", "semi_major", "semi_minor"):
            if finite(getattr(self, name), name) < 0.0:
                raise FrameRangeError(f"{name} is negative")
        if self.semi_minor > self.semi_major:
            raise FrameRangeError("semi_minor is above semi_major")
        if not 0.0 <= finite(self.orientation, "orientation") < 180.0:
            raise FrameRangeError(f"orientation {self.orientation} is not in [0, 180)")


@dataclass(frozen=True, slots=True)
class ValueEstimate:
    """A measurement of 1 to 3 numbers at a tick, as far as the gateway knew when it had come.

    Attributes:
        time, tick: of the tick.
        values: posterior means.
        low, high: of each, the interval that holds it with posterior probability .95.
        unit: of all of them; none if it has none.
        protection, epsilon, adversary, useful: as for places.
    """

    time: datetime
    tick: int
    values: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    unit: str | None
    protection: int
    epsilon: float | None
    adversary: str
    useful: bool

    def __post_init__(self) -> None:
        """Refuse values that no message can hold."""
        _check_measured(self)
        length(self.values, 1, 3, "values")
        _check_intervals(self.values, self.low, self.high)
        if self.unit is not None:
            text(self.unit, 1, 32, "unit")


@dataclass(frozen=True, slots=True)
class WindowCount:
    """The noisy counts of a window that a device has counted.

    Attributes:
        time: end of the window.
        since: its beginning.
        window: its name in the policy.
        states: that were counted together; of a histogram, all, each by itself.
        values: ticks in them; one number, or one for each state of a histogram; with noise, so below zero at times.
        low, high: of each, the interval that holds the true count with probability `confidence`.
        observed: ticks on which the device was running; what the others were in is not counted.
        epsilon, adversary: what the stream's policy promises of a tick.
        useful: whether the plan found such counts worth knowing.
    """

    time: datetime
    since: datetime
    window: str
    states: tuple[str, ...]
    values: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    confidence: float
    observed: int
    epsilon: float
    adversary: str
    useful: bool

    def __post_init__(self) -> None:
        """Refuse values that no message can hold."""
        _check_times(self.since, self.time)
        text(self.window, 1, MAX_WINDOW_NAME, "window")
        labels(self.states, _MOST_STATES)
        if len(self.values) not in (1, len(self.states)):
            raise FrameLengthError(f"{len(self.values)} values beside {len(self.states)} states")
        _check_intervals(self.values, self.low, self.high)
        if not 0.0 < finite(self.confidence, "confidence") < 1.0:
            raise FrameRangeError(f"confidence {self.confidence} is not inside (0, 1)")
        integer(self.observed, 1, MAX_WINDOW_TICKS, "observed")
        _check_promise(self)


Estimate = StateEstimate | PlaceEstimate | ValueEstimate


def report_fields(report: Estimate | WindowCount) -> dict[str, Any]:
    """The fields of a message in their order; times are not text yet."""
    promise = {"epsilon": report.epsilon, "adversary": report.adversary, "useful": report.useful}
    if isinstance(report, StateEstimate):
        head = {name: getattr(report, name) for name in ("time", "since", "tick", "ticks", "state", "probability")}
        shares = {f"share_{label}": share for label, share in report.shares.items()}
        return {**head, **shares, "unit": None, **promise}
    if isinstance(report, PlaceEstimate):
        names = ("time", "tick", *_PLACE, "protection")
        return {**{name: getattr(report, name) for name in names}, **promise}
    if isinstance(report, ValueEstimate):
        axes = [str(axis) for axis in range(len(report.values))] if len(report.values) > 1 else []
        place = {"time": report.time, "tick": report.tick}
        return {**place, **_numbers(report, axes), "unit": report.unit, "protection": report.protection, **promise}
    head = {"time": report.time, "since": report.since, "window": report.window, "states": list(report.states)}
    numbers = _numbers(report, report.states if len(report.values) > 1 else ())
    tail = {"confidence": report.confidence, "observed": report.observed, "unit": _UNIT}
    return {**head, **numbers, **tail, **promise}


def encode_report(report: Estimate | WindowCount) -> bytes:
    """Bytes of a message."""
    return encode(report_fields(report))


def decode_estimate(payload: bytes) -> Estimate:
    """Parse an estimate, of whichever of the three.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    fields = Fields(payload, MAX_REPORT_BYTES)
    if "state" in fields:
        return _states(fields)
    time, tick = fields.time("time"), fields.take("tick")
    found: Estimate
    if "latitude" in fields:
        place = (*_three(fields, _PLACE[:3]), *_three(fields, _PLACE[3:]))
        found = PlaceEstimate(time, tick, *place, fields.take("protection"), *_measured_promise(fields))
    else:
        axes = [] if "value" in fields else [str(axis) for axis in range(max(2, len(fields.names("value_"))))]
        numbers = (fields.numbers("value", axes), fields.numbers("low", axes), fields.numbers("high", axes))
        unit, protection = fields.take("unit"), fields.take("protection")
        found = ValueEstimate(time, tick, *numbers, unit, protection, *_measured_promise(fields))
    fields.done()
    return found


def decode_count(payload: bytes) -> WindowCount:
    """Parse the counts of a window.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    fields = Fields(payload, MAX_REPORT_BYTES)
    time, since, window, states = (
        fields.time("time"),
        fields.time("since"),
        fields.take("window"),
        fields.array("states"),
    )
    labels(states, _MOST_STATES)
    endings = () if "value" in fields else states
    if len(endings) == 1:
        raise FrameLengthError("one number is called value, without the name of a state")
    values, low, high = (fields.numbers(name, endings) for name in ("value", "low", "high"))
    confidence, observed = fields.number("confidence"), fields.take("observed")
    check_unit(fields.take("unit"), _UNIT)
    promise = _promise(fields)
    found = WindowCount(time, since, window, states, values, low, high, confidence, observed, *promise)
    fields.done()
    return found


def check_unit(found: object, unit: str) -> None:
    """Refuse another unit than the one that there can be."""
    text(found, 1, 32, "unit")
    if found != unit:
        raise FrameRangeError(f"unit is not {unit}")


def _three(fields: Fields, names: tuple[str, ...]) -> tuple[float, float, float]:
    first, second, third = (fields.number(name) for name in names)
    return first, second, third


def _states(fields: Fields) -> StateEstimate:
    head = (fields.time("time"), fields.time("since"), fields.take("tick"), fields.take("ticks"), fields.take("state"))
    probability = fields.number("probability")
    states = fields.names("share_")
    length(tuple(states), 1, _MOST_STATES, "states")
    shares = {state: fields.number(f"share_{state}") for state in states}
    fields.none("unit")
    found = StateEstimate(*head, probability, shares, *_promise(fields))
    fields.done()
    return found


def _numbers(report: ValueEstimate | WindowCount, endings: Any) -> dict[str, float]:
    columns = (("value", report.values), ("low", report.low), ("high", report.high))
    named = {name: dict(zip(numbered(name, endings), values, strict=True)) for name, values in columns}
    rows = zip(*(found.items() for found in named.values()), strict=True)
    return {name: value for row in rows for name, value in row}


def _promise(fields: Fields) -> tuple[float, Any, Any]:
    return fields.number("epsilon"), fields.take("adversary"), fields.take("useful")


def _measured_promise(fields: Fields) -> tuple[float | None, Any, Any]:
    return fields.number_or_none("epsilon"), fields.take("adversary"), fields.take("useful")


def _check_times(since: datetime, time: datetime) -> None:
    if unix_us(since) > unix_us(time):
        raise FrameRangeError("since is after time")


def _check_measured(report: PlaceEstimate | ValueEstimate) -> None:
    unix_us(report.time)
    integer(report.tick, 0, MAX_TICK, "tick")
    integer(report.protection, 0, 2**16, "protection")
    _check_promise(report, bound=report.epsilon is not None)


def _check_promise(report: Estimate | WindowCount, *, bound: bool = True) -> None:
    if bound and finite(report.epsilon, "epsilon") <= 0.0:
        raise FrameRangeError(f"epsilon {report.epsilon} is not above 0")
    text(report.adversary, 1, 32, "adversary")
    if report.adversary not in ADVERSARIES:
        raise FrameRangeError(f"adversary is none of {', '.join(ADVERSARIES)}")
    truth(report.useful, "useful")


def _check_intervals(values: tuple[float, ...], low: tuple[float, ...], high: tuple[float, ...]) -> None:
    for name, column in (("low", low), ("high", high)):
        length(column, len(values), len(values), name)
    for triple in zip(low, values, high, strict=True):
        for number in triple:
            finite(number, "a number")
        if not triple[0] <= triple[1] <= triple[2]:
            raise FrameRangeError("a value is not inside its interval")
