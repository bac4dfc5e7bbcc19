"""Statistics of a window: whole numbers of symbols, noise on them, and unbiased estimates about the states.

Three steps, so that it can be seen what is private. `Tally` counts symbols: not yet private for the public. `noisy`
adds exact discrete Laplace noise to every count. `estimate` computes values, standard errors and intervals from the
noisy counts and from numbers that are public anyway (how many ticks had a symbol), and from nothing else.

Sensitivities, in L1, to one symbol of one device: a count 1; a histogram 2 (one bin loses, another gains); pairs of
consecutive symbols 4 (a symbol is in two pairs). A group's counts are sums over devices, and one person's symbols are
in one of them: the same sensitivity, and noise is added once. Devices with different tables are counted apart, each
with its noise; a symbol is in one part only.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from contract.discrete_laplace import discrete_laplace
from contract.noise_table import NoiseTable
from gateway.chain.arrays import Floats, Ints
from gateway.release.dwell import dwell
from gateway.release.inversion import ReleaseError, inversion, two_valued
from gateway.release.parts import Estimates, Part, Query, half_widths, noise_variance

__all__ = ["Tally", "estimate", "noisy"]

UNOBSERVED = -1


class Tally:
    """Counts symbols, a piece at a time.

    Args:
        query: what is asked.
    """

    def __init__(self, query: Query) -> None:
        self.query = query
        self._parts: dict[NoiseTable, Part] = {}

    def add(self, symbols: Ints, table: NoiseTable) -> None:
        """Count consecutive ticks (n,) of one device; -1 is a tick without a symbol.

        Raises:
            ReleaseError: the query cannot be answered from this table.
        """
        states = self.query.states
        whole = len(states) == table.states
        if not states or max(states) >= table.states or whole != (self.query.kind == "histogram"):
            raise ReleaseError(f"a {self.query.kind} of {len(states)} of {table.states} states says nothing")
        seen = symbols != UNOBSERVED
        both = seen[1:] & seen[:-1]
        counts = self._counts(symbols, seen, both, table)
        before = self._parts.get(table, Part(table, 0, 0, np.zeros_like(counts)))
        self._parts[table] = Part(
            table, before.ticks + int(seen.sum()), before.pairs + int(both.sum()), before.counts + counts
        )

    def _counts(self, symbols: Ints, seen: NDArray[np.bool_], both: NDArray[np.bool_], table: NoiseTable) -> Ints:
        m = table.symbols
        if self.query.kind == "dwell":
            inversion(table)
            return np.bincount((symbols[:-1] * m + symbols[1:])[both], minlength=m * m).reshape(m, m)
        histogram = np.bincount(symbols[seen], minlength=m)
        if self.query.kind == "histogram" or (rule := two_valued(table, self.query.states)) is None:
            inversion(table)
            return histogram
        return np.array([histogram[rule.symbols].sum()])

    @property
    def parts(self) -> tuple[Part, ...]:
        """What was counted, by table."""
        return tuple(self._parts.values())

    @property
    def ticks(self) -> int:
        """Ticks that had a symbol."""
        return sum(part.ticks for part in self.parts)

    @property
    def sensitivity(self) -> int:
        """The most that the counts change with one symbol, added up."""
        return max((_sensitivity(part) for part in self.parts), default=1)


def _sensitivity(part: Part) -> int:
    return 4 if part.counts.ndim == 2 else min(len(part.counts), 2)


def noisy(parts: tuple[Part, ...], scale: Fraction, draw: Callable[[int], int]) -> tuple[Part, ...]:
    """Add independent discrete Laplace noise to every count.

    Args:
        parts: from `Tally.parts`.
        scale: of the noise; the release's spread is sensitivity / scale.
        draw: uniform integers, draw(below) in range(below).
    """
    sizes = scale.numerator, scale.denominator
    result = []
    for part in parts:
        noise = np.array([discrete_laplace(draw, *sizes) for _ in range(part.counts.size)], dtype=np.int64)
        result.append(part._replace(counts=part.counts + noise.reshape(part.counts.shape)))
    return tuple(result)


def estimate(query: Query, parts: tuple[Part, ...], scale: Fraction, confidence: float = 0.95) -> Estimates:
    """Values with standard errors and intervals, from noisy counts.

    Args:
        query: what is asked.
        parts: noisy counts.
        scale: of their noise.
        confidence: of the intervals, in (0, 1).

    Raises:
        ReleaseError: there are no symbols (no pairs of consecutive ones, for a dwell time).
    """
    if query.kind == "dwell":
        return dwell(query.states, parts, scale, confidence)
    ticks = sum(part.ticks for part in parts)
    if ticks == 0:
        raise ReleaseError("no tick of the window has a symbol")
    answers = [_one_table(query, part, noise_variance(scale)) for part in parts]
    values, variances, steps = (np.array(column) for column in zip(*answers, strict=True))
    divisor = ticks if query.kind == "frequency" else 1
    errors, centre = np.sqrt(variances.sum(axis=0)) / divisor, values.sum(axis=0) / divisor
    width = half_widths(errors, steps.max(axis=0) / divisor, scale, confidence)
    return Estimates(centre, errors, centre - width, centre + width)


def _one_table(query: Query, part: Part, noise: float) -> tuple[Floats, Floats, Floats]:
    """Values (n,), their variances and the largest weight of a single noise in each."""
    emission, inverse = inversion(part.table)
    if len(part.counts) == 1:
        rule = two_valued(part.table, query.states)
        assert rule is not None
        value = rule.a * part.counts + rule.b * part.ticks
        inside = np.clip(value, 0.0, part.ticks)
        hit, miss = (1.0 - rule.b) / rule.a, -rule.b / rule.a  # Pr(symbol in Z | state in the set, or not)
        spread = inside * hit * (1.0 - hit) + (part.ticks - inside) * miss * (1.0 - miss)
        return np.asarray(value), np.asarray(rule.a**2 * (spread + noise)), np.array([rule.a])
    counts = inverse @ part.counts
    weights = inverse if query.kind == "histogram" else inverse[list(query.states)].sum(axis=0, keepdims=True)
    means = weights @ emission.T  # (n, k): what a tick in each state adds, on average
    spread = (weights**2 @ emission.T - means**2) @ _plausible(counts, part.ticks)
    variances = np.maximum(spread, 0.0) + noise * (weights**2).sum(axis=1)
    return np.asarray(weights @ part.counts), np.asarray(variances), np.asarray(np.abs(weights).max(axis=1))


def _plausible(counts: Floats, total: int) -> Floats:
    """Estimated counts made fit for variances: none negative, and with the true total."""
    positive = np.clip(counts, 0.0, None)
    return np.asarray(positive * (total / positive.sum()) if positive.sum() > 0.0 else positive, dtype=np.float64)
