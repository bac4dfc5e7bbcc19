"""Policies of symbols and windows: what a device does with a stream, and the guarantee that this gives."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, GetCoreSchemaHandler, GetPydanticSchema, ValidationError
from pydantic_core import CoreSchema, core_schema

from fugu.contract._document import Document, DocumentFile, first_problem
from fugu.contract.chains import ChainClass, JointChains
from fugu.contract.discretisers import Discretiser
from fugu.contract.errors import GuaranteeError, PolicyError
from fugu.contract.frames import MAX_FRAME_TICKS
from fugu.contract.groups import GroupDocument, SharedWindow
from fugu.contract.guarantee import Guarantee, StreamOutputs, check_outputs
from fugu.contract.losses import Loss
from fugu.contract.noise_table import NoiseTable
from fugu.contract.sentences import LAST_US, promised_words
from fugu.contract.stretches import Ceiling, StretchBound
from fugu.contract.topics import NAME_PATTERN, RESERVED_DEVICES
from fugu.contract.windows import MAX_WINDOWS, Window, total_rate
from fugu.core import guarantee as core
from fugu.core.policy import PolicyError as CompiledError

if TYPE_CHECKING:
    from fugu.contract.compiled import AgentPolicy

__all__ = ["MAX_POLICY_BYTES", "Clock", "Name", "Policy", "PolicyHeader", "UsefulFor"]


Name = Annotated[str, Field(pattern=NAME_PATTERN)]
MAX_POLICY_BYTES = 1 << 20
UsefulFor = Literal["state", "share", "place"]
"""The question that a plan answers twice as well as guessing: the present state, shares of time, or places."""
_MAX_OPEN_COUNTS = 16_384
"""The most counts of all windows under way together: a small device keeps them in memory."""


class Clock(Document):
    """The times of ticks: tick t is at epoch_us + t * period_us, in microseconds of Unix time."""

    epoch_us: int = Field(ge=0, le=LAST_US)
    period_us: int = Field(ge=100, le=86_400_000_000 * 366)


class PolicyHeader(DocumentFile):
    """The part that all policies have: the device and stream, the times it may run, and its states.

    Attributes:
        kind: what leaves the device, `symbols` or `points`.
        valid_from: Unix time in seconds from which the policy may run.
        valid_until: Unix time in seconds from which it may not run any more; none means for ever.
        frame_ticks: ticks in a frame of symbols or points, which is published every frame_ticks * period.
        missing_share: the largest expected share of ticks that are missing and have no state for that; none if it is
            unknown. It says how far off estimates can be, and nothing about privacy.
        useful_for: the question that the plan of the policy found it useful for; none if it did not compare.
    """

    remedy = "make the policy anew with fugu plan"
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

    def _check_consistency(self) -> None:
        if self.valid_until is not None and self.valid_until <= self.valid_from:
            raise ValueError("valid_until is not after valid_from")
        if self.device in RESERVED_DEVICES:
            raise ValueError(f"{', '.join(sorted(RESERVED_DEVICES))} are reserved: no device is called so")

    @property
    def _unused_fields(self) -> set[str]:
        return set()

    def to_json(self) -> str:
        """Write the policy as indented JSON."""
        return self.model_dump_json(indent=2, exclude=self._unused_fields) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse and check the JSON form; the PolicyError is one line that names the first wrong field."""
        if len(text) > MAX_POLICY_BYTES:
            raise PolicyError(f"policy of {len(text)} bytes; at most {MAX_POLICY_BYTES} are allowed")
        cls.refuse_other_format(text)
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise PolicyError(first_problem(error, "policy")) from None


class _TableRows(Document):
    """The written form of a table."""

    rows: tuple[tuple[int, ...], ...]


def _refuse_points(table: NoiseTable) -> NoiseTable:
    if table.points:
        raise ValueError("a policy of symbols has a table of points")
    return table


def _table_schema(_source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    rows_schema = handler.generate_schema(_TableRows)
    from_rows = core_schema.no_info_after_validator_function(lambda table: NoiseTable(table.rows), rows_schema)
    instance = core_schema.no_info_after_validator_function(_refuse_points, core_schema.is_instance_schema(NoiseTable))
    writing = core_schema.plain_serializer_function_ser_schema(lambda table: {"rows": table.rows})
    return core_schema.json_or_python_schema(from_rows, instance, serialization=writing)


SymbolTable = Annotated[NoiseTable, GetPydanticSchema(_table_schema)]


class Policy(PolicyHeader):
    """The work of a device with a stream, and its guarantee.

    Attributes:
        table: the randomisation of the symbols, one every tick; none if there are windows only.
        chains: the class of chains that the guarantee is for.
        guarantee: the loss to readers of all outputs of the stream, symbols and windows together.
        windows: counts that the device releases.
        sums: counts of which only sums over the homes of a group become known; promises call them windows, too.
        windows_guarantee: the loss to readers of the windows alone; given if and only if there are symbols as well.
    """

    kind: Literal["symbols"] = "symbols"
    table: SymbolTable | None = None
    chains: ChainClass
    guarantee: Guarantee
    windows: tuple[Window, ...] = Field(default=(), max_length=MAX_WINDOWS)
    sums: tuple[SharedWindow, ...] = Field(default=(), max_length=MAX_WINDOWS)
    windows_guarantee: Guarantee | None = None

    def _check_consistency(self) -> None:
        super()._check_consistency()
        if self.table is None and not self.counted_windows:
            raise ValueError("there is neither a table nor a window: give at least one of them")
        if self.table is None and self.frame_ticks != 1:
            raise ValueError("frame_ticks is for symbols: leave it out where there is no table")
        chains = self.chains
        if isinstance(chains, JointChains) and self.clock.period_us != chains.period_us:
            raise ValueError(f"the clock's period is not the {chains.period_us} microseconds of the chains")
        states = chains.state_counts[chains.stream_index(self.device, self.stream)]
        state_counts = (len(self.discretiser.states), states, *([] if self.table is None else [self.table.states]))
        if len(set(state_counts)) != 1:
            raise ValueError(f"discretiser, chains and table have {state_counts} states")
        if len({window.name for window in self.counted_windows}) != len(self.counted_windows):
            raise ValueError("two windows have the same name")
        if self.table is None and self.windows_guarantee is not None:
            raise ValueError("without a table, guarantee is what the windows tell: leave windows_guarantee out")
        if self.table is not None and bool(self.counted_windows) != (self.windows_guarantee is not None):
            raise ValueError("beside a table, windows and windows_guarantee belong together: give both or neither")
        for window in self.windows:
            if window.blocks is not None and window.length * self.clock.period_us < 86_400_000_000:
                raise ValueError(f"window {window.name} has a count for each block of a day, and is shorter than a day")
        for window_sum in self.sums:
            window_sum.check_stream(self.fleet, self.stream, self.discretiser.states, tuple(vars(self.clock).values()))
        total = sum(window_sum.group.sum_count for window_sum in self.sums)
        total += sum(window.overlap * len(window.groups(self.discretiser.states)) for window in self.windows)
        if total > _MAX_OPEN_COUNTS:
            raise ValueError(f"the windows under way would hold {total} counts; at most {_MAX_OPEN_COUNTS} are allowed")

    @property
    def window_rate(self) -> Fraction:
        """The loss that all windows and sums together add to every tick, in nats."""
        return total_rate(self.counted_windows)

    @property
    def counted_windows(self) -> tuple[Window | GroupDocument, ...]:
        """The windows, and the sums of groups."""
        return (*self.windows, *(window_sum.group for window_sum in self.sums))

    @property
    def outputs(self) -> StreamOutputs:
        """All outputs: the symbols, the windows and the sums."""
        return StreamOutputs(self.table, self.counted_windows)

    @property
    def window_outputs(self) -> StreamOutputs:
        """The outputs of the windows and sums alone."""
        return StreamOutputs(None, self.counted_windows)

    @property
    def windows_alone(self) -> Guarantee | None:
        """The guarantee to readers of the windows alone, or `None` without windows."""
        return self.guarantee if self.table is None else self.windows_guarantee

    def window(self, name: str) -> Window | None:
        """Return the window with a name, or `None` if there is none."""
        return next((window for window in self.windows if window.name == name), None)

    def verify(self, ceiling: Ceiling | float | None = None) -> Loss:
        """Derive the loss of symbols and windows about a single tick again, and return it.

        GuaranteeError: a guarantee is false, or a stretch of the ceiling's time loses more than the ceiling. A number
        is a ceiling for a tick.
        """
        if self.table is not None:
            self.verify_windows()
        actual_loss = check_outputs(self.chains, self.outputs, self.guarantee, self)
        if ceiling is not None:
            self.check_ceiling(ceiling if isinstance(ceiling, Ceiling) else Ceiling(epsilon=ceiling))
        return actual_loss

    def check_ceiling(self, ceiling: Ceiling) -> None:
        """Refuse a policy whose guarantee allows a stretch of the ceiling's time to lose more than the ceiling."""
        try:
            core.check_ceilings(self.compiled(), ceiling.limits)
        except core.GuaranteeError:
            ticks = ceiling.ticks(self.clock.period_us)
            epsilon = self.bound().epsilon(ticks)
            stretch_words = f" about {ticks} ticks in a row" if ticks > 1 else ""
            raise GuaranteeError(
                f"epsilon {epsilon:g}{stretch_words} of stream {self.stream} is above this device's ceiling {ceiling}"
            ) from None

    def compiled(self) -> AgentPolicy:
        """Compile the policy for agents and read it back; PolicyError if agents cannot run it."""
        from fugu.contract.compiled import read_policy  # imported only where policies are verified
        from fugu.contract.compiler import compile_policy

        try:
            return read_policy(compile_policy(self))
        except CompiledError as error:
            raise PolicyError(f"no agent runs the policy of stream {self.stream}: {error}") from None

    def verify_windows(self) -> Loss | None:
        """Derive the loss of the windows alone again, if there are any. GuaranteeError if it is above the claim."""
        if self.windows_alone is None:
            return None
        return check_outputs(self.chains, self.window_outputs, self.windows_alone, self, windows_only=True)

    def bound(self, derived_loss: Loss | None = None) -> StretchBound:
        """Bound the loss of all outputs about stretches, from a tick's derived loss or, by default, the promise."""
        return self._promise_bound(self.guarantee, self.outputs, derived_loss)

    @property
    def privacy(self) -> str:
        """The verdict on the privacy of all outputs, by the promise."""
        stretches = self.bound().rows(self.clock.period_us, self.guarantee.epsilon)
        return promised_words(self.guarantee.epsilon, self.guarantee.stretch_ticks, stretches)

    def __str__(self) -> str:
        return f"{self.fleet}/{self.device}/{self.stream} version {self.version}. {self.privacy}"

    def windows_bound(self, derived_loss: Loss | None = None) -> StretchBound | None:
        """Bound the loss of the windows alone about stretches, as `bound` does, or return `None` without windows."""
        if self.windows_alone is None:
            return None
        return self._promise_bound(self.windows_alone, self.window_outputs, derived_loss)

    def _promise_bound(self, promise: Guarantee, outputs: StreamOutputs, derived_loss: Loss | None) -> StretchBound:
        tick_promise = (promise.epsilon, promise.stretch_ticks) if derived_loss is None else (derived_loss.epsilon, 1)
        return outputs.bound(self.chains, promise.adversary, *tick_promise)

    @property
    def _unused_fields(self) -> set[str]:
        if self.table is None:
            names = {"table", "frame_ticks", "windows_guarantee"}
        else:
            names = set() if self.counted_windows else {"windows", "windows_guarantee"}
        return names if self.sums else {*names, "sums"}
