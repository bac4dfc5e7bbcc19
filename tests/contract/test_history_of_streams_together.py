"""Streams that move together: a change of one stream's policy dates the promises of all.

Two streams read the same two states here. So what a tick tells is the sum of what both tell, and the recursion by odds
ratios is exact.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from edge_agent.dating import device_history
from edge_agent.policy_history import Edition
from fugu.contract.chains import BoundedChains, ChainClass, JointChains, JointStream
from fugu.contract.dating import PromiseDates, dates_of
from fugu.contract.discretisers import Thresholds
from fugu.contract.frames import MAX_TICK
from fugu.contract.guarantee import Guarantee
from fugu.contract.history import History, Noise, RelatedStream, Span, louder_intervals
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.contract.timeline import Drawn
from gateway.parts.describe import InForce
from tests.support.changing_noise import odds_leakage, stretch_losses
from tests.support.scenes import catalogue
from tests.support.windows import policy as any_policy

ODDS, RATE = 16.0, 0.1
ALONE = BoundedChains(states=2, odds_ratio=ODDS)


def together(*names: str) -> JointChains:
    shown = tuple(JointStream(name=name, states=2, rate=RATE) for name in names)
    return JointChains(streams=shown, period_us=60_000_000, shows=((0, 0), (1, 1)), odds_ratio=ODDS)


@cache
def policy(
    stream: str, version: int, chains: ChainClass, rate: float, *, device: str = "watch", epoch: int = 0
) -> Policy:
    """A symmetric table whose symbol tells at most `rate` nats; a promise with little to spare."""
    wrong = math.ceil(SCALE / (1 + math.exp(rate)))
    fields = {"device": device, "stream": stream, "version": version, "chains": chains}
    clock = Clock(epoch_us=epoch, period_us=60_000_000)
    policy = any_policy(**fields, clock=clock, table=NoiseTable.binary(wrong, wrong))
    achieved = policy.verify().epsilon
    return policy.model_copy(update={"guarantee": Guarantee(epsilon=achieved * 1.01, adversary="universal")})


BOTH = together("hr", "steps")
HR, OWN = policy("hr", 1, BOTH, RATE), policy("steps", 2, BOTH, RATE)
LOUD = policy("steps", 1, ALONE, 3.0)


def history_of_hr(*steps: tuple[Policy, int, int | None]) -> History:
    """The first stream always has its one policy; the other has these, each from a first tick to a last one."""
    spans = tuple(Span(version.version, Noise.of(version), first, last) for version, first, last in steps)
    beside = RelatedStream("watch/steps", History(spans), tuple(version for version, _, _ in steps))
    return History((Span(1, Noise.of(HR), 0, None),), related_streams=(beside,))


def truth_of(*rates: tuple[float, int]) -> np.ndarray:
    """Loss of each tick, where both streams together tell some nats for so many ticks."""
    steps = np.repeat(np.array([[rate, rate] for rate, _ in rates]), [count for _, count in rates], axis=0)
    past, future = odds_leakage(ODDS, steps), odds_leakage(ODDS, steps[::-1])[::-1]
    return np.asarray(stretch_losses(past, future, steps, 1))


def within(truth: np.ndarray, when: PromiseDates, promised: Policy) -> None:
    for tick, loss in enumerate(truth.tolist()):
        assert loss <= when.epsilon(promised.bound(), tick, tick, 1) + 1e-9, tick


def test_a_weaker_policy_of_the_other_stream_leaks_over_its_change() -> None:
    when = dates_of(HR, history_of_hr((LOUD, 0, 299), (OWN, 300, None)))
    truth = truth_of((RATE + 3.0, 300), (2 * RATE, 300))
    assert truth[300] > HR.guarantee.epsilon, "its own noise is what it was"
    assert 300 < when.since < 340
    within(truth, when, HR)


def test_a_weaker_policy_of_the_other_stream_that_follows_ends_the_promise_before() -> None:
    louder = LOUD.model_copy(update={"version": 3})
    when = dates_of(HR, history_of_hr((OWN, 0, 299), (louder, 300, None)))
    truth = truth_of((2 * RATE, 300), (RATE + 3.0, 300))
    assert truth[299] > HR.guarantee.epsilon
    assert 260 < when.until < 299
    within(truth, when, HR)


def test_a_policy_of_the_class_that_follows_another_changes_nothing() -> None:
    assert dates_of(HR, history_of_hr((OWN, 0, 99), (policy("steps", 3, BOTH, RATE / 2), 100, None))).holds_always


def test_a_tick_at_which_both_had_the_class_is_needed_and_a_pause_is_no_change() -> None:
    """The other stream pauses, and comes back under another map from readings to states: other secrets."""
    moved = OWN.model_copy(update={"version": 3, "discretiser": Thresholds(edges=(0.9,), states=("low", "high"))})
    assert dates_of(HR, history_of_hr((OWN, 0, 99), (OWN, 150, None))).holds_always
    when = dates_of(HR, history_of_hr((OWN, 0, 99), (moved.model_copy(update={"chains": ALONE}), 150, None)))
    assert when.until < 150


@pytest.mark.parametrize("changed", [True, False])
def test_numbers_of_another_device_say_nothing_once_it_had_another_policy(changed: bool) -> None:
    chains = together("watch/hr", "lamp/light")
    own = policy("hr", 1, chains, RATE)
    lamp = [policy("light", 1, ALONE if changed else chains, 3.0 if changed else RATE, device="lamp")]
    lamp.append(policy("light", 2, chains, RATE, device="lamp"))
    spans = tuple(
        Span(version.version, Noise.of(version), first, last)
        for version, (first, last) in zip(lamp, ((0, 99), (100, None)), strict=True)
    )
    beside = RelatedStream("lamp/light", History(spans), tuple(lamp))
    when = dates_of(own, History((Span(1, Noise.of(own), 0, None),), related_streams=(beside,)))
    assert when.holds_always is not changed
    assert (when.since is None) is changed


def test_a_device_promises_nothing_together_with_one_whose_policies_it_does_not_know() -> None:
    chains = together("watch/hr", "lamp/light")
    own = policy("hr", 1, chains, RATE)
    assert dates_of(own, device_history(own, {"hr": {"rows": [], "editions": {}}}, [own])).since is None


def test_what_the_other_stream_told_before_its_first_known_tick_may_have_been_louder() -> None:
    beside = RelatedStream("watch/steps", History((Span(2, Noise.of(OWN), 300, None),), complete=False), (OWN,))
    assert louder_intervals(HR, History(related_streams=(beside,))) == [(0, 299)]
    nothing = beside._replace(history=History((), complete=False))
    assert louder_intervals(HR, History(related_streams=(nothing,))) == [(0, MAX_TICK)]
    when = dates_of(HR, History((Span(1, Noise.of(HR), 0, None),), related_streams=(beside,)))
    assert 300 < when.since < 400


def test_ticks_of_another_clock_are_other_moments_also_on_one_device() -> None:
    other = policy("steps", 2, BOTH, RATE, epoch=30_000_000)
    spans = Span(1, Noise.of(LOUD), 0, 99), Span(2, Noise.of(other), 100, None)
    beside = RelatedStream("watch/steps", History(spans), (LOUD, other))
    assert louder_intervals(HR, History(related_streams=(beside,))) == [(0, MAX_TICK)]
    same = RelatedStream("watch/steps", History((spans[0], spans[1]._replace(noise=Noise.of(OWN)))), (LOUD, OWN))
    assert louder_intervals(HR, History(related_streams=(same,))) == [(0, 99)]


def test_a_version_without_a_tick_has_no_bound_beside_a_louder_stream() -> None:
    """Its ticks may be any."""
    beside = RelatedStream("watch/steps", History((Span(1, Noise.of(LOUD), 0, None),)), (LOUD, OWN))
    when = dates_of(HR, History((), complete=False, related_streams=(beside,)))
    assert (when.since, when.outer_bound) == (None, None)


def test_a_device_follows_its_own_streams() -> None:
    def rows(*editions: tuple[Policy, int, int]) -> dict[str, object]:
        return {
            "rows": [[first, last, number, first] for number, (_, first, last) in enumerate(editions)],
            "editions": {
                n: Edition(version.version, Noise.of(version).text()) for n, (version, _, _) in enumerate(editions)
            },
        }

    drawn = {"hr": rows((HR, 0, 599)), "steps": rows((LOUD, 0, 299), (OWN, 300, 599))}
    when = dates_of(HR, device_history(HR, drawn, [HR, OWN]))
    assert 300 < when.since < 340
    assert dates_of(HR, device_history(HR, {"hr": drawn["hr"], "steps": rows((OWN, 0, 599))}, [HR, OWN])).holds_always


def test_a_gateway_follows_the_streams_of_a_device() -> None:
    rows = {"hr": [Drawn(0, 599, 1, 0)], "steps": [Drawn(0, 299, 1, 0), Drawn(300, 599, 2, 300)]}
    force = InForce(catalogue([HR, LOUD, OWN]), rows_of=lambda _device, stream: rows[stream])
    for stream, version in (("hr", 1), ("steps", 2)):
        force.note_version("watch", stream, version, 599)
    when = dates_of(HR, force.history("watch", "hr"))
    assert 300 < when.since < 340
    within(truth_of((RATE + 3.0, 300), (2 * RATE, 300)), when, HR)
