"""Batch releases: a noisy statistic of a window, with everything that is needed to judge it, as flat JSON.

All floats are 64-bit, and written so that they come back: an epsilon or a charge must not be rounded by being sent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any, Literal, get_args

from fugu.contract._json import Fields, encode, finite, labels, numbered, truth
from fugu.contract._wire import integer, kind, length
from fugu.contract.errors import FrameLengthError, FrameRangeError, FrameTypeError
from fugu.contract.frames import MAX_TICK
from fugu.contract.instants import unix_us
from fugu.contract.mechanisms import ADVERSARIES, Mechanism
from fugu.contract.queries import QUERIES, Each, Query

__all__ = [
    "MAX_RELEASE_BYTES",
    "Noise",
    "QueryKind",
    "ReleaseFrame",
    "decode_release",
    "encode_release",
    "release_fields",
    "release_unit",
]

MAX_RELEASE_BYTES = 1 << 20
QueryKind = Literal["count", Each, "frequency", "dwell"]
Noise = Literal["discrete-laplace", "device-windows", "mixed"]
_NAME = re.compile("[A-Za-z0-9_-]{1,64}")
_SCALE = re.compile("[1-9][0-9]{0,18}(/[1-9][0-9]{0,18})?")
_MOST_DEVICES = 2**32 - 1
_MOST_STATES = 255
_PLAIN = (
    *("name", "stream", "audience", "devices", "first", "length", "observed"),
    *("adversary", "mechanism", "noise", "scale", "entry", "useful", "noisy"),
)
_NUMBERS = {"value": "values", "low": "low", "high": "high", "standard_error": "standard_errors"}


@dataclass(frozen=True, slots=True)
class ReleaseFrame:
    """A statistic of a window of one or many devices, with noise.

    Attributes:
        name: of the release, and the last part of its topic.
        stream: the stream that was counted.
        audience: whom the guarantee is for.
        query: "count" of ticks in the states, their relative "frequency", the mean "dwell" time in them, in ticks, or a
            a histogram with a value for each state.
        states: labels of the states that were asked for.
        devices: how many devices were counted together.
        first: first tick of the window, by the wall clock.
        length: its number of ticks.
        time: end of the window.
        since: its beginning.
        observed: ticks that had a symbol, over all devices.
        values: unbiased estimates; counts may be below zero.
        standard_errors: of the values, randomised response and added noise together.
        low, high: confidence interval of each value.
        confidence: of the intervals, such as 0.95.
        epsilon: the audience's guarantee, in nats, over this release and all others.
        adversary: whom that guarantee holds against.
        mechanism: by which rule the noise keeps that guarantee, as in `fugu.contract.mechanisms`.
        noise: who added it: the gateway to counts of symbols ("discrete-laplace"), devices to windows that they counted
            ("device-windows"), or each to a part ("mixed").
        scale: of the noise, the largest: an integer, "20", or a fraction in lowest terms, "7/3".
        charge: what the release adds to the loss of each tick, in nats; the most over its devices; 0 of windows, which
            the devices have released anyway.
        entry: number of the release's entry in the gateway's ledger.
        useful: whether the plans of all its devices found such shares worth knowing.
        noisy: always true: what is released is never the plain count.
    """

    name: str
    stream: str
    audience: str
    query: QueryKind
    states: tuple[str, ...]
    devices: int
    first: int
    length: int
    observed: int
    values: tuple[float, ...]
    standard_errors: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    confidence: float
    epsilon: float
    adversary: str
    mechanism: Mechanism
    noise: Noise
    scale: str
    charge: float
    entry: int
    time: datetime
    since: datetime
    useful: bool
    noisy: bool = True

    def __post_init__(self) -> None:
        """Refuse values that no frame can hold."""
        for name, value in (("name", self.name), ("stream", self.stream), ("audience", self.audience)):
            _match(value, _NAME, name)
        _word(self.query, get_args(QueryKind), "query")
        _word(self.adversary, ADVERSARIES, "adversary")
        _word(self.mechanism, get_args(Mechanism), "mechanism")
        _word(self.noise, get_args(Noise), "noise")
        labels(self.states, _MOST_STATES)
        integer(self.devices, 1, _MOST_DEVICES, "devices")
        integer(self.first, 0, MAX_TICK, "first")
        integer(self.length, 1, MAX_TICK - self.first + 1, "length")
        integer(self.observed, 0, self.length * self.devices, "observed")
        integer(self.entry, 1, 2**62, "entry")
        self._check_numbers()
        _match(self.scale, _SCALE, "scale")
        if str(Fraction(self.scale)) != self.scale:
            raise FrameRangeError(f"scale {self.scale} is not in lowest terms")
        if unix_us(self.since) >= unix_us(self.time):
            raise FrameRangeError("since is not before time")
        truth(self.useful, "useful")
        if not truth(self.noisy, "noisy"):
            raise FrameRangeError("a release without noise is none")

    def _check_numbers(self) -> None:
        count = len(self.asked.groups(self.states))
        for name in ("values", "standard_errors", "low", "high"):
            numbers = getattr(self, name)
            length(numbers, count, count, name)
            for number in numbers:
                finite(number, name)
        if min(self.standard_errors) < 0.0:
            raise FrameRangeError("a standard error is negative")
        if not all(low <= v <= high for low, v, high in zip(self.low, self.values, self.high, strict=True)):
            raise FrameRangeError("a value is not inside its interval")
        for name in ("confidence", "epsilon", "charge"):
            finite(getattr(self, name), name)
        if not 0.0 < self.confidence < 1.0:
            raise FrameRangeError(f"confidence {self.confidence} is not inside (0, 1)")
        if self.epsilon <= 0.0 or self.charge < 0.0:
            raise FrameRangeError(f"epsilon {self.epsilon} or charge {self.charge} is negative")

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


def release_fields(frame: ReleaseFrame) -> dict[str, Any]:
    """The fields of a message in their order; times are not text yet."""
    names = ("time", "since", "name", "stream", "audience", "query")
    endings = frame.states if frame.asked.each else ()
    columns = [zip(numbered(field, endings), getattr(frame, name), strict=True) for field, name in _NUMBERS.items()]
    counted = ("devices", "first", "length", "observed")
    judged = ("confidence", "epsilon", "adversary", "mechanism", "noise", "scale", "charge", "entry", "noisy", "useful")
    return {
        **{name: getattr(frame, name) for name in names},
        "states": list(frame.states),
        **{name: getattr(frame, name) for name in counted},
        **{field: value for row in zip(*columns, strict=True) for field, value in row},
        "unit": release_unit(frame.query),
        **{name: getattr(frame, name) for name in judged},
    }


def encode_release(frame: ReleaseFrame) -> bytes:
    """Bytes of a release."""
    return encode(release_fields(frame))


def decode_release(payload: bytes) -> ReleaseFrame:
    """Parse a release.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    fields = Fields(payload, MAX_RELEASE_BYTES)
    query, states = fields.take("query"), fields.array("states")
    _word(query, get_args(QueryKind), "query")
    labels(states, _MOST_STATES)
    endings: Sequence[str] = states if QUERIES[query].each else ()
    found: dict[str, Any] = {name: fields.numbers(field, endings) for field, name in _NUMBERS.items()}
    found |= {name: fields.time(name) for name in ("time", "since")}
    found |= {name: fields.number(name) for name in ("confidence", "epsilon", "charge")}
    found |= {name: fields.take(name) for name in _PLAIN}
    unit = fields.take("unit")
    frame = ReleaseFrame(query=query, states=states, **found)
    if unit != release_unit(frame.query):
        raise FrameRangeError(f"unit is not {release_unit(frame.query)}")
    fields.done()
    return frame


def _match(value: Any, pattern: re.Pattern[str], name: str) -> None:
    if not isinstance(value, str):
        raise FrameTypeError(f"{name} is {kind(value)}, not a string")
    if not pattern.fullmatch(value):
        raise (FrameLengthError if not 1 <= len(value) <= 64 else FrameRangeError)(f"{name} is not of its form")


def _word(value: Any, allowed: tuple[str, ...], name: str) -> None:
    if not isinstance(value, str):
        raise FrameTypeError(f"{name} is {kind(value)}, not a string")
    if value not in allowed:
        raise FrameRangeError(f"{name} is none of {', '.join(allowed)}")
