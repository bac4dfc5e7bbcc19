"""Attackers who believe a chain, or learn: a chain from symbols, drift from counts, outputs from another time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice, pairwise, product
from typing import TypeAlias

import numpy as np
from scipy.special import expit

from fugu.attackers.outputs import CountOutputs, Knowledge, Outputs, SymbolOutputs, stretch_edges
from fugu.chains.arrays import Floats, Ints
from fugu.chains.counting import count_marginals
from fugu.chains.inference import filter_beliefs, posterior_marginals, viterbi
from fugu.chains.learning import LearnedChain, baum_welch

__all__ = [
    "ATTACKERS",
    "COUNT_ATTACKERS",
    "COUNT_LEARNERS",
    "EXACT_TICKS",
    "Attacker",
    "separate_ticks",
    "smoothing",
    "training_ticks",
]

Attacker: TypeAlias = Callable[[Outputs, Knowledge], Floats]
"""A function from n ticks of outputs and other knowledge to probabilities (n, k) of states; it is deterministic."""

EXACT_TICKS = 1000
"""Windows up to this length are smoothed exactly; time and memory grow with its square."""


def separate_ticks(outputs: Outputs, knowledge: Knowledge) -> Floats:
    """An attacker who takes ticks for independent, and reads each symbol, or each window, by itself."""
    return smoothing(outputs, knowledge, np.tile(knowledge.distribution, (outputs.states, 1)))


def viterbi_path(outputs: Outputs, knowledge: Knowledge) -> Floats:
    """An attacker who names the most probable path under the believed chain (Viterbi), as probabilities 0 and 1."""
    assert isinstance(outputs, SymbolOutputs)
    symbols, table = knowledge.learn_from(outputs.symbols, outputs.emission)
    if np.all(symbols < 0):
        return knowledge.prior
    states = viterbi(symbols, knowledge.distribution, knowledge.transition, table, lengths=knowledge.lengths)
    return np.eye(outputs.states)[states]


def smoothing(outputs: Outputs, knowledge: Knowledge, chain: Floats | None = None) -> Floats:
    """An attacker who believes a chain (k, k), of `knowledge` by default, and uses every output (forward-backward).

    Posteriors are exact for windows up to 1,000 ticks with one count, or with two counts that cover all ticks. All
    others are approximated by `tilted_marginals`.
    """
    initial, transition = knowledge.distribution, knowledge.transition if chain is None else chain
    symbol_outputs = outputs.symbols_or_empty() if isinstance(outputs, CountOutputs) else outputs
    symbols, table = knowledge.learn_from(symbol_outputs.symbols, symbol_outputs.emission)
    if isinstance(outputs, SymbolOutputs) or not outputs.counts.size:
        return posterior_marginals(symbols, initial, transition, table, lengths=knowledge.lengths)
    is_partition = len(outputs.groups) == 2 and sorted(sum(outputs.groups, ())) == [*range(outputs.states)]
    covers_ticks = is_partition and outputs.has_state.all()
    if outputs.length > EXACT_TICKS or not (len(outputs.groups) == 1 or covers_ticks):
        return tilted_marginals(outputs, symbols, table, initial, transition, knowledge.lengths)
    increments = np.zeros((outputs.ticks, outputs.states), dtype=np.int64)
    increments[:, outputs.groups[-1]] = outputs.has_state[:, None]
    # With two groups, the other group's count is the remainder.
    counts = np.arange(outputs.length + 1)
    distances = np.abs(outputs.counts[:, -1:] - counts)
    if len(outputs.groups) == 2:
        distances += np.abs(outputs.counts[:, :1] - (outputs.length - counts))
    likelihoods = np.exp(-(distances - distances.min(axis=1, keepdims=True)) / float(outputs.scale))
    windows = outputs.windows()
    model = (symbols, initial, transition, table)
    return count_marginals(*model, windows, increments, likelihoods, lengths=knowledge.lengths)


_TILT_ROUNDS = 40


def tilted_marginals(
    outputs: CountOutputs, symbols: Ints, table: Floats, initial: Floats, transition: Floats, lengths: Ints
) -> Floats:
    """Approximate posteriors (n, k): each count multiplies the odds of its states by one factor on its whole window.

    The logarithm of the factor is the change of the released count's log-likelihood by one more counted tick, at the
    expected count. Noise of scale s is treated as normal with variance 2 s^2, but changes log-odds by at most 1/s per
    tick. In long windows counts concentrate, and this is the leading term of the posterior. `symbols` (n,) of `table`
    (k, m) are those beside the counts, with known states; `lengths` are the ticks of each stretch.
    """
    scale = float(outputs.scale)
    memberships = np.array([[x in group for x in range(outputs.states)] for group in outputs.groups], dtype=np.float64)
    windows, w = outputs.windows(), len(outputs.counts)
    tick_windows = np.where((outputs.has_state > 0) & (windows >= 0), windows, w)
    joint_symbols = np.where(symbols < 0, table.shape[1], symbols) * (w + 1) + tick_windows
    likelihoods = np.concatenate([table, np.ones((outputs.states, 1))], axis=1)
    # A count's variance is at most this, so that a step towards the target tilt never overshoots.
    second_eigenvalue = float(np.sort(np.abs(np.linalg.eigvals(transition)))[-2])
    variance = min(outputs.length**2, outputs.length * (1 + second_eigenvalue) / max(1 - second_eigenvalue, 1e-9)) / 4
    step_size = 1 / (1 + variance / (2 * scale**2))
    tilts = np.zeros(outputs.counts.shape)
    for _ in range(_TILT_ROUNDS):
        factors = np.exp(np.vstack([tilts @ memberships, np.zeros((1, outputs.states))]).T)
        joint_table = (likelihoods[:, :, None] * factors[:, None, :]).reshape(outputs.states, -1)
        # A further symbol, which is never seen, makes the rows distributions.
        joint_table /= joint_table.sum(axis=1).max() * (1 + 1e-12)
        joint_table = np.hstack([joint_table, 1 - joint_table.sum(axis=1, keepdims=True)])
        marginals = posterior_marginals(joint_symbols, initial, transition, joint_table, lengths=lengths)
        expected_counts = np.array([np.bincount(tick_windows, marginals @ group, w + 1)[:w] for group in memberships]).T
        target_tilts = np.clip((outputs.counts - expected_counts) / (2 * scale**2), -1 / scale, 1 / scale)
        tilts += step_size * (target_tilts - tilts)
        if np.abs(target_tilts - tilts).max(initial=0.0) < 1e-3 / scale:
            break
    return marginals


_FIRST_ROUNDS = 15
_ROUNDS = 150
_TOLERANCE = 1e-7
_MOST_WORK = 2e9
"""The multiplications that an attacker spends; with more states and ticks it uses fewer starts, or regimes."""


def chain_learner(outputs: Outputs, knowledge: Knowledge, regimes: int = 1, *, decode: bool = False) -> Floats:
    """An attacker who learns a chain from the symbols (EM), then smooths, or with `decode` names the likeliest path.

    The chain may switch slowly between `regimes`; the hidden state is then (regime, state).
    """
    assert isinstance(outputs, SymbolOutputs)
    symbols, table = knowledge.learn_from(outputs.symbols, outputs.emission)
    if np.all(symbols < 0):
        return knowledge.prior
    k, lengths = outputs.states, knowledge.lengths
    rounds = int(_MOST_WORK / (2 * symbols.size * (k * regimes) ** 2))
    if rounds < 2 * _FIRST_ROUNDS and regimes > 1:
        return chain_learner(outputs, knowledge, regimes - 1)
    starts = list(islice(_start_chains(knowledge.transition, regimes), max(1, rounds // (2 * _FIRST_ROUNDS))))
    tiled_table = np.tile(table, (regimes, 1))
    uniform = np.full(k * regimes, 1 / (k * regimes))

    def learn(transition: Floats, rounds: int, initial: Floats = uniform) -> LearnedChain:
        return baum_welch(
            symbols, tiled_table, lengths=lengths, initial=initial, transition=transition, iterations=rounds,
            tolerance=_TOLERANCE,
        )  # fmt: skip

    first_rounds = min(_FIRST_ROUNDS, max(3, rounds))
    best_fit = max((learn(start, first_rounds) for start in starts), key=lambda fit: fit.log_likelihoods[-1])
    best_fit = learn(best_fit.transition, max(0, min(_ROUNDS, rounds - first_rounds * len(starts))), best_fit.initial)
    model = (symbols, best_fit.initial, best_fit.transition, tiled_table)
    if decode:
        return np.eye(k)[viterbi(*model, lengths=lengths) % k]
    return np.asarray(posterior_marginals(*model, lengths=lengths).reshape(-1, regimes, k).sum(axis=1))


def _start_chains(believed_chain: Floats, regimes: int) -> Iterator[Floats]:
    """Yield start chains: the believed chain and sticky chains, or regimes of speeds, distributions or phases."""
    k = len(believed_chain)
    sticky_chains = [_sticky_chain(np.full(k, 1 / k), stay_prob) for stay_prob in (0.5, 0.9, 0.99)]
    if regimes == 1:
        yield np.maximum(believed_chain, 1e-6) / np.maximum(believed_chain, 1e-6).sum(axis=1, keepdims=True)
        yield from sticky_chains
        return
    regime_chains = [sticky_chains[i % len(sticky_chains)] for i in range(regimes)]
    for stay_prob in (0.99, 0.999):
        switch_chain = _sticky_chain(np.full(regimes, 1 / regimes), stay_prob)
        for state_stay in (0.5, 0.9):
            distributions = [np.full(k, 0.3 / k) + 0.7 * np.eye(k)[i % k] for i in range(regimes)]
            if regimes > k:
                distributions[k:] = [np.full(k, 1 / k)] * (regimes - k)
            yield _joint_chain(switch_chain, [_sticky_chain(target, state_stay) for target in distributions])
        yield _joint_chain(switch_chain, regime_chains)
    # A state passes through its regimes as phases before the next state follows: lengths of stay, and cycles.
    phase_order = np.arange(regimes * k).reshape(regimes, k).T.ravel()
    phase_chain = np.zeros((regimes * k, regimes * k))
    phase_chain[phase_order, np.roll(phase_order, -1)] = 1.0
    for stay_prob in (0.1, 0.8):
        yield 0.1 / (regimes * k) + 0.9 * (stay_prob * np.eye(regimes * k) + (1 - stay_prob) * phase_chain)


def _sticky_chain(distribution: Floats, stay_prob: float) -> Floats:
    """A chain (k, k) that stays in its state with probability `stay_prob`, and otherwise draws from `distribution`."""
    return stay_prob * np.eye(distribution.size) + (1 - stay_prob) * distribution


def _joint_chain(switch_chain: Floats, chains: list[Floats]) -> Floats:
    """The chain of (regime, state), regime-major: the regime switches, then the state moves by the new regime."""
    return np.block([[switch_chain[i, j] * chain for j, chain in enumerate(chains)] for i in range(len(chains))])


_LEVELS = 41
_LEVEL_STEPS = (0.01, 0.03, 0.1, 0.3, 1.0)
_SPREADS = (0.3, 1.0, 3.0, 10.0, 30.0)


def level_learner(outputs: Outputs, knowledge: Knowledge) -> Floats:
    """An attacker who estimates a drifting share for every window; step size and spread maximise the likelihood.

    A share drifts by a normal step, and sometimes jumps anywhere. The count of L ticks at a share p is normal with mean
    L p and variance s L p (1 - p) + 2 scale^2, with the spread s. At every tick of a window the odds of a counted
    state are multiplied by the odds of its expected share, and divided by its usual odds.
    """
    assert isinstance(outputs, CountOutputs)
    if not outputs.counts.size:
        return knowledge.prior
    share_grid = (np.arange(_LEVELS) + 0.5) / _LEVELS
    fits = [max(_level_models(outputs, counts, share_grid), key=lambda fit: fit[0]) for counts in outputs.counts.T]
    return _multiply_odds(outputs, knowledge, [posterior @ share_grid for _, posterior in fits])


def _multiply_odds(outputs: CountOutputs, knowledge: Knowledge, shares: Iterable[Floats]) -> Floats:
    """Multiply prior odds (n, k), on a window's ticks, by the odds of each group's share (w,) over the usual odds."""
    windows, odds = outputs.windows(), knowledge.prior.copy()
    for group, share in zip(outputs.groups, shares, strict=True):
        usual_share = float(np.clip(knowledge.distribution[list(group)].sum(), 1e-6, 1 - 1e-6))
        odds[:, group] *= np.append(share / (1 - share) * (1 - usual_share) / usual_share, 1.0)[windows][:, None]
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def _level_models(outputs: CountOutputs, counts: Ints, share_grid: Floats) -> Iterator[tuple[float, Floats]]:
    """Yield the log-likelihood and the posterior (w, levels) of levels for every pair of step and spread."""
    length, noise_var, size = outputs.length, 2 * float(outputs.scale) ** 2, share_grid.size
    for spread in _SPREADS:
        variance = spread * length * share_grid * (1 - share_grid) + noise_var
        deviations = counts[:, None] - length * share_grid
        symbols, table, log_factor = _table(-(deviations**2) / (2 * variance) - np.log(variance) / 2)
        for step in _LEVEL_STEPS:
            step_weights = np.exp(-((share_grid[:, None] - share_grid) ** 2) / (2 * step**2)) + 1e-4
            model = (symbols, np.full(size, 1 / size), step_weights / step_weights.sum(axis=1, keepdims=True), table)
            yield filter_beliefs(*model).log_likelihood + log_factor, posterior_marginals(*model)


def _table(logs: Floats) -> tuple[Ints, Floats, float]:
    """Turn log-likelihoods (w, k) into symbols (w,) and a table. Return both, and the log of the factor left out.

    Each symbol occurs once. A further symbol that never occurs makes the table's rows distributions.
    """
    largest_logs = logs.max(axis=1, keepdims=True)
    table = np.exp(logs - largest_logs).T / (len(logs) + 1)
    return np.arange(len(logs)), np.hstack([table, 1 - table.sum(axis=1, keepdims=True)]), float(largest_logs.sum())


_EM_ROUNDS, _CHAIN_ROUNDS = 40, 3
_LEAST_SHARE = 1e-3
_FIRST_QUANTILES, _FIRST_STAYS = (0.1, 0.3), (0.8, 0.98)


def regime_learner(outputs: Outputs, knowledge: Knowledge) -> Floats:
    """An attacker who learns two regimes of windows by expectation maximisation, each with its own share.

    In a regime the count of L ticks at a share p is normal with mean L p and its own variance, at least that of the
    noise. On every tick of a window the odds of each counted state are multiplied by the odds of its expected share
    over the usual odds.
    """
    assert isinstance(outputs, CountOutputs)
    if len(outputs.counts) < 2:
        return knowledge.prior
    counts = outputs.counts.astype(np.float64)
    noise_var = 2 * float(outputs.scale) ** 2
    starts = product(_FIRST_QUANTILES, _FIRST_STAYS)
    fits = (_fit_two_regimes(counts, noise_var, *start) for start in starts)
    _, regime_probs, means = max(fits, key=lambda fit: fit[0])
    shares = np.clip(regime_probs @ means / outputs.length, _LEAST_SHARE, 1 - _LEAST_SHARE)
    return _multiply_odds(outputs, knowledge, shares.T)


def _fit_two_regimes(counts: Floats, noise_var: float, quantile: float, stay: float) -> tuple[float, Floats, Floats]:
    """Fit two regimes. Return the log-likelihood, the regimes' probabilities (w, 2), and their mean counts (2, g)."""
    w = len(counts)
    means = np.quantile(counts, (quantile, 1 - quantile), axis=0)
    variances = np.full_like(means, noise_var + np.square(means[1] - means[0]).mean() / 4)
    initial, transition = np.full(2, 0.5), _sticky_chain(np.full(2, 0.5), stay)
    log_likelihood, regime_probs = -np.inf, np.full((w, 2), 0.5)
    for _ in range(_EM_ROUNDS):
        deviations = (counts[:, None] - means) ** 2 / variances + np.log(variances)
        symbols, table, log_factor = _table(-deviations.sum(axis=2) / 2)
        fit = baum_welch(symbols, table, transition=transition, initial=initial, iterations=_CHAIN_ROUNDS)
        initial, transition = fit.initial, fit.transition
        regime_probs = posterior_marginals(symbols, initial, transition, table)
        previous_value, log_likelihood = log_likelihood, float(fit.log_likelihoods[-1] + log_factor)
        if log_likelihood - previous_value < _TOLERANCE * w:
            break
        regime_sizes = np.maximum(regime_probs.sum(axis=0), 1e-9)[:, None]
        means = regime_probs.T @ counts / regime_sizes
        spread = np.einsum("wr,wrg->rg", regime_probs, (counts[:, None] - means) ** 2) / regime_sizes
        variances = np.maximum(spread, noise_var)
    return log_likelihood, regime_probs, means


_WIDTHS = (1, 3, 9, 27, 81, 243, 729)
_WINDOWS = (1, 3, 9, 27)
_FOLDS = 5
_RIDGE_PENALTY = 1.0
_NEWTON_STEPS = 10
_MOST_TICKS = 5000
"""The number of ticks used for training, taken evenly from all, as neighbours are nearly alike."""


def truth_learner(outputs: Outputs, knowledge: Knowledge) -> Floats:
    """An attacker who learns from the truth of other ticks, by logistic regression for one state after the other.

    Features are means of outputs over windows of several widths, and the prior odds of each tick under the believed
    chain, given known states. Each of five contiguous folds is attacked without its own truth, and without that of a
    tenth of its length on both sides.
    """
    truth, posteriors = knowledge.truth, knowledge.prior.copy()
    is_silent = not outputs.counts.size if isinstance(outputs, CountOutputs) else not (outputs.symbols >= 0).any()
    if truth is None or is_silent:
        return posteriors
    for x in range(outputs.states):
        prior = knowledge.prior[:, x]
        logit = np.log(np.clip(prior, 1e-9, 1.0)) - np.log(np.clip(1 - prior, 1e-9, 1.0))
        features = np.column_stack([np.ones(outputs.ticks), logit - logit.mean(), *_features(outputs, knowledge, x)])
        for fold, tick_indices in training_ticks(truth, _FOLDS):
            if tick_indices.size:
                tick_indices = tick_indices[:: -(-tick_indices.size // _MOST_TICKS)]
                weights = _regression(features[tick_indices], truth[tick_indices] == x)
                posteriors[fold, x] = np.clip(expit(features[fold] @ weights), 1e-12, 1.0)
    return np.asarray(posteriors / posteriors.sum(axis=1, keepdims=True))


def training_ticks(truth: Ints, folds: int) -> Iterator[tuple[slice, Ints]]:
    """Yield contiguous folds, and for each the ticks with a truth that lie a tenth of its length away, or further."""
    true_ticks = np.flatnonzero(truth >= 0)
    for begin, end in pairwise(np.linspace(0, truth.size, folds + 1).astype(int)):
        margin = (end - begin) // 10
        yield slice(begin, end), true_ticks[(true_ticks < begin - margin) | (true_ticks >= end + margin)]


def _features(outputs: Outputs, knowledge: Knowledge, x: int) -> Iterator[Floats]:
    """Yield standardised features (n,) for state x: scores of symbols, and counts that include x, else all counts."""
    symbol_outputs = outputs.symbol_outputs if isinstance(outputs, CountOutputs) else outputs
    if symbol_outputs is not None:
        scores = np.append(np.log(symbol_outputs.emission[x]) - np.log(symbol_outputs.emission.mean(axis=0)), 0.0)
        yield from map(_standardise, _window_means(scores[symbol_outputs.symbols], knowledge.segments, _WIDTHS))
    if isinstance(outputs, CountOutputs):
        windows = outputs.windows()
        holds_state = [x in group for group in outputs.groups]
        for counts in outputs.counts.T[holds_state if any(holds_state) else slice(None)].astype(np.float64):
            for column in map(_standardise, _window_means(counts, knowledge.segments[outputs.first_ticks], _WINDOWS)):
                yield np.append(column, 0.0)[windows]


def _standardise(column: Floats) -> Floats:
    return np.asarray((column - column.mean()) / (float(column.std()) or 1.0))


def _window_means(series: Floats, segments: Ints, widths: tuple[int, ...]) -> list[Floats]:
    """Means of a series (n,) over centred windows of odd widths, cut off at the ends of its segment."""
    sums, edges, ticks = np.concatenate([[0.0], np.cumsum(series)]), stretch_edges(segments), np.arange(series.size)
    segment_begins, segment_ends = (np.repeat(column, np.diff(edges)) for column in (edges[:-1], edges[1:]))
    begins = [np.maximum(segment_begins, ticks - width // 2) for width in widths]
    ends = [np.minimum(segment_ends, ticks + width // 2 + 1) for width in widths]
    return [(sums[end] - sums[begin]) / (end - begin) for begin, end in zip(begins, ends, strict=True)]


def _regression(features: Floats, labels: Floats) -> Floats:
    """Fit the weights (f,) of a logistic regression with a small ridge, by Newton's method."""
    weights = np.zeros(features.shape[1])
    ridge = np.full(weights.size, _RIDGE_PENALTY)
    for _ in range(_NEWTON_STEPS):
        chances = expit(features @ weights)
        gradient = features.T @ (chances - labels) + ridge * weights
        step = np.linalg.solve((features * (chances * (1 - chances))[:, None]).T @ features + np.diag(ridge), gradient)
        weights -= step
        if np.abs(step).max() < 1e-8:
            break
    return weights


ATTACKERS: dict[str, Attacker] = {
    "single symbol": separate_ticks,
    "forward-backward": smoothing,
    "Viterbi": viterbi_path,
    "learned chain": chain_learner,
    "learned chain, Viterbi": partial(chain_learner, decode=True),
    "2 learned regimes": partial(chain_learner, regimes=2),
    "3 learned regimes": partial(chain_learner, regimes=3),
    "supervised": truth_learner,
}
"""The attackers who read symbols."""

COUNT_ATTACKERS: dict[str, Attacker] = {
    "single window": separate_ticks,
    "forward-backward": smoothing,
    "learned levels": level_learner,
    "supervised": truth_learner,
}
"""The attackers who read counts of windows."""

COUNT_LEARNERS: dict[str, Attacker] = {"2 learned regimes": regime_learner}
"""Further attackers who read counts, used only to find how far the odds of learners move."""
