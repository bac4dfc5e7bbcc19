"""Releases that do not compose: the noise of the Wasserstein mechanism and of group privacy for counts of symbols.

Both are for one release of one window of a stream, ever, and are charged the whole of epsilon. Group privacy takes all
ticks of the window for one secret: noise of scale (ticks * sensitivity of one) / epsilon, for any chain and against any
adversary. The Wasserstein mechanism takes W / epsilon, where W is how far a state can move the distribution of the
count. The count is of symbols, so W is of the distribution of symbols, given a state, and every symbol must be that of
a state. Devices that are counted together are independent, so that W is the largest of theirs.

Source: Song, Wang, Chaudhuri: Pufferfish Privacy Mechanisms for Correlated Data (SIGMOD 2017), algorithm 1 and
section 2; docs/proofs/published-mechanisms.md, "The published mechanisms".
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from fugu.contract._document import Document
from fugu.contract.chains import ChainClass
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.release_frames import QueryKind
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.wasserstein import check_symbols, wasserstein_symbols
from fugu.privacy.window_mechanisms import only_chains
from gateway.release.amplification import scale_above
from gateway.release.inversion import two_valued

__all__ = ["CountedSymbols", "WholeWindow", "counted_symbols", "moved_by_all"]


class CountedSymbols(Document):
    """What the distribution of a device's count of symbols follows from.

    Attributes:
        chains: the classes of chains of its policies.
        hits: for each state, how often out of 2^32 its symbol is counted.
        ticks: of the window.
        observed: which of them have a symbol, as a hexadecimal number whose lowest bit is the first tick.
    """

    chains: tuple[ChainClass, ...]
    hits: tuple[int, ...]
    ticks: int
    observed: str

    @property
    def distance(self) -> Fraction:
        """How far a state can move the distribution of the count.

        Raises:
            ChainClassError: it cannot be computed exactly.
        """
        return max(_distance(one, self.hits, self.ticks, int(self.observed, 16)) for one in self.chains)

    def check(self) -> None:
        """Refuse what has no exact distribution, without computing it.

        Raises:
            ChainClassError: why there is none.
        """
        for one in self.chains:
            check_symbols(only_chains(one), self.hits, SCALE, self.ticks)


class WholeWindow(Document):
    """What a release that does not compose is judged by; the ledger keeps it with the entry.

    Attributes:
        moved: group privacy: how much all symbols of a device together move its counts; none for Wasserstein.
        symbols: Wasserstein: of each device.
    """

    moved: int | None = None
    symbols: tuple[CountedSymbols, ...] = ()

    def scale(self, epsilon: float) -> Fraction:
        """The least scale of the noise on every count, rounded up to a short fraction.

        Raises:
            ChainClassError: the distribution of a count cannot be computed exactly.
        """
        furthest = Fraction(self.moved) if self.moved is not None else max(one.distance for one in self.symbols)
        return scale_above(furthest / Fraction(epsilon))


def counted_symbols(
    chains: Sequence[ChainClass], table: NoiseTable, states: tuple[int, ...], observed: Sequence[bool]
) -> CountedSymbols:
    """A device's count of some states, as the count of symbols that it is made of.

    Args:
        chains: the classes of its policies.
        table: of its symbols.
        states: that are counted.
        observed: which ticks of the window have a symbol.

    Raises:
        ChainClassError: the count is made of several numbers.
    """
    rule = two_valued(table, states)
    if rule is None:
        raise ChainClassError("the Wasserstein mechanism releases one number: this table needs a count of each symbol")
    hits = tuple(sum(w for w, counted in zip(row, rule.symbols, strict=True) if counted) for row in table.weights())
    bits = sum(1 << tick for tick, seen in enumerate(observed) if seen)
    return CountedSymbols(chains=tuple(dict.fromkeys(chains)), hits=hits, ticks=len(observed), observed=f"{bits:x}")


def moved_by_all(query: QueryKind, numbers: int, length: int) -> int:
    """How much all symbols of a device's window together move its counts, in L1: a symbol moves between two of several.

    Args:
        query: what is asked; of T ticks there are less than T pairs for a dwell time.
        numbers: how many counts there are.
        length: ticks of the window.
    """
    return length * (1 if numbers == 1 and query in ("count", "frequency") else 2)


@lru_cache(maxsize=4096)
def _distance(chains: ChainClass, hits: tuple[int, ...], ticks: int, observed: int) -> Fraction:
    seen = [bool(observed >> tick & 1) for tick in range(ticks)]
    return wasserstein_symbols(only_chains(chains), hits, SCALE, seen).distance
