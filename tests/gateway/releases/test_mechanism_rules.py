"""Loss of several releases over symbols together, by adding up every path: never more than their rule says."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fugu.contract.chains import BinaryChains, BoundedChains, JointChains, JointStream
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.reports import QueryKind
from fugu.contract.windows import Mechanism
from fugu.privacy.chain_class import ChainClassError, ListedChains, MarkovChain
from fugu.privacy.quilts import mixing, quilt_accountant, quilt_rate_loss, width_influences
from fugu.privacy.wasserstein import infinity_wasserstein, wasserstein_symbols
from gateway.releases.allowance import (
    CountedSymbols,
    WholeWindow,
    add_classes,
    allowance,
    allowance_problem,
    charge,
    classes_of,
    counted_symbols,
    joint_loss,
    smallest_scale,
    window_sensitivity,
)
from gateway.releases.charges import PER_NAT, nats
from gateway.releases.entries import Promise
from gateway.releases.statistics import Query, count_symbols
from papers.quilts import influence
from tests.support.sanitised_counts import stationary

Floats = NDArray[np.float64]
GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "mqm.json").read_text())
THETA = {"theta1": ((0.9, 0.1), (0.4, 0.6)), "theta2": ((0.8, 0.2), (0.3, 0.7))}
TURNING = ((0.3, 0.7), (0.8, 0.2))
ROOMS = ((0.8, 0.1, 0.1), (0.2, 0.7, 0.1), (0.1, 0.2, 0.7))
QUILTS: tuple[Mechanism, ...] = ("mqm-exact", "mqm-approx")


def class_of(*transitions: tuple[tuple[float, ...], ...]) -> ListedChains:
    return ListedChains(transitions=transitions)


class Enumeration:
    """All paths of states and of symbols of a few ticks, and the loss of each tick to releases of sums of symbols."""

    def __init__(self, transition: tuple[tuple[float, ...], ...], table: NoiseTable, n: int) -> None:
        steps, emission = np.array(transition), np.array(table.weights()) / SCALE
        self.states = np.array(list(product(range(table.states), repeat=n)))
        self.symbols = np.array(list(product(range(table.symbols), repeat=n)))
        self.distribution = stationary(steps)[self.states[:, 0]] * steps[self.states[:, :-1], self.states[:, 1:]].prod(
            axis=1
        )
        self.given = emission[self.states[:, None, :], self.symbols[None, :, :]].prod(axis=2)

    def losses(self, releases: list[tuple[range, float]], symbol: int = 1) -> Floats:
        """(n,) the largest log-likelihood ratio of outputs near the counts and far outside, for each tick."""
        density = np.ones((1, len(self.symbols)))
        for ticks, scale in releases:
            counts = (self.symbols[:, list(ticks)] == symbol).sum(axis=1)
            outputs = np.array([-50, *range(len(ticks) + 1), 50])
            noise = np.exp(-np.abs(outputs[:, None] - counts[None, :]) / scale)
            density = (density[:, None, :] * noise[None, :, :]).reshape(-1, len(self.symbols))
        likelihood = density @ self.given.T
        losses = []
        for tick in range(self.states.shape[1]):
            distributions = []
            for state in np.unique(self.states):
                at = self.states[:, tick] == state
                distributions.append(np.log(likelihood[:, at] @ self.distribution[at] / self.distribution[at].sum()))
            losses.append(max(float((a - b).max()) for a in distributions for b in distributions))
        return np.array(losses)


LAYOUTS = [
    [range(6)],
    [range(4), range(2, 6)],
    [range(5), range(1, 6), range(3)],
    [range(2), range(2, 4), range(4, 6), range(6)],
]


@pytest.mark.parametrize("mechanism", QUILTS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rho", [(0.1, 0.1), (0.3, 0.1), (0.02, 0.4)])
@pytest.mark.parametrize("transition", [*THETA.values(), TURNING])
def test_overlapping_releases_that_take_the_whole_allowance_lose_no_more_than_epsilon(
    transition: tuple[tuple[float, ...], ...], rho: tuple[float, float], layout: list[range], mechanism: Mechanism
) -> None:
    table, epsilon = NoiseTable.binary(*(round(p * SCALE) for p in rho)), 2.0
    allowed = allowance(class_of(transition), epsilon, "ignorant", mechanism)
    busiest = max(sum(tick in ticks for ticks in layout) for tick in range(6))
    scale = float(smallest_scale([table], 1, allowed // busiest))
    paths = Enumeration(transition, table, 6)
    losses = paths.losses([(ticks, scale) for ticks in layout])
    assert losses.max() <= epsilon
    charges = [sum(charge(table, 1.0 / scale) for ticks in layout if tick in ticks) for tick in range(6)]
    assert max(charges) <= nats(allowed) * (1 + 1e-12)
    bound = quilt_accountant((MarkovChain.stationary(transition),), charges)
    assert np.all(losses <= bound)
    assert bound.max() <= epsilon


@pytest.mark.parametrize("layout", LAYOUTS)
def test_three_states_and_histograms_of_symbols(layout: list[range]) -> None:
    table = NoiseTable.randomised_response(3, SCALE // 5)
    allowed = allowance(class_of(ROOMS), 1.5, "ignorant", "mqm-exact")
    layout = [range(ticks.start * 4 // 6, -(-ticks.stop * 4 // 6)) for ticks in layout]
    busiest = max(sum(tick in ticks for ticks in layout) for tick in range(4))
    scale = float(smallest_scale([table], 1, allowed // busiest))
    paths = Enumeration(ROOMS, table, 4)
    for symbol in range(3):
        assert paths.losses([(ticks, scale) for ticks in layout], symbol).max() <= 1.5


def test_readings_that_are_taken_for_independent_lose_more() -> None:
    """The enumeration can fail: noise for one tick alone is not enough for a chain."""
    table = NoiseTable.binary(SCALE // 10, SCALE // 10)
    scale = float(smallest_scale([table], 1, PER_NAT))
    assert Enumeration(THETA["theta1"], table, 6).losses([(range(6), scale)]).max() > 1.3


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("name", list(THETA))
def test_the_allowance_of_quilts_is_the_boundary_and_golden(name: str, epsilon: float) -> None:
    members = (MarkovChain.stationary(THETA[name]),)
    allowed = nats(allowance(class_of(THETA[name]), epsilon, "ignorant", "mqm-exact"))
    golden = GOLDEN["C_coupling"][f"{name}_stationary|eps={epsilon}"]["sigma_mqm"]
    assert 1.0 / allowed == pytest.approx(golden, rel=3e-9)
    assert quilt_rate_loss(members, allowed) <= epsilon < quilt_rate_loss(members, allowed * (1.0 + 1e-8))
    window = [allowed] * 60
    assert quilt_accountant(members, window).max() <= epsilon
    assert quilt_accountant(members, np.array(window) * 1.001).max() > epsilon
    table = NoiseTable.binary(SCALE // 10, SCALE // 10)
    scale = GOLDEN["7_sanitised"][f"{name}|rho=0.1|eps={epsilon}"]["s_mqm_rr"]
    budget = allowance(class_of(THETA[name]), epsilon, "ignorant", "mqm-exact")
    assert float(smallest_scale([table], 1, budget)) == pytest.approx(max(scale, 0.1), rel=3e-6)


@pytest.mark.parametrize("transitions", [(THETA["theta1"],), tuple(THETA.values()), (ROOMS,), (TURNING,)])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_the_approximate_allowance_is_that_of_its_bounds_on_influence(
    epsilon: float, transitions: tuple[tuple[tuple[float, ...], ...], ...]
) -> None:
    """By trying all widths: the largest rate c with influence + c * (near ticks) within epsilon for some quilt."""
    members = tuple(MarkovChain.stationary(each) for each in transitions)
    mixed = mixing(members)
    widths = np.arange(1, 400)
    bounds = width_influences(mixed, widths)
    assert np.all(np.isinf(bounds[widths <= 2.0 * np.log(1.0 / mixed.min_pi) / mixed.gap]))
    for width in (a for a in (6, 12, 25) if np.isfinite(bounds[a - 1])):
        exact = max(influence(chain, None, None, width) for chain in members)
        assert exact <= bounds[width - 1]
        assert max(influence(chain, None, width, None) for chain in members) <= 2.0 * bounds[width - 1]
    rates = (epsilon - 2.0 * bounds[:, None] - bounds[None, :]) / (widths[:, None] + widths[None, :] - 1)
    limit = nats(allowance(class_of(*transitions), epsilon, "ignorant", "mqm-approx"))
    assert limit == pytest.approx(float(rates.max()), rel=3e-9)
    exact_rule = nats(allowance(class_of(*transitions), epsilon, "ignorant", "mqm-exact"))
    assert limit <= exact_rule <= nats(allowance(class_of(*transitions), epsilon, "ignorant")) * (1 + 1e-9)


@pytest.mark.parametrize("mechanism", [*QUILTS, "wasserstein"])
def test_only_the_ignorant_adversary_and_only_known_chains(mechanism: Mechanism) -> None:
    chains = BinaryChains(q=(0.1, 0.2), r=(0.2, 0.3))
    for adversary in ("informed", "universal"):
        with pytest.raises(ChainClassError, match="protects against the ignorant adversary only"):
            allowance(chains, 1.0, adversary, mechanism)
    with pytest.raises(ChainClassError, match="no bound beside other releases"):
        joint_loss(class_of(ROOMS), 10, "ignorant")
    with pytest.raises(ChainClassError, match="needs transition matrices"):
        allowance(BoundedChains(states=2, odds_ratio=2.0), 1.0, "ignorant", mechanism)
    assert allowance(BoundedChains(states=2, odds_ratio=2.0), 0.7, "universal", "group") == 700_000_000_000 - 1
    shown = tuple(JointStream(name=name, states=2, rate=0.1) for name in ("light", "motion"))
    shows = ((0, 0), (0, 1), (1, 0), (1, 1))
    together = JointChains(streams=shown, period_us=1_000_000, shows=shows, odds_ratio=1.0)
    with pytest.raises(ChainClassError, match="needs the chain of one stream"):
        allowance(together, 1.0, "ignorant", mechanism)
    with pytest.raises(ChainClassError, match="needs the chain of one stream"):
        allowance(together, 1.0, "ignorant", "group")


def distribution_of_hits(
    paths: Enumeration, hit: list[int], observed: list[bool], tick: int, state: int
) -> list[tuple[int, Fraction]]:
    seen = np.isin(paths.symbols, hit) & np.array(observed)
    counts, at = seen.sum(axis=1), paths.states[:, tick] == state
    weights = paths.distribution[at] @ paths.given[at]
    return [(int(n), Fraction(float(weights[counts == n].sum())).limit_denominator(10**12)) for n in np.unique(counts)]


@pytest.mark.parametrize("observed", [[True] * 5, [True, False, True, True, False], [False] * 4 + [True]])
@pytest.mark.parametrize("transition", [THETA["theta1"], ((0.98, 0.02), (0.04, 0.96)), TURNING, ROOMS])
@pytest.mark.parametrize("share", [20, 5, 4])
def test_the_distance_of_counts_of_symbols_is_that_of_all_paths(
    transition: tuple[tuple[float, ...], ...], share: int, observed: list[bool]
) -> None:
    k = len(transition)
    table = NoiseTable.randomised_response(k, SCALE // share)
    paths = Enumeration(transition, table, 5)
    worst = max(
        infinity_wasserstein(
            distribution_of_hits(paths, [1], observed, tick, a), distribution_of_hits(paths, [1], observed, tick, b)
        )
        for tick in range(5)
        for a in range(k)
        for b in range(a)
    )
    hits = [row[1] for row in table.weights()]
    chain = MarkovChain.stationary(transition)
    assert wasserstein_symbols((chain,), hits, SCALE, observed).distance == worst
    counted = counted_symbols([class_of(transition)], table, (1,), observed)
    assert (counted.hits, counted.distance) == (tuple(hits), worst)
    scale = WholeWindow(symbols=(counted,)).scale(0.7)
    assert scale >= worst / Fraction(0.7)
    present = [tick for tick in range(5) if observed[tick]]
    counts = (paths.symbols[:, present] == 1).sum(axis=1)
    outputs = np.arange(-20, 26)
    likelihood = np.exp(-np.abs(outputs[:, None] - counts[None, :]) / float(scale)) @ paths.given.T
    for tick in range(5):
        distributions = [
            likelihood[:, at] @ paths.distribution[at] / paths.distribution[at].sum()
            for at in (paths.states[:, tick] == x for x in range(k))
        ]
        assert max(float(np.log(a / b).max()) for a in distributions for b in distributions) <= 0.7


def test_a_chain_of_certain_steps_moves_every_symbol_and_one_tick_more_noise_is_needed_than_without() -> None:
    """States that never change: W is all that the symbols of two states differ by, and grows with the window."""
    still = MarkovChain(np.eye(2), np.array([0.5, 0.5]))
    for length in (1, 2, 5):
        assert wasserstein_symbols((still,), [0, 4], 4, [True] * length).distance == length
        assert wasserstein_symbols((still,), [1, 3], 4, [True] * length).distance >= 1
    assert wasserstein_symbols((still,), [2, 2], 4, [True] * 5).distance == 0
    with pytest.raises(ChainClassError, match="so long a window does not fit"):
        wasserstein_symbols((still,), [1, SCALE - 3], SCALE, [True] * 3000)
    with pytest.raises(ChainClassError, match="a chance for every state"):
        wasserstein_symbols((still,), [1, 9], 4, [True])


BITS = NoiseTable.binary(SCALE // 10, SCALE // 5)
UNLIKE = NoiseTable(rows=((SCALE // 2, SCALE // 4 * 3), (SCALE // 8, SCALE // 4 * 3), (SCALE // 8, SCALE // 4)))


@pytest.mark.parametrize(
    ("kind", "table"), [("count", BITS), ("count", UNLIKE), ("frequency", BITS), ("histogram", BITS), ("dwell", BITS)]
)
def test_group_noise_hides_the_whole_window_from_everybody(kind: QueryKind, table: NoiseTable) -> None:
    """Any two sequences of symbols, whatever is known of the rest: at most epsilon, and for a count all of it."""
    epsilon, n = 0.8, 4
    states = (0, 1) if kind == "histogram" else (1,)
    counts = []
    for path in product(range(table.symbols), repeat=n):
        counts.append(count_symbols(Query(kind, states), np.array(path), table).counts.ravel())
    scale = float(WholeWindow(moved=window_sensitivity(kind, counts[0].size, n)).scale(epsilon))
    furthest = max(int(np.abs(a - b).sum()) for a in counts for b in counts)
    assert furthest / scale <= epsilon
    assert furthest / scale > (0.74 if kind == "dwell" else 0.99) * epsilon


def test_what_a_release_is_judged_by_survives_the_ledger() -> None:
    chains = BinaryChains(q=(0.1, 0.1), r=(0.4, 0.4))
    symbols = counted_symbols([chains, chains], NoiseTable.binary(SCALE // 10, SCALE // 10), (1,), [True, False, True])
    assert symbols.chains == (chains,)
    window = WholeWindow(symbols=(symbols,))
    again = WholeWindow.model_validate_json(window.model_dump_json())
    assert again == window
    assert again.scale(1.0) == window.scale(1.0)
    with pytest.raises(ChainClassError, match="not an interval"):
        CountedSymbols(**{**symbols.model_dump(), "chains": (BinaryChains(q=(0.1, 0.2), r=(0.4, 0.4)),)}).check()
    with pytest.raises(ChainClassError, match="not an interval"):  # also where another class can be computed
        symbols.model_copy(update={"chains": (*symbols.chains, BinaryChains(q=(0.1, 0.2), r=(0.4, 0.4)))}).check()


def test_an_account_of_several_classes_is_allowed_what_the_strictest_of_them_allows() -> None:
    classes = BinaryChains(q=(0.01, 0.02), r=(0.01, 0.02)), BinaryChains(q=(0.3, 0.3), r=(0.3, 0.3))
    low, high = (allowance(chains, 1.0, "informed") for chains in classes)
    assert low < high
    promise = Promise(1.0, "informed")
    for order in (classes, classes[::-1]):
        text = add_classes("[]", order)
        assert allowance_problem(low, "chain", promise, 1_000_000, text) == ""
        for above in (high, low + low // 10**8):
            assert f"allows {nats(low):.12g}" in allowance_problem(above, "chain", promise, 1_000_000, text)


def test_a_release_keeps_to_chains_of_its_own_or_to_those_of_policies() -> None:
    declared, own = BinaryChains(q=(0.1, 0.2), r=(0.1, 0.2)), class_of(ROOMS)
    for chains, other in ((declared, own), (own, declared)):
        assert classes_of(add_classes(f"[{chains.model_dump_json()}]", [other])) == (chains,)


def test_the_wasserstein_noise_is_that_of_the_furthest_class_of_any_device() -> None:
    table = NoiseTable.binary(SCALE // 10, SCALE // 10)
    chains = [class_of(THETA["theta1"]), class_of(((0.5, 0.5), (0.5, 0.5)))]
    near, far = sorted(
        (counted_symbols([chain], table, (1,), [True] * 6) for chain in chains), key=lambda symbol: symbol.distance
    )
    assert near.distance < far.distance
    assert counted_symbols(chains, table, (1,), [True] * 6).distance == far.distance
    for devices in ((near, far), (far, near), (near, near, far)):
        assert WholeWindow(symbols=devices).scale(0.5) == WholeWindow(symbols=(far,)).scale(0.5)
    assert WholeWindow(symbols=(near,)).scale(0.5) < WholeWindow(symbols=(far,)).scale(0.5)
    assert far.distance / Fraction("0.5") <= WholeWindow(symbols=(far,)).scale(0.5)
