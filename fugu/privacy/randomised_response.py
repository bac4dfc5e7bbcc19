"""Randomised response: a certified table of integers for a class of chains and epsilon, and its utility.

The allowed likelihood ratios v01 and v10 of a tick make two lines, rho0 + v01 rho1 >= 1 and v10 rho0 + rho1 >= 1, whose
upper sides are safe, so thresholds are rounded up. The result has passed the check that devices run.

The utility of a randomised stream to an honest subscriber is found by simulation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
from scipy import special

from fugu.chains.arrays import Floats, Ints
from fugu.chains.inference import filter_beliefs, posterior_marginals
from fugu.chains.model import simulate, stationary_distribution
from fugu.contract.chains import BinaryChains, ChainClass
from fugu.contract.dating import with_slack
from fugu.contract.errors import GuaranteeError
from fugu.contract.guarantee import Guarantee, StreamOutputs, check_outputs, tick_ratios
from fugu.contract.losses import Adversary, Loss, exp_up, log_up
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.windows import Window, total_rate
from fugu.privacy.accountant.accountant import largest_rate
from fugu.privacy.chain_class import ChainClassError

__all__ = ["Objective", "Utility", "allowed_ratios", "assess", "calibrate", "rate_table", "stream_states"]

Objective = Literal["information", "flips"]
_SCALE = 1 << 32
_LEAST_LOG_RATIO = 1e-13
_FINE = 1e-14
_ROUNDING = 1e-15  # of the logarithm of a ratio near 1
_MOST_LOG_RATIO = 40.0  # no cell of a table is below 2^-32, so larger ratios are the same
_OUTWARD = 1 + Fraction(1, 10**12)
_BUMPS = 64
_TOO_SMALL = "is too small: no table of 32 bits says anything under it"


class Calibration(NamedTuple):
    """A certified table and its real loss in nats.

    `rho0` and `rho1` are probabilities of each wrong symbol in states 0 and 1, before rounding; `ratio_01` and
    `ratio_10` are allowed likelihood ratios of a tick, state 0 over state 1 and the reverse.
    """

    table: NoiseTable
    rho0: float
    rho1: float
    ratio_01: float
    ratio_10: float
    loss: Loss
    guarantee: Guarantee


def calibrate(
    chains: ChainClass,
    epsilon: float,
    adversary: Adversary = "informed",
    objective: Objective = "information",
    windows: tuple[Window, ...] = (),
    stretch_ticks: int = 1,
    *,
    slack: bool = False,
) -> Calibration:
    """Return the most useful table under a guarantee; above two states all wrong symbols are equally likely.

    Args:
        chains: the class of chains.
        epsilon: the guarantee, in nats, about `stretch_ticks` in a row; with bounded odds ratios the universal one for
            every adversary.
        adversary: whom the guarantee is against.
        objective: for two states, "information" minimises rho0 + rho1, and so keeps the most for every use. "flips"
            minimises the expected number of flips under rho <= 1/2, and may lose a rare state altogether.
        windows: released beside the symbols; the guarantee is that of both together.
        stretch_ticks: ticks of a protected stretch.
        slack: whether to reserve a part of epsilon for leakage over a change of policy.

    Raises:
        ChainClassError: epsilon is not a positive number, or so small that no table of 32 bits tells anything, or
            that nothing is left beside the windows.

    Source: docs/proofs/randomised-response.md, "From epsilon to noise".
    """
    k, window_ratio = stream_states(chains), float(exp_up(total_rate(windows)))
    table_epsilon = with_slack(epsilon) if slack else epsilon
    v01, v10 = (ratio / window_ratio for ratio in allowed_ratios(chains, table_epsilon, adversary, stretch_ticks))
    if min(v01, v10) <= 1.0:
        problem = "leaves nothing to symbols beside these windows" if windows else _TOO_SMALL
        raise ChainClassError(f"epsilon {epsilon:g} {problem}")
    if k > 2:
        flips = [1 / (Fraction(v01) + k - 1)] * k
    else:
        rhos = _intersection(v01, v10) if objective == "information" else _least_flips(chains, v01, v10)
        flips = [Fraction(rho) for rho in rhos]
    guarantee = Guarantee(epsilon=epsilon, adversary=adversary, stretch_ticks=stretch_ticks)
    table_guarantee = guarantee.model_copy(update={"epsilon": table_epsilon})
    for increment in range(_BUMPS):
        weights = [_round_up(rho * _SCALE) + increment for rho in flips]
        if sum(weights) >= _SCALE:
            break
        table = NoiseTable.binary(*weights) if k == 2 else NoiseTable.randomised_response(k, weights[0])
        try:
            loss = check_outputs(chains, StreamOutputs(table, windows), table_guarantee)
        except GuaranteeError:  # the last digit of rho was rounded down: try a step more
            continue
        return Calibration(table, float(flips[0]), float(flips[1]), v01, v10, loss, guarantee)
    raise ChainClassError(f"epsilon {epsilon:g} {_TOO_SMALL}")


def rate_table(states: int, rate: Fraction, epsilon: float) -> NoiseTable:
    """Return the table with equal errors whose loss between any two states is at most `rate` nats.

    The rate is a part of `epsilon`, which messages name. Raises ChainClassError if no 32-bit table tells anything.
    """
    if rate > 0:
        flip = math.ceil(Fraction(_SCALE) / (Fraction(math.exp(min(float(rate), _MOST_LOG_RATIO))) + states - 1))
        for weight in range(flip, flip + _BUMPS):
            if weight * states >= _SCALE:
                break
            table = NoiseTable.binary(weight, weight) if states == 2 else NoiseTable.randomised_response(states, weight)
            if Fraction(log_up(max(tick_ratios(table)))) <= rate:
                return table
    raise ChainClassError(f"epsilon {epsilon:g} {_TOO_SMALL}")


def stream_states(chains: ChainClass) -> int:
    """Return the number of states of a class's only stream; ChainClassError for joint chains of several."""
    if len(chains.state_counts) > 1:
        raise ChainClassError("the class is of several streams, which share what a tick may tell: name one's share")
    return chains.state_counts[0]


def allowed_ratios(chains: ChainClass, epsilon: float, adversary: Adversary, ticks: int = 1) -> tuple[float, float]:
    """Return the largest likelihood ratios v01, v10 >= 1 of a tick that keep both directions within epsilon nats.

    Epsilon is about `ticks` ticks in a row; above one tick the pair is equal. A ratio of 1 tells nothing: no larger one
    that a table could use is allowed.

    The universal bound is the same for both directions, so its pair is equal. For the other adversaries each direction
    depends on its own ratio only where readings are positively correlated. Where they may alternate, a table is held to
    the larger of its ratios in both directions (`lasting_ratios` of its class), so the pair is equal again.
    Raises ChainClassError if epsilon is not a positive number.
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ChainClassError(f"epsilon must be a finite number above 0, got {epsilon:g}")

    def losses(log01: float, log10: float) -> tuple[float, float]:
        loss = chains.ratio_loss(Fraction(math.exp(log01)), Fraction(math.exp(log10)), adversary)
        return loss.epsilon_01, loss.epsilon_10

    def stretch_loss(log_ratio: float) -> float:
        loss = max(losses(log_ratio, log_ratio))
        return loss if ticks == 1 else chains.stretch_bound(loss, 1, log_ratio, (), adversary).epsilon(ticks)

    if ticks > 1 or adversary == "universal" or not isinstance(chains, BinaryChains):
        return (_allowed_ratio(stretch_loss, epsilon, 0.0, min(epsilon / ticks, _MOST_LOG_RATIO)),) * 2
    # Losses are ordered ignorant <= informed <= universal, and allowed ratios the other way round.
    low_log, high_log = math.log(allowed_ratios(chains, epsilon, "universal")[0]), min(epsilon, _MOST_LOG_RATIO)
    if chains.q[1] + chains.r[1] > 1:
        return (_allowed_ratio(stretch_loss, epsilon, low_log, high_log),) * 2
    # Each direction depends on its own ratio only, the other may be 1; floats may hide a sum just above 1.
    is_separable = Fraction(chains.q[1]) + Fraction(chains.r[1]) <= 1
    return (
        _allowed_ratio(lambda log: losses(log, 0.0 if is_separable else log)[0], epsilon, low_log, high_log),
        _allowed_ratio(lambda log: losses(0.0 if is_separable else log, log)[1], epsilon, low_log, high_log),
    )


def _allowed_ratio(loss_of: Callable[[float], float], epsilon: float, low_log: float, high_log: float) -> float:
    """Return the largest ratio from e^low to e^high with a loss of at most epsilon; 1 if even e^low loses more."""
    low_log = max(low_log * (1 - 1e-9) - _ROUNDING, _LEAST_LOG_RATIO)
    high_log = max(high_log, low_log)
    return math.exp(largest_rate(lambda log: loss_of(log) - epsilon, epsilon, high_log, low_log, _FINE))


def _round_up(weight: Fraction) -> int:
    """Round up to an integer, with a margin for the error of a float unless the value is whole."""
    return weight.numerator if weight.denominator == 1 else math.ceil(weight * _OUTWARD)


def _intersection(v01: float, v10: float) -> tuple[float, float]:
    return (v01 - 1) / (v01 * v10 - 1), (v10 - 1) / (v01 * v10 - 1)


def _least_flips(chains: ChainClass, v01: float, v10: float) -> tuple[float, float]:
    """Return the allowed corner, each part within 1/2, with the fewest expected flips in the middle of the class."""
    corners = [_intersection(v01, v10), (0.5, max(0.5 / v01, 1 - 0.5 * v10)), (max(0.5 / v10, 1 - 0.5 * v01), 0.5)]
    if isinstance(chains, BinaryChains):
        q, r = sum(chains.q) / 2, sum(chains.r) / 2
        weights = (r / (q + r), q / (q + r))
    else:
        weights = (0.5, 0.5)
    allowed_corners = [corner for corner in corners if max(corner) <= 0.5]
    return min(allowed_corners, key=lambda rho: weights[0] * rho[0] + weights[1] * rho[1])


_SEED = 20201


class Utility(NamedTuple):
    """The utility of a stream of symbols.

    `accuracy` is the share of ticks whose state is the most likely one of the smoothed estimate. `majority` is the
    accuracy of always guessing the most frequent state. `bits_per_reading` is the information rate of the symbols.
    """

    accuracy: float
    majority: float
    bits_per_reading: float


def assess(table: NoiseTable, transition: Floats, chains: ChainClass, ticks: int) -> Utility:
    """Measure the utility of a table on a typical chain, for a gateway that assumes the middle of the class.

    If the class has no typical member, or several streams, the gateway assumes the chain itself. Every call uses the
    same random numbers, so that tables differ less by chance.
    """
    assumed_chain = transition
    if chains.typical_matrices and not chains.named_streams:
        assumed_chain = np.asarray(np.mean(chains.typical_matrices, axis=0))
    return utility(transition, table, np.random.default_rng(_SEED), assumed_chain=assumed_chain, ticks=ticks)


def utility(
    transition: Floats,
    table: NoiseTable,
    generator: np.random.Generator,
    *,
    assumed_chain: Floats | None = None,
    ticks: int = 200_000,
) -> Utility:
    """Measure the utility of a table: simulate a chain and its symbols, and estimate the states from these.

    Given the symbols, a guess is right with its posterior probability, and a symbol carries KL(emission given the state
    | prediction from the symbols before) nats in the mean. Averages of these are unbiased and vary much less than
    counting hits; their standard error is about 0.001 at 200,000 ticks. The chain starts stationary; the gateway
    estimates with the `assumed_chain`, by default the same chain.

    Source: the rate is I(X;Z) = H(Z) - H(Z|X) of a hidden Markov chain (Cover and Thomas, section 4.5).
    """
    emission = np.array(table.weights(), dtype=np.float64) / SCALE
    initial = stationary_distribution(transition)
    states, symbols = simulate(ticks, initial, transition, emission, generator)
    accuracy = _accuracy(symbols, initial, transition, emission, transition if assumed_chain is None else assumed_chain)
    beliefs = filter_beliefs(symbols, initial, transition, emission).beliefs
    predicted_symbols = np.vstack([initial, beliefs[:-1] @ transition]) @ emission
    divergence = special.rel_entr(emission.take(states, axis=0), predicted_symbols, out=predicted_symbols)
    return Utility(accuracy, float(initial.max()), float(divergence.sum()) / len(divergence) / math.log(2.0))


def _accuracy(symbols: Ints, initial: Floats, transition: Floats, emission: Floats, assumed_chain: Floats) -> float:
    """Return the mean posterior probability of the states that the `assumed_chain` calls likeliest."""
    posterior = beliefs = posterior_marginals(symbols, initial, transition, emission)
    if not np.array_equal(assumed_chain, transition):
        beliefs = posterior_marginals(symbols, stationary_distribution(assumed_chain), assumed_chain, emission)
    return float(posterior[np.arange(len(posterior)), beliefs.argmax(axis=1)].mean())
