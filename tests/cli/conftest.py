"""Fixtures of the command line's tests."""

from __future__ import annotations

import pytest

from fugu.privacy import randomised_response
from tests.support.command import Fugu, runner


@pytest.fixture
def fugu(capsys: pytest.CaptureFixture[str]) -> Fugu:
    """Run a command in this process."""
    return runner(capsys)


@pytest.fixture(autouse=True)
def _quick_forecasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of streams forecast from short simulations."""
    original = randomised_response.utility
    monkeypatch.setattr(
        randomised_response, "utility", lambda *given, **named: original(*given, **{**named, "ticks": 10_000})
    )
