"""Batch releases: a noisy statistic of a window, with everything that is needed to judge it, as flat JSON.

All floats are 64-bit, and written so that they come back: an epsilon or a charge must not be rounded by being sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args

from fugu.contract.errors import FrameRangeError
from fugu.contract.frames import MAX_TICK
from fugu.contract.instants import unix_us
from fugu.contract.json_message import Constant, Fields, JsonMessage, Labels, Number, Numbers, Time, check_intervals
from fugu.contract.mechanisms import ADVERSARIES, Mechanism
from fugu.contract.message import Flag, Integer, Text, Word, integer, length
from fugu.contract.queries import QUERIES, Each, Query
from fugu.contract.topics import NAME_PATTERN

__all__ = ["Noise", "QueryKind", "ReleaseFrame", "release_unit"]

QueryKind = Literal["count", Each, "frequency", "dwell"]
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
    epsilon: Annotated[float, Number("(0, inf)"), "What the audience is promised, over all releases, in nats."]
    adversary: Annotated[str, Word(ADVERSARIES), "Against whom."]
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

    def labels(self) -> Sequence[str]:
        """The states, of a histogram."""
        return self.states if self.asked.each else ()

    @classmethod
    def read_labels(cls, found: Mapping[str, Any], fields: Fields) -> Sequence[str]:
        """The same."""
        labels: Sequence[str] = found["states"] if QUERIES[found["query"]].each else ()
        return labels

    def _consistent(self) -> None:
        integer(self.length, 1, MAX_TICK - self.first + 1, "length")
        integer(self.observed, 0, self.length * self.devices, "observed")
        count = len(self.asked.groups(self.states))
        for name in ("values", "standard_errors"):
            length(getattr(self, name), count, count, name)
        check_intervals(self.values, self.low, self.high)
        if str(Fraction(self.scale)) != self.scale:
            raise FrameRangeError(f"scale {self.scale} is not in lowest terms")
        if unix_us(self.since) >= unix_us(self.time):
            raise FrameRangeError("since is not before time")
        if self.unit != release_unit(self.query):
            raise FrameRangeError(f"unit is not {release_unit(self.query)}")

    @property
    def asked(self) -> Query:
        """What is asked about the window."""
        return QUERIES[self.query]

    @property
    def last(self) -> int:
        """Last tick of the window."""
        return self.first + self.length - 1


def release_unit(query: QueryKind) -> str:
    """The unit of the answers to a query."""
    return QUERIES[query].unit
