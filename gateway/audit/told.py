"""What is counted of a stream: by its device, and by the gateway for its audiences, as both are configured."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from contract.mechanisms import ALONE
from contract.policy import Policy
from gateway.release.allowance import allowance
from gateway.release.amplification import smallest_scale
from gateway.release.charges import units_above
from gateway.release.inversion import ReleaseError, two_valued
from gateway.release.statistics import Query
from gateway.service.release_config import ReleaseConfig, Scheduled
from gateway.service.release_jobs import answers

__all__ = ["Definition", "released", "windows"]


class Definition(NamedTuple):
    """Counts of window after window: window n covers the ticks start + n * stride .. + length - 1.

    Attributes:
        name: of the window, or of the release.
        release: whether the gateway makes them.
        groups: what is counted together, each with noise of its own: states, or symbols.
        symbols: whether symbols are counted.
        scale: of the noise.
        terms: how many noises each count has.
    """

    name: str
    release: bool
    start: int
    length: int
    stride: int
    groups: tuple[tuple[int, ...], ...]
    symbols: bool
    scale: Fraction
    terms: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """Of each count's noise."""
        kind = "release" if self.release else "window"
        return tuple(f"{kind} {self.name} {n}" for n in range(len(self.groups)))

    @property
    def overlap(self) -> int:
        """The most windows that share a tick."""
        return -(-self.length // self.stride)

    @property
    def spread(self) -> Fraction:
        """The most that one window tells of a tick, or of its symbol, in nats."""
        return min(len(self.groups), 2) / self.scale

    @property
    def rate(self) -> Fraction:
        """The most that all of them tell of a tick, or of its symbol, in nats."""
        return self.overlap * self.spread

    def windows(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """First and last ticks of all windows that have one of the ticks low to high."""
        index = max(0, -(-(low - self.length + 1 - self.start) // self.stride))
        while (first := self.start + index * self.stride) <= high:
            yield first, first + self.length - 1
            index += 1


def windows(policy: Policy) -> tuple[Definition, ...]:
    """What the device counts."""
    names = policy.discretiser.states
    return tuple(
        Definition(
            *(one.name, False, one.start, one.length, one.stride),
            tuple((x,) for x in range(len(names))) if one.states == "histogram" else (one.counted(names),),
            *(False, Fraction(one.scale)),
        )
        for one in policy.windows
    )


def released(policy: Policy, config: ReleaseConfig | None) -> tuple[tuple[Definition, ...], tuple[str, ...]]:
    """What the gateway counts of a stream, and, in words, what it releases of it that is not attacked."""
    found, left = [], []
    for plan in config.releases if config is not None else ():
        if plan.stream != policy.stream or (plan.devices != "all" and policy.device not in plan.devices):
            continue
        assert config is not None
        made = _definition(policy, plan, config)
        if isinstance(made, str):
            left.append(f"release {plan.name}: {made}")
        else:
            found.append(made)
    return tuple(found), tuple(left)


def _definition(policy: Policy, plan: Scheduled, config: ReleaseConfig) -> Definition | str:
    """The counts of a release; why there is no attack on them, if there is none."""
    labels = policy.discretiser.states
    if not set(plan.states) <= set(labels):
        return "the stream has not its states"
    if plan.mechanism in ALONE or plan.query == "dwell":
        return f"{plan.mechanism if plan.mechanism in ALONE else plan.query} is not attacked"
    query = Query(plan.query, tuple(map(labels.index, plan.states or labels)))
    fit = [
        one
        for one in policy.windows
        if plan.source != "symbols"
        and answers(one, labels, query) is not None
        and plan.length % one.length == plan.step % one.length == 0
        and one.length % one.stride == one.start % one.stride == 0
    ]
    if fit and policy.table is not None:
        return "it is put together of windows and symbols, which are attacked as the site hears them"
    if fit:
        one = fit[0]
        if len(fit) > 1 or one.states == "histogram":
            return "it is put together of several counts, which are attacked as the site hears them"
        counted = (one.counted(labels),)
        times = plan.length // one.length
        return Definition(
            plan.name, True, one.start, plan.length, plan.step, counted, False, Fraction(one.scale), times
        )
    if policy.table is None:
        return "the stream has no symbols"
    groups: tuple[tuple[int, ...], ...] = tuple((z,) for z in range(policy.table.symbols))
    if plan.query != "histogram":
        try:
            rule = two_valued(policy.table, query.states)
        except ReleaseError as error:
            return str(error)
        if rule is not None:
            groups = (tuple(int(z) for z in rule.symbols.nonzero()[0]),)
    scale = Fraction(plan.scale) if plan.scale is not None else _share(policy, plan, config, min(len(groups), 2))
    if scale is None:
        return "nothing of the allowance is left for it"
    return Definition(plan.name, True, 0, plan.length, plan.step, groups, True, scale)


def _share(policy: Policy, plan: Scheduled, config: ReleaseConfig, sensitivity: int) -> Fraction | None:
    """The scale that a share of the audience's allowance asks for."""
    assert plan.share is not None
    assert policy.table is not None
    promise = config.audiences[plan.audience]
    by = "chain" if plan.mechanism == "auto" else plan.mechanism
    free = allowance(policy.chains, promise.epsilon, promise.adversary, by) - units_above(policy.window_rate)
    budget = int(Fraction(plan.share) * free)
    return smallest_scale([policy.table], sensitivity, budget) if budget >= 1 else None
