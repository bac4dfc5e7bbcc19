"""Reasons are a closed set, and each of them fits into the status in which a device gives it."""

from __future__ import annotations

import pytest

from fugu.contract.errors import FrameError, FuguError, Reason, TrustError
from fugu.contract.frames import PolicyStatus


@pytest.mark.parametrize("reason", Reason)
def test_a_status_carries_every_reason(reason: Reason) -> None:
    status = PolicyStatus(1, b"", reason, "", 1, False)
    assert PolicyStatus.decode(status.encode()) == status
    assert f"{reason}" == reason.value == reason.name.lower()


def test_every_way_to_refuse_a_frame_or_a_document_has_a_reason_of_its_own() -> None:
    for errors in (FrameError.__subclasses__(), TrustError.__subclasses__()):
        reasons = [error.reason for error in errors]
        assert len(set(reasons)) == len(reasons)
        assert FuguError.reason not in reasons
        assert all(isinstance(reason, Reason) for reason in reasons)
