"""Bounds in integers, against the second certificate and exact fractions: close, and never below the truth."""

from __future__ import annotations

import math
import random
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest

from fugu.audit.exact.binary import binary_loss, odds_ratio_loss
from fugu.contract.losses import Adversary
from fugu.core import leakage
from fugu.core.leakage import ONE, exp_up, losses, odds_leakage, ratio_up, times_up
from tests.support.recursions import DIGITS, exact_loss

ADVERSARIES: tuple[Adversary, ...] = ("ignorant", "informed", "universal")
EXCESSES = (1e-12, 1e-6, 0.01, 1.0, 20.0)


def _ratio(generator: random.Random) -> int:
    return ONE + int(ONE * generator.choice(EXCESSES) * generator.random())


def _leaving(generator: random.Random) -> tuple[float, float]:
    """How likely each state is left: hardly ever, mostly, or anything."""
    kind = generator.randrange(3)
    rare = [0.49 * generator.random() * 10.0 ** -generator.randrange(5) for _ in range(2)]
    chain, other = rare if kind == 0 else [1 - x for x in rare] if kind == 1 else [generator.random() for _ in range(2)]
    return chain, other


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("seed", range(4))
def test_a_loss_is_that_of_the_second_certificate(seed: int, adversary: Adversary) -> None:
    """Of a chain, and of a class."""
    generator = random.Random(f"{seed} {adversary}")
    for _ in range(6):
        q, r = _leaving(generator)
        ends = [(low, low if generator.random() < 0.6 else min(1.3 * low, (1 + low) / 2)) for low in (q, r)]
        up, down = _ratio(generator), _ratio(generator)
        members = [bound.as_integer_ratio() for pair in ends for bound in pair]
        (q0, q1), (r0, r1) = ((Fraction(low), Fraction(high)) for low, high in ends)
        if q1 + r1 > 1:
            up = down = max(up, down)
        largest = max(losses(members, up, down, adversary))
        second = binary_loss((q0, q1), (r0, r1), (Fraction(up, ONE), Fraction(down, ONE)), adversary)
        assert abs(largest / ONE / second - 1) < Fraction(1, 10**24), (ends, up, down)


@pytest.mark.parametrize("seed", range(3))
def test_a_loss_by_odds_ratios_is_that_of_the_second_certificate_and_solves_its_equation(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(40):
        odds, ratio = Fraction(1 + 10.0 ** generator.uniform(-6, 12)), _ratio(generator)
        leakage = odds_leakage(odds.as_integer_ratio(), ratio)
        assert abs(
            Fraction(times_up(ratio, leakage, leakage), ONE) / odds_ratio_loss(odds, Fraction(ratio, ONE)) - 1
        ) < (Fraction(1, 10**20))
        with localcontext() as context:
            context.prec = DIGITS
            root, u = (Decimal(odds.numerator) / odds.denominator).sqrt(), Decimal(ratio) * leakage / ONE / ONE
            spread = ((root * u.sqrt() + 1) / (root + u.sqrt())) ** 2
            assert spread <= Decimal(leakage) / ONE * (1 + Decimal("1e-36"))


@pytest.mark.parametrize(("q", "r", "excess"), [(47, 34, 36), (33, 46, 38), (46, 44, 37), (53, 51, 39), (70, 3, 9)])
def test_a_known_state_that_is_10_to_the_11_ticks_away_tells_no_more(q: int, r: int, excess: int) -> None:
    """Or farther than is searched, or of steps too rare for the digits: then odds ratios bound it."""
    steps, ratio = (Fraction(1, 1 << q), Fraction(1, 1 << r)), 1 + Fraction(1, 1 << excess)
    chain = [step.as_integer_ratio() for step in steps]
    most, _ = losses((chain[0], chain[0], chain[1], chain[1]), ratio_up(*ratio.as_integer_ratio()), ONE, "informed")
    ticks = [1 << level for level in range(0, 62, 3)]
    with localcontext() as context:
        context.prec = DIGITS
        worst = max(exact_loss(*steps, ratio, bit, each) for bit in (0, 1) for each in ticks)
        weight = Decimal(ratio.numerator) / ratio.denominator
        assert weight * worst * worst <= Decimal(most) / ONE * (1 + Decimal("1e-35"))


@pytest.mark.parametrize("seed", range(4))
def test_the_walk_alone_finds_the_most_that_a_climb_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The climb makes it quick and nothing else: what is left out on the way is proven to be less."""
    generator = random.Random(seed)
    for _ in range(12):
        q, r = (generator.uniform(0.01, 0.99).as_integer_ratio() for _ in range(2))
        up, down, bounds = _ratio(generator), _ratio(generator), []
        for climb in (leakage._climb, lambda *_: 0):
            monkeypatch.setattr(leakage, "_climb", climb)
            bounds.append(max(losses((q, q, r, r), up, down, "informed")))
        assert abs(Fraction(bounds[0], bounds[1]) - 1) < Fraction(1, 1 << 80)


@pytest.mark.parametrize("bits", [192, 24])
@pytest.mark.parametrize("stored", [64, 1])
@pytest.mark.parametrize("seed", range(4))
def test_a_stretch_of_ticks_is_bounded_from_both_sides_by_exact_fractions(
    seed: int, stored: int, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few bits, too: then every rounding to the wrong side would show. A board stores few powers of a map."""
    monkeypatch.setattr(leakage, "_MAP_BITS", bits)
    monkeypatch.setattr(leakage, "_STORED", stored)
    generator = random.Random(seed)
    rare = [Fraction(0.49 * generator.random() * 10.0 ** -generator.randrange(6)) for _ in range(2)]
    for alternates in (False, True):
        q, r = (1 - x if alternates else x for x in rare)
        up, down = ONE + generator.randrange(1, ONE), ONE + generator.randrange(1, ONE)
        ends = q.as_integer_ratio(), r.as_integer_ratio()
        scale = q.denominator * r.denominator
        a, b, c, d = (int(x * scale) for x in (1 - q, q, r, 1 - r))
        plain = leakage._product((a, b, c, d), (a, b, c, d)) if alternates else (a, b, c, d)
        lower, upper = leakage._Powers(plain, False), leakage._Powers(plain, True)

        def tick(u: Fraction, weight: Fraction = Fraction(1), q: Fraction = q, r: Fraction = r) -> Fraction:
            return ((1 - q) * u * weight + q) / (r * u * weight + 1 - r)

        for _ in range(10):
            start = Fraction(generator.randrange(ONE // 4, 4 * ONE), ONE)
            m, n, near = start * generator.choice((1, 1, 3)), start, int(start * ONE)
            level = generator.randrange(5)
            here, ratios = m / n, []
            for _ in range(1 << level):
                m, n = tick(m, Fraction(up, ONE)), tick(n)
                if alternates:
                    m, n = tick(m, Fraction(ONE, down)), tick(n)
                ratios.append(m / n)
            below, above = lower.image(near, level), upper.image(near, level)
            assert Fraction(below, ONE) <= n <= Fraction(above, ONE)
            assert bits < 192 or above - below <= 1 << 12
            sides = min(near, below), max(near, above)
            bridge = leakage._bridge((a, b, c, d), ends, (up, down if alternates else 0), sides)
            most = leakage._Powers(bridge, True).image(math.ceil(here * ONE), level)
            assert max(ratios) <= max(here, Fraction(most, ONE)) * (1 + Fraction(1, 1 << 100))
            if not level and bits == 192:
                bridge = leakage._bridge((a, b, c, d), ends, (up, down if alternates else 0), (near, near))
                exact = leakage._Powers(bridge, True).image(math.ceil(here * ONE), 0)
                assert exact <= ratios[0] * ONE * (1 + Fraction(1, 1 << 80)), "with one end it is the tick itself"


def test_the_exponential_is_rounded_up_and_close() -> None:
    for top, bottom in ((1, 3), (10**10, 7 * 10**8), (2, 10**9), (999, 1), (1, 10**10)):
        with localcontext() as context:
            context.prec = 600
            exact = (Decimal(top) / bottom).exp() * ONE
            assert exact <= exp_up(top, bottom) <= exact * (1 + Decimal(2) ** -160) + 2
    assert exp_up(0, 1) == ONE
    with pytest.raises(ValueError, match="more than 1000 nats"):
        exp_up(1001, 1)
