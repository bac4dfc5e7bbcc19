"""How much an audience may be told about a tick: the largest constant per-tick loss, and the rules of mechanisms.

**A promise about a stretch** of w ticks in a row allows the largest rate r at which the whole stretch loses at most
epsilon. Its loss is that of w ticks, and of what outer ticks tell of the first and the last. With e(r) for what a
single tick loses that is

    e(r) + (w - 1) r <= epsilon

where past and future leak alike, and 2 (e(r) - r) + w r otherwise. Source: docs/proofs/stretches.md.

**One reader of several audiences**: their charges add up tick by tick, and the accountant runs once. A sum of epsilons
is no bound: what the chain adds to a small loss of a tick grows faster than that loss. Releases of epsilon 0.1 to eight
audiences may be 0.86 to a reader of all of them. Charges do add up (below). Source: docs/proofs/audiences.md.

**Releases that do not compose**, by the Wasserstein mechanism and by group privacy. Both are for one release of one
window of a stream, ever, and are charged the whole of epsilon. Group privacy takes all ticks of the window for one
secret. Its noise has scale (ticks * sensitivity of one) / epsilon, for any chain and against any adversary. The
Wasserstein mechanism takes W / epsilon, where W is how far a state can move the distribution of the count. The count is
of symbols, so W is of the distribution of symbols, given a state, and every symbol must be that of a state. Devices
that are counted together are independent, so that W is the largest of theirs. Sources: Song, Wang, Chaudhuri:
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
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from scipy.optimize import brentq

from fugu.chains.arrays import Floats
from fugu.contract._document import Document
from fugu.contract.losses import OUTWARD, Adversary, float_up
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.queries import QUERIES, QueryKind
from fugu.contract.reports import ReleaseFrame
from fugu.contract.windows import ALONE, Mechanism, covers
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.accountant.accountant import known_chains
from fugu.privacy.chain_class import ChainClassError, ListedChains, ReleaseClass, followed
from fugu.privacy.quilts import mqm_approx, mqm_exact
from fugu.privacy.wasserstein import check_symbols, wasserstein_symbols
from fugu.privacy.window_mechanisms import only_chains
from gateway.releases.charges import PER_NAT, nats, units_above, units_below
from gateway.releases.entries import Promise, Stream, named_streams
from gateway.releases.statistics import two_valued

__all__ = [
    "SAME",
    "CountedSymbols",
    "WholeWindow",
    "allowance",
    "allowance_problem",
    "charge",
    "classes_of",
    "classes_written",
    "counted_symbols",
    "joint_loss",
    "log_chance",
    "moved_by_all",
    "noise_problem",
    "noise_problems",
    "smallest_scale",
    "streams_charged",
    "with_classes",
]


FALSE_ALARMS = 1e-9
"""How probable it is that all noise of a ledger is right, and a problem is found with it."""


def log_chance(scale: Fraction, numbers: int, size: int) -> float:
    """Bound the log-probability that so many noises (at least 1) have so small or so large a total absolute size."""
    decay, mean = 1.0 / float(scale), size / numbers
    log_normal = math.log(math.tanh(decay / 2.0))  # of (1 - p) / (1 + p)
    if size == 0:
        return numbers * log_normal
    tilted = mean / (1.0 + math.hypot(1.0, mean))
    divergence = mean * (math.log(tilted) + decay) + math.log((1.0 - tilted) / (1.0 + tilted)) - log_normal
    return -numbers * max(divergence, 0.0)


def noise_problems(drawn: Mapping[Fraction, tuple[int, int]]) -> list[str]:
    """Problems of noise that cannot be chance, two-sided, and with all scales together at a rate of `FALSE_ALARMS`.

    `drawn` has by scale how many numbers got noise, and the sizes of it added up.
    """
    limit = math.log(FALSE_ALARMS / (2.0 * max(len(drawn), 1)))
    problems = []
    for scale, (numbers, size) in drawn.items():
        if log_chance(scale, numbers, size) < limit:
            p = math.exp(-1.0 / float(scale))
            problems.append(
                f"noise of scale {scale} is {size / numbers:.6g} on average over {numbers} numbers, and should be "
                f"{2.0 * p / (1.0 - p * p):.6g}: it was not drawn, or with another scale"
            )
    return problems


LEAST_SCALE = Fraction(1, 10)
"""Least noise of a release, also where the table alone is within the allowance."""
_UP = 1.0 + OUTWARD  # far above the error of the few operations that follow, each within 2^-52
_MOST_SPREAD = 200.0  # e^c over a table of 32 bits is the table's own loss by then
_BISECTIONS = 48


class _Thresholds(NamedTuple):
    """Sets of symbols that matter: (n,) weights of 2^32 under two states, and each curve's tangent from the origin.

    Attributes:
        above, below: Pr(set | x) > Pr(set | x'), times 2^32; exact.
        slope: of the tangent from the origin, rounded up; 0 for a curve that is concave everywhere.
        touch: where it touches the curve, rounded up; 0 likewise.
    """

    above: Floats
    below: Floats
    slope: Floats
    touch: Floats


def amplified_loss(table: NoiseTable, spread: float) -> float:
    """The per-tick loss of one release over a table's symbols, rounded up: exact for one release, no bound for several.

    It is in nats, the maximum over ordered pairs of states, at most the table's own loss. It is also at most the spread
    c, the most by which the release's log-likelihood changes with one symbol.
    """
    sets = _thresholds(table)
    return _capped(_curve(sets, min(spread, _MOST_SPREAD)), spread)


def charge(table: NoiseTable, spread: float) -> float:
    """The per-tick loss in nats to charge for a release, rounded up: subadditive, >= `amplified_loss`, <= spread."""
    sets = _thresholds(table)
    spread_used = min(spread, _MOST_SPREAD)
    curve = np.where(spread_used < sets.touch, sets.slope * spread_used, _curve(sets, spread_used))
    return _capped(curve, spread)


def smallest_scale(tables: Iterable[NoiseTable], sensitivity: int, budget: int) -> Fraction:
    """The least scale of discrete Laplace noise whose charge is within a budget, for symbols of any of the tables.

    It is rounded up to a short fraction, and at least `LEAST_SCALE`.

    Args:
        sensitivity: the most by which one symbol changes the released counts, added up.
        budget: in units of `gateway.releases.entries`, at least 1.
    """
    noise_tables = list(tables)
    if budget < 1:
        raise ValueError("no scale is large enough for a budget of nothing")
    spread = min(_composable_inverse(_thresholds(table), budget / PER_NAT) for table in noise_tables)
    scale = scale_above(Fraction(sensitivity / spread) if math.isfinite(spread) else LEAST_SCALE)
    while max(units_above(charge(table, float_up(sensitivity / scale))) for table in noise_tables) > budget:
        scale = scale_above(scale * (1 + Fraction(1, 10**9)))
    return scale


def scale_above(scale: Fraction) -> Fraction:
    """The next fraction with few digits that is not smaller, and at least `LEAST_SCALE`."""
    digits = 6 if scale < 100 else 3 if scale < 10**6 else 0
    return max(Fraction(math.ceil(scale * 10**digits), 10**digits), LEAST_SCALE)


@lru_cache(maxsize=256)
def _thresholds(table: NoiseTable) -> _Thresholds:
    """The threshold sets of every ordered pair of states, but for those that another one dominates."""
    weights = np.array(table.weights(), dtype=np.int64)
    points: list[NDArray[np.int64]] = []
    for row in weights:
        order = np.argsort(-(row / weights), axis=1, kind="stable")  # (k, m), by likelihood ratio over each other state
        above = np.cumsum(row[order], axis=1)[:, :-1]
        below = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)[:, :-1]
        points.append(_undominated(np.stack([above.ravel(), below.ravel()], axis=1)))
    frontier = _undominated(np.concatenate(points)).astype(np.float64)
    return _Thresholds(frontier[:, 0], frontier[:, 1], *_tangents(frontier[:, 0], frontier[:, 1]))


def _undominated(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """Points (a, b), a > b, without those that have another of no less a and no more b: F grows in a, falls in b."""
    points = points[points[:, 0] > points[:, 1]]
    points = points[np.lexsort((points[:, 1], -points[:, 0]))]
    least_before = np.minimum.accumulate(np.concatenate([[SCALE], points[:, 1]]))[:-1]
    return points[points[:, 1] < least_before]


def _tangents(above: Floats, below: Floats) -> tuple[Floats, Floats]:
    """Slope and end of each curve's tangent from the origin; zeros where the curve is concave.

    F(u)/u rises while F' exceeds it and F' = h falls after u1, so the end is where they meet. Since h(0) = h(2 u1) is
    less than the mean of h in between, it lies before 2 u1. The slope is taken at the lower end of the last bracket,
    where h is larger: rounded up.
    """
    logit_above, logit_below = (np.log(w) - np.log(SCALE - w) for w in (above, below))
    crest = -(logit_above + logit_below) / 2.0
    convex = crest > 1e-12
    low, high = np.where(convex, crest, 0.0), np.where(convex, 2.0 * crest, 0.0)
    sets = _Thresholds(above, below, low, high)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        rising = _curve(sets, middle) < middle * _derivative(sets, middle)
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    slope = np.where(convex, _derivative(sets, low) * _UP, 0.0)
    return slope, np.where(convex, high * _UP, 0.0)


def _curve(sets: _Thresholds, spread: float | Floats) -> Floats:
    growth = np.expm1(spread)
    return np.log1p((sets.above - sets.below) * growth / (SCALE + sets.below * growth))


def _derivative(sets: _Thresholds, spread: Floats) -> Floats:
    growth = np.exp(spread)
    parts = [w * growth / (SCALE - w + w * growth) for w in (sets.above, sets.below)]
    return np.asarray(parts[0] - parts[1], dtype=np.float64)


def _capped(losses: Floats, spread: float) -> float:
    if not len(losses):  # every state has the same row: symbols say nothing
        return 0.0
    return min(float(losses.max()) * _UP, spread)


def _composable_inverse(sets: _Thresholds, loss: float) -> float:
    """The spread that is charged a loss; on the curve e^c - 1 = 2^32 (e^loss - 1) / (a - b e^loss), or infinite."""
    gain = math.expm1(min(loss, _MOST_SPREAD))
    slack = sets.above - sets.below - sets.below * gain
    with np.errstate(divide="ignore", invalid="ignore"):
        straight = np.where(sets.slope > 0.0, loss / sets.slope, np.inf)
        curved = np.where(slack > 0.0, np.log1p(SCALE * gain / slack), np.inf)
    return float(np.where(straight < sets.touch, straight, np.maximum(curved, 0.0)).min(initial=np.inf))


class CountedSymbols(Document):
    """Inputs of the distribution of a device's count of symbols.

    Attributes:
        chains: the classes of chains of its policies.
        hits: for each state, how often out of 2^32 its symbol is counted.
        ticks: of the window.
        observed: which of them have a symbol, as a hexadecimal number whose lowest bit is the first tick.
    """

    chains: tuple[ReleaseClass, ...]
    hits: tuple[int, ...]
    ticks: int
    observed: str

    @property
    def distance(self) -> Fraction:
        """The farthest that a state can move the count's distribution. ChainClassError if that has no exact value."""
        return max(_distance(chain, self.hits, self.ticks, int(self.observed, 16)) for chain in self.chains)

    def check(self) -> None:
        """Refuse what has no exact distribution, without computing it. ChainClassError says why."""
        for chain in self.chains:
            check_symbols(only_chains(followed(chain)), self.hits, SCALE, self.ticks)


class WholeWindow(Document):
    """Rule for a release that does not compose; the ledger keeps it with the entry.

    Attributes:
        moved: group privacy: how much all symbols of a device together move its counts; none for Wasserstein.
        symbols: Wasserstein: of each device.
    """

    moved: int | None = None
    symbols: tuple[CountedSymbols, ...] = ()

    def scale(self, epsilon: float) -> Fraction:
        """The least scale of the noise on every count, rounded up to a short fraction.

        ChainClassError as `distance`.
        """
        furthest = Fraction(self.moved) if self.moved is not None else max(symbol.distance for symbol in self.symbols)
        return scale_above(furthest / Fraction(epsilon))


def counted_symbols(
    chains: Sequence[ReleaseClass], table: NoiseTable, states: tuple[int, ...], observed: Sequence[bool]
) -> CountedSymbols:
    """A device's count of states as a count of symbols. Raises ChainClassError if it is made of several numbers.

    `observed` says which ticks of the window have a symbol.
    """
    rule = two_valued(table, states)
    if rule is None:
        raise ChainClassError("the Wasserstein mechanism releases one number: this table needs a count of each symbol")
    hits = tuple(sum(w for w, counted in zip(row, rule.symbols, strict=True) if counted) for row in table.weights())
    bits = sum(1 << tick for tick, seen in enumerate(observed) if seen)
    return CountedSymbols(chains=tuple(dict.fromkeys(chains)), hits=hits, ticks=len(observed), observed=f"{bits:x}")


def moved_by_all(query: QueryKind, numbers: int, length: int) -> int:
    """How much all symbols of a device's window move its counts, in L1; a dwell time has less than T pairs."""
    return length * (1 if numbers == 1 and QUERIES[query].single else 2)


@lru_cache(maxsize=1 << 14)
def _distance(chains: ReleaseClass, hits: tuple[int, ...], ticks: int, observed: int) -> Fraction:
    seen = [bool(observed >> tick & 1) for tick in range(ticks)]
    return wasserstein_symbols(only_chains(followed(chains)), hits, SCALE, seen).distance


_INWARD = 1.0 - 1e-9
_FINE = 1e-14


@cache
def allowance(
    chains: ReleaseClass, epsilon: float, adversary: Adversary, mechanism: Mechanism = "chain", ticks: int = 1
) -> int:
    """The largest loss that every tick may have, for ever, without any `ticks` in a row losing more than epsilon nats.

    Losses of the chain accountant, and of any one quilt, grow with every tick's own loss. So charges that never exceed
    this number on any tick are within epsilon, however they vary. A mechanism that does not compose has one release,
    which is charged the whole of epsilon. The loss is in units of `gateway.releases.entries`, rounded down; the same
    for all pairs of states.

    Raises ChainClassError if epsilon is not a positive number, or the chains do not forget. Raises it, too, if the
    mechanism has no bound for them, against such an adversary, or about several ticks.

    Source: docs/proofs/chain-accountant.md and docs/proofs/published-mechanisms.md; for quilts, whose least loss at a
    constant rate c is min over quilts of influence + c * near ticks, `fugu.privacy.quilts`.
    """
    if not covers(mechanism, adversary):
        raise ChainClassError(f"{mechanism} protects against the ignorant adversary only, not against the {adversary}")
    if mechanism != "chain" and ticks > 1:
        raise ChainClassError(f"{mechanism} protects single ticks, not {ticks} in a row: use mechanism chain")
    if mechanism in ALONE:
        if mechanism == "wasserstein" or chains.named_streams:
            known_chains(
                followed(chains)
            )  # refuses what it has no distribution for, and streams that are told about together
        return units_below(epsilon)
    if mechanism == "chain":
        return units_below(_largest_rate(chains, epsilon, adversary, ticks) * _INWARD)
    scale_of = mqm_exact if mechanism == "mqm-exact" else mqm_approx
    return units_below(1.0 / scale_of(known_chains(followed(chains)), None, epsilon).scale * _INWARD)


def _largest_rate(chains: ReleaseClass, epsilon: float, adversary: Adversary, ticks: int) -> float:
    """The largest rate of every tick of which no so many ticks in a row lose more than epsilon; rounded down."""
    high = ChainAccountant(followed(chains)).allowance(epsilon, adversary)
    if ticks == 1:
        return high

    def excess(rate: float) -> float:
        return _stretch_loss(chains, rate, adversary, ticks) - epsilon

    low = high = min(high, epsilon / ticks)
    if excess(high) <= 0.0:
        return high
    while excess(low) > 0.0:
        low, high = low / 2.0, low
        if low < epsilon * 1e-18:
            raise ChainClassError(f"no noise is enough for epsilon {epsilon:g} about {ticks} ticks in a row")
    rate, back = float(brentq(excess, low, high, xtol=1e-300, rtol=_FINE)), OUTWARD
    while excess(rate * (1.0 - back)) > 0.0:
        back *= 2.0
    return rate * (1.0 - back)


def _stretch_loss(chains: ReleaseClass, rate: float, adversary: Adversary, ticks: int) -> float:
    """Loss of so many ticks in a row of an endless stream of a rate, in nats, rounded up."""
    if isinstance(chains, ListedChains):
        raise ChainClassError("chains of a release have no bound beside other releases")
    single = ChainAccountant(followed(chains)).loss(rate, adversary).epsilon
    bound = chains.stretch_bound(single, 1, rate, (), adversary)
    return replace(bound, rate=rate).epsilon(ticks)  # joint chains would count what their devices may tell


@cache
def joint_loss(chains: ReleaseClass, charge: int, adversary: Adversary, ticks: int = 1) -> float:
    """Loss of any `ticks` in a row of an endless stream whose every tick has this charge: in nats, rounded up.

    ChainClassError if there is no bound.
    """
    return _stretch_loss(chains, float_up(Fraction(charge, PER_NAT)), adversary, ticks)


SAME = Fraction(1, 2 * 10**9)  # half of what allowances are rounded inward by: another machine's logarithms
_CLASSES: TypeAdapter[tuple[ReleaseClass, ...]] = TypeAdapter(tuple[ReleaseClass, ...])


def allowance_problem(allowed: int, mechanism: str, promise: Promise, period_us: int, chains: str) -> str:
    """Why an allowance is above its mechanism's rule for a promise and classes as JSON; empty if it is not."""
    try:
        by = (promise.epsilon, promise.adversary, cast(Mechanism, mechanism), promise.ticks(period_us))
        allowances = [allowance(declared, *by) for declared in classes_of(chains)]
    except (ValidationError, ChainClassError, ValueError) as error:
        return f"its allowance cannot be computed again: {str(error).splitlines()[0]}"
    most = min(allowances, default=0)
    if allowed > most * (1 + SAME):
        return f"its allowance is {nats(allowed):.12g}, and mechanism {mechanism} allows {nats(most):.12g}"
    return ""


@lru_cache(maxsize=1024)
def classes_of(chains: str) -> tuple[ReleaseClass, ...]:
    """The classes of chains that an allowance was computed for, from JSON; a `ValidationError` if it holds none."""
    return _CLASSES.validate_json(chains)


def classes_written(chains: str) -> tuple[ReleaseClass, ...]:
    """The classes of chains in JSON; empty if it holds none, which `allowance_problem` says."""
    try:
        return classes_of(chains)
    except ValidationError:
        return ()


def with_classes(chains: str, more: Iterable[ReleaseClass]) -> str:
    """Add classes to those in JSON: of policies, or to a release's own only such ones."""
    classes = classes_written(chains)
    own = any(isinstance(declared, ListedChains) for declared in classes)
    every = tuple(dict.fromkeys((*classes, *(listed for listed in more if isinstance(listed, ListedChains) == own))))
    return chains if every == classes else _CLASSES.dump_json(every).decode()


def streams_charged(chains: str, device: str) -> frozenset[Stream]:
    """The streams that an account's classes of chains, given as JSON, charge together; empty if one alone."""
    return frozenset[Stream]().union(*(named_streams(declared, device) for declared in classes_written(chains)))


def noise_problem(entry: Mapping[str, Any], frame: ReleaseFrame, charge: int) -> str:
    """Why the noise of a release is not that of its mechanism's rule; empty if it is.

    `charge` is the most that a device's ticks were charged, in units of `gateway.releases.entries`.
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
            least = moved_by_all(frame.query, 1, frame.length)
            wrong = basis.moved is None or basis.moved < least
        else:
            ticks = {symbol.ticks for symbol in basis.symbols}
            wrong = basis.moved is not None or len(basis.symbols) != frame.devices or ticks != {frame.length}
        wanted = basis.scale(frame.epsilon)
    except (ValidationError, ChainClassError, ValueError) as error:
        return f"its noise cannot be computed again: {str(error).splitlines()[0]}"
    if wrong:
        return "its noise is for another window"
    return "" if Fraction(entry["scale"]) >= wanted else f"its noise has scale {entry['scale']}, and needs {wanted}"
