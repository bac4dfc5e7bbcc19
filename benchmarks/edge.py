"""Costs of the edge: memory, start, and time per reading beside OpenDP, in one run.

Usage: python benchmarks/edge.py [--json]      (make bench installs the peer and a broker)
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from agents import write_agent
from figures import command_line, show
from gateways import FLEET, STREAM
from processes import memory, started

from edge_agent.randomiser import randomiser, system_entropy
from fugu.contract.frames import SymbolFrame
from fugu.contract.noise_table import NoiseTable
from fugu.contract.topics import topic_of
from fugu.mqtt import Broker, Link
from fugu_cli.demo.processes import start_broker

READINGS = 50_000
ROUNDS = 7
FORBIDDEN = ("numpy", "numba", "scipy", "pydantic", "typer", "rich")


def main() -> None:
    """Measure and print."""
    options = command_line(__doc__).parse_args()
    show({**per_reading(), **running_agent()}, as_json=options.json)


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
    ratios = {f"{name} / fugu": round(value / medians["fugu"], 1) for name, value in medians.items() if name != "fugu"}
    return figures | ratios


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


_AGENT = "import sys; sys.modules['socks'] = None; from edge_agent.__main__ import main; sys.exit(main())"
"""An agent as on a device, which has no PySocks."""


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
    device = f"watch{folder.name}"
    config = write_agent(folder, broker, device, 1, time.time_ns() // 1000, 5000, forget="puback")
    seen, arrived = threading.Event(), [0.0]

    def received(_topic: str, payload: bytes, _retained: bool) -> None:
        if SymbolFrame.decode(payload).symbols and not seen.is_set():
            arrived[0] = time.perf_counter()
            seen.set()

    subscribed = threading.Event()
    link = Link(
        broker,
        client_id=f"bench-{folder.name}",
        subscriptions=(topic_of("symbols", FLEET, device, STREAM),),
        on_connected=subscribed.set,
        on_message=received,
    )
    link.start()
    try:
        while not subscribed.wait(0.1):
            link.maintain()
        time.sleep(0.3)
        start = time.perf_counter()
        with started("-c", _AGENT, config) as process:
            if not seen.wait(20):
                raise SystemExit("no symbol came")
            time.sleep(2.0)
            resident, peak = (memory(process.pid, name) / 2**20 for name in ("VmRSS", "VmHWM"))
            mapped = Path(f"/proc/{process.pid}/maps").read_text()
    finally:
        link.stop()
    return arrived[0] - start, resident, peak, [name for name in FORBIDDEN if f"{os.sep}{name}" in mapped]


if __name__ == "__main__":
    main()
