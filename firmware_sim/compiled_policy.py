"""A policy as the bytes that a microcontroller runs: integers only, with the certificate of its guarantee.

A board's readings are integers n that stand for n * unit. Whatever the agent would compute with floating-point numbers
from the same readings is decided here, once, and becomes an integer to compare with: the states are the same.
docs/firmware.md has the layout, and `fugu/core/compiled.py` the reader.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from fugu.contract.classify import least
from fugu.contract.discretisers import Baseline, Categories, Thresholds
from fugu.contract.errors import FuguError
from fugu.contract.fleet_documents import PolicyDocument
from fugu.contract.guarantee import Guarantee
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.topics import NAME_PATTERN
from fugu.contract.windows import Window
from fugu.core.compiled import read_policy
from fugu.core.states import STEPS, UNIT

__all__ = [
    "FRACTION_BITS",
    "FirmwareError",
    "compile_policy",
    "ratio_below",
    "units",
    "with_compiled",
]


FRACTION_BITS = 128
"""Likelihood ratios are integers over 2^128."""
_FORMAT = b"FGC\x02"
_NONE = 255
_MOST_BYTES = 16_384
_FAR = 1 << 62
_EXACT = 1 << 53
_MOST_EPSILON = 1000.0
_ADVERSARIES = ("ignorant", "informed", "universal")
_DOWNWARD = Context(prec=600, rounding=ROUND_FLOOR, Emin=-999_999, Emax=999_999)


class FirmwareError(FuguError):
    """A policy, or what it is to run on, is nothing that the firmware can do."""


def compile_policy(policy: AnyPolicy, unit: Fraction = Fraction(1)) -> bytes:
    """The bytes of a policy of symbols or windows, without a signature; its guarantee holds.

    `unit` is what a reading of 1 stands for, as a number of the policy's.

    Raises:
        FirmwareError: the firmware does not do what the policy says; one line.
    """
    if not isinstance(policy, Policy):
        raise FirmwareError("the firmware does symbols and windows, and this policy measures points: use the agent")
    if policy.sums:
        raise FirmwareError(
            f"a board cannot encrypt reports to the helper of group {policy.sums[0].name}: use the agent"
        )
    if unit <= 0:
        raise FirmwareError(f"a unit of {unit} is not above 0")
    states = len(policy.discretiser.states)
    if states > 255:
        raise FirmwareError(f"{states} states; the firmware has at most 255")
    parts = [
        _FORMAT,
        struct.pack(">I", policy.version),
        *(_text(name) for name in (policy.fleet, policy.device, policy.stream)),
        struct.pack(">QQ", policy.valid_from, policy.valid_until or 0),
        struct.pack(">QQ", policy.clock.epoch_us, policy.clock.period_us),
        struct.pack(">HB", policy.frame_ticks, states),
        _discretiser(policy, unit),
        _table(policy),
        struct.pack(">B", len(policy.windows)),
        *(_window(window, policy.discretiser.states) for window in policy.windows),
        _chains(policy),
        _guarantee(policy.guarantee),
    ]
    if policy.table is not None and policy.windows_guarantee is not None:
        parts.append(_guarantee(policy.windows_guarantee))
    compiled = b"".join(parts)
    if len(compiled) > _MOST_BYTES:
        raise FirmwareError(f"the policy takes {len(compiled)} bytes; the firmware has room for {_MOST_BYTES}")
    return compiled


def ratio_below(epsilon: float) -> int:
    """e^epsilon over 2^128, rounded down."""
    if not 0.0 < epsilon <= _MOST_EPSILON:
        raise FirmwareError(f"epsilon {epsilon:g} is not above 0 and at most {_MOST_EPSILON:g}")
    ratio = _DOWNWARD.next_minus(_DOWNWARD.exp(Decimal(epsilon)))
    return int(_DOWNWARD.multiply(ratio, Decimal(1 << FRACTION_BITS)))


def _text(name: str) -> bytes:
    if not re.fullmatch(NAME_PATTERN, name):
        raise FirmwareError(f"{name!r} is no name")
    return bytes([len(name)]) + name.encode()


def _big(value: int) -> bytes:
    size = (value.bit_length() + 7) // 8
    if size > 255:
        raise FirmwareError("a number of the policy is too large for the firmware")
    return bytes([size]) + value.to_bytes(size, "big")


def _fraction(value: Fraction) -> bytes:
    return _big(value.numerator) + _big(value.denominator)


def _discretiser(policy: Policy, unit: Fraction) -> bytes:
    discretiser = policy.discretiser
    missing = _NONE if discretiser.missing is None else discretiser.states.index(discretiser.missing)
    match discretiser:
        case Thresholds():
            kind, body = 0, _thresholds(discretiser, unit)
        case Baseline():
            kind, body = 1, _baseline(discretiser, unit)
        case Categories():
            kind, body = 2, _categories(discretiser)
        case _:
            raise FirmwareError("the firmware has no grids of places: use the agent")
    return bytes([kind, missing]) + _fraction(unit) + body


def _thresholds(discretiser: Thresholds, unit: Fraction) -> bytes:
    edges, by = discretiser.edges, discretiser.hysteresis
    shifts = (0.0, -by, by) if by else (0.0,)
    rows = [[_least(lambda value, e=edge, s=shift: value + s >= e, unit) for edge in edges] for shift in shifts]  # type: ignore[misc]
    extra = len(discretiser.states) - len(edges) - 1
    if discretiser.hysteresis_ticks > 0xFFFFFFFF:
        raise FirmwareError("hysteresis_ticks is too large for the firmware")
    head = struct.pack(">BI", extra, discretiser.hysteresis_ticks)
    numbers = [struct.pack(f">{len(edges)}q", *row) for row in rows]
    return head + numbers[0] + bytes([bool(by)]) + b"".join(numbers[1:])


def _least(holds: Callable[[float], bool], unit: Fraction) -> int:
    """The least reading for which what the agent computes holds; it holds for all above, as rounding is monotone."""
    return least(lambda reading: holds(reading * unit.numerator / unit.denominator), -_FAR, _FAR)


def _baseline(discretiser: Baseline, unit: Fraction) -> bytes:
    if unit.denominator & (unit.denominator - 1):
        raise FirmwareError(
            f"with a running mean a unit has to be exact in binary, as 1 or 1/16 are, and {unit} is not: plan with "
            "readings in the unit of the sensor"
        )
    low, high = Fraction(discretiser.lowest), Fraction(discretiser.highest)
    span = high - low
    first, last = math.floor(low / unit), math.ceil(high / unit)
    if max(abs(first), abs(last)) * unit.numerator >= _EXACT:
        raise FirmwareError("the range of readings is too large for the firmware")
    # The nearest of STEPS + 1 integers, halves upward: floor((2 STEPS (n unit - low) + span) / (2 span)).
    slope, offset, bottom = 2 * STEPS * unit, span - 2 * STEPS * low, 2 * span
    scale = math.lcm(slope.denominator, offset.denominator, bottom.denominator)
    slope, offset, bottom = (value * scale for value in (slope, offset, bottom))
    extra = len(discretiser.states) - len(discretiser.edges) - 1
    parts = [struct.pack(">BIqq", extra, discretiser.baseline_ticks, first, last)]
    parts += [_big(int(slope)), bytes([offset < 0]), _big(abs(int(offset))), _big(int(bottom))]
    if discretiser.compare == "multiple":
        zero = (2 * low * STEPS * UNIT + span) // (2 * span)
        parts += [b"\1", _big(zero), *(_fraction(Fraction(edge)) for edge in discretiser.edges)]
    else:
        edges = [Fraction(edge) * STEPS * UNIT // span for edge in discretiser.edges]
        parts += [b"\0", *(struct.pack(">q", min(max(edge, -_FAR), _FAR)) for edge in edges)]
    return b"".join(parts)


def _categories(discretiser: Categories) -> bytes:
    rows = []
    for name, state in discretiser.categories.items():
        text = name.encode()
        if len(text) > 255:
            raise FirmwareError("a category has a name of more than 255 bytes")
        rows.append(bytes([len(text)]) + text + bytes([state]))
    if len(rows) > 1024:
        raise FirmwareError(f"{len(rows)} categories; the firmware has at most 1024")
    return struct.pack(">H", len(rows)) + b"".join(rows)


def _table(policy: Policy) -> bytes:
    if policy.table is None:
        return b"\0"
    rows = [struct.pack(f">{len(row)}I", *row) for row in policy.table.rows]
    return bytes([policy.table.symbols]) + b"".join(rows)


def _window(window: Window, labels: tuple[str, ...]) -> bytes:
    name, query, scale = window.name, window.query, Fraction(window.scale)
    if not query.additive:
        raise FirmwareError(f"window {name} is of {query.name} counts, which the firmware does not do: use the agent")
    if window.overlap * len(window.groups(labels)) > 1024:
        raise FirmwareError(f"window {name} holds more than 1024 counts at a time: too much for the firmware")
    numbers = (window.start, window.length, window.stride, scale.numerator, scale.denominator, query.each)
    counted = window.counted(labels)
    places = b"" if query.each else bytes(0 if state in counted else _NONE for state in range(len(labels)))
    return _text(name) + struct.pack(">QIIQQB", *numbers) + places


def _chains(policy: Policy) -> bytes:
    """The class of the guarantee."""
    try:
        bounds = policy.chains.closed_form()
    except ValueError as error:
        raise FirmwareError(f"the firmware cannot check the guarantee: {error}; use the agent") from None
    return (b"\0" if len(bounds) == 4 else b"\1") + b"".join(map(_fraction, bounds))


def _guarantee(guarantee: Guarantee) -> bytes:
    adversary = bytes([_ADVERSARIES.index(guarantee.adversary)])
    return adversary + _big(ratio_below(guarantee.epsilon)) + struct.pack(">Q", guarantee.stretch_ticks)


_SOMEBODY = "device"
"""Whom the compiled policies of a document for several devices name; each puts its own name there."""


def with_compiled(document: PolicyDocument, unit: Mapping[str, Fraction]) -> PolicyDocument:
    """The same document, for boards too; units are by stream, as the images were built with, by default 1.

    Raises:
        FirmwareError: a board does not do what a policy says, or no policy is of such a stream.
    """
    policies = document.for_device(document.to.device or _SOMEBODY)
    if unknown := set(unit) - {policy.stream for policy in policies}:
        raise FirmwareError(f"a unit of stream {min(unknown)}, of which there is no policy")
    compiled = [compile_policy(policy, unit.get(policy.stream, Fraction(1))) for policy in policies]
    return document.model_copy(update={"compiled": tuple(data.hex() for data in compiled)})


def units(document: PolicyDocument) -> dict[str, Fraction]:
    """By stream, the unit that a document was compiled with; FirmwareError if a compiled policy is none."""
    try:
        policies = [read_policy(bytes.fromhex(data)) for data in document.compiled]
    except Exception as error:
        raise FirmwareError(f"a compiled policy of the document is none: {error}") from None
    return {policy.stream: Fraction(*policy.unit) for policy in policies}
