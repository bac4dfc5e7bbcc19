"""Attackers on the symbols and counts of a stream: `fugu.attackers` for a few hundred ticks, without its libraries.

The page's process has neither numpy nor the memory for it. Tests hold every number against `fugu.attackers`. A count
tells how many of a window's ticks were in some states, so all that is needed of a chain is the distribution of that
number, computed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, count, product
from operator import mul
from typing import Any, NamedTuple

from fugu.contract.chains import BinaryChains, BoundedChains, FiniteChains, JointChains
from fugu.contract.descriptions import DescribedWindow, Description
from fugu.contract.errors import FuguError
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.noise_table import NoiseTable

__all__ = ["AttackView", "moved"]


EVERYTHING, ONE_SYMBOL = "forward-backward", "single symbol"
"""Names of attackers, as `fugu.attackers` has them."""
MOST_TICKS = 240
"""That are weighed together: the newest."""
_EACH_WAY = 4
"""Chains of an interval, its ends among them: so many times so many for intervals of q and r."""
_MOST_STATES = 12


class AttackerError(FuguError):
    """No attacker of this page reads the stream; one sentence that says why."""


class Chain(NamedTuple):
    """A chain of a class, as one attacker believes it: transition (n, n), prior (n,) its stationary distribution.

    `shows` has for each of its n states the state of the stream.
    """

    transition: tuple[tuple[float, ...], ...]
    shows: tuple[int, ...]
    prior: tuple[float, ...]


class Found(NamedTuple):
    """Least and greatest posterior probabilities, over the chains that were believed.

    Attributes:
        low, high: (ticks, k), given all symbols.
        low_alone, high_alone: (k,), of the newest tick that has a symbol, given that symbol alone.
        least, most: (k,), what epsilon keeps the probability of a state between, whatever is released.
        guesses: the states that are the likeliest at the newest tick, given all symbols, under any of the chains.
        chains: how many were believed.
        epsilon: of a single tick, among those that were looked at; none without a bound.
    """

    low: list[list[float]]
    high: list[list[float]]
    low_alone: list[float]
    high_alone: list[float]
    least: list[float]
    most: list[float]
    guesses: list[int]
    chains: int
    epsilon: float | None


def chains_of(told: Description) -> list[Chain]:
    """The chains of a stream's class that attackers believe.

    Of intervals a grid with their ends, evenly spaced in the logarithm; of known chains each; of a bound on odds ratios
    the typical chain. Raises AttackerError if none of the attackers can read points, or so many states, or the class
    names no chain.
    """
    if told.kind == "points":
        raise AttackerError(
            "No attacker of this page reads points: who names the state behind a point needs the table that it was "
            "drawn from, which devices have and this page has not."
        )
    if found := list(_chains(told)):
        return found
    raise AttackerError(
        "The class is all chains whose steps' odds ratios are bounded, and names no chain that an attacker could "
        "believe."
    )


def attacked(told: Description, chains: Sequence[Chain], symbols: Sequence[int], first: int = 0) -> Found:
    """Results of attackers with one chain each, from symbols of consecutive ticks, at least one, -1 where none is.

    `first` is the number of the first tick.

    Raises AttackerError if no chain of the class says what has come.
    """
    assert told.table is not None
    weights = NoiseTable(told.table).weights()
    columns = [[row[z] / sum(row) for row in weights] for z in range(len(weights[0]))]
    k, newest = len(weights), next((z for z in reversed(symbols) if 0 <= z < len(columns)), -1)
    all_found, alone, priors = [], [], []
    for chain in chains:
        likelihoods = [[column[x] for x in chain.shows] for column in columns]
        posteriors = _forward_backward(chain, likelihoods, symbols)
        all_found.append([_shown(one, chain.shows, k) for one in posteriors])
        priors.append(_shown(chain.prior, chain.shows, k))
        single = chain.prior if newest < 0 else _normalised([*map(mul, chain.prior, likelihoods[newest])])
        alone.append(_shown(single, chain.shows, k))
    promised = told.guarantee.of_ticks(first, first + len(symbols) - 1)
    epsilon = math.inf if promised is None else promised
    low, high = _least(priors), _most(priors)
    return Found(
        low=[_least(each) for each in zip(*all_found, strict=True)],
        high=[_most(each) for each in zip(*all_found, strict=True)],
        low_alone=_least(alone),
        high_alone=_most(alone),
        least=[moved(p, -epsilon) for p in low],
        most=[moved(p, epsilon) for p in high],
        guesses=sorted({max(range(k), key=found[-1].__getitem__) for found in all_found}),
        chains=len(chains),
        epsilon=promised,
    )


def _chains(told: Description) -> Iterator[Chain]:
    match told.chains:
        case BinaryChains(q=q, r=r):
            for a, b in product(_between(q), _between(r)):
                yield Chain(((1.0 - a, a), (b, 1.0 - b)), (0, 1), (b / (a + b), a / (a + b)))
        case FiniteChains(transitions=known):
            yield from (_known(one, range(len(one))) for one in known)
        case BoundedChains(transition=typical) if typical is not None:
            yield _known(typical, range(len(typical)))
        case JointChains() as joint:
            try:
                column = joint.column(told.device, told.stream)
            except ValueError:
                return
            yield from (_known(one, [row[column] for row in joint.shows]) for one in joint.transitions)


def _known(transition: tuple[tuple[float, ...], ...], shows: Sequence[int]) -> Chain:
    if len(transition) > _MOST_STATES:
        raise AttackerError(f"Attackers of this page read streams of up to {_MOST_STATES} states.")
    return Chain(transition, tuple(shows), _stationary(transition))


def _between(ends: tuple[float, float]) -> list[float]:
    low, high = ends
    if low == high:
        return [low]
    steps = [i / (_EACH_WAY - 1) for i in range(_EACH_WAY)]
    return [low, *(low ** (1.0 - s) * high**s for s in steps[1:-1]), high]


def _stationary(transition: tuple[tuple[float, ...], ...]) -> tuple[float, ...]:
    """The distribution (n,) that a chain keeps: by states taken out one after the other, without a subtraction.

    Source: Grassmann, Taksar, Heyman, "Regenerative analysis and steady state distributions for Markov chains" (1985).
    """
    n = len(transition)
    p = [list(row) for row in transition]
    for s in range(n - 1, 0, -1):
        out = math.fsum(p[s][:s])
        for i in range(s):
            p[i][s] /= out
            for j in range(s):
                p[i][j] += p[i][s] * p[s][j]
    found = [1.0]
    for s in range(1, n):
        found.append(math.fsum(found[i] * p[i][s] for i in range(s)))
    return tuple(_normalised(found))


def _forward_backward(
    chain: Chain, likelihoods: Sequence[Sequence[float]], symbols: Sequence[int]
) -> list[list[float]]:
    """Posteriors (ticks, n), given all symbols; likelihoods are (m, n)."""
    columns = list(zip(*chain.transition, strict=True))
    seen = [likelihoods[z] if 0 <= z < len(likelihoods) else None for z in symbols]
    forward: list[list[float]] = []
    expected = list(chain.prior)
    for one in seen:
        now = expected if one is None else _normalised([*map(mul, expected, one)])
        forward.append(now)
        expected = [sum(map(mul, now, column)) for column in columns]
    backward = [1.0] * len(columns)
    for t in range(len(seen) - 1, -1, -1):
        likelihood, filtered = seen[t], forward[t]
        forward[t] = _normalised([*map(mul, filtered, backward)])
        here = backward if likelihood is None else [*map(mul, backward, likelihood)]
        backward = _normalised([sum(map(mul, row, here)) for row in chain.transition])
    return forward


def _normalised(values: list[float]) -> list[float]:
    total = sum(values)
    if not total > 0.0:
        raise AttackerError("What has come is impossible under the chains of the class.")
    return [value / total for value in values]


def _shown(distribution: Sequence[float], shows: Sequence[int], k: int) -> list[float]:
    found = [0.0] * k
    for share, state in zip(distribution, shows, strict=True):
        found[state] += share
    return found


def _least(rows: Sequence[Sequence[float]]) -> list[float]:
    return [*map(min, zip(*rows, strict=True))]


def _most(rows: Sequence[Sequence[float]]) -> list[float]:
    return [*map(max, zip(*rows, strict=True))]


def moved(probability: float, epsilon: float) -> float:
    """A probability whose odds have changed by the factor e^epsilon, without overflow."""
    if epsilon > 0.0:
        return 1.0 - moved(1.0 - probability, -epsilon)
    share = probability * math.exp(epsilon)
    return share / (share + 1.0 - probability) if share > 0.0 else 0.0


ONE_WINDOW = "single window"
"""The attacker who takes ticks for independent, as `fugu.attackers` calls it."""
_MOST_WORK = 5_000_000
"""Numbers that are computed for a window's distributions: a second or two."""
_MOST_KNOWN = 1000
_ELSEWHERE = ": fugu check attack --policy does."


class Shares(NamedTuple):
    """Shares of a window's ticks in the counted states, least and greatest over the chains, expected given a count.

    `low_alone` and `high_alone` are for attackers who take ticks for independent.
    """

    low: float
    high: float
    low_alone: float
    high_alone: float


def counted_window(told: Description) -> tuple[DescribedWindow, tuple[int, ...]]:
    """The first window of a stream with one count, and the states that it counts; of two states also a histogram.

    Raises AttackerError if there is none.
    """
    for window in told.windows:
        groups = window.groups(told.states)
        group = tuple(told.states.index(state) for state in groups[-1] if state in told.states)
        if window.query.additive and len(groups) <= 2 and 0 < len(group) < len(told.states):
            return window, group
    if any(window.blocks is not None for window in told.windows):
        raise AttackerError(
            "No attacker of this page reads counts by parts of the day: fugu check attack --policy does."
        )
    raise AttackerError(f"No attacker of this page reads histograms of several states{_ELSEWHERE}")


class CountAttack:
    """Attackers who each believe one chain, and read one window at a time.

    Attributes:
        counted: the states that it counts, in words; `others` are those that it does not.
        chains: how many are believed.
        priors: for each of them the probability of the counted states.
        shares: what the counts of one window say, all of whose ticks the device was running; they are of the counted
            states, of a histogram those of state 0 and of state 1.

    Raises AttackerError if none of them can read the stream's counts.
    """

    def __init__(self, told: Description) -> None:
        self.window, group = counted_window(told)
        self._scale = float(Fraction(self.window.scale))
        found = chains_of(told)
        length = self.window.length
        if len(found) * length**2 * len(found[0].prior) > 2 * _MOST_WORK:
            raise AttackerError(f"Windows of {length} ticks are too long for the attackers of this page.")
        self.counted = " or ".join(told.states[x] for x in group)
        left = [state for x, state in enumerate(told.states) if x not in group]
        self.others = left[0] if len(left) == 1 else "another state"
        self.shares = lru_cache(_MOST_KNOWN)(self._shares)
        self.chains = len(found)
        self.priors = [sum(p for p, x in zip(one.prior, one.shows, strict=True) if x in group) for one in found]
        inside = [[x in group for x in one.shows] for one in found]
        independent = [one._replace(transition=(one.prior,) * len(one.prior)) for one in found]
        self._chained = [_distribution(*each, length) for each in zip(found, inside, strict=True)]
        self._alone = [_distribution(*each, length) for each in zip(independent, inside, strict=True)]

    def _shares(self, counts: tuple[int, ...]) -> Shares:
        length = self.window.length
        away = [
            abs(counts[-1] - n) + (abs(counts[0] - length + n) if len(counts) == 2 else 0) for n in range(length + 1)
        ]
        least = min(away)
        likelihood = [math.exp((least - one) / self._scale) for one in away]
        chained = [_expected(one, likelihood) / length for one in self._chained]
        alone = [_expected(one, likelihood) / length for one in self._alone]
        return Shares(min(chained), max(chained), min(alone), max(alone))


def _distribution(chain: Chain, inside: Sequence[bool], length: int) -> list[float]:
    columns = list(zip(*chain.transition, strict=True))
    now = [[0.0, p] if counted else [p, 0.0] for p, counted in zip(chain.prior, inside, strict=True)]
    for _ in range(length - 1):
        rows = list(zip(*now, strict=True))
        moved = [[sum(map(mul, row, column)) for row in rows] for column in columns]
        now = [[0.0, *one] if counted else [*one, 0.0] for one, counted in zip(moved, inside, strict=True)]
    return [sum(row) for row in zip(*now, strict=True)]


def _expected(distribution: Sequence[float], likelihood: Sequence[float]) -> float:
    return math.fsum(map(mul, count(), _normalised([*map(mul, distribution, likelihood)])))


_MOST_SHOWN = 8
"""Bands of states."""
_MOST_WINDOWS = 240
_ROUNDING = 1e-9


_Symbol = tuple[int, int]
"""A symbol, and the shift of its tick."""


class AttackView:
    """Keeps the newest symbols and counts of a stream, of whichever policy, and its newest description."""

    def __init__(self) -> None:
        self._told: Description | None = None
        self._ticks: dict[int, tuple[int, _Symbol]] = {}
        self._windows: dict[tuple[str, int], WindowFrame] = {}
        self._counts: tuple[Description, CountAttack] | None = None
        self._changed = False

    def describe(self, told: Description) -> None:
        """Read messages as those of this policy from now on; those of other versions wait."""
        self._told, self._changed = told, True

    def take(self, frame: SymbolFrame) -> None:
        """Symbols that have come, late or again ones, too."""
        first = frame.first + max(0, len(frame.symbols) - MOST_TICKS)
        for tick, symbol in enumerate(frame.symbols[-MOST_TICKS:], first):
            self._ticks[tick] = frame.policy_version, (symbol, frame.shift)
        begin = max(self._ticks) - MOST_TICKS
        self._ticks = {tick: self._ticks[tick] for tick in sorted(self._ticks) if tick > begin}
        self._changed = True

    def take_window(self, frame: WindowFrame) -> None:
        """A count that has come, of a window through all of which the device ran; others are not read."""
        if frame.observed == frame.length:
            self._windows[frame.window, frame.first] = frame
            if len(self._windows) > _MOST_WINDOWS:
                del self._windows[min(self._windows, key=lambda one: one[1])]
            self._changed = True

    def due(self) -> Callable[[], dict[str, Any]] | None:
        """Function that computes the update, in a thread with no other of its kind; `None` if nothing is due."""
        if not self._changed or self._told is None:
            return None
        self._changed = False
        told = self._told
        ticks = {tick: one for tick, (version, one) in self._ticks.items() if version == told.version}
        windows = [self._windows[key] for key in sorted(self._windows, key=lambda one: one[1])]
        return lambda: {
            "kind": "attack",
            "stream": told.stream,
            "version": told.version,
            **self._update(told, ticks, windows),
        }

    def _update(self, told: Description, ticks: Mapping[int, _Symbol], windows: list[WindowFrame]) -> dict[str, Any]:
        try:
            if told.kind == "windows":
                if self._counts is None or self._counts[0] is not told:
                    self._counts = told, CountAttack(told)
                return _of_counts(told, self._counts[1], windows)
            return _of_symbols(told, ticks)
        except AttackerError as error:
            return {"none": str(error)}
        except (FuguError, ValueError, ArithmeticError, IndexError):
            return {"none": "The description of the stream does not fit together: no attacker can read it."}


def _of_symbols(told: Description, ticks: Mapping[int, _Symbol]) -> dict[str, Any]:
    chains = chains_of(told)
    if not ticks:
        return {"waits": True}
    symbols, shifts = zip(*(ticks.get(t, (-1, 0)) for t in range(min(ticks), max(ticks) + 1)), strict=True)
    found = attacked(told, chains, symbols, min(ticks))
    k = len(told.states)
    shown = [1] if k == 2 else list(range(min(k, _MOST_SHOWN)))
    # A shift only grows, and is not said of a tick without a symbol.
    times = [first - shift for first, shift in enumerate(accumulate(shifts, max), min(ticks))]
    return _update(
        *(told, found, times, [told.states[x] for x in shown], shown),
        read=f"the {len(ticks)} newest symbols that this page received, those after a moment, too"
        + (", and no counts beside them" if told.windows else ""),
        alone=ONE_SYMBOL,
        alone_read="the newest symbol and nothing else",
        guesses=[told.states[x] for x in found.guesses],
    )


def _of_counts(told: Description, attack: CountAttack, windows: list[WindowFrame]) -> dict[str, Any]:
    name, length, counts = attack.window.name, attack.window.length, len(attack.window.groups(told.states))
    ours = (told.version, name, length, counts)
    mine = [one for one in windows if (one.policy_version, one.window, one.length, len(one.counts)) == ours]
    if not mine:
        return {"waits": True}
    shares = [attack.shares(one.counts) for one in mine]
    promised = told.guarantee.of_ticks(mine[0].first, mine[-1].last)
    epsilon = math.inf if promised is None else promised
    newest = shares[-1]
    found = Found(
        *([[one.low] for one in shares], [[one.high] for one in shares], [newest.low_alone], [newest.high_alone]),
        *([moved(min(attack.priors), -epsilon)], [moved(max(attack.priors), epsilon)], [], attack.chains),
        epsilon=promised,
    )
    return _update(
        *(told, found, [one.first + length - one.shift for one in mine], [attack.counted], [0]),
        read=f"the counts of window {name}, one window at a time: what is shown is the probability that any one tick "
        "of the window was in that state",
        alone=ONE_WINDOW,
        alone_read="the newest count, and takes ticks for independent",
        guesses=[attack.counted] * (newest.high >= 0.5) + [attack.others] * (newest.low < 0.5),
    )


def _update(
    told: Description, found: Found, times: Iterable[int], states: list[str], shown: Sequence[int], **words: Any
) -> dict[str, Any]:
    """Update for the page about `shown` states, found at `times`, wall ticks."""
    chains = "the typical chain" if told.chains is not None and told.chains.kind == "bounded" else found.chains
    numbers = ("low_alone", "high_alone", "least", "most")
    beyond = (
        one < found.least[x] - _ROUNDING or other > found.most[x] + _ROUNDING
        for lows, highs in zip(found.low, found.high, strict=True)
        for x, (one, other) in enumerate(zip(lows, highs, strict=True))
    )
    return {
        "attacker": EVERYTHING,
        "believes": chains,
        "epsilon": found.epsilon,
        "states": states,
        "times": [(told.epoch_us + tick * told.period_us) / 1e6 for tick in times],
        "low": [[round(row[x], 4) for row in found.low] for x in shown],
        "high": [[round(row[x], 4) for row in found.high] for x in shown],
        **{name: [round(getattr(found, name)[x], 4) for x in shown] for name in numbers},
        "beyond": any(beyond),
        **words,
    }
