"""Messages of tables: fixed bytes, and no byte sequence that is taken for a table without being one."""

from __future__ import annotations

import base64
import random
from array import array
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu.contract.errors import FrameError, Reason
from fugu.contract.frames import MAX_TICK
from fugu.contract.measure_table import Staircase, StaircaseNoise, TimedTable, set_of, states_in
from fugu.contract.noise_table import SCALE, NoiseTable
from tests.support.refusals import refused_for
from tests.support.work import lines_run, most_memory

GOLDEN = Path(__file__).parents[1] / "golden" / "frames"
ROWS = (array("I", [1 << 30, 3 << 30]), array("I", [1, SCALE - 1]), array("I", [5, 6]))
WEIGHTS = NoiseTable(ROWS, ((0, -1), (70_000, 2), (3, 3)))
SQUARE = ((-1, -1), (1, -1), (1, 1), (-1, 1))
STAIRCASE = StaircaseNoise(0b1011, Staircase(SQUARE, Fraction(3, 8)), (-5, 0), (5, 7))
TABLES = {
    "table": TimedTable(7, 12, 0b101, 600, 1200, WEIGHTS),
    "table_staircase": TimedTable(7, 0, 0, 0, MAX_TICK + 1, STAIRCASE),
}


def weights(**changes: Any) -> bytes:
    """A table of weights with some fields replaced by anything."""
    rows = b"".join(value.to_bytes(4, "big") for row in ROWS for value in row)
    fields = {
        **{"version": 7, "number": 12, "constraint": b"\x05", "first": 600, "until": 1200, "kind": 0},
        **{"points": [[0, -1], [70_000, 2], [3, 3]], "states": 3, "rows": rows},
    } | changes
    head = [fields.pop(name) for name in ("version", "number", "constraint", "first", "until", "kind")]
    return bytes([TimedTable.SCHEMA]) + msgpack.packb([*head, fields.pop("body", list(fields.values()))])


def staircase(**changes: Any) -> bytes:
    """A staircase with some fields replaced by anything."""
    fields = {
        **{"version": 7, "number": 0, "constraint": b"", "first": 0, "until": 100, "kind": 1},
        **{"likely": b"\x0b", "vertices": SQUARE, "p": 3, "r": 8, "low": [-5, 0], "high": [5, 7]},
    } | changes
    head = [fields.pop(name) for name in ("version", "number", "constraint", "first", "until", "kind")]
    return bytes([TimedTable.SCHEMA]) + msgpack.packb([*head, list(fields.values())])


@pytest.mark.parametrize("name", TABLES)
def test_the_bytes_are_fixed(name: str) -> None:
    golden = bytes.fromhex((GOLDEN / f"{name}.hex").read_text())
    assert TABLES[name].encode() == golden
    assert TimedTable.decode(golden) == TABLES[name]
    assert golden[0] == 8
    assert TimedTable.of_text(TABLES[name].text) == TABLES[name]


def test_the_fields_are_as_documented() -> None:
    assert TimedTable.decode(weights()) == TABLES["table"]
    assert TimedTable.decode(staircase(until=MAX_TICK + 1)) == TABLES["table_staircase"]


@pytest.mark.long
@given(st.sets(st.integers(0, 1023)))
def test_a_set_is_its_members(states: set[int]) -> None:
    assert states_in(set_of(states)) == sorted(states)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"until": 600}, Reason.OUT_OF_RANGE, "until 600 is not in 601"),
        ({"until": MAX_TICK + 2}, Reason.OUT_OF_RANGE, "until"),
        ({"kind": 1}, Reason.WRONG_LENGTH, "staircase has 3 fields, not 6"),
        ({"points": [[0, 0]], "rows": b""}, Reason.WRONG_LENGTH, "points has length 1"),
        ({"points": [[0], [1], [2, 2]]}, Reason.WRONG_LENGTH, "a point has 2 dimensions beside 1"),
        ({"points": [[0, 0], [0, 1], [0, 0]]}, Reason.OUT_OF_RANGE, "names a point twice"),
        ({"states": 4}, Reason.WRONG_LENGTH, "rows has length 24, not 32"),
        ({"states": 2}, Reason.WRONG_LENGTH, "rows has length 24, not 16"),
        ({"rows": bytes(24)}, Reason.OUT_OF_RANGE, "must increase strictly"),
        ({"rows": b"\0\0\0\5\0\0\0\5" * 3}, Reason.OUT_OF_RANGE, "must increase strictly"),
        ({"rows": b"\0\0\0\6\0\0\0\5" * 3}, Reason.OUT_OF_RANGE, "must increase strictly"),
        ({"rows": b"\0\0\0\0\0\0\0\5" * 3}, Reason.OUT_OF_RANGE, "must increase strictly"),
    ],
)
def test_a_wrong_field_is_refused_by_name(changes: dict[str, Any], error: Reason, text: str) -> None:
    with refused_for(error, match=text):
        TimedTable.decode(weights(**changes))


# A spiral: every corner turns left, all corners of the first half are above the axis, and it is no convex polygon.
LOOP = ((10, 0), (0, 20), (-5, 10), (0, 5), (5, 10), (0, 19))


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"likely": b"\0"}, Reason.OUT_OF_RANGE, "likely 0"),
        ({"vertices": [[0, 0], [0, 0]]}, Reason.OUT_OF_RANGE, "the hull is a point"),
        ({"vertices": [[1, 0], [1, 0]]}, Reason.OUT_OF_RANGE, "not symmetric"),
        ({"vertices": [[1, 0], [0, 1], [-1, 0]]}, Reason.OUT_OF_RANGE, "even number"),
        ({"vertices": [[1, 0], [0, 1], [-1, 0], [0]]}, Reason.OUT_OF_RANGE, "equal dimensions"),
        ({"vertices": SQUARE[::-1]}, Reason.OUT_OF_RANGE, "counter-clockwise"),
        ({"vertices": [[2, 0], [1, 1], [0, 2], [-2, 0], [-1, -1], [0, -2]]}, Reason.OUT_OF_RANGE, "no convex polygon"),
        ({"vertices": [[3, 0], [1, 1], [0, 3], [-3, 0], [-1, -1], [0, -3]]}, Reason.OUT_OF_RANGE, "no convex polygon"),
        ({"vertices": [[1, 0], [1, 0], [-1, 0], [-1, 0]]}, Reason.OUT_OF_RANGE, "no convex polygon"),
        ({"vertices": [[1, 0], [2, 0], [-1, 0], [-2, 0]]}, Reason.OUT_OF_RANGE, "no convex polygon"),
        ({"vertices": [[1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0]]}, Reason.OUT_OF_RANGE, "in the plane"),
        ({"vertices": [*LOOP, *[(-x, -y) for x, y in LOOP]]}, Reason.OUT_OF_RANGE, "no convex polygon"),
        ({"p": 0}, Reason.OUT_OF_RANGE, "p 0"),
        ({"p": 8}, Reason.OUT_OF_RANGE, "p 8"),
        ({"r": 1}, Reason.OUT_OF_RANGE, "q 1"),
        ({"p": 2**60 - 1, "r": 2**60}, Reason.OUT_OF_RANGE, "draws would take long"),
        ({"p": 4095, "r": 4096}, None, ""),
        ({"p": 4096, "r": 4097}, Reason.OUT_OF_RANGE, "draws would take long"),
        ({"p": 1, "r": 2**64 - 1}, None, ""),
        ({"low": [0, 8]}, Reason.OUT_OF_RANGE, "box is empty"),
        ({"low": [0]}, Reason.WRONG_LENGTH, "has 1 dimensions beside 2"),
    ],
)
def test_a_wrong_staircase_is_refused_by_name(changes: dict[str, Any], error: Reason | None, text: str) -> None:
    if error is None:
        TimedTable.decode(staircase(**changes))
        return
    with refused_for(error, match=text):
        TimedTable.decode(staircase(**changes))


@pytest.mark.long
def test_only_convex_symmetric_polygons_are_hulls() -> None:
    """Random even lists of corners: accepted are those whose every corner lies on the left of every other side."""
    generator = random.Random(5)
    outcomes = {True: 0, False: 0}
    for _ in range(2000):
        half = [(generator.randrange(-4, 5), generator.randrange(-4, 5)) for _ in range(generator.randrange(2, 5))]
        corners = [*half, *((-x, -y) for x, y in half)]
        sides = list(zip(corners, corners[1:] + corners[:1], strict=True))
        convex = all(
            (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0
            for (ax, ay), (bx, by) in sides
            for x, y in corners
            if (x, y) not in ((ax, ay), (bx, by))
        )
        expected = convex and len(set(corners)) == len(corners)
        try:
            Staircase(tuple(corners), Fraction(1, 2))
        except FrameError:
            assert not expected
        else:
            assert expected
        outcomes[expected] += 1
    assert min(outcomes.values()) > 15


@pytest.mark.parametrize("changes", [{"number": -1}, {"constraint": 1 << 1024}, {"until": 600}, {"first": 1200}])
def test_what_cannot_be_decoded_cannot_be_made(changes: dict[str, Any]) -> None:
    with pytest.raises(FrameError):
        replace(TABLES["table"], **changes)
    with pytest.raises(FrameError):
        NoiseTable((array("I", [5]), array("I", [5, 6])), ((0,), (1,)))


@pytest.mark.parametrize("text", ["", "no base64!", "AAAA", "ünicode", "QQ", "CA=="])
def test_text_that_holds_no_table_is_refused(text: str) -> None:
    with pytest.raises(FrameError):
        TimedTable.of_text(text)
    with pytest.raises(FrameError):
        TimedTable.of_text(TABLES["table"].text[:-4] + text)


def test_it_is_valid_from_its_first_tick_until_its_last_for_its_set() -> None:
    table = TABLES["table"]
    assert [table.covers(tick, 0b101) for tick in (599, 600, 1199, 1200)] == [False, True, True, False]
    assert not table.covers(600, 0b111)
    assert not table.covers(600, 0)
    assert all(replace(table, constraint=0).covers(600, states) for states in (0b101, 0b111, 1))


def refused(payload: bytes) -> None:
    with pytest.raises(FrameError):
        TimedTable.decode(payload)


@pytest.mark.long
def test_deep_and_wide_messages_cost_little() -> None:
    """Half a megabyte, which is the most that a device looks at."""
    size = 1 << 19
    wide = b"\xdd" + (size - 10).to_bytes(4, "big")
    for body in (b"\x91" * size, wide * 500, wide + b"\x90" * size, base64.b64encode(bytes(size // 2))):
        payload = (bytes([TimedTable.SCHEMA]) + body)[:size]
        lines_run(partial(refused, payload), 10_000)
        assert most_memory(partial(refused, payload)) < 100 * size
    some = 1 << 14
    lines_run(partial(refused, weights(points=[[0]] * (some // 3))), 10 * some)
