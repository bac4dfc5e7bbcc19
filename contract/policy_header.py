"""What every policy document begins with, and its two forms: JSON for people, msgpack for the wire.

Both forms hold the same fields and pass the same checks. The msgpack bytes are what an envelope will sign.
"""

from __future__ import annotations

import json
from typing import Annotated, Self

import msgpack
from pydantic import Field, ValidationError, model_validator

from contract._document import Document
from contract.discretisers import Discretiser
from contract.errors import PolicyError
from contract.frames import MAX_FRAME_TICKS
from contract.topics import NAME_PATTERN, RESERVED_DEVICES

__all__ = ["MAX_POLICY_BYTES", "Clock", "PolicyHeader"]

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
POLICY_SCHEMA = 1
MAX_POLICY_BYTES = 1 << 20
_MICROSECONDS_MAX = 2**62


class Clock(Document):
    """When ticks happen: tick t at epoch_us + t * period_us, in microseconds of Unix time."""

    epoch_us: int = Field(ge=0, le=_MICROSECONDS_MAX)
    period_us: int = Field(ge=100, le=86_400_000_000 * 366)


class PolicyHeader(Document):
    """Whose policy it is, when it runs, and what its states are.

    Attributes:
        policy_format: what kind of policy it is, and of which version.
        valid_from: Unix time in seconds from which the policy may run.
        valid_until: Unix time in seconds from which it may not run any more; none means for ever.
        frame_ticks: ticks in a frame; a frame is published every frame_ticks * period.
    """

    policy_format: int = 0
    fleet: Name
    device: Name
    stream: Name
    version: int = Field(ge=1, le=2**32 - 1)
    valid_from: int = Field(default=0, ge=0, le=2**53)
    valid_until: int | None = Field(default=None, ge=1, le=2**53)
    clock: Clock
    frame_ticks: int = Field(ge=1, le=MAX_FRAME_TICKS)
    discretiser: Discretiser

    @model_validator(mode="after")
    def _plausible(self) -> Self:
        if self.valid_until is not None and self.valid_until <= self.valid_from:
            raise ValueError("valid_until is not after valid_from")
        if RESERVED_DEVICES & {self.fleet, self.device, self.stream}:
            raise ValueError("'estimate' and 'release' are reserved names")
        return self

    @property
    def _unused(self) -> set[str]:
        """Fields to leave out of both forms."""
        return set()

    def to_json(self) -> str:
        """The form for people: indented JSON."""
        return self.model_dump_json(indent=2, exclude=self._unused) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse and check the JSON form.

        Raises:
            PolicyError: one line that names the first field that is wrong.
        """
        if len(text) > MAX_POLICY_BYTES:
            raise PolicyError(f"policy of {len(text)} bytes; at most {MAX_POLICY_BYTES} are allowed")
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "policy"
            raise PolicyError(f"{where}: {first['msg']}") from None

    def to_msgpack(self) -> bytes:
        """The form for the wire: schema number, then a msgpack map with the fields of the JSON form."""
        packed: bytes = msgpack.packb(self.model_dump(mode="json", exclude=self._unused))
        return bytes([POLICY_SCHEMA]) + packed

    @classmethod
    def from_msgpack(cls, payload: bytes) -> Self:
        """Parse and check the wire form.

        Raises:
            PolicyError: one line that says what is wrong.
        """
        if len(payload) > MAX_POLICY_BYTES:
            raise PolicyError(f"policy of {len(payload)} bytes; at most {MAX_POLICY_BYTES} are allowed")
        if payload[:1] != bytes([POLICY_SCHEMA]):
            raise PolicyError(f"policy schema {payload[:1].hex() or 'missing'}, expected {POLICY_SCHEMA:02x}")
        try:
            text = json.dumps(msgpack.unpackb(payload[1:], raw=False, strict_map_key=True))
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
            raise PolicyError(f"policy is no msgpack document: {type(error).__name__}") from None
        return cls.from_json(text)
