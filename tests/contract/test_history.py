"""Since and until: promises of versions one after another, against recursions and every path.

The recursions themselves are held against every path here.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains, ChainClass, JointChains, JointStream
from fugu.contract.dating import SLACK, PromiseDates, dates_of, settling_ticks
from fugu.contract.discretisers import Categories, Thresholds
from fugu.contract.guarantee import Guarantee
from fugu.contract.history import History, Noise, Span, history_alone
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.contract.windows import Window
from fugu.privacy.randomised_response import calibrate
from tests.support.changing_noise import Array, by_every_path, emission_of, sides, stretch_losses
from tests.support.measured import measure_policy
from tests.support.windows import policy as any_policy

WIDE = BinaryChains(q=(0.01, 0.1), r=(0.01, 0.1))
NARROW = BinaryChains(q=(0.2, 0.3), r=(0.2, 0.3))


@cache
def table_for(chains: ChainClass, epsilon: float, adversary: Adversary, ticks: int) -> NoiseTable:
    return calibrate(chains, epsilon * float(1 - SLACK), adversary, "information", (), ticks).table


def policy(
    version: int,
    epsilon: float,
    chains: ChainClass = WIDE,
    adversary: Adversary = "informed",
    ticks: int = 1,
    **changes: Any,
) -> Policy:
    fields = {
        **{"version": version, "chains": chains, "clock": Clock(epoch_us=0, period_us=60_000_000)},
        "table": table_for(chains, epsilon, adversary, ticks),
        "guarantee": Guarantee(epsilon=epsilon, adversary=adversary, stretch_ticks=ticks),
    }
    return any_policy(**fields | changes)


def one_after_another(*versions: tuple[Policy, int]) -> History:
    """Versions, each for so many ticks, from tick 0 on; the last one goes on."""
    spans, first = [], 0
    for version, ticks in versions:
        spans.append(Span(version.version, Noise.of(version), first, first + ticks - 1))
        first += ticks
    return History((*spans[:-1], spans[-1]._replace(last=None)))


def rates_of(policy: Policy) -> tuple[float, float]:
    first, second = policy.outputs.ratios
    return math.log(first), math.log(second)


def losses(q: float, r: float, steps: Array, adversary: Adversary, ticks: int) -> Array:
    """The true loss of each stretch of a chain."""
    return stretch_losses(*sides(q, r, steps, adversary), steps, ticks)


@pytest.mark.parametrize("adversary", ["ignorant", "informed"])
@pytest.mark.parametrize(("q", "r"), [(0.1, 0.4), (0.02, 0.3), (0.9, 0.7), (0.5, 0.5)])
def test_the_recursion_is_what_every_path_says(q: float, r: float, adversary: Adversary) -> None:
    """Six ticks whose noise changes; every output, and every set of known states."""
    rates = np.array([(2.0, 1.0), (2.0, 1.0), (0.4, 0.7), (0.4, 0.7), (0.0, 0.0), (1.3, 1.3)])
    chain = np.array([[1 - q, q], [r, 1 - r]])
    for ticks in (1, 2, 3):
        expected = losses(q, r, rates, adversary, ticks)
        for first in range(len(rates) - ticks + 1):
            truth = by_every_path(
                [chain] * 5,
                [emission_of((rate[0], rate[1])) for rate in rates],
                range(first, first + ticks),
                informed=adversary == "informed",
            )
            assert truth == pytest.approx(expected[first], abs=1e-9), (ticks, first)


@pytest.mark.long
@pytest.mark.parametrize("adversary", ["ignorant", "informed", "universal"])
@pytest.mark.parametrize("ticks", [1, 11])
@pytest.mark.parametrize("before", [(4.0, WIDE), (1.0, NARROW)], ids=["smaller epsilon", "wider class"])
def test_a_stronger_policy_is_true_since_then_and_told_otherwise_before(
    before: tuple[float, ChainClass], adversary: Adversary, ticks: int
) -> None:
    """Epsilon 1 was told from the first tick on, or from the first whole stretch: 1.8 to 3.6 was true."""
    old = policy(1, *before, adversary, ticks)
    new = policy(2, 1.0, WIDE, adversary, ticks)
    when = dates_of(new, one_after_another((old, 800), (new, 800)))
    steps = np.array([rates_of(old)] * 800 + [rates_of(new)] * 800)
    truth = losses(0.01, 0.01, steps, adversary, ticks)
    assert truth[800] > 1.1
    assert truth[800:].max() <= when.epsilon(new.bound(), 800, 800, ticks)
    assert 800 < when.since < 1500
    assert truth[when.since :].max() <= when.epsilon(new.bound(), when.since, 2**40, ticks) == 1.0
    assert when.until is None


def test_since_is_the_first_tick_for_any_side_information() -> None:
    """The recursion is exact there: a tick before it more than epsilon is lost, and the plan's slack decides."""
    old, new = policy(1, 4.0, adversary="universal"), policy(2, 1.0, adversary="universal")
    when = dates_of(new, one_after_another((old, 4000), (new, 4000)))
    truth = losses(0.01, 0.01, np.array([rates_of(old)] * 4000 + [rates_of(new)] * 4000), "universal", 1)
    assert truth[when.since] <= 1.0 < truth[when.since - 1]


@pytest.mark.long
@pytest.mark.parametrize("adversary", ["ignorant", "informed", "universal"])
@pytest.mark.parametrize("ticks", [1, 7])
def test_a_promise_ends_before_a_weaker_policy(adversary: Adversary, ticks: int) -> None:
    versions = [policy(number, epsilon, WIDE, adversary, ticks) for number, epsilon in ((1, 4.0), (2, 1.0), (3, 3.0))]
    history = one_after_another(*((version, 900) for version in versions))
    when = dates_of(versions[1], history)
    assert 900 < when.since < when.until < 1800 - ticks
    steps = np.array([rates_of(version) for version in versions for _ in range(900)])
    truth = losses(0.01, 0.01, steps, adversary, ticks)
    assert truth[when.since : when.until + 1].max() <= 1.0
    assert 1.0 < truth[900:1800].max() <= when.epsilon(versions[1].bound(), 900, 1799, ticks)
    assert when.epsilon(versions[1].bound(), when.since, when.until, ticks) == 1.0
    assert when.epsilon(versions[1].bound(), when.since, when.until + 1, ticks) > 1.0
    if ticks > 1:  # a single tick may come as late as the last one of a promised stretch
        assert when.covers(when.since, when.until + ticks - 1, 1)
        assert not when.covers(when.since, when.until + ticks, 1)
    strongest = dates_of(versions[0], history)
    assert strongest.holds_always


def test_all_versions_leak_and_not_the_one_before_only() -> None:
    """Epsilon 4, ten ticks of 1, then 1 again: 2.16 was true where the predecessor alone says 1.00."""
    versions = [policy(number, epsilon, adversary="universal") for number, epsilon in ((1, 4.0), (2, 1.0), (3, 1.0))]
    history = one_after_another((versions[0], 2000), (versions[1], 10), (versions[2], 2000))
    when = dates_of(versions[2], history)
    steps = np.array([rates_of(versions[0])] * 2000 + [rates_of(versions[2])] * 2010)
    truth = losses(0.01, 0.01, steps, "universal", 1)
    assert 2.1 < truth[2010] <= when.epsilon(versions[2].bound(), 2010, 2010, 1)
    assert truth[when.since] <= 1.0 < truth[when.since - 1]


def test_what_is_not_known_leaks_as_much_as_the_class_allows() -> None:
    """Before the first span anything may have been drawn: the ticks of epsilon 40 are no worse than that."""
    new = policy(5, 1.0, adversary="universal")
    alone = History((Span(5, Noise.of(new), 100),))
    assert dates_of(new, alone).holds_always
    unknown = dates_of(new, alone._replace(complete=False))
    steps = np.array([(40.0, 40.0)] * 50 + [rates_of(new)] * 2000)
    truth = losses(0.01, 0.01, steps, "universal", 1)
    assert truth[unknown.since - 50] <= 1.0 < truth[unknown.since - 52]
    assert truth[50] <= unknown.epsilon(new.bound(), 100, 100, 1) < math.inf
    other = policy(4, 1.0, adversary="universal", discretiser=Thresholds(edges=(0.7,), states=("low", "high")))
    both = History((Span(4, Noise.of(other), 0, 99), Span(5, Noise.of(new), 100)))
    assert dates_of(new, both).since == unknown.since
    assert dates_of(other, both).outer_bound is None  # a stretch over the change has two kinds of states


def test_a_version_without_a_known_tick_is_dated_by_none() -> None:
    old, new = policy(1, 4.0), policy(2, 1.0)
    running = History((Span(1, Noise.of(old), 0, 500), Span(0, Noise.of(old), 501)))
    when = dates_of(new, running)
    assert when.since is None
    assert when.epsilon(new.bound(), 501, 501, 1) == pytest.approx(4.0, abs=0.02)
    assert dates_of(old, running).holds_always
    assert dates_of(new, History()).holds_always


def test_numbers_that_skip_are_no_distance() -> None:
    """After a jump of the clock by a day, the noise before the change is as near as it was."""
    old, new = policy(1, 4.0), policy(2, 1.0)
    noise = Noise.of(old), Noise.of(new)
    whole = dates_of(new, History((Span(1, noise[0], 0, 999), Span(2, noise[1], 1000))))
    jumped = History((Span(1, noise[0], 0, 999), Span(2, noise[1], 1000, 1009), Span(2, noise[1], 3000)))
    assert dates_of(new, jumped).since == whole.since + 1990
    end = History((Span(1, noise[1], 0, 999), Span(1, noise[1], 3000, 3009), Span(2, noise[0], 3010)))
    first = policy(1, 1.0)
    straight = History((Span(1, noise[1], 0, 1009), Span(2, noise[0], 1010)))
    until = dates_of(first, straight).until
    assert until < 999
    assert dates_of(first, end).until == until


def test_of_measured_streams_a_change_is_not_covered() -> None:
    first, second = measure_policy(3, version=1), measure_policy(3, version=2)
    spans = (Span(1, None, 0, 99), Span(2, None, 100))
    assert dates_of(first, History(spans[:1])).holds_always
    assert dates_of(second, History(spans)) == PromiseDates(1, None, None, None)
    later = History(spans[1:], complete=False)  # frames of version 1 never came
    assert dates_of(second, later) == dates_of(second, history_alone(second)) == PromiseDates(1, None, None, None)
    assert dates_of(second, later._replace(complete=True)).holds_always
    assert dates_of(first, History(spans[:1], complete=False)).holds_always
    assert dates_of(first, history_alone(first)).holds_always


PAIRS = JointChains(
    streams=(JointStream(name="hr", states=2, rate=1.0),),
    period_us=60_000_000,
    shows=((0,), (1,), (0,), (1,)),
    odds_ratio=4.0,
    steps=2,
    transition=((0.5, 0.5, 0.0, 0.0), (0.0, 0.0, 0.5, 0.5)) * 2,
)


def test_a_chain_of_order_two_is_told_of_for_ever() -> None:
    """A single step of it has no odds ratio: nothing is said of when a change is over, and soundly."""
    strong, weak = (NoiseTable.binary(flip, flip) for flip in (round(0.45 * SCALE), round(0.3 * SCALE)))
    less = PAIRS.model_copy(update={"streams": (JointStream(name="hr", states=2, rate=0.3),)})
    old = policy(1, 9.0, PAIRS, "ignorant", table=weak)
    new = policy(2, 9.0, less, "ignorant", table=strong)
    when = dates_of(new, one_after_another((old, 100), (new, 100)))
    assert when.since is when.outer_bound is None
    assert dates_of(old, one_after_another((old, 100), (new, 100))).holds_always


def test_windows_alone_are_dated_by_the_windows_alone() -> None:
    """Beside an unchanged window the symbols get less: those who see windows only are promised the same as ever."""
    window = Window(name="hour", length=60, stride=60, states=(1,), scale="120")
    versions = [
        policy(
            number,
            epsilon,
            table=table_for(WIDE, epsilon - 1.0, "informed", 1),
            windows=(window,),
            windows_guarantee=Guarantee(epsilon=1.0, adversary="informed"),
        )
        for number, epsilon in ((1, 4.0), (2, 2.0))
    ]
    history = one_after_another(*((version, 500) for version in versions))
    assert not dates_of(versions[1], history).holds_always
    assert dates_of(versions[1], history, windows_only=True).holds_always


def test_a_device_that_describes_itself_claims_nothing_of_what_it_does_not_know() -> None:
    """It keeps no former policy: of any but version 1 another one may have run before."""
    assert dates_of(policy(1, 1.0), history_alone(policy(1, 1.0))).holds_always
    second = policy(2, 1.0)
    when = dates_of(second, history_alone(second))
    assert when.since is None
    old = policy(1, 4.0)
    truth = losses(0.01, 0.01, np.array([rates_of(old)] * 200 + [rates_of(second)] * 200), "informed", 1)
    assert truth[200] <= when.epsilon(second.bound(), 200, 200, 1) < math.inf


def test_the_time_after_which_a_planned_promise_is_true() -> None:
    ticks = settling_ticks(WIDE, 1.0)
    old, new = policy(1, 4.0), policy(2, 1.0)
    since = dates_of(new, one_after_another((old, 500), (new, 500))).since
    assert since - 500 <= ticks < 600
    assert settling_ticks(WIDE, 1.0, 0.0) is None
    assert settling_ticks(PAIRS, 1.0) is None


def test_a_policy_of_categories_is_dated_too() -> None:
    """Its map of names to states is a dictionary, which has no hash; the adversary asks for the bound behind it."""
    names = Categories(categories={"on": 1, "off": 0}, states=("off", "on"))
    weak, strong = (
        policy(number, epsilon, adversary="ignorant").model_copy(update={"discretiser": names})
        for number, epsilon in ((1, 4.0), (2, 1.0))
    )
    when = dates_of(strong, one_after_another((weak, 2000), (strong, 2000)))
    assert when.since > 2000
