"""Streams whose table changes with the version of the policy: what each version is certified for covers every switch.

The judge adds up: every output, every set of known states, every tick, every order of the tables.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.errors import GuaranteeError
from fugu.contract.guarantee import Guarantee, StreamOutputs, check_outputs, loss, tick_ratios
from fugu.contract.losses import Adversary, exp_up
from fugu.contract.noise_table import SCALE, NoiseTable
from tests.support.oracle import Array, count_density, together, worst_release_loss, worst_switched
from tests.support.proofs import check_printed

ALTERNATING = BinaryChains(q=(0.32532548795182986,) * 2, r=(0.9810878198834825,) * 2)
STRONG_0 = NoiseTable(rows=((3037014152,), (4255144774,)))
STRONG_1 = NoiseTable(rows=((47676151,), (893117453,)))
ANY = {a: Guarantee(epsilon=1e6, adversary=a) for a in ("ignorant", "informed", "universal")}


def emission(table: NoiseTable) -> Array:
    return np.array(table.weights()) / SCALE


@pytest.mark.long
def test_tables_that_are_strong_in_opposite_directions_cannot_take_turns() -> None:
    """Each alone would pass at 4; one switch makes 5.536 of it, taking turns 7.154."""
    q, r = ALTERNATING.q[0], ALTERNATING.r[0]
    a, b = emission(STRONG_0), emission(STRONG_1)
    alone = [loss(ALTERNATING, table, "ignorant").epsilon for table in (STRONG_0, STRONG_1)]
    assert alone == [pytest.approx(3.985, abs=5e-4), pytest.approx(3.858, abs=5e-4)]
    one_switch = max(
        worst_switched(q, r, [x] * count + [y] * (9 - count), informed=False).max()
        for x, y in ((a, b), (b, a))
        for count in range(1, 9)
    )
    in_turns = worst_switched(q, r, [a, b] * 5 + [a], informed=False).max()
    assert one_switch == pytest.approx(5.536, abs=2e-3)
    assert in_turns == pytest.approx(7.154, abs=2e-3)
    check_printed(
        "With q = 0.32532549, r = 0.98108782 and rows (3037014152), (4255144774) and (47676151), (893117453), {} and {}"
        " alone, {} after one switch and {} in turns.",
        *alone,
        one_switch,
        in_turns,
    )
    for table in (STRONG_0, STRONG_1):
        with pytest.raises(GuaranteeError, match="above the 4\\.0"):
            check_outputs(ALTERNATING, StreamOutputs(table), Guarantee(epsilon=4.0, adversary="ignorant"))
    assert (
        max(check_outputs(ALTERNATING, StreamOutputs(t), ANY["ignorant"]).epsilon for t in (STRONG_0, STRONG_1))
        >= in_turns
    )


def random_table(generator: np.random.Generator, symbols: int) -> NoiseTable:
    """Flips of any size, often strong in one direction only."""
    while True:
        weights = generator.dirichlet(np.full(symbols, 0.4), size=2)
        cuts = (np.cumsum(weights, axis=1)[:, :-1] * SCALE).astype(np.int64)
        if (weights > 1e-5).all():
            return NoiseTable(rows=tuple(tuple(int(c) for c in row) for row in cuts))


def enumerate_switches(seeds: range, ticks: int) -> float:
    """Hold random switches against what their tables are certified for; return the largest share of it that is lost."""
    closest = 0.0
    for seed in seeds:
        generator = np.random.default_rng(seed)
        q, r = generator.uniform(0.02, 0.98, 2)
        if seed % 4:
            q, r = max(q, 1 - r), max(r, 1 - q)
        tables = [random_table(generator, 2 + seed % 2) for _ in range(2 + seed % 3 // 2)]
        chains = BinaryChains(q=(q, q), r=(r, r))
        for informed, adversary in ((False, "ignorant"), (True, "informed"), (True, "universal")):
            certified = [check_outputs(chains, StreamOutputs(table), ANY[adversary]) for table in tables]
            bound = max(claim.epsilon for claim in certified)
            order = generator.integers(len(tables), size=ticks)
            for which in (order, np.arange(ticks) % len(tables), np.arange(ticks) // 2 % len(tables)):
                array = worst_switched(q, r, [emission(tables[index]) for index in which], informed=informed)
                assert array.max() <= bound + 1e-12, (seed, adversary)
                closest = max(closest, float(array.max()) / bound if adversary != "universal" else 0.0)
                if q + r <= 1:  # no rule is needed: each direction is at most what one table has for it
                    alone = np.max([loss(chains, table, adversary)[1:3] for table in tables], axis=0)
                    assert (array <= alone + 1e-12).all(), (seed, adversary)
    return closest


@pytest.mark.long
def test_no_order_of_certified_tables_exceeds_what_each_is_certified_for() -> None:
    assert enumerate_switches(range(6), 6) > 0.99


@pytest.mark.soak
def test_no_order_of_many_certified_tables_exceeds_what_each_is_certified_for() -> None:
    assert enumerate_switches(range(1000, 1060), 7) > 0.99


@pytest.mark.long
@pytest.mark.parametrize("adversary", ["ignorant", "informed"])
@pytest.mark.parametrize("seed", [0, 1])
def test_windows_may_come_and_go_with_versions(seed: int, adversary: Adversary) -> None:
    """Ticks 0-1 have one table and a window, ticks 2-3 another table, ticks 4-5 a third mechanism: a window alone."""
    generator = np.random.default_rng(seed)
    q, r = generator.uniform(0.5, 0.98, 2)
    chains = BinaryChains(q=(q, q), r=(r, r))
    tables = [random_table(generator, 2) for _ in range(2)]
    scales = [Fraction(int(s), 10) for s in generator.integers(3, 30, 2)]
    silent = np.array([[1.0], [1.0]])
    by_tick = [emission(tables[0])] * 2 + [emission(tables[1])] * 2 + [silent] * 2

    def symbols(paths: Array) -> Array:
        outputs = list(product(*(range(e.shape[1]) for e in by_tick)))
        logs = [np.log(e[paths[:, tick]]) for tick, e in enumerate(by_tick)]
        return np.stack([sum(logs[tick][:, z] for tick, z in enumerate(out)) for out in outputs], axis=1)

    release = together(symbols, count_density(float(scales[0]), 0, 1), count_density(float(scales[1]), 4, 5))
    transition, distribution = np.array([[1 - q, q], [r, 1 - r]]), np.array([r, q]) / (q + r)
    array = worst_release_loss(distribution, transition, 6, release, informed=adversary == "informed")
    first, last = exp_up(1 / scales[0]), exp_up(1 / scales[1])
    ratios = tick_ratios(tables[0])
    versions = [(ratios[0] * first, ratios[1] * first), tick_ratios(tables[1]), (last, last)]
    bound = max(chains.ratio_loss(*chains.lasting_ratios(*pair), adversary).epsilon for pair in versions)
    assert array.max() <= bound + 1e-12


def test_the_larger_ratio_counts_from_the_first_class_that_can_alternate() -> None:
    """At q + r = 1 a table is held to its own two ratios; one float above, to the larger of them."""
    table = NoiseTable.binary(1 << 30, 1 << 29)
    larger = Fraction(max(tick_ratios(table)))
    at, above = (BinaryChains(q=(0.25, 0.5), r=(0.25, r)) for r in (0.5, math.nextafter(0.5, 1.0)))
    assert check_outputs(at, StreamOutputs(table), ANY["ignorant"]) == loss(at, table, "ignorant")
    held = check_outputs(above, StreamOutputs(table), ANY["ignorant"])
    assert held == above.ratio_loss(larger, larger, "ignorant")
    assert held.epsilon_10 > loss(above, table, "ignorant").epsilon_10
