"""Loss of streams of one sensor together: never more than the device computes, and more than their sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytest

from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, JointChains, JointStream, odds_ratio
from fugu.contract.discretisers import Categories, Thresholds
from fugu.contract.errors import Reason
from fugu.contract.guarantee import Guarantee
from fugu.contract.joint import NoJointBoundError, check_joint_streams, joint_epsilon
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.contract.trust import Trust
from fugu.contract.windows import Window
from fugu.privacy.randomised_response import calibrate
from tests.support.measured import measure_policy
from tests.support.oracle import Array, worst_loss
from tests.support.proofs import check_printed
from tests.support.refusals import refused_for
from tests.support.signing import NOW, Keys, policy_document

KEYS = Keys()
OFFICE = BinaryChains(q=(0.0036, 0.0036), r=(0.012, 0.012))


def stream(name: str, table: NoiseTable, chains: ChainClass, adversary: Adversary, **fields: Any) -> Policy:
    """A policy that promises what its table loses."""
    states = tuple(f"s{x}" for x in range(chains.states))
    document: dict[str, Any] = {
        **{"fleet": "home", "device": "watch", "stream": name, "version": 5, "frame_ticks": 10},
        "clock": Clock(epoch_us=0, period_us=1_000_000),
        "discretiser": Categories(categories={state: x for x, state in enumerate(states)}, states=states),
        "table": table,
        "chains": chains,
        "guarantee": Guarantee(epsilon=100.0, adversary=adversary),
        **fields,
    }
    draft = Policy(**document)
    epsilon = draft.verify().epsilon
    return draft.model_copy(update={"guarantee": Guarantee(epsilon=epsilon, adversary=adversary)})


def flips(*rho: float) -> NoiseTable:
    return NoiseTable.binary(*(round(probability * SCALE) for probability in rho))


def together(policies: Sequence[Policy]) -> Array:
    """The distribution of all symbols of a tick, (k, outputs): independent given the state."""
    distributions = [np.array(policy.table.weights()) / SCALE for policy in policies]
    return reduce(lambda a, b: (a[:, :, None] * b[:, None, :]).reshape(len(a), -1), distributions)


STICKY = ((0.05, 0.1), [flips(0.4, 0.35), flips(0.3, 0.45)])
OPPOSITE = ((0.05, 0.1), [flips(0.05, 0.6), flips(0.6, 0.05)])
THREE = ((0.02, 0.05), [flips(0.45, 0.45), flips(0.42, 0.48), flips(0.3, 0.55)])
ALTERNATING = ((0.95, 0.9), [flips(0.3, 0.4), flips(0.45, 0.2)])


@pytest.mark.parametrize("adversary", ["ignorant", "informed"])
@pytest.mark.parametrize(("chain", "tables"), [STICKY, OPPOSITE, THREE, ALTERNATING])
def test_streams_of_one_sensor_tell_no_more_than_is_computed(
    chain: tuple[float, float], tables: list[NoiseTable], adversary: Adversary
) -> None:
    q, r = chain
    chains = BinaryChains(q=(q, q), r=(r, r))
    policies = [stream(f"s{number}", table, chains, adversary) for number, table in enumerate(tables)]
    steps = [np.array([[1 - q, q], [r, 1 - r]])] * (4 if len(tables) == 2 else 3)
    exact = worst_loss(np.array([r, q]) / (q + r), steps, together(policies), informed=adversary == "informed").max()
    assert exact <= joint_epsilon(policies, None)


def test_streams_of_one_sensor_tell_more_than_the_sum_of_their_epsilons() -> None:
    """Eight at .1 each lose .8646 together: all say the same, at the tick and at a thousand on either side of it."""
    table = calibrate(OFFICE, 0.1, "ignorant").table
    policies = [stream(f"s{number}", table, OFFICE, "ignorant") for number in range(8)]
    assert sum(policy.guarantee.epsilon for policy in policies) <= 0.8
    joint = joint_epsilon(policies, None)
    assert joint == pytest.approx(0.864579, abs=1e-6)
    check_printed("eight streams of 0.1 each lose {} together", joint)
    (q, _), (r, _) = OFFICE.q, OFFICE.r
    step = np.array([[1 - q, q], [r, 1 - r]])
    really = []
    for symbol in (0, 1):
        likelihood = (np.array(table.weights())[:, symbol] / SCALE) ** 8
        leakage = np.ones(2)
        for _ in range(1000):
            leakage = step @ (leakage * likelihood)
            leakage /= leakage.sum()
        whole = likelihood * leakage**2  # the chain is reversible: both sides of the tick are alike
        really.append(abs(math.log(whole[0] / whole[1])))
    assert 0.8 < 0.9999 * joint < max(really) <= joint


def test_windows_alone_add_their_rate_to_the_streams_of_their_sensor() -> None:
    table = calibrate(OFFICE, 0.1, "ignorant").table
    symbols = stream("s0", table, OFFICE, "ignorant")
    window = Window(name="hour", length=60, stride=60, states=(1,), scale="1000")
    update = {"stream": "s1", "table": None, "frame_ticks": 1, "windows": (window,)}
    loose = Guarantee(epsilon=1.0, adversary="ignorant")
    beside = {"windows": (window,), "windows_guarantee": loose, "guarantee": loose}
    policy = symbols.model_copy(update=beside)
    assert joint_epsilon([symbols, symbols.model_copy(update=update)], None) == policy.verify().epsilon


def test_more_states_windows_and_the_larger_of_two_classes() -> None:
    steps = ((0.9, 0.05, 0.05), (0.1, 0.8, 0.1), (0.05, 0.15, 0.8))
    narrow, bounded = (BoundedChains(states=3, odds_ratio=odds) for odds in (odds_ratio(steps), 400.0))
    weights = [(2, 1, 1), (1, 2, 1), (1, 1, 2)]
    rows = [tuple(sum(row[: z + 1]) * SCALE // 4 for z in range(2)) for row in weights]
    table = NoiseTable(rows=tuple(rows))
    first, second = (stream(f"s{n}", table, narrow, "ignorant") for n in range(2))
    stationary = np.linalg.matrix_power(np.array(steps), 1000)[0]
    exact = worst_loss(stationary, [np.array(steps)] * 2, together([first, second]), informed=False).max()
    assert exact <= joint_epsilon([first, second], None)
    wider = stream("s1", table, bounded, "ignorant")
    assert (
        joint_epsilon([first, wider], None)
        == bounded.ratio_loss(*[first.outputs.ratios[0] ** 2] * 2, "ignorant").epsilon
    )
    counted = stream(
        *("s1", table, narrow, "ignorant"),
        windows=(Window(name="w", length=5, stride=5, states=(1,), scale="2"),),
        windows_guarantee=Guarantee(epsilon=50.0, adversary="ignorant"),
    )
    assert joint_epsilon([first, counted], None) > joint_epsilon([first, second], None) + 0.5


def test_the_strongest_of_the_adversaries_counts() -> None:
    chains = BinaryChains(q=(0.1, 0.1), r=(0.1, 0.1))
    weak, strong = stream("a", flips(0.4, 0.4), chains, "ignorant"), stream("b", flips(0.4, 0.4), chains, "informed")
    assert joint_epsilon([weak, strong], None) == joint_epsilon(
        [strong, strong.model_copy(update={"stream": "c"})], None
    )


HEART = stream("hr", flips(0.45, 0.45), BinaryChains(q=(0.2, 0.2), r=(0.35, 0.35)), "informed")


@pytest.mark.parametrize(
    ("fields", "sensors", "why"),
    [
        ({}, {"hr": "wrist", "other": "chest"}, "sensors"),
        ({"clock": Clock(epoch_us=1, period_us=1_000_000)}, None, "clocks"),
        ({"clock": Clock(epoch_us=0, period_us=500_000)}, None, "clocks"),
        ({"discretiser": Thresholds(edges=(1.0,), states=("s0", "s1"))}, None, "discretisers"),
    ],
)
def test_streams_without_a_joint_bound_are_refused_by_a_device_with_a_total_ceiling(
    fields: dict[str, Any], sensors: dict[str, str] | None, why: str
) -> None:
    other = HEART.model_copy(update={"stream": "other", **fields})
    document = KEYS.signed(policy_document(HEART, other, version=5))
    device = Trust(KEYS.enrolment(ceiling=10.0, total_ceiling=1000.0), sensors=sensors)
    with refused_for(Reason.NO_JOINT_BOUND, match=f"different {why}") as caught:
        device.judge(document, "policy", NOW)
    assert caught.value.reason == "no_joint_bound"
    assert Trust(KEYS.enrolment(ceiling=10.0), sensors=sensors).judge(document, "policy", NOW).changes


def test_the_joint_loss_is_held_against_the_total_ceiling_from_both_sides() -> None:
    other = HEART.model_copy(update={"stream": "other"})
    document = KEYS.signed(policy_document(HEART, other, version=5))
    joint = joint_epsilon([HEART, other], None)
    assert joint > 2 * HEART.guarantee.epsilon
    for ceiling in (2 * HEART.guarantee.epsilon, math.nextafter(joint, 0)):
        with refused_for(Reason.CEILING, match="all streams together"):
            Trust(KEYS.enrolment(ceiling=10.0, total_ceiling=ceiling), sensors={"hr": 1, "other": 1}).judge(
                document, "policy", NOW
            )
    device = Trust(KEYS.enrolment(ceiling=10.0, total_ceiling=joint), sensors={"hr": 1, "other": 1})
    assert device.judge(document, "policy", NOW).changes


def test_one_stream_has_its_own_epsilon_and_none_has_none() -> None:
    assert joint_epsilon([HEART], {}) == HEART.guarantee.epsilon
    assert joint_epsilon([], {}) == 0.0


def test_a_measured_stream_has_no_bound_even_alone() -> None:
    with pytest.raises(NoJointBoundError, match="stream place is measured"):
        joint_epsilon([measure_policy(2)], None)


def test_streams_that_may_alternate_are_held_to_the_larger_of_their_joint_ratios() -> None:
    """So that versions of both streams may take turns, as those of one may."""
    chains = BinaryChains(q=(0.6, 0.6), r=(0.9, 0.9))
    strong, other = (stream(name, flips(0.3, 0.01), chains, "ignorant") for name in ("heart", "pulse"))
    larger = max(strong.outputs.ratios) * max(other.outputs.ratios)
    joint = joint_epsilon([strong, other], None)
    assert joint == chains.ratio_loss(larger, larger, "ignorant").epsilon
    own = [a * b for a, b in zip(strong.outputs.ratios, other.outputs.ratios, strict=True)]
    assert joint > chains.ratio_loss(own[0], own[1], "ignorant").epsilon


def shared(light: float, motion: float) -> JointChains:
    """Two streams that show the same but for one time in fifty, and share out what they tell."""
    distribution = (0.49, 0.01, 0.01, 0.49)
    return JointChains(
        streams=(JointStream(name="light", states=2, rate=light), JointStream(name="motion", states=2, rate=motion)),
        period_us=1_000_000,
        shows=((0, 0), (0, 1), (1, 0), (1, 1)),
        odds_ratio=1.0,
        transition=(distribution,) * 4,
    )


def test_classes_that_share_out_one_epsilon_in_two_ways_do_not_run_together() -> None:
    """Each stream takes the larger share by a class of its own: both guarantees pass, and both together break them."""
    loud, two = flips(0.25, 0.25), Categories(categories={"off": 0, "on": 1}, states=("off", "on"))  # log 3 a tick
    light = stream("light", loud, shared(1.1, 0.1), "ignorant", discretiser=two)
    motion = stream("motion", loud, shared(0.1, 1.1), "ignorant", discretiser=two)
    distribution, (right, wrong) = np.array(shared(1, 1).typical_matrices[0][0]).reshape(2, 2), (0.75, 0.25)
    weights = (
        distribution / distribution.sum(axis=1, keepdims=True) @ np.array([right, wrong])
    )  # Pr(motion shows 0 | light)
    assert math.log(right / wrong * weights[0] / weights[1]) > light.guarantee.epsilon == motion.guarantee.epsilon
    with pytest.raises(NoJointBoundError, match="that the class of others allows it"):
        check_joint_streams([light, motion])
    with refused_for(Reason.GUARANTEE, match="class of others"):
        Trust(KEYS.enrolment(ceiling=10.0)).judge(KEYS.signed(policy_document(light, motion, version=5)), "policy", NOW)
    soft = stream("motion", flips(0.49, 0.49), shared(1.1, 0.1), "ignorant", discretiser=two)
    check_joint_streams([light, soft])
    slow = soft.model_copy(update={"clock": Clock(epoch_us=0, period_us=500_000)})
    for refuse in (check_joint_streams, lambda policies: joint_epsilon(policies, None)):
        with pytest.raises(NoJointBoundError, match="stream motion has another period"):
            refuse([light, slow])
    with pytest.raises(NoJointBoundError, match="two clocks"):
        check_joint_streams([light, soft.model_copy(update={"clock": Clock(epoch_us=1, period_us=1_000_000)})])
    with pytest.raises(NoJointBoundError, match="stream motion is measured"):
        check_joint_streams([light, measure_policy(2).model_copy(update={"device": "watch", "stream": "motion"})])
