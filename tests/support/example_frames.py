"""One message of a kind, whose bytes are in the golden files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fugu.contract.envelope import Envelope, Signature
from fugu.contract.frames import Committed, PolicyStatus, Status, SymbolFrame, WindowFrame
from fugu.contract.group_frames import OPENING_KEY_BYTES, OpeningAnswer, OpeningKey, Report, SealedMasks
from fugu.contract.measure_frames import MeasureFrame
from fugu.contract.measure_table import TimedTable
from fugu.contract.reports import (
    AlarmCode,
    Health,
    HealthAlarm,
    PlaceEstimate,
    ReleaseFrame,
    StateEstimate,
    ValueEstimate,
    WindowCount,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "frames"

SYMBOL_FRAME = SymbolFrame(7, 99, 104, bytes([0, 1, 3, 1, 2]), 2, bits=2, shift=64)
RELEASE_FRAME = ReleaseFrame(
    name="active",
    stream="hr",
    audience="public",
    query="histogram",
    states=("low", "high"),
    devices=3,
    first=7200,
    length=3600,
    observed=10790,
    values=(0.1 + 0.2, -4.5),
    standard_errors=(1.5, 2.5),
    low=(-3.0, -9.0),
    high=(4.0, 1.0),
    unit="ticks",
    confidence=0.95,
    epsilon=0.1,
    adversary="universal",
    stretch_ticks=61,
    mechanism="mqm-exact",
    noise="discrete-laplace",
    scale="41/2",
    charge=0.0487654321,
    entry=12,
    time=datetime(2026, 3, 1, 3, tzinfo=UTC),
    since=datetime(2026, 3, 1, 2, tzinfo=UTC),
    useful=True,
    helper="",
    honest=0,
)
_TIME = datetime(2026, 3, 1, 7, 30, 0, 250_000, UTC)
STATE_ESTIMATE = StateEstimate(
    time=_TIME,
    since=_TIME.replace(minute=29, second=1),
    tick=27_000,
    ticks=60,
    state="on",
    probability=0.9,
    shares={"off": 0.25, "on": 0.75},
    epsilon=1.0,
    adversary="informed",
    useful=True,
)
PLACE_ESTIMATE = PlaceEstimate(_TIME, 27_000, 46.05, 14.5, 174.0, 180.5, 90.0, 45.0, 12, 8.0, "universal", True)
VALUE_ESTIMATE = ValueEstimate(_TIME, 27_000, (20.5,), (19.0,), (22.0,), "C", 3, None, "universal", False)
VECTOR_ESTIMATE = ValueEstimate(_TIME, 27_000, (1.5, 2.0), (0.5, 1.0), (2.5, 3.0), "m", 4, 8.0, "universal", False)
COUNT = WindowCount(
    time=_TIME,
    since=_TIME.replace(hour=6),
    window="hourly",
    states=("on", "opening"),
    values=(-3.0,),
    low=(-50.0,),
    high=(44.0,),
    confidence=0.95,
    observed=3600,
    unit="ticks",
    epsilon=1.0,
    adversary="informed",
    useful=True,
)
HISTOGRAM = replace(
    COUNT, window="states", states=("off", "on"), values=(3000.0, 597.0), low=(2950.0, 547.0), high=(3050.0, 647.0),
    useful=False,
)  # fmt: skip
REPORTS = {
    "state_estimate": STATE_ESTIMATE,
    "place_estimate": PLACE_ESTIMATE,
    "value_estimate": VALUE_ESTIMATE,
    "vector_estimate": VECTOR_ESTIMATE,
    "count": COUNT,
    "histogram": HISTOGRAM,
}
SEALED = SealedMasks("watch", b"o" * 32, b"m" * 32, b"c" * 1144, b"s" * 64)
REPORT = Report(7, "street", 3, 5, b"d" * 32, (60,), bytes(range(248, 256)), SEALED)
OPENING_KEY = OpeningKey("home", "street", 1_772_323_200_000, b"k" * OPENING_KEY_BYTES)
OPENING_ANSWER = OpeningAnswer("home", "street", b"d" * 32, 5, b"r" * 32, "", b"\xc0", bytes(8))
HEALTH = Health(True, 20, 10, 5, 4, 100, 7, (HealthAlarm(AlarmCode.SILENT, 5, 2, ("watch",), 3, "look"),))
ENVELOPE = Envelope("policy", b"{}", (Signature(b"k" * 16, b"s" * 64),)).encode()


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / f"{name}.hex").read_text())


PACKED: list[tuple[str, bytes, Callable[[bytes], Any]]] = [
    ("SymbolFrame", golden("symbols"), SymbolFrame.decode),
    ("MeasureFrame", golden("measure"), MeasureFrame.decode),
    ("WindowFrame", golden("window"), WindowFrame.decode),
    ("Status", golden("status"), Status.decode),
    ("Committed", golden("committed_tagged"), Committed.decode),
    ("TimedTable", golden("table"), TimedTable.decode),
    ("TimedTable", golden("table_staircase"), TimedTable.decode),
    ("Envelope", ENVELOPE, Envelope.decode),
    ("PolicyStatus", PolicyStatus(3, b"12345678", "pinned", "no", 2, False).encode(), PolicyStatus.decode),
]
