"""How much an audience may be told about a tick: the largest constant per-tick loss, and the rules of mechanisms.

What one reader of several audiences is told: their charges add up tick by tick, and the accountant runs once. A sum of
epsilons is no bound: what the chain adds to a small loss of a tick grows faster than that loss, so releases of epsilon
0.1 to eight audiences may be 0.86 to whoever has them all. Charges per tick do add up, because each is at most the
least concave function above its release's loss (`gateway.releases.amplification`); so the bound of a reader is that of
a stream whose every tick is charged all that its audiences may be told.

**Releases that do not compose**, by the Wasserstein mechanism and by group privacy. Both are for one release of one
window of a stream, ever, and are charged the whole of epsilon. Group privacy takes all ticks of the window for one
secret: noise of scale (ticks * sensitivity of one) / epsilon, for any chain and against any adversary. The Wasserstein
mechanism takes W / epsilon, where W is how far a state can move the distribution of the count. The count is of symbols,
so W is of the distribution of symbols, given a state, and every symbol must be that of a state. Devices that are
counted together are independent, so that W is the largest of theirs.

Sources: docs/proofs/audiences.md, "Audiences and readers"; Song, Wang, Chaudhuri: Pufferfish Privacy Mechanisms for
Correlated Data (SIGMOD 2017), algorithm 1 and section 2; docs/proofs/published-mechanisms.md, "The published
mechanisms".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from fugu.contract._document import Document
from fugu.contract.chains import ChainClass
from fugu.contract.guarantee import Adversary
from fugu.contract.mechanisms import ALONE, Mechanism, covers
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.release_frames import QueryKind, ReleaseFrame
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.accountant.classes import known_chains
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.eigengap import mqm_approx
from fugu.privacy.quilts import mqm_exact
from fugu.privacy.wasserstein import check_symbols, wasserstein_symbols
from fugu.privacy.window_mechanisms import only_chains
from gateway.releases.amplification import float_above, scale_above
from gateway.releases.charges import PER_NAT, Stream, named_streams, nats, units_below
from gateway.releases.statistics import two_valued

__all__ = [
    "SAME",
    "CountedSymbols",
    "WholeWindow",
    "allowance",
    "allowance_problem",
    "classes_of",
    "classes_written",
    "counted_symbols",
    "joint_charge",
    "joint_loss",
    "moved_by_all",
    "noise_problem",
    "streams_charged",
    "with_classes",
]


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
        """The largest distance by which a state can move the distribution of the count.

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


_INWARD = 1.0 - 1e-9


@cache
def allowance(chains: ChainClass, epsilon: float, adversary: Adversary, mechanism: Mechanism = "chain") -> int:
    """The largest loss that every tick may have, for ever, without any state losing more than epsilon.

    Losses of the chain accountant, and of any one quilt, grow with every tick's own loss, so a schedule of charges that
    never exceeds this number on any tick is within epsilon, however the charges vary from tick to tick. A mechanism
    that does not compose has one release, which is charged the whole of epsilon.

    Args:
        chains: class of chains that the readings belong to.
        epsilon: what the audience is promised, in nats.
        adversary: what the audience may know.
        mechanism: by whose rule.

    Returns:
        The loss in units of `gateway.releases.charges`, rounded down; the same for all pairs of states.

    Raises:
        ChainClassError: epsilon is not a positive number, the chains do not forget, or the mechanism has no bound for
            them or against such an adversary.

    Source: docs/proofs/chain-accountant.md, "The chain accountant", and docs/proofs/published-mechanisms.md, "The
    published mechanisms"; for quilts, whose least loss at a constant rate c is min over quilts of influence + c * near
    ticks, `fugu.privacy.quilt_composition`.
    """
    if not covers(mechanism, adversary):
        raise ChainClassError(f"{mechanism} protects against the ignorant adversary only, not against the {adversary}")
    if mechanism in ALONE:
        if mechanism == "wasserstein" or chains.named_streams:
            known_chains(chains)  # refuses what it has no distribution for, and streams that are told about together
        return units_below(epsilon)
    if mechanism == "chain":
        return units_below(ChainAccountant(chains).allowance(epsilon, adversary) * _INWARD)
    scale_of = mqm_exact if mechanism == "mqm-exact" else mqm_approx
    return units_below(1.0 / scale_of(known_chains(chains), None, epsilon).scale * _INWARD)


def joint_charge(allowances: Sequence[int], base: int) -> int:
    """The most that a tick is charged for all audiences of a reader together, in units of `gateway.releases.charges`.

    Args:
        allowances: what each audience may be told about a tick, the base included.
        base: what the device itself releases to all of them; it is the same release, and counts once.

    Returns:
        0 if there is no audience that the gateway may tell anything.
    """
    told = sum(max(one - base, 0) for one in allowances)
    return told + base if any(one >= base for one in allowances) else 0


@cache
def joint_loss(chains: ChainClass, charge: int, adversary: Adversary) -> float:
    """What an endless stream loses whose every tick is charged the same.

    Args:
        chains: class of chains that the readings belong to.
        charge: in units of `gateway.releases.charges`.
        adversary: what the reader may know.

    Returns:
        A bound in nats, rounded up.

    Raises:
        ChainClassError: no bound exists for such a class.
    """
    return ChainAccountant(chains).loss(float_above(Fraction(charge, PER_NAT)), adversary).epsilon


SAME = Fraction(1, 2 * 10**9)  # half of what allowances are rounded inward by: another machine's logarithms
_CLASSES: TypeAdapter[tuple[ChainClass, ...]] = TypeAdapter(tuple[ChainClass, ...])


def allowance_problem(allowed: int, mechanism: str, epsilon: float, adversary: str, chains: str) -> str:
    """Why an allowance is not one by its mechanism's rule; empty if it is, or is lower.

    Args:
        allowed: in units of `gateway.releases.charges`.
        mechanism, epsilon, adversary: of the promise.
        chains: the classes as JSON.
    """
    try:
        classes = classes_of(chains)
        found = [allowance(one, epsilon, cast(Adversary, adversary), cast(Mechanism, mechanism)) for one in classes]
    except (ValidationError, ChainClassError, ValueError) as error:
        return f"its allowance cannot be computed again: {str(error).splitlines()[0]}"
    most = min(found, default=0)
    if allowed > most * (1 + SAME):
        return f"its allowance is {nats(allowed):.12g}, and mechanism {mechanism} allows {nats(most):.12g}"
    return ""


def classes_of(chains: str) -> tuple[ChainClass, ...]:
    """The classes of chains that an allowance was computed for, from JSON; a `ValidationError` if it holds none."""
    return _CLASSES.validate_json(chains)


def classes_written(chains: str) -> tuple[ChainClass, ...]:
    """The classes of chains in JSON; empty if it holds none, which `allowance_problem` says."""
    try:
        return classes_of(chains)
    except ValidationError:
        return ()


def with_classes(chains: str, more: Iterable[ChainClass]) -> str:
    """Add classes of chains to those in JSON."""
    known = classes_written(chains)
    every = tuple(dict.fromkeys((*known, *more)))
    return chains if every == known else _CLASSES.dump_json(every).decode()


def streams_charged(chains: str, device: str) -> frozenset[Stream]:
    """The streams that an account's classes of chains, given as JSON, charge together; empty if one alone."""
    return frozenset[Stream]().union(*(named_streams(one, device) for one in classes_written(chains)))


def noise_problem(entry: Mapping[str, Any], frame: ReleaseFrame, charge: int) -> str:
    """Why the noise of a release is not that of its mechanism's rule; empty if it is.

    Args:
        entry: the ledger's columns.
        frame: what was published.
        charge: the most that a device's ticks were charged, in units of `gateway.releases.charges`.
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
            ticks = {one.ticks for one in basis.symbols}
            wrong = basis.moved is not None or len(basis.symbols) != frame.devices or ticks != {frame.length}
        wanted = basis.scale(frame.epsilon)
    except (ValidationError, ChainClassError, ValueError) as error:
        return f"its noise cannot be computed again: {str(error).splitlines()[0]}"
    if wrong:
        return "its noise is for another window"
    return "" if Fraction(entry["scale"]) >= wanted else f"its noise has scale {entry['scale']}, and needs {wanted}"
