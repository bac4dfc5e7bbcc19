"""What a device may say of its troubles: a closed set of words about link, storage, clock and policy.

No reading can bring about any of them. What troubles a sensor is none of them, and stays on the device.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

__all__ = ["StatusCode", "ordered"]


class StatusCode(StrEnum):
    """One trouble; a status names those that there are, in this order."""

    CONNECTION_LOST = "connection-lost"
    """The last will: the device has gone without a word."""
    LINK = "link"
    """The broker refuses a subscription or a message."""
    STORAGE_FULL = "storage-full"
    STORAGE = "storage"
    """The outbox takes nothing, for another reason than a full disk."""
    CLOCK = "clock"
    """The clock is behind the last tick that was drawn: waiting for it."""
    POLICY_INACTIVE = "policy-inactive"
    """A policy is not valid at this time."""
    POLICY_EXPIRED = "policy-expired"
    """The signed document has expired, and says that the device is silent then."""
    TABLE_REFUSED = "table-refused"
    """The newest table of a measured stream was refused."""


_ORDER = list(StatusCode)


def ordered(codes: Iterable[StatusCode]) -> tuple[StatusCode, ...]:
    """Each code once, in the order that a status has them in."""
    return tuple(sorted(set(codes), key=_ORDER.index))
