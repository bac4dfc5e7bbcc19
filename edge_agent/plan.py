"""The plan of a running agent, as plain values: the outcome of checking a configuration and its policies."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import lcm
from typing import TYPE_CHECKING, Any, Literal

from edge_agent.randomiser import SymbolNoise
from fugu.contract.noise_table import NoiseTable
from fugu.contract.queries import COUNT, ELSEWHERE, Query, query_of
from fugu.core.policy import Window

if TYPE_CHECKING:
    from edge_agent.measurer import PointSource
    from fugu.mqtt import Broker

__all__ = ["AgentPlan", "ClockSettings", "Managed", "StreamPlan", "SumPlan", "WindowPlan", "watched_class"]


_MOST_STATES = 8


@dataclass(frozen=True)
class WindowPlan(Window):
    """One verified window, and what is asked of its ticks; `places` has `ELSEWHERE` for states that count nowhere."""

    name: str
    start: int
    length: int
    stride: int
    counts: int
    places: tuple[int, ...]
    numerator: int
    denominator: int
    query: Query = COUNT
    epoch_us: int = 0
    period_us: int = 1

    @classmethod
    def of(cls, window: dict[str, Any], labels: list[str], clock: dict[str, Any]) -> WindowPlan:
        """Take the parts of a verified window's JSON form; `labels` are the names of the states."""
        numerator, _, denominator = window["scale"].partition("/")
        query = query_of(window)
        counted = labels if query.each else window["states"]
        groups = query.groups([labels.index(state) if isinstance(state, str) else state for state in counted])
        numbers = {state: number for number, group in enumerate(groups) for state in group}
        return cls(
            **{key: window[key] for key in ("name", "start", "length", "stride")},
            **{key: clock[key] for key in ("epoch_us", "period_us")},
            counts=len(groups),
            places=tuple(numbers.get(state, ELSEWHERE) for state in range(len(labels))),
            numerator=int(numerator),
            denominator=int(denominator or "1"),
            query=query,
        )

    def place(self, tick: int, state: int | None) -> int | None:
        """The number that a tick counts towards, or `ELSEWHERE`; None for a tick without a state."""
        place = None if state is None else self.places[state]
        return self.query.number(place, self.epoch_us + tick * self.period_us)

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
    query: Query
    epoch_us: int
    period_us: int

    @classmethod
    def of(cls, shared: dict[str, Any], labels: list[str]) -> SumPlan:
        """Take the parts of a verified sum's JSON form, which has its document's digest as well."""
        group = shared["group"]
        query = query_of({"blocks": group["blocks"], "states": group["count"]})
        return cls(
            **{name: group[name] for name in ("name", "helper", "start", "length", "noise", "honest")},
            **{name: group[name] for name in ("epoch_us", "period_us")},
            digest=shared["digest"],
            counts=len(query.groups(group["count"])),
            places=tuple(0 if label in group["count"] else ELSEWHERE for label in labels),
            deadline_ticks=-(-group["deadline"] * 1_000_000 // group["period_us"]),
            query=query,
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
        block = self.query.number(0, time_us) or 0
        place = None if state is None else self.query.number(self.places[state], time_us)
        return block, None if place == ELSEWHERE else place


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """One stream of a policy that has been verified.

    Attributes:
        valid_from, valid_until: Unix time in seconds within which symbols may be made.
        epoch_us, period_us: wall tick t happens at epoch_us + t * period_us, in microseconds of Unix time.
        noise: what is drawn from; None where windows are all there is.
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
    discretiser: dict[str, Any]
    sensor: dict[str, Any]
    windows: tuple[WindowPlan, ...] = ()
    sums: tuple[SumPlan, ...] = ()
    watch: dict[str, Any] | None = None
    noise_bound: str = ""

    @classmethod
    def of(cls, policy: dict[str, Any], sensor: dict[str, Any]) -> StreamPlan:
        """Take the parts of a verified policy's JSON form."""
        return cls(
            **{key: policy[key] for key in ("stream", "version", "valid_from", "valid_until", "frame_ticks")},
            **policy["clock"],
            noise=_noise(policy),
            discretiser=policy["discretiser"],
            sensor=sensor,
            windows=tuple(
                WindowPlan.of(window, policy["discretiser"]["states"], policy["clock"])
                for window in policy.get("windows", ())
            ),
            sums=tuple(SumPlan.of(shared, policy["discretiser"]["states"]) for shared in policy.get("sums", ())),
            watch=watched_class(policy),
            noise_bound=policy.get("noise_bound", ""),
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


def watched_class(policy: dict[str, Any]) -> dict[str, Any] | None:
    """Assumption of a guarantee about steps, from a policy's JSON form; `None` if it has none that can be checked.

    A joint chain is none: its states are pairs of ticks, or of several streams, and a stream shows a part of them.

    It has `q` and `r`, intervals; or `odds_ratio`, all that a universal guarantee needs. If the policy's form says its
    `rate`, the loss of all that a tick adds to: that, the adversary, an hour's ticks.
    """
    chains = policy.get("chains")
    if chains is None or len(policy["discretiser"]["states"]) > _MOST_STATES:
        return None
    adversary, beside = policy["guarantee"]["adversary"], {}
    if "rate" in policy:
        hour = max(1, 3_600_000_000 // policy["clock"]["period_us"])
        beside = {"rate": policy["rate"], "adversary": adversary, "hour": hour}
    if chains["kind"] == "bounded":
        return {"odds_ratio": chains["odds_ratio"], **beside}
    if chains["kind"] != "binary":
        return None
    if adversary != "universal":
        return {"q": chains["q"], "r": chains["r"], **beside}
    (q0, q1), (r0, r1) = chains["q"], chains["r"]
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


def _noise(policy: dict[str, Any]) -> SymbolNoise | PointSource | None:
    """Source of noise of a policy's JSON form; modules for points are loaded only where there are some."""
    if policy["kind"] == "symbols":
        table = policy.get("table")
        return None if table is None else SymbolNoise(NoiseTable(tuple(map(tuple, table["rows"]))))
    from edge_agent.measurer import PointSource

    return PointSource.of(policy)
