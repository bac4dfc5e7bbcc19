"""Theorems on composition, for a set of releases about one chain, beside the accountants.

Song, Chaudhuri: Composition Properties of Inferential Privacy for Time-Series Data (2017); as corrected, and for any
number of windows. Proofs: docs/proofs/published-mechanisms.md, "Several releases, by the papers' theorems".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract.errors import FuguError
from fugu.contract.losses import OUTWARD
from fugu.privacy.accountant.accountant import known_chains
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilts import corner_chains, quilt_accountant
from fugu.privacy.window_mechanisms import WindowRequest, charges, joint_losses, shift_to_front
from papers.quilts import influence, two_windows_bound
from papers.window_releases import QUILTS, NoisyCount, Released, answer_distributions, noisy, own_loss, worst_ratio

__all__ = ["Verdict", "naive_counterexample", "verdicts"]

Standing = Literal["holds", "false", "at least", "not applicable"]
_UP = 1.0 + OUTWARD
_CLOSE = 1.0 + 1e-9
_MOST_INFLUENCES = 5_000


class Verdict(NamedTuple):
    """Bound of the theorem of this name for all releases together, for every tick, and why in a line.

    `epsilon` is `None` if it is not applicable. `standing` is a bound that holds; a printed or naive one that is false,
    whether or not these releases break it. Or what is really lost by some chain; or `None`.
    """

    name: str
    epsilon: float | None
    standing: Standing
    note: str


class Counterexample(NamedTuple):
    """Two equal releases that together lose more than twice what one loses, and how they do it."""

    together: float
    apart: float
    words: str


def verdicts(request: WindowRequest, releases: Sequence[Released]) -> list[Verdict]:
    """Every theorem's verdict on releases, at least one, with noise independent of one another; else a ChainClassError.

    Of the request the class, its start, and what a count counts are used.
    """
    joint_losses(request, releases)  # refuses what cannot be accounted for
    return _Together(request, releases).all()


def naive_counterexample() -> Counterexample:
    """Theorem 3.4's point on a chain: the losses of releases about the same ticks need not add up."""
    q, r, ticks, scale = 0.01, 0.4, 6, 2.0
    chain, count = MarkovChain.stationary([[1.0 - q, q], [r, 1.0 - r]]), NoisyCount(1, ticks, (1,), scale)
    words = f"two counts of the same {ticks} ticks, noise {scale:g} each, q = {q:g}, r = {r:g}"
    together, alone = (float(_really_lost((chain,), counts).max()) for counts in ([count, count], [count]))
    return Counterexample(together, 2.0 * alone, words)


class _Together:
    """Releases, and what several theorems need of them."""

    def __init__(self, request: WindowRequest, listed: Sequence[Released]) -> None:
        self._request, self._given = request, listed
        self._releases = releases = shift_to_front(request, listed)
        self._number = listed[0].first - releases[0].first + 1  # of the first tick, as it is shown
        self._length = max(release.last for release in releases)
        self._rates = charges(releases, self._length)
        self._windows = sorted(range(len(releases)), key=lambda index: releases[index].first)
        self._disjoint = all(releases[a].last < releases[b].first for a, b in pairwise(self._windows))
        self._alike = len({(release.first, release.length) for release in releases}) == 1 and all(
            release.mechanism in QUILTS for release in releases
        )
        self._states = request.chains[0].states if isinstance(request.chains, tuple) else request.chains.states

    def all(self) -> list[Verdict]:
        rows = [self._row("every path added up", self._real, "at least")]
        losses = joint_losses(self._request, self._given)
        bounds = [
            Verdict(name, bound, "not applicable" if bound is None else "holds", note) for name, bound, note in losses
        ]
        rows += bounds[:-1]
        rows += [
            self._row("theorem 3.1, corrected", self._adjacent),
            self._row("theorem 3.1, as printed", self._printed, "false"),
            self._row("theorem 3.3, quilts apart", self._apart),
            self._row("sum of losses", self._sum, "holds" if self._disjoint or self._alike else "false"),
            self._row("sum of least of loss and influence", self._least_sum, "false"),
            self._row("theorem 3.6, max-divergence", self._divergence),
            self._row("theorem 3.6, either way apart", self._both_ways),
            self._row("theorem 3.7, one set of quilts", self._shared_quilts),
            bounds[-1],
        ]
        return rows

    def _row(self, name: str, find: Callable[[], tuple[float, str]], standing: Standing = "holds") -> Verdict:
        try:
            return Verdict(name, (result := find())[0], standing, result[1])
        except FuguError as error:
            return Verdict(name, None, "not applicable", str(error))

    def _broken(self, says: Floats) -> str:
        """Say whether these releases break a false formula, which says so much of each tick."""
        try:
            real = self._lost
        except FuguError:
            return ""
        excess = np.where(np.isnan(says), -np.inf, real * (1.0 - 1e-9) - says)
        tick = int(excess.argmax())
        if excess[tick] <= 0.0:
            return "; these releases do not break it"
        sentence = f"tick {tick + self._number} loses {real[tick]:.5g}, and it says {says[tick]:.5g}"
        return f"; these releases break it: {sentence}"

    @cached_property
    def _members(self) -> tuple[MarkovChain, ...]:
        return corner_chains(known_chains(self._request.chains, self._request.start))

    @cached_property
    def _own(self) -> list[float]:
        try:
            members = self._members
        except ChainClassError:
            members = ()
        own = []
        for number, release in enumerate(self._releases, 1):
            try:
                own.append(own_loss(self._request, members, release))
            except FuguError as error:
                raise ChainClassError(f"release {number}: {error}") from None
        return own

    @property
    def _counts(self) -> list[list[NoisyCount]]:
        counted = self._request.states or ((1,) if self._states == 2 else None)
        if counted is None and any(release.query == "count" for release in self._releases):
            raise ChainClassError(f"which of the {self._states} states are counted is not said")
        return [release.counts(self._states, counted or ()) for release in self._releases]

    @cached_property
    def _lost(self) -> Floats:
        """(T,) what each tick really loses; 0 where nothing is read."""
        lost = _really_lost(self._members, [count for each in self._counts for count in each])
        return np.where(self._rates > 0.0, lost, 0.0)

    def _real(self) -> tuple[float, str]:
        which = "the chain" if len(self._members) == 1 else f"the worst of {len(self._members)} chains"
        return float(self._lost.max()), f"{which} really loses this, tick {int(self._lost.argmax()) + self._number}"

    def _require(self, *, disjoint: bool = False) -> None:
        if len(self._releases) < 2:
            raise ChainClassError("there is one release")
        if disjoint and not self._disjoint:
            raise ChainClassError("windows share ticks")

    def _adjacent(self) -> tuple[float, str]:
        """Theorem 3.1, and for more windows the same again on either side."""
        self._require(disjoint=True)
        order = [self._releases[index] for index in self._windows]
        own = [self._own[index] for index in self._windows]
        worst = 0.0
        for chain in self._members:
            ahead, behind = (_one_side(chain, order, own, backward=backward) for backward in (False, True))
            worst = max(worst, *(each + a + b for each, a, b in zip(own, behind, ahead, strict=True)))
        return worst * _UP, "a window's loss, and on either side the least of loss and influence"

    def _printed(self) -> tuple[float, str]:
        self._require(disjoint=True)
        if len(self._releases) > 2:
            raise ChainClassError("there are more than two windows")
        (a, b), own = (self._releases[index] for index in self._windows), [self._own[index] for index in self._windows]
        gap = b.first - a.last
        bounds = [
            two_windows_bound(own[0], own[1], influence(chain, b.first, gap, None), influence(chain, a.last, None, gap))
            for chain in self._members
        ]
        says = np.full(self._length, max(bounds))
        return max(bounds), "has its two influences swapped" + self._broken(says)

    def _apart(self) -> tuple[float, str]:
        """Theorem 3.3: every tick has a quilt as good as its own release's that reaches no other window."""
        self._require(disjoint=True)
        self._require_quilts()
        for index, release in enumerate(self._releases):
            inside = slice(release.first - 1, release.last)
            apart = charges([release], self._length)
            apart[(self._rates > 0.0) & (apart == 0.0)] = 2.0 * max(self._own) + 1.0
            if float(quilt_accountant(self._members, apart)[inside].max()) > self._own[index] * _CLOSE:
                raise ChainClassError(f"the quilts of release {index + 1} reach another window")
        return max(self._own) * _CLOSE, "no quilt reaches another window; for ticks that are read"

    def _sum(self) -> tuple[float, str]:
        self._require()
        total = math.fsum(self._own)
        if self._disjoint or self._alike:
            why = "no two windows share a tick: theorem 3.1" if self._disjoint else "theorem 3.7"
            return total * _UP, why
        example = naive_counterexample()
        note = f"theorem 3.4: {example.words} lose {example.together:.5g}, not {example.apart:.5g}"
        return total, note + self._broken(np.full(self._length, total))

    def _least_sum(self) -> tuple[float, str]:
        self._require(disjoint=True)
        if len(self._members) * len(self._releases) * np.count_nonzero(self._rates) > _MOST_INFLUENCES:
            raise ChainClassError("there are too many ticks to try one by one")
        says = np.full(self._length, np.nan)
        for chain in self._members:
            for release in self._releases:
                for tick in range(release.first, release.last + 1):
                    reaches = (_boundary(chain, tick, other) for other in self._releases)
                    least = map(min, self._own, reaches)
                    says[tick - 1] = np.fmax(says[tick - 1], math.fsum(least))
        return float(np.nanmax(says)), "influences are spent on one secret more than once" + self._broken(says)

    def _divergence(self) -> tuple[float, str]:
        """Theorem 3.6: own losses, and twice how far earlier answers move the belief about the next, either way."""
        moved, note = self._moves
        twice = 2.0 * math.fsum(max(move) for move in moved)
        return self._with_losses(twice, note)

    def _both_ways(self) -> tuple[float, str]:
        """Theorem 3.6 with the way up and the way down bounded apart."""
        moved, note = self._moves
        return self._with_losses(math.fsum(map(math.fsum, moved)), note)

    def _with_losses(self, moved: float, note: str) -> tuple[float, str]:
        total = math.fsum(self._own)
        return (total + moved) * _CLOSE, f"losses {total:.5g}, divergence {moved:.5g} from {note}"

    @cached_property
    def _moves(self) -> tuple[list[tuple[float, float]], str]:
        """For each release but one: how far earlier answers raise and lower the log-density of its answer."""
        self._require()
        counts = self._counts
        moves = [(0.0, 0.0)] * (len(counts) - 1)
        try:
            for chain in self._members:
                for secret in answer_distributions(chain, [count for each in counts for count in each]):
                    belief_moves = _belief_moves(secret.distributions, counts)
                    moves = [(max(a, c), max(b, d)) for (a, b), (c, d) in zip(moves, belief_moves, strict=True)]
        except ChainClassError:
            widths = sorted(release.rate * release.length for release in self._releases)
            # a tick can move a log-density by its rate; a release, and all before it, by no more than its own range
            return [(width, width) for width in widths[:-1]], "their noise's range"
        return moves, "the exact distributions of the answers"

    def _shared_quilts(self) -> tuple[float, str]:
        self._require()
        self._require_quilts()
        if not self._alike:
            raise ChainClassError("releases are about different windows: the quilt accountant covers them")
        return math.fsum(self._own) * _UP, "losses add up: the smaller quilt of a tick serves all"

    def _require_quilts(self) -> None:
        for number, release in enumerate(self._releases, 1):
            if release.mechanism not in QUILTS:
                raise ChainClassError(f"release {number} is not one of Markov quilts")


def _one_side(chain: MarkovChain, windows: Sequence[Released], own: Sequence[float], *, backward: bool) -> list[float]:
    """For every window, what all that lie on one side of it add."""
    adds = [0.0] * len(windows)
    for at in range(1, len(windows)) if backward else range(len(windows) - 2, -1, -1):
        beside = at - 1 if backward else at + 1
        reach = _boundary(chain, windows[at].first if backward else windows[at].last, windows[beside])
        adds[at] = min(reach, own[beside] + adds[beside])
    return adds


def _boundary(chain: MarkovChain, tick: int, window: Released) -> float:
    """The influence of a window's nearest tick on a tick; infinite inside."""
    if tick < window.first:
        return influence(chain, tick, None, window.first - tick)
    return influence(chain, tick, tick - window.last, None) if tick > window.last else math.inf


def _really_lost(chains: Sequence[MarkovChain], counts: Sequence[NoisyCount]) -> Floats:
    """Loss of each tick (T,) in the worst of some chains; with any start, from near each state and an even one."""
    worst = np.zeros(max(count.last for count in counts))
    for chain in chains:
        starts: list[Floats | None] = [chain.initial]
        if chain.initial is None:
            k = chain.states
            starts = [*(np.eye(k) * (1.0 - 1e-9) + 1e-9 / k), np.full(k, 1.0 / k)]
        for start in starts:
            for secret in answer_distributions(MarkovChain(chain.transition, start), counts):
                worst[secret.node - 1] = max(worst[secret.node - 1], worst_ratio(noisy(secret.distributions, counts)))
    return worst


def _belief_moves(distributions: Floats, counts: Sequence[Sequence[NoisyCount]]) -> list[tuple[float, float]]:
    """For each release after the first: the max-divergences of its answer given all before from it alone, and back.

    The `distributions` (s, ...) are those of all counts given a state.
    """
    ends = np.cumsum([len(each) for each in counts])
    flat = [count for each in counts for count in each]

    def logs(first: int, last: int) -> Floats:
        """Of densities of the answers to some counts given a state, with an axis of length 1 for every other count."""
        others = tuple(axis for axis in range(1, len(flat) + 1) if not first < axis <= last)
        densities = noisy(distributions.sum(axis=others), flat[first:last])
        return np.log(np.expand_dims(densities, others))

    moves = []
    for before, last in pairwise(ends.tolist()):
        moved = logs(0, last) - logs(0, before) - logs(before, last)
        moves.append((float(moved.max()), float(-moved.min())))
    return moves
