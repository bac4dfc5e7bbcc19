"""The errors that device, gateway and subscriber share; each carries a reason for counters and statuses."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

__all__ = [
    "FrameError",
    "FrameLengthError",
    "FrameRangeError",
    "FrameTypeError",
    "FuguError",
    "GuaranteeError",
    "MalformedFrameError",
    "PolicyError",
    "Reason",
    "TopicError",
    "TrailingBytesError",
    "UnknownSchemaError",
]


class Reason(StrEnum):
    """Why a message, a document or a policy is refused: what counters count by, and what a device answers."""

    ERROR = "error"
    """An error that nobody tells from others."""
    UNEXPECTED = "unexpected"
    """An error that is not of this project."""

    # Messages
    TOPIC = "topic"
    MALFORMED = "malformed"
    UNKNOWN_SCHEMA = "unknown_schema"
    WRONG_TYPE = "wrong_type"
    WRONG_LENGTH = "wrong_length"
    OUT_OF_RANGE = "out_of_range"
    TRAILING_BYTES = "trailing_bytes"
    UNKNOWN_CLOCK_EPOCH = "unknown_clock_epoch"

    # Messages that a gateway does not expect
    OVERSIZED = "oversized"
    WRONG_FLEET = "wrong_fleet"
    UNKNOWN_DEVICE = "unknown_device"
    UNKNOWN_STREAM = "unknown_stream"
    UNKNOWN_POLICY_VERSION = "unknown_policy_version"
    WRONG_KIND = "wrong_kind"
    SYMBOL_OUT_OF_RANGE = "symbol_out_of_range"
    POINT_MISMATCH = "point_mismatch"
    UNKNOWN_WINDOW = "unknown_window"
    WINDOW_MISMATCH = "window_mismatch"

    # Documents: the rules of `contract.trust`, in their order
    WRONG_ROLE = "wrong_role"
    BAD_SIGNATURE = "bad_signature"
    THRESHOLD = "threshold"
    ROOT = "root"
    NOT_ADDRESSED = "not_addressed"
    REPLAYED = "replayed"
    SAME_VERSION = "same_version"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    POLICY = "policy"
    GUARANTEE = "guarantee"
    PINNED = "pinned"
    CEILING = "ceiling"
    NO_JOINT_BOUND = "no_joint_bound"

    # A device that could not judge a document, or not put it in force
    CONFIG = "config"
    JUDGE = "judge"
    STORAGE = "storage"
    OUTBOX = "outbox"


class FuguError(Exception):
    """Base of every error that this project raises on purpose; its text is one line for a user."""

    reason: ClassVar[Reason] = Reason.ERROR


class GuaranteeError(FuguError):
    """A table does not give the guarantee that is claimed or allowed."""

    reason = Reason.GUARANTEE


class PolicyError(FuguError):
    """A policy document is malformed, contradicts itself, or is not for this device."""

    reason = Reason.POLICY


class TopicError(FuguError):
    """A topic, or a name in one, is not of the form that this protocol uses."""

    reason = Reason.TOPIC


class FrameError(FuguError):
    """Base of everything that can be wrong with a payload."""


class MalformedFrameError(FrameError):
    """The bytes are empty, truncated or no msgpack."""

    reason = Reason.MALFORMED


class UnknownSchemaError(FrameError):
    """The schema number is not the one of this topic, or is from a future version."""

    reason = Reason.UNKNOWN_SCHEMA


class FrameTypeError(FrameError):
    """A field has another type than its schema says."""

    reason = Reason.WRONG_TYPE


class FrameLengthError(FrameError):
    """An array, a string or a byte string has another length than its schema allows."""

    reason = Reason.WRONG_LENGTH


class FrameRangeError(FrameError):
    """A number lies outside the range that its schema allows."""

    reason = Reason.OUT_OF_RANGE


class TrailingBytesError(FrameError):
    """Bytes follow the end of the message."""

    reason = Reason.TRAILING_BYTES


class ClockEpochError(FrameError):
    """The ticks of a frame are counted by a clock that the receiver does not know."""

    reason = Reason.UNKNOWN_CLOCK_EPOCH
