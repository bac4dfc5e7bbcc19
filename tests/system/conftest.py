"""One browser for all pages that a worker looks at: to start one takes longer than to look."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.conftest import _children as children

if TYPE_CHECKING:
    from tests.support.browser import Browser

_running: set[int] = set()


@pytest.fixture(scope="session")
def _started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    from tests.support.browser import chromium

    with chromium(tmp_path_factory.mktemp("profile")) as made:
        _running.add(made.process)
        yield made
    _running.clear()


@pytest.fixture
def browser(_started: Browser) -> Iterator[Browser]:
    """A browser that remembers nothing of another test."""
    yield _started
    _started.forget()


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test() -> Iterator[None]:
    """A test that fails half-way leaves agents and gateways behind; they end here, the browser does not."""
    yield
    for child in set(children()) - _running:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(child, signal.SIGKILL)
