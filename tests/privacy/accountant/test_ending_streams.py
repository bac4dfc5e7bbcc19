"""Informed adversaries on streams that end: no member of an interval class, corner or not, loses more than claimed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains
from fugu.privacy.accountant import ChainAccountant
from tests.support.oracle import Array, worst_loss, worst_switched
from tests.support.proofs import check_printed


def symmetric(loss: float) -> Array:
    """Randomised response whose symbols lose this much, in both directions."""
    flip = 1.0 / (1.0 + math.exp(loss))
    return np.array([[1.0 - flip, flip], [flip, 1.0 - flip]])


def member_loss(q: float, r: float, losses: Array) -> float:
    return float(worst_switched(q, r, [symmetric(loss) for loss in losses], informed=True).max())


def test_the_judge_by_sides_is_the_enumeration_of_all_paths() -> None:
    for q, r in ((0.3, 0.2), (0.71, 0.0012), (0.8, 0.7)):
        transition, distribution = np.array([[1 - q, q], [r, 1 - r]]), np.array([r, q]) / (q + r)
        full = worst_loss(distribution, [transition] * 4, symmetric(0.7), informed=True)
        assert member_loss(q, r, np.full(5, 0.7)) == pytest.approx(full.max(), rel=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    ("q", "r", "losses", "corner", "worst"),
    [
        ((0.47, 0.71), 0.0012, [0.1] * 4, 0.241077, 0.258947413),
        ((0.47, 0.71), 0.0012, [0.1] * 5, 0.321064, 0.331863048),
        ((0.1387, 0.2972), 0.0001123, [0.0583] * 14, 0.54308, 0.61722),
        ((0.2817, 0.6885), 0.0001031, [0.0] + [0.0546] * 5, 0.20075, 0.24118),
    ],
)
def test_where_a_stream_ends_the_stickiest_corner_is_not_the_worst(
    q: tuple[float, float], r: float, losses: list[float], corner: float, worst: float
) -> None:
    """A member loses more than the corner, by enumeration; the claim covers it."""
    schedule = np.array(losses)
    accountant = ChainAccountant(BinaryChains(q=q, r=(r, r)))
    claimed = accountant.schedule_loss(schedule, "informed").epsilon
    if len(losses) > 6:
        reached = worst - 1e-4
    else:
        reached = max(member_loss(float(inside), r, schedule) for inside in np.linspace(*q, 25))
        assert member_loss(q[0], r, schedule) == pytest.approx(corner, abs=1e-5)
        if len(losses) == 4:
            check_printed("four ticks lose {} at the corner q = 0.47 and {} at q = 0.71", corner, reached)
            check_printed("therefore gets the universal bound, tick by tick: {} there", claimed)
    assert reached > corner + 0.01
    assert reached == pytest.approx(worst, abs=1e-4)
    assert reached <= claimed <= 1.5 * worst
    if len(set(losses)) == 1:
        assert accountant.loss(losses[0], "informed", length=len(losses)).epsilon == claimed


@pytest.mark.long
def test_an_allowance_of_a_stream_that_ends_holds_for_every_member() -> None:
    """The noise that is planned from it was too small: the stickiest corner decided."""
    (q0, q1), r = (0.47, 0.71), 0.0012
    allowance = ChainAccountant(BinaryChains(q=(q0, q1), r=(r, r))).allowance(0.2, "informed", 6)
    worst = max(member_loss(float(q), r, np.full(6, allowance)) for q in np.linspace(q0, q1, 41))
    assert 0.14 < worst <= 0.2


def random_class(generator: np.random.Generator) -> BinaryChains:
    """Wide and narrow, sticky and not, q + r <= 1 throughout, often rare in one state only."""
    q = np.sort(10.0 ** generator.uniform(*generator.choice([[-4, 0], [-0.6, 0]]), size=2))
    r = np.sort(10.0 ** generator.uniform(*generator.choice([[-5, -2], [-1.5, 0]]), size=2))
    if generator.random() < 0.4:
        q[0] = q[1] * generator.uniform(0.5, 1.0)
    if generator.random() < 0.5:
        r[0] = r[1]
    size = min(1.0, (1.0 - 1e-9) / (q[1] + r[1]))
    q, r = q * size, r * size
    return BinaryChains(q=(float(q[0]), float(q[1])), r=(float(r[0]), float(r[1])))


def members(generator: np.random.Generator, chains: BinaryChains, count: int) -> Array:
    """Corners, edges and inside: (count, 2)."""
    shares = generator.random((count, 2))
    shares = np.where(generator.random((count, 2)) < 0.4, np.round(shares), shares)
    (q0, q1), (r0, r1) = chains.q, chains.r
    q, r = q0 + (q1 - q0) * shares[:, 0], r0 + (r1 - r0) * shares[:, 1]
    return np.column_stack([np.clip(q, q0, q1), np.clip(r, r0, r1)])


def constant_attack(pairs: Array, losses: Array) -> Array:
    """Knowledge of members (count, 2) with one symbol all the time and one state a side, or none.

    Plain vectors Pr(outputs, known state | state) over Pr(known state | state), for both symbols.
    """
    q, r = pairs.T
    n, array = len(losses), np.zeros(len(pairs))
    transition = np.array([[1 - q, q], [r, 1 - r]]).transpose(2, 0, 1)
    starts = [transition[:, :, 0], transition[:, :, 1], None]
    for favoured in (0, 1):
        worst = [np.zeros((n, len(pairs))) for _ in range(2)]
        for way, order in enumerate((losses, losses[::-1])):
            for reading, start in ((reading, start) for reading in range(n) for start in starts):
                if start is None and reading != n - 1:
                    continue
                seen = without = np.ones((len(pairs), 2)) if start is None else start
                for tick in range(reading if start is None else reading - 1, -1, -1):
                    ratio = np.log(seen / without)
                    if start is not None or tick < reading:
                        side = ratio[:, favoured] - ratio[:, 1 - favoured]
                        worst[way][tick] = np.maximum(worst[way][tick], side)
                    weights = np.ones(2)
                    weights[favoured] = math.exp(order[tick])
                    seen = np.einsum("pxy,py->px", transition, seen * weights)
                    without = np.einsum("pxy,py->px", transition, without)
        array = np.maximum(array, (losses[:, None] + worst[0] + worst[1][::-1]).max(axis=0))
    return array


def test_the_attack_with_one_symbol_is_as_strong_as_all_of_them() -> None:
    for seed in range(6):
        generator = np.random.default_rng(seed)
        pairs, losses = members(generator, random_class(generator), 3), generator.uniform(0.0, 1.5, 5)
        expected = [member_loss(float(q), float(r), losses) for q, r in pairs]
        assert constant_attack(pairs, losses) == pytest.approx(expected, rel=1e-9)


def constant_attacks(seeds: range, count: int) -> tuple[int, float]:
    """Hold many members, on up to 12 ticks, against their class; pairs tried, nearest share."""
    tried, nearest = 0, 0.0
    for seed in seeds:
        generator = np.random.default_rng(seed)
        chains, n = random_class(generator), int(generator.integers(3, 13))
        size = 10.0 ** generator.uniform(-3, 0.5)
        losses = np.full(n, size) if generator.random() < 0.6 else size * generator.random(n)
        claimed = ChainAccountant(chains).schedule_loss(losses, "informed").epsilon
        reached = constant_attack(members(generator, chains, count), losses)
        assert reached.max() <= claimed * (1.0 + 1e-12) + 1e-13, (seed, reached.max(), claimed)
        tried, nearest = tried + count, max(nearest, float(reached.max()) / claimed)
    return tried, nearest


@pytest.mark.long
def test_no_one_of_thousands_of_members_loses_more_than_its_class() -> None:
    tried, nearest = constant_attacks(range(10), 1000)
    assert tried == 10_000
    assert nearest > 0.9


@pytest.mark.soak
def test_no_one_of_a_hundred_thousand_members_loses_more_than_its_class() -> None:
    tried, nearest = constant_attacks(range(1000, 1100), 1000)
    assert tried == 100_000
    assert nearest > 0.9


@pytest.mark.long
@pytest.mark.parametrize("rate", [1e-9, 50.0, 200.0, 650.0])
def test_extreme_losses_and_rare_changes_get_a_bound(rate: float) -> None:
    for q, r in (((1e-300, 0.5), (1e-300, 0.5)), ((0.2, 0.5), (0.1, 0.5)), ((1e-8, 1e-7), (0.3, 0.9))):
        epsilon = ChainAccountant(BinaryChains(q=q, r=r)).schedule_loss(np.full(5, rate), "informed").epsilon
        assert rate <= epsilon <= 5 * rate * (1.0 + 1e-9)
