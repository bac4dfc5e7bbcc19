"""Words of the page about a device's messages: with their noise, as the bytes that came, and where on the earth."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.descriptions import METRES_PER_DEGREE, Description, describe
from fugu.contract.discretisers import Cells
from fugu.contract.errors import StatusCode
from fugu.contract.frames import PolicyStatus, Status, StreamStatus, SymbolFrame, WindowFrame
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.reports import StateEstimate
from fugu.contract.sentences import instant
from fugu.contract.topics import parse_topic, topic_of
from fugu.contract.windows import Window
from gateway.page.attackers import answer
from gateway.page.device_view import DeviceView, placed_shares, placed_symbols, posterior_bounds
from tests.support.measured import measure_policy
from tests.support.processes import policy


def take_description(view: DeviceView, description: Description) -> None:
    payload = description.encode()
    assert view.take(parse_topic(topic_of("description", "home", "watch", description.stream)), payload) is not None


@pytest.mark.parametrize("scale", ["1/3", "7/3", "50", "400"])
def test_the_noise_of_a_count_is_within_its_range_with_95_percent_and_no_shorter_one_holds(scale: str) -> None:
    window = Window(name="high", length=20, stride=20, states=("high",), scale=scale)
    view = DeviceView()
    take_description(view, describe(policy(epoch_us=0, period_us=1_000_000).model_copy(update={"windows": (window,)})))
    payload = WindowFrame(1, "high", -1, 0, 0, 20, 18, (7,)).encode()
    update = view.take(parse_topic(topic_of("window", "home", "watch", "hr")), payload)
    assert (update["labels"], update["counts"], update["observed"], update["bytes"]) == (
        ("high",),
        (7,),
        18,
        payload.hex(),
    )
    assert update["time"] == "1970-01-01T00:00:20Z", "when it was over: nothing of it has left before"
    a = math.exp(-1 / Fraction(scale))
    inside = [
        (1 - a) / (1 + a) * (1 + 2 * sum(a**n for n in range(1, most + 1))) for most in range(update["noise"] + 1)
    ]
    assert inside[-1] >= 0.95
    assert all(probability < 0.95 for probability in inside[:-1])


def test_each_state_of_a_histogram_has_its_name_and_a_window_of_another_policy_has_none() -> None:
    window = Window(name="bars", length=20, stride=20, states="histogram", scale="5")
    view = DeviceView()
    take_description(view, describe(policy(epoch_us=0, period_us=1_000_000).model_copy(update={"windows": (window,)})))
    topic = parse_topic(topic_of("window", "home", "watch", "hr"))
    update = view.take(topic, WindowFrame(1, "bars", -1, 0, 0, 20, 20, (7, -2)).encode())
    assert update["labels"] == ("low", "high")
    update = view.take(topic, WindowFrame(2, "bars", 0, 1, 20, 20, 20, (7, -2)).encode())
    assert (update.get("noise"), update["time"]) == (None, None)


def test_a_point_is_in_the_cell_that_has_it_and_where_that_is() -> None:
    cells = tuple((i % 3, i // 3) for i in range(9))
    grid = Cells(origin=(46.0, 14.25), step=(0.001, 0.00125), cells=cells, states=tuple("abcdefghi"))
    view = DeviceView()
    take_description(view, describe(measure_policy(3, discretiser=grid, resolution=(100.0, 100.0), unit="m")))
    released = (Released(0, (0, 0)), Released(0, (2, 1)), Released(0, (-1, 0)))
    payload = MeasureFrame(1, -1, 0, 2, released).encode()
    update = view.take(parse_topic(topic_of("symbols", "home", "watch", "place")), payload)
    assert [place["state"] for place in update["newest"]] == ["a", "f", None]
    assert update["newest"][1]["latitude"] == pytest.approx(46.0015)
    assert update["newest"][1]["longitude"] == pytest.approx(14.253125)
    assert (update["points"], update["bytes"]) == ([[0, 0], [2, 1], [-1, 0]], payload.hex())
    (due,) = view.attacks_due()
    assert "reads points" in due(answer)["none"]


def test_statuses_are_among_what_left_it_and_whoever_comes_later_is_told_all() -> None:
    view = DeviceView()
    status = Status(True, "1.2", 3, (StatusCode.CLOCK,), (StreamStatus("hr", 4, 99),)).encode()
    policies = PolicyStatus(4, b"\x01\x02", "ceiling", "too much", 2, True).encode()
    first = view.take(parse_topic(topic_of("status", "home", "watch")), status, 12.0)
    second = view.take(parse_topic(topic_of("policy_status", "home", "watch")), policies, 13.0)
    assert (first["time"], first["size"], first["bytes"]) == ("1970-01-01T00:00:12Z", len(status), status.hex())
    assert (first["online"], first["codes"], first["streams"]) == (
        True,
        ["clock"],
        [{"name": "hr", "version": 4, "next": 99}],
    )
    assert (second["running"], second["judged"], second["detail"], second["stale"]) == (4, "0102", "too much", True)
    assert bytes.fromhex(second["bytes"]) == policies
    assert view.take(parse_topic(topic_of("status", "home", "watch")), b"") is None
    assert list(view) == [second, first]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_the_bounds_are_reached_and_never_left(epsilon: float) -> None:
    chains = BinaryChains(q=(0.1, 0.3), r=(0.2, 0.5))
    beliefs = []
    for i in range(11):
        for j in range(11):
            q, r = 0.1 + 0.02 * i, 0.2 + 0.03 * j
            for step in range(-10, 11):
                odds = q / r * math.exp(epsilon * step / 10)
                beliefs.append(odds / (1 + odds))
    assert posterior_bounds(chains, epsilon) == (pytest.approx(min(beliefs)), pytest.approx(max(beliefs)))


def test_a_promise_of_nothing_bounds_nothing() -> None:
    assert posterior_bounds(BinaryChains(q=(0.2, 0.2), r=(0.2, 0.2)), 1e4) == (0.0, 1.0)


ORIGIN, STEP = (46.0, 14.25), (0.001, 0.00125)
TWO = Cells(origin=ORIGIN, step=STEP, cells=((0, 0), (1, 0)), states=("west", "east"))
WATCH: Description = describe(policy(epoch_us=0, period_us=1_000_000).model_copy(update={"discretiser": TWO}))


@pytest.mark.parametrize("weights", [(0, 0, 0, 1, 5, 4, 0, 2, 88), (1,) * 9, (0, 0, 1, 0, 0, 0, 0, 0, 0)])
def test_cells_of_95_percent_lie_in_the_ellipse_on_the_earth(weights: tuple[int, ...]) -> None:
    nine, labels = [(i % 3, i // 3) for i in range(9)], tuple("abcdefghi")
    cells = Cells(origin=ORIGIN, step=STEP, cells=tuple(nine), states=labels)
    placed = placed_shares(
        describe(measure_policy(3, tables=False, discretiser=cells)), dict(zip(labels, weights, strict=True))
    )
    narrow = math.cos(math.radians(ORIGIN[0] + 1.5 * STEP[0]))
    turn = math.radians(placed["orientation"])

    def weight_inside(scale: float) -> int:
        return sum(weight for cell, weight in zip(nine, weights, strict=True) if is_inside(cell, scale))

    def is_inside(cell: tuple[int, int], scale: float) -> bool:
        for x, y in product((0, 1), repeat=2):
            east = (ORIGIN[1] + (cell[0] + x) * STEP[1] - placed["longitude"]) * METRES_PER_DEGREE * narrow
            north = (ORIGIN[0] + (cell[1] + y) * STEP[0] - placed["latitude"]) * METRES_PER_DEGREE
            along = east * math.sin(turn) + north * math.cos(turn)
            across = east * math.cos(turn) - north * math.sin(turn)
            if math.hypot(along / placed["semi_major"], across / placed["semi_minor"]) > scale:
                return False
        return True

    assert weight_inside(0.99) < 0.95 * sum(weights) <= weight_inside(1.001)


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
    assert (before[0]["newest"], before[1]["where"]) == ([], {})
    view.take(parse_topic(topic_of("description", "home", "watch", "hr")), WATCH.encode())
    after = (
        view.take(where, frame),
        view.take(parse_topic(topic_of("estimate", "home", "watch", "hr")), estimate.encode()),
    )
    assert [place["state"] for place in after[0]["newest"]] == ["west", "east", "east"]
    assert after[0]["newest"][1]["longitude"] == pytest.approx(ORIGIN[1] + 1.5 * STEP[1])
    assert after[0]["newest"][1]["latitude"] == pytest.approx(ORIGIN[0] + 0.5 * STEP[0])
    assert after[1]["where"]["cells"] == [0.1, 0.9]


def test_a_table_that_no_device_may_have_is_refused_and_not_attacked() -> None:
    view = DeviceView()
    description = describe(policy(epoch_us=0, period_us=1_000_000))
    topic = parse_topic(topic_of("description", "home", "watch", "hr"))
    assert view.take(topic, description.model_copy(update={"table": ((0,), (2**31,))}).encode()) is None
    assert (view.refused_count, view.attacks_due()) == (1, [])
    take_description(view, description)
    assert len(view.attacks_due()) == 1
