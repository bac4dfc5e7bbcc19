"""Compute the exact likelihood ratio of one output that a mechanism can release: a lower bound on epsilon.

The most revealing outputs are too rare to be observed. In them every symbol favours the same state for hundreds of
ticks, and every count is beyond the possible. But an attacker who knows the mechanism can construct one, and compute
its likelihood under each state. This is importance sampling without variance, so there is no interval. It says nothing
about the draws of a real device, only about the numbers that the policy states.

A count beyond the possible is e^(1/scale) times likelier for each additional counted tick, whatever the other ticks
are. Its likelihood is a product over ticks, and needs no count beside the state. (If several noises are added up, this
is the limit of ever more distant counts.) Symbols are searched from far to near, on each side of the secret tick. For
every two states the past whose likelihoods differ most is kept. Counts of pairs of symbols are followed on the chain of
the state and the last symbol. An adversary who may know states also knows one on each side, where that is worst.
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

__all__ = ["secret_pairs", "tick_losses", "witness"]


_ROUNDING = 1e-9
"""More than all roundings of a logarithm in this module add up to."""
_MOST_PAIRS = 24
_MOST_OPTIONS = 100
_MOST_KNOWN = 6
_MOST_ALIKE = 4
_MOST_OUTPUTS = 100


class Witness(NamedTuple):
    """An output's log-likelihood ratio in nats, rounded down, and the two secrets, the likelier first."""

    epsilon: float
    secrets: tuple[int, int]


class _Side(NamedTuple):
    """Likelihoods on one side, given the secret tick's state: of b outputs (g, b, k), and without outputs (g, k).

    Each of g cases is that of no known state, or of one that is known.
    """

    heard_probs: Floats
    prior_probs: Floats


def witness(mechanism: Mechanism, chain: MarkovChain, *, knows_states: bool = False) -> Witness:
    """Find the most revealing of the tried outputs, for a chain with a distribution of the first tick.

    `knows_states` says that the adversary may know states of other ticks.
    """
    if mechanism.shown_secrets or any(mechanism.counts[n].consecutive for n in mechanism.independent_counts):
        mechanism = mechanism._replace(stretch=1)  # the promise about a stretch also holds for each of its ticks
    space = _ExpandedChain.of(mechanism, chain)
    pairs = secret_pairs(mechanism)[:_MOST_PAIRS]
    secret_tick, end = mechanism.secret_tick, mechanism.secret_tick + mechanism.stretch
    best_witness = Witness(0.0, pairs[0])
    for signs, state_pairs in _sign_pairs(mechanism, pairs).items():
        options = space.options(mechanism, signs)
        steps = space.steps(mechanism, signs)
        future = _side_probs(space, options[end:][::-1], steps[end - 1 :][::-1], pairs, knows_states, is_past=False)
        past = _side_probs(space, options[:secret_tick], steps[:secret_tick], pairs, knows_states, is_past=True)
        for x, z in state_pairs:
            epsilon = _largest_ratio(space, x, z, past, options[secret_tick:end], future) - _ROUNDING
            if epsilon > best_witness.epsilon:
                best_witness = Witness(epsilon, (x, z))
    return best_witness


def tick_losses(mechanism: Mechanism) -> Floats:
    """Estimate the largest log-likelihood ratio (k, k) of each state over each other, from one tick's contributions."""
    losses = np.zeros((mechanism.states, mechanism.states))
    with np.errstate(divide="ignore", invalid="ignore"):
        for source in mechanism.sources:
            logs = np.log(source.emission)
            if source.heard:
                losses += [np.nan_to_num(state_logs - logs, nan=0.0, posinf=1e3).max(axis=1) for state_logs in logs]
    for n in mechanism.independent_counts:
        count = mechanism.counts[n]
        if count.first <= mechanism.secret_tick < count.first + count.length:
            counted_shares = _counted_shares(mechanism, n)
            losses += np.maximum(counted_shares[:, None] - counted_shares[None, :], 0.0) / float(count.scale)
    return losses


def _counted_shares(mechanism: Mechanism, count_index: int) -> Floats:
    """The average contribution (k,) of a tick in each state to a count."""
    definition = mechanism.counts[count_index]
    if definition.source is None:
        return np.isin(np.arange(mechanism.states), definition.members).astype(np.float64)
    emission = mechanism.sources[definition.source].emission
    symbols = np.arange(emission.shape[1])
    if not definition.consecutive:
        return np.asarray(emission[:, np.isin(symbols, definition.members)].sum(axis=1))
    stays = [member for member in definition.members if member % (emission.shape[1] + 1) == 0]  # a symbol that stays
    return np.asarray(emission[:, [member // emission.shape[1] for member in stays]].sum(axis=1))


def secret_pairs(mechanism: Mechanism) -> list[tuple[int, int]]:
    """All ordered pairs of secrets, by decreasing loss of a single tick."""
    losses, secrets = tick_losses(mechanism), mechanism.secrets
    largest_losses = {
        (x, z): float(losses[np.ix_(secrets == x, secrets == z)].max())
        for x, z in permutations(dict.fromkeys(secrets.tolist()), 2)
    }
    return sorted(largest_losses, key=lambda pair: -largest_losses[pair])


def _sign_pairs(mechanism: Mechanism, pairs: Sequence[tuple[int, int]]) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """Group pairs of secrets by the most revealing signs of the counts: 1 for too large, -1 for too small counts."""
    first_counts = {count.name: n for n, count in reversed(list(enumerate(mechanism.counts)))}
    sizes = np.bincount(mechanism.secrets)
    shares = {name: _pair_shares(mechanism, n) for name, n in first_counts.items()}
    scores = {name: np.bincount(mechanism.secrets, share) / sizes for name, share in shares.items()}
    pairs_by_signs: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for x, z in pairs:
        signs = {name: 1 if score[x] > score[z] or score[x] == score[z] > 0.5 else -1 for name, score in scores.items()}
        pairs_by_signs.setdefault(tuple(signs[count.name] for count in mechanism.counts), []).append((x, z))
    return pairs_by_signs


def _pair_shares(mechanism: Mechanism, count_index: int) -> Floats:
    definition = mechanism.counts[count_index]
    if not definition.consecutive or definition.source is None:
        return _counted_shares(mechanism, count_index)
    emission = mechanism.sources[definition.source].emission
    first_symbols, second_symbols = np.divmod(np.array(definition.members), emission.shape[1])
    return np.asarray((emission[:, first_symbols] * emission[:, second_symbols]).sum(axis=1))


class _ExpandedChain(NamedTuple):
    """A chain of states, or of states and the last symbol of a stream whose pairs of symbols are counted.

    `forward` and `backward` (n, n) are the steps in either direction. `symbol` is 0 if no pairs are counted. `secret`
    is the secret that each state shows, and `weight` the probability of the state given that secret.
    """

    forward: Floats
    backward: Floats
    state: Ints
    symbol: Ints
    secret: Ints
    weight: Floats
    pair_source: int | None

    @classmethod
    def of(cls, mechanism: Mechanism, chain: MarkovChain) -> _ExpandedChain:
        assert chain.initial is not None
        pair_source = next(
            (mechanism.counts[n].source for n in mechanism.independent_counts if mechanism.counts[n].consecutive), None
        )
        emission = np.ones((mechanism.states, 1)) if pair_source is None else mechanism.sources[pair_source].emission
        symbols = emission.shape[1]
        state, symbol = np.divmod(np.arange(mechanism.states * symbols), symbols)
        forward = chain.transition[np.ix_(state, state)] * emission[state, symbol][None, :]
        distribution = chain.initial[state] * emission[state, symbol]
        backward = (distribution[:, None] * forward).T / distribution[:, None]
        secret = mechanism.secrets[state]
        weight = distribution / np.bincount(secret, distribution)[secret]
        return cls(forward, backward, state, symbol, secret, weight, pair_source)

    def options(self, mechanism: Mechanism, signs: Sequence[int]) -> list[Floats]:
        """For each tick, the likelihoods (n, o) of its possible outputs, given each state."""
        heard_probs = np.ones((mechanism.states, 1))
        for source in mechanism.sources:
            if source.heard:
                heard_probs = (heard_probs[:, :, None] * source.emission[:, None, :]).reshape(mechanism.states, -1)
                heard_probs = heard_probs[:, _extreme_columns(heard_probs)]
        state_tilts = np.zeros((mechanism.ticks, mechanism.states))
        symbol_counts = [source.emission.shape[1] for source in mechanism.sources]
        source_tilts = {n: np.zeros((mechanism.ticks, size)) for n, size in enumerate(symbol_counts)}
        for n in mechanism.followed_counts:
            count = mechanism.counts[n]
            target = state_tilts if count.source is None else source_tilts[count.source]
            target[count.first : count.first + count.length, list(count.members)] += signs[n] / float(count.scale)
        tilted_sources = {mechanism.counts[n].source for n in mechanism.followed_counts} - {None}
        used_tilts = {n: tilts for n, tilts in source_tilts.items() if n in tilted_sources}
        options, cached_probs = [], {}
        for tick in range(mechanism.ticks):
            tilt_key = (state_tilts[tick].tobytes(), *(tilts[tick].tobytes() for tilts in used_tilts.values()))
            if tilt_key not in cached_probs:
                probs = (heard_probs * np.exp(state_tilts[tick])[:, None])[self.state]
                for n, tilts in used_tilts.items():
                    if n == self.pair_source:
                        probs = probs * np.exp(tilts[tick])[self.symbol][:, None]
                    else:
                        probs = probs * (mechanism.sources[n].emission @ np.exp(tilts[tick]))[self.state][:, None]
                cached_probs[tilt_key] = probs
            options.append(cached_probs[tilt_key])
        return options

    def steps(self, mechanism: Mechanism, signs: Sequence[int]) -> list[Floats]:
        """For each step, the factors (n, n) by counts of pairs of symbols; ones (1, 1) if no pairs are counted."""
        if self.pair_source is None:
            return [np.ones((1, 1))] * (mechanism.ticks - 1)
        symbols = int(self.symbol.max()) + 1
        tilts = np.zeros((mechanism.ticks - 1, symbols**2))
        for n in mechanism.independent_counts:
            count = mechanism.counts[n]
            if count.consecutive and count.source == self.pair_source:
                steps = slice(count.first, count.first + count.length - 1)
                tilts[steps, list(count.members)] += signs[n] / float(count.scale)
        symbol_pair = self.symbol[:, None] * symbols + self.symbol[None, :]
        return [np.exp(tilt)[symbol_pair] for tilt in tilts]


def _extreme_columns(columns: Floats) -> Ints:
    """Choose the columns of (k, o) to keep if there are many: the most revealing ones for every two states."""
    if columns.shape[1] <= _MOST_OPTIONS:
        return np.arange(columns.shape[1])
    logs = np.log(np.maximum(columns, 1e-300))
    ratios = [logs[x] - logs[z] for x, z in permutations(range(len(columns)), 2)]
    ratios = sorted(ratios, key=lambda ratio: -float(ratio.max()))[:_MOST_OPTIONS]
    return np.array(sorted({int(ratio.argmax()) for ratio in ratios}))


def _known_distances(longest: int) -> Iterator[int]:
    """Yield the distances from the secret tick, in ticks, at which a known state is tried."""
    distance = 1
    while distance <= longest:
        yield distance
        distance += max(1, distance // 3)


def _side_probs(
    space: _ExpandedChain,
    options: Sequence[Floats],
    steps: Sequence[Floats],
    pairs: Sequence[tuple[int, int]],
    knows_states: bool,
    *,
    is_past: bool,
) -> _Side:
    """The likelihoods of the kept outputs of one side, computed from the farthest tick to the nearest."""
    state_count = len(space.state)
    transition = space.backward if is_past else space.forward
    seen_probs, prior_probs = np.ones((1, 1, state_count)), np.ones((1, state_count))
    tried_distances = set(_known_distances(len(options))) if knows_states and space.pair_source is None else set()
    known_states = np.flatnonzero((state_count <= _MOST_KNOWN) | np.isin(space.secret, pairs[:_MOST_KNOWN]))
    for index, (option, step) in enumerate(zip(options, steps, strict=True)):
        step_matrix = transition * (step.T if is_past else step)
        beliefs = seen_probs[:, :, None, :] * option.T[None, None]
        beliefs = beliefs.reshape(len(seen_probs), -1, state_count) @ step_matrix.T
        seen_probs = _select_outputs(beliefs, space, pairs)
        prior_probs = prior_probs @ transition.T
        if len(options) - index in tried_distances:
            known_rows = transition[:, known_states].T
            known_rows = known_rows[known_rows.min(axis=1) > 0]
            prior_probs = np.concatenate([prior_probs, known_rows])
            seen_probs = np.concatenate([seen_probs, np.repeat(known_rows[:, None], seen_probs.shape[1], axis=1)])
    return _Side(seen_probs, prior_probs)


def _select_outputs(beliefs: Floats, space: _ExpandedChain, pairs: Sequence[tuple[int, int]]) -> Floats:
    """Keep, for every two states, the output whose likelihoods differ most."""
    beliefs = beliefs / np.maximum(beliefs.max(axis=2, keepdims=True), 1e-300)
    if beliefs.shape[1] <= 1:
        return beliefs
    logs = np.log(np.maximum(beliefs, 1e-300))
    state_pairs = [
        (x, z)
        for pair in pairs
        for x, z in product(*(np.flatnonzero(space.secret == secret)[:_MOST_ALIKE] for secret in pair))
    ]
    best_outputs = np.stack([(logs[:, :, x] - logs[:, :, z]).argmax(axis=1) for x, z in state_pairs], axis=1)
    if (best_outputs == best_outputs[:, :1]).all():
        best_outputs = best_outputs[:, :1]
    return np.take_along_axis(beliefs, best_outputs[:, :, None], axis=1)


def _largest_ratio(
    space: _ExpandedChain, x: int, z: int, past_side: _Side, options: Sequence[Floats], future_side: _Side
) -> float:
    """The largest log-likelihood ratio of two secrets, over the kept outputs of both sides and of their own ticks."""
    x_states, z_states = np.flatnonzero(space.secret == x), np.flatnonzero(space.secret == z)
    with np.errstate(divide="ignore", invalid="ignore"):
        if len(x_states) == len(z_states) == 1:
            log_ratio = math.fsum(
                float(_without_nan(np.log(probs[x_states[0]]) - np.log(probs[z_states[0]])).max()) for probs in options
            )
            for side in (past_side, future_side):
                ratio = np.log(side.heard_probs[:, :, x_states[0]]) - np.log(side.heard_probs[:, :, z_states[0]])
                prior = np.log(side.prior_probs[:, x_states[0]]) - np.log(side.prior_probs[:, z_states[0]])
                log_ratio += float(_without_nan(ratio - prior[:, None]).max())
            return log_ratio
        past, future = (_best_outputs(space, side, x_states, z_states) for side in (past_side, future_side))
        logs = []
        for states in (x_states, z_states):
            probs = np.einsum(
                "n,ln,no,rn->lor", space.weight[states], past[0][:, states], options[0][states], future[0][:, states]
            )
            priors = np.einsum("n,ln,rn->lr", space.weight[states], past[1][:, states], future[1][:, states])
            logs.append(np.log(probs) - np.log(priors)[:, None, :])
        return float(_without_nan(logs[0] - logs[1]).max())


def _best_outputs(space: _ExpandedChain, side: _Side, x_states: Ints, z_states: Ints) -> tuple[Floats, Floats]:
    probs = side.heard_probs.reshape(-1, side.heard_probs.shape[2])
    priors = np.repeat(side.prior_probs, side.heard_probs.shape[1], axis=0)
    pairs = product((x_states, z_states), (probs, priors))
    logs = [np.log(beliefs[:, states] @ space.weight[states]) for states, beliefs in pairs]
    ratios = _without_nan(logs[0] - logs[1] - logs[2] + logs[3])
    best_outputs = np.argsort(-ratios)[:_MOST_OUTPUTS]
    return probs[best_outputs], priors[best_outputs]


def _without_nan(logs: Floats) -> Floats:
    return np.where(np.isnan(logs), -np.inf, logs)
