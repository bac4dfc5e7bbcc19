"""Chains whose states show the states of several streams, or of one of order 2: against enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from pydantic import ValidationError

from fugu.chains.model import stationary_distribution
from fugu.contract.chains import JointChains, JointStream, odds_ratio, two_steps
from fugu.contract.losses import Adversary
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.accountant.finite import KnownChains
from fugu.privacy.chain_class import MarkovChain
from tests.support.proofs import check_printed
from tests.support.soak import only_rows

Floats = npt.NDArray[np.float64]
SECOND = 1_000_000
ADVERSARIES: tuple[Adversary, ...] = ("ignorant", "informed", "universal")


def rows(matrix: Floats) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(p) for p in row) for row in matrix)


def random_chain(seed: int, k: int) -> Floats:
    generator = np.random.default_rng(seed)
    stay = generator.uniform(0.2, 0.9)
    return np.asarray(stay * np.eye(k) + (1 - stay) * generator.dirichlet(np.ones(k), size=k))


def two_streams(transition: Floats, rates: Sequence[float], sizes: tuple[int, int] = (2, 2)) -> JointChains:
    """Streams whose joint states are all pairs."""
    return JointChains(
        streams=tuple(JointStream(name=name, states=k, rate=r) for name, k, r in zip("ab", sizes, rates, strict=True)),
        period_us=SECOND,
        shows=tuple(itertools.product(*map(range, sizes))),
        odds_ratio=odds_ratio(rows(transition)),
        transition=rows(transition),
    )


def order_two(distributions: Floats, rate: float) -> JointChains:
    """Pairs of states, the one before and the present one, with (k, k, k) probabilities of the next."""
    k = len(distributions)
    transition = np.zeros((k * k, k * k))
    for a, b, c in itertools.product(range(k), repeat=3):
        transition[a * k + b, b * k + c] = distributions[a, b, c]
    shows = tuple((b,) for _ in range(k) for b in range(k))
    stream = JointStream(name="a", states=k, rate=rate)
    odds = odds_ratio(two_steps(rows(transition), shows))
    return JointChains(
        streams=(stream,), period_us=SECOND, shows=shows, odds_ratio=odds, steps=2, transition=rows(transition)
    )


def random_order_two(seed: int, k: int = 2) -> Floats:
    return np.random.default_rng(seed).dirichlet(np.ones(k), size=(k, k))


@cache
def symbols(chains: JointChains, ticks: int) -> tuple[Floats, list[tuple[int, ...]]]:
    """Pr(all symbols of all streams given the path) of randomised responses with the rates of the class."""
    tables = []
    for shown in chains.streams:
        k, ratio = shown.states, math.exp(shown.rate)
        tables.append((np.ones((k, k)) + (ratio - 1.0) * np.eye(k)) / (ratio + k - 1.0))
    emission = np.array([[1.0]] * chains.states)
    for column, table in enumerate(tables):
        mine = table[[row[column] for row in chains.shows]]
        emission = np.einsum("xi,xj->xij", emission, mine).reshape(chains.states, -1)
    paths = list(itertools.product(range(chains.states), repeat=ticks))
    likelihood = np.ones((len(paths), 1))
    for tick in range(ticks):
        mine = emission[[path[tick] for path in paths]]
        likelihood = np.einsum("pi,pj->pij", likelihood, mine).reshape(len(paths), -1)
    return likelihood, paths


@cache
def path_weights(chains: JointChains, ticks: int) -> Floats:
    """The probability of each path."""
    transition = np.array(chains.transition)
    distribution = stationary_distribution(transition)
    paths = symbols(chains, ticks)[1]
    return np.array([distribution[p[0]] * math.prod(transition[a, b] for a, b in itertools.pairwise(p)) for p in paths])


def truth(
    chains: JointChains,
    ticks: int,
    known_states: dict[int, set[int]] | None = None,
    *,
    inside: bool = False,
    groups: Sequence[int | None] | None = None,
) -> float:
    """The largest loss about what any stream, or all of them, show at any tick, given sets of states at other ticks.

    Also at those ticks, if `inside`.
    """
    likelihood, paths = symbols(chains, ticks)
    weights = path_weights(chains, ticks)
    for tick, states in (known_states or {}).items():
        weights = weights * np.array([path[tick] in states for path in paths])
    worst = 0.0
    groups = [*range(len(chains.streams)), None] if groups is None else groups
    for tick, group in itertools.product(range(ticks), groups):
        if tick in (known_states or {}) and not inside:
            continue
        shown = [chains.shows[path[tick]] if group is None else chains.shows[path[tick]][group] for path in paths]
        distributions = {}
        for value in set(shown):
            mine = np.array([symbol == value for symbol in shown]) * weights
            if mine.sum() > 0.0:
                distributions[value] = mine @ likelihood / mine.sum()
        for first, two in itertools.permutations(distributions.values(), 2):
            worst = max(worst, float(np.log(first / two).max()))
    return worst


def apart(chains: JointChains, rates: Sequence[float]) -> np.ndarray:
    """The most nats that a tick tells of any two states: the rates of streams that differ in them."""
    return np.array(
        [
            [sum(rate for rate, a, b in zip(rates, row, other, strict=True) if a != b) for other in chains.shows]
            for row in chains.shows
        ]
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("rates", [(0.1, 0.1), (0.7, 0.2)])
def test_two_streams_together_lose_no_more_than_said(seed: int, rates: tuple[float, float]) -> None:
    chains = two_streams(random_chain(seed, 4), rates)
    device, gateway = chains.joint_loss("ignorant").epsilon, ChainAccountant(chains)
    assert truth(chains, 4) <= device
    assert gateway.loss(apart(chains, rates)).epsilon == device


@pytest.mark.long
@pytest.mark.parametrize(("seed", "k", "ticks"), only_rows([(0, 2, 5)], [(0, 2, 6), (1, 2, 6), (2, 2, 6), (0, 3, 4)]))
def test_a_chain_of_order_two_loses_no_more_than_said(seed: int, k: int, ticks: int) -> None:
    chains = order_two(random_order_two(seed, k), 0.5)
    device = chains.joint_loss("ignorant").epsilon
    assert truth(chains, ticks) <= device
    assert ChainAccountant(chains).loss(0.5).epsilon == device
    assert ChainAccountant(chains).loss(0.5, length=3).epsilon <= device


@pytest.mark.parametrize("rate", [0.001, 0.1])
def test_two_steps_that_count_as_one_tell_what_two_ticks_tell(rate: float) -> None:
    """Of a sticky chain, to whoever learns at every other tick that the state is still the one of the tick before.

    What is left is a chain of two states, of each of which two ticks tell: that nearly reaches the bound.
    """
    step = np.array([[0.95, 0.05], [0.05, 0.95]])
    chains = order_two(np.stack([step, step]), rate)
    device = chains.joint_loss("universal").epsilon
    reached, _ = KnownChains((MarkovChain.stationary(step),)).endless_loss(2.0 * rate * (1 - np.eye(2)), "ignorant")
    assert chains.model_copy(update={"steps": 1}).joint_loss("universal").epsilon < reached <= device <= 1.25 * reached
    evidence = {tick: {0, 3} for tick in (1, 3, 5)}
    blocks = ChainAccountant((MarkovChain.stationary(step),)).loss(2.0 * rate, length=3).epsilon
    assert truth(chains, 6, evidence, inside=True) == pytest.approx(blocks, rel=1e-6)


TWO = two_streams(random_chain(0, 4), (0.4, 0.2))


def sets_of(chains: JointChains) -> tuple[list[set[int]], list[set[int]]]:
    """The states of the chain that show a state of one stream, and those that show one of each."""
    every = range(chains.states)
    each = [(i, a) for i, stream in enumerate(chains.streams) for a in range(stream.states)]
    single = [{x for x in every if chains.shows[x][i] == a} for i, a in each]
    return single, [{x for x in every if chains.shows[x] == seen} for seen in sorted(set(chains.shows))]


@pytest.mark.long
@pytest.mark.parametrize("chains", [TWO, order_two(random_order_two(0), 0.5)], ids=["two streams", "order two"])
def test_whoever_has_any_side_information_learns_no_more_than_said(chains: JointChains) -> None:
    """Any states of any of the streams, or joint ones, at other ticks."""
    epsilon = chains.joint_loss("universal").epsilon
    rates = apart(chains, [stream.rate for stream in chains.streams])
    assert ChainAccountant(chains).loss(rates, "universal").epsilon <= epsilon * (1 + 1e-15)
    single, whole = sets_of(chains)
    for tick in (0, 1):
        for others in itertools.product([set(range(4)), *single, *whole], repeat=2):
            evidence = dict(zip([t for t in range(3) if t != tick], others, strict=True))
            assert truth(chains, 3, evidence) <= epsilon


@pytest.mark.long
def test_the_informed_of_several_streams_learn_no_more_than_said() -> None:
    """They know joint states at other ticks; or all states of one stream, this tick's too, and some of the other."""
    epsilon = TWO.joint_loss("informed").epsilon
    single, whole = sets_of(TWO)
    worst = 0.0
    for tick in (0, 1):
        for others in itertools.product([set(range(4)), *whole], repeat=3):
            worst = max(worst, truth(TWO, 4, dict(zip([t for t in range(4) if t != tick], others, strict=True))))
    for path in itertools.product(single[:2], repeat=3):
        for more in itertools.product([set(range(4)), *single[2:]], repeat=3):
            evidence = {tick: first & other for tick, (first, other) in enumerate(zip(path, more, strict=True))}
            worst = max(worst, truth(TWO, 3, evidence, inside=True))
    assert worst <= epsilon


@pytest.mark.long
def test_independent_streams_as_the_manual_has_them() -> None:
    chain = np.array([[0.95, 0.05], [0.05, 0.95]])
    chains = two_streams(np.kron(chain, chain), (0.1, 0.1))
    single = KnownChains((MarkovChain.stationary(np.kron(chain, chain)),))
    ignorant, _ = single.endless_loss(apart(chains, (0.1, 0.1)), "ignorant")
    losses = {chains.joint_loss(who).epsilon for who in ADVERSARIES}
    check_printed("lose {} together, of which {} by the chain itself", *losses, ignorant)


GOOD = two_streams(random_chain(0, 4), (0.4, 0.2)).model_dump()


@pytest.mark.parametrize(
    "wrong",
    [
        {"streams": ()},
        {"streams": [GOOD["streams"][0]] * 2},
        {"streams": [GOOD["streams"][0], {"name": "one/b", "states": 2, "rate": 0.1}]},
        *(
            {"streams": [GOOD["streams"][0], {"name": "b", "states": 2, "rate": r}]}
            for r in (0.0, -1.0, math.inf, math.nan)
        ),
        {"streams": [GOOD["streams"][0], {"name": "b", "states": 3, "rate": 0.1}]},
        {"streams": [GOOD["streams"][0], {"name": "b/c/d", "states": 2, "rate": 0.1}]},
        {"period_us": 0},
        {"shows": [(0, 0), (0, 1), (1, 0)]},
        {"shows": [(0, 0), (0, 1), (1, 0), (1, 2)]},
        {"shows": [(0, 0), (0, 1), (1, 0), (1, -1)]},
        {"shows": [(0,), (0,), (1,), (1,)]},
        {"shows": [(0, 0)] * 4},
        {"transition": rows(np.eye(4))},
        {"transition": rows(np.full((4, 4), 0.2))},
        {"transition": rows(np.full((3, 3), 1 / 3))},
        {"odds_ratio": None},
        {"steps": 0},
        {"steps": 3},
        {"steps": 2},
        {"steps": 2, "transition": None},
        {"odds_ratio": 0.5},
        {"odds_ratio": math.inf},
        {"odds_ratio": 1.001},
    ],
)
def test_what_is_no_class_of_joint_chains(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        JointChains.model_validate(GOOD | wrong, strict=False)


def test_two_steps_are_of_states_that_tell_what_was_shown_before() -> None:
    """Those of pairs do; those of an ordinary chain do not, and neither do pairs in the wrong order."""
    chains = order_two(random_order_two(0), 0.5)
    two_steps(chains.transition, chains.shows)
    for shows in (((0,), (1,), (2,), (3,)), ((0,), (0,), (1,), (1,))):
        with pytest.raises(ValueError, match="does not tell the tick before"):
            two_steps(chains.transition, shows)
    with pytest.raises(ValidationError, match="odds ratio"):
        JointChains.model_validate(chains.model_dump() | {"odds_ratio": chains.odds_ratio * 0.999}, strict=False)


@pytest.mark.long
def test_chains_that_hardly_move_lose_much() -> None:
    sticky = (1.0 - 1e-12) * np.eye(4) + 1e-12 * np.full((4, 4), 0.25)
    assert two_streams(sticky, (0.1, 0.1)).joint_loss("universal").epsilon > 20.0
