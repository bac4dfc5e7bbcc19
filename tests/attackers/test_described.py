"""Attackers who know a description alone: against all paths, and against what is promised."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, product
from typing import Literal

import numpy as np
import pytest

from fugu.attackers import described
from fugu.attackers.described import believed_chains, read_counts, read_symbols
from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, JointChains, JointStream
from fugu.contract.descriptions import DescribedWindow, Description, describe
from fugu.contract.noise_table import NoiseTable
from tests.support.processes import policy

TABLE = NoiseTable.binary(900_000_000, 400_000_000)
TERNARY = NoiseTable(((2_000_000_000, 3_000_000_000), (900_000_000, 3_300_000_000), (1_100_000_000, 2_100_000_000)))
STICKY = ((0.9, 0.06, 0.04), (0.1, 0.8, 0.1), (0.02, 0.08, 0.9))
BINARY = BinaryChains(q=(0.05, 0.1), r=(0.06, 0.2))
WALK = BoundedChains(states=3, odds_ratio=1e4, transition=STICKY)
ORDER_2 = JointChains(
    streams=(JointStream(name="hr", states=2, rate=1.0),),
    period_us=1_000_000,
    shows=((0,), (1,), (0,), (1,)),
    odds_ratio=62.0,
    steps=2,
    transition=((0.9, 0.1, 0.0, 0.0), (0.0, 0.0, 0.4, 0.6), (0.7, 0.3, 0.0, 0.0), (0.0, 0.0, 0.2, 0.8)),
)


def symbols_of(chains: ChainClass, table: NoiseTable = TABLE) -> Description:
    """A stream of symbols, of as many states as its table."""
    states = tuple(f"s{x}" for x in range(table.states))
    update = {"chains": chains, "table": table.rows, "states": states}
    return describe(policy(epoch_us=0, period_us=1_000_000)).model_copy(update=update)


def counts_of(chains: ChainClass, states: tuple[str, ...] | Literal["histogram"], k: int, length: int) -> Description:
    """A stream of counts, with noise of scale 7/2."""
    window = DescribedWindow(name="some", length=length, stride=length, start=0, states=states, scale="7/2")
    names = tuple(f"s{x}" for x in range(k))
    update = {"kind": "windows", "table": None, "chains": chains, "states": names, "windows": (window,)}
    return describe(policy(epoch_us=0, period_us=1_000_000)).model_copy(update=update)


def enumerated(description: Description, likelihood: dict[tuple[int, ...], float], k: int) -> np.ndarray:
    """(chains, ticks, k) posteriors, by adding up all paths of shown states, weighed by a likelihood."""
    posteriors = []
    for transition, shows in believed_chains(description):
        n, ticks = len(transition), len(next(iter(likelihood)))
        prior = np.linalg.matrix_power((transition + np.eye(n)) / 2, 5000)[0]
        weights = np.zeros((ticks, k))
        for path in product(range(n), repeat=ticks):
            steps = math.prod(transition[a, b] for a, b in pairwise(path))
            weight = prior[path[0]] * steps * likelihood[tuple(int(shows[x]) for x in path)]
            for tick, x in enumerate(path):
                weights[tick, shows[x]] += weight
        posteriors.append(weights / weights.sum(axis=1, keepdims=True))
    return np.array(posteriors)


@pytest.mark.parametrize(
    ("chains", "table"),
    [
        (BINARY, NoiseTable.binary(1_500_000_000, 1_100_000_000)),
        (BinaryChains(q=(0.3, 0.7), r=(0.9, 0.9)), TABLE),
        (WALK, TERNARY),
        (ORDER_2, TABLE),
    ],
)
def test_the_band_of_symbols_is_that_of_all_paths(chains: ChainClass, table: NoiseTable) -> None:
    description, heard = symbols_of(chains, table), [1, -1, 0, 1, 1]
    k, weights = len(table.rows), np.array(table.weights(), dtype=float)

    def weighed(some: Sequence[int]) -> dict[tuple[int, ...], float]:
        paths = product(range(k), repeat=len(some))
        return {
            path: math.prod(weights[x, z] for x, z in zip(path, some, strict=True) if z >= 0) / weights.sum() ** 5
            for path in paths
        }

    answer, every = read_symbols(description, heard), enumerated(description, weighed(heard), k)
    alone, before = enumerated(description, weighed([1]), k)[:, 0], enumerated(description, weighed([-1]), k)[:, 0]
    for name, expected in (("", every), ("_alone", alone), ("_before", before)):
        assert np.array(answer[f"low{name}"]) == pytest.approx(expected.min(axis=0), abs=1e-9)
        assert np.array(answer[f"high{name}"]) == pytest.approx(expected.max(axis=0), abs=1e-9)
    assert answer["guesses"] == sorted({int(weights[-1].argmax()) for weights in every})
    assert answer["chains"] == len(believed_chains(description))


@pytest.mark.parametrize(
    ("description", "groups", "counts"),
    [
        (counts_of(BINARY, ("s1",), 2, 5), [(1,)], [(0,), (4,), (-9,), (60,)]),
        (counts_of(WALK, ("s0", "s2"), 3, 5), [(0, 2)], [(3,), (1,)]),
        (counts_of(BINARY, "histogram", 2, 5), [(0,), (1,)], [(4, 3), (0, 7)]),
        (counts_of(ORDER_2, "histogram", 2, 5), [(0,), (1,)], [(4, 3), (0, 7)]),
    ],
)
def test_the_band_of_counts_is_the_average_over_all_paths_of_each_window(
    description: Description, groups: list[tuple[int, ...]], counts: list[tuple[int, ...]]
) -> None:
    k = len(description.states)
    answer = read_counts(description, 5, Fraction(7, 2), groups, counts)
    for row, released in enumerate(counts):
        likelihood = {}
        for path in product(range(k), repeat=5):
            inside = [sum(x in group for x in path) for group in groups]
            likelihood[path] = math.exp(-sum(abs(a - b) for a, b in zip(inside, released, strict=True)) / 3.5)
        shares = enumerated(description, likelihood, k).mean(axis=1)[:, list(groups[-1])].sum(axis=1)
        assert answer["low"][row][-1] == pytest.approx(shares.min(), abs=1e-9)
        assert answer["high"][row][-1] == pytest.approx(shares.max(), abs=1e-9)
        assert sum(answer["low"][row]) <= 1 + 1e-9 <= sum(answer["high"][row]) + 2e-9


@pytest.mark.long
@pytest.mark.parametrize("ends", [((0.05, 0.1), (0.06, 0.2)), ((0.3, 0.7), (0.3, 0.8))])
def test_no_other_chain_of_the_class_is_far_outside_the_band(
    ends: tuple[tuple[float, float], tuple[float, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside the class something may be a little beyond what 16 of its chains reach: less than a point in a hundred."""
    generator = random.Random(5)
    description = symbols_of(BinaryChains(q=ends[0], r=ends[1]))
    heard = [-1 if t % 7 == 3 else generator.randrange(2) for t in range(60)]
    answer = read_symbols(description, heard)
    monkeypatch.setattr(described, "EACH_WAY", 13)
    dense = read_symbols(description, heard)
    assert (answer["chains"], dense["chains"]) == (16, 169)
    assert (np.array(answer["low"]) - np.array(dense["low"])).max() < 0.01
    assert (np.array(dense["high"]) - np.array(answer["high"])).max() < 0.01
    assert (np.array(answer["high"]) - np.array(answer["low"])).max() > 0.1


@pytest.mark.long
def test_a_long_window_is_read_as_well_and_the_newest_first_where_that_takes_long() -> None:
    description = counts_of(BINARY, ("s1",), 2, 4000)
    answer = read_counts(description, 4000, Fraction(7, 2), [(1,)], [(n,) for n in (500, *[1500] * 9, 1800)])
    assert 0 < len(answer["low"]) < 11
    assert answer["low"][-1][1] - 0.01 < 1800 / 4000 < answer["high"][-1][1] + 0.01


def test_what_says_nothing_of_a_chain_or_does_not_fit_is_answered_by_a_sentence() -> None:
    none = symbols_of(BoundedChains(states=2, odds_ratio=3.0))
    assert "names no chain" in read_symbols(none, [0, 1])["none"]
    odd = symbols_of(WALK)
    assert "do not fit" in read_symbols(odd, [0, 1])["none"]
