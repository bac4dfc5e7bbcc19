"""Descriptions: a policy's stream in JSON, what a subscriber reads from it, and what is refused."""

from __future__ import annotations

import json
import math
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fugu.contract.chains import BinaryChains
from fugu.contract.descriptions import MAX_DESCRIPTION_BYTES, Description, describe
from fugu.contract.discretisers import Cells
from fugu.contract.errors import Reason
from fugu.contract.policy import Clock, Policy
from fugu.contract.sentences import LAST_US, class_sentence, instant_text
from fugu.contract.windows import Window
from tests.support.classifiers import classifier_of
from tests.support.measured import measure_policy
from tests.support.processes import policy
from tests.support.refusals import refused_for

GOLDEN = Path(__file__).parents[1] / "golden" / "reports"
SYMBOLS = policy(epoch_us=1_772_350_200_250_000, period_us=250_000)
CELLS = Cells(
    origin=(46.0, 14.25),
    step=(0.001, 0.00125),
    cells=tuple((i % 3, i // 3) for i in range(9)),
    states=tuple("abcdefghi"),
)
PLACES = measure_policy(3, discretiser=CELLS, resolution=(100.0, 100.0), unit="m")


def changed(**changes: Any) -> bytes:
    fields = json.loads(describe(SYMBOLS).encode()) | changes
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


@pytest.mark.parametrize(("name", "described"), [("description_symbols", SYMBOLS), ("description_places", PLACES)])
def test_the_text_is_fixed_and_comes_back(name: str, described: Any) -> None:
    golden = (GOLDEN / f"{name}.json").read_bytes().rstrip()
    assert describe(described).encode() == golden
    assert Description.decode(golden) == describe(described)


def test_a_subscriber_needs_no_policy_to_name_and_to_time_a_symbol() -> None:
    decoded = Description.decode(describe(SYMBOLS).encode())
    assert instant_text(decoded.time_of(1)) == "2026-03-01T07:30:00.5Z"
    assert instant_text(decoded.time_of(68, 64)) == "2026-03-01T07:30:01.25Z"
    assert (decoded.epoch_us, decoded.period_us) == (SYMBOLS.clock.epoch_us, SYMBOLS.clock.period_us)
    assert [decoded.label(symbol) for symbol in (0, 1)] == list(SYMBOLS.discretiser.states)
    for symbol in (-1, 2):
        with refused_for(Reason.OUT_OF_RANGE):
            decoded.label(symbol)
    assert decoded.table == SYMBOLS.table.rows if SYMBOLS.table else False


@pytest.mark.long
@given(st.integers(0, LAST_US), st.integers(100, 86_400_000_000 * 366), st.integers(0, 2**53))
def test_no_policy_s_clock_is_rounded_and_ticks_beyond_the_year_9999_are_refused(
    epoch: int, period: int, tick: int
) -> None:
    description = describe(SYMBOLS).model_copy(
        update={"epoch": describe(clocked(epoch, period)).epoch, "period_seconds": period / 1_000_000}
    )
    assert (description.epoch_us, description.period_us) == (epoch, period)
    if epoch + tick * period > LAST_US:
        with refused_for(Reason.OUT_OF_RANGE, match="after the year 9999"):
            description.time_of(tick)
    else:
        assert description.time_of(tick) == description.time_of(tick + 5, 5)


def clocked(epoch: int, period: int) -> Policy:
    return SYMBOLS.model_copy(update={"clock": Clock(epoch_us=epoch, period_us=period)})


def test_a_policy_that_begins_after_the_year_9999_is_refused() -> None:
    with pytest.raises(ValidationError, match="epoch_us"):
        Clock(epoch_us=LAST_US + 1, period_us=1_000_000)


def test_what_is_promised_is_that_of_the_policy_and_what_is_not_is_said() -> None:
    description = describe(SYMBOLS)
    assert (description.guarantee.epsilon, description.guarantee.adversary) == (
        SYMBOLS.guarantee.epsilon,
        SYMBOLS.guarantee.adversary,
    )
    rows = SYMBOLS.bound().rows(SYMBOLS.clock.period_us, SYMBOLS.guarantee.epsilon)
    assert [(stretch.name, stretch.ticks, stretch.protected) for stretch in description.guarantee.stretches] == [
        (stretch.name, stretch.ticks, stretch.protected) for stretch in rows
    ]
    assert [stretch.epsilon for stretch in description.guarantee.stretches] == [
        stretch.epsilon if math.isfinite(stretch.epsilon) else None for stretch in rows
    ]
    bare = next(stretch.name for stretch in rows if not stretch.protected)
    assert bare in description.does_not_protect
    assert all(state in description.protects for state in description.states)
    assert description.chain_class == class_sentence(SYMBOLS.chains)
    assert description.useful_for is None
    assert describe(SYMBOLS.model_copy(update={"useful_for": "state"})).useful_for == "state"


def test_windows_have_the_names_of_their_states() -> None:
    windows = (
        Window(name="on", length=60, stride=60, states=(1,), scale="500"),
        Window(name="all", length=60, stride=30, states="histogram", scale="2000"),
    )
    description = describe(SYMBOLS.model_copy(update={"windows": windows, "windows_guarantee": SYMBOLS.guarantee}))
    assert description.kind == "both"
    assert [(window.name, window.states) for window in description.windows] == [
        ("on", (SYMBOLS.discretiser.states[1],)),
        ("all", "histogram"),
    ]
    assert description.windows_guarantee is not None
    alone = describe(SYMBOLS.model_copy(update={"windows": windows, "table": None, "windows_guarantee": None}))
    assert (alone.kind, alone.table, alone.windows_guarantee) == ("windows", None, None)


def test_a_known_cell_comes_back_within_its_cell() -> None:
    place = Description.decode(describe(PLACES).encode()).place
    classify = classifier_of(CELLS.model_dump())
    ticks = count()
    for state, (column, row) in enumerate(CELLS.cells):
        for east, north in ((100.0 * column, 100.0 * row), (100.0 * column + 49.0, 100.0 * row - 49.0)):
            latitude, longitude = place.measured_position(east, north)
            assert classify.observe(next(ticks), f"{latitude!r},{longitude!r}") == state
    assert place.position(0, 0) == pytest.approx((46.0005, 14.250625))
    east_metres, north_metres = place.metres(46.0)
    assert 100.0 * north_metres == pytest.approx(0.001 * 111_320)
    assert 100.0 * east_metres == pytest.approx(0.00125 * 111_320 * math.cos(math.radians(46.0)))


def test_a_place_beyond_the_pole_or_the_date_line_is_on_the_earth() -> None:
    place = describe(PLACES).place
    assert place.position(0, 1e9)[0] == 90.0
    assert place.position(0, -1e9)[0] == -90.0
    assert place.position(165.75 / 0.00125, 0)[1] == pytest.approx(-180.0 + 0.000625)


def test_measurements_that_are_not_of_the_cells_have_no_place() -> None:
    other = CELLS.model_copy(update={"cells": tuple((i // 3, i % 3) for i in range(9))})
    assert describe(measure_policy(3, discretiser=other, resolution=(100.0, 100.0))).place is None
    assert describe(SYMBOLS).place is None
    assert describe(PLACES).unit == "m"
    assert describe(PLACES).point_epsilon == PLACES.epsilon


def test_every_class_of_chains_has_a_sentence() -> None:
    assert "from 0.1 to 0.2, state 1 from 0.3 to 0.4" in class_sentence(BinaryChains(q=(0.1, 0.2), r=(0.3, 0.4)))
    assert describe(PLACES).chain_class == class_sentence(None)


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        *((payload, Reason.MALFORMED) for payload in (b"", b"{", b"\xff", b"[" * 5000, changed()[:-1])),
        (b"[]", Reason.WRONG_TYPE),
        (b" " * (MAX_DESCRIPTION_BYTES + 1), Reason.WRONG_LENGTH),
        (changed(more=1), Reason.WRONG_LENGTH),
        (changed(states=...), Reason.WRONG_LENGTH),
        (changed(states=["on"]), Reason.WRONG_LENGTH),
        (changed(states=["on", "on"]), Reason.OUT_OF_RANGE),
        (changed(states=["on", 1]), Reason.WRONG_TYPE),
        (changed(device="a/b"), Reason.OUT_OF_RANGE),
        (changed(device="+"), Reason.OUT_OF_RANGE),
        (changed(version=0), Reason.OUT_OF_RANGE),
        (changed(version=1.5), Reason.WRONG_TYPE),
        (changed(kind="raw"), Reason.OUT_OF_RANGE),
        (changed(epoch=0), Reason.WRONG_TYPE),
        (changed(epoch="2026-03-01"), Reason.OUT_OF_RANGE),
        (changed(period_seconds=0), Reason.OUT_OF_RANGE),
        (changed(period_seconds=1e300), Reason.OUT_OF_RANGE),
        (changed(table=[[1], [1, 2]]), Reason.OUT_OF_RANGE),
        (changed(table=[[1]]), Reason.OUT_OF_RANGE),
        (changed(table=[[-1], [1]]), Reason.OUT_OF_RANGE),
        (changed(useful_for="all"), Reason.OUT_OF_RANGE),
        (changed(guarantee={"epsilon": -1, "adversary": "informed", "stretches": []}), Reason.OUT_OF_RANGE),
        (changed(chains={"kind": "binary", "q": [0, 1], "r": [0.1, 0.2]}), Reason.OUT_OF_RANGE),
        (changed(format="fugu/3"), Reason.OUT_OF_RANGE),
    ],
)
def test_what_is_no_description_is_refused_by_what_is_wrong(payload: bytes, error: Reason) -> None:
    with refused_for(error) as refusal:
        Description.decode(payload)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) <= 300
