"""What every policy document begins with, and its JSON form."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, ValidationError, model_validator

from fugu.contract._document import Document, DocumentFile, first_problem
from fugu.contract.discretisers import Discretiser
from fugu.contract.errors import PolicyError
from fugu.contract.frames import MAX_FRAME_TICKS
from fugu.contract.instants import LAST_US
from fugu.contract.topics import NAME_PATTERN, RESERVED_DEVICES

__all__ = ["MAX_POLICY_BYTES", "Clock", "Name", "PolicyHeader", "UsefulFor"]

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
MAX_POLICY_BYTES = 1 << 20
UsefulFor = Literal["state", "share", "place"]
"""A question that a plan's recommendation answers twice as well as guessing: the state now, shares of time, places."""


class Clock(Document):
    """When ticks happen: tick t at epoch_us + t * period_us, in microseconds of Unix time."""

    epoch_us: int = Field(ge=0, le=LAST_US)
    period_us: int = Field(ge=100, le=86_400_000_000 * 366)


class PolicyHeader(DocumentFile):
    """Whose policy it is, when it runs, and what its states are.

    Attributes:
        kind: what leaves the device, `symbols` or `points`.
        valid_from: Unix time in seconds from which the policy may run.
        valid_until: Unix time in seconds from which it may not run any more; none means for ever.
        frame_ticks: ticks in a frame of symbols or points, which is published every frame_ticks * period.
        missing_share: the most of the ticks that are expected to be missing without a state for that, if it is known;
            says how far off estimates can be, and nothing about privacy.
        useful_for: what the plan that made it found it good for, if it compared that with guessing.
    """

    remedy: ClassVar[str] = "make the policy anew with fugu plan"
    kind: str
    fleet: Name
    device: Name
    stream: Name
    version: int = Field(ge=1, le=2**32 - 1)
    valid_from: int = Field(default=0, ge=0, le=2**53)
    valid_until: int | None = Field(default=None, ge=1, le=2**53)
    clock: Clock
    frame_ticks: int = Field(default=1, ge=1, le=MAX_FRAME_TICKS)
    discretiser: Discretiser
    missing_share: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    useful_for: UsefulFor | None = None

    @model_validator(mode="after")
    def _plausible(self) -> Self:
        if self.valid_until is not None and self.valid_until <= self.valid_from:
            raise ValueError("valid_until is not after valid_from")
        if self.device in RESERVED_DEVICES:
            raise ValueError(f"{', '.join(sorted(RESERVED_DEVICES))} are reserved: no device is called so")
        return self

    @property
    def _unused(self) -> set[str]:
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
        cls.refuse_other_format(text)
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise PolicyError(first_problem(error, "policy")) from None
