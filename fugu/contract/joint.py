"""The loss of a tick's state to all streams of a device together.

Streams of one sensor with the same discretiser and the same clock have the same sequence of states. Given the states,
their outputs are independent: the likelihood ratios of a tick multiply, direction by direction. The streams are one
mechanism with the products as ratios, for which the loss is computed once. The sum of their epsilons is no bound: what
outputs tell of a tick through neighbouring ticks grows faster than in proportion.

Other streams depend on one another in ways that no class of chains of one of them describes. There is a joint bound
only if they name one another in a class of joint chains.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from math import prod

from fugu.contract.chains import ChainClass, JointChains
from fugu.contract.discretisers import Discretiser
from fugu.contract.errors import GuaranteeError, Reason
from fugu.contract.losses import Adversary, log_up
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.stretches import StretchBound, stretch_ticks
from fugu.core.policy import ADVERSARIES

__all__ = ["NoJointBoundError", "check_joint_streams", "joint_epsilon"]


class NoJointBoundError(GuaranteeError, reason=Reason.NO_JOINT_BOUND):
    """No bound is known for several streams together."""


def joint_epsilon(policies: Sequence[AnyPolicy], sensors: Mapping[str, Hashable] | None, seconds: int = 0) -> float:
    """Bound the loss of all streams of a device together about a stretch of time, in nats, rounded up.

    It is 0 without streams. A stretch of 0 `seconds` is a single tick. Where streams declare different classes, the
    largest bound counts, so that it holds if the truth is in any one class. A stream with too narrow a class takes
    nothing away from the promises of the others. The bound holds against the strongest of their adversaries. The
    policies' own guarantees have to be verified before. `sensors` has for each stream a value that tells its sensor
    from others, `None` if unknown. Streams that can have a joint bound are then taken to be of one sensor.
    NoJointBoundError: there is no bound. GuaranteeError: the joint loss is not finite.
    """
    symbol_policies = []
    for policy in policies:
        if not isinstance(policy, Policy):
            raise NoJointBoundError(
                f"stream {policy.stream} is measured: what its points tell together is not bounded by the device"
            )
        symbol_policies.append(policy)
    ticks = max((stretch_ticks(seconds, policy.clock.period_us) for policy in symbol_policies), default=1)
    if len(symbol_policies) < 2:
        return max((policy.bound().epsilon(ticks) for policy in symbol_policies), default=0.0)
    adversary = max((policy.guarantee.adversary for policy in symbol_policies), key=ADVERSARIES.index)
    classes = {policy.chains.model_dump_json(): policy.chains for policy in symbol_policies}
    if any(chains.named_streams for chains in classes.values()):
        bounds = (_joint_bound(chains, symbol_policies, adversary, sensors or {}) for chains in classes.values())
        return max(bound.epsilon(ticks) for bound in bounds)
    first_policy, *other_policies = symbol_policies
    for policy in other_policies:
        for aspect, first_value, other_value in (
            ("sensors", sensors and sensors.get(first_policy.stream), sensors and sensors.get(policy.stream)),
            ("discretisers", first_policy.discretiser, policy.discretiser),
            ("clocks", first_policy.clock, policy.clock),
        ):
            if first_value != other_value:
                raise NoJointBoundError(
                    f"streams {first_policy.stream} and {policy.stream} have different {aspect}: "
                    "nobody knows what they tell together"
                )
    stream_ratios = [policy.outputs.ratios for policy in symbol_policies]
    forward, backward = (prod(ratios) for ratios in zip(*stream_ratios, strict=True))
    # Versions of all the streams may take turns, as those of one may.
    rate, epsilons = log_up(max(forward, backward)), []
    for chains in classes.values():
        tick_epsilon = chains.ratio_loss(*chains.lasting_ratios(forward, backward), adversary).epsilon
        epsilons.append(chains.stretch_bound(tick_epsilon, 1, rate, (), adversary).epsilon(ticks))
    return max(epsilons)


def _joint_bound(
    chains: ChainClass, policies: Sequence[Policy], adversary: Adversary, sensors: Mapping[str, Hashable]
) -> StretchBound:
    """Bound the loss of all streams of a joint class; NoJointBoundError if a policy does not fit the class."""
    if not isinstance(chains, JointChains):
        raise NoJointBoundError(
            f"the class of stream {policies[0].stream} or of another is not of all of them together"
        )
    sensors_before: list[tuple[tuple[Hashable, Discretiser], tuple[int, ...]]] = []
    for policy in policies:
        try:
            index = chains.stream_index(policy.device, policy.stream)
        except ValueError as error:
            raise NoJointBoundError(str(error)) from None
        states = chains.shown_states(index)
        if policy.stream in sensors:
            sensor = sensors[policy.stream], policy.discretiser  # which may have no hash
            if any(other == sensor and other_states != states for other, other_states in sensors_before):
                raise NoJointBoundError(
                    f"stream {policy.stream} has the states of another, but not in its class of chains"
                )
            sensors_before.append((sensor, states))
        _check_joint_stream(chains, index, policy)
    return chains.stretch_bound(chains.joint_loss(adversary).epsilon, 1, 0.0, (), adversary)


def _check_joint_stream(chains: JointChains, index: int, policy: AnyPolicy) -> None:
    """Refuse a policy whose stream differs from its description in a class of joint chains."""
    joint_stream = chains.streams[index]
    if not isinstance(policy, Policy):
        raise NoJointBoundError(f"stream {policy.stream} is measured: the class of others takes it for states")
    if policy.clock.period_us != chains.period_us or len(policy.discretiser.states) != joint_stream.states:
        raise NoJointBoundError(
            f"stream {policy.stream} has another period, or other states, than in a class of others"
        )
    if (rate := policy.outputs.rate) > Fraction(joint_stream.rate):
        raise NoJointBoundError(
            f"stream {policy.stream} tells {float(rate):.9g} nats in a tick, above the {joint_stream.rate:.9g} "
            "that the class of others allows it"
        )


def check_joint_streams(policies: Sequence[AnyPolicy]) -> None:
    """Check every stream of a device against the classes of joint chains of all its streams.

    Policies whose classes divide rates in different ways may all pass by themselves, and tell too much together.
    NoJointBoundError: a stream tells more in a tick than the class of another stream allows it, differs from its
    description there, or has another clock.
    """
    for joint_policy in policies:
        if not isinstance(joint_policy, Policy) or not isinstance(joint_policy.chains, JointChains):
            continue
        for policy in policies:
            try:
                index = joint_policy.chains.stream_index(policy.device, policy.stream)
            except ValueError:
                continue
            _check_joint_stream(joint_policy.chains, index, policy)
            if policy.clock != joint_policy.clock:
                raise NoJointBoundError(
                    f"streams {joint_policy.stream} and {policy.stream} move together and have two clocks"
                )
