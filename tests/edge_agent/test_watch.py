"""The device's watch over its class: an e-value for every chain of the class, exactly; and what it finds."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from itertools import pairwise, product
from typing import Any

import pytest

from edge_agent import watch as watch_module
from edge_agent.plan import StreamPlan
from edge_agent.watch import ALARM, OWN_LENGTH, Watch, log_e_value
from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, JointChains, JointStream
from fugu.contract.compiler import compile_policy
from fugu.contract.discretisers import Categories
from fugu.contract.guarantee import Guarantee
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import NoiseTable
from tests.support.processes import policy

BOX = {"q": [0.1, 0.2], "r": [0.2, 0.3]}
ODDS = {"odds_ratio": 9.0}
THREE = [[0.6, 0.2, 0.2], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]]
Chain = list[list[float]]


@pytest.fixture(autouse=True)
def _once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of paths have the same few counts: their likelihood is worked out once."""
    monkeypatch.setattr(watch_module, "_log_bounded", cache(watch_module._log_bounded))


def binary(q: float, r: float) -> Chain:
    return [[1 - q, q], [r, 1 - r]]


def on_the_bound(q: float, ratio: float) -> Chain:
    """The chain of an odds ratio that leaves state 0 at a rate."""
    odds = (1 - q) / q / ratio
    return binary(q, odds / (1 + odds))


def expectation(chain: Chain, chains: dict[str, Any], length: int) -> float:
    """Of the e-value of a stretch, over all paths from the worst start."""
    totals = []
    for start in range(len(chain)):
        total = 0.0
        for path in product(range(len(chain)), repeat=length):
            counts = [[0] * len(chain) for _ in chain]
            likelihood = 1.0
            for x, y in pairwise((start, *path)):
                counts[x][y] += 1
                likelihood *= chain[x][y]
            total += likelihood * math.exp(log_e_value(counts, chains)) if likelihood else 0.0
        totals.append(total)
    return max(totals)


def members() -> Iterator[tuple[Chain, dict[str, Any]]]:
    for q, r in product((0.1, 0.15, 0.2), (0.2, 0.25, 0.3)):
        yield binary(q, r), BOX
    for q in (0.001, 0.1, 0.25, 0.5, 0.9, 0.999):
        for ratio in (9.0, 3.0, 1.0, 1 / 9.0):
            yield on_the_bound(q, ratio), ODDS


@pytest.mark.parametrize(("chain", "chains"), [*members()])
@pytest.mark.parametrize("length", [1, 2])
def test_the_expectation_of_an_e_value_is_at_most_1_for_every_chain_of_the_class(
    chain: Chain, chains: dict[str, Any], length: int
) -> None:
    assert expectation(chain, chains, length) <= 1.0 + 1e-9


@pytest.mark.long
@pytest.mark.parametrize(("chain", "chains"), [*members()][::3])
def test_nor_is_it_above_1_over_seven_steps(chain: Chain, chains: dict[str, Any]) -> None:
    assert expectation(chain, chains, 7) <= 1.0 + 1e-9


@pytest.mark.long
@pytest.mark.parametrize(("chain", "chains"), [(binary(0.1, 0.2), BOX)])
def test_no_rule_of_when_to_look_brings_the_evidence_above_1(
    chain: Chain, chains: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all paths, whoever stops at the best moment: stretches of different lengths end at different times."""
    monkeypatch.setattr(watch_module, "LENGTHS", (2, 4, 8))

    def best(path: tuple[int, ...]) -> float:
        here = math.exp(watched([*path], chains).evidence)
        if len(path) > 8:
            return here
        later = sum(chain[path[-1]][state] * best((*path, state)) for state in range(2))
        return later if len(path) % 2 == 0 else max(here, later)  # judged after every second step

    assert max(best((0,)), best((1,))) <= 1.0 + 1e-9


@pytest.mark.long
def test_nor_is_it_above_1_for_three_states() -> None:
    ratio = 9.0
    assert expectation(THREE, {"odds_ratio": ratio}, 6) <= 1.0 + 1e-9


@pytest.mark.long
@pytest.mark.parametrize(
    ("chain", "chains"),
    [(binary(0.02, 0.04), BOX), (binary(0.5, 0.6), BOX), (on_the_bound(0.1, 300.0), ODDS), (binary(0.9, 0.9), ODDS)],
)
def test_chains_outside_the_class_have_large_e_values(chain: Chain, chains: dict[str, Any]) -> None:
    """So the tests above are not passed by one that is always small; and the product grows until there is an alarm."""
    path = walk([chain], 20_000, seed=1)
    watch = watched(path, chains)
    assert watch.alarm < 6_000
    assert "NOT in the declared class" in watch.sentence()


def walk(chains: list[Chain], length: int, seed: int, stretch: int = 128) -> list[int]:
    """A path on which the chain changes from stretch to stretch."""
    generator, path = random.Random(seed), [0]
    for step in range(length):
        first, second = chains[step // stretch % len(chains)][path[-1]]
        path.append(int(generator.random() * (first + second) >= first))
    return path


def take_in(watch: Watch, tick: int, state: int | None) -> None:
    """As where every tick leaves time to judge."""
    watch.observe(tick, state)
    while watch.has_work:
        watch.judge()


def watched(path: list[int], chains: dict[str, Any]) -> Watch:
    watch = Watch(2, chains)
    for tick, state in enumerate(path):
        take_in(watch, tick, state)
    return watch


@pytest.mark.long
@pytest.mark.parametrize(
    ("worst", "chains"),
    [([binary(0.1, 0.2)], BOX), ([on_the_bound(0.05, 9.0)] * 4 + [on_the_bound(0.7, 9.0)] * 4, ODDS)],
)
def test_the_worst_chains_of_a_class_raise_no_alarm(worst: list[Chain], chains: dict[str, Any]) -> None:
    """40 runs of 2,500 steps: the bound allows 0.04 alarms."""
    runs = [watched(walk(worst, 2_500, seed), chains) for seed in range(40)]
    assert [run.alarm for run in runs] == [None] * 40
    assert max(run.evidence for run in runs) < -math.log(ALARM)


@pytest.mark.long
def test_an_alarm_leaves_open_what_chains_that_change_may_have_made() -> None:
    """Each step is of the class; a stretch that both chains made looks stickier than either."""
    members = [on_the_bound(0.05, 9.0), on_the_bound(0.7, 9.0)]
    changing = watched(walk(members, 20_000, seed=1, stretch=500), ODDS)
    assert changing.alarm is not None
    assert "unless its chain changed within 512 steps" in changing.sentence()
    assert "epsilon may be larger" in changing.sentence()
    assert "epsilon is larger" in watched(walk([binary(0.5, 0.6)], 20_000, seed=1), BOX).sentence()


@pytest.mark.long
def test_a_slow_regime_is_found() -> None:
    """The mean chain is inside the class, those of the regimes are not."""
    regimes = [binary(0.16, 0.24)] * 40 + [binary(0.005, 0.8)] * 8
    assert watched(walk(regimes, 40_000, seed=3), BOX).alarm is not None


def test_ticks_without_a_state_and_absent_ticks_are_no_steps() -> None:
    watch = Watch(2, BOX)
    for tick, state in ((0, 0), (1, 1), (2, None), (3, 1), (5, 1), (6, 0), (6, 0)):
        take_in(watch, tick, state)
    assert watch.steps == 2


def watched_class(chains: ChainClass, adversary: Adversary, states: int = 2) -> dict[str, Any] | None:
    labels = tuple(str(state) for state in range(states))
    whole = policy(epoch_us=0, period_us=60_000_000)
    changes = {
        "chains": chains,
        "guarantee": Guarantee(epsilon=1.0, adversary=adversary),
        "discretiser": Categories(categories={"a": 0}, states=labels),
        "table": NoiseTable.randomised_response(states, 1 << 20),
    }
    return StreamPlan.of({"compiled": compile_policy(whole.model_copy(update=changes)).hex()}, {}).watch


def test_what_is_watched_is_what_the_guarantee_assumes() -> None:
    box = BinaryChains(q=(0.1, 0.2), r=(0.2, 0.3))
    assert watched_class(box, "informed") == BOX
    universal = watched_class(box, "universal")
    assert universal["odds_ratio"] == pytest.approx(0.9 * 0.8 / (0.1 * 0.2))
    restless = watched_class(BinaryChains(q=(0.5, 0.9), r=(0.5, 0.8)), "universal")
    assert restless["odds_ratio"] == pytest.approx(36.0)
    assert watched_class(BoundedChains(states=3, odds_ratio=9.0), "universal", 3) == ODDS
    assert watched_class(BoundedChains(states=9, odds_ratio=9.0), "universal", 9) is None


PAIRS = ((0.7, 0.1, 0.1, 0.1), (0.1, 0.7, 0.1, 0.1), (0.1, 0.1, 0.7, 0.1), (0.1, 0.1, 0.1, 0.7))


def test_joint_chains_are_not_watched_as_they_are_of_other_states() -> None:
    chains = JointChains(
        streams=(JointStream(name="hr", states=2, rate=0.05), JointStream(name="b", states=2, rate=0.05)),
        period_us=60_000_000,
        shows=((0, 0), (0, 1), (1, 0), (1, 1)),
        transition=PAIRS,
        odds_ratio=50.0,
    )
    assert watched_class(chains, "universal") is None


@pytest.mark.long
def test_judging_late_finds_the_same_and_what_there_is_no_time_for_is_left_out() -> None:
    path = walk([binary(0.16, 0.24)] * 40 + [binary(0.005, 0.8)] * 8, 1280, seed=3)
    prompt, late, never = watched(path, BOX), Watch(2, BOX), Watch(2, BOX)
    for tick, state in enumerate(path[:1025]):
        late.observe(tick, state)
    assert (late.evidence, late.has_work) == (0.0, True)
    for tick, state in enumerate(path[1025:], 1025):
        take_in(late, tick, state)
    assert (late.evidence, late.alarm, late.left_out) == (prompt.evidence, prompt.alarm, 0)
    for lap in range(20):
        for tick, state in enumerate(path, lap * len(path)):
            never.observe(tick, state)
    assert len(never._waiting) < 80
    assert never.left_out > 100
    assert "judgements left out, as ticks leave no time for them" in never.sentence()


@pytest.mark.long
def test_judgements_that_are_left_out_bring_no_evidence_above_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all paths of a chain at the border, whoever stops at the best moment at which something was judged."""
    monkeypatch.setattr(watch_module, "LENGTHS", (2, 4, 8))
    chain = binary(0.1, 0.2)
    for judged in ((True, False, True, True), (False, True, False, True)):

        def best(path: tuple[int, ...], judged: tuple[bool, ...] = judged) -> float:
            watch = Watch(2, BOX)
            for tick, state in enumerate(path):
                if tick and tick % 2 == 0:
                    monkeypatch.setattr(watch_module, "_MOST_WAITING", 64 * judged[tick // 2 - 1])
                take_in(watch, tick, state)
            may_stop = len(path) % 2 == 1 and len(path) > 1 and judged[len(path) // 2 - 1]
            here = math.exp(watch.evidence) if may_stop else 0.0
            if len(path) > 8:
                return here
            return max(here, sum(chain[path[-1]][state] * best((*path, state)) for state in range(2)))

        assert max(best((0,)), best((1,))) <= 1.0 + 1e-9


def test_a_fault_of_the_watch_is_its_end_and_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any) -> float:
        raise ZeroDivisionError("of state 1")

    judging, counting = Watch(2, BOX), Watch(2, BOX)
    for tick in range(3):
        counting.observe(tick, 7 * tick)
    monkeypatch.setattr(watch_module, "log_e_value", broken)
    for tick in range(300):
        take_in(judging, tick, tick % 2)
    for watch, error in ((judging, "ZeroDivisionError"), (counting, "IndexError")):
        assert f"the watch has ended: {error} inside the agent, please report it" in watch.sentence()
        assert not watch.has_work


RATED = {"rate": 0.3, "hour": 600}


def _odds(q: Fraction, r: Fraction) -> Fraction:
    return max((1 - q) * (1 - r) / (q * r), q * r / ((1 - q) * (1 - r)))


@pytest.mark.parametrize(
    ("assumed", "adversary", "chains"),
    [
        ({"odds_ratio": 9.0}, "universal", lambda q, r: BoundedChains(states=2, odds_ratio=_odds(q, r))),
        (BOX, "ignorant", lambda q, r: BinaryChains(q=(float(q),) * 2, r=(float(r),) * 2)),
        (BOX, "informed", lambda q, r: BinaryChains(q=(float(q),) * 2, r=(float(r),) * 2)),
    ],
)
@pytest.mark.parametrize("leave", [(0.05, 0.1), (0.6, 0.7)])
def test_the_owners_epsilon_is_what_the_guarantee_check_derives_for_his_stretch(
    assumed: dict[str, Any],
    adversary: Adversary,
    chains: Callable[[Fraction, Fraction], Any],
    leave: tuple[float, float],
) -> None:
    """Of two digits, rounded up; from whole stretches, and half a step of each kind more."""
    watch, generator, states = Watch(2, {**assumed, **RATED, "adversary": adversary}), random.Random(4), [0]
    for _ in range(OWN_LENGTH):
        states.append(states[-1] ^ (generator.random() < leave[states[-1]]))
    for tick, state in enumerate(states):
        assert watch.own_epsilon is None
        take_in(watch, tick, state)
    steps = Counter(pairwise(states))
    q, r = (Fraction(2 * steps[x, 1 - x] + 1, 2 * (steps[x, 0] + steps[x, 1]) + 2) for x in (0, 1))
    exact = chains(q, r).ratio_loss(*(Fraction(math.exp(0.3)),) * 2, adversary).epsilon
    assert exact * (1.0 - 1e-9) <= watch.own_epsilon <= 1.11 * exact
    assert watch.own_epsilon == float(f"{watch.own_epsilon:.1e}")


@pytest.mark.long
def test_the_owners_epsilon_is_of_the_last_day_and_in_bounded_memory() -> None:
    watch, generator, state = Watch(2, {"odds_ratio": 9.0, **RATED, "adversary": "universal"}), random.Random(4), 0
    own_epsilons: list[float] = []
    for tick in range(600 * 60):
        state ^= generator.random() < (0.01 if tick < 600 * 10 else 0.4)
        take_in(watch, tick, state)
        own_epsilons.append(watch.own_epsilon or 0.0)
    assert own_epsilons[600 * 12] >= own_epsilons[600 * 30] > 4 * own_epsilons[600 * 34] > 0.0, (
        "hour 10 is the last of the slow ones"
    )
    assert len(watch.epsilon_by_hour) <= 24
