"""Shares are drawn as rational numbers say, without an edge; so many together are discrete Laplace noise, exactly."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest

from fugu.audit.exact import recompute, window_rate
from fugu.core.shares import UNIT, Shares, random_bits, rate_up
from tests.support.groups import group, member_policy, shared

SMALL = [(1, 1 << 31), (2, 3 << 30), (3, 4_000_000_000), (8, 4_200_000_000), (48, 4_290_000_000)]


def law(homes: int, threshold: int, terms: int) -> tuple[list[Fraction], Fraction]:
    """P(0), P(1), ... of one side of a share, and p."""
    a = Fraction(threshold, 1 << UNIT)
    p, probabilities = 1 - a**homes, [a]
    for k in range(1, terms):
        probabilities.append(probabilities[-1] * p * Fraction(homes * (k - 1) + 1, homes * k))
    return probabilities, p


def inverted(homes: int, threshold: int, bits: Callable[[int], int]) -> int:
    """The k whose cell [F(k-1), F(k)) the number of these bits is in, in fractions."""
    a = Fraction(threshold, 1 << UNIT)
    p, word, width = 1 - a**homes, bits(64), 64
    while True:
        low, high = Fraction(word, 1 << width), Fraction(word + 1, 1 << width)
        term, total, k = a, a, 0
        while low >= total:
            k += 1
            term *= p * Fraction(homes * (k - 1) + 1, homes * k)
            total += term
        if high <= total:
            return k
        word, width = word << 64 | bits(64), width + 64


@pytest.mark.parametrize(("homes", "threshold"), SMALL)
def test_integers_draw_what_fractions_draw_from_the_same_bits(homes: int, threshold: int) -> None:
    shares, seeds = Shares(threshold, homes), random.Random(homes)
    for _ in range(100):
        seed = seeds.getrandbits(64)
        getrandbits, other = random.Random(seed).getrandbits, random.Random(seed).getrandbits
        assert shares.draw(getrandbits) == inverted(homes, threshold, other) - inverted(homes, threshold, other)


@pytest.mark.parametrize(("homes", "threshold"), [(3, 4_000_000_000), (48, 4_200_000_000)])
def test_bits_on_a_border_are_decided_by_more_of_them(homes: int, threshold: int) -> None:
    """The first 64 bits leave open on which side they are; the next ones say it."""
    probabilities, _ = law(homes, threshold, 6)
    shares, total, undecided = Shares(threshold, homes), Fraction(0), 0
    for probability in probabilities:
        total += probability
        for step in (-1, 0, 1):
            for tail in (0, 1 << 63, (1 << 64) - 1):
                words = [int(total * (1 << 64)) + step, tail, tail, tail]
                used: list[Iterator[int]] = [iter(words), iter(words)]
                drawn = shares._one_side(lambda _width, it=used[0]: next(it))
                assert drawn == inverted(homes, threshold, lambda _width, it=used[1]: next(it))
                assert list(used[0]) == list(used[1])
                undecided += step == 0 and words[0] < 1 << 64
    assert undecided


def test_so_many_shares_are_discrete_laplace_noise_exactly() -> None:
    """The generating functions multiply: m sides are geometric, and two of these differ by discrete Laplace noise."""
    for homes, threshold in [*SMALL[:4], (5, 0xE000_0000)]:
        single, p = law(homes, threshold, 12)
        total = [Fraction(1), *[Fraction(0)] * 11]
        for _ in range(homes):
            total = [sum((total[i] * single[k - i] for i in range(k + 1)), Fraction(0)) for k in range(12)]
        assert total == [(1 - p) * p**k for k in range(12)]


def test_a_share_has_no_largest_value() -> None:
    """The tail of the words goes on where 64 bits end: no edge of the support."""
    shares = Shares(3_000_000_000, 3)
    words = iter([(1 << 64) - 1] * 4 + [0] * 8)
    assert shares._one_side(lambda _width: next(words)) > 90


def test_the_rate_is_never_below_the_true_one_and_hardly_above() -> None:
    """By the second certificate's code, which takes logarithms of fractions."""
    for homes, noise in [(3, 2_000_000_000), (48, 4_033_000_000), (800, 4_294_000_000), (24, 3_900_000_000)]:
        window = group(honest=homes, noise=noise)
        document = {"sums": [{"group": {"honest": homes, "noise": noise}}]}
        exact = window_rate(document)
        assert exact <= window.rate
        assert exact > Fraction(1, 2) or window.rate <= exact * (1 + Fraction(1, 10**4)) + Fraction(1, 1 << 31)


def test_the_second_certificate_confirms_a_policy_with_a_sum_and_not_one_that_claims_less() -> None:
    policy = member_policy("watch", shared(noise=2_000_000_000))
    document = policy.model_dump(mode="json")
    (claim,) = recompute(document)
    assert claim.loss <= Fraction(policy.verify().epsilon) <= claim.loss * (1 + Fraction(1, 10**4))
    document["guarantee"]["epsilon"] = float(claim.loss) * 0.999_999
    (claim,) = recompute(document)
    assert claim.loss > claim.stated


def test_a_smaller_threshold_is_more_noise() -> None:
    assert rate_up(4_000_000_000, 48) < rate_up(4_000_000_001, 48)
    for wrong in ((0, 3), (1 << 32, 3), (5, 0)):
        with pytest.raises(ValueError, match="threshold"):
            rate_up(*wrong)
        with pytest.raises(ValueError, match="threshold"):
            Shares(*wrong)


def test_bits_are_wiped_once_they_are_a_number() -> None:
    seen: list[bytearray] = []

    def entropy(buffer: bytearray) -> None:
        seen.append(buffer)
        buffer[:] = b"\x01" * len(buffer)

    assert random_bits(entropy)(64) == 0x0101010101010101
    assert seen == [bytearray(8)]
