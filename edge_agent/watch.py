"""Test whether a stream's true states fit the class that its policy declares; in memory only, for the device's owner.

The steps between states are counted over stretches of several lengths. Within a stretch the chain is taken to be
constant. A class whose chains may change at every step excludes nothing: for every sequence of states, one of them
gives it a probability near 1. Where they may change at all, stretches are short. A change within a stretch may be taken
for a chain outside the class; the report says so. The e-value of a stretch with counts n is

    E = integral of L_n(P) over all chains P (Jeffreys' prior)  /  largest L_n(P) of the chains of the class,

and if a chain P* of the class made the stretch, E is at most the integral over L_n(P*), a martingale that begins at 1.
So, for 0 < w < 1, the product of 1 - w + w E over stretches is never above a martingale that begins at 1. The stretch
under way is included: the loss of a long stretch so far must count when a short one gains. The same holds for the
average of such products over weights w and lengths. By Ville's inequality the average ever reaches 1/ALARM with a
probability of at most ALARM. That holds for any chain of the class in each stretch, and however long the device runs.
Stretches that there is no time to judge are left out, by time alone; the bound holds for the others.

How long judging takes depends on true states. So a tick is only counted, and judged piece by piece when nothing is
drawn or sent (`edge_agent.ticker.Ticker.judge`).

The watch also computes the noise's loss for a class that is only as wide as the owner's own states of the last day
need. It is taken from whole stretches. Each has the odds ratio, or the probabilities, of its counts plus half a step.

Sources: Wasserman, Ramdas, Balakrishnan, "Universal inference" (2020); Krichevsky and Trofimov, "The performance of
universal encoding" (1981); Ville (1939).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from functools import partial
from itertools import combinations
from typing import Any

from fugu.contract.losses import CONTEXT, log_up
from fugu.core.leakage import ONE, losses, ratio_up

__all__ = ["Watch", "log_e_value"]


ALARM = 1e-3
"""Largest probability of an alarm on a true class, between two starts of the agent, if no stretch has two chains."""
LENGTHS = (128, 512, 2048, 8192)
CHANGING_LENGTHS = (128, 512)
_WEIGHTS = (0.5, 0.05, 0.005)
OWN_LENGTH = 512
"""Steps of the stretches that the owner's own epsilon is taken from."""
_HOURS = 24
_ROUNDS = 60
_MOST_WAITING = 64
"""Most pieces that wait to be judged; further stretches are left out."""
Counts = Sequence[Sequence[int]]


class Watch:
    """A sequential test of one stream's states, with `steps` steps so far; it never raises.

    `evidence` is the logarithm of the average product, and `alarm` the first tick at which the average reached 1/ALARM,
    or None. `epsilon_by_hour` has the largest epsilon for the counts of a stretch that ended in the hour.
    `left_out` counts judgements that there was no time for. `ended` says why the watch has ended, "" if it goes on.
    """

    def __init__(self, state_count: int, chains: dict[str, Any]) -> None:
        lengths = CHANGING_LENGTHS if "odds_ratio" in chains else LENGTHS
        self._states = range(state_count)
        self._chains = chains
        self._stretches = [(length, [[0] * state_count for _ in self._states]) for length in lengths]
        self._capital = [[0.0] * len(_WEIGHTS) for _ in lengths]
        self._products = [[0.0] * len(_WEIGHTS) for _ in lengths]
        self._waiting: deque[Callable[[], None]] = deque()
        self._last_state: tuple[int, int] | None = None
        self.steps = 0
        self.evidence = 0.0
        self.alarm: int | None = None
        self.epsilon_by_hour: dict[int, float] = {}
        self.left_out = 0
        self.ended = ""

    @property
    def has_work(self) -> bool:
        """True if a piece waits to be judged."""
        return bool(self._waiting)

    def observe(self, tick: int, state: int | None) -> None:
        """Count the step to the state of a tick, None without one; a tick that is left out only loses its steps."""
        if not self.ended:
            self._run_safely(lambda: self._count_step(tick, state))

    def judge(self) -> None:
        """Judge the piece that has waited longest."""
        if self._waiting:
            self._run_safely(self._waiting.popleft())

    def end(self, reason: str) -> None:
        """End the watch."""
        self.ended = reason
        self._waiting.clear()

    def _run_safely(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # ticks must go on; the error may depend on states, so it is not logged
            self.end(f"{type(error).__name__} inside the agent, please report it")

    def _count_step(self, tick: int, state: int | None) -> None:
        last_pair, self._last_state = self._last_state, None if state is None else (tick, state)
        if last_pair is None or state is None or last_pair[0] != tick - 1:
            return
        self.steps += 1
        for _, counts in self._stretches:
            counts[last_pair[1]][state] += 1
        if self.steps % self._stretches[0][0] == 0:
            self._queue_judgements(tick)

    def _queue_judgements(self, tick: int) -> None:
        """Queue judgements of the current counts of all lengths, and begin new stretches where one is complete."""
        judgements: list[Callable[[], None]] = []
        for index, (length, counts) in enumerate(self._stretches):
            is_complete, counts_now = self.steps % length == 0, [row[:] for row in counts]
            judgements.append(partial(self._weigh_stretch, index, counts_now, is_complete))
            if is_complete and length == OWN_LENGTH and "rate" in self._chains:
                judgements.append(partial(self._remember_epsilon, tick // self._chains["hour"], counts_now))
            if is_complete:
                for row in counts:
                    row[:] = [0] * len(row)
        if len(self._waiting) < _MOST_WAITING:
            self._waiting.extend((*judgements, partial(self._update_evidence, tick)))
        else:
            self.left_out += 1

    def _weigh_stretch(self, index: int, counts: Counts, is_complete: bool) -> None:
        gain = log_e_value(counts, self._chains)
        capital = self._capital[index]
        products = [a + _log_sum((math.log1p(-w), math.log(w) + gain)) for a, w in zip(capital, _WEIGHTS, strict=True)]
        self._products[index] = products
        if is_complete:
            self._capital[index] = products

    def _update_evidence(self, tick: int) -> None:
        products = [product for length_products in self._products for product in length_products]
        self.evidence = _log_sum(products) - math.log(len(products))
        if self.alarm is None and self.evidence >= -math.log(ALARM):
            self.alarm = tick

    def _remember_epsilon(self, hour: int, counts: Counts) -> None:
        self.epsilon_by_hour[hour] = max(_epsilon(counts, self._chains), self.epsilon_by_hour.get(hour, 0.0))
        for old_hour in [past_hour for past_hour in self.epsilon_by_hour if past_hour <= hour - _HOURS]:
            del self.epsilon_by_hour[old_hour]

    @property
    def own_epsilon(self) -> float | None:
        """Epsilon for the owner's own states of the last day, rounded up to two digits; `None` for too few states."""
        if not self.epsilon_by_hour:
            return None
        with localcontext(CONTEXT):
            epsilon = Decimal(max(self.epsilon_by_hour.values()))
            return float(epsilon.quantize(Decimal((0, (1,), epsilon.adjusted() - 1)), rounding=ROUND_CEILING))

    def sentence(self) -> str:
        """Say the result, in a sentence for the owner."""
        progress_words = f"{self.steps} steps between states, evidence {math.exp(min(self.evidence, 99.0)):.3g}"
        if self.left_out:
            progress_words += f", {self.left_out} judgements left out, as ticks leave no time for them"
        if self.ended:
            progress_words += f"; the watch has ended: {self.ended}"
        if self.alarm is None:
            return f"nothing speaks against the declared class of chains ({progress_words} of {1 / ALARM:g})"
        change_words, verb_words = "", "is"
        if "odds_ratio" in self._chains:
            change_words, verb_words = f", unless its chain changed within {CHANGING_LENGTHS[-1]} steps", "may be"
        return (
            f"the states are NOT in the declared class of chains{change_words}, found at tick {self.alarm} "
            f"({progress_words}): epsilon {verb_words} larger than promised; ask for a policy with a wider class"
        )


def _epsilon(counts: Counts, chains: dict[str, Any]) -> float:
    """Return the loss of the noise for the counts of a stretch, against the policy's adversary, in nats."""
    ratio = ratio_up(*math.exp(min(chains["rate"], 700.0)).as_integer_ratio())
    if "odds_ratio" in chains:
        pairs = list(combinations(range(len(counts)), 2))
        odds = max(_odds(counts[x], counts[y], z, w) for x, y in pairs for z, w in pairs)
        bounds = losses([odds.as_integer_ratio()], ratio, ratio, "universal")
    else:
        q, r = ((2 * row[1 - x] + 1, 2 * sum(row) + 2) for x, row in enumerate(counts))
        adversary = "ignorant" if chains["adversary"] == "ignorant" else "informed"
        bounds = losses((q, q, r, r), ratio, ratio, adversary)
    return log_up(Fraction(max(bounds), ONE))


def _odds(row: Sequence[int], other_row: Sequence[int], z: int, w: int) -> Fraction:
    odds = Fraction((2 * row[z] + 1) * (2 * other_row[w] + 1), (2 * row[w] + 1) * (2 * other_row[z] + 1))
    return max(odds, 1 / odds)


def log_e_value(counts: Counts, chains: dict[str, Any]) -> float:
    """Return the logarithm of the e-value of counted steps against a class of chains.

    The mean of the e-value is at most 1 for every chain of the class.
    """
    if "odds_ratio" not in chains:
        leave_bounds = [[(n[1 - x] / sum(n) if sum(n) else 0.0), *chains["qr"[x]]] for x, n in enumerate(counts)]
        chances = [min(max(probability, low), high) for probability, low, high in leave_bounds]
        chain = [[1 - chances[0], chances[0]], [chances[1], 1 - chances[1]]]
        return sum(map(_log_mixture, counts)) - _log_likelihood(counts, chain)
    # Given that a step from x or y ends in x or y, the odds ratio of its probabilities is bounded as well. The average
    # of e-values is an e-value.
    state_pairs = combinations(range(len(counts)), 2)
    pairs = [((counts[x][x], counts[x][y]), (counts[y][x], counts[y][y])) for x, y in state_pairs]
    log_values = [sum(map(_log_mixture, pair)) - _log_bounded(*pair, math.log(chains["odds_ratio"])) for pair in pairs]
    return _log_sum(log_values) - math.log(len(log_values))


def _log_mixture(row: Sequence[int]) -> float:
    half = len(row) / 2
    return math.lgamma(half) - math.lgamma(sum(row) + half) + sum(math.lgamma(n + 0.5) - math.lgamma(0.5) for n in row)


def _log_likelihood(counts: Counts, chain: Sequence[Sequence[float]]) -> float:
    log_likelihood = 0.0
    for row, probabilities in zip(counts, chain, strict=True):
        for n, probability in zip(row, probabilities, strict=True):
            log_likelihood += 0.0 if n == 0 else n * math.log(probability) if probability > 0.0 else -math.inf
    return log_likelihood


def _log_bounded(row: tuple[int, int], other_row: tuple[int, int], bound: float) -> float:
    """Return the largest log likelihood of two rows of counts whose log odds differ at most by a bound."""
    (a, b), (c, d) = row, other_row
    free_likelihood = sum(n * math.log(n / (sum(pair))) for pair in (row, other_row) for n in pair if n)
    odds_gap = bound if a * d >= b * c else -bound
    low_odds, high_odds = -800.0 - bound, 800.0 + bound
    for _ in range(_ROUNDS):  # the slope along the bound falls; the number of rounds is the same for all counts
        middle_odds = (low_odds + high_odds) / 2
        if a - (a + b) * _logistic(middle_odds + odds_gap) + c - (c + d) * _logistic(middle_odds) > 0.0:
            low_odds = middle_odds
        else:
            high_odds = middle_odds
    log_odds = (low_odds + high_odds) / 2
    bounded_likelihood = sum(
        -n * _softplus(sign * odds)
        for (first, second), odds in ((row, log_odds + odds_gap), (other_row, log_odds))
        for n, sign in ((first, -1.0), (second, 1.0))
    )
    ratio = math.exp(min(bound, 700.0))
    return free_likelihood if a * d <= ratio * b * c and b * c <= ratio * a * d else bounded_likelihood


def _logistic(odds: float) -> float:
    return math.exp(-_softplus(-odds))


def _softplus(value: float) -> float:
    return max(value, 0.0) + math.log1p(math.exp(-abs(value)))


def _log_sum(values: Sequence[float]) -> float:
    peak = max(values)
    return peak if math.isinf(peak) else peak + math.log(sum(math.exp(value - peak) for value in values))
