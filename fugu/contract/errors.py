"""The errors that device, gateway and subscriber share, each with a reason for counters and statuses.

A device reports its troubles only in a closed set of words about link, storage, clock and policy. No reading can
cause any of them. Troubles of sensors stay on the device.
"""

from __future__ import annotations

import errno
from enum import StrEnum

__all__ = [
    "FrameError",
    "FuguError",
    "GuaranteeError",
    "PolicyError",
    "Reason",
    "RefusedError",
    "StatusCode",
    "TopicError",
    "TrustError",
    "UsageError",
    "cause",
    "length_error",
    "printable",
    "range_error",
    "refuse_unprintable",
]


class Reason(StrEnum):
    """The reason why a message, a document or a policy is refused, in counters and in a device's answers."""

    ERROR = "error"
    """An error without a reason of its own."""
    UNEXPECTED = "unexpected"
    """An error that this project does not raise on purpose."""

    # Messages
    TOPIC = "topic"
    EMPTY = "empty"
    """An empty payload, which a doctor sends to learn whether the broker takes it."""
    MALFORMED = "malformed"
    UNKNOWN_SCHEMA = "unknown_schema"
    WRONG_TYPE = "wrong_type"
    WRONG_LENGTH = "wrong_length"
    OUT_OF_RANGE = "out_of_range"
    TRAILING_BYTES = "trailing_bytes"

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
    FROM_THE_FUTURE = "from_the_future"
    SHIFT_FELL = "shift_fell"

    # Documents: the rules of `fugu.core.judge`, in their order
    WRONG_ROLE = "wrong_role"
    BAD_SIGNATURE = "bad_signature"
    THRESHOLD = "threshold"
    ROOT = "root"
    NOT_ADDRESSED = "not_addressed"
    REPLAYED = "replayed"
    SAME_VERSION = "same_version"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    FAR_AHEAD = "far_ahead"
    """A signed time that a device with a synchronised clock does not believe."""
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
    """Base of every error that this project raises on purpose; its text is one line for a user.

    It is raised itself where no caller needs to tell the error from others.
    """

    reason: Reason = Reason.ERROR

    def __init_subclass__(cls, reason: Reason | None = None) -> None:
        super().__init_subclass__()
        cls.reason = reason or cls.reason

    def __init__(self, text: str = "", reason: Reason | None = None) -> None:
        super().__init__(printable(text))
        self.reason = reason or self.reason


class UsageError(FuguError):
    """An argument cannot be used: a word of a command line, a name, an address or a path."""


class GuaranteeError(FuguError, reason=Reason.GUARANTEE):
    """A table does not give the guarantee that is claimed or required."""


class PolicyError(FuguError, reason=Reason.POLICY):
    """A policy document is malformed, contradicts itself, or is not for this device."""


class TopicError(FuguError, reason=Reason.TOPIC):
    """A topic, or a name in one, is not of the form that this protocol uses."""


class FrameError(FuguError, reason=Reason.MALFORMED):
    """A payload is no valid message; the reason says what is wrong."""


def range_error(text: str) -> FrameError:
    """Return the error about a value that its field may not have, or that contradicts another value."""
    return FrameError(text, Reason.OUT_OF_RANGE)


def length_error(text: str) -> FrameError:
    """Return the error about a part of a message that is too long or too short."""
    return FrameError(text, Reason.WRONG_LENGTH)


class TrustError(FuguError, reason=Reason.MALFORMED):
    """A document is not accepted; the reason says which rule of `fugu.core.judge` it breaks."""


class RefusedError(FuguError):
    """A valid message that a gateway does not expect; the reason says why."""


class StatusCode(StrEnum):
    """A trouble of a device; a status names its troubles in this order."""

    CONNECTION_LOST = "connection-lost"
    """The last will: the device has gone without a farewell."""
    LINK = "link"
    """The broker refuses a subscription or a message."""
    STORAGE_FULL = "storage-full"
    STORAGE = "storage"
    """The outbox takes nothing, for another reason than a full disk."""
    CLOCK = "clock"
    """The clock is behind the last tick that was drawn: the device waits."""
    POLICY_INACTIVE = "policy-inactive"
    """A policy is not valid at this time."""
    POLICY_EXPIRED = "policy-expired"
    """The signed document has expired, and says that the device is silent then."""
    STOPPED = "stopped"
    """The gateway has told the device to stop: somebody sends frames under its name that contradict its own."""
    PAUSED = "paused"
    """The person who is measured has asked that nothing be drawn."""
    TABLE_REFUSED = "table-refused"
    """The newest table of a measured stream was refused."""
    GATEWAY_CLOCK = "gateway-clock"
    """The gateway has signed a time that is more than a day ahead of the device's synchronised clock."""


def printable(text: str) -> str:
    r"""Escape what a terminal could obey, as in `\x1b`: controls, line breaks, text directions."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


_REMEDIES = {
    errno.EADDRINUSE: "another program listens there: stop it, or name another port",
    errno.EMFILE: "too many open files: let this process have more (ulimit -n, or LimitNOFILE in its unit)",
}
"""Advice by error number, where the operating system's message lacks it."""


def cause(error: BaseException | None) -> str:
    """Describe an error without readings: by our own text, the system's message, or the name of its class."""
    if error is None or isinstance(error, FuguError):
        return str(error or "")
    remedy = _REMEDIES.get(getattr(error, "errno", None) or 0) if isinstance(error, OSError) else None
    return remedy or getattr(error, "strerror", None) or type(error).__name__


def refuse_unprintable(text: str) -> str:
    """Raise a ValueError for a text of a document that could control the terminal of its reader."""
    if not text.isprintable():
        raise ValueError("not printable: write it without line breaks, control characters and text directions")
    return text
