"""The plan of a running agent, as plain values: made from a checked configuration and its policies."""

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

__all__ = ["AgentPlan", "ClockSettings", "Form", "Managed", "StreamPlan"]


Form = dict[str, Any]
"""A part of a plan as JSON can carry it: a verified policy, or the configuration of a sensor."""
_MOST_STATES = 8


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """One stream of a policy that has been verified.

    Attributes:
        valid_from, valid_until: Unix times in seconds between which symbols may be drawn; None is no end.
        epoch_us, period_us: wall tick t happens at epoch_us + t * period_us, in microseconds of Unix time.
        noise: the tables that are drawn from; None if the stream has windows only.
        discretiser: the discretiser in its compiled form.
        watch: the guarantee's assumptions about the states that `edge_agent.watch` can check; None if there are none.
        noise_bound: bound on the noise, for a change of policy; see `fugu.contract.history.Noise`.
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
    sensor: Form
    windows: tuple[AgentWindow, ...]
    sums: tuple[SharedSum, ...]
    watch: Form | None
    noise_bound: str

    @classmethod
    def of(cls, form: Form, sensor: Form) -> StreamPlan:
        """Make the plan from the form of a verified policy (`edge_agent.enrolled.policy_form`), and its sensor."""
        policy = read_policy(bytes.fromhex(form["compiled"]))
        field_names = ("stream", "version", "valid_from", "frame_ticks", "epoch_us", "period_us", "discretiser", "sums")
        return cls(
            **{name: getattr(policy, name) for name in field_names},
            valid_until=policy.valid_until or None,
            noise=_noise_source(policy, form),
            sensor=sensor,
            windows=tuple(policy.windows),
            watch=None if policy.points else _watched_class(policy, form.get("rate")),
            noise_bound=form.get("noise_bound", ""),
        )

    @property
    def repeats(self) -> list[int]:
        """Numbers of ticks after which windows, sums and possible steps repeat, as they go by the time of day."""
        cycle = 1 if self.noise is None else self.noise.cycle
        return [cycle, *(window.stride for window in self.windows), *(shared.length for shared in self.sums)]


def _watched_class(policy: AgentPolicy, rate: float | None) -> Form | None:
    """Return the guarantee's assumption about the steps between states; `None` if none can be checked.

    A joint chain cannot be checked: its states are pairs of ticks, or of several streams, and a stream shows only a
    part of them.

    The assumption has the intervals `q` and `r`; only `odds_ratio` for a bounded class or a universal guarantee. Given
    the `rate` of all noisy outputs that a tick adds to, it also has the rate, the adversary and the ticks of an hour.
    """
    if policy.chains == JOINT or policy.states > _MOST_STATES:
        return None
    adversary, loss_fields = ADVERSARIES[policy.guarantee[0]], Form()
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
    """Settings of an enrolled device, to which signed policies are sent.

    Attributes:
        streams: the names of its streams.
        config: path of its configuration file.
        trust: path of the file with the accepted documents.
        trusted: content of this file.
        fresh_seconds: how old the newest signed time may be before the device is stale; None for any age.
        key: key of the gateway's watermarks, in hexadecimal; None takes anybody's watermarks.
    """

    streams: tuple[str, ...]
    config: str
    trust: str
    trusted: TrustState
    fresh_seconds: int | None
    key: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClockSettings:
    """The owner's settings: a `trusted` wall clock is right from the start; jumps count after `confirm_seconds`."""

    trusted: bool = False
    confirm_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """A device: its broker, its outbox, and its streams.

    Attributes:
        forget: when a frame may be forgotten: once the gateway says it is durable, or (in fleets without a gateway)
            once the broker has acknowledged it.
        durability, max_bytes, when_full: settings of the outbox, see `Keeping`.
        grace_seconds: how long a frame is still kept after a watermark that anybody could have written covers it.
        drain_seconds: how long an orderly stop waits for the outbox to empty.
        descriptions: descriptions by stream that the device publishes itself, in fleets without a gateway.
        groups: names of the groups that the owner has joined.
        config: path of the configuration file.
        program: version of this program.
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
    managed: Managed | None
    durability: Literal["frame", "tick"]
    max_bytes: int
    when_full: Literal["stop", "drop-oldest"]
    grace_seconds: float
    binding: str
    clock: ClockSettings
    descriptions: dict[str, str]
    groups: tuple[str, ...]
    config: str


def _noise_source(policy: AgentPolicy, form: Form) -> SymbolNoise | PointSource | None:
    """Return the tables that a stream draws from, None for windows only; modules for points are loaded if needed."""
    if policy.points:
        from edge_agent.measurer import PointSource

        return PointSource.of(form["points"])
    return SymbolNoise(NoiseTable(tuple(policy.rows))) if policy.symbols else None
