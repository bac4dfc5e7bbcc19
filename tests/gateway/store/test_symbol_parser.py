"""The compiled parser against the contract's decoder: it takes nothing that this refuses, and reads the same."""

from __future__ import annotations

from collections.abc import Sequence

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fugu.contract.errors import FrameError
from fugu.contract.frames import MAX_FRAME_TICKS, MAX_TICK, SymbolFrame
from gateway.store.journal import HEAD_BYTES, parse
from gateway.store.symbols import Columns, unpacked

EXTREME = (0, 1, 2, 255, 256, 2**16, 2**31, 2**32 - 1, 2**32, 2**53 - MAX_FRAME_TICKS, 2**53 - 2, 2**53 - 1, 2**53)


def ticks(lowest: int, highest: int) -> st.SearchStrategy[int]:
    """Integers, and often those at the edges of what can be written."""
    edges = sorted({lowest, highest, *(value for value in EXTREME if lowest <= value <= highest)})
    return st.sampled_from(edges) | st.integers(lowest, highest)


@st.composite
def valid_frames(draw: st.DrawFn) -> SymbolFrame:
    """Any frame of the contract."""
    bits = draw(st.sampled_from([1, 2, 4, 8]))
    count = draw(st.sampled_from([1, 2, 7, 8, 9, MAX_FRAME_TICKS]) | st.integers(1, 70))
    first = draw(ticks(0, MAX_TICK - count + 1))
    pattern = draw(st.binary(min_size=1, max_size=20))
    return SymbolFrame(
        draw(st.sampled_from([1, 2**31, 2**32 - 1]) | st.integers(1, 2**32 - 1)),
        draw(ticks(-1, first - 1)),
        first,
        bytes(value % (1 << bits) for value in (pattern * (count // len(pattern) + 1))[:count]),
        padding=min(draw(st.sampled_from([0, 1, 3, 7, 8, MAX_FRAME_TICKS])), MAX_FRAME_TICKS - count),
        bits=bits,
        shift=draw(ticks(0, first)),
    )


def by_contract(payload: bytes) -> SymbolFrame | None:
    try:
        return SymbolFrame.decode(payload)
    except FrameError:
        return None


def without_padding(frame: SymbolFrame | None) -> tuple[object, ...] | None:
    if frame is None:
        return None
    return (frame.policy_version, frame.previous, frame.first, frame.symbols, frame.bits, frame.shift)


def check(payloads: Sequence[bytes], *, all_valid: bool = False) -> int:
    """Rows are read as the contract reads them; how many there were."""
    columns, read = parse(payloads)
    assert len(read) == columns.row_count == len(payloads)
    for row, payload in enumerate(payloads):
        if read[row]:
            assert without_padding(columns.frame(row)) == without_padding(by_contract(payload)), payload.hex()
        assert read[row] or not all_valid, payload.hex()
    return int(read.sum())


@pytest.mark.long
@settings(deadline=None, max_examples=15)
@given(st.lists(valid_frames(), min_size=1, max_size=5))
def test_what_a_device_encodes_is_read_as_the_contract_reads_it(some: list[SymbolFrame]) -> None:
    check([frame.encode() for frame in some], all_valid=True)


@pytest.mark.long
@settings(deadline=None, max_examples=12)
@given(valid_frames().filter(lambda frame: len(frame.symbols) + frame.padding < 100))
def test_no_bit_that_is_flipped_lets_a_frame_pass_that_the_contract_refuses(frame: SymbolFrame) -> None:
    payload = frame.encode()
    number, size = int.from_bytes(payload, "big"), len(payload)
    flipped = [(number ^ (1 << bit)).to_bytes(size, "big") for bit in range(8 * size)]
    valid = [by_contract(payload) is not None for payload in flipped]
    assert check(flipped) == sum(valid), "what remains valid has the layout of the encoder"


@pytest.mark.long
@settings(deadline=None, max_examples=12)
@given(valid_frames().filter(lambda frame: len(frame.symbols) < 100), st.binary(min_size=1, max_size=9))
def test_what_is_cut_short_or_longer_is_not_taken(frame: SymbolFrame, more: bytes) -> None:
    payload = frame.encode()
    assert check([payload[:size] for size in range(len(payload))]) == 0
    assert check([payload + more, more + payload]) == 0
    shorter = payload[: HEAD_BYTES + len(more)]
    assert check([shorter, payload, b"", payload]) >= 2, "a bad neighbour spoils no frame"


def layouts(frame: SymbolFrame) -> list[bytes]:
    """The same numbers in the other ways in which msgpack may write them."""
    payload = frame.encode()
    fields = msgpack.unpackb(payload[1:])
    widths = [
        (b"\xcc", 1),
        (b"\xcd", 2),
        (b"\xce", 4),
        (b"\xcf", 8),
        (b"\xd0", 1),
        (b"\xd1", 2),
        (b"\xd2", 4),
        (b"\xd3", 8),
    ]
    payloads = [payload[:1] + msgpack.packb(fields), payload[:1] + b"\xdc\x00\x08" + payload[2:]]
    parts = [msgpack.packb(field) for field in fields]
    for i, field in enumerate(fields):
        if isinstance(field, int):
            for kind, width in widths:
                signed = kind >= b"\xd0"
                low, high = (-(1 << (8 * width - 1)), 1 << (8 * width - 1)) if signed else (0, 1 << (8 * width))
                if low <= field < high:
                    wider = [*parts[:i], kind + field.to_bytes(width, "big", signed=signed), *parts[i + 1 :]]
                    payloads.append(payload[:1] + b"\x98" + b"".join(wider))
    head, data = b"".join(parts[:-1]), fields[-1]
    for kind, width in ((b"\xc4", 1), (b"\xc5", 2), (b"\xc6", 4), (b"\xd9", 1), (b"\xda", 2)):
        if len(data) < 1 << (8 * width):
            payloads.append(payload[:1] + b"\x98" + head + kind + len(data).to_bytes(width, "big") + data)
    return payloads


@pytest.mark.long
@settings(deadline=None, max_examples=15)
@given(valid_frames())
def test_other_layouts_of_the_same_numbers_are_left_to_the_contract_or_read_the_same(frame: SymbolFrame) -> None:
    some = layouts(frame)
    check(some)
    assert any(by_contract(payload) is not None for payload in some), "the contract takes some of them"


FIELDS = {"version": (3, 4), "shift": (8, 8), "previous": (17, 8), "first": (26, 8), "bits": (35, 1), "count": (37, 2)}


@pytest.mark.long
@settings(deadline=None, max_examples=30)
@given(
    valid_frames().filter(lambda frame: len(frame.symbols) < 50),
    st.dictionaries(
        st.sampled_from([*FIELDS, "padding", "size"]), st.sampled_from(EXTREME) | st.integers(0, 2**64 - 1)
    ),
)
def test_whatever_numbers_the_layout_holds_nothing_passes_that_the_contract_refuses(
    frame: SymbolFrame, put: dict[str, int]
) -> None:
    payload = bytearray(frame.encode())
    for name, value in put.items():
        at, width = (FIELDS | {"padding": (40, 2), "size": (43, 2)})[name]
        payload[at : at + width] = (value % (1 << (8 * width))).to_bytes(width, "big")
    check([bytes(payload)])
    assert (by_contract(bytes(payload)) is not None) == bool(parse([bytes(payload)])[1][0])


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_symbols_are_packed_as_on_the_wire_whatever_the_bits(bits: int) -> None:
    for count in (1, 7, 8, 9, 100, MAX_FRAME_TICKS):
        frame = SymbolFrame(1, -1, 0, bytes((7 * i + i // 3) % (1 << bits) for i in range(count)), bits=bits)
        columns = Columns.of([(5, frame)])
        assert columns.packed.tobytes() == frame.encode()[HEAD_BYTES:]
        assert unpacked(columns.packed, 0, count, bits).tobytes() == frame.symbols
        assert Columns.decode(columns.encode()).frame(0) == frame


def test_no_messages_are_no_rows() -> None:
    columns, read = parse([])
    assert (columns.row_count, len(read)) == (0, 0)
    assert parse([b"", b"\1"])[1].tolist() == [False, False]
