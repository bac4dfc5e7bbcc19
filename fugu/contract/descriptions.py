"""Descriptions of streams, for readers without the policy; they follow from the policy and are public by design."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, ValidationError

from fugu.contract._document import FORMAT_NAME, Document, Printable, refusal
from fugu.contract.chains import ChainClass
from fugu.contract.dating import PromiseDates, dates_of
from fugu.contract.discretisers import Cells, Label
from fugu.contract.errors import range_error
from fugu.contract.frames import MAX_TICK
from fugu.contract.groups import SharedWindow
from fugu.contract.history import UNCHANGED, History
from fugu.contract.losses import Adversary
from fugu.contract.message import check_size
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Name, Policy, UsefulFor
from fugu.contract.queries import EACH, Each
from fugu.contract.sentences import (
    class_sentence,
    instant,
    instant_text,
    loss_words,
    protected_sentence,
    read_instant,
    unix_us,
)
from fugu.contract.stretches import Stretch, StretchBound, StretchTicks
from fugu.contract.windows import QueryDocument, Window

if TYPE_CHECKING:
    from fugu.contract.guarantee import Guarantee
    from fugu.contract.measure_policy import StreamLoss

__all__ = [
    "MAX_DESCRIPTION_BYTES",
    "METRES_PER_DEGREE",
    "MOST_OTHERS",
    "DescribedPromise",
    "DescribedVersion",
    "DescribedWindow",
    "Description",
    "PlaceGrid",
    "describe",
    "place_grid",
]


MAX_DESCRIPTION_BYTES = 1 << 21
MOST_OTHERS = 3
METRES_PER_DEGREE = 111_320.0
"""Metres per degree of latitude; a degree of longitude has this times the cosine of the latitude."""
_LARGEST_PERIOD = 86_400.0 * 366
_PROJECTION = (
    "equirectangular, in degrees of WGS 84: latitude = origin[0] + (row + 0.5) * step[0], longitude = origin[1] + "
    "(column + 0.5) * step[1]; a measured point (east, north) is at column = east / cell_size[0], row = north / "
    "cell_size[1]"
)
_MICROSECONDS = 1_000_000
Positive = Annotated[float, Field(gt=0.0)]
Sentence = Annotated[Printable, Field(max_length=100_000)]


class DescribedStretch(Document):
    """Loss about a stretch of time, as in `fugu.contract.stretches`; no epsilon if there is no bound.

    Attributes:
        floor: the loss if all other ticks are the same, for any class of chains.
        outside: epsilon of stretches that begin when the promise is not true; none if it always is, or without a bound.
    """

    name: Annotated[Printable, Field(max_length=64)]
    ticks: int = Field(ge=1)
    epsilon: Positive | None
    floor: Annotated[float, Field(ge=0.0)]
    protected: bool
    outside: Positive | None = None


class DescribedPromise(Document):
    """A promise: the epsilon of `stretch_ticks` ticks in a row, the adversary, and the losses of other stretches.

    Attributes:
        epsilon: none if there is no bound.
        since, until: the first and the last tick at which a promised stretch may begin, near a change of policy.
            `since` is none if epsilon is shown to be true of no stretch, `until` is none if there is no end. Stretches
            of other lengths may begin from `since` on, and have to end by the end of the promised stretch that begins
            at `until`.
        outside: epsilon of other stretches under this version; none if there are none, or no bound.
    """

    epsilon: Positive | None
    adversary: Adversary
    stretch_ticks: StretchTicks
    stretches: Annotated[tuple[DescribedStretch, ...], Field(max_length=32)]
    since: Annotated[int, Field(ge=0, le=MAX_TICK)] | None = 0
    until: Annotated[int, Field(ge=0, le=MAX_TICK)] | None = None
    outside: Positive | None = None

    @property
    def holds_always(self) -> bool:
        """True if no change of policy weakens the promise."""
        return self.since == 0 and self.until is None

    @property
    def tick_epsilon(self) -> float | None:
        """The loss of a single tick, or of a promised stretch if single ticks have no row; `None` without a bound."""
        return next((stretch.epsilon for stretch in self.stretches if stretch.ticks == 1), self.epsilon)

    def epsilon_at(self, first: int, last: int) -> float | None:
        """Return the loss of any single tick in first..last, or `None` without a bound."""
        dates = PromiseDates(self.stretch_ticks, self.since, self.until)
        if dates.covers(first, last, 1):
            return self.tick_epsilon
        return next((stretch.outside for stretch in self.stretches if stretch.ticks == 1), self.outside)

    @property
    def when_words(self) -> str:
        """The ticks for which the promise is true, in words, or an empty text if it is always true."""
        if self.holds_always:
            return ""
        loss = "no bound" if self.outside is None else loss_words(self.outside)
        if self.since is None:
            return f"a change of policy is near: not shown to be true of any tick yet; {loss}"
        times = [f"from tick {self.since} on"] if self.since else []
        times += [] if self.until is None else [f"up to tick {self.until}"]
        return f"true of what begins {' and '.join(times)}, for changes of policy; elsewhere {loss}"


class DescribedWindow(QueryDocument):
    """A window that the device counts; `states` are labels, or histogram if each has a count of its own.

    Attributes:
        length, stride, start: in ticks.
        scale: of the noise on each count, in ticks, as "20" or "7/3".
    """

    name: Annotated[Printable, Field(max_length=32)]
    length: int = Field(ge=1)
    stride: int = Field(ge=1)
    start: int = Field(ge=0)
    states: Each | tuple[Label, ...]
    scale: Annotated[Printable, Field(max_length=32)]

    def count_names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return each count in words; `names` are the stream's states."""
        return self.query.count_names(names if self.states == EACH else self.states)

    def groups(self, names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        """Return the names of the states of each count; `names` are the stream's states."""
        return self.query.groups(names if self.states == EACH else self.states)


class DescribedSum(Document):
    """A sum over the homes of a group, to which the device reports its share.

    Attributes:
        length: of a window, in ticks.
        states: labels whose ticks are counted.
        helper: the 30 digits of the helper's key.
        honest: the number of homes that have to be real and honest for the guarantee to be true.
        least: the least number of homes in a sum.
        condition: the condition of the guarantee, in a sentence.
    """

    name: Annotated[Printable, Field(max_length=32)]
    length: int = Field(ge=1)
    states: tuple[Label, ...]
    helper: Annotated[Printable, Field(max_length=35)]
    honest: int = Field(ge=1)
    least: int = Field(ge=1)
    condition: Sentence


class PlaceGrid(Document):
    """Where on the earth the states, or the measurements, of a stream are.

    Attributes:
        origin: latitude and longitude, in degrees, of the south-west corner of cell (0, 0).
        step: height and width of a cell, in degrees.
        cell_size: width and height of a cell in the unit of measurements; none of a stream of symbols.
        cells: for each state that has one the column (to the east) and row (to the north) of its cell.
        projection: the formulas from cells to degrees, in words.
    """

    origin: tuple[Annotated[float, Field(ge=-90, le=90)], Annotated[float, Field(ge=-180, le=180)]]
    step: tuple[Annotated[float, Field(gt=0, le=90)], Annotated[float, Field(gt=0, le=180)]]
    cell_size: tuple[Positive, Positive] | None
    cells: tuple[tuple[int, int], ...]
    projection: Sentence = _PROJECTION

    def position(self, column: float, row: float) -> tuple[float, float]:
        """Convert a column and row to latitude and longitude, kept on the earth; whole numbers are middles of cells."""
        latitude = self.origin[0] + (row + 0.5) * self.step[0]
        longitude = self.origin[1] + (column + 0.5) * self.step[1]
        if not -180.0 <= longitude <= 180.0:
            longitude = (longitude + 180.0) % 360.0 - 180.0
        return min(90.0, max(-90.0, latitude)), longitude

    def measured_position(self, east: float, north: float) -> tuple[float, float]:
        """Convert a measurement to latitude and longitude; ValueError for a stream of symbols."""
        if self.cell_size is None:
            raise ValueError("a stream of symbols has no measurements")
        return self.position(east / self.cell_size[0], north / self.cell_size[1])

    def metres(self, latitude: float) -> tuple[float, float]:
        """Return the metres of a unit of measurements, east and north; ValueError for a stream of symbols."""
        if self.cell_size is None:
            raise ValueError("a stream of symbols has no measurements")
        east = self.step[1] * METRES_PER_DEGREE * math.cos(math.radians(latitude))
        return east / self.cell_size[0], self.step[0] * METRES_PER_DEGREE / self.cell_size[1]


class DescribedVersion(Document):
    """A stream under one version of its policy.

    Attributes:
        version: of the policy.
        confirmed: whether the device has named this version.
        kind: what the device sends: symbols, windows of counts, both, or points.
        states: labels, by number.
        unit: of measurements; none if they have no unit.
        epoch: the time of tick 0, as RFC 3339.
        period_seconds: from tick to tick.
        frame_ticks: ticks in a message of the device.
        table: for each state cumulative thresholds over 2^32, the distribution of its symbols; none without symbols.
        windows: that the device counts.
        sums: over homes, to which the device reports shares; their conditions belong to the guarantees.
        place: the grid of a stream of places; none of other streams.
        chains: the class of chains that the guarantee is for, as in the policy; none of points.
        chain_class: the class in a sentence.
        guarantee: of all outputs of the stream.
        windows_guarantee: of its windows alone; none unless there are both symbols and windows.
        point_epsilon: of a single point; none of other streams.
        protects, does_not_protect: in a sentence each.
        useful_for: the question that the plan found the stream useful for.
    """

    format: Literal["fugu/2"] = FORMAT_NAME
    fleet: Name
    device: Name
    stream: Name
    version: int = Field(ge=1, le=2**32 - 1)
    confirmed: bool
    kind: Literal["symbols", "windows", "both", "points"]
    states: Annotated[tuple[Label, ...], Field(min_length=2, max_length=1024)]
    unit: Annotated[Printable, Field(min_length=1, max_length=32)] | None
    epoch: Annotated[Printable, Field(max_length=32)]
    period_seconds: Annotated[float, Field(ge=1e-4, le=_LARGEST_PERIOD)]
    frame_ticks: int = Field(ge=1, le=4096)
    table: Annotated[tuple[tuple[Annotated[int, Field(ge=0, le=2**32)], ...], ...], Field(max_length=255)] | None
    windows: Annotated[tuple[DescribedWindow, ...], Field(max_length=16)]
    sums: Annotated[tuple[DescribedSum, ...], Field(max_length=16)]
    place: PlaceGrid | None
    chains: ChainClass | None
    chain_class: Sentence
    guarantee: DescribedPromise
    windows_guarantee: DescribedPromise | None
    point_epsilon: Positive | None
    protects: Sentence
    does_not_protect: Sentence
    useful_for: UsefulFor | None

    def _check_consistency(self) -> None:
        read_instant(self.epoch)
        if len(set(self.states)) != len(self.states):
            raise ValueError("two states have the same name")
        if self.table is not None and (len(self.table) != len(self.states) or len(set(map(len, self.table))) != 1):
            raise ValueError("table does not have a row of one length for each state")

    @property
    def epoch_us(self) -> int:
        """The time of tick 0, in microseconds of Unix time."""
        return unix_us(read_instant(self.epoch))

    @property
    def period_us(self) -> int:
        """The microseconds from tick to tick."""
        return round(self.period_seconds * _MICROSECONDS)

    def time_of(self, tick: int, shift: int = 0) -> datetime:
        """Return the time of a tick, with numbers `shift` ahead of wall ticks; FrameError outside 1970..9999."""
        return instant(self.epoch_us + (tick - shift) * self.period_us)

    def label(self, symbol: int) -> str:
        """Return the name of a symbol: its state's if there are as many symbols as states, else "symbol" and a number.

        FrameError if the stream has no such symbol.
        """
        symbol_count = len(self.states) if self.table is None else len(self.table[0]) + 1
        if not 0 <= symbol < symbol_count:
            raise range_error(f"symbol {symbol} is none of the stream's {symbol_count}")
        return self.states[symbol] if symbol_count == len(self.states) else f"symbol {symbol}"


class Description(DescribedVersion):
    """A stream under the version of its policy that is in force.

    Attributes:
        others: versions that frames may still come under, the newest last; messages leave the field out if it is empty.
    """

    others: Annotated[tuple[DescribedVersion, ...], Field(max_length=MOST_OTHERS)] = ()

    def encode(self) -> bytes:
        """Encode the message."""
        return self.model_dump_json(exclude=None if self.others else {"others"}).encode()

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Parse a message; the FrameError says what is wrong."""
        check_size(payload, MAX_DESCRIPTION_BYTES, "a description")
        try:
            return cls.model_validate_json(payload)
        except ValidationError as error:
            raise refusal(error, "description") from None

    def _check_consistency(self) -> None:
        super()._check_consistency()
        full_name = self.fleet, self.device, self.stream
        if any((version.fleet, version.device, version.stream) != full_name for version in self.others):
            raise ValueError("another version is of another stream")
        if len({self.version, *(version.version for version in self.others)}) != 1 + len(self.others):
            raise ValueError("a version is described twice")


def describe(
    policy: AnyPolicy, *, confirmed: bool = True, history: History = UNCHANGED, other_policies: Iterable[AnyPolicy] = ()
) -> Description:
    """Describe the stream of a policy; a FrameError if its times are beyond the year 9999.

    `confirmed`: whether the device has named this version. `history`: the ticks of all versions. `other_policies`:
    versions that frames may still come under, at most `MOST_OTHERS`, the newest last.
    """
    versions = tuple(DescribedVersion(**_fields(policy, history, confirmed=True)) for policy in other_policies)
    return Description(**_fields(policy, history, confirmed=confirmed), others=versions)


def _fields(policy: AnyPolicy, history: History, *, confirmed: bool) -> dict[str, Any]:
    """Return the fields that describe one version of a policy."""
    fields: dict[str, Any] = {
        **{name: getattr(policy, name) for name in ("fleet", "device", "stream", "version", "frame_ticks")},
        "confirmed": confirmed,
        "states": policy.discretiser.states,
        "epoch": instant_text(instant(policy.clock.epoch_us)),
        "period_seconds": policy.clock.period_us / _MICROSECONDS,
        "protects": protected_sentence(policy.discretiser),
        "useful_for": policy.useful_for,
        "place": place_grid(policy),
        **dict.fromkeys(("unit", "table", "chains", "windows_guarantee", "point_epsilon")),
        "windows": (),
        "sums": (),
    }
    if isinstance(policy, Policy):
        guarantee = policy.guarantee
        period, claim = policy.clock.period_us, policy.windows_guarantee
        stretches, bound = _stretches(policy.bound(), period, guarantee.epsilon), policy.windows_bound()
        fields |= {
            "kind": "windows" if policy.table is None else "both" if policy.counted_windows else "symbols",
            "table": None if policy.table is None else policy.table.rows,
            "windows": tuple(_describe_window(window, policy.discretiser.states) for window in policy.windows),
            "sums": tuple(map(_describe_sum, policy.sums)),
            "chains": policy.chains,
            "guarantee": _describe_promise(guarantee, stretches, dates_of(policy, history)),
        }
        if claim and bound:
            dates = dates_of(policy, history, windows_only=True)
            fields["windows_guarantee"] = _describe_promise(claim, _stretches(bound, period, claim.epsilon), dates)
    else:
        epsilon = policy.stream_loss.epsilon
        stretches = () if epsilon is None else (Stretch("a single tick", 1, epsilon, epsilon),)
        promise = _describe_promise(policy.stream_loss, stretches, dates_of(policy, history))
        fields |= {"kind": "points", "unit": policy.unit or None, "guarantee": promise, "point_epsilon": policy.epsilon}
    chain_class = class_sentence(fields["chains"])
    conditions = [shared_window.condition for shared_window in policy.sums] if isinstance(policy, Policy) else []
    unprotected = "; ".join([_unprotected_sentence(stretches), *conditions])
    return fields | {"chain_class": chain_class, "does_not_protect": unprotected}


@lru_cache(maxsize=256)  # policies of a fleet promise few different things
def _stretches(bound: StretchBound, period_us: int, epsilon: float) -> tuple[Stretch, ...]:
    return bound.rows(period_us, epsilon)


def _unprotected_sentence(stretches: Sequence[Stretch]) -> str:
    """Say from which stretch on nothing is protected, and what is always public; stretches are the shortest first."""
    public_words = "anybody can see when the device is on"
    if unprotected := next((stretch for stretch in stretches if not stretch.protected), None):
        return f"Not protected: {unprotected.name} or longer; {public_words}"
    return f"The longer a stretch of time is, the less it is protected; {public_words}"


def _describe_promise(
    promise: Guarantee | StreamLoss, stretches: Sequence[Stretch], dates: PromiseDates
) -> DescribedPromise:
    def epsilon_outside(ticks: int, epsilon: float | None) -> float | None:
        if dates.outer_bound is None or epsilon is None:
            return None
        return _finite(max(epsilon, dates.outer_bound.epsilon(ticks)))

    return DescribedPromise(
        epsilon=promise.epsilon,
        adversary=promise.adversary,
        stretch_ticks=dates.ticks,
        stretches=tuple(
            DescribedStretch(
                name=stretch.name,
                ticks=stretch.ticks,
                epsilon=_finite(stretch.epsilon),
                floor=stretch.floor,
                protected=stretch.protected,
                outside=epsilon_outside(stretch.ticks, stretch.epsilon),
            )
            for stretch in stretches
        ),
        since=dates.since,
        until=dates.until,
        outside=epsilon_outside(dates.ticks, promise.epsilon),
    )


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None


def _describe_window(window: Window, labels: tuple[str, ...]) -> DescribedWindow:
    states: Each | tuple[str, ...] = EACH if window.states == EACH else tuple(labels[i] for i in window.counted(labels))
    return DescribedWindow(states=states, **window.model_dump(exclude={"states", "mechanism"}))


def _describe_sum(shared_window: SharedWindow) -> DescribedSum:
    group = shared_window.group
    return DescribedSum(
        name=group.name,
        length=group.length,
        states=group.count,
        helper=group.helper_digits,
        honest=group.honest,
        least=group.quorum,
        condition=shared_window.condition,
    )


def place_grid(policy: AnyPolicy) -> PlaceGrid | None:
    """Return the grid of a stream of places, or None for other streams and for measurements beside the cells."""
    grid = policy.discretiser
    if not isinstance(grid, Cells):
        return None
    cell_size = None
    if not isinstance(policy, Policy):
        if policy.coordinates[: len(grid.cells)] != grid.cells:
            return None
        cell_size = (policy.resolution[0], policy.resolution[1])
    return PlaceGrid(origin=grid.origin, step=grid.step, cell_size=cell_size, cells=grid.cells)
