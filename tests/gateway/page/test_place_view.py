"""Where the page says that something may be: in latitude and longitude, with a probability that adds up."""

from __future__ import annotations

import pytest

from fugu.contract.descriptions import Description, describe
from fugu.contract.discretisers import Cells
from fugu.contract.frames import SymbolFrame
from fugu.contract.reports import StateEstimate
from fugu.contract.sentences import instant
from fugu.contract.topics import parse_topic, topic_of
from gateway.page.device_view import DeviceView, placed_shares, placed_symbols
from tests.support.processes import policy

ORIGIN, STEP = (46.0, 14.25), (0.001, 0.00125)
TWO = Cells(origin=ORIGIN, step=STEP, cells=((0, 0), (1, 0)), states=("west", "east"))
WATCH: Description = describe(policy(epoch_us=0, period_us=1_000_000).model_copy(update={"discretiser": TWO}))


def test_what_has_no_place_is_said_and_not_drawn() -> None:
    """A state without a cell, `missing` say, has a share, and no place."""
    away = WATCH.model_copy(update={"states": ("west", "east", "missing"), "table": None})
    placed = placed_shares(away, {"west": 0.6, "east": 0.0, "missing": 0.4})
    assert placed["cells"] == [0.6, 0.0]
    assert placed["placed"] == pytest.approx(0.6)
    assert (placed["latitude"], placed["longitude"]) == pytest.approx(
        (ORIGIN[0] + STEP[0] / 2, ORIGIN[1] + STEP[1] / 2)
    )
    assert placed_shares(away, {"west": 0.0, "east": 0.0, "missing": 1.0}) == {}
    assert placed_shares(away, {"west": 1.0}) == {}
    assert placed_shares(None, {"west": 1.0}) == {}
    assert placed_symbols(None, [0]) == []


def test_symbols_and_estimates_of_cells_are_placed_when_the_stream_is_described() -> None:
    view, frame = DeviceView(), SymbolFrame(1, -1, 0, bytes([0, 1, 1])).encode()
    where = parse_topic(topic_of("symbols", "home", "watch", "hr"))
    estimate = StateEstimate(
        instant(9), instant(1), 9, 3, "east", 0.9, {"west": 0.1, "east": 0.9}, 1.0, "universal", True
    )
    before = (
        view.take(where, frame),
        view.take(parse_topic(topic_of("estimate", "home", "watch", "hr")), estimate.encode()),
    )
    assert before[0] is not None
    assert before[1] is not None
    assert (before[0]["newest"], before[1]["where"]) == ([], {})
    view.take(parse_topic(topic_of("description", "home", "watch", "hr")), WATCH.encode())
    after = (
        view.take(where, frame),
        view.take(parse_topic(topic_of("estimate", "home", "watch", "hr")), estimate.encode()),
    )
    assert after[0] is not None
    assert after[1] is not None
    assert [place["state"] for place in after[0]["newest"]] == ["west", "east", "east"]
    assert after[0]["newest"][1]["longitude"] == pytest.approx(ORIGIN[1] + 1.5 * STEP[1])
    assert after[0]["newest"][1]["latitude"] == pytest.approx(ORIGIN[0] + 0.5 * STEP[0])
    assert after[1]["where"]["cells"] == [0.1, 0.9]
