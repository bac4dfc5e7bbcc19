"""The allowance of a tick: the largest constant per-tick loss within a promise, and the charging rules of mechanisms.

**A promise about a stretch** of w ticks in a row allows the largest rate r at which the whole stretch loses at most
epsilon. Its loss is that of w ticks, and of what outer ticks tell of the first and the last. With e(r) for what a
single tick loses that is

    e(r) + (w - 1) r <= epsilon

where past and future leak alike, and 2 (e(r) - r) + w r otherwise. Source: docs/proofs/stretches.md.

**One reader of several audiences**: their charges add up tick by tick, and the accountant runs once. A sum of epsilons
is no bound: what the chain adds to a small loss of a tick grows faster than that loss. Releases of epsilon 0.1 to eight
audiences may be 0.86 to a reader of all of them. Charges do add up (below). Source: docs/proofs/audiences.md.

**Releases that do not compose** are made by the Wasserstein mechanism and by group privacy. Both are for one release of
one window of a stream, ever, and are charged the whole of epsilon. Group privacy treats all ticks of the window as one
secret. Its noise has scale (ticks * sensitivity of one tick) / epsilon, for any chain and against any adversary. The
Wasserstein mechanism's noise has scale W / epsilon, where W is how far a state can move the distribution of the count.
Symbols are counted, so W is of the distribution of symbols given a state, and every symbol must be that of a state.
Devices that are counted together are independent, so W is the largest of theirs. Sources: Song, Wang, Chaudhuri:
Pufferfish Privacy Mechanisms for Correlated Data (SIGMOD 2017), algorithm 1 and section 2;
docs/proofs/published-mechanisms.md.

**A statistic over randomised symbols** tells less about states than about symbols, because symbols are noisy. Its
likelihood changes by a factor of at most e^c with one symbol (c = sensitivity / scale). Given every other tick's state,
symbols are independent, so the likelihood g of one tick's symbol stays in such a box. About its states x, x' it tells
at most

    loss(c) = max over g in [1, e^c]^m of log( B[x].g / B[x'].g ).

A linear-fractional function on a box is largest at a corner, and the best corner puts e^c on the symbols Z whose
likelihood ratio B[x,z]/B[x',z] is above a threshold: with A = B[x](Z) > B[x'](Z) = B,

    F(c) = log( (1 - A + A e^c) / (1 - B + B e^c) ),       loss = max over pairs of states and thresholds.

Several releases over the same symbols lose F(c1 + c2 + ...), which may be MORE than F(c1) + F(c2) + ... The reason: F'
is h(u) = sigma(u + logit A) - sigma(u + logit B), a hump, symmetric around u1 = -(logit A + logit B) / 2. So F is
convex up to u1 and concave only after it. So a release is charged the least concave function above F:

    charge(c) = c F(c0) / c0  for c < c0,    F(c)  for c >= c0,    c0 in [u1, 2 u1] where the chord is the tangent,

and c0 = 0 if u1 <= 0. It is concave with charge(0) = 0, hence charge(c1 + c2) <= charge(c1) + charge(c2), and the
maximum of such functions over pairs and thresholds is subadditive, too. Source: docs/proofs/releases-over-symbols.md.

**Whether noise that was drawn is of its distribution**, judged by its mean size. Discrete Laplace noise of scale s has
Pr(n) proportional to p^|n|, p = e^(-1/s). Tilted by its size it is of the same kind with another p, so the bound of
Chernoff is the divergence of two such distributions. Of N independent numbers, the mean size is m, or further off on
the same side, with a probability of at most

    e^(-N D),    D = m log(q / p) + log( (1 - q)(1 + p) / ((1 + q)(1 - p)) ),

where q is the one for which the mean size is m, 2q / (1 - q^2) = m. For N times no noise at all this is exact. Source:
Chernoff: A Measure of Asymptotic Efficiency (1952), theorem 1, for an exponential family.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
from pydantic import TypeAdapter, ValidationError
from scipy.optimize import brentq

from fugu.chains.arrays import Floats, Ints
from fugu.contract._document import Document
from fugu.contract.losses import OUTWARD, Adversary, float_up
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.queries import QUERIES, QueryKind
from fugu.contract.reports import ReleaseFrame
from fugu.contract.windows import ALONE, Mechanism, has_bound
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.accountant.accountant import known_chains
from fugu.privacy.chain_class import ChainClassError, ListedChains, ReleaseClass, mechanism_chains
from fugu.privacy.quilts import mqm_approx, mqm_exact
from fugu.privacy.wasserstein import check_symbols, wasserstein_symbols
from fugu.privacy.window_mechanisms import only_chains
from gateway.releases.charges import PER_NAT, nats, units_above, units_below
from gateway.releases.entries import Promise, Stream, named_streams
from gateway.releases.statistics import two_valued_weights

__all__ = [
    "TOLERANCE",
    "CountedSymbols",
    "WholeWindow",
    "add_classes",
    "allowance",
    "allowance_problem",
    "charge",
    "charged_streams",
    "classes_of",
    "counted_symbols",
    "joint_loss",
    "log_chance",
    "noise_problem",
    "noise_problems",
    "readable_classes",
    "smallest_scale",
    "window_sensitivity",
]


FALSE_ALARMS = 1e-9
"""The probability that `noise_problems` reports a problem although all noise was drawn correctly."""


def log_chance(scale: Fraction, count: int, total_size: int) -> float:
    """Bound the log-probability that `count` noises (at least 1) add up to a size as extreme as `total_size`."""
    decay, mean = 1.0 / float(scale), total_size / count
    log_norm = math.log(math.tanh(decay / 2.0))  # of (1 - p) / (1 + p)
    if total_size == 0:
        return count * log_norm
    q = mean / (1.0 + math.hypot(1.0, mean))
    divergence = mean * (math.log(q) + decay) + math.log((1.0 - q) / (1.0 + q)) - log_norm
    return -count * max(divergence, 0.0)


def noise_problems(totals: Mapping[Fraction, tuple[int, int]]) -> list[str]:
    """Describe noise that is too small or too large to be chance; a false alarm has at most probability `FALSE_ALARMS`.

    `totals` has by scale how many numbers got noise, and its total absolute size.
    """
    log_limit = math.log(FALSE_ALARMS / (2.0 * max(len(totals), 1)))
    problems = []
    for scale, (count, total_size) in totals.items():
        if log_chance(scale, count, total_size) < log_limit:
            power = math.exp(-1.0 / float(scale))
            problems.append(
                f"noise of scale {scale} is {total_size / count:.6g} on average over {count} numbers, and should be "
                f"{2.0 * power / (1.0 - power * power):.6g}: it was not drawn, or with another scale"
            )
    return problems


LEAST_SCALE = Fraction(1, 10)
"""Least noise scale of a release, even if the table's own loss is within the allowance."""
_ROUND_UP = 1.0 + OUTWARD  # far above the error of the few operations that follow, each within 2^-52
_MOST_SPREAD = 200.0  # e^c over a table of 32 bits is the table's own loss by then
_BISECTIONS = 48


class _ThresholdSets(NamedTuple):
    """The curves F (module's text) of n undominated sets of symbols, with their tangents from the origin.

    Attributes:
        above, below: Pr(set | x) > Pr(set | x'), times 2^32; exact.
        slope: slope of the tangent from the origin, rounded up; 0 for a curve that is concave everywhere.
        touch: the spread at which the tangent touches the curve, rounded up; 0 for a curve that is concave everywhere.
    """

    above: Floats
    below: Floats
    slope: Floats
    touch: Floats


def amplified_loss(table: NoiseTable, spread: float) -> float:
    """The per-tick loss in nats of one release over a table's symbols, rounded up. It is no bound for several releases.

    It is the exact maximum over ordered pairs of states, at most the table's own loss. It is also at most the spread,
    the most by which the release's log-likelihood changes with one symbol (c in the module's text).
    """
    thresholds = _threshold_sets(table)
    return _largest_loss(_curve(thresholds, min(spread, _MOST_SPREAD)), spread)


def charge(table: NoiseTable, spread: float) -> float:
    """The per-tick loss in nats that a release is charged, rounded up.

    It is subadditive in the spread (c in the module's text), at least `amplified_loss`, and at most the spread.
    """
    thresholds = _threshold_sets(table)
    spread_used = min(spread, _MOST_SPREAD)
    curve = np.where(spread_used < thresholds.touch, thresholds.slope * spread_used, _curve(thresholds, spread_used))
    return _largest_loss(curve, spread)


def smallest_scale(tables: Iterable[NoiseTable], sensitivity: int, budget: int) -> Fraction:
    """The least scale of discrete Laplace noise whose charge is within a budget, for symbols of any of the tables.

    The scale is rounded up to a short fraction, and at least `LEAST_SCALE`.

    Args:
        sensitivity: the most by which one symbol changes the released counts, in L1.
        budget: in units of `gateway.releases.charges`, at least 1.
    """
    noise_tables = list(tables)
    if budget < 1:
        raise ValueError("no scale is large enough for a budget of nothing")
    spread = min(_affordable_spread(_threshold_sets(table), budget / PER_NAT) for table in noise_tables)
    scale = scale_above(Fraction(sensitivity / spread) if math.isfinite(spread) else LEAST_SCALE)
    while max(units_above(charge(table, float_up(sensitivity / scale))) for table in noise_tables) > budget:
        scale = scale_above(scale * (1 + Fraction(1, 10**9)))
    return scale


def scale_above(scale: Fraction) -> Fraction:
    """Round a scale up to a fraction with few digits, at least `LEAST_SCALE`."""
    digits = 6 if scale < 100 else 3 if scale < 10**6 else 0
    return max(Fraction(math.ceil(scale * 10**digits), 10**digits), LEAST_SCALE)


@lru_cache(maxsize=256)
def _threshold_sets(table: NoiseTable) -> _ThresholdSets:
    """Compute the undominated threshold sets of all ordered pairs of states."""
    weights = np.array(table.weights(), dtype=np.int64)
    undominated_sets: list[Ints] = []
    for state_weights in weights:
        order = np.argsort(-(state_weights / weights), axis=1, kind="stable")  # (k, m), by likelihood ratio
        above_weights = np.cumsum(state_weights[order], axis=1)[:, :-1]
        below_weights = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)[:, :-1]
        undominated_sets.append(_drop_dominated(np.stack([above_weights.ravel(), below_weights.ravel()], axis=1)))
    frontier = _drop_dominated(np.concatenate(undominated_sets)).astype(np.float64)
    return _ThresholdSets(frontier[:, 0], frontier[:, 1], *_tangents(frontier[:, 0], frontier[:, 1]))


def _drop_dominated(weight_pairs: Ints) -> Ints:
    """Keep the pairs (a, b), a > b, of an array (n, 2); a pair goes if another has as large an a and as small a b.

    F grows in a and falls in b.
    """
    weight_pairs = weight_pairs[weight_pairs[:, 0] > weight_pairs[:, 1]]
    weight_pairs = weight_pairs[np.lexsort((weight_pairs[:, 1], -weight_pairs[:, 0]))]
    least_below = np.minimum.accumulate(np.concatenate([[SCALE], weight_pairs[:, 1]]))[:-1]
    return weight_pairs[weight_pairs[:, 1] < least_below]


def _tangents(above_weights: Floats, below_weights: Floats) -> tuple[Floats, Floats]:
    """Slope and touching point (n,) of each curve's tangent from the origin; zeros where the curve is concave.

    F(u)/u rises while F' exceeds it, and F' = h falls after u1, so the tangent touches where F(u)/u = F'. Since
    h(0) = h(2 u1) is less than the mean of h in between, that point lies before 2 u1. The slope is taken at the lower
    end of the last bracket, where h is larger, so that it is rounded up.
    """
    logit_above, logit_below = (np.log(weights) - np.log(SCALE - weights) for weights in (above_weights, below_weights))
    steepest_spread = -(logit_above + logit_below) / 2.0
    is_convex = steepest_spread > 1e-12
    low, high = np.where(is_convex, steepest_spread, 0.0), np.where(is_convex, 2.0 * steepest_spread, 0.0)
    thresholds = _ThresholdSets(above_weights, below_weights, low, high)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        is_rising = _curve(thresholds, middle) < middle * _derivative(thresholds, middle)
        low, high = np.where(is_rising, middle, low), np.where(is_rising, high, middle)
    slope = np.where(is_convex, _derivative(thresholds, low) * _ROUND_UP, 0.0)
    return slope, np.where(is_convex, high * _ROUND_UP, 0.0)


def _curve(thresholds: _ThresholdSets, spread: float | Floats) -> Floats:
    """Compute F(spread) of each threshold set (n,)."""
    growth = np.expm1(spread)
    return np.log1p((thresholds.above - thresholds.below) * growth / (SCALE + thresholds.below * growth))


def _derivative(thresholds: _ThresholdSets, spread: Floats) -> Floats:
    """Compute F'(spread) of each threshold set (n,)."""
    growth = np.exp(spread)
    tilted_probs = [w * growth / (SCALE - w + w * growth) for w in (thresholds.above, thresholds.below)]
    return np.asarray(tilted_probs[0] - tilted_probs[1], dtype=np.float64)


def _largest_loss(losses: Floats, spread: float) -> float:
    """The largest loss, rounded up and capped at the spread."""
    if not len(losses):  # every state has the same row: symbols say nothing
        return 0.0
    return min(float(losses.max()) * _ROUND_UP, spread)


def _affordable_spread(thresholds: _ThresholdSets, loss: float) -> float:
    """The least spread that is charged a loss, or infinity. On a curve e^c - 1 = 2^32 (e^loss - 1) / (a - b e^loss)."""
    gain = math.expm1(min(loss, _MOST_SPREAD))
    slack = thresholds.above - thresholds.below - thresholds.below * gain
    with np.errstate(divide="ignore", invalid="ignore"):
        tangent_spread = np.where(thresholds.slope > 0.0, loss / thresholds.slope, np.inf)
        curve_spread = np.where(slack > 0.0, np.log1p(SCALE * gain / slack), np.inf)
    spreads = np.where(tangent_spread < thresholds.touch, tangent_spread, np.maximum(curve_spread, 0.0))
    return float(spreads.min(initial=np.inf))


class CountedSymbols(Document):
    """Parameters of the distribution of a device's count of symbols.

    Attributes:
        chains: the classes of chains of the device's policies.
        hits: for each state, how often out of 2^32 its symbol is counted.
        ticks: number of ticks of the window.
        observed: the ticks that have a symbol, as a hexadecimal number whose lowest bit is the first tick.
    """

    chains: tuple[ReleaseClass, ...]
    hits: tuple[int, ...]
    ticks: int
    observed: str

    @property
    def distance(self) -> Fraction:
        """The farthest that a state can move the count's distribution (W). ChainClassError if W has no exact value."""
        return max(_distance(chain, self.hits, self.ticks, int(self.observed, 16)) for chain in self.chains)

    def check(self) -> None:
        """Raise ChainClassError, which says why, if the count has no exact distribution; none is computed."""
        for chain in self.chains:
            check_symbols(only_chains(mechanism_chains(chain)), self.hits, SCALE, self.ticks)


class WholeWindow(Document):
    """The basis of the noise of a release that does not compose; the ledger stores it with the entry.

    Attributes:
        moved: of group privacy: how much all symbols of a device together move its counts; `None` for Wasserstein.
        symbols: of the Wasserstein mechanism: the counted symbols of each device.
    """

    moved: int | None = None
    symbols: tuple[CountedSymbols, ...] = ()

    def scale(self, epsilon: float) -> Fraction:
        """The least scale of the noise on every count, rounded up to a short fraction.

        Raises ChainClassError as `CountedSymbols.distance` does.
        """
        distance = Fraction(self.moved) if self.moved is not None else max(count.distance for count in self.symbols)
        return scale_above(distance / Fraction(epsilon))


def counted_symbols(
    chains: Sequence[ReleaseClass], table: NoiseTable, states: tuple[int, ...], observed: Sequence[bool]
) -> CountedSymbols:
    """Express a device's count of states as a count of symbols. ChainClassError if one count of symbols is not enough.

    `observed` says of each tick of the window whether it has a symbol.
    """
    rule = two_valued_weights(table, states)
    if rule is None:
        raise ChainClassError("the Wasserstein mechanism releases one number: this table needs a count of each symbol")
    hits = tuple(sum(weight for weight, hit in zip(row, rule.symbols, strict=True) if hit) for row in table.weights())
    bits = sum(1 << tick for tick, has_symbol in enumerate(observed) if has_symbol)
    return CountedSymbols(chains=tuple(dict.fromkeys(chains)), hits=hits, ticks=len(observed), observed=f"{bits:x}")


def window_sensitivity(query: QueryKind, number_count: int, length: int) -> int:
    """Bound how much all symbols of a device's window together move its `number_count` counts, in L1.

    A dwell time is covered, too: a window has fewer pairs than ticks.
    """
    return length * (1 if number_count == 1 and QUERIES[query].is_single else 2)


@lru_cache(maxsize=1 << 14)
def _distance(chains: ReleaseClass, hits: tuple[int, ...], ticks: int, observed: int) -> Fraction:
    has_symbol = [bool(observed >> tick & 1) for tick in range(ticks)]
    return wasserstein_symbols(only_chains(mechanism_chains(chains)), hits, SCALE, has_symbol).distance


_ROUND_DOWN = 1.0 - 1e-9
_RATE_TOLERANCE = 1e-14


@cache
def allowance(
    chains: ReleaseClass, epsilon: float, adversary: Adversary, mechanism: Mechanism = "chain", ticks: int = 1
) -> int:
    """The largest loss of every tick at which no `ticks` in a row of an endless stream lose more than epsilon nats.

    Losses of the chain accountant, and of any one quilt, grow with every tick's own loss. So charges that never exceed
    this number on any tick are within epsilon, however they vary. A mechanism that does not compose has one release,
    which is charged the whole of epsilon. The loss is in units of `gateway.releases.charges`, rounded down. It is the
    same for all pairs of states.

    Raises ChainClassError if a mechanism that composes gets an epsilon not above 0, or chains that do not forget.
    Raises ChainClassError, too, if the mechanism has no bound for the chains, the adversary, or several ticks.

    Source: docs/proofs/chain-accountant.md and docs/proofs/published-mechanisms.md. For quilts `fugu.privacy.quilts`:
    their least loss at a constant rate c is min over quilts of influence + c * near ticks.
    """
    if not has_bound(mechanism, adversary):
        raise ChainClassError(f"{mechanism} protects against the ignorant adversary only, not against the {adversary}")
    if mechanism != "chain" and ticks > 1:
        raise ChainClassError(f"{mechanism} protects single ticks, not {ticks} in a row: use mechanism chain")
    if mechanism in ALONE:
        if mechanism == "wasserstein" or chains.named_streams:
            # refuses classes without a distribution, and streams that are told about together
            known_chains(mechanism_chains(chains))
        return units_below(epsilon)
    if mechanism == "chain":
        return units_below(_largest_rate(chains, epsilon, adversary, ticks) * _ROUND_DOWN)
    scale_of = mqm_exact if mechanism == "mqm-exact" else mqm_approx
    return units_below(1.0 / scale_of(known_chains(mechanism_chains(chains)), None, epsilon).scale * _ROUND_DOWN)


def _largest_rate(chains: ReleaseClass, epsilon: float, adversary: Adversary, ticks: int) -> float:
    """The largest charge of every tick, in nats, at which no `ticks` in a row lose more than epsilon; rounded down."""
    high_rate = ChainAccountant(mechanism_chains(chains)).allowance(epsilon, adversary)
    if ticks == 1:
        return high_rate

    def excess(rate: float) -> float:
        return _stretch_loss(chains, rate, adversary, ticks) - epsilon

    low_rate = high_rate = min(high_rate, epsilon / ticks)
    if excess(high_rate) <= 0.0:
        return high_rate
    while excess(low_rate) > 0.0:
        low_rate, high_rate = low_rate / 2.0, low_rate
        if low_rate < epsilon * 1e-18:
            raise ChainClassError(f"no noise is enough for epsilon {epsilon:g} about {ticks} ticks in a row")
    rate, margin = float(brentq(excess, low_rate, high_rate, xtol=1e-300, rtol=_RATE_TOLERANCE)), OUTWARD
    while excess(rate * (1.0 - margin)) > 0.0:
        margin *= 2.0
    return rate * (1.0 - margin)


def _stretch_loss(chains: ReleaseClass, rate: float, adversary: Adversary, ticks: int) -> float:
    """Bound the loss in nats of `ticks` in a row of an endless stream that charges every tick `rate` nats."""
    if isinstance(chains, ListedChains):
        raise ChainClassError("chains of a release have no bound beside other releases")
    tick_loss = ChainAccountant(mechanism_chains(chains)).loss(rate, adversary).epsilon
    stretch_bound = chains.stretch_bound(tick_loss, 1, rate, (), adversary)
    return replace(stretch_bound, rate=rate).epsilon(ticks)  # joint chains would count what their devices may tell


@cache
def joint_loss(chains: ReleaseClass, charge: int, adversary: Adversary, ticks: int = 1) -> float:
    """Bound the loss in nats of any `ticks` in a row of an endless stream whose every tick has this charge.

    Raises ChainClassError if there is no bound.
    """
    return _stretch_loss(chains, float_up(Fraction(charge, PER_NAT)), adversary, ticks)


TOLERANCE = Fraction(1, 2 * 10**9)  # half of what allowances are rounded inward by: another machine's logarithms
_CLASSES: TypeAdapter[tuple[ReleaseClass, ...]] = TypeAdapter(tuple[ReleaseClass, ...])


def allowance_problem(stored_units: int, mechanism: str, promise: Promise, period_us: int, chains_json: str) -> str:
    """Say why a recorded allowance is above the rule of its mechanism, or ''; `chains_json` are classes as JSON."""
    try:
        promise_terms = (promise.epsilon, promise.adversary, cast(Mechanism, mechanism), promise.ticks(period_us))
        allowances = [allowance(chain_class, *promise_terms) for chain_class in classes_of(chains_json)]
    except (ArithmeticError, ChainClassError, ValueError) as error:
        return f"its allowance cannot be computed again: {str(error).splitlines()[0]}"
    limit = min(allowances, default=0)
    if stored_units > limit * (1 + TOLERANCE):
        return f"its allowance is {nats(stored_units):.12g}, and mechanism {mechanism} allows {nats(limit):.12g}"
    return ""


@lru_cache(maxsize=1024)
def classes_of(chains_json: str) -> tuple[ReleaseClass, ...]:
    """Read the classes of chains of an allowance from JSON. Raises `ValidationError` if the JSON holds no classes."""
    return _CLASSES.validate_json(chains_json)


def readable_classes(chains_json: str) -> tuple[ReleaseClass, ...]:
    """Read the classes of chains in JSON; empty if the JSON holds none, which `allowance_problem` reports."""
    try:
        return classes_of(chains_json)
    except ValidationError:
        return ()


def add_classes(chains_json: str, new_classes: Iterable[ReleaseClass]) -> str:
    """Add new classes to the JSON of classes, if both are of policies or both are a release's own chains."""
    classes = readable_classes(chains_json)
    are_listed = any(isinstance(chain_class, ListedChains) for chain_class in classes)
    fitting_classes = (new_class for new_class in new_classes if isinstance(new_class, ListedChains) == are_listed)
    union = tuple(dict.fromkeys((*classes, *fitting_classes)))
    return chains_json if union == classes else _CLASSES.dump_json(union).decode()


def charged_streams(chains_json: str, device: str) -> frozenset[Stream]:
    """The streams that an account's classes of chains, given as JSON, charge together; empty if a stream is alone."""
    classes = readable_classes(chains_json)
    return frozenset[Stream]().union(*(named_streams(chain_class, device) for chain_class in classes))


def noise_problem(entry: Mapping[str, Any], frame: ReleaseFrame, charge: int) -> str:
    """Say why the noise of a release breaks the rule of its mechanism, or ''.

    `charge` is the largest charge of a device's ticks, in units of `gateway.releases.charges`.
    """
    if bool(entry["exclusive"]) != (entry["mechanism"] in ALONE):
        return f"mechanism {entry['mechanism']} {'composes' if entry['exclusive'] else 'does not compose'}"
    if entry["mechanism"] not in ALONE:
        return ""
    if charge != units_below(frame.epsilon):
        return "it does not compose, and is not charged the whole of epsilon"
    try:
        basis = WholeWindow.model_validate_json(entry["basis"])
        if entry["mechanism"] == "group":
            is_other_window = basis.moved is None or basis.moved < window_sensitivity(frame.query, 1, frame.length)
        else:
            ticks = {count.ticks for count in basis.symbols}
            is_other_window = basis.moved is not None or len(basis.symbols) != frame.devices or ticks != {frame.length}
        needed = basis.scale(frame.epsilon)
    except (ArithmeticError, ChainClassError, ValueError) as error:
        return f"its noise cannot be computed again: {str(error).splitlines()[0]}"
    if is_other_window:
        return "its noise is for another window"
    return "" if Fraction(entry["scale"]) >= needed else f"its noise has scale {entry['scale']}, and needs {needed}"
