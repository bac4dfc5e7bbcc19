"""The exact likelihood ratio of one output that a mechanism can release: epsilon is at least that.

The outputs that tell most are far too rare to be met: every symbol favours the same state for hundreds of ticks, and
every count is beyond what can be. But whoever knows the mechanism can name one and compute how likely it is under each
state; this is importance sampling with no variance left, and so there is no interval. It says nothing of the draws of a
real device: it is about the numbers that the policy states.

A count beyond what can be is e^(1/scale) times likelier for every tick more that is counted, whatever else was: its
likelihood is a product over ticks, and needs no count beside the state. (If several noises were added up, that is the
limit of counts further and further away.) Symbols are searched from far to near, on each side of the secret tick: for
every two states the past whose likelihoods differ most is kept. Counts of pairs of symbols are followed on the chain of
the state and the last symbol. The adversary who may know states is also told one on each side, wherever that is worst.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import permutations, product
from typing import NamedTuple

import numpy as np

from fugu.attackers.mechanisms import Mechanism
from fugu.chains.arrays import Floats, Ints
from fugu.privacy.chain_class import MarkovChain

__all__ = ["secret_pairs", "told_by_tick", "witness"]


_ROUNDING = 1e-9
"""Above what all roundings of a logarithm here amount to."""
_MOST_PAIRS = 24
_MOST_OPTIONS = 100
_MOST_KNOWN = 6
_MOST_ALIKE = 4
_MOST_OUTPUTS = 100


class Witness(NamedTuple):
    """An output: its log-likelihood ratio in nats, rounded down, and the secrets it tells apart, the likelier first."""

    epsilon: float
    secrets: tuple[int, int]


class _Sides(NamedTuple):
    """Likelihoods on one side, given the secret tick's state and a known one: (g, b, k) of outputs, (g, k) of none."""

    seen: Floats
    known: Floats


def witness(made: Mechanism, chain: MarkovChain, *, knows: bool = False) -> Witness:
    """The output that tells most of those that are tried, for a chain with a distribution of the first tick.

    `knows` says whether the adversary may know states of other ticks.
    """
    if made.shown or any(made.counts[n].consecutive for n in made.independent):
        made = made._replace(stretch=1)  # what is promised of a stretch is of each of its ticks
    wide = _Expanded.of(made, chain)
    pairs = secret_pairs(made)[:_MOST_PAIRS]
    after = made.secret + made.stretch
    best = Witness(0.0, pairs[0])
    for signs, mine in _patterns(made, pairs).items():
        options = wide.options(made, signs)
        steps = wide.steps(made, signs)
        right = _side(wide, options[after:][::-1], steps[after - 1 :][::-1], pairs, knows, past=False)
        left = _side(wide, options[: made.secret], steps[: made.secret], pairs, knows, past=True)
        for x, z in mine:
            told = _largest(wide, x, z, left, options[made.secret : after], right) - _ROUNDING
            if told > best.epsilon:
                best = Witness(told, (x, z))
    return best


def told_by_tick(made: Mechanism) -> Floats:
    """(k, k) the most that what a tick adds to tells of each state rather than each other, about."""
    told = np.zeros((made.states, made.states))
    with np.errstate(divide="ignore", invalid="ignore"):
        for source in made.sources:
            logs = np.log(source.emission)
            if source.heard:
                told += [np.nan_to_num(row - logs, nan=0.0, posinf=1e3).max(axis=1) for row in logs]
    for n in made.independent:
        one = made.counts[n]
        if one.first <= made.secret < one.first + one.length:
            inside = _share(made, n)
            told += np.maximum(inside[:, None] - inside[None, :], 0.0) / float(one.scale)
    return told


def _share(made: Mechanism, count: int) -> Floats:
    """(k,) how much a tick in each state adds to a count, on average."""
    one = made.counts[count]
    if one.symbols is None:
        return np.isin(np.arange(made.states), one.members).astype(np.float64)
    emission = made.sources[one.symbols].emission
    symbols = np.arange(emission.shape[1])
    if not one.consecutive:
        return np.asarray(emission[:, np.isin(symbols, one.members)].sum(axis=1))
    both = [member for member in one.members if member % (emission.shape[1] + 1) == 0]  # a symbol that stays
    return np.asarray(emission[:, [member // emission.shape[1] for member in both]].sum(axis=1))


def secret_pairs(made: Mechanism) -> list[tuple[int, int]]:
    """Pairs of secrets that are told apart, those first of which a tick tells most."""
    told, secrets = told_by_tick(made), made.secrets
    most = {
        (x, z): float(told[np.ix_(secrets == x, secrets == z)].max())
        for x, z in permutations(dict.fromkeys(secrets.tolist()), 2)
    }
    return sorted(most, key=lambda pair: -most[pair])


def _patterns(made: Mechanism, pairs: Sequence[tuple[int, int]]) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """By how each count is beyond what can be, 1 above and -1 below: the pairs of states of which that tells most."""
    first = {one.name: n for n, one in reversed(list(enumerate(made.counts)))}
    states = np.bincount(made.secrets)
    scores = {name: np.bincount(made.secrets, _score(made, n)) / states for name, n in first.items()}
    found: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for x, z in pairs:
        signs = {name: _sign(score[x], score[z]) for name, score in scores.items()}
        found.setdefault(tuple(signs[one.name] for one in made.counts), []).append((x, z))
    return found


def _sign(one: float, other: float) -> int:
    return 1 if one > other or one == other > 0.5 else -1


def _score(made: Mechanism, count: int) -> Floats:
    one = made.counts[count]
    if not one.consecutive or one.symbols is None:
        return _share(made, count)
    emission = made.sources[one.symbols].emission
    first, second = np.divmod(np.array(one.members), emission.shape[1])
    return np.asarray((emission[:, first] * emission[:, second]).sum(axis=1))


class _Expanded(NamedTuple):
    """The chain that is followed: of states, or of states and the last symbol of a stream whose pairs are counted.

    `forward` and `backward` are (n, n) steps either way; `symbol` is 0 without one; `secret` is what a state shows, and
    `weight` the probability of each, given that.
    """

    forward: Floats
    backward: Floats
    state: Ints
    symbol: Ints
    secret: Ints
    weight: Floats
    consecutive_of: int | None

    @classmethod
    def of(cls, made: Mechanism, chain: MarkovChain) -> _Expanded:
        assert chain.initial is not None
        of = next((made.counts[n].symbols for n in made.independent if made.counts[n].consecutive), None)
        emission = np.ones((made.states, 1)) if of is None else made.sources[of].emission
        symbols = emission.shape[1]
        state, symbol = np.divmod(np.arange(made.states * symbols), symbols)
        forward = chain.transition[np.ix_(state, state)] * emission[state, symbol][None, :]
        distribution = chain.initial[state] * emission[state, symbol]
        backward = (distribution[:, None] * forward).T / distribution[:, None]
        secret = made.secrets[state]
        return cls(
            forward, backward, state, symbol, secret, distribution / np.bincount(secret, distribution)[secret], of
        )

    def options(self, made: Mechanism, signs: Sequence[int]) -> list[Floats]:
        """For each tick, (n, o) likelihoods of what may be heard of it, given each state."""
        plain = np.ones((made.states, 1))
        for source in made.sources:
            if source.heard:
                plain = (plain[:, :, None] * source.emission[:, None, :]).reshape(made.states, -1)
                plain = plain[:, _extreme(plain)]
        tilts = np.zeros((made.ticks, made.states))
        of_symbols = {n: np.zeros((made.ticks, one.emission.shape[1])) for n, one in enumerate(made.sources)}
        for n in made.telling:
            one = made.counts[n]
            into = tilts if one.symbols is None else of_symbols[one.symbols]
            into[one.first : one.first + one.length, list(one.members)] += signs[n] / float(one.scale)
        counted = {made.counts[n].symbols for n in made.telling} - {None}
        found, known = [], {}
        for tick in range(made.ticks):
            key = (tilts[tick].tobytes(), *(of_symbols[n][tick].tobytes() for n in of_symbols if n in counted))
            if key not in known:
                wide = (plain * np.exp(tilts[tick])[:, None])[self.state]
                for n in of_symbols:
                    if n in counted and n == self.consecutive_of:
                        wide = wide * np.exp(of_symbols[n][tick])[self.symbol][:, None]
                    elif n in counted:
                        wide = wide * (made.sources[n].emission @ np.exp(of_symbols[n][tick]))[self.state][:, None]
                known[key] = wide
            found.append(known[key])
        return found

    def steps(self, made: Mechanism, signs: Sequence[int]) -> list[Floats]:
        """For each step but the last tick's, (n, n) how likely the counts of pairs of symbols make it; or (1, 1)."""
        if self.consecutive_of is None:
            return [np.ones((1, 1))] * (made.ticks - 1)
        symbols = int(self.symbol.max()) + 1
        tilts = np.zeros((made.ticks - 1, symbols**2))
        for n in made.independent:
            one = made.counts[n]
            if one.consecutive and one.symbols == self.consecutive_of:
                tilts[one.first : one.first + one.length - 1, list(one.members)] += signs[n] / float(one.scale)
        pair = self.symbol[:, None] * symbols + self.symbol[None, :]
        return [np.exp(tilt)[pair] for tilt in tilts]


def _extreme(columns: Floats) -> Ints:
    """Which (k, o) columns to keep if they are many: for every two states those that tell most."""
    if columns.shape[1] <= _MOST_OPTIONS:
        return np.arange(columns.shape[1])
    logs = np.log(np.maximum(columns, 1e-300))
    told = [logs[x] - logs[z] for x, z in permutations(range(len(columns)), 2)]
    chosen = {int(own.argmax()) for own in sorted(told, key=lambda one: -float(one.max()))[:_MOST_OPTIONS]}
    return np.array(sorted(chosen))


def _distances(far: int) -> Iterator[int]:
    """Where a known state is tried: how many ticks from the secret one."""
    at = 1
    while at <= far:
        yield at
        at += max(1, at // 3)


def _side(
    wide: _Expanded,
    options: Sequence[Floats],
    steps: Sequence[Floats],
    pairs: Sequence[tuple[int, int]],
    knows: bool,
    *,
    past: bool,
) -> _Sides:
    """The outputs of one side, from the farthest tick to the nearest."""
    size = len(wide.state)
    move = wide.backward if past else wide.forward
    seen, known = np.ones((1, 1, size)), np.ones((1, size))
    wanted = set(_distances(len(options))) if knows and wide.consecutive_of is None else set()
    told = range(size) if size <= _MOST_KNOWN else np.flatnonzero(np.isin(wide.secret, pairs[:_MOST_KNOWN])).tolist()
    for place, (option, step) in enumerate(zip(options, steps, strict=True)):
        matrix = move * (step.T if past else step)
        each = seen[:, :, None, :] * option.T[None, None]
        each = each.reshape(len(seen), -1, size) @ matrix.T
        seen = _selected(each, known @ move.T, wide, pairs)
        known = known @ move.T
        if len(options) - place in wanted:
            fresh = move[:, list(told)].T
            fresh = fresh[fresh.min(axis=1) > 0]
            known = np.concatenate([known, fresh])
            seen = np.concatenate([seen, np.repeat(fresh[:, None], seen.shape[1], axis=1)])
    return _Sides(seen, known)


def _selected(each: Floats, known: Floats, wide: _Expanded, pairs: Sequence[tuple[int, int]]) -> Floats:
    """For every two states the output whose likelihoods differ most."""
    each = each / np.maximum(each.max(axis=2, keepdims=True), 1e-300)
    if each.shape[1] <= 1:
        return each
    logs = np.log(np.maximum(each, 1e-300))
    states = [
        (x, z)
        for pair in pairs
        for x, z in product(*(np.flatnonzero(wide.secret == own)[:_MOST_ALIKE] for own in pair))
    ]
    best = np.stack([(logs[:, :, x] - logs[:, :, z]).argmax(axis=1) for x, z in states], axis=1)
    if (best == best[:, :1]).all():
        best = best[:, :1]
    return np.asarray(np.take_along_axis(each, best[:, :, None], axis=1))


def _largest(wide: _Expanded, x: int, z: int, left: _Sides, here: Sequence[Floats], right: _Sides) -> float:
    """The log-likelihood ratio of two secrets, with the best that was kept of both sides and of their ticks."""
    one, other = np.flatnonzero(wide.secret == x), np.flatnonzero(wide.secret == z)
    with np.errstate(divide="ignore", invalid="ignore"):
        if len(one) == len(other) == 1:
            total = math.fsum(float(_clean(np.log(own[one[0]]) - np.log(own[other[0]])).max()) for own in here)
            for side in (left, right):
                told = np.log(side.seen[:, :, one[0]]) - np.log(side.seen[:, :, other[0]])
                prior = np.log(side.known[:, one[0]]) - np.log(side.known[:, other[0]])
                total += float(_clean(told - prior[:, None]).max())
            return total
        past, future = (_best(wide, side, one, other) for side in (left, right))
        logs = []
        for own in (one, other):
            seen = np.einsum("n,ln,no,rn->lor", wide.weight[own], past[0][:, own], here[0][own], future[0][:, own])
            known = np.einsum("n,ln,rn->lr", wide.weight[own], past[1][:, own], future[1][:, own])
            logs.append(np.log(seen) - np.log(known)[:, None, :])
        return float(_clean(logs[0] - logs[1]).max())


def _best(wide: _Expanded, side: _Sides, one: Ints, other: Ints) -> tuple[Floats, Floats]:
    seen = side.seen.reshape(-1, side.seen.shape[2])
    known = np.repeat(side.known, side.seen.shape[1], axis=0)
    told = [np.log(each[:, own] @ wide.weight[own]) for own in (one, other) for each in (seen, known)]
    score = _clean(told[0] - told[1] - told[2] + told[3])
    best = np.argsort(-score)[:_MOST_OUTPUTS]
    return seen[best], known[best]


def _clean(logs: Floats) -> Floats:
    return np.where(np.isnan(logs), -np.inf, logs)
