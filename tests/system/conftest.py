"""One browser for all pages that a worker looks at: to start one takes longer than to look."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.browser import Browser


@pytest.fixture(scope="session")
def _started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    from tests.support.browser import chromium

    with chromium(tmp_path_factory.mktemp("browser") / "profile") as browsers:
        yield browsers


@pytest.fixture
def browser(_started: Browser) -> Iterator[Browser]:
    """A browser that remembers nothing of another test."""
    yield _started
    _started.forget()
