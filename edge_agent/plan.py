"""The plan of a running agent, as plain values: the outcome of checking a configuration and its policies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from edge_agent.randomiser import SymbolNoise
from fugu.contract.compiled import AgentPolicy, AgentWindow, SharedSum, read_policy
from fugu.contract.noise_table import NoiseTable
from fugu.core.policy import ADVERSARIES, BOUNDED, JOINT

if TYPE_CHECKING:
    from edge_agent.measurer import PointSource
    from fugu.core.trust import TrustState
    from fugu.mqtt import Broker

__all__ = ["AgentPlan", "ClockSettings", "Managed", "StreamPlan"]


_MOST_STATES = 8


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
    windows: tuple[AgentWindow, ...] = ()
    sums: tuple[SharedSum, ...] = ()
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
            windows=tuple(policy.windows),
            sums=policy.sums,
            watch=None if policy.points else _watched_class(policy, form.get("rate")),
            noise_bound=form.get("noise_bound", ""),
        )

    @property
    def repeats(self) -> list[int]:
        """Ticks after which what goes by the time of day repeats: the strides of windows, the cycle of a chain."""
        cycle = 1 if self.noise is None else self.noise.cycle
        return [cycle, *(window.stride for window in self.windows), *(shared.length for shared in self.sums)]


def _watched_class(policy: AgentPolicy, rate: float | None) -> dict[str, Any] | None:
    """Assumption of a guarantee about steps; `None` if it has none that can be checked.

    A joint chain is none: its states are pairs of ticks, or of several streams, and a stream shows a part of them.

    It has `q` and `r`, intervals; or `odds_ratio`, all that a universal guarantee needs. If the `rate` of all that a
    tick adds to is given: that, the adversary, an hour's ticks.
    """
    if policy.chains == JOINT or policy.states > _MOST_STATES:
        return None
    adversary, loss_fields = ADVERSARIES[policy.guarantee[0]], dict[str, Any]()
    if rate is not None:
        loss_fields = {"rate": rate, "adversary": adversary, "hour": max(1, 3_600_000_000 // policy.period_us)}
    bounds = [numerator / denominator for numerator, denominator in policy.members]
    if policy.chains == BOUNDED:
        return {"odds_ratio": bounds[0], **loss_fields}
    q0, q1, r0, r1 = bounds
    if adversary != "universal":
        return {"q": [q0, q1], "r": [r0, r1], **loss_fields}
    sticky_odds, restless_odds = (1 - q0) * (1 - r0) / (q0 * r0), q1 * r1 / ((1 - q1) * (1 - r1))
    return {"odds_ratio": max(sticky_odds, restless_odds, 1.0), **loss_fields}


@dataclass(frozen=True, slots=True)
class Managed:
    """Settings of an enrolled device for the policies that it is sent.

    Attributes:
        trust: file of what was accepted.
        trusted: what it holds.
        fresh_seconds: how old the newest signed time may be before the device is stale; None for any age.
        key: by which the gateway's watermarks are known, in hexadecimal; None takes those of anybody.
    """

    streams: tuple[str, ...]
    config: str
    trust: str
    trusted: TrustState
    fresh_seconds: int | None = None
    key: str | None = field(default=None, repr=False)


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
        program: the version of this program.
    """

    fleet: str
    device: str
    outbox: str
    broker: Broker
    forget: Literal["committed", "puback"]
    drain_seconds: float
    status_seconds: float
    streams: tuple[StreamPlan, ...]
    program: str
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
