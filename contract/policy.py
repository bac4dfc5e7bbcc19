"""Policy documents: what a device does with one stream, and the guarantee that this gives.

A policy has a JSON form for people and a msgpack form for the wire; both hold the same fields and pass the same
checks. The msgpack bytes are what an envelope will sign.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Annotated, Literal, Self

import msgpack
from pydantic import Field, ValidationError, model_validator

from contract._document import Document
from contract.chains import ChainClass
from contract.errors import GuaranteeError, PolicyError
from contract.exponential import exp_up
from contract.frames import MAX_FRAME_TICKS
from contract.guarantee import Guarantee, Loss, check_ratios, tick_ratios
from contract.table import EmissionTable
from contract.topics import NAME_PATTERN, RESERVED_DEVICES
from contract.windows import MAX_OPEN_COUNTS, MAX_WINDOWS, Window, total_rate

__all__ = ["Categories", "Clock", "Discretiser", "Policy", "Thresholds"]

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Label = Annotated[str, Field(min_length=1, max_length=64)]
POLICY_SCHEMA = 1
MAX_POLICY_BYTES = 1 << 20
_MICROSECONDS_MAX = 2**62


class Clock(Document):
    """When ticks happen: tick t at epoch_us + t * period_us, in microseconds of Unix time."""

    epoch_us: int = Field(ge=0, le=_MICROSECONDS_MAX)
    period_us: int = Field(ge=100, le=86_400_000_000 * 366)


class Thresholds(Document):
    """Numbers become states: state i for edges[i-1] <= value < edges[i].

    With hysteresis h > 0 the state only changes once the value has passed the edge by more than h.
    """

    kind: Literal["thresholds"] = "thresholds"
    edges: tuple[float, ...] = Field(min_length=1, max_length=254)
    states: tuple[Label, ...]
    hysteresis: float = Field(default=0.0, ge=0.0)
    default: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.states) != len(self.edges) + 1:
            raise ValueError(f"{len(self.edges)} edges make {len(self.edges) + 1} states, not {len(self.states)}")
        if any(low >= high for low, high in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError("edges must increase strictly")
        if any(self.hysteresis * 2 >= high - low for low, high in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError("hysteresis must be less than half the distance of neighbouring edges")
        _check_names(self)
        return self


class Categories(Document):
    """Names become states by a map; a name that is not in it counts as a missing reading."""

    kind: Literal["categories"] = "categories"
    categories: dict[str, int] = Field(min_length=1, max_length=10_000)
    states: tuple[Label, ...] = Field(min_length=2, max_length=255)
    default: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not all(0 <= state < len(self.states) for state in self.categories.values()):
            raise ValueError("a category maps to a state that has no name")
        _check_names(self)
        return self


Discretiser = Annotated[Thresholds | Categories, Field(discriminator="kind")]


def _check_names(discretiser: Thresholds | Categories) -> None:
    if discretiser.default >= len(discretiser.states):
        raise ValueError(f"default state {discretiser.default} has no name")
    if len(set(discretiser.states)) != len(discretiser.states):
        raise ValueError("two states have the same name")


class Policy(Document):
    """What one device does with one stream, and what that guarantees.

    Attributes:
        valid_from: Unix time in seconds from which the policy may run.
        valid_until: Unix time in seconds from which it may not run any more; none means for ever.
        frame_ticks: symbols in a frame; a frame is published every frame_ticks * period.
        table: the randomisation.
        chains: the class of chains that the guarantee is for.
        guarantee: epsilon, and the adversary it holds against: what those learn who see everything that the device
            says of the stream, symbols and windows together.
        windows: counts that the device releases beside the symbols.
        windows_guarantee: what those learn who see the windows only; given if and only if there are windows.
    """

    policy_format: Literal[1] = 1
    fleet: Name
    device: Name
    stream: Name
    version: int = Field(ge=1, le=2**32 - 1)
    valid_from: int = Field(default=0, ge=0, le=2**53)
    valid_until: int | None = Field(default=None, ge=1, le=2**53)
    clock: Clock
    frame_ticks: int = Field(ge=1, le=MAX_FRAME_TICKS)
    discretiser: Discretiser
    table: EmissionTable
    chains: ChainClass
    guarantee: Guarantee
    windows: tuple[Window, ...] = Field(default=(), max_length=MAX_WINDOWS)
    windows_guarantee: Guarantee | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        counts = (len(self.discretiser.states), self.table.states, self.chains.states)
        if len(set(counts)) != 1:
            raise ValueError(f"discretiser, table and chains have {counts} states")
        if self.valid_until is not None and self.valid_until <= self.valid_from:
            raise ValueError("valid_until is not after valid_from")
        if RESERVED_DEVICES & {self.fleet, self.device, self.stream}:
            raise ValueError("'estimate' and 'release' are reserved names")
        if len({window.name for window in self.windows}) != len(self.windows):
            raise ValueError("two windows have the same name")
        if bool(self.windows) != (self.windows_guarantee is not None):
            raise ValueError("windows and windows_guarantee belong together: give both or neither")
        for window in self.windows:
            window.counted(self.discretiser.states)
        held = sum(window.overlap * window.counts(self.table.states) for window in self.windows)
        if held > MAX_OPEN_COUNTS:
            raise ValueError(f"the windows under way would hold {held} counts; at most {MAX_OPEN_COUNTS} are allowed")
        return self

    @property
    def window_rate(self) -> Fraction:
        """The loss that all windows together add to every tick, in nats."""
        return total_rate(self.windows)

    def window(self, name: str) -> Window | None:
        """The window of a name, if there is one."""
        return next((window for window in self.windows if window.name == name), None)

    def verify(self, ceiling: float) -> Loss:
        """Re-derive both guarantees from the table and the windows, and hold them against the owner's ceiling.

        What a device says of a stream is one mechanism: changing one tick's state changes the likelihood of a symbol
        by the ratios of the table, and that of the counts by at most e^window_rate, in both directions.

        Args:
            ceiling: largest epsilon that the device's owner accepts.

        Returns:
            The loss that symbols and windows together really have.

        Raises:
            GuaranteeError: if a claimed guarantee is false, or the one of everything above the ceiling.
        """
        self.verify_windows()
        rate = exp_up(self.window_rate)
        ratio_01, ratio_10 = tick_ratios(self.table)
        what = "the table with the windows beside it" if self.windows else "the table"
        achieved = check_ratios(self.chains, (ratio_01 * rate, ratio_10 * rate), self.guarantee, what)
        if self.guarantee.epsilon > ceiling:
            raise GuaranteeError(
                f"epsilon {self.guarantee.epsilon:g} of stream {self.stream} is above this device's ceiling {ceiling:g}"
            )
        return achieved

    def verify_windows(self) -> Loss | None:
        """Re-derive what the windows alone lose; none if there are no windows.

        Raises:
            GuaranteeError: if it is above the windows' guarantee.
        """
        if self.windows_guarantee is None:
            return None
        rate = exp_up(self.window_rate)
        return check_ratios(self.chains, (rate, rate), self.windows_guarantee, "the set of windows")

    @property
    def _unused(self) -> set[str]:
        """Fields to leave out: a policy without windows has the bytes that it had before there were any."""
        return set() if self.windows else {"windows", "windows_guarantee"}

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
