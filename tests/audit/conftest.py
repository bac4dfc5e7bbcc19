"""Fixtures of the audits' tests."""

from __future__ import annotations

import pytest

from tests.support.command import Fugu, runner


@pytest.fixture
def fugu(capsys: pytest.CaptureFixture[str]) -> Fugu:
    """Run a command in this process."""
    return runner(capsys)
