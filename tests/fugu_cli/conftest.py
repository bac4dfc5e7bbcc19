"""Fixtures of the command line's tests."""

from __future__ import annotations

import pytest

from fugu.privacy import randomised_response


@pytest.fixture(autouse=True)
def _quick_forecasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of streams forecast from short simulations."""
    original = randomised_response.utility
    monkeypatch.setattr(
        randomised_response, "utility", lambda *arguments, **named: original(*arguments, **{**named, "ticks": 10_000})
    )
