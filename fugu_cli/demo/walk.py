"""The walk: a map on the page, and real processes, of which a device and a gateway are stopped on the way."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from firmware_sim.devices import simulate_recording
from fugu.chains.arrays import Floats
from fugu.contract.errors import FuguError
from fugu.contract.measure_frames import MeasureFrame, Released
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.reports import SmoothedValue, ValueEstimate, decode_estimate
from fugu.contract.sentences import largest_posterior
from fugu.contract.topics import Topic, topic_of
from fugu.lanes import Lane, Look, Shape
from fugu.mqtt import Broker
from fugu.planning.measure_planner import make_measure_plan
from fugu.planning.measure_spec import read_spec
from fugu.planning.policy_builder import build_measure_policy
from fugu_cli.demo.page import Page, write_pictures
from fugu_cli.demo.processes import Device, Listener, Site, end, kill, start_site
from fugu_cli.view.terminal import say, show_table

__all__ = ["run"]

FLEET, DEVICE, STREAM = "demo", "phone", "place"
PERIOD_SECONDS = 0.05
_DOWN_SECONDS = 1.0
_LEAD_SECONDS = 8.0
"""Seconds from the policy to the first tick, in which gateway and device usually start."""
_STILL_SECONDS, _GIVEN_UP_SECONDS = 15.0, 60.0
"""Seconds without a point after which this is printed, and after which the demo ends."""
_MOST_TICKS = 20
"""Recorded ticks for each expected point. A machine that needs more ticks fails."""
_LEAST_POINTS = 20
_SHOWN = 20
"""The number of newest ticks on the map."""
_CELL, _RADIUS = 100, 2
SPECIFICATION = f"""\
# A walk over 10 x 10 cells of 100 m. At every tick it stays, or steps to a neighbouring cell, all equally likely.
# No released point is more than e times likelier in one cell than in another within two cells of it.
grid = "10x10"
resolution = {_CELL}.0
unit = "m"
epsilon = 1.0
graph = {{ radius = {_RADIUS} }}
initial = [{", ".join("0.25" if cell in (44, 45, 54, 55) else "0.0" for cell in range(100))}]  # sets out in the middle
delta = 0.02
fleet = "{FLEET}"
device = "{DEVICE}"
stream = "{STREAM}"
period = {PERIOD_SECONDS}
latency = {10 * PERIOD_SECONDS}
"""
_TITLE = "The walk is shared. Every place stays in doubt."
_SUB = (
    "Of its place, only the green points leave this phone. Somebody who is 50 % sure in which of two places up "
    f"to {_RADIUS * _CELL} m apart it is, gets at most 73 % sure by one point."
)
_NOT_HIDDEN = "the way as a whole: all points together show roughly where somebody is."


class _StoodStillError(FuguError):
    """No point has arrived for long; pictures show the points before."""


class Walk(NamedTuple):
    """The part of a walk that has arrived; places are in the policy's unit.

    `truth` (n, 2) has the true places of all ticks until now. Released points, and the gateway's estimates, are by
    tick. `later` are estimates that use later points as well.
    """

    policy: MeasurePolicy
    truth: Floats
    released: dict[int, Released]
    estimates: dict[int, ValueEstimate]
    later: dict[int, SmoothedValue]

    def points(self, ticks: Sequence[int]) -> list[tuple[float, ...]]:
        """Return the points that were released at some ticks, in the policy's unit."""
        scale = self.policy.resolution
        return [tuple(float(x * y) for x, y in zip(self.released[tick].point, scale, strict=True)) for tick in ticks]

    def error(self, places: dict[int, tuple[float, ...]]) -> float:
        """Return the root-mean-square distance of places, by tick, from the truth; NaN if there are none."""
        ticks = [tick for tick in places if tick < len(self.truth)]
        if not ticks:
            return float("nan")
        offsets = np.array([places[tick] for tick in ticks]) - self.truth[ticks]
        return float(np.sqrt((offsets**2).sum(axis=1).mean()))

    @property
    def errors(self) -> tuple[float, float, float]:
        """Three errors: of released points with an estimate, of these estimates, and of estimates with later points."""
        estimated_ticks = sorted(self.released.keys() & self.estimates.keys())
        return (
            self.error(dict(zip(estimated_ticks, self.points(estimated_ticks), strict=True))),
            self.error({tick: self.estimates[tick].values for tick in estimated_ticks}),
            self.error({tick: smoothed.values for tick, smoothed in self.later.items()}),
        )

    @property
    def share_inside(self) -> float:
        """The share of estimates whose ranges contain the true place."""
        estimates, truth = self.estimates, self.truth
        estimate_places = [(estimates[tick], truth[tick]) for tick in estimates if tick < len(truth)]
        return sum(
            all(low <= x <= high for low, x, high in zip(estimate.low, place.tolist(), estimate.high, strict=True))
            for estimate, place in estimate_places
        ) / max(1, len(estimate_places))


class _Listener(Listener):
    """A subscriber to the points of the device and the estimates of the gateway."""

    def __init__(self, broker: Broker, policy: MeasurePolicy, states: Sequence[int]) -> None:
        self._policy = policy
        self._places = np.array(policy.coordinates)[np.array(states)] * np.array(policy.resolution)
        self._walk = Walk(policy, self._places[:0], {}, {}, {})
        super().__init__(broker, *(topic_of(kind, FLEET, DEVICE, STREAM) for kind in ("symbols", "estimate")))

    def handle(self, topic: Topic, payload: bytes) -> None:
        """Handle points or an estimate."""
        if topic.kind == "symbols":
            frame = MeasureFrame.decode(payload)
            points = dict(enumerate(frame.released, frame.first))
            self._walk = self._walk._replace(released=self._walk.released | points)
        elif isinstance(estimate := decode_estimate(payload), ValueEstimate):
            later = self._walk.later | {smoothed.tick: smoothed for smoothed in estimate.smoothed}
            self._walk = self._walk._replace(estimates={**self._walk.estimates, estimate.tick: estimate}, later=later)

    def walk(self) -> Walk:
        """Return the part of the walk that has arrived."""
        self.link.maintain()
        ticks_passed = max(0, int((time.time() * 1e6 - self._policy.clock.epoch_us) // self._policy.clock.period_us))
        return self._walk._replace(truth=self._places[:ticks_passed])


def run(out: Path, seconds: float, broker: str, *, browser: bool) -> int:
    """Run the demo and write its pictures; return 1 if the walk stood still before all points had arrived.

    After a third of the points the device is killed, and is down for a second. After half of them the gateway is
    stopped for a second. On a slow machine ticks pass without a point, and the demo takes longer.

    The walk takes `seconds`, with a point expected every 50 ms. `out` is the folder for `place.toml`, `policy.json`,
    the picture, light and dark, and the processes' logs. FuguError: a process does not start or ends early, or fewer
    than 20 points arrive.
    """
    out.mkdir(parents=True, exist_ok=True)
    (out / "place.toml").write_text(SPECIFICATION)
    with Page(browser=browser) as page:
        page_words = {"title": _TITLE, "sub": _SUB, "about": "a simulated walk", "unhidden": _NOT_HIDDEN}
        page.show(**page_words, stage="planning the noise", maps=True)
        say("planning: policy graph, hull and fallback table ...")
        plan = make_measure_plan(read_spec(out / "place.toml"), "ignorant", quick=True)
        expected, failure = round(seconds / PERIOD_SECONDS), ""
        with start_site(FLEET, broker, out) as site:
            say(f"{site.broker_name} on port {site.broker.port}; a walk until {expected} points have arrived ...")
            policy = build_measure_policy(plan, epoch=round(time.time() + _LEAD_SECONDS, 3))
            (out / "policy.json").write_text(policy.to_json())
            states = _true_states(policy, expected * _MOST_TICKS)
            listener = site.stack.enter_context(_Listener(site.broker, policy, states))
            try:
                _Course(page, listener, site, _walker(site, policy, states), expected).run()
            except _StoodStillError as error:
                if len(listener.walk().released) < _LEAST_POINTS:
                    raise
                failure = str(error)
                say(f"{failure}; the picture is of what came before")
            walk = listener.walk()
        walk = walk._replace(truth=walk.truth[: 1 + max(walk.released)])
        write_pictures(out, "walk", "A walk: what stays, what leaves, and what others can say", _lanes(walk))
        show_table("a walk on 10 x 10 cells", ("", ""), _summary(walk))
        say(f"pictures are in {out}")
        if failure:
            say(f"missing: {failure}")
        page.draw(0, _lanes(walk))
        page.show(stage="the replay is over", ended=True, stalled=failure)
        page.stay()
    return 1 if failure else 0


def _true_states(policy: MeasurePolicy, ticks: int) -> list[int]:
    """Draw the true cells by tick, which only the device and this program know."""
    generator = random.Random(2026)
    states = generator.choices(range(len(policy.initial)), policy.initial)
    for _ in range(ticks - 1):
        next_states, weights = zip(*policy.transition[states[-1]], strict=True)
        states += generator.choices(next_states, weights)
    return states


def _walker(site: Site, policy: MeasurePolicy, states: list[int]) -> Device:
    """Write the files of the device that walks through true cells."""
    simulate_recording(site.folder / "walk.csv", policy, states)
    return site.device(
        policy,
        {"kind": "replay", "file": str(site.folder / "walk.csv"), "column": "value"},
        site.logs / "device.log",
        status_seconds=0.5,
        ceiling=1.0,
        measurement_ceiling=policy.epsilon,
        grace_seconds=0.0,
        drain_seconds=10.0,
    )


@dataclass
class _Course:
    """The processes of a walk, and the page that shows them."""

    page: Page
    listener: _Listener
    site: Site
    device: Device
    expected: int

    def run(self) -> None:
        """Run all processes until the expected points have arrived."""
        self.page.draw(0, _lanes(self.listener.walk(), self.expected))
        self.page.show(stage="starting a gateway and a device")
        with self.site.gateway():
            self.device.start()
            self._follow(self.expected // 3, "the device sends a point at every step")
            kill(self.device.process)
            self._follow(0, "the device was killed", _DOWN_SECONDS)
            self.device.start()
            self._follow(self.expected // 2, "the device has begun anew")
        self._follow(0, "the gateway was stopped", _DOWN_SECONDS)
        with self.site.gateway("gateway-2.log"):
            self._follow(self.expected, "both are back")
            if end(self.device.process, "the device", self.device.log) != 0:
                raise FuguError(f"the device ended with an error: see {self.device.log}")

    def _follow(self, point_count: int, stage: str, seconds: float = 0.0) -> None:
        """Draw arrivals until there are `point_count` points, and for at least `seconds`.

        FuguError: the device has ended. _StoodStillError: no point has arrived for long.
        """
        walk = self.listener.walk()
        clock, start_time = walk.policy.clock, time.monotonic()
        last_arrival = start_time + max(clock.epoch_us / 1e6 - time.time(), 0.0)
        deadline = last_arrival + self.expected * _MOST_TICKS * PERIOD_SECONDS
        previous_count, standstill = 0, ""
        while len(walk.released) < point_count or time.monotonic() < start_time + seconds:
            arrivals = len(walk.released)
            if not seconds and self.device.process.poll() is not None:
                raise FuguError(f"the device ended before {point_count} points arrived: see {self.device.log}")
            if arrivals > previous_count:
                previous_count, last_arrival, standstill = arrivals, time.monotonic(), ""
            silence = time.monotonic() - last_arrival
            arrival_words = f"{arrivals} of {self.expected} points have arrived"
            position = f"{arrival_words}, the device is process {self.device.process.pid}"
            if silence > _STILL_SECONDS and not standstill:
                standstill = f"the walk has stood still for {silence:.0f} s: {position}"
                say(standstill)
            if silence > _GIVEN_UP_SECONDS or time.monotonic() > deadline:
                position += f"; see the logs in {self.site.logs}"
                raise _StoodStillError(f"the walk stood still for {silence:.0f} s: {position}")
            self.page.draw(0, _lanes(walk, self.expected))
            self.page.show(stage=stage, done=arrivals / self.expected, stalled=standstill)
            time.sleep(0.2)
            walk = self.listener.walk()


def _lanes(walk: Walk, expected: int | None = None) -> list[Lane]:
    """Return three maps of the newest ticks: the true way, released points, and the gateway's estimate."""
    first_tick = max(0, len(walk.truth) - _SHOWN)
    recent_places = [tuple(place) for place in walk.truth[first_tick:].tolist()]
    truth_shape = Shape("line", "truth", recent_places)
    ticks = sorted(tick for tick in walk.released if tick >= first_tick)
    points = walk.points(ticks)
    _, estimate_error, _ = walk.errors
    estimate = walk.estimates[max(walk.estimates)] if walk.estimates else None
    point_count, span = len(walk.released), f"of the last {_SHOWN} steps"
    count_words = f"of {point_count if expected is None else expected:,} points"
    step_shapes = [Shape("line", "raw", recent_places), Shape("dots", "here", recent_places[-1:])]
    point_shapes = [truth_shape, Shape("dots", "point", points), Shape("dots", "point newest", points[-1:])]
    guess_shapes = [truth_shape] if estimate is None else [truth_shape, *_estimate_shapes(estimate)]
    certainty_text = f"{100 * largest_posterior(walk.policy.epsilon):.0f} %"
    promise_words = f"sure at most of one of two places up to {_RADIUS * _CELL} m apart, by one point; 50 % before"
    guess_words = "best guess from all points, with its 95 % ranges" + (
        f" · off by {estimate_error:.0f} m" if estimate_error == estimate_error else ""
    )
    points_header = f"points {span} · dashes: the truth, which does not leave"
    return [
        _map_lane(walk, "stays", f"{len(walk.truth):,}", "steps, on the device", f"the way {span}", step_shapes),
        _map_lane(walk, "leaves", f"{point_count:,}", count_words, points_header, point_shapes),
        _map_lane(walk, "attacker", certainty_text, promise_words, guess_words, guess_shapes),
    ]


def _map_lane(walk: Walk, look: Look, number_text: str, words: str, header: str, shapes: Sequence[Shape]) -> Lane:
    """Return a square map of all cells, with shapes on it."""
    policy = walk.policy
    scale = np.array(policy.resolution)
    places = np.array(policy.coordinates) * scale
    (west, south), (east, north) = (places.min(axis=0) - scale).tolist(), (places.max(axis=0) + scale).tolist()
    cells = [(x - scale[0] / 2, x + scale[0] / 2, y - scale[1] / 2, y + scale[1] / 2) for x, y in places.tolist()]
    clipped_shapes = [
        shape._replace(points=[(min(max(x, west), east), *rest) for x, *rest in shape.points]) for shape in shapes
    ]
    middle = float(places[:, 0].max() / 2)
    marks = [(0.0, "0"), (middle, f"{middle:g} {policy.unit}"), (2 * middle, f"{2 * middle:g}")]
    return Lane(
        *(look, look.title(), number_text, words, header, 0, (west, east), marks, (south, north), ()),
        [Shape("bars", "cell", cells), *clipped_shapes],
    )


def _estimate_shapes(estimate: ValueEstimate) -> list[Shape]:
    """Return the shapes of an estimate and its ranges, east and north."""
    (x, y), (west, south), (east, north) = estimate.values, estimate.low, estimate.high
    return [
        Shape("bars", "allowed", [(west, east, south, north)]),
        Shape("line", "guess", [(west, y), (east, y)]),
        Shape("line", "guess", [(x, south), (x, north)]),
        Shape("dots", "sure", [(x, y)]),
    ]


def _summary(walk: Walk) -> list[tuple[str, str]]:
    """Return the numbers of the demo as rows of names and values."""
    count_by_table = Counter(released_point.table for released_point in walk.released.values())
    first_sent_table = len(walk.policy.measure_tables)
    sent_counts = [count for table_number, count in count_by_table.items() if table_number >= first_sent_table]
    unit = walk.policy.unit
    hidden_counts = [estimate.protection for estimate in walk.estimates.values() if estimate.protection]
    point_error, estimate_error, smoothed_error = walk.errors
    return [
        ("ticks of the walk", f"{len(walk.truth)}"),
        ("points that arrived", f"{len(walk.released)}"),
        ("ticks while the device was down", f"{len(walk.truth) - len(walk.released)}"),
        ("drawn from the fallback table", f"{count_by_table[0]}"),
        ("drawn from tables that the gateway sent", f"{sum(sent_counts)}, from {len(sent_counts)} tables"),
        ("epsilon of a point, between cells of the policy graph", f"{walk.policy.epsilon:g}"),
        ("a possible cell is hidden among at least", f"{min(hidden_counts, default=0)} cells"),
        ("error of the released point (root mean square)", f"{point_error:.0f} {unit}"),
        ("error of the gateway's estimate", f"{estimate_error:.0f} {unit}"),
        ("error of its estimate when later points have come", f"{smoothed_error:.0f} {unit}"),
        ("truth inside the 95 % ranges", f"{100 * walk.share_inside:.0f} % of estimates"),
    ]
