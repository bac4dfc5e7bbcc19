"""Fixtures that every folder of tests may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import Mosquitto


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """A running Mosquitto that anybody may use."""
    folder: Path = tmp_path_factory.mktemp("broker")
    with Mosquitto(folder) as running:
        yield running
