"""The agent's own program on a virtual clock: `python -m tests.support.virtual_agent CONFIG SEED LOG`.

Everything runs as on a device: `edge_agent.__main__`, its configuration, its threads, a real connection. Only time and
randomness come from elsewhere: nothing happens while a message is on its way, and each wait ends at once. What is
published is written down with the virtual time at which it left. A fourth argument makes the agent leak, in one of
the ways below, so that a test can show that it would notice.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import edge_agent.agent
import edge_agent.randomiser
import edge_agent.ticker
import edge_agent.window_file
import fugu.core.states
from edge_agent.__main__ import main
from fugu.host.process import Wake
from fugu.mqtt import Link

START_US = 1_800_000_000_250_000
TICKS = 60
_TURN = 0.002


class VirtualClock:
    """Stands still until a connection is there and nothing is under way; then every wait is over at once."""

    def __init__(self) -> None:
        self.now = START_US

    def now_us(self) -> int:
        return self.now

    def elapsed_us(self) -> int:
        return self.now

    def synchronised(self) -> bool:
        return True

    def boot(self) -> str:
        return ""

    def wait(self, wake: Wake, seconds: float) -> None:
        """Jump to the end of the wait, or stand still for a moment."""
        agent = RUNNING[0]
        if seconds <= 0.0 or agent._last_status is None or agent._outbox.frames.depth():
            wake.wait(min(seconds, 0.02))
            return
        time.sleep(_TURN)  # a turn for the sensors' threads; what they make of it is their affair
        self.now += int(seconds * 1e6) + 1
        if self.now > START_US + TICKS * 1_000_000:
            agent.stop()


CLOCK = VirtualClock()
RUNNING: list[Any] = []
STATES: list[Any] = [None]
"""The states that were seen; only the leaks below look at them."""


def run(config: str, seed: str, log: str, leak: str = "") -> int:
    generator = random.Random(seed)
    Path(log).touch()

    def fill(buffer: memoryview) -> None:
        buffer[:] = generator.randbytes(len(buffer))
        with Path(f"{log}-drawn").open("a") as file:
            file.write(f"{len(buffer)}\n")

    class Known(edge_agent.agent.Agent):
        """The agent, known to its clock."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            RUNNING.append(self)

    publish = Link.publish

    def logged(link: Link, topic: str, payload: bytes, *, retain: bool = False) -> int | None:
        mid = publish(link, topic, payload, retain=retain)
        if mid is not None:
            with Path(log).open("a") as file:
                file.write(json.dumps([CLOCK.now - START_US, topic, len(payload), retain, 1]) + "\n")
        return mid

    write = edge_agent.window_file._write

    def written(file: int, piece: bytes, offset: int) -> None:
        write(file, piece, offset)
        with Path(f"{log}-written").open("a") as lines:
            lines.write(f"{CLOCK.now - START_US} {offset} {len(piece)} {any(piece)}\n")

    edge_agent.window_file._write = written
    edge_agent.agent.SystemClock = lambda: CLOCK
    edge_agent.agent.Agent = Known
    edge_agent.randomiser.system_entropy = lambda: fill
    Link.publish = logged
    if leak:
        LEAKS[leak]()
    return main([config])


def _look_at_states() -> None:
    observe = fugu.core.states.Classifier.observe

    def seen(discretiser: Any, *arguments: Any) -> Any:
        STATES.append(observe(discretiser, *arguments))
        return STATES[-1]

    fugu.core.states.Classifier.observe = seen


def _after_each_tick(action: Callable[[Any, Any], None]) -> None:
    _look_at_states()
    tick = edge_agent.ticker.Ticker._tick

    def leaking(ticker: Any, stream: Any) -> None:
        tick(ticker, stream)
        if STATES[-1]:
            action(ticker, stream)

    edge_agent.ticker.Ticker._tick = leaking


def _event_driven() -> None:
    """A frame leaves as soon as something happens."""
    _after_each_tick(lambda ticker, stream: ticker._outbox.close_frame(stream.plan))


def _slow() -> None:
    """Some states take longer."""

    def longer(_ticker: Any, _stream: Any) -> None:
        CLOCK.now += 1000

    _after_each_tick(longer)


def _status() -> None:
    """A number in the status tells of the state."""
    _look_at_states()
    status = edge_agent.agent.Agent._status

    def telling(agent: Any, *, online: bool) -> Any:
        return replace(status(agent, online=online), outbox_depth=sum(map(bool, STATES)))

    edge_agent.agent.Agent._status = telling


def _redrawn() -> None:
    """Some states draw once more."""

    def again(_ticker: Any, _stream: Any) -> None:
        edge_agent.randomiser.system_entropy()(memoryview(bytearray(4)))

    _after_each_tick(again)


def _rewritten() -> None:
    """Some states rewrite the file of windows."""
    _after_each_tick(lambda ticker, _stream: ticker._window_file._rewrite([(0, bytes(8))]))


LEAKS: dict[str, Callable[[], None]] = {
    "event-driven": _event_driven,
    "slow": _slow,
    "status": _status,
    "redrawn": _redrawn,
    "rewritten": _rewritten,
}

if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
