"""A thread is woken once, by others and by a signal at any moment."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from fugu.host.clock import seconds_of
from fugu.host.process import Wake
from tests.support.brokers import PATIENCE, await_end

INTERRUPTED = """
import signal
from fugu.host.process import Wake

wake, signals = Wake(), 0

def handler(number, frame):
    global signals
    signals += 1
    wake.set()

signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 2e-4, 2e-4)
while signals < 6_000:
    wake.wait(1e-6)
signal.setitimer(signal.ITIMER_REAL, 0)
print("awake")
"""

LATE = """
import signal
from fugu.host.process import Wake
from fugu.mqtt import Broker, Subscription

wake, subscription, signals = Wake(), Subscription(Broker(), fleet="home"), 0

def handler(number, frame):
    global signals
    signals += 1

signal.signal(signal.SIGALRM, handler)  # each takes longer than a microsecond
signal.setitimer(signal.ITIMER_REAL, 2e-4, 2e-4)
while signals < 2_000:
    wake.set()
    assert wake.wait(0)
    assert not wake.wait(1e-6)
    subscription._arrived_messages.put(("no topic", b""))
    assert subscription.wait(1e-6) is None
    assert subscription.wait(1e-6) is None
signal.setitimer(signal.ITIMER_REAL, 0)
print("awake")
"""


def test_it_is_over_once_waited_for() -> None:
    wake = Wake()
    wake.set()
    wake.set()
    assert wake.wait(0)
    assert not wake.wait(0)


def test_another_thread_wakes() -> None:
    wake = Wake()
    thread = threading.Thread(target=wake.set)
    thread.start()
    assert wake.wait(PATIENCE)
    await_end(thread)


@pytest.mark.parametrize("program", [INTERRUPTED, pytest.param(LATE, marks=pytest.mark.long)], ids=["signals", "late"])
def test_a_wait_ends_although_signals_interrupt_it_or_it_is_held_up(program: str) -> None:
    """A SimpleQueue of CPython waits on after its timeout: so devices stood still on machines without time for them."""
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.stdout, done.returncode) == ("awake\n", 0), done.stderr[-500:]


def test_lengths_of_time() -> None:
    assert [seconds_of(text) for text in ("90s", "30m", "1.5h", "1d", "600")] == [90, 1800, 5400, 86400, 600]
    for text in ("", "h", "0h", "0", "-1h", "1e3", ".5h", "nan", "inf", "2 h", "2w", "1234567890s", "\u0663h", "2h\n"):
        with pytest.raises(ValueError, match="is no length of time above 0, of at most 9 digits and 6 decimals"):
            seconds_of(text)
