"""Attackers who know a stream's public description, and believe one chain of its class.

Of intervals of q and r they believe 16 chains, evenly spaced in the logarithm, with the ends among them. Of a bound on
odds ratios they believe the typical chain. Answers are plain numbers, for a process without numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fugu.attackers.learning import EXACT_TICKS, Attacker, separate_ticks, smoothing
from fugu.attackers.outputs import CountOutputs, Knowledge, Outputs, SymbolOutputs
from fugu.chains.arrays import Floats, Ints
from fugu.contract.chains import BinaryChains
from fugu.contract.descriptions import Description
from fugu.contract.noise_table import NoiseTable

__all__ = ["read_counts", "read_symbols"]

EACH_WAY = 4
"""The number of values of q, and of r, taken from an interval, with its ends."""
_MOST_CELLS = 400_000_000
"""The most cells in the likelihoods of all windows that are read, which takes some seconds."""
_NO_CHAIN = (
    "The class is all chains whose steps' odds ratios are bounded, and names no chain that an attacker could believe."
)
_UNFIT = "The messages do not fit the description of the stream: no attacker can read them."

Answer = dict[str, Any]
"""The least and largest probabilities over the chains; or under `none` a sentence that says why there are none.

`low` and `high` (rows, g) are given all messages, `low_alone` and `high_alone` (g,) given only the newest message,
`low_before` and `high_before` (g,) given none. `guesses` lists the groups that some chain finds likeliest in the newest
row; `chains` is the number of chains.
"""


class Belief(NamedTuple):
    """A believed chain: its transition matrix (n, n), and the stream's state (n,) that each of its states shows."""

    transition: Floats
    shown_states: Ints


def believed_chains(description: Description) -> list[Belief]:
    """List the chains that attackers of a stream believe; the list is empty if the class names no chain for it."""
    chains = description.chains
    if isinstance(chains, BinaryChains):
        grid = product(_spaced_values(*chains.q), _spaced_values(*chains.r))
        return [Belief(np.array([[1.0 - q, q], [r, 1.0 - r]]), np.arange(2)) for q, r in grid]
    if chains is None:
        return []
    try:
        shown_states = chains.shown_states(chains.stream_index(description.device, description.stream))
    except ValueError:
        return []
    return [Belief(np.array(transition), np.array(shown_states)) for transition in chains.typical_matrices]


def read_symbols(description: Description, symbols: Sequence[int]) -> Answer:
    """Read consecutive symbols, -1 for a missing symbol; each row of the answer is a tick, each column a state."""

    def make_view(shown_states: Ints, symbols: Ints) -> Outputs:
        weights = np.array(NoiseTable(description.table or ()).weights(), dtype=np.float64)[shown_states]
        emission = weights / weights.sum(axis=1, keepdims=True)
        return SymbolOutputs(np.where(symbols < emission.shape[1], symbols, -1), emission)

    groups = [(x,) for x in range(len(description.states))]
    symbol_rows = np.array(symbols, dtype=np.int64)
    newest_rows = symbol_rows[symbol_rows >= 0][-1:] if (symbol_rows >= 0).any() else symbol_rows[-1:]
    return _answer(groups, make_view, symbol_rows, newest_rows, 1, believed_chains(description))


def read_counts(
    description: Description,
    length: int,
    scale: Fraction,
    groups: Sequence[tuple[int, ...]],
    counts: Sequence[tuple[int, ...]],
) -> Answer:
    """Read noisy counts of whole windows, each by itself; each row of the answer averages over a window's ticks.

    Each of the `groups` of states is counted. If there is a single group, the answer has a first column for all other
    states. If reading all windows would take long, only the newest are read, and the others have no row.
    """

    def make_view(shown_states: Ints, counts: Ints) -> Outputs:
        chain_groups = tuple(tuple(np.flatnonzero(np.isin(shown_states, group)).tolist()) for group in groups)
        ticks, first_ticks = len(counts) * length, np.arange(len(counts)) * length
        return CountOutputs(
            counts, first_ticks, length, scale, chain_groups, ticks, shown_states.size, np.ones(ticks, dtype=np.int64)
        )

    chains = believed_chains(description)
    other_states = tuple(x for x in range(len(description.states)) if x not in groups[0])
    cells_per_window = sum(length * min(length, EXACT_TICKS) * len(chain.shown_states) ** 2 for chain in chains)
    count_rows = np.array(counts[-max(1, _MOST_CELLS // max(1, cells_per_window)) :], dtype=np.int64)
    answer_groups = [other_states, groups[0]] if len(groups) == 1 else groups
    return _answer(answer_groups, make_view, count_rows, count_rows[-1:], length, chains)


def _answer(
    groups: Sequence[tuple[int, ...]],
    make_view: Callable[[Ints, Ints], Outputs],
    heard_rows: Ints,
    newest_rows: Ints,
    length: int,
    chains: Sequence[Belief],
) -> Answer:
    """Answer a question about groups of states by every believed chain, with the least and largest probabilities.

    The heard rows are of `length` ticks each, the newest last. `make_view` makes the attackers' view of some rows from
    the states that a chain shows.
    """
    if not chains:
        return {"none": _NO_CHAIN}
    memberships = [np.array([[x in group for group in groups] for x in c.shown_states], np.float64) for c in chains]

    def read(attacker: Attacker, rows: Ints) -> Floats:
        """The groups' probabilities (chains, rows, g) by an attacker who reads some rows."""
        group_probs = []
        for chain, membership in zip(chains, memberships, strict=True):
            view = make_view(chain.shown_states, rows)
            segments = np.arange(view.ticks) // (length if length > 1 else view.ticks)
            posteriors = attacker(view, Knowledge(chain.transition, segments)) @ membership
            group_probs.append(posteriors.reshape(-1, length, len(groups)).mean(axis=1))
        return np.array(group_probs)

    try:
        row_probs, newest_probs = read(smoothing, heard_rows), read(separate_ticks, newest_rows)[:, -1]
        priors = [
            Knowledge(chain.transition, np.zeros(1, dtype=np.int64)).distribution @ membership
            for chain, membership in zip(chains, memberships, strict=True)
        ]
    except (ValueError, IndexError, ArithmeticError):
        return {"none": _UNFIT}
    probs_by_suffix = {"": row_probs, "_alone": newest_probs, "_before": np.array(priors)}
    return {
        **{f"low{suffix}": probs.min(axis=0).tolist() for suffix, probs in probs_by_suffix.items()},
        **{f"high{suffix}": probs.max(axis=0).tolist() for suffix, probs in probs_by_suffix.items()},
        "guesses": sorted({int(posterior.argmax()) for posterior in row_probs[:, -1]}),
        "chains": len(chains),
    }


def _spaced_values(low: float, high: float) -> list[float]:
    return [low] if low == high else np.geomspace(low, high, EACH_WAY).tolist()
