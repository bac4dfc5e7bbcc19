"""The errors that device, gateway and subscriber share; each carries a `reason` slug for counters."""

from __future__ import annotations

__all__ = [
    "FrameError",
    "FrameLengthError",
    "FrameRangeError",
    "FrameTypeError",
    "FuguError",
    "GuaranteeError",
    "MalformedFrameError",
    "PolicyError",
    "TopicError",
    "TrailingBytesError",
    "UnknownSchemaError",
]


class FuguError(Exception):
    """Base of every error that this project raises on purpose; its text is one line for a user."""

    reason = "error"


class GuaranteeError(FuguError):
    """A table does not give the guarantee that is claimed or allowed."""

    reason = "guarantee"


class PolicyError(FuguError):
    """A policy document is malformed, contradicts itself, or is not for this device."""

    reason = "policy"


class TopicError(FuguError):
    """A topic, or a name in one, is not of the form that this protocol uses."""

    reason = "topic"


class FrameError(FuguError):
    """Base of everything that can be wrong with a payload."""

    reason = "frame"


class MalformedFrameError(FrameError):
    """The bytes are empty, truncated or no msgpack."""

    reason = "malformed"


class UnknownSchemaError(FrameError):
    """The schema number is not the one of this topic, or is from a future version."""

    reason = "unknown_schema"


class FrameTypeError(FrameError):
    """A field has another type than its schema says."""

    reason = "wrong_type"


class FrameLengthError(FrameError):
    """An array, a string or a byte string has another length than its schema allows."""

    reason = "wrong_length"


class FrameRangeError(FrameError):
    """A number lies outside the range that its schema allows."""

    reason = "out_of_range"


class TrailingBytesError(FrameError):
    """Bytes follow the end of the message."""

    reason = "trailing_bytes"


class ClockEpochError(FrameError):
    """The ticks of a frame are counted by a clock that the receiver does not know."""

    reason = "unknown_clock_epoch"
