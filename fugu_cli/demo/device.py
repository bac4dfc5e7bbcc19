"""The real agent with the clock of a replay: `python -m fugu_cli.demo.device CONFIG SECONDS`.

The clock stands still while the agent works, and each wait ends a tick later, after so many real seconds. So ticks have
the period and the times of the policy, however fast they follow one another, and a slow machine misses none.
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
"""Shorter waits are added up: the system would make each of them longer."""


class ReplayClock(SystemClock):
    """A clock that begins before tick 0 of a policy, and goes on by a tick with each wait.

    Args:
        epoch_us: time of tick 0.
        period_us: from tick to tick.
        seconds: how long a wait is, in real seconds.
    """

    def __init__(self, epoch_us: int, period_us: int, seconds: float) -> None:
        self._now_us = epoch_us - period_us + period_us // 2
        self._period_us = period_us
        self._seconds = seconds
        self._owed = 0.0

    def now_us(self) -> int:
        """The middle of a tick."""
        return self._now_us

    def elapsed_us(self) -> int:
        """The same: nobody sets this clock."""
        return self._now_us

    def synchronised(self) -> bool:
        """It is right from the start."""
        return True

    def boot(self) -> str:
        """Each is of a machine of its own."""
        return ""

    def wait(self, wake: Wake, seconds: float) -> None:
        """Go on by a tick, if there is nothing to be done before."""
        if seconds <= 0.0:
            return
        self._owed += self._seconds
        if self._owed >= _SHORTEST_SECONDS:
            wake.wait(self._owed)
            self._owed = 0.0
        self._now_us += self._period_us


def _run(config: str, seconds: float) -> int:
    end_with_parent(os.getppid())
    log_to_stderr("text", verbose=False)
    plan = check_in_child(config)()
    [stream] = plan.streams
    clock = ReplayClock(stream.epoch_us, stream.period_us, seconds)
    agent = Agent(plan, open_sensors(plan.streams), system_entropy(), clock)
    signal.signal(signal.SIGTERM, lambda _number, _frame: agent.stop())
    agent.run()
    return 0


if __name__ == "__main__":
    sys.exit(_run(sys.argv[1], float(sys.argv[2])))
