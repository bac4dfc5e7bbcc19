"""The second demo: a walk on a grid, of which nobody learns the cell; real processes, restarts and losses included."""

from __future__ import annotations

import random
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from firmware_sim.devices import AgentProcess, simulate_recording, write_device
from fugu.cli.demo.broker import start_broker
from fugu.cli.demo.location_report import html_report, read_walk, summary
from fugu.cli.demo.processes import STOP_SECONDS, DemoError, await_that, gateway, subscriber
from fugu.cli.view.terminal import say, show_table
from fugu.contract.measure_policy import MeasurePolicy
from fugu.mqtt import Broker
from fugu.planning.measure_planner import make_measure_plan
from fugu.planning.measure_spec import read_spec
from fugu.planning.policy_builder import MeasureHeader, build_measure_policy
from gateway.service.history import estimates_between

__all__ = ["SPECIFICATION", "run"]

FLEET, DEVICE, STREAM = "demo", "phone", "place"
PERIOD_SECONDS = 0.05
_DOWN_SECONDS = 1.0
_LEAD_SECONDS = 8.0
"""From the policy to the first tick: until then gateway and device have started, as a rule."""
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


def run(out: Path, seconds: float, broker: str) -> int:
    """Run the demo and write its report.

    After a third of the points the device is killed, and is down for a second; after half of them the same happens to
    the gateway. On a slow machine ticks pass without a point, and it takes longer.

    Args:
        out: folder for `place.toml`, `policy.json`, `report.html` and the processes' logs.
        seconds: so many seconds' points are to reach the subscriber, one in 50 ms.
        broker: "auto", "mosquitto" or "embedded".

    Raises:
        FuguError: if a process does not start, or ends early.
    """
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
            header = MeasureHeader(epoch=round(time.time() + _LEAD_SECONDS, 3))
            policy = build_measure_policy(plan, header)
            (out / "policy.json").write_text(policy.to_json())
            states = _walk(policy, points * _MOST_TICKS)
            _stream(stack, policy, states, place, out, port, points)
        estimates = estimates_between(place / "gateway.sqlite", DEVICE, STREAM)
        walk = read_walk(policy, states, place / "readings.jsonl", estimates)
    (out / "report.html").write_text(html_report(policy, walk, name))
    show_table("a walk on 10 x 10 cells", ("", ""), summary(policy, walk))
    say(f"report: {out / 'report.html'}")
    return 0


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
    config = write_device(
        folder / DEVICE, policy, folder / "walk.csv", "value", Broker(port=port, max_backoff=1), status_seconds=0.5
    )
    readings, store = folder / "readings.jsonl", folder / "gateway.sqlite"
    stack.enter_context(subscriber(port, FLEET, readings, out))

    def arrive(count: int) -> None:
        def enough() -> bool:
            if device.process.poll() is not None:
                raise DemoError(f"the device ended before {count} points arrived: see {out / 'device.log'}")
            return readings.read_text().count('"kind":"point"') >= count

        await_that(f"{count} points have arrived", enough, _LEAD_SECONDS + len(states) * PERIOD_SECONDS)

    with gateway(port, FLEET, folder, store, out / "gateway.log") as serving:
        device = AgentProcess(config, out / "device.log")
        stack.callback(lambda: device.process.kill())
        arrive(points // 3)
        device.kill()
        time.sleep(_DOWN_SECONDS)
        device = AgentProcess(config, out / "device.log")
        arrive(points // 2)
        serving.terminate()
        if serving.wait(STOP_SECONDS) != 0:
            raise DemoError(f"the gateway ended with an error: see {out / 'gateway.log'}")
    time.sleep(_DOWN_SECONDS)
    with gateway(port, FLEET, folder, store, out / "gateway-2.log"):
        arrive(points)
        if device.stop(STOP_SECONDS) != 0:
            raise DemoError(f"the device ended with an error: see {out / 'device.log'}")
