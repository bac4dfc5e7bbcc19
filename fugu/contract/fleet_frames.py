"""What a device says of the policies that it is sent, schema 11."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from fugu.contract.frames import TICK
from fugu.contract.message import Binary, Flag, Integer, Message, Text

__all__ = ["JUDGED_BYTES", "MAX_DETAIL", "MAX_REASON", "PolicyStatus"]

JUDGED_BYTES: Final = 8
MAX_REASON: Final = 32
MAX_DETAIL: Final = 200


@dataclass(frozen=True, slots=True)
class PolicyStatus(Message):
    """The policy document in force, and the newest verdict."""

    SCHEMA: ClassVar[int] = 11

    version: Annotated[int, Integer(0, 2**32 - 1), "Of the document in force; 0: none."]
    judged: Annotated[
        bytes,
        Binary(0, JUDGED_BYTES),
        "The first 8 bytes of the SHA-256 of the newest message that was judged; empty: none was.",
    ]
    reason: Annotated[str, Text(0, MAX_REASON), "Why that was refused, in one word; empty: it was not."]
    detail: Annotated[str, Text(0, MAX_DETAIL), "The same in a sentence."]
    refused: Annotated[int, TICK, "How many were refused since the start."]
    stale: Annotated[
        bool, Flag(), "Whether the document in force is past its time, or the newest signed time is too old."
    ]
