"""What the gateway says of streams to people and their tools: flat JSON, one message for each frame of a device.

Estimates are of states, of places, or of other measurements; counts are of windows that a device has counted. All of
it follows from what the device has published, so that it costs no privacy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Final

from fugu.contract.errors import FrameLengthError, FrameRangeError
from fugu.contract.frames import MAX_TICK
from fugu.contract.instants import unix_us
from fugu.contract.json_message import (
    Constant,
    Fields,
    JsonMessage,
    Labels,
    Number,
    Numbers,
    OrNone,
    Shares,
    Time,
    check_intervals,
)
from fugu.contract.mechanisms import ADVERSARIES
from fugu.contract.message import Flag, Integer, Text, Word, length
from fugu.contract.window_frames import MAX_WINDOW_TICKS, WINDOW_NAME_PATTERN

__all__ = ["Estimate", "PlaceEstimate", "StateEstimate", "ValueEstimate", "WindowCount", "decode_estimate"]

_SLACK: Final = 1e-3
_PROBABILITY = Number(f"[0, {1.0 + _SLACK}]")
_TICK = Integer(0, MAX_TICK)
_PROTECTION = Integer(0, 2**16)

Epsilon = Annotated[
    float, Number("(0, inf)"), "What the policy promises of a tick, over all that the stream tells, in nats."
]
EpsilonOrNone = Annotated[
    float | None, OrNone(Number("(0, inf)")), "What the policy promises of a tick, in nats; null: there is no bound."
]
Against = Annotated[str, Word(ADVERSARIES), "Against whom."]
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
        Mapping[str, float],
        Shares(_PROBABILITY),
        "Of each state its mean probability over the ticks, by label.",
    ]
    unit: Annotated[None, Constant(None)] = field(default=None, init=False)
    epsilon: Epsilon
    adversary: Against
    useful: Useful

    def _consistent(self) -> None:
        _check_times(self.since, self.time)
        if self.state not in self.shares:
            raise FrameRangeError("state is none of those that have a share")
        if abs(sum(self.shares.values()) - 1.0) > _SLACK:
            raise FrameRangeError(f"shares sum to {sum(self.shares.values())}")


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

    def _consistent(self) -> None:
        if self.semi_minor > self.semi_major:
            raise FrameRangeError("semi_minor is above semi_major")


@dataclass(frozen=True, slots=True)
class ValueEstimate(JsonMessage):
    """A measurement of 1 to 3 numbers at a tick, as far as the gateway knew when it had come."""

    time: Annotated[datetime, Time(), "Of the tick."]
    tick: Annotated[int, _TICK, "Its number."]
    values: Annotated[tuple[float, ...], Numbers("value"), "Posterior mean."]
    low: Annotated[tuple[float, ...], Numbers("low"), "Its interval of posterior probability 0.95."]
    high: Annotated[tuple[float, ...], Numbers("high"), "Its interval's end."]
    unit: Annotated[str | None, OrNone(Text(1, 32)), "Of the values."]
    protection: Protection
    epsilon: EpsilonOrNone
    adversary: Against
    useful: Useful

    def labels(self) -> Sequence[str]:
        """Numbers of its coordinates, if it has several."""
        return [str(axis) for axis in range(len(self.values))] if len(self.values) > 1 else ()

    @classmethod
    def read_labels(cls, found: Mapping[str, Any], fields: Fields) -> Sequence[str]:
        """The same, by the names that are there."""
        return () if "value" in fields else [str(axis) for axis in range(max(2, len(fields.names("value_"))))]

    def _consistent(self) -> None:
        length(self.values, 1, 3, "values")
        check_intervals(self.values, self.low, self.high)


@dataclass(frozen=True, slots=True)
class WindowCount(JsonMessage):
    """The noisy counts of a window that a device has counted."""

    time: Annotated[datetime, Time(), "End of the window."]
    since: Annotated[datetime, Time(), "Its beginning."]
    window: Annotated[str, Text(1, 32, WINDOW_NAME_PATTERN), "Its name in the policy."]
    states: Annotated[tuple[str, ...], Labels(), "Labels of the states that were counted; of a histogram, all."]
    values: Annotated[tuple[float, ...], Numbers("value"), "Ticks in the states, with noise, so below zero at times."]
    low: Annotated[tuple[float, ...], Numbers("low"), "The interval that holds the true count."]
    high: Annotated[tuple[float, ...], Numbers("high"), "Its interval's end."]
    confidence: Annotated[float, Number("(0, 1)"), "Of the interval."]
    observed: Annotated[
        int, Integer(1, MAX_WINDOW_TICKS), "Ticks on which the device was running; the others are in no count."
    ]
    unit: Annotated[str, Constant("ticks"), "Of the values."] = field(default="ticks", init=False)
    epsilon: Epsilon
    adversary: Against
    useful: Useful

    def labels(self) -> Sequence[str]:
        """The states, if each has a number."""
        return self.states if len(self.values) > 1 else ()

    @classmethod
    def read_labels(cls, found: Mapping[str, Any], fields: Fields) -> Sequence[str]:
        """The same, by the names that are there."""
        labels: Sequence[str] = () if "value" in fields else found["states"]
        if len(labels) == 1:
            raise FrameLengthError("one number is called value, without the name of a state")
        return labels

    def _consistent(self) -> None:
        _check_times(self.since, self.time)
        if len(self.values) not in (1, len(self.states)):
            raise FrameLengthError(f"{len(self.values)} values beside {len(self.states)} states")
        check_intervals(self.values, self.low, self.high)


Estimate = StateEstimate | PlaceEstimate | ValueEstimate


def decode_estimate(payload: bytes) -> Estimate:
    """Parse an estimate, of whichever of the three.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    fields = Fields(payload, JsonMessage.MOST)
    if "state" in fields:
        return StateEstimate.read(fields)
    return (PlaceEstimate if "latitude" in fields else ValueEstimate).read(fields)


def _check_times(since: datetime, time: datetime) -> None:
    if unix_us(since) > unix_us(time):
        raise FrameRangeError("since is after time")
