"""Bytes and forced writes of a device for each frame: an agent at 1 Hz with frames of 100 ticks, on a real disk.

The agent's own program runs on a clock that skips what it would wait for, so that an hour takes seconds. Bytes are
those of /proc/self/io; those that reach the disk are whole pages of 4 kB. Flushes are the calls of fsync and fdatasync
that strace sees. Both are of an hour in the middle, after the first frame, or of a day. Where the gateway is there,
frames are covered as soon as they are sealed.

Usage: python benchmarks/wear.py [--json] [--folder DISK]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from agents import write_agent
from figures import command_line, say_machine

from edge_agent.agent import Agent
from edge_agent.config import load
from edge_agent.device_clock import SystemClock
from edge_agent.outbox import Outbox
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.sharing import open_sensors
from fugu.host.process import Wake
from fugu.mqtt import Broker

TICKS = 100
HOUR = 3600
BEFORE = {
    "before (6a57d52), an hour, gateway there": (1.58, 875.75, 857.93),
    "before (6a57d52), an hour, gateway away": (1.58, 867.56, 849.69),
}
"""The same hour of the agent that committed every tick, and wrote a file of its status every 30 s: measured once."""
CASES = {
    "an hour, gateway there": ("frame", 0.0, True, HOUR),
    "an hour, gateway there, its word not authenticated": ("frame", 3600.0, True, HOUR),
    "an hour, gateway away": ("frame", 0.0, False, HOUR),
    "a day, gateway there": ("frame", 0.0, True, 24 * HOUR),
    "a day, gateway away": ("frame", 0.0, False, 24 * HOUR),
    'an hour, gateway there, durability = "tick"': ("tick", 0.0, True, HOUR),
}


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__)
    parser.add_argument("--folder", help="where the outbox is: on the disk to measure")
    parser.add_argument("--child", nargs=2, metavar=("CASE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run_agent(options.child[0], Path(options.child[1]))))
        return
    say_machine()
    figures = {**BEFORE, **{case: measured(case, options.folder) for case in CASES}}
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    print(f"{'a frame of 100 ticks, on the average':55} flushes  written kB  asked to write kB")
    for case, (flushes, written, asked) in figures.items():
        counted = "   -   " if flushes is None else f"{flushes:7.2f}"
        print(f"{case:55} {counted} {written:11.2f} {asked:18.2f}")


def measured(case: str, where: str | None) -> tuple[float | None, float, float]:
    """Flushes, kB that reach the disk and kB that are written to files, each a frame; no flushes without strace."""
    frames = CASES[case][3] / TICKS
    with tempfile.TemporaryDirectory(dir=where) as name:
        folder = Path(name)
        command = [sys.executable, __file__, "--child", case, name]
        answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        flushes = None
        if shutil.which("strace"):
            for file in folder.iterdir():
                file.unlink()
            log = folder / "strace.log"
            traced = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,sync,syncfs,openat", "-o", str(log), *command]
            subprocess.run(traced, check=True, capture_output=True)
            lines = log.read_text().splitlines()
            begin, end = (
                next(i for i, line in enumerate(lines) if f"/wear/{mark}" in line) for mark in ("begin", "end")
            )
            flushes = sum("sync" in line.split("(")[0] for line in lines[begin:end] if "resumed" not in line) / frames
    return flushes, answer["write_bytes"] / 1000 / frames, answer["wchar"] / 1000 / frames


def run_agent(case: str, folder: Path) -> dict[str, int]:
    """Bytes that the agent's process writes in the hour after its first frame."""
    durability, grace, there, seconds = CASES[case]
    keys = {"drain_seconds": 0.0, "grace_seconds": grace, "durability": durability}
    plan = load(write_agent(folder, Broker(port=9), "watch", TICKS, 0, 1_000_000, **keys))
    written_bytes: dict[str, int] = {}

    def look(second: int) -> None:
        if second == TICKS + 5:
            mark("begin")
            written_bytes.update({name: -value for name, value in written().items()})
        elif second == TICKS + 5 + seconds:
            written_bytes.update({name: written_bytes[name] + value for name, value in written().items()})
            mark("end")
            agent.stop()
        elif there and second % 10 == 0 and (newest := outbox.frames.newest) > 0:
            outbox.frames.forget_committed("hr", second, (), sent_through=newest, grace_seconds=grace)

    agent = Agent(plan, open_sensors(plan.streams), system_entropy(), SkippingClock(look))
    outbox: Outbox = agent._outbox
    agent.run()
    return written_bytes


class SkippingClock(SystemClock):
    """A clock on which every wait is over at once; looks around each second."""

    def __init__(self, look: Callable[[int], None]) -> None:
        self._now = 0
        self._look = look

    def now_us(self) -> int:
        """Microseconds that were waited for."""
        return self._now

    def elapsed_us(self) -> int:
        """The same."""
        return self._now

    def synchronised(self) -> bool:
        """It is right."""
        return True

    def boot(self) -> str:
        """Nobody knows it."""
        return ""

    def wait(self, wake: Wake, seconds: float) -> None:
        """Skip that time."""
        del wake
        before = self._now
        self._now += max(1, round(seconds * 1e6))
        for second in range(before // 1_000_000 + 1, self._now // 1_000_000 + 1):
            self._look(second)


def written() -> dict[str, int]:
    """Bytes that this process has written."""
    lines = Path("/proc/self/io").read_text().splitlines()
    values = dict(line.split(": ") for line in lines)
    return {name: int(values[name]) for name in ("write_bytes", "wchar")}


def mark(name: str) -> None:
    """Leave a mark for strace."""
    with contextlib.suppress(OSError):
        Path(f"/wear/{name}").read_bytes()


if __name__ == "__main__":
    main()
