"""Power of a stolen policy key within the ceilings, by enumeration; pins refuse each of its uses."""

from __future__ import annotations

import math
from array import array
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, JointChains, JointStream
from fugu.contract.discretisers import Thresholds
from fugu.contract.errors import GuaranteeError, Reason
from fugu.contract.frames import MAX_TICK
from fugu.contract.guarantee import Guarantee, tick_ratios
from fugu.contract.measure_policy import MeasurePolicy, sparse_rows
from fugu.contract.measure_table import TimedTable, set_of
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.pins import MeasuredPins, SymbolPins, pins_of, violations
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Clock, Policy
from fugu.contract.trust import Trust
from fugu.contract.windows import Window
from fugu.privacy.randomised_response import calibrate
from tests.support.measured import measure_policy
from tests.support.oracle import worst_loss
from tests.support.refusals import refused_for
from tests.support.signing import NOW, Keys, policy_document
from tests.support.windows import policy as any_policy

KEYS = Keys()
OFFICE = BinaryChains(q=(0.0036, 0.0036), r=(0.012, 0.012))
COINS = BinaryChains(q=(0.5, 0.5), r=(0.5, 0.5))
SECOND = 1_000_000


@cache
def calibrated(chains: BinaryChains, epsilon: float) -> NoiseTable:
    return calibrate(chains, epsilon, "informed").table


def heart(chains: BinaryChains = OFFICE, **fields: Any) -> Policy:
    """A policy whose guarantee of 1 is true for its class."""
    document = {
        **{"version": 5, "table": calibrated(chains, 1.0), "chains": chains},
        "discretiser": Thresholds(edges=(70.0,), states=("low", "high")),
        "guarantee": Guarantee(epsilon=1.0, adversary="informed"),
    }
    return any_policy(**document | fields)


WINDOW = Window(name="hour", length=60, stride=60, states=("high",), scale="2000")
COUNTED = heart(
    table=calibrated(OFFICE, 0.9), windows=(WINDOW,), windows_guarantee=Guarantee(epsilon=0.1, adversary="informed")
)


def place(side: int = 2, **fields: Any) -> MeasurePolicy:
    return measure_policy(side, **{"graph": {"complete": True}, "version": 5, **fields})


def accepted(policy: AnyPolicy, **limits: Any) -> None:
    """A device takes a policy that the stolen key has signed; fails if it does not."""
    fields = {"ceiling": 1.0, "measurement_ceiling": 1.0, **limits}
    device = Trust(KEYS.enrolment(**fields))
    assert device.judge(KEYS.signed(policy_document(policy, version=5)), "policy", NOW).changes


def refused(policy: AnyPolicy, pinned: AnyPolicy, **limits: Any) -> str:
    """Why a device whose owner has pinned another policy refuses it; nothing changes."""
    fields = {"ceiling": 1.0, "measurement_ceiling": 1.0, **limits, "pins": {pinned.stream: pins_of(pinned)}}
    device = Trust(KEYS.enrolment(**fields))
    before = device.state
    with refused_for(Reason.PINNED) as caught:
        device.judge(KEYS.signed(policy_document(policy, version=5)), "policy", NOW)
    assert device.state == before
    assert caught.value.reason == "pinned"
    return str(caught.value)


def marked(pairs: tuple[tuple[int, int], ...] = ((0, 1), (2, 3))) -> MeasurePolicy:
    """A policy of four states whose table names the pair that the state is in."""
    low, high = array("I", [SCALE - 1]), array("I", [1])
    rows = tuple(low if state in pairs[0] else high for state in range(4))
    table = TimedTable(5, 1, set_of(range(4)), 0, MAX_TICK + 1, NoiseTable(rows, ((0, 0), (1, 1))))
    base = place(graph={"edges": [list(pair) for pair in pairs]}, factor=1000, tables=False)
    return MeasurePolicy.model_validate({**base.model_dump(), "tables": (table.text,)})


def test_a_stolen_key_cannot_choose_a_class_of_independent_readings() -> None:
    """Of the office, which is sticky, five ticks alone tell four times what the class of coins pretends."""
    attack = heart(COINS)
    attack.verify(1.0)
    accepted(attack)
    (q, _), (r, _) = OFFICE.q, OFFICE.r
    emission = np.array(attack.table.weights()) / SCALE
    steps = [np.array([[1 - q, q], [r, 1 - r]])] * 4
    really = worst_loss(np.array([r, q]) / (q + r), steps, emission, informed=False).max()
    assert really > 4.0
    assert OFFICE.ratio_loss(*tick_ratios(attack.table), "informed").epsilon > 10.0
    assert "class of chains" in refused(attack, heart())


def test_a_stolen_key_cannot_name_the_pair_of_states() -> None:
    attack = marked()
    attack.verify(1.0)
    accepted(attack)
    noise = attack.measure_tables[1].noise
    here, there = (noise.row_weights(state)[0] for state in (0, 2))
    assert here / (here + there) > 0.9999999984, "the pair is known, from one point"
    assert "does not join the pinned pair" in refused(attack, place())


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"discretiser": Thresholds(edges=(180.0,), states=("low", "high"))}, "discretiser"),
        ({"discretiser": Thresholds(edges=(70.0,), states=("low", "high"), hysteresis=1.0)}, "discretiser"),
        ({"discretiser": Thresholds(edges=(70.0,), states=("high", "low"))}, "discretiser"),
        ({"clock": Clock(epoch_us=0, period_us=100)}, "another clock"),
        ({"clock": Clock(epoch_us=0, period_us=SECOND * 3 // 2)}, "another clock"),
        ({"guarantee": Guarantee(epsilon=1.0, adversary="ignorant")}, "a weaker adversary"),
        ({"chains": BinaryChains(q=(0.0037, 0.02), r=(0.012, 0.012))}, "class of chains"),
    ],
)
def test_a_stolen_key_cannot_move_what_a_stream_is_about(fields: dict[str, Any], why: str) -> None:
    attack = heart(**fields)
    accepted(attack)
    assert why in refused(attack, heart())


def test_a_stolen_key_cannot_give_windows_to_those_who_see_nothing_else() -> None:
    weak = heart(**{**dict(COUNTED), "windows_guarantee": Guarantee(epsilon=0.9, adversary="informed")})
    ignorant = heart(**{**dict(COUNTED), "windows_guarantee": Guarantee(epsilon=0.1, adversary="ignorant")})
    for attack, why in ((weak, "windows that lose more"), (ignorant, "windows with a weaker adversary")):
        accepted(attack)
        assert why in refused(attack, COUNTED)
    assert violations(heart(), pins_of(COUNTED)) == (), "no windows at all tell less"


@pytest.mark.parametrize(("ticks", "slower", "counted"), [(4, 3, 2), (3, 3, 1), (1, 3, 1), (4, 1, 4), (601, 60, 11)])
def test_a_pinned_stretch_has_as_many_slower_ticks_as_can_fall_into_it(ticks: int, slower: int, counted: int) -> None:
    """Windows that keep to the pin for so many ticks, and not for one more."""
    slower_policy = heart(**{**dict(COUNTED), "clock": Clock(epoch_us=0, period_us=slower * SECOND)})
    bound = slower_policy.windows_bound()
    pins = pins_of(COUNTED)
    for most, refused_by in ((bound.epsilon(counted), 0), (bound.epsilon(counted) * (1 - 1e-12), 1)):
        pinned = Guarantee(epsilon=most, adversary="informed", stretch_ticks=ticks)
        assert len(violations(slower_policy, pins.model_copy(update={"windows": pinned}))) == refused_by


def test_windows_alone_are_held_to_what_windows_may_tell() -> None:
    alone = {"table": None, "frame_ticks": 1, "windows": (WINDOW,)}
    loud, quiet = (heart(**alone, guarantee=Guarantee(epsilon=e, adversary="informed")) for e in (0.9, 0.1))
    accepted(loud)
    assert "windows that lose more" in refused(loud, COUNTED)
    for policy in (quiet, COUNTED):
        assert violations(quiet, pins_of(policy)) == ()
    assert violations(loud, pins_of(quiet)) == ("windows that lose more than is pinned",)


def test_another_kind_or_a_stream_beside_the_pinned_ones_is_refused() -> None:
    assert "measured is pinned" in refused(heart(stream="place"), place())
    assert "symbols is pinned" in refused(place(stream="hr"), heart())
    assert "nothing is pinned of stream other" in refused(heart(stream="other"), heart())


def test_measured_streams_keep_what_decides_which_pairs_count() -> None:
    stay = sparse_rows(np.eye(4).tolist())
    for fields, why in (
        ({"clock": Clock(epoch_us=SECOND, period_us=SECOND)}, "clock"),
        ({"clock": Clock(epoch_us=0, period_us=2 * SECOND)}, "clock"),
        ({"initial": (0.5, 0.5, 0.0, 0.0), "tables": False}, "possible at tick 0"),
        ({"transition": stay}, "follow one another"),
        ({"cycle": 2}, "follow one another"),
        ({"cycle": 2, "changes": ({"tick": 1, "transition": stay},)}, "follow one another"),
        ({"shows": (0, 1, 2, 3)}, "follow one another"),
        ({"factor": 5}, "factor 5 is above the pinned 4"),
        ({"graph": {"edges": [[0, 1], [2, 3]]}, "tables": False}, "pinned pair of states 0 and 2"),
        ({"graph": {"radius": 1.0}}, "pinned pair of states 0 and 3"),
    ):
        attack = place(**fields)
        accepted(attack)
        assert why in refused(attack, place())


def test_a_graph_may_join_more_and_a_factor_be_smaller() -> None:
    pinned = place(graph={"radius": 1.0})
    pins = pins_of(pinned)
    assert pins.graph.model_dump() == {"edges": ((0, 1), (0, 2), (1, 3), (2, 3))}
    for better in (pinned, place(), place(factor=3), place(graph={"categories": [1, 1, 1, 1]})):
        assert violations(better, pins) == ()
    assert violations(pinned, pins_of(place(graph={"categories": ["a", "b", "a", "b"]}))) == ()


def test_a_degree_of_protection_is_pinned_and_kept_by_every_table() -> None:
    """Two joined pairs hide each state among two. A promise of three is refused by the check of the tables."""
    two = marked()
    pinned = pins_of(place(degree=3))
    assert any("degree of protection 2 is below the pinned 3" in why for why in violations(two, pinned))
    three = MeasurePolicy.model_validate({**two.model_dump(), "degree": 3})
    with pytest.raises(GuaranteeError, match="hidden among 2 possible states: a degree of protection of 3"):
        three.verify(1.0)
    place(degree=4).verify(1.0)


def test_pins_of_a_policy_accept_that_policy_and_survive_json() -> None:
    for policy in (heart(), COUNTED, place(3), place(3, graph={"radius": 1.5}), place(3, graph={"transition": True})):
        pins = pins_of(policy)
        assert violations(policy, pins) == ()
        assert violations(policy, type(pins).model_validate_json(pins.model_dump_json(exclude_none=True))) == ()


@pytest.mark.parametrize(
    ("period", "hysteresis", "ok"),
    [(SECOND, 1.0, True), (2 * SECOND, 1.0, False), (2 * SECOND, 0.0, True), (SECOND // 2, 0.0, False)],
)
def test_some_of_the_pinned_ticks_are_enough_unless_hysteresis_remembers(
    period: int, hysteresis: float, *, ok: bool
) -> None:
    states = Thresholds(edges=(70.0,), states=("low", "high"), hysteresis=hysteresis)
    slower = heart(discretiser=states, clock=Clock(epoch_us=7, period_us=period))
    assert (violations(slower, pins_of(heart(discretiser=states))) == ()) == ok


BELOW, ABOVE = math.nextafter(0.25, 0), math.nextafter(0.25, 1)
HALF = BinaryChains(q=(0.25, 0.25), r=(0.5, 0.5))
PAIRS = JointChains(
    streams=(JointStream(name="s", states=2, rate=1.0),),
    period_us=60_000_000,
    shows=((0,), (1,), (0,), (1,)),
    odds_ratio=3.0,
    steps=2,
    transition=((0.5, 0.5, 0.0, 0.0), (0.0, 0.0, 0.5, 0.5)) * 2,
)


@pytest.mark.parametrize(
    ("wider", "pinned", "inside"),
    [
        (BinaryChains(q=(0.25, 0.5), r=(0.5, 0.5)), BinaryChains(q=(0.25, 0.5), r=(0.5, 0.5)), True),
        (BinaryChains(q=(ABOVE, 0.5), r=(0.5, 0.5)), BinaryChains(q=(0.25, 0.5), r=(0.5, 0.5)), False),
        (BinaryChains(q=(0.25, 0.5), r=(0.5, 0.5)), BinaryChains(q=(BELOW, 0.5), r=(0.5, 0.5)), False),
        (BinaryChains(q=(0.1, 0.5), r=(0.25, 0.5)), BinaryChains(q=(0.2, 0.3), r=(BELOW, 0.5)), False),
        (BinaryChains(q=(0.1, 0.5), r=(0.25, 0.5)), BinaryChains(q=(0.2, 0.3), r=(0.3, 0.6)), False),
        # odds ratios: (3/4 * 1/2) / (1/4 * 1/2) = 3, of alternating chains the inverse
        (BoundedChains(states=2, odds_ratio=3.0), BinaryChains(q=(0.25, 0.5), r=(0.5, 0.5)), True),
        (BoundedChains(states=2, odds_ratio=3.0), BinaryChains(q=(BELOW, 0.5), r=(0.5, 0.5)), False),
        (BoundedChains(states=2, odds_ratio=3.0), BinaryChains(q=(0.75, 0.75), r=(0.5, 0.5)), True),
        (BoundedChains(states=2, odds_ratio=3.0), BinaryChains(q=(0.5, math.nextafter(0.75, 1)), r=(0.5, 0.5)), False),
        (BoundedChains(states=2, odds_ratio=3.0), BoundedChains(states=2, odds_ratio=3.0), True),
        (
            BoundedChains(states=2, odds_ratio=3.0),
            BoundedChains(states=2, odds_ratio=math.nextafter(3, 4), transition=None),
            False,
        ),
        (BoundedChains(states=2, odds_ratio=3.0), BoundedChains(states=3, odds_ratio=1.0), False),
        (BoundedChains(states=2, odds_ratio=3.0), HALF, True),
        (BoundedChains(states=2, odds_ratio=math.nextafter(3, 2)), HALF, False),
        (BinaryChains(q=(ABOVE, 0.5), r=(0.5, 0.5)), HALF, False),
        (BinaryChains(q=(0.01, 0.99), r=(0.01, 0.99)), BoundedChains(states=2, odds_ratio=1.0), False),
        (HALF, HALF, True),
        (HALF, BoundedChains(states=2, odds_ratio=1.0), False),
        (PAIRS, PAIRS.model_copy(update={"odds_ratio": 1.0}), True),
        (PAIRS, PAIRS.model_copy(update={"odds_ratio": math.nextafter(3, 4)}), False),
        (PAIRS, PAIRS.model_copy(update={"steps": 1}), False),
        (PAIRS.model_copy(update={"steps": 1}), PAIRS, False),
        (PAIRS, PAIRS.model_copy(update={"period_us": 1_000_000}), False),
        (BoundedChains(states=4, odds_ratio=3.0), PAIRS.model_copy(update={"steps": 1}), False),
    ],
)
def test_containment_is_exact_from_both_sides(wider: ChainClass, pinned: ChainClass, *, inside: bool) -> None:
    assert wider.covers(pinned) == inside


PROBABILITY = st.floats(0.01, 0.99)


@pytest.mark.long
@settings(max_examples=20)
@given(*[st.tuples(PROBABILITY, PROBABILITY).map(lambda pair: (min(pair), max(pair))) for _ in range(4)])
def test_a_class_that_contains_another_promises_at_least_as_much(
    q: tuple[float, float], r: tuple[float, float], own_q: tuple[float, float], own_r: tuple[float, float]
) -> None:
    """A class inside another does not lose more there than the other says."""
    pinned = BinaryChains(q=q, r=r)
    ratios = tick_ratios(NoiseTable.binary(1 << 31, 1 << 30))
    members = [BinaryChains(q=(x, x), r=(y, y)) for x in q for y in r]
    wider = [BinaryChains(q=own_q, r=own_r), BoundedChains(states=2, odds_ratio=9.0)]
    for wide in wider:
        if wide.covers(pinned):
            most = wide.ratio_loss(*ratios, "informed").epsilon
            assert all(member.ratio_loss(*ratios, "informed").epsilon <= most for member in members)


SYMBOL_FAULTS = [{"chains": {"kind": "bounded", "states": 3, "odds_ratio": 2.0}}, {"period_us": 0}, {"other": 1}]
MEASURED_FAULTS = [{"start": (4,)}, {"steps": ((0,),)}, {"graph": {"edges": ((0, 9),)}}, {"degree": 1}]


@pytest.mark.parametrize(
    ("pins", "wrong"),
    [
        *((pins_of(heart()), fault) for fault in SYMBOL_FAULTS),
        *((pins_of(place()), fault) for fault in MEASURED_FAULTS),
    ],
)
def test_pins_that_contradict_themselves(pins: SymbolPins | MeasuredPins, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        type(pins).model_validate({**pins.model_dump(), **wrong})
