"""The board derives guarantees in integers: what the agent proves it proves as well, and nothing that is smaller."""

from __future__ import annotations

import json
import math
import random
from fractions import Fraction
from types import SimpleNamespace

import pytest

from fugu.audit.exact import recompute
from fugu.contract.chains import (
    BinaryChains,
    BoundedChains,
    ChainClass,
    JointChains,
    JointStream,
    odds_ratio,
    two_steps,
)
from fugu.contract.compiled import read_policy as read_agents
from fugu.contract.compiler import compile_board_policy, compile_policy
from fugu.contract.discretisers import Thresholds
from fugu.contract.guarantee import Guarantee, StreamOutputs
from fugu.contract.losses import Adversary, ratio_below
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.contract.stretches import Ceiling, stretch_ticks
from fugu.contract.windows import Window
from fugu.core.compiled import read_policy
from fugu.core.guarantee import GuaranteeError, check, window_rate
from fugu.core.pins import check_pins
from fugu.core.policy import Window as Compiled

WINDOW = Window(name="w", length=10, stride=5, states=(1,), scale="20")
MOST = ratio_below(1000.0)


def _policy(
    table: NoiseTable, chains: ChainClass, adversary: Adversary, epsilon: float, windows: float | None = None
) -> Policy:
    states = table.states
    return Policy(
        *(), fleet="home", device="watch", stream="hr", version=1, clock=Clock(epoch_us=0, period_us=1_000_000),
        discretiser=Thresholds(edges=tuple(float(e) for e in range(1, states)), states=tuple("abcdefgh"[:states])),
        table=table, chains=chains, guarantee=Guarantee(epsilon=epsilon, adversary=adversary),
        windows=() if windows is None else (WINDOW,),
        windows_guarantee=None if windows is None else Guarantee(epsilon=windows, adversary=adversary),
    )  # fmt: skip


def _checked(policy: Policy, ceiling: int = MOST) -> float:
    return math.log(Fraction(check(read_policy(compile_board_policy(policy)), [(ceiling, 0)]), 1 << 128))


def _refused(policy: Policy, ceiling: int = MOST) -> str:
    with pytest.raises(GuaranteeError) as caught:
        _checked(policy, ceiling)
    return str(caught.value)


def _classes(generator: random.Random) -> ChainClass:
    q, r = (sorted(generator.uniform(0.02, 0.5) for _ in range(2)) for _ in range(2))
    if generator.random() < 0.3:
        q, r = q[:1] * 2, r[:1] * 2
    if generator.random() < 0.2:
        return BoundedChains(states=2, odds_ratio=generator.uniform(1.0, 50.0))
    return BinaryChains(q=(q[0], q[1]), r=(r[0], r[1]))


@pytest.mark.parametrize("adversary", ["ignorant", "informed", "universal"])
@pytest.mark.parametrize("windows", [False, True])
def test_a_claim_that_the_agent_proves_exactly_is_proven_and_a_smaller_one_is_not(
    adversary: Adversary, windows: bool
) -> None:
    generator = random.Random(f"{adversary} {windows}")
    for _ in range(8):
        table = NoiseTable.binary(*(generator.randrange(1 << 29, (1 << 31) - 1000) for _ in range(2)))
        chains = _classes(generator)
        loose = _policy(table, chains, adversary, 900.0, 900.0 if windows else None)
        exact = loose.verify().epsilon
        alone = loose.verify_windows()
        least = None if alone is None else alone.epsilon
        assert _checked(_policy(table, chains, adversary, exact, least)) <= exact * (1 + 1e-14)
        assert "the stream loses" in _refused(_policy(table, chains, adversary, exact * (1 - 1e-11), least))
        if least is not None:
            assert "the windows lose" in _refused(_policy(table, chains, adversary, exact, least * (1 - 1e-11)))


@pytest.mark.parametrize("seconds", [0, 1, 59, 60, 61, 3600])
def test_a_ceiling_of_a_time_is_held_against_a_stretch_of_that_time_as_the_agent_does(seconds: int) -> None:
    table = NoiseTable.binary((1 << 31) - (1 << 22), (1 << 31) - (1 << 22))
    promise = Guarantee(epsilon=20.0, adversary="universal", stretch_ticks=61)
    policy = _policy(table, BoundedChains(states=2, odds_ratio=6.0), "universal", 900.0).model_copy(
        update={"guarantee": promise}
    )
    longer = stretch_ticks(seconds, 1_000_000) if seconds else 1
    limit = policy.bound().epsilon(longer)
    compiled = compile_board_policy(policy)
    check(read_policy(compiled), [(ratio_below(limit * (1 + 1e-12)), seconds)])
    policy.verify(Ceiling(epsilon=limit * (1 + 1e-12), seconds=seconds))
    with pytest.raises(GuaranteeError, match="above the ceiling"):
        check(read_policy(compiled), [(ratio_below(limit * (1 - 1e-12)), seconds)])


def test_what_came_first_is_pinned() -> None:
    table, chains = NoiseTable.binary(1_500_000_000, 1_500_000_000), BinaryChains(q=(0.2, 0.3), r=(0.3, 0.4))
    first = _policy(table, chains, "informed", 50.0, 40.0)
    pinned = read_policy(compile_board_policy(first))
    promise = Guarantee(epsilon=50.0, adversary="ignorant")
    wider = BinaryChains(q=(0.1, 0.3), r=(0.3, 0.5))
    for fields in ({"version": 7}, {"chains": wider}, {"windows": (), "windows_guarantee": None}):
        check_pins(read_policy(compile_board_policy(first.model_copy(update=fields))), pinned)
    weaker: dict[str, dict[str, object]] = {
        "another clock": {"clock": Clock(epoch_us=0, period_us=500_000)},
        "another discretiser": {"discretiser": Thresholds(edges=(2.0,), states=("a", "b"))},
        "another class of chains": {"chains": BinaryChains(q=(0.25, 0.3), r=(0.3, 0.4))},
        "a weaker adversary": {"guarantee": promise},
        "windows that lose more": {"windows_guarantee": Guarantee(epsilon=41.0, adversary="informed")},
    }
    for why, change in weaker.items():
        with pytest.raises(Exception, match=why):
            check_pins(read_policy(compile_board_policy(first.model_copy(update=change))), pinned)


def test_a_window_counts_as_often_as_a_tick_is_in_it_and_a_histogram_twice() -> None:
    """A tick of another state is one less in one place of a histogram, and one more in another."""
    compiled, two = Compiled(), Compiled()
    compiled.length, compiled.stride, compiled.histogram, compiled.numerator, compiled.denominator = 10, 5, False, 20, 3
    two.length, two.stride, two.histogram, two.numerator, two.denominator = 5, 5, True, 7, 1
    both = ([], [compiled], [two], [compiled, two])
    rates = [Fraction(*window_rate(SimpleNamespace(windows=some, sums=()))) for some in both]
    assert rates == [0, Fraction(6, 20), Fraction(2, 7), Fraction(6, 20) + Fraction(2, 7)]


PAIRS = ((0,), (1,), (0,), (1,))  # the state before and the present one, which is shown
STEP = ((0.6, 0.4, 0.0, 0.0), (0.0, 0.0, 0.3, 0.7), (0.5, 0.5, 0.0, 0.0), (0.0, 0.0, 0.2, 0.8))
TOLD = NoiseTable.binary((1 << 31) - (1 << 27), (1 << 31) - (1 << 25))


def _joint(windows: bool, *, order_two: bool, spare: float) -> Policy:
    """One of two streams, or a stream of order 2, whose class lets a tick tell what it does, and a little more."""
    table, counted = TOLD, (WINDOW,) if windows else ()
    rate = float(StreamOutputs(table, counted).rate) * (1 + spare)
    own, other = JointStream(name="hr", states=2, rate=rate), JointStream(name="motion", states=2, rate=0.3)
    if order_two:
        odds = odds_ratio(two_steps(STEP, PAIRS))
        shown = {"streams": (own,), "shows": PAIRS, "odds_ratio": odds, "steps": 2, "transition": STEP}
    else:
        shown = {"streams": (other, own), "shows": ((0, 0), (0, 1), (1, 0), (1, 1)), "odds_ratio": 9.0}
    return Policy(
        *(), fleet="home", device="watch", stream="hr", version=1, clock=Clock(epoch_us=0, period_us=1_000_000),
        discretiser=Thresholds(edges=(1.0,), states=("a", "b")), table=table, windows=counted,
        chains=JointChains(period_us=1_000_000, **shown),
        guarantee=Guarantee(epsilon=900.0, adversary="universal"),
        windows_guarantee=Guarantee(epsilon=900.0, adversary="universal") if windows else None,
    )  # fmt: skip


@pytest.mark.parametrize("ticks", [1, 7])
@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("order_two", [False, True])
def test_a_claim_about_streams_that_move_together_is_proven_where_the_second_certificate_has_it(
    order_two: bool, windows: bool, ticks: int
) -> None:
    loose = _joint(windows, order_two=order_two, spare=1e-12)

    def claims(*epsilons: float) -> Policy:
        promises = [Guarantee(epsilon=each, adversary="universal", stretch_ticks=ticks) for each in epsilons]
        return loose.model_copy(update=dict(zip(("guarantee", "windows_guarantee"), promises, strict=False)))

    wide = claims(900.0, 900.0) if windows else claims(900.0)
    losses = [claim.loss for claim in recompute(json.loads(wide.to_json())) if "tick" not in claim.output]
    needed = [float(loss) * (1 + 1e-13) for loss in losses if loss is not None]
    assert len(needed) == 1 + windows
    check(read_agents(compile_policy(claims(*needed))))
    claims(*needed).verify()
    for place in range(len(needed)):
        below = [each * (1 - 1e-11 * (place == number)) for number, each in enumerate(needed)]
        with pytest.raises(GuaranteeError, match="more than is claimed"):
            check(read_agents(compile_policy(claims(*below))))


@pytest.mark.parametrize("windows", [False, True])
def test_a_stream_may_tell_what_its_class_of_joint_chains_allows_and_no_more(windows: bool) -> None:
    check(read_agents(compile_policy(_joint(windows, order_two=False, spare=1e-12))))
    for spare in (-1e-9, -0.999):
        less = _joint(windows, order_two=False, spare=spare)
        with pytest.raises(GuaranteeError, match="more in a tick than its class"):
            check(read_agents(compile_policy(less)))
    if windows:  # and no symbols
        alone = {"table": None, "frame_ticks": 1, "windows_guarantee": None}
        with pytest.raises(GuaranteeError, match="more in a tick than its class"):
            check(read_agents(compile_policy(less.model_copy(update=alone))))
