"""Messages at a service manager's socket, and that nothing else happens."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from fugu.host.process import Notifier


def manager(address: str) -> socket.socket:
    """A service manager's end."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(address)
    listening.settimeout(5)
    return listening


def heard(listening: socket.socket) -> list[bytes]:
    """All that has arrived: delivery is immediate on a local socket."""
    listening.setblocking(False)
    messages = []
    while True:
        try:
            messages.append(listening.recv(1000))
        except BlockingIOError:
            return messages


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "notify")


def test_a_service_says_that_it_is_ready_alive_and_stopping(path: str) -> None:
    with manager(path) as listening:
        notifier = Notifier.of_process({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "7"}, pid=7)
        notifier.ready()
        notifier.alive(100.0)
        notifier.stopping()
        assert heard(listening) == [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_signs_of_life_come_three_times_in_the_watchdog_s_time(path: str) -> None:
    with manager(path) as listening:
        notifier = Notifier(path, 60.0)
        for second in range(120):
            notifier.alive(1000.0 + second)
        assert heard(listening) == [b"WATCHDOG=1"] * 6


def test_an_abstract_socket(tmp_path: Path) -> None:
    name = f"fugu-{tmp_path.name}-{id(tmp_path)}"
    with manager(f"\0{name}") as listening:
        notifier = Notifier.of_process({"NOTIFY_SOCKET": f"@{name}"})
        notifier.ready()
        notifier.alive(0.0)
        assert heard(listening) == [b"READY=1"]


def test_the_watchdog_of_another_process_or_none_is_not_fed(path: str) -> None:
    with manager(path) as listening:
        for extra in ({"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "8"}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "-5"}):
            notifier = Notifier.of_process({"NOTIFY_SOCKET": path, **extra}, pid=7)
            notifier.alive(0.0)
        notifier = Notifier.of_process({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "1000"}, pid=7)
        notifier.alive(0.0)
        assert heard(listening) == [b"WATCHDOG=1"]


def test_without_a_manager_or_with_a_dead_one_nothing_happens(path: str) -> None:
    manager(path).close()
    for environment in ({}, {"NOTIFY_SOCKET": path}, {"NOTIFY_SOCKET": "vsock:2:1"}, {"NOTIFY_SOCKET": ""}):
        notifier = Notifier.of_process({**environment, "WATCHDOG_USEC": "1000"})
        notifier.ready()
        notifier.alive(0.0)
        notifier.stopping()


def test_a_manager_that_does_not_listen_never_blocks_the_service(path: str) -> None:
    with manager(path) as listening:
        notifier = Notifier(path, 1.0)
        for second in range(10_000):
            notifier.alive(float(second))
        assert 1 <= len(heard(listening)) < 10_000
