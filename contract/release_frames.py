"""Frames of batch releases, schema 6: a noisy statistic of a window, with everything that is needed to judge it.

All floats are 64-bit: an epsilon or a charge must not be rounded on the way.
"""

from __future__ import annotations

import math
import re
from dataclasses import astuple, dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

import msgpack

from contract._wire import each, fields, identity, integer, kind, length, text
from contract.errors import FrameLengthError, FrameRangeError, FrameTypeError
from contract.frames import MAX_TICK
from contract.mechanisms import Mechanism

__all__ = ["RELEASE", "Noise", "QueryKind", "ReleaseFrame", "decode_release", "encode_release"]

RELEASE = 6
QueryKind = Literal["count", "histogram", "frequency", "dwell"]
Noise = Literal["discrete-laplace", "device-windows", "mixed"]
_ADVERSARIES = ("ignorant", "informed", "universal")
_NAME = re.compile("[A-Za-z0-9_-]{1,64}")
_SCALE = re.compile("[1-9][0-9]{0,18}(/[1-9][0-9]{0,18})?")
_MOST_DEVICES = 2**32 - 1
_MOST_STATES = 255


@dataclass(frozen=True, slots=True)
class ReleaseFrame:
    """A statistic of a window of one or many devices, with noise.

    Attributes:
        name: of the release, and the last part of its topic.
        stream: the stream that was counted.
        audience: whom the guarantee is for.
        query: "count" of ticks in the states, their relative "frequency", the mean "dwell" time in them, in ticks, or a
            "histogram" with a value for each state.
        states: labels of the states that were asked for.
        devices: how many devices were counted together.
        first: first tick of the window.
        length: its number of ticks.
        observed: ticks that had a symbol, over all devices.
        values: unbiased estimates; counts may be below zero.
        standard_errors: of the values, randomised response and added noise together.
        low, high: confidence interval of each value.
        confidence: of the intervals, such as 0.95.
        epsilon: the audience's guarantee, in nats, over this release and all others.
        adversary: whom that guarantee holds against.
        mechanism: by which rule the noise keeps that guarantee, as in `contract.mechanisms`.
        noise: who added it: the gateway to counts of symbols ("discrete-laplace"), devices to windows that they counted
            ("device-windows"), or each to a part ("mixed").
        scale: of the noise, the largest: an integer, "20", or a fraction in lowest terms, "7/3".
        charge: what the release adds to the loss of each tick, in nats; the most over its devices; 0 of windows, which
            the devices have released anyway.
        entry: number of the release's entry in the gateway's ledger.
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
    noisy: bool = True

    def __post_init__(self) -> None:
        """Refuse values that no frame can hold."""
        for name, value in (("name", self.name), ("stream", self.stream), ("audience", self.audience)):
            _match(value, _NAME, name)
        _word(self.query, get_args(QueryKind), "query")
        _word(self.adversary, _ADVERSARIES, "adversary")
        _word(self.mechanism, get_args(Mechanism), "mechanism")
        _word(self.noise, get_args(Noise), "noise")
        length(self.states, 1, _MOST_STATES, "states")
        for state in self.states:
            text(state, 1, 64, "a state")
        integer(self.devices, 1, _MOST_DEVICES, "devices")
        integer(self.first, 0, MAX_TICK, "first")
        integer(self.length, 1, MAX_TICK - self.first + 1, "length")
        integer(self.observed, 0, self.length * self.devices, "observed")
        integer(self.entry, 1, 2**62, "entry")
        self._check_numbers()
        _match(self.scale, _SCALE, "scale")
        if str(Fraction(self.scale)) != self.scale:
            raise FrameRangeError(f"scale {self.scale} is not in lowest terms")
        if not isinstance(self.noisy, bool):
            raise FrameTypeError(f"noisy is {kind(self.noisy)}, not a boolean")
        if not self.noisy:
            raise FrameRangeError("a release without noise is none")

    def _check_numbers(self) -> None:
        count = len(self.states) if self.query == "histogram" else 1
        for name in ("values", "standard_errors", "low", "high"):
            numbers = getattr(self, name)
            length(numbers, count, count, name)
            for number in numbers:
                _finite(number, name)
        if min(self.standard_errors) < 0.0:
            raise FrameRangeError("a standard error is negative")
        if not all(low <= v <= high for low, v, high in zip(self.low, self.values, self.high, strict=True)):
            raise FrameRangeError("a value is not inside its interval")
        for name in ("confidence", "epsilon", "charge"):
            _finite(getattr(self, name), name)
        if not 0.0 < self.confidence < 1.0:
            raise FrameRangeError(f"confidence {self.confidence} is not inside (0, 1)")
        if self.epsilon <= 0.0 or self.charge < 0.0:
            raise FrameRangeError(f"epsilon {self.epsilon} or charge {self.charge} is negative")

    @property
    def last(self) -> int:
        """Last tick of the window."""
        return self.first + self.length - 1


def encode_release(frame: ReleaseFrame) -> bytes:
    """Bytes of a release: its attributes in their order."""
    packed: bytes = msgpack.packb(list(astuple(frame)))
    return bytes([RELEASE]) + packed


def decode_release(payload: bytes) -> ReleaseFrame:
    """Parse a release.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    values = fields(payload, RELEASE, 22)
    for index, name in ((4, "states"), (9, "values"), (10, "standard_errors"), (11, "low"), (12, "high")):
        values[index] = each(values[index], identity, name)
    return ReleaseFrame(*values)


def _finite(value: Any, name: str) -> None:
    if not isinstance(value, float):
        raise FrameTypeError(f"{name} is {kind(value)}, not a float")
    if not math.isfinite(value):
        raise FrameRangeError(f"{name} {value} is not finite")


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
