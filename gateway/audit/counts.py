"""Counts of a stream: by its device, and by the gateway for its audiences, as both are configured."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from fugu.contract.errors import FuguError
from fugu.contract.mechanisms import ALONE
from fugu.contract.policy import Policy
from gateway.release.allowance import allowance
from gateway.release.amplification import smallest_scale
from gateway.release.charges import units_above
from gateway.release.inversion import ReleaseError, two_valued
from gateway.release.statistics import Query
from gateway.release.whole_window import WholeWindow, counted_symbols, moved_by_all
from gateway.service.release_config import ReleaseConfig, Scheduled
from gateway.service.release_jobs import answers, release_window

__all__ = ["AuditError", "Definition", "released", "windows"]


class AuditError(FuguError):
    """A stream, or a recording of one, cannot be attacked; one line that says why."""


class Definition(NamedTuple):
    """Counts of window after window: window n covers the ticks start + n * stride .. + length - 1.

    Attributes:
        name: of the window, or of the release.
        release: whether the gateway makes them.
        groups: what is counted together, each with noise of its own: states, or symbols.
        symbols: whether symbols are counted.
        scale: of the noise.
        terms: how many noises each count has.
        consecutive: whether what is counted are pairs of consecutive symbols z, z', as z m + z'.
        alone: whether it does not compose with anything: its only window takes all of its audience's epsilon.
        part: of the release, if it is put together.
        source: which of the policies it is about.
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
    consecutive: bool = False
    alone: bool = False
    part: str = ""
    source: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Of each count's noise."""
        kind = "release" if self.release else "window"
        of = f"{kind} {self.name}{self.part}" + (f" of {self.source}" if self.source else "")
        return tuple(f"{of} {n}" for n in range(len(self.groups)))

    @property
    def overlap(self) -> int:
        """The most windows that share a tick."""
        return -(-self.length // self.stride)

    @property
    def spread(self) -> Fraction:
        """The most that one window tells of a tick, or of its symbol, in nats."""
        return (4 if self.consecutive else min(len(self.groups), 2)) / self.scale

    @property
    def rate(self) -> Fraction:
        """The most that all of them tell of a tick, or of its symbol, in nats."""
        return self.overlap * self.spread

    def windows(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """First and last ticks of all windows that have one of the ticks low to high."""
        if self.alone:
            if self.start <= high and self.start + self.length > low:
                yield self.start, self.start + self.length - 1
            return
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
    """What the gateway counts of a stream, and, in words, which of its releases say nothing of it."""
    found, left = [], []
    for plan in config.releases if config is not None else ():
        if plan.stream != policy.stream or (plan.devices != "all" and policy.device not in plan.devices):
            continue
        assert config is not None
        try:
            found += _definitions(policy, plan, config)
        except FuguError as error:
            left.append(f"release {plan.name}: {error}")
    return tuple(found), tuple(left)


def _definitions(policy: Policy, plan: Scheduled, config: ReleaseConfig) -> list[Definition]:
    """The counts that a release is made of: of windows, of symbols, or of both.

    Raises:
        ReleaseError: the gateway would not make it, either.
        ChainClassError: its mechanism has no noise for it.
    """
    labels = policy.discretiser.states
    if not set(plan.states) <= set(labels):
        raise ReleaseError("the stream has not its states")
    query = Query(plan.query, tuple(map(labels.index, plan.states or labels)))
    found = []
    window = release_window(policy, plan, query) if plan.source != "symbols" else None
    if window is not None:
        asked = answers(window, labels, query)
        assert asked is not None
        own = tuple((x,) for x in range(len(labels))) if window.states == "histogram" else (window.counted(labels),)
        groups = tuple(tuple(x for n in row.nonzero()[0] for x in own[n]) for row in asked)
        terms = plan.length // window.length * int(asked.sum(axis=1).max())
        spans = (window.start, plan.length, plan.step)
        found.append(Definition(_called(policy, plan), True, *spans, groups, False, Fraction(window.scale), terms))
    if policy.table is not None:
        made = _of_symbols(policy, plan, config, query)
        found.append(made._replace(part=" beside windows") if found else made)
    if not found:
        raise ReleaseError("the stream has no symbols, and no windows that answer it")
    return found


def _of_symbols(policy: Policy, plan: Scheduled, config: ReleaseConfig, query: Query) -> Definition:
    assert policy.table is not None
    symbols = policy.table.symbols
    consecutive = plan.query == "dwell"
    groups: tuple[tuple[int, ...], ...] = tuple((z,) for z in range(symbols**2 if consecutive else symbols))
    if plan.query in ("count", "frequency"):
        rule = two_valued(policy.table, query.states)
        if rule is not None:
            groups = (tuple(int(z) for z in rule.symbols.nonzero()[0]),)
    alone = plan.mechanism in ALONE
    if alone:
        scale = _whole(policy, plan, config, query, len(groups))
    elif plan.scale is not None:
        scale = Fraction(plan.scale)
    else:
        scale = _share(policy, plan, config, 4 if consecutive else min(len(groups), 2))
    spans = (plan.once or 0, plan.length, plan.step)
    return Definition(_called(policy, plan), True, *spans, groups, True, scale, consecutive=consecutive, alone=alone)


def _called(policy: Policy, plan: Scheduled) -> str:
    return f"{plan.name}-{policy.device}" if plan.per_device else plan.name


def _whole(policy: Policy, plan: Scheduled, config: ReleaseConfig, query: Query, numbers: int) -> Fraction:
    assert policy.table is not None
    if plan.mechanism == "wasserstein":
        distribution = counted_symbols([policy.chains], policy.table, query.states, [True] * plan.length)
        basis = WholeWindow(symbols=(distribution,))
    else:
        basis = WholeWindow(moved=moved_by_all(query.kind, numbers, plan.length))
    return basis.scale(config.audiences[plan.audience].epsilon)


def _share(policy: Policy, plan: Scheduled, config: ReleaseConfig, sensitivity: int) -> Fraction:
    """The scale that a share of the audience's allowance asks for."""
    assert plan.share is not None
    assert policy.table is not None
    promise = config.audiences[plan.audience]
    by = "chain" if plan.mechanism == "auto" else plan.mechanism
    free = allowance(policy.chains, promise.epsilon, promise.adversary, by) - units_above(policy.window_rate)
    budget = int(Fraction(plan.share) * free)
    if budget < 1:
        raise ReleaseError("nothing of the allowance is left for it")
    return smallest_scale([policy.table], sensitivity, budget)
