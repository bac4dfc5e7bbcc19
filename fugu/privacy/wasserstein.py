"""The Wasserstein mechanism: noise for the largest distance that a secret can move the distribution of the answer.

Song, Wang, Chaudhuri: Pufferfish Privacy Mechanisms for Correlated Data (SIGMOD 2017), algorithm 1: add Laplace noise
of scale W / epsilon. The guarantee is for one scalar answer and does not compose: a second release voids it.

All arithmetic is exact. The last digit of a tail can decide to which value a quantile belongs, and the distance then
jumps. Distributions are polynomials with whole coefficients, each held in one long integer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate, combinations, permutations
from typing import NamedTuple, TypeAlias

from fugu.chains.arrays import Floats
from fugu.privacy.chain_class import ChainClassError, MarkovChain, stationary_distribution_of

__all__ = ["check_symbols", "infinity_wasserstein", "integer_weights", "wasserstein_states", "wasserstein_symbols"]

Number: TypeAlias = int | float | Fraction
Exact: TypeAlias = int | Fraction
Distribution: TypeAlias = Sequence[tuple[Exact, Exact]]
"""(value, weight) in rising order of the values; weights need not sum to 1."""
_Adds: TypeAlias = Sequence[Sequence[tuple[int, int]]]
"""Contribution of a tick to the sum in each state: (value, weight), values at least 0."""

_LARGEST_DENOMINATOR = 10**6
_SIMPLE = 2.0**-51
_MOST_STATES = 8
_MOST_BYTES = 2**29
_MOST_SYMBOL_BYTES = 2**25
_TOO_LONG = "the exact distribution of so long a window does not fit: use MQMExact or the chain accountant"


class WassersteinBound(NamedTuple):
    """W in units of the answer (Laplace scale W / epsilon), and the node 1..T, two states and chain that decide it."""

    distance: Fraction
    node: int
    states: tuple[int, int]
    chain: int


class CountBound(NamedTuple):
    """W of a count of ticks, and the counted states.

    The states are those of the request, or a set whose count needs the most noise, as its complement's does.
    """

    bound: WassersteinBound
    states: tuple[int, ...]


def wasserstein_states(chains: tuple[MarkovChain, ...], length: int, states: Sequence[int] | None = None) -> CountBound:
    """Return W of the number of ticks in some states; with `None`, in the worst set, which covers any other.

    Raises ChainClassError for an unknown state, too many sets to try, or as `wasserstein_count`.
    """
    k = chains[0].states if chains else 0
    if states is None and k > _MOST_STATES:
        raise ChainClassError(
            f"{k} states have too many sets to try for the one whose count needs the most noise. Up to {_MOST_STATES} "
            "states are tried: name the states that are counted"
        )
    if states is not None and not (states and set(states) <= set(range(k))):
        raise ChainClassError(f"states to count are some of 0 to {k - 1}, got {list(states)}")
    # A set and its complement: the counts add up to T, so that one distribution is the other's mirror image.
    groups = [group for size in range(1, k) for group in combinations(range(1, k), size)]
    groups = groups if states is None else [tuple(sorted(set(states)))]
    bounds = [
        CountBound(wasserstein_count(chains, length, [int(x in group) for x in range(k)]), group) for group in groups
    ]
    return max(bounds, key=lambda bound: bound.bound.distance)


def wasserstein_count(
    chains: tuple[MarkovChain, ...], length: int, weights: Sequence[int] = (0, 1)
) -> WassersteinBound:
    """Return W of a window's weighted sum of states: the largest distance over chains, nodes and pairs of states.

    Args:
        chains: a finite class, each chain with its initial distribution. Probabilities are read as simple fractions if
            these are within rounding. Otherwise they are the exact floats, and the largest makes the sum 1.
        length: the ticks of the window.
        weights: (k,) what a tick in each state adds, from 0 on; by default, the count of state 1 of two.

    Raises:
        ChainClassError: no initial distribution, weights that do not fit, or too long a window.
    """
    if length < 1 or not chains or min(weights) < 0:
        raise ChainClassError("the Wasserstein mechanism needs a chain, a window of at least one tick, and weights")
    return _worst_bound(chains, [tuple(((weight, 1),) for weight in weights)] * length, _MOST_BYTES)


def wasserstein_symbols(
    chains: tuple[MarkovChain, ...], hits: Sequence[int], denominator: int, is_observed: Sequence[bool]
) -> WassersteinBound:
    """Return W of the number of a window's symbols that lie in a set; chains and result as for `wasserstein_count`.

    Args:
        chains: a finite class, each chain with its initial distribution.
        hits: (k,) chances, out of `denominator`, that the symbol of each state lies in the set.
        denominator: of all chances.
        is_observed: (T,) which ticks have a symbol; the states of all ticks are secret.

    Raises:
        ChainClassError: no initial distribution, chances that do not fit, or a window that is too long for the exact
            distribution, which takes some seconds at most.
    """
    tick_adds = _symbol_ticks(hits, denominator, is_observed)
    return _worst_bound(chains, tick_adds, _MOST_SYMBOL_BYTES)


def check_symbols(chains: tuple[MarkovChain, ...], hits: Sequence[int], denominator: int, length: int) -> None:
    """Raise ChainClassError if `wasserstein_symbols` would refuse a window with a symbol at every tick."""
    tick_adds = _symbol_ticks(hits, denominator, [True] * length)
    for chain in chains:
        _IntegerChain.of(chain).coefficient_bytes(tick_adds, _MOST_SYMBOL_BYTES)


def _symbol_ticks(hits: Sequence[int], denominator: int, is_observed: Sequence[bool]) -> list[_Adds]:
    if not is_observed or not all(0 <= hit <= denominator for hit in hits):
        raise ChainClassError("the Wasserstein mechanism needs a window, and a chance for every state")
    divisor = math.gcd(denominator, *hits)
    symbol_adds = tuple(tuple((n, p // divisor) for n, p in enumerate((denominator - hit, hit)) if p) for hit in hits)
    nothing_adds = (((0, 1),),) * len(hits)
    return [symbol_adds if has_symbol else nothing_adds for has_symbol in is_observed]


def _worst_bound(chains: tuple[MarkovChain, ...], tick_adds: Sequence[_Adds], max_bytes: int) -> WassersteinBound:
    worst_bound = WassersteinBound(Fraction(0), 1, (0, 0), 0)
    for index, chain in enumerate(chains):
        if chain.initial is None:
            raise ChainClassError(
                "the Wasserstein mechanism needs an initial distribution: for all of them, use MQMExact"
            )
        if chain.states != len(tick_adds[0]):
            raise ChainClassError(f"{chain.states} states need as many weights, got {len(tick_adds[0])}")
        for node, distributions in enumerate(_sums_by_node(chain, tick_adds, max_bytes), 1):
            for (a, distribution), (b, other_distribution) in permutations(distributions.items(), 2):
                distance = Fraction(_upward_distance(distribution, other_distribution))
                if distance > worst_bound.distance:
                    worst_bound = WassersteinBound(distance, node, (min(a, b), max(a, b)), index)
    return worst_bound


def infinity_wasserstein(
    distribution: Iterable[tuple[Number, Number]], other: Iterable[tuple[Number, Number]]
) -> Fraction:
    """Return the infinity-Wasserstein distance of two distributions on the line, by the quantile coupling.

    Each distribution is (value, weight) in any order, with some positive weight, and is normalised. The distance is the
    smallest d such that mass can be moved from one to the other without any moving further than d.
    """
    first, second = _sorted_weights(distribution), _sorted_weights(other)
    return Fraction(max(_upward_distance(first, second), _upward_distance(second, first)))


def _upward_distance(distribution: Distribution, target: Distribution) -> Exact:
    """Return the largest distance that mass moves up from `distribution` to `target`, at least 0.

    The mass of a value, in rising order, moves at most to the other's first value whose running sum is no smaller.
    """
    total_weight, target_weight = (sum(weight for _, weight in distribution), sum(weight for _, weight in target))
    target_sums = [weight * total_weight for weight in accumulate(weight for _, weight in target)]
    furthest: Exact = 0
    running_sum: Exact = 0
    target_index = 0
    for value, weight in distribution:
        running_sum += weight
        while target_sums[target_index] < running_sum * target_weight:
            target_index += 1
        furthest = max(furthest, target[target_index][0] - value)
    return furthest


def _sorted_weights(distribution: Iterable[tuple[Number, Number]]) -> Distribution:
    weights: dict[Exact, Exact] = {}
    for value, weight in distribution:
        exact_value = _exact_number(value)
        weights[exact_value] = weights.get(exact_value, 0) + _exact_number(weight)
    return sorted((value, weight) for value, weight in weights.items() if weight)


class _IntegerChain(NamedTuple):
    """A chain in whole numbers: `initial` weights that sum to `start`, and rows of steps that each sum to `scale`."""

    initial: list[int]
    start: int
    transition: list[list[int]]
    scale: int

    @classmethod
    def of(cls, chain: MarkovChain) -> _IntegerChain:
        assert chain.initial is not None
        initial, start = integer_weights(stationary_distribution_of(chain) if chain.is_stationary else chain.initial)
        weighted_rows = [integer_weights(row) for row in chain.transition]
        scale = math.lcm(*(row_sum for _, row_sum in weighted_rows))
        return cls(initial, start, [[p * (scale // row_sum) for p in row] for row, row_sum in weighted_rows], scale)

    def coefficient_bytes(self, tick_adds: Sequence[_Adds], max_bytes: int) -> int:
        """Return the bytes that one coefficient of the sum takes. ChainClassError if all do not fit."""
        product = math.prod(max(sum(n for _, n in distribution) for distribution in adds) for adds in tick_adds)
        size: int = (self.start * self.scale ** len(tick_adds) * product).bit_length() // 8 + 1
        term_count = sum(max(power for distribution in adds for power, _ in distribution) for adds in tick_adds) + 1
        if len(self.initial) * len(tick_adds) * term_count * size > max_bytes:
            raise ChainClassError(_TOO_LONG)
        return size


def _sums_by_node(chain: MarkovChain, tick_adds: Sequence[_Adds], max_bytes: int) -> Iterable[dict[int, Distribution]]:
    """Yield for each node the distribution of the sum over all ticks, given each possible state of the node.

    A polynomial sum of c_s z^s is held as its value at z = 256^size, an integer with room for every coefficient.
    """
    initial, _, transition, _ = integer_chain = _IntegerChain.of(chain)
    k, length, width = len(initial), len(tick_adds), integer_chain.coefficient_bytes(tick_adds, max_bytes)

    def extend(value: int, distribution: Sequence[tuple[int, int]]) -> int:
        return sum((value if weight == 1 else value * weight) << (8 * width * power) for power, weight in distribution)

    suffixes = [[1] * k]
    for tick in reversed(tick_adds[1:]):
        sums = [extend(value, tick[y]) for y, value in enumerate(suffixes[-1])]
        suffixes.append([sum(transition[x][y] * sums[y] for y in range(k) if transition[x][y]) for x in range(k)])
    prefixes = [extend(initial[x], tick_adds[0][x]) for x in range(k)]
    for node in range(length):
        if node:
            sums = [sum(prefixes[x] * transition[x][y] for x in range(k)) for y in range(k)]
            prefixes = [extend(sums[y], tick_adds[node][y]) for y in range(k)]
        yield {x: _coefficients(prefixes[x] * suffixes[length - 1 - node][x], width) for x in range(k) if prefixes[x]}


def _coefficients(packed: int, width: int) -> Distribution:
    """Return the (power, coefficient) of each positive term of a packed polynomial."""
    count = packed.bit_length() // (8 * width) + 1
    blob = packed.to_bytes(count * width, "little")
    all_terms = ((power, int.from_bytes(blob[power * width : (power + 1) * width], "little")) for power in range(count))
    return [(power, coefficient) for power, coefficient in all_terms if coefficient]


def integer_weights(distribution: Floats) -> tuple[list[int], int]:
    """Return numerators and a common denominator of probabilities, each within its rounding, however small."""
    shares = [Fraction(float(p)).limit_denominator(_LARGEST_DENOMINATOR) for p in distribution]
    if sum(shares) != 1 or any(abs(float(s) - p) > _SIMPLE * p for s, p in zip(shares, distribution, strict=True)):
        shares = [Fraction(float(p)) for p in distribution]
        shares[int(distribution.argmax())] += 1 - sum(shares)
    denominator = math.lcm(*(p.denominator for p in shares))
    return [int(p * denominator) for p in shares], denominator


def _exact_number(number: Number) -> Exact:
    if isinstance(number, float):
        if not math.isfinite(number):
            raise ChainClassError(f"{number} is no number to add up")
        return Fraction(repr(number))
    return number
