"""Since when, and until when, a promise is true where a stream's policy has changed.

A stronger policy is not true when it begins: ticks before it had less noise, and leak over the change. Nor is one true
in its last ticks, once a weaker policy follows. `dated` says at which ticks a promised stretch may begin, and bounds
the stretches that begin elsewhere. Whoever tells an epsilon asks it: descriptions, statements, pages, releases.

Distances are numbers of ticks that were drawn. A difference of tick numbers is none: they skip when a clock is set.
Everything is rounded outward. Decimals have 50 digits, and `_HAIR` is far above their error.
Source: docs/proofs/stretches.md, "Changes of policy".
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache, lru_cache, partial
from typing import NamedTuple, Self, cast

from fugu.contract.chains import ChainClass, JointChains
from fugu.contract.discretisers import Discretiser
from fugu.contract.errors import GuaranteeError
from fugu.contract.frames import MAX_TICK
from fugu.contract.guarantee import StreamOutputs
from fugu.contract.leakage import CONTEXT, as_decimal, universal_leakage
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.rounding import float_up, log_up
from fugu.contract.stretches import StretchBound
from fugu.contract.timeline import Drawn

__all__ = [
    "SLACK",
    "UNCHANGED",
    "Beside",
    "Dated",
    "History",
    "Named",
    "Noise",
    "Span",
    "dated",
    "history_alone",
    "history_of",
    "quiet_from",
    "settling_ticks",
    "streams_beside",
    "with_slack",
]

SLACK = Fraction(1, 1024)
"""The part of epsilon that a plan leaves to what leaks over a change of policy."""
_HAIR = Decimal("1e-25")
_INWARD = 1.0 - 2.0**-52
_ACCURATE_ODDS = Decimal("1e30")
"""Above it, 1 - kappa has too few digits."""

_Ratios = tuple[Fraction, Fraction]


def with_slack(epsilon: float) -> float:
    """The epsilon that noise is planned for, so that a promise of `epsilon` is true some ticks after a change."""
    return epsilon * float(1 - SLACK) * _INWARD


def settling_ticks(chains: ChainClass, epsilon: float, slack: float | None = None) -> int | None:
    """The ticks after which a promise with slack is true, whatever policy was before; None if it never is.

    `slack`: of epsilon, in nats; by default what a plan leaves.
    """
    odds = chains.worst_odds
    if odds is None:
        return None
    with localcontext(CONTEXT):
        root = as_decimal(odds).sqrt()
        spare = as_decimal(SLACK * Fraction(epsilon) if slack is None else Fraction(slack))
        kappa, excess = (root - 1) / (root + 1), 2 * root.ln()
        return _least(lambda ticks: excess * kappa**ticks + _HAIR <= spare) if excess else 0


def quiet_from(
    history: History, chains: Sequence[ChainClass], loud: int, excess: Fraction | None, slack: Fraction
) -> int | None:
    """The first tick at which charges up to tick `loud` leak no more than a slack; None if they always do.

    `excess`: by how much a tick's charge is above what is allowed now, in nats; `None` if nobody knows.
    """
    needed = 0
    with localcontext(CONTEXT):
        for odds in (each.worst_odds for each in chains):
            if odds is None:
                return None
            root = as_decimal(odds).sqrt()
            kappa, most = (root - 1) / (root + 1), 2 * root.ln()
            if excess is not None:
                most = min(most, as_decimal(excess) * (root - 1) / 2)
            if most:
                ticks = _least(partial(_faded, kappa, most, as_decimal(slack)))
                if ticks is None:
                    return None
                needed = max(needed, ticks)
    if not needed:
        return 0
    after = [
        span._replace(first=max(span.first, loud + 1))
        for span in history.spans
        if span.first is not None and (span.last is None or span.last > loud)
    ]
    return _after(after, needed) if any(span.version for span in after) else loud + 1 + needed


def _faded(kappa: Decimal, most: Decimal, limit: Decimal, ticks: int) -> bool:
    """True if a leakage of at most `most` is within a limit after so many ticks."""
    return most * kappa**ticks + _HAIR <= limit


class Noise(NamedTuple):
    """The noise of a version, as far as it counts for other versions.

    Attributes:
        ratios: bounds on the likelihood ratios of all that a tick adds to.
        counted: the same of the windows alone.
        states: digest of the map from readings to states: states of another map are other secrets.
    """

    ratios: _Ratios
    counted: _Ratios
    states: str

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """The noise of a policy."""
        return cls(policy.outputs.ratios, StreamOutputs(None, policy.counted).ratios, _digest(policy.discretiser))

    def text(self) -> str:
        """The noise in a line, as a device keeps it."""
        return " ".join(map(str, (*self.ratios, *self.counted, self.states)))

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read what `text` wrote; `None` for noise of which nothing is known, which is an empty line."""
        if not text:
            return None
        *ratios, states = text.split()
        first, second, *counted = map(Fraction, ratios)
        return cls((first, second), (counted[0], counted[1]), states)

    def larger(self, other: Self) -> Self | None:
        """The larger ratios of two, in each direction; `None` if their states differ."""
        if self.states != other.states:
            return None
        return type(self)(_largest(self.ratios, other.ratios), _largest(self.counted, other.counted), self.states)


class Span(NamedTuple):
    """Ticks in a row that were drawn under one version of a policy.

    Attributes:
        version: 0 for ticks of which nobody knows under which version they were drawn, if they were.
        noise: of the version; of version 0 a bound. `None` if it is unknown.
        first: the first tick; `None` for a version that may run, without a known tick.
        last: the last tick; `None` while it goes on.
    """

    version: int
    noise: Noise | None
    first: int | None
    last: int | None = None


class History(NamedTuple):
    """The ticks of a stream, in order, with the versions of its policy; ticks that were not drawn are in no span.

    Attributes:
        complete: whether nothing was drawn before the first span.
        beside: other streams that move with it by a class of one of its policies.
    """

    spans: tuple[Span, ...] = ()
    complete: bool = True
    beside: tuple[Beside, ...] = ()


class Beside(NamedTuple):
    """A stream that moves with another one.

    Attributes:
        name: of its device and of itself, with a slash between.
        history: of its ticks; `None` if nobody knows what it has drawn.
        policies: of which any may have drawn, or may draw.
    """

    name: str
    history: History | None
    policies: tuple[AnyPolicy, ...] = ()


UNCHANGED = History()
"""Of a stream of which one version is known alone."""


def history_alone(policy: AnyPolicy) -> History:
    """The history of a stream of which its policy alone is known: before version 1 there was none."""
    if not isinstance(policy, Policy):
        return UNCHANGED
    names = (name for name in streams_beside(policy) if not name.startswith(f"{policy.device}/"))
    beside = tuple(Beside(name, None) for name in names)
    if policy.version == 1:
        return History(beside=beside)
    return History((Span(policy.version, Noise.of(policy), None),), complete=False, beside=beside)


def streams_beside(policy: AnyPolicy) -> tuple[str, ...]:
    """Name the other streams of a policy's class, each with its device and a slash between."""
    if not isinstance(policy, Policy) or not isinstance(policy.chains, JointChains):
        return ()
    names = [_full_name(policy.device, shown.name) for shown in policy.chains.streams]
    return tuple(name for name in names if name != f"{policy.device}/{policy.stream}")


def _full_name(device: str, name: str) -> str:
    return name if "/" in name else f"{device}/{name}"


class Named(NamedTuple):
    """The version that a device names as its newest, and a tick at which it had it; `None` if no tick is known."""

    version: int
    first: int | None


def history_of(rows: Iterable[Drawn], noises: Mapping[int, Noise | None], named: Named | None = None) -> History:
    """Build the history of a stream from its intervals, and from the version that its device names.

    `noises` has every version that may have run; of another, nothing is known.
    """
    spans: list[Span] = []
    ordered = sorted(rows)
    for row in ordered:
        noise = noises.get(row.version)
        first = row.first
        if spans:
            before = spans[-1]
            assert before.last is not None
            if first <= before.last:  # windows of two versions over the same ticks
                if row.last <= before.last:
                    spans[-1] = before._replace(version=0, noise=_larger([before.noise, noise]))
                    continue
                both = Span(0, _larger([before.noise, noise]), first, before.last)
                spans[-1:] = [*([before._replace(last=first - 1)] if before.first != first else []), both]
                first = before.last + 1
            elif row.begin > before.last + 1 and row.version != before.version:
                spans.append(Span(0, _between(before.version, row.version, noises), before.last + 1, row.begin - 1))
        least = max(first, row.first + row.absent)
        if row.absent:  # which ticks were not drawn is not known
            most = max(least, row.last - row.absent + 1)
            parts = [Span(0, noise, first, least - 1), Span(row.version, noise, least, most - 1)]
            spans += [span for span in (*parts, Span(0, noise, most, row.last)) if span.first <= span.last]  # type: ignore[operator]
        else:
            spans.append(Span(row.version, noise, first, row.last))
    complete = ordered[0].begin == 0 if ordered else named is None or noises.keys() <= {named.version}
    if named is not None and (not ordered or named.version != ordered[-1].version):
        if ordered:
            last = None if named.first is None else named.first - 1
            after = ordered[-1].last + 1
            if last is None or last >= after:
                spans.append(Span(0, _between(ordered[-1].version, named.version, noises), after, last))
        spans.append(Span(named.version, noises.get(named.version), named.first))
    elif spans:
        spans[-1] = spans[-1]._replace(last=None)
    return History(tuple(spans), complete)


def _between(version: int, other: int, noises: Mapping[int, Noise | None]) -> Noise | None:
    """A bound on the noise of ticks between two versions: any version between them may have run."""
    low, high = sorted((version, other))
    return _larger([noise for number, noise in noises.items() if low <= number <= high])


def _larger(noises: Sequence[Noise | None]) -> Noise | None:
    largest = noises[0]
    for noise in noises[1:]:
        largest = None if noise is None or largest is None else largest.larger(noise)
    return largest


class Dated(NamedTuple):
    """When a promise about stretches of `ticks` ticks is true, and what is lost elsewhere.

    Attributes:
        since: first tick at which a promised stretch may begin; `None` if no stretch is shown to be within the promise.
        until: last such tick; `None` if there is no end yet.
        outside: bound for stretches that begin elsewhere under this version; `None` if there is none.
    """

    ticks: int
    since: int | None
    until: int | None = None
    outside: StretchBound | None = None

    @property
    def always(self) -> bool:
        """True if no other version takes anything from the promise."""
        return self.since == 0 and self.until is None

    def covers(self, first: int, last: int, ticks: int) -> bool:
        """True if the promise is true of every stretch of so many ticks that begins in first..last."""
        if self.since is None or first < self.since:
            return False
        return self.until is None or last + ticks <= self.until + self.ticks

    def epsilon(self, promised: StretchBound, first: int, last: int, ticks: int) -> float:
        """Bound stretches of so many ticks that begin in first..last under this version; infinite without a bound.

        `promised` is the bound by the version's own promise.
        """
        if self.covers(first, last, ticks):
            return promised.epsilon(ticks)
        return math.inf if self.outside is None else max(promised.epsilon(ticks), self.outside.epsilon(ticks))


def dated(policy: AnyPolicy, history: History, *, windows: bool = False) -> Dated:
    """Say when the promise of a policy is true of a stream with such a history.

    `windows`: the promise to those who see its windows alone. A version that has no span is taken for the next one.
    Of measured streams a change of policy is not covered. GuaranteeError if the policy's promise is false.
    """
    if isinstance(policy, Policy) and history.beside:
        names = streams_beside(policy)
        loud = _merged(interval for each in history.beside if each.name in names for interval in _loud(policy, each))
        alone = history._replace(beside=())
        if not loud:
            return dated(policy, alone, windows=windows)
        when = dated(policy, _with_those_beside(alone, loud), windows=windows)
        own = [span for span in history.spans if span.version == policy.version]
        return when._replace(outside=None) if not own or any(_touches(span, loud) for span in own) else when
    spans = history.spans
    if not isinstance(policy, Policy):
        versions = {span.version for span in spans}
        return Dated(1, 0 if versions <= {policy.version} else None)
    if all(span.version == policy.version for span in spans) and history.complete:
        return Dated((policy.windows_alone if windows and policy.windows_alone else policy.guarantee).stretch_ticks, 0)
    if all(span.version != policy.version for span in spans):
        spans = (*spans, Span(policy.version, Noise.of(policy), None))
    return _Promise(policy, windows=windows).dated(spans, complete=history.complete)


def _with_those_beside(history: History, loud: Sequence[tuple[int, int | None]]) -> History:
    """Take the noise for unknown at the ticks of some intervals."""
    spans: list[Span] = []
    for span in history.spans:
        if span.first is None:
            continue
        begin = span.first
        for first, last in loud:  # what is left of a span between them
            if (span.last is not None and span.last < first) or (last is not None and last < begin):
                continue
            if begin < first:
                spans.append(span._replace(first=begin, last=first - 1))
            begin = MAX_TICK + 1 if last is None else last + 1
        if begin <= (MAX_TICK if span.last is None else span.last):
            spans.append(span._replace(first=begin))
    unknown = [Span(0, None, first, last) for first, last in loud]
    named = [span for span in history.spans if span.first is None]
    return History((*sorted([*spans, *unknown], key=_first), *named), history.complete)


def _touches(span: Span, intervals: Iterable[tuple[int, int | None]]) -> bool:
    """True if a span may have a tick of some intervals."""
    begin, end = span.first or 0, MAX_TICK if span.last is None else span.last
    return any(first <= end and (last is None or begin <= last) for first, last in intervals)


def _first(span: Span) -> int:
    return span.first or 0


def _merged(intervals: Iterable[tuple[int, int | None]]) -> list[tuple[int, int | None]]:
    merged: list[tuple[int, int | None]] = []
    for first, last in sorted(intervals, key=lambda one: one[0]):
        if merged and (merged[-1][1] is None or first <= merged[-1][1] + 1):
            before = merged[-1][1]
            merged[-1] = merged[-1][0], None if before is None or last is None else max(before, last)
        else:
            merged.append((first, last))
    return merged


def _loud(policy: Policy, beside: Beside) -> list[tuple[int, int | None]]:
    """The ticks at which a stream beside a policy's may tell more than its class says, or tell of other states.

    Numbers of ticks are the same on one device under one clock. Those of other devices may differ: where one of them
    ever told more, all ticks are taken for such.
    """
    always: list[tuple[int, int | None]] = [(0, None)]
    if beside.history is None:
        return always
    own, chains = f"{policy.device}/", cast(JointChains, policy.chains)
    (shown,) = (one for one in chains.streams if _full_name(policy.device, one.name) == beside.name)
    fitting = [each for each in beside.policies if isinstance(each, Policy) and each.chains == chains]
    states = {_digest(each.discretiser) for each in fitting}
    with localcontext(CONTEXT):
        rate = Decimal(shown.rate)
        spans = [
            span
            for span in beside.history.spans
            if span.noise is None or span.noise.states not in states or max(_rates(span.noise.ratios)) > rate
        ]
    begins = [_begin(span, beside.history.spans) for span in spans]
    loud = [(begin, span.last) for begin, span in zip(begins, spans, strict=True)]
    if not beside.history.complete:
        loud.append((0, _begin(beside.history.spans[0], ()) - 1 if beside.history.spans else None))
    if not beside.history.spans and beside.history.complete and beside.policies and not fitting:
        return always  # another policy may draw, and has not been heard of yet
    same = beside.name.startswith(own) and all(each.clock == policy.clock for each in fitting)
    return loud if same or not loud else always


def _begin(span: Span, spans: Sequence[Span]) -> int:
    """The first tick of a span; of one without, the first that it may have."""
    if span.first is not None:
        return span.first
    ends = [other.last for other in spans[: spans.index(span)] if other.last is not None] if spans else []
    return ends[-1] + 1 if ends else 0


class _Run(NamedTuple):
    """Between `least` and `most` ticks with one bound on their ratios; None stands for no bound."""

    ratios: _Ratios | None
    least: int
    most: int | None


_UNKNOWN = _Run(None, 0, None)


def _joined(runs: Iterable[_Run]) -> list[_Run]:
    """Take runs with one bound that follow one another, with a gap between, for one: so many ticks leak the same."""
    joined: list[_Run] = []
    for run in runs:
        before = joined[-1] if joined else None
        if before is not None and before.ratios is not None and before.ratios == run.ratios:
            most = None if before.most is None or run.most is None else before.most + run.most
            joined[-1] = _Run(run.ratios, before.least + run.least, most)
        else:
            joined.append(run)
    return joined


class _Sum(NamedTuple):
    """The leakages of both sides, by how many ticks away the change is, and the limit that the sum may not exceed."""

    limit: Decimal
    before: Callable[[int], Decimal]
    after: Callable[[int], Decimal]


class _Promise:
    """A promise of a policy: of all that a stream tells, or of its windows alone."""

    def __init__(self, policy: Policy, *, windows: bool) -> None:
        self.policy, self.windows = policy, windows
        self.promise, self.outputs = policy.guarantee, policy.outputs
        if windows and policy.windows_alone is not None:
            self.promise, self.outputs = policy.windows_alone, StreamOutputs(None, policy.counted)
        self.states = _digest(policy.discretiser)
        odds = policy.chains.worst_odds
        with localcontext(CONTEXT):
            self.root = None if odds is None else as_decimal(odds).sqrt()
            self.rates = _rates(self.outputs.ratios)
            if isinstance(policy.chains, JointChains) and not windows:  # what the class lets the stream tell
                shown = policy.chains.streams[policy.chains.column(policy.device, policy.stream)]
                self.rates = (max(*self.rates, Decimal(shown.rate)),) * 2

    def dated(self, spans: Sequence[Span], *, complete: bool) -> Dated:
        """Find the interval of beginnings, and the bound elsewhere."""
        version = self.policy.version
        numbers = [number for number, span in enumerate(spans) if span.version == version]
        last = begin = numbers[-1]
        noise = Noise.of(self.policy)
        while begin and (spans[begin - 1].version == version or spans[begin - 1][:2] == (0, noise)):
            begin -= 1
        with localcontext(CONTEXT):
            past = _joined([*([] if complete else [_UNKNOWN]), *map(self._run, spans[:begin])])
            future = [self._run(span) for span in spans[last + 1 :]]
            since, until = self._interval(spans[begin : last + 1], spans[last + 1 :], past, future)
            if since == 0 and until is None:
                return Dated(self.promise.stretch_ticks, 0)
            outside = self._outside(spans, numbers[0], complete=complete)
        return Dated(self.promise.stretch_ticks, since, until, outside)

    def _ratios(self, span: Span) -> _Ratios | None:
        """The ratios of a span as far as this promise has them; None for other states."""
        if span.noise is None or span.noise.states != self.states:
            return None
        return span.noise.counted if self.windows else span.noise.ratios

    def _run(self, span: Span) -> _Run:
        known = span.first is not None and span.last is not None
        ticks = span.last - span.first + 1 if span.first is not None and span.last is not None else None
        return _Run(self._ratios(span), (ticks or 0) if span.version and known else 0, ticks)

    def _above(self, ratios: _Ratios | None) -> Decimal:
        """By how much the rates of a tick are above those of this version, in one direction or the other."""
        return Decimal("inf") if ratios is None else _difference(_rates(ratios), self.rates)

    def _interval(
        self, own: Sequence[Span], later: Sequence[Span], past: Sequence[_Run], future: Sequence[_Run]
    ) -> tuple[int | None, int | None]:
        """The first and last tick at which a promised stretch may begin."""
        quiet = not any(self._above(run.ratios) for run in past)
        louder = next((number for number, run in enumerate(future) if self._above(run.ratios)), None)
        if own[-1].first is None and not quiet:
            return None, None
        if quiet and louder is None:
            return 0, None
        # Ticks of later versions that have no less noise count as ticks of this one.
        sums = self._sums(past, [] if louder is None else _joined(future[louder:])[::-1])
        far = [each.before(MAX_TICK) + each.after(MAX_TICK) for each in sums]
        spare = [
            (each.limit - most - _HAIR) / (1 if louder is None else 2) for each, most in zip(sums, far, strict=True)
        ]
        before = (
            0
            if quiet
            else _least(
                lambda d: all(
                    each.before(d) <= each.before(MAX_TICK) + more for each, more in zip(sums, spare, strict=True)
                )
            )
        )
        if before is None:
            return None, None
        first = _after(own, before)
        if louder is None:
            return first, None
        after = _least(lambda d: all(each.before(before) + each.after(d) + _HAIR <= each.limit for each in sums))
        if after is None:
            return None, None
        end = _before([*own, *later[:louder]], after)
        if end is None:
            return None, None
        until = min(end - self.promise.stretch_ticks + 1, MAX_TICK if own[-1].last is None else own[-1].last)
        if until < first:
            return None, None
        return (0 if quiet else first), until

    def _sums(self, past: Sequence[_Run], future: Sequence[_Run]) -> list[_Sum]:
        """Sums of what leaks to its stretches: exact for any side information, else by the excess."""
        told, ticks = Fraction(self.promise.epsilon), self.promise.stretch_ticks
        joint = isinstance(self.policy.chains, JointChains)  # other streams tell something, too
        if self.promise.adversary == "universal" and self.root is not None and not joint:
            sums = self._exact_sums(as_decimal(told), ticks, past, future)
            if all(each.before(MAX_TICK) + each.after(MAX_TICK) + _HAIR < each.limit for each in sums):
                return sums
        limit = as_decimal(told - Fraction(_derived(self.policy, self.windows).epsilon(ticks)))
        before, after = (self._excess(runs, self._above) for runs in (past, future))
        sides = (cache(partial(self._decayed, excess)) for excess in (before, after))
        return [_Sum(limit, *sides)]

    def _decayed(self, excess: Decimal, ticks: int) -> Decimal:
        """The rest of an excess after so many ticks, at most."""
        if self.root is None or not excess:
            return excess
        return excess * ((self.root - 1) / (self.root + 1)) ** ticks if ticks else excess

    def _excess(self, runs: Sequence[_Run], above: Callable[[_Ratios], Decimal]) -> Decimal:
        """By how much what leaks from some runs, the farthest first, is above what a bound takes for it.

        `above`: by how much the rate of a tick is above the one that the bound takes.
        """
        excess = Decimal(0)
        for run in runs:
            more = Decimal("inf") if run.ratios is None else above(run.ratios)
            if self.root is None:
                excess += more and more * (Decimal("inf") if run.most is None else run.most)
                continue
            total, most = (self.root - 1) / 2, 2 * self.root.ln()
            if run.most is not None:
                total = min(total, Decimal(run.most))
                if self.root < _ACCURATE_ODDS:
                    total = min(total, (self.root - 1) / 2 - self._decayed((self.root - 1) / 2, run.most) + _HAIR)
            excess = min(self._decayed(excess, run.least) + (more and more * total), most) if total else Decimal(0)
        return excess + _HAIR if excess else excess

    def _exact_sums(self, told: Decimal, ticks: int, past: Sequence[_Run], future: Sequence[_Run]) -> list[_Sum]:
        """One sum for each direction, and one for the larger ratio: leakages by odds ratios, tick by tick."""
        sums, largest = [], max(self.rates)
        for direction in (0, 1, None):
            rate = largest if direction is None else self.rates[direction]
            before, after = (self._leaking(runs, direction) for runs in (past, future))
            sums.append(_Sum(told - rate - (ticks - 1) * largest, before, after))
        return sums

    def _leaking(self, runs: Sequence[_Run], direction: int | None) -> Callable[[int], Decimal]:
        """The leakage of some runs, the farthest first, through ticks of this version; at least its own leakage."""
        odds = self.policy.chains.worst_odds
        assert odds is not None

        def in_direction(ratios: _Ratios) -> Fraction:
            return max(ratios) if direction is None else ratios[direction]

        own = in_direction(self.outputs.ratios)
        value, least = Decimal(1), universal_leakage(odds, own).ln()  # the square root of a likelihood ratio
        for run in runs:
            if run.ratios is None:
                value = as_decimal(odds).sqrt()
                continue
            ratio = in_direction(run.ratios)
            if run.least == run.most:
                value = _powers(odds, ratio).image(run.least, value)
            else:  # between where it begins and where it tends to
                value = max(value, universal_leakage(odds, ratio).sqrt())
        return cache(lambda distance: max(2 * _powers(odds, own).image(distance, value).ln(), least))

    def _outside(self, spans: Sequence[Span], own: int, *, complete: bool) -> StretchBound | None:
        """Bound stretches that begin anywhere under this version, by the larger ratios of all versions in reach.

        Earlier ones are left out where next to nothing of them is left at the first tick, and that is added.
        """
        policy, chains = self.policy, self.policy.chains
        later = [self._ratios(span) for span in spans[own:]]
        if None in later:
            return None
        largest, reach, rest = _largest(*(ratios for ratios in later if ratios is not None)), own, Decimal(0)
        while True:
            rates = _rates(largest)
            past = _joined([*([] if complete else [_UNKNOWN]), *map(self._run, spans[:own])])
            rest = self._excess(past, partial(_above, rates))
            earlier = self._ratios(spans[reach - 1]) if reach else None
            if rest <= as_decimal(SLACK * Fraction(self.promise.epsilon)) or earlier is None:
                break
            reach, largest = reach - 1, _largest(largest, earlier)
        if not rest.is_finite():
            return None
        try:
            column, rate = chains.column(policy.device, policy.stream), log_up(max(largest))
            loss = chains.stream_loss(
                column, largest, Fraction(rate), self.promise.adversary, "a change of policy", alone=self.windows
            )
        except GuaranteeError:
            return None
        bound = chains.stretch_bound(loss.epsilon, 1, rate, (), self.promise.adversary)
        return replace(bound, known=float_up(Fraction(bound.known) + Fraction(rest)))


def _largest(*pairs: _Ratios) -> _Ratios:
    return max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)


def _rates(ratios: _Ratios) -> tuple[Decimal, Decimal]:
    return _log(ratios[0]), _log(ratios[1])


def _above(rates: tuple[Decimal, Decimal], ratios: _Ratios) -> Decimal:
    """By how much the rates of a tick with some ratios are above given ones."""
    return _difference(_rates(ratios), rates)


def _difference(rates: Iterable[Decimal], others: Iterable[Decimal]) -> Decimal:
    return max(Decimal(0), *(rate - other for rate, other in zip(rates, others, strict=True)))


def _after(spans: Sequence[Span], ticks: int) -> int:
    """The tick after so many ticks of some spans; the last one goes on."""
    first, spans = 0, [span for span in spans if span.version]
    for span in spans:
        first = span.first or 0
        drawn = None if span.last is None else span.last - first + 1
        if drawn is None or ticks < drawn or span is spans[-1]:
            return first + ticks
        ticks -= drawn
    return first


def _before(spans: Sequence[Span], ticks: int) -> int | None:
    """The tick before the last so many ticks of some spans, of which each has ended; None if there are fewer."""
    for span in reversed(spans):
        if not span.version or span.first is None or span.last is None:
            continue
        drawn = span.last - span.first + 1
        if ticks < drawn:
            return span.last - ticks
        ticks -= drawn
    return None


def _least(holds: Callable[[int], bool]) -> int | None:
    """The least number of ticks for which something holds that goes on to hold; None if there is none."""
    if holds(0):
        return 0
    low, high = 0, 1
    while not holds(high):
        if high >= MAX_TICK:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


class _Powers:
    """Powers of the map of one tick, by which the square root of a leaking likelihood ratio goes.

    W(u) = ((sqrt(alpha u) + 1) / (sqrt(alpha) + sqrt(u)))^2 is a Moebius map of the square roots.
    """

    def __init__(self, odds: Fraction, ratio: Fraction) -> None:
        root, step = as_decimal(odds).sqrt(), as_decimal(ratio).sqrt()
        self._squares: list[tuple[Decimal, ...]] = [(root * step, Decimal(1), step, root)]

    def image(self, ticks: int, value: Decimal) -> Decimal:
        """The value after so many ticks."""
        level = 0
        while ticks >> level:
            if level == len(self._squares):
                a, b, c, d = self._squares[-1]
                square = a * a + b * c, b * (a + d), c * (a + d), b * c + d * d
                largest = max(square)
                self._squares.append(tuple(entry / largest for entry in square))
            if ticks >> level & 1:
                a, b, c, d = self._squares[level]
                value = (a * value + b) / (c * value + d)
            level += 1
        return value


@lru_cache(maxsize=256)
def _powers(odds: Fraction, ratio: Fraction) -> _Powers:
    with localcontext(CONTEXT):
        return _Powers(odds, ratio)


@lru_cache(maxsize=1024)
def _log(ratio: Fraction) -> Decimal:
    with localcontext(CONTEXT):
        return as_decimal(ratio).ln()


def _digest(discretiser: Discretiser) -> str:
    return hashlib.sha256(discretiser.model_dump_json().encode()).hexdigest()[:32]


def _derived(policy: Policy, windows: bool) -> StretchBound:
    """The bound of a policy from what its tick really loses, which is less than what it promises."""
    return _derived_again(policy.model_dump_json(), windows)  # a policy with a map of categories has no hash


@lru_cache(maxsize=256)
def _derived_again(document: str, windows: bool) -> StretchBound:
    policy = Policy.model_validate_json(document)
    if not windows:
        return policy.bound(policy.verify())
    bound = policy.windows_bound(policy.verify_windows())
    assert bound is not None
    return bound
