"""Fixtures that every folder of tests may use."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.brokers import Mosquitto

# The same examples in every run: a test that fails by chance is worse than one that finds its bug a day later.
# How long one takes says nothing about the code: the machine may be busy.
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test() -> Iterator[None]:
    """A test that fails half-way leaves agents and gateways behind; they end here."""
    yield
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread, or its child, has just ended
            for child in (task / "children").read_text().split():
                os.kill(int(child), signal.SIGKILL)


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """A running Mosquitto that anybody may use."""
    folder: Path = tmp_path_factory.mktemp("broker")
    with Mosquitto(folder) as running:
        yield running
