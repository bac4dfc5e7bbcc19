"""A real agent whose broker attacks it: its memory stays small, and it goes on."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from firmware_sim.devices import simulate_recording
from fugu.contract.topics import topic_of
from tests.support.brokers import PATIENCE, wait_until
from tests.support.malicious_broker import MaliciousBroker, Victim, publication
from tests.support.processes import AgentProcess, policy, write_device
from tests.support.soak import only

pytestmark = pytest.mark.fresh

MOST_MORE = 60 << 10
"""kB that all the attacks together may take."""
TOPIC = topic_of("committed", "home", "watch")
LARGEST = 1 << 19


class OverError(OSError):
    """The attack is over; the connection is closed."""


def claims_256_mb(victim: Victim) -> None:
    victim.accept()
    victim.claim(0x30)


def claims_256_mb_at_once(victim: Victim) -> None:
    victim.claim(0x20)


def floods_with_the_largest_messages(victim: Victim) -> None:
    victim.accept()
    for _ in range(150):
        victim.send(publication(TOPIC, bytes(LARGEST), victim.version))
    raise OverError


def floods_with_small_messages(victim: Victim) -> None:
    victim.accept()
    packet = publication(TOPIC, b"x", victim.version) * 500
    for _ in range(100):
        victim.send(packet)
    raise OverError


def sends_properties_without_end(victim: Victim) -> None:
    victim.accept()
    for _ in range(5):
        victim.send(publication(TOPIC, b"", victim.version, b"\x26\0\0\0\0" * (LARGEST // 5 - 1)))
    raise OverError  # they are passed over


@pytest.mark.long
@pytest.mark.parametrize("protocol", only(["5"], ["5", "3.1.1"]))
def test_a_malicious_broker_does_not_fill_the_memory_of_an_agent(tmp_path: Path, protocol: str) -> None:
    running, measured, goes_on = threading.Event(), threading.Event(), threading.Event()

    def behaves(victim: Victim) -> None:
        victim.accept()
        victim.listen_for(b"/symbols/")
        running.set()
        measured.wait(PATIENCE)
        raise OverError

    def behaves_again(victim: Victim) -> None:
        victim.accept()
        victim.listen_for(b"/symbols/")
        goes_on.set()

    attacks = [claims_256_mb, claims_256_mb_at_once, floods_with_the_largest_messages, floods_with_small_messages]
    attacks += [sends_properties_without_end] if protocol == "5" else []
    one = policy(epoch_us=time.time_ns() // 1000, period_us=100_000, frame_ticks=1)
    simulate_recording(tmp_path / "readings.csv", one, [0, 1] * 100)
    with MaliciousBroker(behaves, *attacks, behaves_again) as attacker:
        config = write_device(
            tmp_path, one, tmp_path / "readings.csv", "value", attacker.broker, loop=True, drain_seconds=0.0
        )
        config.write_text(config.read_text().replace('protocol = "auto"', f'protocol = "{protocol}"'))
        agent = AgentProcess(config, tmp_path / "agent.log")
        wait_until(running.is_set)
        before = most_memory(agent.process.pid)
        measured.set()
        wait_until(goes_on.is_set)
        more = most_memory(agent.process.pid) - before
        assert agent.stop(PATIENCE) == 0
    assert more < MOST_MORE, f"{more} kB more than the {before} kB before"


def most_memory(pid: int) -> int:
    """The largest resident memory of a process so far, in kB."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1])
