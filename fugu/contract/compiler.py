"""Compilation of policies to the bytes that devices run: integers only, enough to check the guarantee.

An agent's readings are doubles, and a threshold is compiled to the place of a double; a board's readings are integers n
that stand for n * unit. Decisions about floating-point numbers are made here, once: they become integers to compare
with. On both devices the states are those of the JSON form. docs/firmware.md has the layout. The readers are
`fugu.contract.compiled` and `fugu.core.compiled`.
"""

from __future__ import annotations

import math
import re
import struct
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from fugu.contract.chains import JointChains
from fugu.contract.classify import least_double, least_integer, place_of_double
from fugu.contract.compiled import BLOCKS, CELLS, AgentReader
from fugu.contract.discretisers import Baseline, Categories, Cells, Discretiser, Thresholds
from fugu.contract.errors import PolicyError
from fugu.contract.groups import SharedWindow
from fugu.contract.guarantee import Guarantee
from fugu.contract.losses import claimed_ratio
from fugu.contract.topics import NAME_PATTERN
from fugu.contract.windows import Blocks, Window
from fugu.core.compiled import PolicyReader
from fugu.core.leakage import MOST_NATS
from fugu.core.policy import ADVERSARIES, BASELINE, CATEGORIES, NONE, POINTS, THRESHOLDS
from fugu.core.states import STEPS, UNIT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fugu.contract.policies import AnyPolicy
    from fugu.contract.policy import Policy

__all__ = ["compile_board_policies", "compile_board_policy", "compile_discretiser", "compile_policy"]


_LIMIT = 1 << 62
_MAX_EXACT = 1 << 53


def compile_policy(policy: AnyPolicy) -> bytes:
    """Compile a policy for agents; its guarantee is not checked.

    Raises:
        PolicyError: agents cannot run the policy; one line.
    """
    return _compile(policy, None)


def compile_board_policy(policy: AnyPolicy, unit: Fraction = Fraction(1)) -> bytes:
    """Compile a policy for boards, where a reading of 1 stands for `unit` in the policy's numbers.

    Raises:
        PolicyError: the firmware cannot run the policy; one line.
    """
    if not 0 < unit <= _LIMIT:
        raise PolicyError("a unit has to be above 0, and at most 2^62")
    _check_board(policy)
    return _compile(policy, unit)


def compile_board_policies(policies: Sequence[AnyPolicy], units: Mapping[str, Fraction]) -> tuple[bytes, ...]:
    """Compile the policies of a board. `units` has the `unit` of `compile_board_policy` by stream, by default 1.

    Raises:
        PolicyError: the firmware cannot run a policy, or a unit is for a stream without a policy.
    """
    if unknown_streams := units.keys() - {policy.stream for policy in policies}:
        raise PolicyError(f"stream {min(unknown_streams)} has a unit, but no policy")
    return tuple(compile_board_policy(policy, units.get(policy.stream, Fraction(1))) for policy in policies)


def _check_board(policy: AnyPolicy) -> None:
    """Refuse, by a PolicyError, a policy that the firmware cannot run."""
    labels = policy.discretiser.states
    if isinstance(policy.discretiser, Cells):
        raise PolicyError("the firmware has no grids of places: use the agent")
    if len(labels) > PolicyReader.most_states:
        raise PolicyError(f"{len(labels)} states; the firmware has at most {PolicyReader.most_states}")
    if policy.kind == "points":
        raise PolicyError("the firmware does symbols and windows, and this policy measures points: use the agent")
    for window in policy.windows:
        name, query = window.name, window.query
        if not query.is_additive:
            raise PolicyError(f"window {name} is of {query.name} counts, which the firmware does not do: use the agent")
        if window.overlap * len(window.groups(labels)) > PolicyReader.most_counts:
            raise PolicyError(
                f"window {name} holds more than {PolicyReader.most_counts} counts at a time: too much for the firmware"
            )
    if policy.sums:
        name = policy.sums[0].group.name
        raise PolicyError(f"a board cannot encrypt reports to the helper of group {name}: use the agent")
    if isinstance(policy.chains, JointChains):
        raise PolicyError(
            "the firmware cannot check the guarantee: streams that move together have no bound in closed form; "
            "use the agent"
        )
    for guarantee in filter(None, (policy.guarantee, policy.windows_guarantee)):
        if guarantee.epsilon > MOST_NATS:
            raise PolicyError(f"epsilon {guarantee.epsilon:g} is not above 0 and at most {MOST_NATS}")


def _compile(policy: AnyPolicy, unit: Fraction | None) -> bytes:
    """Compile a policy for agents, or for boards whose readings have a unit."""
    reader = AgentReader if unit is None else PolicyReader
    sections = [
        reader.form,
        struct.pack(">I", policy.version),
        *(_name_bytes(name) for name in (policy.fleet, policy.device, policy.stream)),
        struct.pack(">QQ", policy.valid_from, policy.valid_until or 0),
        struct.pack(">QQ", policy.clock.epoch_us, policy.clock.period_us),
        struct.pack(">H", policy.frame_ticks),
        compile_discretiser(policy.discretiser, unit),
        _output_bytes(policy, unit) if policy.kind == "symbols" else bytes([POINTS]),
    ]
    compiled_bytes = b"".join(sections)
    if len(compiled_bytes) > reader.most_bytes:
        raise PolicyError(f"the policy takes {len(compiled_bytes)} bytes; the device has room for {reader.most_bytes}")
    return compiled_bytes


def _pack(form: str, *values: int) -> bytes:
    try:
        return struct.pack(form, *values)
    except struct.error:
        raise PolicyError("a number of the policy is too large for a device") from None


def _length_prefixed(encoded: bytes) -> bytes:
    return bytes([len(encoded)]) + encoded


def _name_bytes(name: str) -> bytes:
    if not re.fullmatch(NAME_PATTERN, name):
        raise PolicyError(f"{name!r} is no name")
    return _length_prefixed(name.encode())


def _int_bytes(value: int) -> bytes:
    size = (value.bit_length() + 7) // 8
    if size > 255:
        raise PolicyError("a number of the policy is too large for a device")
    return bytes([size]) + value.to_bytes(size, "big")


def _fraction_bytes(value: Fraction) -> bytes:
    return _int_bytes(value.numerator) + _int_bytes(value.denominator)


def compile_discretiser(discretiser: Discretiser, unit: Fraction | None = None) -> bytes:
    """Compile a discretiser for agents, or for boards whose readings have a unit."""
    states = len(discretiser.states)
    missing = 0 if discretiser.missing is None else discretiser.states.index(discretiser.missing) + 1
    match discretiser:
        case Thresholds():
            kind, rule_bytes = THRESHOLDS, _threshold_bytes(discretiser, unit)
        case Baseline():
            kind, rule_bytes = BASELINE, _baseline_bytes(discretiser, unit)
        case Categories():
            kind, rule_bytes = CATEGORIES, _category_bytes(discretiser)
        case Cells():
            kind, rule_bytes = CELLS, _cell_bytes(discretiser)
    return struct.pack(">HBH", states, kind, missing) + (b"" if unit is None else _fraction_bytes(unit)) + rule_bytes


def _threshold_bytes(discretiser: Thresholds, unit: Fraction | None) -> bytes:
    edges, margin = discretiser.edges, discretiser.hysteresis
    offsets = (0.0, -margin, margin) if margin else (0.0,)
    edge_rows = [[_least_reading(edge, offset, unit) for edge in edges] for offset in offsets]
    extra_states = len(discretiser.states) - len(edges) - 1
    packed_rows = [struct.pack(f">{len(edges)}q", *row) for row in edge_rows]
    header = struct.pack(">BQ", extra_states, discretiser.hysteresis_ticks)
    return header + packed_rows[0] + bytes([bool(margin)]) + b"".join(packed_rows[1:])


def _least_reading(edge: float, offset: float, unit: Fraction | None) -> int:
    """Return the least reading for which reading * unit + offset reaches an edge; rounding is monotone."""
    if unit is None:
        return least_double(lambda value: value + offset >= edge) if offset else place_of_double(edge)
    numerator, denominator = unit.as_integer_ratio()
    return least_integer(lambda reading: reading * numerator / denominator + offset >= edge, -_LIMIT, _LIMIT)


def _baseline_bytes(discretiser: Baseline, unit: Fraction | None) -> bytes:
    lowest, span = Fraction(discretiser.lowest), Fraction(discretiser.highest) - Fraction(discretiser.lowest)
    extra_states = len(discretiser.states) - len(discretiser.edges) - 1
    header = struct.pack(">BI", extra_states, discretiser.baseline_ticks)
    if unit is None:
        header += struct.pack(">qq", place_of_double(discretiser.lowest), place_of_double(discretiser.highest))
    else:
        header += _step_bytes(lowest, span, unit)
    if discretiser.compare == "multiple":
        zero = (2 * lowest * STEPS * UNIT + span) // (2 * span)
        multiples = b"".join(_fraction_bytes(Fraction(edge)) for edge in discretiser.edges)
        return header + b"\1" + _int_bytes(zero) + multiples
    # A reading is above an edge if it is above the greatest whole number of units that is not.
    edges = [Fraction(edge) * STEPS * UNIT // span for edge in discretiser.edges]
    return header + b"\0" + b"".join(struct.pack(">q", min(max(edge, -_LIMIT), _LIMIT)) for edge in edges)


def _step_bytes(lowest: Fraction, span: Fraction, unit: Fraction) -> bytes:
    """Compile the range of a board's mean, and the numbers by which a reading becomes a step."""
    if unit.denominator & (unit.denominator - 1):
        raise PolicyError(
            f"with a running mean a unit has to be exact in binary, as 1 or 1/16 are, and {unit} is not. Plan with "
            "readings in the unit of the sensor"
        )
    first_unit, last_unit = math.floor(lowest / unit), math.ceil((lowest + span) / unit)
    if max(abs(first_unit), abs(last_unit)) * unit.numerator >= _MAX_EXACT:
        raise PolicyError("the range of readings is too large for the firmware")
    # The nearest of STEPS + 1 integers, halves upward: floor((2 STEPS (n unit - low) + span) / (2 span)).
    slope, offset, divisor = 2 * STEPS * unit, span - 2 * STEPS * lowest, 2 * span
    scale = math.lcm(slope.denominator, offset.denominator, divisor.denominator)
    slope, offset, divisor = (coefficient * scale for coefficient in (slope, offset, divisor))
    step_bytes = _int_bytes(int(slope)) + bytes([offset < 0]) + _int_bytes(abs(int(offset))) + _int_bytes(int(divisor))
    return struct.pack(">qq", first_unit, last_unit) + step_bytes


def _cell_bytes(cells: Cells) -> bytes:
    extra_states = len(cells.states) - len(cells.cells)
    places = b"".join(_pack(">qq", *cell) for cell in cells.cells)
    return struct.pack(">4dB", *(number + 0.0 for number in (*cells.origin, *cells.step)), extra_states) + places


def _category_bytes(discretiser: Categories) -> bytes:
    category_rows = []
    for name, state in discretiser.categories.items():
        encoded_name = name.encode()
        if len(encoded_name) > 1024:
            raise PolicyError("a category has a name of more than 1024 bytes")
        category_rows.append(struct.pack(">H", len(encoded_name)) + encoded_name + struct.pack(">H", state))
    return struct.pack(">H", len(category_rows)) + b"".join(category_rows)


def _output_bytes(policy: Policy, unit: Fraction | None) -> bytes:
    """Compile the table, windows, sums (for agents only), class of chains and guarantees."""
    labels = policy.discretiser.states
    sections = [
        b"\0" if policy.table is None else _table_bytes(policy.table.rows),
        bytes([len(policy.windows)]),
        *(_window_bytes(window, labels) for window in policy.windows),
        *([bytes([len(policy.sums)])] if unit is None else []),
        *(_sum_bytes(shared_window, labels) for shared_window in policy.sums),
        _class_bytes(policy),
        _guarantee_bytes(policy.guarantee),
    ]
    if policy.table is not None and policy.windows_guarantee is not None:
        sections.append(_guarantee_bytes(policy.windows_guarantee))
    return b"".join(sections)


def _table_bytes(rows: tuple[Any, ...]) -> bytes:
    return bytes([len(rows[0]) + 1]) + b"".join(struct.pack(f">{len(row)}I", *row) for row in rows)


def _window_bytes(window: Window, labels: tuple[str, ...]) -> bytes:
    scale = Fraction(window.scale)
    kind = int(window.query.per_state) if window.blocks is None else BLOCKS
    header_numbers = (window.start, window.length, window.stride, scale.numerator, scale.denominator, kind)
    count_indices = b"" if window.query.per_state else _count_indices(window.counted(labels), labels)
    blocks = b"" if window.blocks is None else _block_bytes(window.blocks)
    return _name_bytes(window.name) + struct.pack(">QIIQQB", *header_numbers) + count_indices + blocks


def _count_indices(counted_states: tuple[int, ...], labels: tuple[str, ...]) -> bytes:
    return bytes(0 if state in counted_states else NONE for state in range(len(labels)))


def _block_bytes(blocks: Blocks) -> bytes:
    packed_offsets = b"".join(_pack(">qi", moment, offset) for moment, offset in blocks.offsets)
    return struct.pack(">IB", blocks.seconds, len(blocks.offsets)) + packed_offsets


def _sum_bytes(shared_window: SharedWindow, labels: tuple[str, ...]) -> bytes:
    group = shared_window.group
    header = struct.pack(">QIIHI", group.start, group.length, group.noise, group.honest, group.deadline)
    count_indices = _count_indices(tuple(map(labels.index, group.count)), labels)
    blocks = b"\0" if group.blocks is None else b"\1" + _block_bytes(group.blocks)
    return _name_bytes(group.name) + group.digest + bytes.fromhex(group.helper) + header + count_indices + blocks


def _class_bytes(policy: Policy) -> bytes:
    """Compile the class of chains, with the streams of a joint class."""
    chains = policy.chains
    header = bytes([chains.form]) + b"".join(_fraction_bytes(Fraction(*bound)) for bound in chains.bounds)
    if not isinstance(chains, JointChains):
        return header
    streams = b"".join(
        _length_prefixed(stream.name.encode()) + bytes([stream.states]) + _fraction_bytes(Fraction(stream.rate))
        for stream in chains.streams
    )
    column = chains.stream_index(policy.device, policy.stream)
    return header + bytes([chains.steps, len(chains.streams)]) + streams + bytes([column])


def _guarantee_bytes(guarantee: Guarantee) -> bytes:
    adversary = bytes([ADVERSARIES.index(guarantee.adversary)])
    return adversary + _int_bytes(claimed_ratio(guarantee.epsilon)) + struct.pack(">Q", guarantee.stretch_ticks)
