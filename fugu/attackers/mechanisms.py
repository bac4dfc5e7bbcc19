"""Draw all outputs that an audience hears around one tick, for many paths at once, and compute their exact likelihood.

The likelihood sums over all paths and all running counts. It goes forward over the chain, with a count beside the state
for every window that has begun and not ended. Counts of heard symbols add nothing to the symbols, and are left out.
Counts of pairs of symbols are left out too, as their likelihood takes too long; see `fugu.attackers.witness`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np

from fugu.attackers.outputs import laplace_noise
from fugu.chains.arrays import Floats, Ints
from fugu.privacy.chain_class import MarkovChain

__all__ = ["Counted", "Heard", "Mechanism", "Recorded", "Simulated", "Source", "log_likelihoods", "paths", "release"]


_CELLS_PER_ARRAY = 4_000_000
"""The most numbers in one array; trials are computed in parts."""


class Source(NamedTuple):
    """The source of one stream's symbols, heard or not: probabilities (k, m) of symbols given each state of the chain.

    `shown_states` lists the stream's state that each state of the chain shows.
    """

    emission: Floats
    shown_states: tuple[int, ...]
    heard: bool


class Counted(NamedTuple):
    """A count over `length` ticks from `first` on, with `terms` discrete Laplace noises added up.

    `members` are the counted states of the chain, or counted symbols of the source number `source`. If `consecutive`,
    they are counted pairs z m + z' of consecutive symbols.
    """

    name: str
    first: int
    length: int
    members: tuple[int, ...]
    source: int | None
    scale: Fraction
    terms: int = 1
    consecutive: bool = False


class Mechanism(NamedTuple):
    """The releases about some ticks, symbols of sources and counts; the tick `secret_tick` is attacked.

    `shown_secrets` lists the secret that each state of the chain shows; empty if the state itself is secret. If
    `stretch` is more than one tick, the secret is the state that all these ticks show.
    """

    ticks: int
    secret_tick: int
    states: int
    sources: tuple[Source, ...]
    counts: tuple[Counted, ...]
    shown_secrets: tuple[int, ...] = ()
    stretch: int = 1

    @property
    def secrets(self) -> Ints:
        """The secret (k,) that each state of the chain shows."""
        return np.array(self.shown_secrets or range(self.states))

    @property
    def independent_counts(self) -> tuple[int, ...]:
        """The indices of counts that do not follow from heard symbols."""
        is_heard = [source.heard for source in self.sources]
        return tuple(n for n, count in enumerate(self.counts) if count.source is None or not is_heard[count.source])

    @property
    def followed_counts(self) -> tuple[int, ...]:
        """The indices of independent counts whose likelihood is computed."""
        return tuple(n for n in self.independent_counts if not self.counts[n].consecutive)

    @property
    def drawn_sources(self) -> tuple[int, ...]:
        """The indices of sources that are heard or counted."""
        counted_sources = {count.source for count in self.counts}
        return tuple(n for n, source in enumerate(self.sources) if source.heard or n in counted_sources)

    def noise_uses(self, name: str) -> int:
        """The number of counts of a name, each with its own noise."""
        return sum(count.name == name for count in self.counts)

    @property
    def cells(self) -> int:
        """The most numbers that the likelihood of one trial holds at a time."""
        counts = (self.counts[n] for n in self.followed_counts)
        spans = [range(count.first, count.first + count.length) for count in counts]
        sizes_by_tick = ([tick - ticks.start + 2 for ticks in spans if tick in ticks] for tick in range(self.ticks))
        return max(map(math.prod, sizes_by_tick), default=1) * self.states

    @property
    def work(self) -> int:
        """The approximate number of steps for the likelihood of one trial."""
        most_symbols = max((source.emission.shape[1] for source in self.sources), default=1)
        return self.cells * self.ticks * self.states * most_symbols


class Heard(NamedTuple):
    """Drawn outputs: symbols (trials, ticks) by source, and counts (trials, counts)."""

    symbols: dict[int, Ints]
    counts: Ints


class Simulated:
    """Simulate draws by the probabilities of a table, and by the stated scales."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def symbols(self, states: Ints, source: Source) -> Ints:
        """A symbol for each state of the chain, in the same shape."""
        symbols = np.empty_like(states)
        for x, distribution in enumerate(source.emission):
            in_state = states == x
            cumulated = np.cumsum(distribution)[:-1]
            symbols[in_state] = np.searchsorted(cumulated, self._generator.random(int(in_state.sum())), side="right")
        return symbols

    def noise(self, count: Counted, trials: int) -> Ints:
        """Draw the noise (trials,) of a count."""
        return np.asarray(laplace_noise(count.scale, (trials, count.terms), self._generator).sum(axis=1))


class Recorded:
    """A device's real draws: symbols by the state in which they were drawn, and noises by the name of their count.

    Given the true state, a symbol is a draw from the table's row; a published count less the true count is a draw of
    noise. Used once each on other paths, these are outputs that the same device could have published.
    """

    def __init__(self, drawn: Sequence[Ints], noises: Mapping[str, Ints]) -> None:
        self.drawn, self.noises = tuple(drawn), dict(noises)
        self.rewind()

    def rewind(self) -> None:
        """Start again with the first draws."""
        self._next_draw = [0] * len(self.drawn)
        self._next_noise = dict.fromkeys(self.noises, 0)

    def trials(self, mechanism: Mechanism, chain: MarkovChain) -> int:
        """The approximate number of trials of each of two states for which the draws suffice."""
        trials = min(
            (self.noises[count.name].size // (2 * mechanism.noise_uses(count.name)) for count in mechanism.counts),
            default=10**9,
        )
        for n in mechanism.drawn_sources:
            assert chain.initial is not None
            distribution = np.bincount(mechanism.sources[n].shown_states, chain.initial)
            demands = 2 * np.maximum(mechanism.ticks * distribution, 1.0)
            trials = min(trials, *(int(draws.size / demand) for draws, demand in zip(self.drawn, demands, strict=True)))
        return trials

    def paths_covered(self, mechanism: Mechanism, *path_sets: Ints) -> int:
        """The number of paths of each hypothesis for which the draws suffice; a set of paths is (trials, ticks)."""
        limit = len(path_sets[0])
        for count in mechanism.counts:
            limit = min(limit, self.noises[count.name].size // (len(path_sets) * mechanism.noise_uses(count.name)))
        for n, (x, draws) in product(mechanism.drawn_sources, enumerate(self.drawn)):
            shown_states = np.array(mechanism.sources[n].shown_states)
            draws_used = np.cumsum(sum((shown_states[paths] == x).sum(axis=1) for paths in path_sets))
            limit = min(limit, int(np.searchsorted(draws_used, draws.size, side="right")))
        return limit

    def symbols(self, states: Ints, source: Source) -> Ints:
        """A symbol for each state of the chain, in the same shape."""
        symbols, shown_states = np.empty_like(states), np.array(source.shown_states)[states]
        for x in range(len(self.drawn)):
            in_state = shown_states == x
            first_draw, draw_count = self._next_draw[x], int(in_state.sum())
            symbols[in_state] = self.drawn[x][first_draw : first_draw + draw_count]
            self._next_draw[x] += draw_count
        return symbols

    def noise(self, count: Counted, trials: int) -> Ints:
        """Take the next noise (trials,) of a count."""
        first_draw = self._next_noise[count.name]
        self._next_noise[count.name] += trials
        return self.noises[count.name][first_draw : first_draw + trials]


def paths(chain: MarkovChain, mechanism: Mechanism, secret: int, trials: int, generator: np.random.Generator) -> Ints:
    """Draw paths (trials, ticks) of a stationary chain that show a secret at the secret ticks."""
    distribution, transition = _distribution(chain), chain.transition
    reverse_transition = (distribution[:, None] * transition).T / distribution[:, None]
    paths = np.empty((trials, mechanism.ticks), dtype=np.int64)
    stay_probs = _stay_probabilities(mechanism, chain, secret)
    start_weights = distribution * stay_probs[0]
    paths[:, mechanism.secret_tick] = generator.choice(len(distribution), trials, p=start_weights / start_weights.sum())
    for tick in range(mechanism.secret_tick + 1, mechanism.ticks):
        step_weights = transition
        if tick < mechanism.secret_tick + mechanism.stretch:
            step_weights = transition * stay_probs[tick - mechanism.secret_tick]
            step_weights = step_weights / np.maximum(step_weights.sum(axis=1, keepdims=True), 1e-300)
        paths[:, tick] = _draw_next_states(paths[:, tick - 1], step_weights, generator)
    for tick in range(mechanism.secret_tick - 1, -1, -1):
        paths[:, tick] = _draw_next_states(paths[:, tick + 1], reverse_transition, generator)
    return paths


def _stay_probabilities(mechanism: Mechanism, chain: MarkovChain, secret: int) -> Floats:
    """For each tick of the stretch, the scaled probability (k,), by state, that it and later ticks show the secret."""
    shows_secret = (mechanism.secrets == secret).astype(np.float64)
    probabilities = [shows_secret]
    for _ in range(1, mechanism.stretch):
        weights = shows_secret * (chain.transition @ probabilities[-1])
        probabilities.append(weights / weights.max())
    return np.array(probabilities[::-1])


def _draw_next_states(states: Ints, transition: Floats, generator: np.random.Generator) -> Ints:
    cumulated_rows = np.cumsum(transition, axis=1)[:, :-1]
    return np.asarray((generator.random(states.size)[:, None] >= cumulated_rows[states]).sum(axis=1), dtype=np.int64)


def release(mechanism: Mechanism, states: Ints, randomness: Simulated | Recorded) -> Heard:
    """Draw the outputs of paths (trials, ticks)."""
    symbols = {n: randomness.symbols(states, mechanism.sources[n]) for n in mechanism.drawn_sources}
    counts = np.zeros((len(states), len(mechanism.counts)), dtype=np.int64)
    for n, count in enumerate(mechanism.counts):
        outcomes = states if count.source is None else symbols[count.source]
        outcomes = outcomes[:, count.first : count.first + count.length]
        if count.consecutive:
            assert count.source is not None
            outcomes = outcomes[:, :-1] * mechanism.sources[count.source].emission.shape[1] + outcomes[:, 1:]
        counts[:, n] = np.isin(outcomes, count.members).sum(axis=1) + randomness.noise(count, len(states))
    return Heard(symbols, counts)


def log_likelihoods(mechanism: Mechanism, chain: MarkovChain, heard: Heard) -> Floats:
    """The log-likelihoods (trials, s) of heard outputs given each of s secrets, up to a constant for each trial."""
    batch_size = max(1, _CELLS_PER_ARRAY // mechanism.cells)
    batch_logs, secrets = [], range(int(mechanism.secrets.max()) + 1)
    no_outputs = Heard({}, np.zeros((1, 0), dtype=np.int64))
    silent_mechanism = mechanism._replace(counts=())
    prior_logs = np.array([_likelihood(silent_mechanism, chain, no_outputs, secret)[0] for secret in secrets])
    for begin in range(0, len(heard.counts), batch_size):
        batch = Heard(
            {n: symbols[begin : begin + batch_size] for n, symbols in heard.symbols.items()},
            heard.counts[begin : begin + batch_size],
        )
        logs = [_likelihood(mechanism, chain, batch, secret) for secret in secrets]
        batch_logs.append(np.stack(logs, axis=1) - prior_logs)
    return np.concatenate(batch_logs)


def _distribution(chain: MarkovChain) -> Floats:
    assert chain.initial is not None
    return chain.initial


def _likelihood(mechanism: Mechanism, chain: MarkovChain, heard: Heard, secret: int) -> Floats:
    """The log-probabilities (trials,) of both the heard outputs and a secret."""
    log_probability = np.zeros(len(heard.counts))
    weights = _distribution(chain)[None, :].copy()  # (trials or 1, k, counts of each window under way)
    open_counts: list[int] = []
    for tick in range(mechanism.ticks):
        if tick:
            weights = np.moveaxis(np.tensordot(weights, chain.transition, axes=(1, 0)), -1, 1)
        if mechanism.secret_tick <= tick < mechanism.secret_tick + mechanism.stretch:
            weights[:, mechanism.secrets != secret] = 0.0
        for n in mechanism.followed_counts:
            if mechanism.counts[n].first == tick:
                open_counts.append(n)
                weights = weights[..., None]
        if open_counts:
            weights = _predict_counts(weights, [mechanism.counts[n] for n in open_counts], mechanism.sources)
        for source, symbols in heard.symbols.items():
            if mechanism.sources[source].heard:
                weights = (weights.T * mechanism.sources[source].emission[:, symbols[:, tick]]).T
        for n in [n for n in open_counts if mechanism.counts[n].first + mechanism.counts[n].length == tick + 1]:
            weights = _condition_on_count(weights, 2 + open_counts.index(n), mechanism.counts[n], heard.counts[:, n])
            open_counts.remove(n)
        row_sums = weights.reshape(len(weights), -1).sum(axis=1)
        with np.errstate(divide="ignore"):
            log_probability = log_probability + np.log(row_sums)
        weights = (weights.T / np.where(row_sums > 0, row_sums, 1.0)).T
    return log_probability


def _predict_counts(weights: Floats, counts: Sequence[Counted], sources: Sequence[Source]) -> Floats:
    """Add a tick to the counts of all open windows: the last axes of the weights grow by one."""
    next_weights = np.zeros((*weights.shape[:2], *(size + 1 for size in weights.shape[2:])))
    source_numbers = sorted({count.source for count in counts if count.source is not None})
    for x in range(weights.shape[1]):
        chances: dict[tuple[int, ...], float] = {}
        for drawn_symbols in product(*(range(sources[n].emission.shape[1]) for n in source_numbers)):
            symbols = dict(zip(source_numbers, drawn_symbols, strict=True))
            chance = float(np.prod([sources[n].emission[x, z] for n, z in symbols.items()]))
            step = tuple(
                int((x if count.source is None else symbols[count.source]) in count.members) for count in counts
            )
            chances[step] = chances.get(step, 0.0) + chance
        for step, chance in chances.items():
            shifted_cells = tuple(slice(s, s + size) for s, size in zip(step, weights.shape[2:], strict=True))
            target = next_weights[:, x][(slice(None), *shifted_cells)]
            target += chance * weights[:, x]
    return next_weights


def _condition_on_count(weights: Floats, axis: int, count: Counted, released_counts: Ints) -> Floats:
    """Sum out the count of a window that ends, weighted by the probability of the released count."""
    distances = released_counts[:, None] - np.arange(weights.shape[axis])
    noise_weights = np.exp(_log_noise_weights(count, distances))
    return np.asarray((np.moveaxis(weights, axis, 1).T * noise_weights.T).T.sum(axis=1))


def _log_noise_weights(count: Counted, deviations: Ints) -> Floats:
    """Log-probabilities of noise, up to a constant for each row."""
    distances = np.abs(deviations)
    if count.terms == 1:
        return np.asarray(-(distances - distances.min(axis=1, keepdims=True)) / float(count.scale))
    largest_distance = int(distances.max())
    largest_noise = max(largest_distance, int(40 * float(count.scale) * count.terms)) + 1
    noise = np.exp(-np.abs(np.arange(-largest_noise, largest_noise + 1)) / float(count.scale))
    distribution = noise / noise.sum()
    sum_distribution = distribution
    for _ in range(count.terms - 1):
        sum_distribution = np.convolve(sum_distribution, distribution, mode="same")
    logs = np.log(np.maximum(sum_distribution[largest_noise:], 1e-300))[distances]
    return np.asarray(logs - logs.max(axis=1, keepdims=True))
