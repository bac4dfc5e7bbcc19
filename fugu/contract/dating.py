"""The ticks for which a promise is true where a stream's policy has changed.

The promise of a stronger policy is not true from its first tick: earlier ticks had less noise, and leak over the
change. Nor is it true in its last ticks if a weaker policy follows. `dates_of` says at which ticks a promised stretch
may begin, and bounds the stretches that begin elsewhere. Descriptions, statements, pages and releases ask it before
they say an epsilon.

Everything is rounded outward. Decimals have 50 digits, and `_HAIR` is far above their error.
Source: docs/proofs/stretches.md, "Changes of policy".
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache, lru_cache, partial
from typing import NamedTuple

from fugu.contract.chains import ChainClass, JointChains, Ratios
from fugu.contract.errors import GuaranteeError
from fugu.contract.frames import MAX_TICK
from fugu.contract.history import History, Noise, Span, forget_noise, largest_ratios, log_ratio, louder_intervals
from fugu.contract.losses import CONTEXT, as_decimal, float_up, log_up
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.stretches import StretchBound
from fugu.core.leakage import ONE, odds_leakage, ratio_up

__all__ = ["SLACK", "PromiseDates", "dates_of", "first_quiet_tick", "settling_ticks", "with_slack"]

SLACK = Fraction(1, 1024)
"""The part of epsilon that a plan leaves for leakage over a change of policy."""
_HAIR = Decimal("1e-25")
_INWARD = 1.0 - 2.0**-52
_ACCURATE_ODDS = Decimal("1e30")
"""Above it, 1 - kappa has too few digits."""
_INFINITE = Decimal("inf")

_Rates = tuple[Decimal, Decimal]


def with_slack(epsilon: float) -> float:
    """Return the epsilon to plan noise for, so that a promise of `epsilon` is true some ticks after a change."""
    return epsilon * float(1 - SLACK) * _INWARD


def settling_ticks(chains: ChainClass, epsilon: float, slack: float | None = None) -> int | None:
    """Return the ticks after which a promise with slack is true whatever policy came before, or None if it never is.

    `slack`: the part of epsilon left for leakage, in nats; by default the part that a plan leaves.
    """
    return _fading_ticks(chains.worst_odds, None, SLACK * Fraction(epsilon) if slack is None else Fraction(slack))


def _fading_ticks(odds: Fraction | None, excess: Fraction | None, slack: Fraction) -> int | None:
    """Return the ticks after which louder ticks leak at most a slack, or None if they always leak more.

    `excess`: by how much the rate of a louder tick was above the present rate, in nats; `None` if nobody knows.
    """
    if odds is None:
        return None
    with localcontext(CONTEXT):
        root, limit = as_decimal(odds).sqrt(), as_decimal(slack)
        kappa, max_leakage = (root - 1) / (root + 1), 2 * root.ln()
        if excess is not None:
            max_leakage = min(max_leakage, as_decimal(excess) * (root - 1) / 2)
        return _least_ticks(lambda ticks: max_leakage * kappa**ticks + _HAIR <= limit) if max_leakage else 0


def first_quiet_tick(
    history: History, worst_odds: Sequence[Fraction | None], last_loud: int, excess: Fraction | None, slack: Fraction
) -> int | None:
    """Return the first tick at which charges up to tick `last_loud` leak at most a slack, or None if none is known.

    `worst_odds`: the largest odds ratio of each class of chains, None without a bound.
    `excess`: by how much a tick's charge is above what is allowed now, in nats; `None` if nobody knows.
    """
    fading_ticks = [_fading_ticks(odds, excess, slack) for odds in worst_odds]
    later_spans = [span for span in history.spans if span.first is not None and span.end > last_loud]
    later_spans = [span._replace(first=max(span.first or 0, last_loud + 1)) for span in later_spans]
    ticks = max((ticks for ticks in fading_ticks if ticks is not None), default=0)
    if None in fading_ticks or (ticks and not any(span.version for span in later_spans)):
        return None
    return _tick_after(later_spans, ticks) if ticks else 0


class PromiseDates(NamedTuple):
    """The ticks for which a promise about stretches of `ticks` ticks is true, and the loss of other stretches.

    Attributes:
        since: first tick at which a promised stretch may begin; `None` if no stretch is shown to be within the promise.
        until: last such tick; `None` if there is no end yet.
        outer_bound: bound for stretches that begin elsewhere under this version; `None` if there is no bound.
    """

    ticks: int
    since: int | None
    until: int | None = None
    outer_bound: StretchBound | None = None

    @property
    def holds_always(self) -> bool:
        """True if no other version weakens the promise."""
        return self.since == 0 and self.until is None

    def covers(self, first: int, last: int, ticks: int) -> bool:
        """True if the promise is true of every stretch of `ticks` ticks that begins in first..last."""
        if self.since is None or first < self.since:
            return False
        return self.until is None or last + ticks <= self.until + self.ticks

    def epsilon(self, promised: StretchBound, first: int, last: int, ticks: int) -> float:
        """Bound the loss of stretches of `ticks` ticks that begin in first..last, by infinity if there is no bound.

        `promised` is the bound by the version's own promise.
        """
        if self.covers(first, last, ticks):
            return promised.epsilon(ticks)
        return math.inf if self.outer_bound is None else max(promised.epsilon(ticks), self.outer_bound.epsilon(ticks))


def dates_of(policy: AnyPolicy, history: History, *, windows_only: bool = False) -> PromiseDates:
    """Return the ticks for which the promise of a policy is true of a stream with a history.

    `windows_only`: the promise to readers of the windows alone. A version without a span is taken for the next version.
    For measured streams, changes of policy are not covered. GuaranteeError if the policy's promise is false.
    """
    if isinstance(policy, Policy) and history.related_streams:
        intervals = louder_intervals(policy, history)
        dates = dates_of(policy, forget_noise(history, intervals), windows_only=windows_only)
        version_spans = [span for span in history.spans if span.version == policy.version]
        unbounded = intervals and (not version_spans or any(span.touches(intervals) for span in version_spans))
        return dates._replace(outer_bound=None) if unbounded else dates
    spans = history.spans
    if not isinstance(policy, Policy):
        is_known = history.complete or policy.version == 1  # whether another version drew before
        return PromiseDates(1, 0 if is_known and {span.version for span in spans} <= {policy.version} else None)
    if all(span.version == policy.version for span in spans) and history.complete:
        promise = (windows_only and policy.windows_alone) or policy.guarantee
        return PromiseDates(promise.stretch_ticks, 0)
    if all(span.version != policy.version for span in spans):
        spans = (*spans, Span(policy.version, Noise.of(policy), None))
    return _Promise(policy, windows_only=windows_only).dates(spans, complete=history.complete)


class _Run(NamedTuple):
    """A run of `min_ticks` to `max_ticks` ticks, perhaps infinitely many, with one bound on their ratios, or None."""

    ratios: Ratios | None
    min_ticks: int
    max_ticks: Decimal


_UNKNOWN = _Run(None, 0, _INFINITE)


def _merged_runs(runs: Iterable[_Run]) -> list[_Run]:
    """Merge consecutive runs with the same bound: a gap between them does not change what their ticks leak."""
    merged: list[_Run] = []
    for run in runs:
        previous = merged[-1] if merged else None
        if previous is not None and previous.ratios is not None and previous.ratios == run.ratios:
            merged[-1] = _Run(run.ratios, previous.min_ticks + run.min_ticks, previous.max_ticks + run.max_ticks)
        else:
            merged.append(run)
    return merged


class _TotalLeakage(NamedTuple):
    """The leakages of both sides by the distance of the change in ticks, and the limit of their sum."""

    limit: Decimal
    past: Callable[[int], Decimal]
    future: Callable[[int], Decimal]


class _Promise:
    """A promise of a policy, about all outputs of a stream or about its windows alone."""

    def __init__(self, policy: Policy, *, windows_only: bool) -> None:
        self.policy, self.windows_only = policy, windows_only
        self.promise, self.outputs = policy.guarantee, policy.outputs
        if windows_only and policy.windows_alone is not None:
            self.promise, self.outputs = policy.windows_alone, policy.window_outputs
        self.noise = Noise.of(policy)
        odds = policy.chains.worst_odds
        with localcontext(CONTEXT):
            self.odds_root = None if odds is None else as_decimal(odds).sqrt()
            self.rates = _rates(self.outputs.ratios)
            if isinstance(policy.chains, JointChains) and not windows_only:  # what the class allows it to tell
                joint_stream = policy.chains.streams[policy.chains.stream_index(policy.device, policy.stream)]
                self.rates = (max(*self.rates, Decimal(joint_stream.rate)),) * 2

    def dates(self, spans: Sequence[Span], *, complete: bool) -> PromiseDates:
        """Find the ticks at which promised stretches may begin, and the bound elsewhere."""
        version = self.policy.version
        indices = [index for index, span in enumerate(spans) if span.version == version]
        newest = start = indices[-1]
        while start and (spans[start - 1].version == version or spans[start - 1][:2] == (0, self.noise)):
            start -= 1
        with localcontext(CONTEXT):
            past_runs = _merged_runs([*([] if complete else [_UNKNOWN]), *map(self._run, spans[:start])])
            future_runs = [self._run(span) for span in spans[newest + 1 :]]
            since, until = self._interval(spans[start : newest + 1], spans[newest + 1 :], past_runs, future_runs)
            if since == 0 and until is None:
                return PromiseDates(self.promise.stretch_ticks, 0)
            outer_bound = self._outside_bound(spans, indices[0], complete=complete)
        return PromiseDates(self.promise.stretch_ticks, since, until, outer_bound)

    def _ratios(self, span: Span) -> Ratios | None:
        """Return the ratios of a span that count for this promise, or None if they are unknown or of other states."""
        if span.noise is None or span.noise.discretiser_digest != self.noise.discretiser_digest:
            return None
        return span.noise.window_ratios if self.windows_only else span.noise.ratios

    def _run(self, span: Span) -> _Run:
        """Return the run of ticks of a span, with a bound on their ratios."""
        if span.first is None or span.last is None:
            return _Run(self._ratios(span), 0, _INFINITE)
        ticks = span.last - span.first + 1
        return _Run(self._ratios(span), ticks if span.version else 0, Decimal(ticks))

    def _interval(
        self, spans: Sequence[Span], later_spans: Sequence[Span], past_runs: Sequence[_Run], future_runs: Sequence[_Run]
    ) -> tuple[int | None, int | None]:
        """Return the first tick at which a promised stretch may begin, None for none, and the last, None for no end."""
        is_past_quiet = not any(_rate_gap(run.ratios, self.rates) for run in past_runs)
        loud_index = next((index for index, run in enumerate(future_runs) if _rate_gap(run.ratios, self.rates)), None)
        if is_past_quiet and loud_index is None:
            return 0, None
        if spans[-1].first is None and not is_past_quiet:
            return None, None
        # Ticks of later versions that have no less noise count as ticks of this one.
        leakages = self._leakages(past_runs, [] if loud_index is None else _merged_runs(future_runs[loud_index:])[::-1])
        ticks_before: int | None = 0
        if not is_past_quiet:
            side_count = 1 if loud_index is None else 2
            remainders = [(leakage, leakage.past(MAX_TICK), leakage.future(MAX_TICK)) for leakage in leakages]
            limits = [
                (leakage, bound + (leakage.limit - bound - other_bound - _HAIR) / side_count)
                for leakage, bound, other_bound in remainders
            ]
            ticks_before = _least_ticks(lambda ticks: all(leakage.past(ticks) <= bound for leakage, bound in limits))
        if ticks_before is None:
            return None, None
        first_tick = _tick_after(spans, ticks_before)
        if loud_index is None:
            return first_tick, None
        past_leakages = [(leakage.past(ticks_before), leakage) for leakage in leakages]
        ticks_after = _least_ticks(
            lambda ticks: all(past + leakage.future(ticks) + _HAIR <= leakage.limit for past, leakage in past_leakages)
        )
        end_tick = None if ticks_after is None else _tick_before([*spans, *later_spans[:loud_index]], ticks_after)
        until = -1 if end_tick is None else min(end_tick - self.promise.stretch_ticks + 1, spans[-1].end)
        return (None, None) if until < first_tick else (0 if is_past_quiet else first_tick, until)

    def _leakages(self, past_runs: Sequence[_Run], future_runs: Sequence[_Run]) -> list[_TotalLeakage]:
        """Return the leakages with their limits: exact against the universal adversary, else bounded by the excess."""
        epsilon, ticks = Fraction(self.promise.epsilon), self.promise.stretch_ticks
        is_joint = isinstance(self.policy.chains, JointChains)  # other streams add to the loss, too
        if self.promise.adversary == "universal" and self.odds_root is not None and not is_joint:
            leakages = self._exact_leakages(as_decimal(epsilon), ticks, past_runs, future_runs)
            if all(leakage.past(MAX_TICK) + leakage.future(MAX_TICK) + _HAIR < leakage.limit for leakage in leakages):
                return leakages
        true_bound = _true_bound(self.policy.model_dump_json(), self.windows_only)
        limit = as_decimal(epsilon - Fraction(true_bound.epsilon(ticks)))
        past, future = (self._excess(runs, self.rates) for runs in (past_runs, future_runs))
        sides = (cache(partial(self._decay, excess)) for excess in (past, future))
        return [_TotalLeakage(limit, *sides)]

    def _decay(self, excess: Decimal, ticks: int | Decimal) -> Decimal:
        """Bound the part of an excess that remains after some ticks."""
        if self.odds_root is None or not excess:
            return excess
        return excess * ((self.odds_root - 1) / (self.odds_root + 1)) ** ticks if ticks else excess

    def _excess(self, runs: Sequence[_Run], rates: _Rates) -> Decimal:
        """Bound by how much some runs, the farthest first, leak more than ticks with these rates."""
        excess = Decimal(0)
        for run in runs:
            gap = _rate_gap(run.ratios, rates)
            if self.odds_root is None:
                excess += gap and gap * run.max_ticks
                continue
            max_factor, cap = (self.odds_root - 1) / 2, 2 * self.odds_root.ln()
            factor = min(max_factor, run.max_ticks)
            if self.odds_root < _ACCURATE_ODDS:
                factor = min(factor, max_factor - self._decay(max_factor, run.max_ticks) + _HAIR)
            excess = min(self._decay(excess, run.min_ticks) + (gap and gap * factor), cap) if factor else Decimal(0)
        return excess + _HAIR if excess else excess

    def _exact_leakages(
        self, epsilon: Decimal, ticks: int, past_runs: Sequence[_Run], future_runs: Sequence[_Run]
    ) -> list[_TotalLeakage]:
        """Return the leakages by odds ratios, tick by tick: one for each direction, one for the larger ratio."""
        leakages, max_rate = [], max(self.rates)
        for direction in (0, 1, None):
            rate = max_rate if direction is None else self.rates[direction]
            past, future = (self._leakage_by_distance(runs, direction) for runs in (past_runs, future_runs))
            leakages.append(_TotalLeakage(epsilon - rate - (ticks - 1) * max_rate, past, future))
        return leakages

    def _leakage_by_distance(self, runs: Sequence[_Run], direction: int | None) -> Callable[[int], Decimal]:
        """Return the leakage of some runs, the farthest first, by their distance; at least this version's leakage."""
        odds = self.policy.chains.worst_odds
        assert odds is not None

        def in_direction(ratios: Ratios) -> Fraction:
            return max(ratios) if direction is None else ratios[direction]

        this_ratio = in_direction(self.outputs.ratios)
        root, floor = Decimal(1), _leakage(odds, this_ratio).ln()  # the square root of a likelihood ratio
        for run in runs:
            if run.ratios is None:
                root = as_decimal(odds).sqrt()
                continue
            ratio = in_direction(run.ratios)
            if run.min_ticks == run.max_ticks:
                root = _powers(odds, ratio).image(run.min_ticks, root)
            else:  # it lies between its first value and its limit
                root = max(root, _leakage(odds, ratio).sqrt())
        return cache(lambda distance: max(2 * _powers(odds, this_ratio).image(distance, root).ln(), floor))

    def _outside_bound(self, spans: Sequence[Span], first_index: int, *, complete: bool) -> StretchBound | None:
        """Bound the loss of stretches that begin under this version, by the largest ratios in reach, or return None.

        Earlier versions that leak next to nothing at the first tick are left out; their leakage is added.
        """
        policy, chains = self.policy, self.policy.chains
        later_ratios = [self._ratios(span) for span in spans[first_index:]]
        if None in later_ratios:
            return None
        ratios, start = largest_ratios(*(pair for pair in later_ratios if pair is not None)), first_index
        past_runs = _merged_runs([*([] if complete else [_UNKNOWN]), *map(self._run, spans[:first_index])])
        while True:
            excess = self._excess(past_runs, _rates(ratios))
            earlier_ratios = self._ratios(spans[start - 1]) if start else None
            if excess <= as_decimal(SLACK * Fraction(self.promise.epsilon)) or earlier_ratios is None:
                break
            start, ratios = start - 1, largest_ratios(ratios, earlier_ratios)
        if not excess.is_finite():
            return None
        try:
            column, rate = chains.stream_index(policy.device, policy.stream), log_up(max(ratios))
            adversary = self.promise.adversary
            loss = chains.stream_loss(
                column, ratios, Fraction(rate), adversary, "a change of policy", windows_only=self.windows_only
            )
        except GuaranteeError:
            return None
        bound = chains.stretch_bound(loss.epsilon, 1, rate, (), adversary)
        return replace(bound, loss_bound=float_up(Fraction(bound.loss_bound) + Fraction(excess)))


def _leakage(odds: Fraction, ratio: Fraction) -> Decimal:
    """Bound the leakage of a side whose ticks have a ratio."""
    return as_decimal(Fraction(odds_leakage(odds.as_integer_ratio(), ratio_up(*ratio.as_integer_ratio())), ONE))


def _rates(ratios: Ratios) -> _Rates:
    return log_ratio(ratios[0]), log_ratio(ratios[1])


def _rate_gap(ratios: Ratios | None, rates: _Rates) -> Decimal:
    """Return by how much ratios are above rates in the worse direction, or 0 if they are not."""
    if ratios is None:
        return _INFINITE
    return max(Decimal(0), *(log_ratio(ratio) - rate for ratio, rate in zip(ratios, rates, strict=True)))


def _tick_after(spans: Sequence[Span], ticks: int) -> int:
    """Return the tick that follows the first `ticks` ticks of some spans; the last span goes on."""
    first_tick, spans = 0, [span for span in spans if span.version]
    for span in spans:
        first_tick = span.first or 0
        ticks_drawn = None if span.last is None else span.last - first_tick + 1
        if ticks_drawn is None or ticks < ticks_drawn or span is spans[-1]:
            return first_tick + ticks
        ticks -= ticks_drawn
    return first_tick


def _tick_before(spans: Sequence[Span], ticks: int) -> int | None:
    """Return the tick before the last `ticks` ticks of some ended spans, or None if they have no such tick."""
    for span in reversed(spans):
        if not span.version or span.first is None or span.last is None:
            continue
        ticks_drawn = span.last - span.first + 1
        if ticks < ticks_drawn:
            return span.last - ticks
        ticks -= ticks_drawn
    return None


def _least_ticks(condition: Callable[[int], bool]) -> int | None:
    """Return the least number of ticks from which on a condition holds, or None if it never holds."""
    if condition(0):
        return 0
    enough_ticks = next((1 << power for power in range(MAX_TICK.bit_length()) if condition(1 << power)), None)
    return None if enough_ticks is None else bisect_left(range(enough_ticks), True, enough_ticks // 2, key=condition)


class _Powers:
    """Powers of the map of one tick, which carries the square root of a leaking likelihood ratio.

    W(u) = ((sqrt(alpha u) + 1) / (sqrt(alpha) + sqrt(u)))^2 is a Moebius map of the square roots.
    """

    def __init__(self, odds: Fraction, ratio: Fraction) -> None:
        odds_root, ratio_root = as_decimal(odds).sqrt(), as_decimal(ratio).sqrt()
        self._squares: list[tuple[Decimal, ...]] = [(odds_root * ratio_root, Decimal(1), ratio_root, odds_root)]

    def image(self, ticks: int, value: Decimal) -> Decimal:
        """Apply the map of one tick `ticks` times to a value."""
        level = 0
        while ticks >> level:
            if level == len(self._squares):
                a, b, c, d = self._squares[-1]
                square = a * a + b * c, b * (a + d), c * (a + d), b * c + d * d
                scale = max(square)
                self._squares.append(tuple(coefficient / scale for coefficient in square))
            if ticks >> level & 1:
                a, b, c, d = self._squares[level]
                value = (a * value + b) / (c * value + d)
            level += 1
        return value


@lru_cache(maxsize=256)
def _powers(odds: Fraction, ratio: Fraction) -> _Powers:
    with localcontext(CONTEXT):
        return _Powers(odds, ratio)


@lru_cache(maxsize=256)
def _true_bound(policy_json: str, windows_only: bool) -> StretchBound:
    """Derive the bound of a policy from the true loss of its tick, which is below the promise.

    Policies with a map of categories have no hash, so their text is the key of the cache.
    """
    policy = Policy.model_validate_json(policy_json)
    if not windows_only:
        return policy.bound(policy.verify())
    bound = policy.windows_bound(policy.verify_windows())
    assert bound is not None
    return bound
