"""Costs of the edge: memory, start, and time per reading beside OpenDP, in one run.

Usage: python benchmarks/edge.py [--json]      (make bench installs the peer and a broker)
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from figures import show

from edge_agent.randomiser import randomiser, system_entropy
from firmware_sim.devices import simulate_recording
from fugu.contract.chains import BinaryChains
from fugu.contract.discretisers import Thresholds
from fugu.contract.frames import SymbolFrame
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.mqtt import Broker, Link
from fugu.privacy.randomised_response import calibrate
from fugu_cli.demo.processes import start_broker

sys.path.insert(0, str(Path(__file__).parents[1]))  # before packages that install a `tests` of their own

from tests.support.processes import write_device

READINGS = 50_000
ROUNDS = 7
EPSILON = 1.0
FORBIDDEN = ("numpy", "numba", "scipy", "pydantic", "typer", "rich")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = {**per_reading(), **running_agent()}
    show(figures, as_json=options.json)
    return 0


def per_reading() -> dict[str, float | str]:
    """Nanoseconds of processor time per reading, medians of interleaved rounds."""
    rows = ((round(0.73 * 2**32),), (round(0.27 * 2**32),))
    calls: dict[str, Callable[[int], object]] = {"fugu": randomiser(NoiseTable(rows), system_entropy())}
    calls.update(_peers())
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            count = READINGS if name == "fugu" else READINGS // 25
            start = time.process_time()
            for reading in range(count):
                call(reading & 1)
            times[name].append((time.process_time() - start) / count * 1e9)
    medians = {name: statistics.median(values) for name, values in times.items()}
    figures: dict[str, float | str] = {f"{name}: ns per reading": round(value) for name, value in medians.items()}
    for name in medians:
        if name != "fugu":
            figures[f"{name} / fugu"] = round(medians[name] / medians["fugu"], 1)
    return figures


def _peers() -> dict[str, Callable[[int], object]]:
    peers: dict[str, Callable[[int], object]] = {}
    try:
        import opendp.prelude as dp

        dp.enable_features("contrib")
        measurement = dp.m.make_randomized_response_bool(prob=0.73)
        peers["OpenDP randomized_response_bool"] = lambda state: measurement(bool(state))
    except ImportError as error:
        print(f"OpenDP is missing ({error}): make bench installs it", file=sys.stderr)
    return peers


def running_agent() -> dict[str, float | str]:
    """Memory of a running agent, and the time from its start to its first symbol at a subscriber."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with start_broker("auto", folder) as (port, broker):
            runs = [_run_agent(folder / str(i), Broker(port=port)) for i in range(ROUNDS)]
    return {
        "broker": broker,
        "start to first symbol at a subscriber: s (median)": round(statistics.median(r[0] for r in runs), 3),
        "start to first symbol at a subscriber: s (worst)": round(max(r[0] for r in runs), 3),
        "resident memory of the running agent: MB (worst)": round(max(r[1] for r in runs), 1),
        "peak memory of the running agent: MB (worst)": round(max(r[2] for r in runs), 1),
        "heavy modules loaded": ", ".join(sorted({m for r in runs for m in r[3]})) or "none",
    }


def _run_agent(folder: Path, broker: Broker) -> tuple[float, float, float, list[str]]:
    folder.mkdir()
    chains = BinaryChains(q=(0.08938, 0.08938), r=(0.10924, 0.10924))
    calibration = calibrate(chains, EPSILON)
    policy = Policy(
        fleet="bench",
        device=f"watch{folder.name}",
        stream="hr",
        version=1,
        clock=Clock(epoch_us=time.time_ns() // 1000, period_us=5000),
        frame_ticks=1,
        discretiser=Thresholds(edges=(0.5,), states=("low", "high")),
        table=calibration.table,
        chains=chains,
        guarantee=calibration.guarantee,
    )
    simulate_recording(folder / "readings.csv", policy, [0, 0, 1, 1] * 1000)
    config = write_device(folder, policy, folder / "readings.csv", "value", broker, loop=True, forget="puback")
    seen, arrived = threading.Event(), [0.0]

    def received(_topic: str, payload: bytes, _retained: bool) -> None:
        if SymbolFrame.decode(payload).symbols and not seen.is_set():
            arrived[0] = time.perf_counter()
            seen.set()

    subscribed = threading.Event()
    link = Link(
        broker,
        client_id=f"bench-{folder.name}",
        subscriptions=(f"fugu/2/bench/watch{folder.name}/symbols/hr",),
        on_connected=subscribed.set,
        on_message=received,
    )
    link.start()
    try:
        while not subscribed.wait(0.1):
            link.maintain()
        time.sleep(0.3)
        start = time.perf_counter()
        with subprocess.Popen([sys.executable, "-m", "edge_agent", str(config)]) as process:
            if not seen.wait(20):
                raise SystemExit("no symbol came")
            time.sleep(2.0)
            resident, peak = _memory(process.pid)
            heavy = _heavy_modules(process.pid)
            process.terminate()
    finally:
        link.stop()
    return arrived[0] - start, resident, peak, heavy


def _memory(pid: int) -> tuple[float, float]:
    """Resident and peak memory of a process, in MB."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024, int(fields["VmHWM"].split()[0]) / 1024


def _heavy_modules(pid: int) -> list[str]:
    """Heavy packages whose compiled parts a process has mapped."""
    mapped = Path(f"/proc/{pid}/maps").read_text()
    return [name for name in FORBIDDEN if f"{os.sep}{name}" in mapped]


if __name__ == "__main__":
    sys.exit(main())
