"""The plan of a running agent, as plain values: the outcome of checking a configuration and its policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any, Literal

from edge_agent.randomiser import SymbolNoise
from fugu.contract.calendar import DAY, DayBlocks
from fugu.contract.compiled import AgentPolicy, SharedSum, read_policy
from fugu.contract.noise_table import NoiseTable
from fugu.contract.queries import ELSEWHERE
from fugu.core.policy import ADVERSARIES, BOUNDED, JOINT, NONE, Window

if TYPE_CHECKING:
    from edge_agent.measurer import PointSource
    from fugu.mqtt import Broker

__all__ = ["AgentPlan", "ClockSettings", "Managed", "StreamPlan", "SumPlan", "WindowPlan"]


_MOST_STATES = 8


@dataclass(frozen=True)
class WindowPlan(Window):
    """One verified window; `places` has `ELSEWHERE` for states that count nowhere, `day` blocks that count each."""

    name: str
    start: int
    length: int
    stride: int
    counts: int
    places: tuple[int, ...]
    numerator: int
    denominator: int
    day: DayBlocks | None = None
    epoch_us: int = 0
    period_us: int = 1

    @classmethod
    def of(cls, window: Window, policy: AgentPolicy) -> WindowPlan:
        """Take the parts of a window of a compiled policy."""
        return cls(
            **{name: getattr(window, name) for name in ("name", "start", "length", "stride", "counts")},
            **{name: getattr(window, name) for name in ("numerator", "denominator")},
            places=_places(window.places),
            day=_blocks(window.blocks),
            epoch_us=policy.epoch_us,
            period_us=policy.period_us,
        )

    def place(self, tick: int, state: int | None) -> int | None:
        """The number that a tick counts towards, or `ELSEWHERE`; None for a tick without a state."""
        place = None if state is None else self.places[state]
        return _number(self.day, place, self.epoch_us + tick * self.period_us)

    def is_recorded(self, index: int, tick: int) -> bool:
        """True if one of the first three quarters of a window ends at a tick: its count is then put on the disk."""
        done = tick - self.first(index) + 1
        return done < self.length and 4 * done // self.length > 4 * (done - 1) // self.length


@dataclass(frozen=True, slots=True)
class SumPlan:
    """One sum over a group of homes, verified: what this home counts for it, and its share of the noise.

    Windows go by wall ticks: n has start + n * length .. + length - 1. Of `places` each state has the number that it
    counts towards, or `ELSEWHERE`.

    Attributes:
        digest, helper: of the group's document; the public key of its helper; in hexadecimal.
        noise, honest: what a share is drawn from.
        counts: numbers that a window has, each with a share of its own.
        deadline_ticks: within which a report is of use, after the end of its window.
    """

    name: str
    digest: str
    helper: str
    start: int
    length: int
    noise: int
    honest: int
    counts: int
    places: tuple[int, ...]
    deadline_ticks: int
    day: DayBlocks | None
    epoch_us: int
    period_us: int

    @classmethod
    def of(cls, shared: SharedSum, policy: AgentPolicy) -> SumPlan:
        """Take the parts of a sum of a compiled policy."""
        day = _blocks(shared.blocks)
        return cls(
            **{name: getattr(shared, name) for name in ("name", "start", "length", "noise", "honest")},
            digest=shared.digest.hex(),
            helper=shared.helper.hex(),
            counts=1 if day is None else DAY // day.seconds,
            places=_places(shared.places),
            deadline_ticks=-(-shared.deadline * 1_000_000 // policy.period_us),
            day=day,
            epoch_us=policy.epoch_us,
            period_us=policy.period_us,
        )

    @property
    def stride(self) -> int:
        """Ticks from the beginning of one window to that of the next."""
        return self.length

    def begin(self, number: int) -> int:
        """First wall tick of a window."""
        return self.start + number * self.length

    def at(self, wall: int) -> int:
        """Number of the window of a wall tick; below 0 before the first."""
        return (wall - self.start) // self.length

    def places_at(self, wall: int, state: int | None) -> tuple[int, int | None]:
        """The number whose ticks a wall tick is one of, and the number that its state counts towards, if any."""
        time_us = self.epoch_us + wall * self.period_us
        block = _number(self.day, 0, time_us) or 0
        place = None if state is None else _number(self.day, self.places[state], time_us)
        return block, None if place == ELSEWHERE else place


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """One stream of a policy that has been verified.

    Attributes:
        valid_from, valid_until: Unix time in seconds within which symbols may be made.
        epoch_us, period_us: wall tick t happens at epoch_us + t * period_us, in microseconds of Unix time.
        noise: what is drawn from; None where windows are all there is.
        discretiser: as it is compiled.
        watch: what the guarantee assumes of the states, as far as that can be seen from them.
        noise_bound: of the noise, for versions of the policy before and after; see `fugu.contract.history.Noise`.
    """

    stream: str
    version: int
    valid_from: int
    valid_until: int | None
    epoch_us: int
    period_us: int
    frame_ticks: int
    noise: SymbolNoise | PointSource | None
    discretiser: bytes
    sensor: dict[str, Any]
    windows: tuple[WindowPlan, ...] = ()
    sums: tuple[SumPlan, ...] = ()
    watch: dict[str, Any] | None = None
    noise_bound: str = ""

    @classmethod
    def of(cls, form: dict[str, Any], sensor: dict[str, Any]) -> StreamPlan:
        """Take what is run of a policy that has been verified: what `edge_agent.enrolled.to_run` says of it."""
        policy = read_policy(bytes.fromhex(form["compiled"]))
        return cls(
            **{name: getattr(policy, name) for name in ("stream", "version", "valid_from", "frame_ticks")},
            **{name: getattr(policy, name) for name in ("epoch_us", "period_us", "discretiser")},
            valid_until=policy.valid_until or None,
            noise=_noise(policy, form),
            sensor=sensor,
            windows=tuple(WindowPlan.of(window, policy) for window in policy.windows),
            sums=tuple(SumPlan.of(shared, policy) for shared in policy.sums),
            watch=None if policy.points else _watched_class(policy, form.get("rate")),
            noise_bound=form.get("noise_bound", ""),
        )

    @property
    def repeats(self) -> int:
        """Ticks after which all that goes by the time of day repeats: the strides of windows, the cycle of a chain."""
        strides = (*(window.stride for window in self.windows), *(one.length for one in self.sums))
        return lcm(1 if self.noise is None else self.noise.cycle, *strides)

    def valid_at(self, now_us: int) -> bool:
        """True if symbols may be made at a time."""
        seconds = now_us / 1e6
        return self.valid_from <= seconds and (self.valid_until is None or seconds < self.valid_until)


def _watched_class(policy: AgentPolicy, rate: float | None) -> dict[str, Any] | None:
    """Assumption of a guarantee about steps; `None` if it has none that can be checked.

    A joint chain is none: its states are pairs of ticks, or of several streams, and a stream shows a part of them.

    It has `q` and `r`, intervals; or `odds_ratio`, all that a universal guarantee needs. If the `rate` of all that a
    tick adds to is given: that, the adversary, an hour's ticks.
    """
    if policy.chains == JOINT or policy.states > _MOST_STATES:
        return None
    adversary, beside = ADVERSARIES[policy.guarantee[0]], dict[str, Any]()
    if rate is not None:
        beside = {"rate": rate, "adversary": adversary, "hour": max(1, 3_600_000_000 // policy.period_us)}
    bounds = [Fraction(*member) for member in policy.members]
    if policy.chains == BOUNDED:
        return {"odds_ratio": float(bounds[0]), **beside}
    (q0, q1, r0, r1) = map(float, bounds)
    if adversary != "universal":
        return {"q": [q0, q1], "r": [r0, r1], **beside}
    sticky, restless = (1 - q0) * (1 - r0) / (q0 * r0), q1 * r1 / ((1 - q1) * (1 - r1))
    return {"odds_ratio": max(sticky, restless, 1.0), **beside}


@dataclass(frozen=True, slots=True)
class Managed:
    """Settings of an enrolled device for the policies that it is sent.

    Attributes:
        trust: file of what was accepted.
        version, valid_until: of the policy document in force, 0 for none; in Unix seconds, None for ever.
        on_expiry: what is done from then on, "hold" or "stop".
        time, fresh_seconds: the newest that the gateway has signed; the age that makes the device stale, or None.
        key: by which the gateway's watermarks are known, in hexadecimal; None takes those of anybody.
        stopped: the gateway has said to draw nothing under documents up to this version; 0 for none.
    """

    streams: tuple[str, ...]
    config: str
    trust: str
    version: int
    valid_until: int | None
    on_expiry: Literal["hold", "stop"]
    time: int
    fresh_seconds: int | None
    key: str | None = field(default=None, repr=False)
    stopped: int = 0


@dataclass(frozen=True, slots=True)
class ClockSettings:
    """The owner's settings for the wall clock: right at once if `trusted`; jumps count after `confirm_seconds`."""

    trusted: bool = False
    confirm_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """A device: where it publishes, what it keeps where, and its streams.

    Attributes:
        forget: when a frame may be forgotten: once the gateway says it is durable, or (in fleets without a gateway)
            once the broker has acknowledged it.
        durability, max_bytes, when_full: of the outbox, see `Keeping`.
        grace_seconds: how long a frame is kept that a watermark covers which anybody could have written.
        drain_seconds: how long an orderly stop waits for the outbox to empty.
        descriptions: by stream, what the device tells of it itself, where there is no gateway to do so.
        groups: those that the owner has joined.
        config: the file that all this is from.
    """

    fleet: str
    device: str
    outbox: str
    broker: Broker
    forget: Literal["committed", "puback"]
    drain_seconds: float
    status_seconds: float
    streams: tuple[StreamPlan, ...]
    managed: Managed | None = None
    durability: Literal["frame", "tick"] = "frame"
    max_bytes: int = 64 << 20
    when_full: Literal["stop", "drop-oldest"] = "stop"
    grace_seconds: float = 3600.0
    binding: str = "auto"
    clock: ClockSettings = ClockSettings()
    descriptions: dict[str, str] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    config: str = ""


def _noise(policy: AgentPolicy, form: dict[str, Any]) -> SymbolNoise | PointSource | None:
    """Source of noise; modules for points are loaded only where there are some, and their tables are in JSON."""
    if policy.points:
        from edge_agent.measurer import PointSource

        return PointSource.of(form["points"])
    return SymbolNoise(NoiseTable(tuple(policy.rows))) if policy.symbols else None


def _places(places: Sequence[int]) -> tuple[int, ...]:
    return tuple(ELSEWHERE if place == NONE else place for place in places)


def _blocks(blocks: tuple[int, tuple[tuple[int, int], ...]] | None) -> DayBlocks | None:
    return None if blocks is None else DayBlocks("", *blocks)


def _number(day: DayBlocks | None, place: int | None, unix_us: int) -> int | None:
    """The number that a tick belongs to, by its time; `place` is that of its state, `ELSEWHERE` or None."""
    block = 0 if day is None else day.at(unix_us)  # the same is done for every state
    return place if day is None or place is None or place == ELSEWHERE else block
