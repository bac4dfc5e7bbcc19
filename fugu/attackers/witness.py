"""The exact likelihood ratio of one output that a mechanism can release: epsilon is at least that.

The outputs that tell most are far too rare to be met. In them, every symbol favours the same state for hundreds of
ticks, and every count is beyond the possible. But an attacker who knows the mechanism can name one and compute how
likely it is under each state. This is importance sampling with no variance left, and so there is no interval. It says
nothing of the draws of a real device: it is about the numbers that the policy states.

A count beyond the possible is e^(1/scale) times likelier for every tick more that is counted, whatever else was. Its
likelihood is a product over ticks, and needs no count beside the state. (If several noises were added up, that is the
limit of counts further and further away.) Symbols are searched from far to near, on each side of the secret tick. For
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


def witness(mechanism: Mechanism, chain: MarkovChain, *, knows: bool = False) -> Witness:
    """The output that tells most of those that are tried, for a chain with a distribution of the first tick.

    `knows` says whether the adversary may know states of other ticks.
    """
    if mechanism.shown or any(mechanism.counts[n].consecutive for n in mechanism.independent):
        mechanism = mechanism._replace(stretch=1)  # what is promised of a stretch is of each of its ticks
    wide = _Expanded.of(mechanism, chain)
    pairs = secret_pairs(mechanism)[:_MOST_PAIRS]
    after = mechanism.secret + mechanism.stretch
    best = Witness(0.0, pairs[0])
    for signs, state_pairs in _patterns(mechanism, pairs).items():
        options = wide.options(mechanism, signs)
        steps = wide.steps(mechanism, signs)
        future = _side(wide, options[after:][::-1], steps[after - 1 :][::-1], pairs, knows, past=False)
        past = _side(wide, options[: mechanism.secret], steps[: mechanism.secret], pairs, knows, past=True)
        for x, z in state_pairs:
            epsilon = _largest(wide, x, z, past, options[mechanism.secret : after], future) - _ROUNDING
            if epsilon > best.epsilon:
                best = Witness(epsilon, (x, z))
    return best


def told_by_tick(mechanism: Mechanism) -> Floats:
    """(k, k) the most that what a tick adds to tells of each state rather than each other, about."""
    losses = np.zeros((mechanism.states, mechanism.states))
    with np.errstate(divide="ignore", invalid="ignore"):
        for source in mechanism.sources:
            logs = np.log(source.emission)
            if source.heard:
                losses += [np.nan_to_num(row - logs, nan=0.0, posinf=1e3).max(axis=1) for row in logs]
    for n in mechanism.independent:
        count = mechanism.counts[n]
        if count.first <= mechanism.secret < count.first + count.length:
            inside = _share(mechanism, n)
            losses += np.maximum(inside[:, None] - inside[None, :], 0.0) / float(count.scale)
    return losses


def _share(mechanism: Mechanism, count: int) -> Floats:
    """(k,) how much a tick in each state adds to a count, on average."""
    definition = mechanism.counts[count]
    if definition.symbols is None:
        return np.isin(np.arange(mechanism.states), definition.members).astype(np.float64)
    emission = mechanism.sources[definition.symbols].emission
    symbols = np.arange(emission.shape[1])
    if not definition.consecutive:
        return np.asarray(emission[:, np.isin(symbols, definition.members)].sum(axis=1))
    both = [member for member in definition.members if member % (emission.shape[1] + 1) == 0]  # a symbol that stays
    return np.asarray(emission[:, [member // emission.shape[1] for member in both]].sum(axis=1))


def secret_pairs(mechanism: Mechanism) -> list[tuple[int, int]]:
    """Pairs of secrets that are told apart, those first of which a tick tells most."""
    losses, secrets = told_by_tick(mechanism), mechanism.secrets
    most = {
        (x, z): float(losses[np.ix_(secrets == x, secrets == z)].max())
        for x, z in permutations(dict.fromkeys(secrets.tolist()), 2)
    }
    return sorted(most, key=lambda pair: -most[pair])


def _patterns(mechanism: Mechanism, pairs: Sequence[tuple[int, int]]) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """By how each count is beyond what can be, 1 above and -1 below: the pairs of states of which that tells most."""
    first = {definition.name: n for n, definition in reversed(list(enumerate(mechanism.counts)))}
    states = np.bincount(mechanism.secrets)
    scores = {name: np.bincount(mechanism.secrets, _score(mechanism, n)) / states for name, n in first.items()}
    patterns: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for x, z in pairs:
        signs = {name: _sign(score[x], score[z]) for name, score in scores.items()}
        patterns.setdefault(tuple(signs[count.name] for count in mechanism.counts), []).append((x, z))
    return patterns


def _sign(share: float, other: float) -> int:
    return 1 if share > other or share == other > 0.5 else -1


def _score(mechanism: Mechanism, count: int) -> Floats:
    definition = mechanism.counts[count]
    if not definition.consecutive or definition.symbols is None:
        return _share(mechanism, count)
    emission = mechanism.sources[definition.symbols].emission
    first, second = np.divmod(np.array(definition.members), emission.shape[1])
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
    def of(cls, mechanism: Mechanism, chain: MarkovChain) -> _Expanded:
        assert chain.initial is not None
        of = next((mechanism.counts[n].symbols for n in mechanism.independent if mechanism.counts[n].consecutive), None)
        emission = np.ones((mechanism.states, 1)) if of is None else mechanism.sources[of].emission
        symbols = emission.shape[1]
        state, symbol = np.divmod(np.arange(mechanism.states * symbols), symbols)
        forward = chain.transition[np.ix_(state, state)] * emission[state, symbol][None, :]
        distribution = chain.initial[state] * emission[state, symbol]
        backward = (distribution[:, None] * forward).T / distribution[:, None]
        secret = mechanism.secrets[state]
        return cls(
            forward, backward, state, symbol, secret, distribution / np.bincount(secret, distribution)[secret], of
        )

    def options(self, mechanism: Mechanism, signs: Sequence[int]) -> list[Floats]:
        """For each tick, (n, o) likelihoods of what may be heard of it, given each state."""
        plain = np.ones((mechanism.states, 1))
        for source in mechanism.sources:
            if source.heard:
                plain = (plain[:, :, None] * source.emission[:, None, :]).reshape(mechanism.states, -1)
                plain = plain[:, _extreme(plain)]
        tilts = np.zeros((mechanism.ticks, mechanism.states))
        sizes = [source.emission.shape[1] for source in mechanism.sources]
        of_symbols = {n: np.zeros((mechanism.ticks, size)) for n, size in enumerate(sizes)}
        for n in mechanism.telling:
            count = mechanism.counts[n]
            into = tilts if count.symbols is None else of_symbols[count.symbols]
            into[count.first : count.first + count.length, list(count.members)] += signs[n] / float(count.scale)
        counted = {mechanism.counts[n].symbols for n in mechanism.telling} - {None}
        by_tick, computed = [], {}
        for tick in range(mechanism.ticks):
            key = (tilts[tick].tobytes(), *(of_symbols[n][tick].tobytes() for n in of_symbols if n in counted))
            if key not in computed:
                wide = (plain * np.exp(tilts[tick])[:, None])[self.state]
                for n in of_symbols:
                    if n in counted and n == self.consecutive_of:
                        wide = wide * np.exp(of_symbols[n][tick])[self.symbol][:, None]
                    elif n in counted:
                        wide = wide * (mechanism.sources[n].emission @ np.exp(of_symbols[n][tick]))[self.state][:, None]
                computed[key] = wide
            by_tick.append(computed[key])
        return by_tick

    def steps(self, mechanism: Mechanism, signs: Sequence[int]) -> list[Floats]:
        """For each step but the last tick's, (n, n) how likely the counts of pairs of symbols make it; or (1, 1)."""
        if self.consecutive_of is None:
            return [np.ones((1, 1))] * (mechanism.ticks - 1)
        symbols = int(self.symbol.max()) + 1
        tilts = np.zeros((mechanism.ticks - 1, symbols**2))
        for n in mechanism.independent:
            count = mechanism.counts[n]
            if count.consecutive and count.symbols == self.consecutive_of:
                steps = slice(count.first, count.first + count.length - 1)
                tilts[steps, list(count.members)] += signs[n] / float(count.scale)
        pair = self.symbol[:, None] * symbols + self.symbol[None, :]
        return [np.exp(tilt)[pair] for tilt in tilts]


def _extreme(columns: Floats) -> Ints:
    """Which (k, o) columns to keep if they are many: for every two states those that tell most."""
    if columns.shape[1] <= _MOST_OPTIONS:
        return np.arange(columns.shape[1])
    logs = np.log(np.maximum(columns, 1e-300))
    ratios = [logs[x] - logs[z] for x, z in permutations(range(len(columns)), 2)]
    chosen = {int(own.argmax()) for own in sorted(ratios, key=lambda ratio: -float(ratio.max()))[:_MOST_OPTIONS]}
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
    seen, unseen = np.ones((1, 1, size)), np.ones((1, size))
    wanted = set(_distances(len(options))) if knows and wide.consecutive_of is None else set()
    likely = range(size) if size <= _MOST_KNOWN else np.flatnonzero(np.isin(wide.secret, pairs[:_MOST_KNOWN])).tolist()
    for place, (option, step) in enumerate(zip(options, steps, strict=True)):
        matrix = move * (step.T if past else step)
        beliefs = seen[:, :, None, :] * option.T[None, None]
        beliefs = beliefs.reshape(len(seen), -1, size) @ matrix.T
        seen = _selected(beliefs, wide, pairs)
        unseen = unseen @ move.T
        if len(options) - place in wanted:
            fresh = move[:, list(likely)].T
            fresh = fresh[fresh.min(axis=1) > 0]
            unseen = np.concatenate([unseen, fresh])
            seen = np.concatenate([seen, np.repeat(fresh[:, None], seen.shape[1], axis=1)])
    return _Sides(seen, unseen)


def _selected(beliefs: Floats, wide: _Expanded, pairs: Sequence[tuple[int, int]]) -> Floats:
    """For every two states the output whose likelihoods differ most."""
    beliefs = beliefs / np.maximum(beliefs.max(axis=2, keepdims=True), 1e-300)
    if beliefs.shape[1] <= 1:
        return beliefs
    logs = np.log(np.maximum(beliefs, 1e-300))
    states = [
        (x, z)
        for pair in pairs
        for x, z in product(*(np.flatnonzero(wide.secret == own)[:_MOST_ALIKE] for own in pair))
    ]
    best = np.stack([(logs[:, :, x] - logs[:, :, z]).argmax(axis=1) for x, z in states], axis=1)
    if (best == best[:, :1]).all():
        best = best[:, :1]
    return np.asarray(np.take_along_axis(beliefs, best[:, :, None], axis=1))


def _largest(
    wide: _Expanded, x: int, z: int, past_sides: _Sides, here: Sequence[Floats], future_sides: _Sides
) -> float:
    """The log-likelihood ratio of two secrets, with the best that was kept of both sides and of their ticks."""
    first, other = np.flatnonzero(wide.secret == x), np.flatnonzero(wide.secret == z)
    with np.errstate(divide="ignore", invalid="ignore"):
        if len(first) == len(other) == 1:
            total = math.fsum(float(_clean(np.log(own[first[0]]) - np.log(own[other[0]])).max()) for own in here)
            for side in (past_sides, future_sides):
                ratio = np.log(side.seen[:, :, first[0]]) - np.log(side.seen[:, :, other[0]])
                prior = np.log(side.known[:, first[0]]) - np.log(side.known[:, other[0]])
                total += float(_clean(ratio - prior[:, None]).max())
            return total
        past, future = (_best(wide, side, first, other) for side in (past_sides, future_sides))
        logs = []
        for own in (first, other):
            seen = np.einsum("n,ln,no,rn->lor", wide.weight[own], past[0][:, own], here[0][own], future[0][:, own])
            unseen = np.einsum("n,ln,rn->lr", wide.weight[own], past[1][:, own], future[1][:, own])
            logs.append(np.log(seen) - np.log(unseen)[:, None, :])
        return float(_clean(logs[0] - logs[1]).max())


def _best(wide: _Expanded, side: _Sides, first: Ints, other: Ints) -> tuple[Floats, Floats]:
    seen = side.seen.reshape(-1, side.seen.shape[2])
    unseen = np.repeat(side.known, side.seen.shape[1], axis=0)
    logs = [np.log(beliefs[:, own] @ wide.weight[own]) for own in (first, other) for beliefs in (seen, unseen)]
    score = _clean(logs[0] - logs[1] - logs[2] + logs[3])
    best = np.argsort(-score)[:_MOST_OUTPUTS]
    return seen[best], unseen[best]


def _clean(logs: Floats) -> Floats:
    return np.where(np.isnan(logs), -np.inf, logs)
