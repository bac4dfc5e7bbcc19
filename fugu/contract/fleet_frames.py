"""What a device says of the policies that it is sent, schema 11."""

from __future__ import annotations

from dataclasses import dataclass

from fugu.contract._wire import binary, fields, integer, pack, text
from fugu.contract.errors import FrameTypeError
from fugu.contract.frames import MAX_TEXT

__all__ = ["PolicyStatus", "decode_policy_status", "encode_policy_status"]

POLICY_STATUS = 11
JUDGED_BYTES = 8
MAX_REASON = 32


@dataclass(frozen=True, slots=True)
class PolicyStatus:
    """The policy document in force, and the newest verdict.

    Attributes:
        version: of the document in force, 0 for none.
        judged: the first 8 bytes of the SHA-256 of the newest envelope that was judged, empty for none.
        reason: why that was refused, one word; empty if it was accepted or changes nothing.
        detail: the same in words.
        refused: how many were refused so far.
        stale: whether the document in force is past its time, or the newest signed time is too old.
    """

    version: int
    judged: bytes
    reason: str
    detail: str
    refused: int
    stale: bool

    def __post_init__(self) -> None:
        """Refuse values that no message can hold."""
        integer(self.version, 0, 2**32 - 1, "version")
        binary(self.judged, 0, JUDGED_BYTES, "judged")
        text(self.reason, 0, MAX_REASON, "reason")
        text(self.detail, 0, MAX_TEXT, "detail")
        integer(self.refused, 0, 2**53, "refused")
        if not isinstance(self.stale, bool):
            raise FrameTypeError("stale is not a boolean")


def encode_policy_status(message: PolicyStatus) -> bytes:
    """Bytes of a policy status."""
    verdict = [message.judged, message.reason, message.detail, message.refused]
    return pack(POLICY_STATUS, [message.version, *verdict, message.stale])


def decode_policy_status(payload: bytes) -> PolicyStatus:
    """Parse a policy status.

    Raises:
        FrameError: the subclass that says what is wrong.
    """
    return PolicyStatus(*fields(payload, POLICY_STATUS, 6))
