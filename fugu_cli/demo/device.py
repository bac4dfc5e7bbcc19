"""The real agent with the clock of a replay: `python -m fugu_cli.demo.device CONFIG SECONDS`.

The clock stands still while the agent works. Each wait lasts SECONDS of real time, and moves the clock by a tick. So
ticks have the times of the policy, however fast they follow one another, and a slow machine misses none.
"""

from __future__ import annotations

import os
import signal
import sys

from edge_agent.agent import Agent
from edge_agent.config import check_in_child
from edge_agent.device_clock import SystemClock
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.sharing import open_sensors
from fugu.host.process import Wake, end_with_parent
from fugu.host.terminal import log_to_stderr

_SHORTEST_SECONDS = 0.01
"""Shorter waits are added up, because the system would lengthen each of them."""


class ReplayClock(SystemClock):
    """A clock that begins before tick 0 of a policy, and moves by a tick with each wait.

    It begins before `epoch_us`, the time of tick 0. Its ticks last `period_us`, and its waits `seconds` of real time.
    """

    def __init__(self, epoch_us: int, period_us: int, seconds: float) -> None:
        self._now_us = epoch_us - period_us + period_us // 2
        self._period_us = period_us
        self._seconds = seconds
        self._owed_seconds = 0.0

    def now_us(self) -> int:
        """Return the middle of the present tick, in microseconds."""
        return self._now_us

    def elapsed_us(self) -> int:
        """Return the time as `now_us` does: nobody sets this clock."""
        return self._now_us

    def synchronised(self) -> bool:
        """Return True: the clock is right from the start."""
        return True

    def boot(self) -> str:
        """Return "", as if the boot were not known: the clock begins anew with each process."""
        return ""

    def wait(self, wake: Wake, seconds: float) -> None:
        """Move the clock by a tick, and wait the seconds of this clock; do neither unless `seconds` is above 0."""
        if seconds <= 0.0:
            return
        self._owed_seconds += self._seconds
        if self._owed_seconds >= _SHORTEST_SECONDS:
            wake.wait(self._owed_seconds)
            self._owed_seconds = 0.0
        self._now_us += self._period_us


def _run(config: str, wait_seconds: float) -> int:
    """Run the agent of a configuration with one stream until its recording ends or SIGTERM comes."""
    end_with_parent(os.getppid())
    log_to_stderr("text", verbose=False)
    plan = check_in_child(config)()
    [stream] = plan.streams
    clock = ReplayClock(stream.epoch_us, stream.period_us, wait_seconds)
    agent = Agent(plan, open_sensors(plan.streams), system_entropy(), clock)
    signal.signal(signal.SIGTERM, lambda _number, _frame: agent.stop())
    agent.run()
    return 0


if __name__ == "__main__":
    sys.exit(_run(sys.argv[1], float(sys.argv[2])))
