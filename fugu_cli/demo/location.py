"""The second demo: a walk on a grid, of which nobody learns the cell; real processes, restarts and losses included."""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np

from firmware_sim.devices import simulate_recording, write_config
from fugu.chains.arrays import Floats, Ints
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.mqtt import Broker
from fugu.planning.measure_planner import make_measure_plan
from fugu.planning.measure_spec import read_spec
from fugu.planning.policy_builder import build_measure_policy
from fugu.svg import points, svg
from fugu_cli.demo.processes import STOP_SECONDS, DemoError, gateway, start_broker, subscriber
from fugu_cli.view.terminal import say, show_table
from gateway.estimates.history import Row, ValueRow, estimates_between

__all__ = ["run"]


FLEET, DEVICE, STREAM = "demo", "phone", "place"
PERIOD_SECONDS = 0.05
_DOWN_SECONDS = 1.0
_LEAD_SECONDS = 8.0
"""From the policy to the first tick: until then gateway and device have started, as a rule."""
_STILL_SECONDS, _GIVEN_UP_SECONDS = 15.0, 60.0
"""If no point arrives for so long, that is said, and then the report is written of what came."""
_MOST_TICKS = 20
"""Ticks of the recording for each point that is to arrive: a machine that is slower than that has no demo."""
SPECIFICATION = f"""\
# A walk over 10 x 10 cells of 100 m. At every tick it stays, or steps to a neighbouring cell, all equally likely.
# No released point is more than e times likelier in one cell than in another within two cells of it.
grid = "10x10"
resolution = 100.0
unit = "m"
epsilon = 1.0
graph = {{ radius = 2 }}
initial = [{", ".join("0.25" if cell in (44, 45, 54, 55) else "0.0" for cell in range(100))}]  # sets out in the middle
delta = 0.02
fleet = "{FLEET}"
device = "{DEVICE}"
stream = "{STREAM}"
period = {PERIOD_SECONDS}
latency = {10 * PERIOD_SECONDS}
"""


def _write_device(
    folder: Path,
    policy: AnyPolicy,
    recording: Path,
    column: str,
    broker: Broker,
    *,
    loop: bool = False,
    ceiling: float | None = None,
    **options: object,
) -> Path:
    """Write the configuration of one device, in its own folder; its tick t reads row t of the recording.

    The ceiling is the largest epsilon that the device accepts, by default the policy's own; for measurements it is that
    of one released point. `options` are further keys of the file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "policy.json").write_text(policy.to_json())
    epsilon = policy.guarantee.epsilon if isinstance(policy, Policy) else policy.epsilon
    kind = "ceiling" if isinstance(policy, Policy) else "measurement_ceiling"
    usual = {"fleet": policy.fleet, "device": policy.device, "outbox": "outbox.sqlite", "ceiling": 1.0}
    usual |= {"drain_seconds": 10.0, "grace_seconds": 0.0, kind: epsilon if ceiling is None else ceiling}
    sensor: dict[str, object] = {"kind": "replay", "file": str(recording.resolve()), "column": column, "loop": loop}
    return write_config(folder, {**usual, **options}, broker, {"policy.json": sensor})


class _AgentProcess:
    """The real agent in a process of its own."""

    def __init__(self, config: Path, log: Path) -> None:
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "edge_agent", str(config)], stdout=output, stderr=output
            )

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, timeout: float = 30.0) -> int:
        """End it in order; returns its exit code."""
        self.process.terminate()
        return self.process.wait(timeout)


class _StoodStillError(DemoError):
    """Nothing moves any more; the report is of what came before."""


def run(out: Path, seconds: float, broker: str) -> int:
    """Run the demo and write its report; returns 1 if the walk stood still before all points had arrived.

    After a third of the points the device is killed, and is down for a second; after half of them the same happens to
    the gateway. On a slow machine ticks pass without a point, and it takes longer.

    Args:
        out: folder for `place.toml`, `policy.json`, `report.html` and the processes' logs.
        seconds: so many seconds' points are to reach the subscriber, one in 50 ms.
        broker: "auto", "mosquitto" or "embedded".

    Raises:
        FuguError: if a process does not start, or ends early, or next to nothing has come.
    """
    missing = ""
    out.mkdir(parents=True, exist_ok=True)
    (out / "place.toml").write_text(SPECIFICATION)
    say("planning: policy graph, hull and fallback table ...")
    plan = make_measure_plan(read_spec(out / "place.toml"), "ignorant", quick=True)
    with tempfile.TemporaryDirectory(prefix="fugu-demo-") as folder:
        place = Path(folder)
        with ExitStack() as stack:
            port, name = stack.enter_context(start_broker(broker, out))
            points = round(seconds / PERIOD_SECONDS)
            say(f"{name} on port {port}; a walk until {points} points have arrived ...")
            policy = build_measure_policy(plan, epoch=round(time.time() + _LEAD_SECONDS, 3))
            (out / "policy.json").write_text(policy.to_json())
            states = _walk(policy, points * _MOST_TICKS)
            try:
                _stream(stack, policy, states, place, out, port, points)
            except _StoodStillError as error:
                if (place / "readings.jsonl").read_text().count('"kind":"point"') < _LEAST_TICKS:
                    raise
                missing = str(error)
                say(f"{missing}; the report is of what came before")
        estimates = estimates_between(place / "gateway.sqlite", DEVICE, STREAM)
        walk = read_walk(policy, states, place / "readings.jsonl", estimates)
    (out / "report.html").write_text(html_report(policy, walk, name, missing))
    show_table("a walk on 10 x 10 cells", ("", ""), summary(policy, walk))
    say(f"report: {out / 'report.html'}")
    if missing:
        say(f"missing: {missing}")
    return 1 if missing else 0


def _walk(policy: MeasurePolicy, ticks: int) -> list[int]:
    """The true cells, which only the device and the report know."""
    generator = random.Random(2026)
    states = generator.choices(range(len(policy.initial)), policy.initial)
    for _ in range(ticks - 1):
        following, weights = zip(*policy.transition[states[-1]], strict=True)
        states += generator.choices(following, weights)
    return states


def _stream(
    stack: ExitStack, policy: MeasurePolicy, states: list[int], folder: Path, out: Path, port: int, points: int
) -> None:
    """Run all processes until so many points have arrived."""
    (folder / "policies").mkdir()
    (folder / "policies" / "place.json").write_text(policy.to_json())
    simulate_recording(folder / "walk.csv", policy, states)
    config = _write_device(
        folder / DEVICE, policy, folder / "walk.csv", "value", Broker(port=port, max_backoff=1), status_seconds=0.5
    )
    readings, store = folder / "readings.jsonl", folder / "gateway.sqlite"
    stack.enter_context(subscriber(port, FLEET, readings, out))

    def arrive(count: int) -> None:
        moved = time.monotonic() + max(policy.clock.epoch_us / 1e6 - time.time(), 0.0)
        end = moved + len(states) * PERIOD_SECONDS
        before, named = 0, False
        while (arrived := readings.read_text().count('"kind":"point"')) < count:
            if device.process.poll() is not None:
                raise DemoError(f"the device ended before {count} points arrived: see {out / 'device.log'}")
            if arrived > before:
                before, moved, named = arrived, time.monotonic(), False
            still = time.monotonic() - moved
            where = f"{arrived} of {points} points have arrived, the device is process {device.process.pid}"
            if still > _STILL_SECONDS and not named:
                named = True
                say(f"the walk has stood still for {still:.0f} s: {where}")
            if still > _GIVEN_UP_SECONDS or time.monotonic() > end:
                raise _StoodStillError(f"the walk stood still for {still:.0f} s: {where}; see the logs in {out}")
            time.sleep(0.1)

    with gateway(port, FLEET, folder, store, out / "gateway.log") as serving:
        device = _AgentProcess(config, out / "device.log")
        stack.callback(lambda: device.process.kill())
        arrive(points // 3)
        device.kill()
        time.sleep(_DOWN_SECONDS)
        device = _AgentProcess(config, out / "device.log")
        arrive(points // 2)
        serving.terminate()
        try:
            code = serving.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise _StoodStillError(f"the gateway did not end: see {out / 'gateway.log'}") from None
        if code != 0:
            raise DemoError(f"the gateway ended with an error: see {out / 'gateway.log'}")
    time.sleep(_DOWN_SECONDS)
    with gateway(port, FLEET, folder, store, out / "gateway-2.log"):
        arrive(points)
        try:
            code = device.stop(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise _StoodStillError(f"the device did not end: see {out / 'device.log'}") from None
        if code != 0:
            raise DemoError(f"the device ended with an error: see {out / 'device.log'}")


_CELL = 24
_ELLIPSE = math.sqrt(-2.0 * math.log(0.05))
"""Half-axes of the ellipse that holds 95 % of a normal distribution in the plane, in standard deviations."""
_LEAST_TICKS = 20
_STYLE = """<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}
.maps{display:flex;flex-wrap:wrap;gap:1rem}figure{margin:0}figcaption{font-size:13px;color:#555}
</style>"""


class Walk(NamedTuple):
    """One walk, tick by tick; NaN where nothing arrived. All places are in the policy's unit.

    Attributes:
        truth: (n, 2) the true measurement.
        released: (n, 2) the released point.
        tables: (n,) the table that it was drawn from, -1 for none.
        means: (n, 2) the gateway's estimate.
        covariances: (n, 2, 2) of it.
        protection: (n,) the least number of cells that any one was hidden among.
        later: (n, 2) the gateway's estimate some ticks later.
    """

    truth: Floats
    released: Floats
    tables: Ints
    means: Floats
    covariances: Floats
    protection: Ints
    later: Floats

    def error(self, places: Floats) -> float:
        """Root-mean-square distance from the truth, where a place is known."""
        return float(np.sqrt(np.nanmean(np.sum((places - self.truth) ** 2, axis=1))))

    def inside(self) -> float:
        """How often the truth lay in the estimate's 95 % ellipse."""
        known = np.flatnonzero(~np.isnan(self.means[:, 0]))
        away = self.truth[known] - self.means[known]
        spread = self.covariances[known] + 1e-9 * np.eye(2)
        distances = np.einsum("ti,tij,tj->t", away, np.linalg.inv(spread), away)
        return float((distances <= _ELLIPSE**2).mean())


def read_walk(policy: MeasurePolicy, states: Sequence[int], readings: Path, estimates: Iterable[Row]) -> Walk:
    """Put together what the subscriber has printed, and what the gateway knows, up to the last tick with a point.

    Raises:
        DemoError: next to nothing arrived.
    """
    lines = [json.loads(line) for line in readings.read_text().splitlines()]
    count = min(len(states), 1 + max((line["tick"] for line in lines if line["kind"] == "point"), default=0))
    scale = np.array(policy.resolution)
    walk = Walk(
        np.array(policy.coordinates)[np.array(states[:count])] * scale,
        np.full((count, 2), np.nan),
        np.full(count, -1),
        np.full((count, 2), np.nan),
        np.full((count, 2, 2), np.nan),
        np.zeros(count, dtype=np.int64),
        np.full((count, 2), np.nan),
    )
    for reading in lines:
        if reading["kind"] == "point" and (tick := reading["tick"]) < count:
            walk.released[tick], walk.tables[tick] = np.array(reading["point"]) * scale, reading["table"]
    for row in estimates:
        if not isinstance(row, ValueRow) or row.tick >= count:
            continue
        if row.lag:
            walk.later[row.tick] = row.mean
        else:
            (a, b, c) = row.covariance
            walk.means[row.tick], walk.covariances[row.tick] = row.mean, np.array([[a, b], [b, c]])
            walk.protection[row.tick] = row.protection
    if (walk.tables >= 0).sum() < _LEAST_TICKS:
        raise DemoError("next to no released point reached the subscriber")
    return walk


def summary(policy: MeasurePolicy, walk: Walk) -> list[tuple[str, str]]:
    """Names and values of what the demo shows."""
    seen = walk.tables >= 0
    tables = Counter(walk.tables[seen].tolist())
    numbers = [number for number in tables if number >= len(policy.measure_tables)]
    sent = sum(tables[number] for number in numbers)
    unit = policy.unit
    hidden = walk.protection[seen & (walk.protection > 0)]
    released = np.where(np.isnan(walk.means), np.nan, walk.released)
    return [
        ("ticks of the walk", f"{len(walk.tables)}"),
        ("points that reached the subscriber", f"{seen.sum()}"),
        ("ticks while the device was down", f"{(~seen).sum()}"),
        ("drawn from the fallback table", f"{tables[0]}"),
        ("drawn from other tables of the policy", f"{seen.sum() - tables[0] - sent}"),
        ("drawn from tables that the gateway sent", f"{sent}, from {len(numbers)} tables"),
        ("epsilon of a point, between cells of the policy graph", f"{policy.epsilon:g}"),
        ("a possible cell is hidden among at least", f"{hidden.min() if len(hidden) else 0} cells"),
        ("error of the released point (root mean square)", f"{walk.error(released):.0f} {unit}"),
        ("error of the gateway's estimate", f"{walk.error(walk.means):.0f} {unit}"),
        ("error of its estimate when later points have come", f"{walk.error(walk.later):.0f} {unit}"),
        ("truth inside the 95 % ellipse", f"{100 * walk.inside():.0f} % of ticks"),
    ]


def map_picture(policy: MeasurePolicy, walk: Walk, tick: int) -> str:
    """The map at one tick: the true cell, the released point, the estimate with its ellipse, and the way there."""
    scale = np.array(policy.resolution)
    places = np.array(policy.coordinates)
    low, high = places.min(axis=0) - 1, places.max(axis=0) + 1
    width, height = ((high - low) * _CELL).tolist()

    def at(place: Floats) -> tuple[float, float]:
        x, y = (place / scale - low) * _CELL
        return float(x), height - float(y)

    parts = [f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for place in places * scale:
        x, y = at(place)
        parts.append(
            f'<rect x="{x - _CELL / 2:.1f}" y="{y - _CELL / 2:.1f}" width="{_CELL}" height="{_CELL}" '
            'fill="#f5f7f9" stroke="#d5dbe0"/>'
        )
    way = points(at(place) for place in walk.truth[max(0, tick - 20) : tick + 1])
    parts.append(f'<polyline points="{way}" fill="none" stroke="#aab3ba" stroke-width="1.5"/>')
    if not np.isnan(walk.means[tick, 0]):
        spread, turn = np.linalg.eigh(walk.covariances[tick] / np.outer(scale, scale))
        radii = _ELLIPSE * np.sqrt(np.maximum(spread, 0.0)) * _CELL
        x, y = at(walk.means[tick])
        angle = -math.degrees(math.atan2(turn[1, 1], turn[0, 1]))
        parts.append(
            f'<ellipse cx="0" cy="0" rx="{radii[1]:.1f}" ry="{radii[0]:.1f}" fill="#0a7d5a" fill-opacity=".12" '
            f'stroke="#0a7d5a" transform="translate({x:.1f} {y:.1f}) rotate({angle:.1f})"/>'
        )
        parts.append(f'<path d="M{x - 5:.1f} {y:.1f}h10M{x:.1f} {y - 5:.1f}v10" stroke="#0a7d5a" stroke-width="2"/>')
    if walk.tables[tick] >= 0:
        x, y = at(walk.released[tick])
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="none" stroke="#c0392b" stroke-width="2"/>')
    x, y = at(walk.truth[tick])
    parts.append(f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" fill="#222"/>')
    return svg(f"tick {tick}", (width, height), parts, shown=f'width="{width}"')


def html_report(policy: MeasurePolicy, walk: Walk, broker: str, missing: str = "") -> str:
    """The report, one page without anything to load."""
    known = np.flatnonzero((walk.tables >= 0) & ~np.isnan(walk.means[:, 0]))
    chosen = known[np.linspace(0, len(known) - 1, 6).astype(int)].tolist() if len(known) else []
    maps = "".join(
        f"<figure>{map_picture(policy, walk, tick)}<figcaption>tick {tick}, "
        f"{'fallback table' if walk.tables[tick] == 0 else f'table {walk.tables[tick]}'}</figcaption></figure>"
        for tick in chosen
    )
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in summary(policy, walk))
    stood = f"<p><strong>Not the whole walk:</strong> {escape(missing)}.</p>" if missing else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Fugu Edge: a private walk</title>{_STYLE}'
        "<h1>A private walk</h1>"
        "<p>A device walks over 10 x 10 cells and releases a point at every tick. What the point may tell between two "
        "cells that the policy graph joins is bounded; the device has checked that for every table that it drew "
        "from. The gateway knows how people walk, and makes the most likely place of the points: as anybody may who "
        f"sees them, at no cost. Everything ran as processes of its own over {escape(broker)}; the device and the "
        f"gateway were each stopped for a second on the way.</p>{stood}"
        "<p>Black square: the true cell, which never left the device. Red ring: the point that was released. Green "
        "cross and ellipse: the estimate, and where it expects the truth in 95 of 100 cases. Grey: the last 20 "
        f'steps.</p><div class="maps">{maps}</div><h2>In numbers</h2><table>{rows}</table></html>'
    )
