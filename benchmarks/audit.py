"""How fast `fugu check device` takes symbols, counts and points from the Python agent, and what they are found to be.

The audit itself, through Mosquitto: what is printed last is how large an error of a probability it would have found.

Usage: python benchmarks/audit.py [symbols] [counts] [points] [--draws N] [--period MICROSECONDS]
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

from firmware_sim.constant import run_constant
from fugu.audit.device import device_tests
from fugu.contract.policies import AnyPolicy
from fugu.contract.windows import Window

sys.path.insert(0, str(Path(__file__).parents[1]))  # before packages that install a `tests` of their own

from figures import say_machine
from processes import children_seconds

from tests.support.audited import alone, planned
from tests.support.brokers import Mosquitto
from tests.support.measured import measure_policy

_RATE = 1e-9
_PERIODS_US = {"symbols": 25, "counts": 60, "points": 100}


def _policy(kind: str) -> AnyPolicy:
    if kind == "points":
        return measure_policy(11)  # staircases
    window = Window(name="high", length=20, stride=20, states=(1,), scale="400")
    return planned() if kind == "symbols" else alone(planned(windows=(window,)), "windows")


def main() -> None:
    """Draw of all states; print the rate, the agent's processor time for a draw, and what the tests say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[*_PERIODS_US, []], help="what to draw; all if none is named")
    parser.add_argument("--draws", type=int, default=200_000, help="of all states together")
    parser.add_argument("--period", type=int, help="microseconds from draw to draw of any stream")
    options = parser.parse_args()
    say_machine()
    for kind in options.kinds or _PERIODS_US:
        policy, period = _policy(kind), options.period or _PERIODS_US[kind]
        each = -(-options.draws // min(8, len(policy.discretiser.states)))
        before = children_seconds()
        with Mosquitto() as broker, tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            command = [sys.executable, "-m", "edge_agent"]
            outputs = run_constant(command, policy, broker.broker, Path(folder), each, period_us=period, patience=60.0)
            seconds = time.perf_counter() - begun
            used = children_seconds() - before  # the agent has ended, the broker has not
        draws = sum(outputs.draw_counts + outputs.script_draw_counts)
        begun = time.perf_counter()
        tested = device_tests(
            policy, outputs.symbols, outputs.noise, outputs.points, _RATE, outputs.script, outputs.changes
        )
        alarms = [alarm for test in tested for alarm in test.alarms]
        print(f"{kind}: {draws} of {len(outputs.states)} states in {seconds:.1f} s: {draws / seconds:.0f} a second")
        print(f"  processor time of the agent: {used / draws * 1e6:.1f} microseconds each")
        print(f"  at this rate 10^7 take {seconds / draws * 1e7 / 60:.0f} minutes")
        print(f"  tests: {time.perf_counter() - begun:.0f} s, {len(alarms)} alarms {alarms or ''}{outputs.problem}")
        smallest = max(test.smallest for test in tested)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"  an error of {smallest:.2g} in any probability would be found; memory of the audit {peak:.0f} MB")


if __name__ == "__main__":
    main()
