"""Expect a refusal by its reason, as counters and statuses tell it."""

from __future__ import annotations

import pytest

from fugu.contract.errors import FuguError, Reason

__all__ = ["refused_for"]


def refused_for(why: Reason | type[Exception], match: str | None = None) -> pytest.RaisesExc[Exception]:
    """Expect an error of ours with that reason, or one of a class that has one reason only."""
    if isinstance(why, Reason):
        return pytest.RaisesExc(FuguError, match=match, check=lambda error: error.reason is why)
    return pytest.RaisesExc(why, match=match)
