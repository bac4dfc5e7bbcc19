"""Every claim of the accountant and of the papers' mechanisms by enumeration, for chains at the edge of what is one.

Chains with zeros, periodic, reducible and deterministic ones, steps of 1e-17. Every kind of start; adversaries who know
states and who know none; counts, histograms, symbols, several at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.losses import Adversary
from fugu.privacy.accountant import ChainAccountant, ChainLoss
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilts import mqm_approx, mqm_exact, quilt_accountant
from fugu.privacy.wasserstein import wasserstein_states
from tests.support.oracle import (
    Array,
    count_density,
    enumerated_losses,
    extreme_chain,
    extreme_start,
    histogram_density,
    starts_anyhow,
    symbol_density,
    together,
)

ROUNDING = 1e-12  # of the enumeration itself, relative and absolute
START_KINDS = ("given", "any", "stationary")


class Release(NamedTuple):
    """Releases, and their rates (n, k, k)."""

    name: str
    density: Callable[[Array], Array]
    rates: Array


def a_chain(generator: np.random.Generator, k: int, start: str) -> tuple[MarkovChain, Array]:
    """A chain with its start, and the distributions of the first tick that an enumeration tries."""
    while True:
        transition = extreme_chain(generator, k)
        if start == "any":
            return MarkovChain(transition, None), starts_anyhow(generator, k)
        if start == "given":
            chain = MarkovChain(transition, extreme_start(generator, k))
        else:
            try:
                chain = MarkovChain.stationary(transition)
            except ChainClassError:  # several closed classes: no such start
                continue
        return chain, chain.initial[None, :]


def a_release(generator: np.random.Generator, k: int, n: int) -> Release:
    others = 1.0 - np.eye(k)
    scale = float(generator.choice([0.1, 0.5, 1.0, 3.0, 20.0]) * generator.uniform(0.8, 1.2))
    ticks = np.zeros(n)
    first, last = sorted(generator.integers(n, size=2)) if generator.random() < 0.4 else (0, n - 1)
    ticks[first : last + 1] = 1.0
    counted = tuple(np.flatnonzero(generator.random(k) < 0.5)) or (k - 1,)
    kind = generator.choice(["count", "histogram", "symbols", "together"])
    differs = np.array([[(x in counted) != (y in counted) for y in range(k)] for x in range(k)], dtype=float)
    count = Release("count", count_density(scale, first, last, counted), ticks[:, None, None] * differs / scale)
    if kind == "count":
        return count
    if kind == "histogram" and n**k <= 300:
        return Release("histogram", histogram_density(scale, 0, n - 1, k), np.full((n, 1, 1), 2 / scale) * others)
    emission = generator.dirichlet(np.full(2, 0.7), size=k) * 0.98 + 0.01
    rate = np.log(emission[:, None, :] / emission[None, :, :]).max(axis=2)
    symbols = Release("symbols", symbol_density(emission, n), np.broadcast_to(rate, (n, k, k)))
    if kind == "symbols":
        return symbols
    return Release("together", together(count.density, symbols.density), count.rates + symbols.rates)


class Tally:
    """How near the enumerations came, over everything that was checked."""

    def __init__(self) -> None:
        self.checked, self.exact, self.worst, self.least_exact = 0, 0, 0.0, 1.0

    def add(self, claim: float, exact: float, where: object) -> None:
        assert exact <= claim * (1.0 + ROUNDING) + ROUNDING, (where, exact, claim)
        self.checked += 1
        if claim > 0.0:
            self.worst = max(self.worst, exact / claim)

    def add_exact(self, claim: ChainLoss, exact: float, where: object) -> None:
        if claim.bound == "exact":
            assert exact >= claim.epsilon * (1.0 - 1e-9) - ROUNDING, (where, exact, claim)
            self.exact += 1
            if claim.epsilon > 1e-3:
                self.least_exact = min(self.least_exact, exact / claim.epsilon)

    def __str__(self) -> str:
        return (
            f"{self.checked} claims, largest enumeration/claim {self.worst:.15f}; "
            f"{self.exact} said to be exact, least {self.least_exact:.15f}"
        )


def check_accountant(generator: np.random.Generator, tally: Tally) -> None:
    """One chain, one release: the schedule's claim tick by tick, and that of a stream with its largest rate."""
    k = int(generator.choice([2, 2, 3, 4]))
    start = str(generator.choice(START_KINDS))
    adversary: Adversary = "informed" if generator.random() < 0.5 else "ignorant"
    n = int(generator.integers(1, {2: 7, 3: 5 if adversary == "informed" else 6, 4: 4}[k]))
    chain, starts = a_chain(generator, k, start)
    release = a_release(generator, k, n)
    where = (chain, release.name, start, adversary, n)
    array = enumerated_losses(starts, chain.transition, n, release.density, informed=adversary == "informed")
    accountant = ChainAccountant((chain,))
    claim = accountant.schedule_loss(release.rates, adversary)
    assert claim.by_tick is not None
    for tick, loss in enumerate(claim.by_tick):
        tally.add(float(loss), float(array[tick]), (*where, tick))
    # A count of ticks or of states that cannot differ attains its rates only where they do.
    tally.add_exact(claim, float(array.max()), where)
    constant = release.rates.max(axis=0)
    tally.add(accountant.schedule_loss(release.rates, "universal").epsilon, float(array.max()), (*where, "universal"))
    if generator.random() < 0.2:
        tally.add(accountant.loss(constant, adversary, n).epsilon, float(array.max()), (*where, "loss"))
        try:
            endless = accountant.loss(constant, adversary).epsilon
        except ChainClassError:  # a start that is never forgotten has no bound
            return
        tally.add(endless, float(array.max()), (*where, "endless"))


def optional_scales(chain: MarkovChain, n: int, epsilon: float) -> dict[str, float]:
    """Scales of what can be had for this chain: without a length, by the eigengap, from the accountant backward."""
    scales: dict[str, float] = {}
    forgets = chain.transition[chain.transition > 0.0].min() > 1e-4  # the others take seconds to be refused
    for name, scale in (
        ("endless quilts", lambda: mqm_exact((chain,), None if forgets else n, epsilon).scale),
        ("approximate quilts", lambda: mqm_approx((chain,), n, epsilon).scale),
        ("ignorant", lambda: 1.0 / ChainAccountant((chain,)).allowance(epsilon, "ignorant", n)),
        ("informed", lambda: 1.0 / ChainAccountant((chain,)).allowance(epsilon, "informed", n)),
    ):
        try:
            scales[name] = scale()
        except ChainClassError:  # it never forgets, has no eigengap, or has a state that dies out
            continue
    return scales


def check_classes(generator: np.random.Generator, tally: Tally) -> None:
    """Two chains of one class, or an interval of chains that start stationary: no member loses more."""
    n = int(generator.integers(1, 7))
    release = a_release(generator, 2, n)
    if generator.random() < 0.5:
        members = [a_chain(generator, 2, str(generator.choice(START_KINDS))) for _ in range(2)]
        accountant = ChainAccountant(tuple(chain for chain, _ in members))
        adversary: Adversary = "informed" if generator.random() < 0.5 else "ignorant"
    else:
        ends = np.sort(10.0 ** -generator.uniform(0.0, generator.choice([1.0, 8.0]), (2, 2)), axis=1)
        ends = np.clip(np.where(generator.random((2, 1)) < 0.3, 1.0 - ends[:, ::-1], ends), 1e-12, 1.0 - 1e-12)
        accountant = ChainAccountant(BinaryChains(q=tuple(ends[0]), r=tuple(ends[1])))
        inside = [*((q, r) for q in ends[0] for r in ends[1]), generator.uniform(ends[:, 0], ends[:, 1])]
        chains = [MarkovChain.stationary([[1 - q, q], [r, 1 - r]]) for q, r in inside]
        members = [(chain, chain.initial[None]) for chain in chains if chain.initial is not None]
        adversary = "ignorant"
    claim, reached = accountant.schedule_loss(release.rates, adversary), 0.0
    assert claim.by_tick is not None
    for chain, starts in members:
        array = enumerated_losses(starts, chain.transition, n, release.density, informed=adversary == "informed")
        reached = max(reached, float(array.max()))
        for loss, exact in zip(claim.by_tick, array, strict=True):
            tally.add(float(loss), float(exact), (chain, release.name, adversary, n, "class"))
    tally.add_exact(claim, reached, (members, release.name, adversary, n, "class"))


def check_mechanisms(generator: np.random.Generator, tally: Tally) -> None:
    """One chain, one epsilon: the noise of the papers' mechanisms, and what it really loses."""
    k, start = int(generator.choice([2, 3])), str(generator.choice(START_KINDS))
    n = int(generator.integers(1, 7 if k == 2 else 6))
    chain, starts = a_chain(generator, k, start)
    epsilon = float(10.0 ** generator.uniform(-1.0, 1.0))
    counted = tuple(np.flatnonzero(generator.random(k) < 0.5)) or (0,)
    scales = {"mqm-exact": mqm_exact((chain,), n, epsilon).scale}
    if start != "any":
        scales["wasserstein"] = float(wasserstein_states((chain,), n).bound.distance) / epsilon
        scales["wasserstein, named"] = float(wasserstein_states((chain,), n, counted).bound.distance) / epsilon
    for name, scale in (scales | optional_scales(chain, n, epsilon)).items():
        density = count_density(scale or 0.02, 0, n - 1, counted)  # without noise there must be nothing to hide
        array = enumerated_losses(starts, chain.transition, n, density, informed=name == "informed").max()
        tally.add(epsilon, float(array), (chain, name, start, n, counted))
    rates = generator.uniform(0.05, 2.0, n)
    density = together(*(count_density(1.0 / rate, tick, tick, counted) for tick, rate in list(enumerate(rates))[:3]))
    array = enumerated_losses(starts, chain.transition, n, density, informed=False)
    charges = np.where(np.arange(n) < 3, rates, 0.0)
    for tick, claim in enumerate(quilt_accountant((chain,), charges)):
        tally.add(float(claim), float(array[tick]), (chain, "quilt accountant", start, n, tick))


SLOW = {4, 6, 11, 17, 24, 31}
"""Seeds of chains of which the accountant computes for seconds."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("check", "seeds"),
    [
        (check_accountant, set(range(28)) - SLOW),
        (check_mechanisms, {1, 2, 3}),
        (check_classes, range(8)),
        pytest.param(check_accountant, range(60), marks=pytest.mark.soak),
        pytest.param(check_mechanisms, range(12), marks=pytest.mark.soak),
        pytest.param(check_classes, range(200), marks=pytest.mark.soak),
    ],
)
def test_no_enumeration_exceeds_a_claim(
    check: Callable[[np.random.Generator, Tally], None], seeds: Collection[int]
) -> None:
    tally = Tally()
    for seed in seeds:
        check(np.random.default_rng(seed), tally)
    print(tally)
    assert tally.checked >= len(seeds)
    if check is check_accountant:
        assert tally.exact > len(seeds) // 20
