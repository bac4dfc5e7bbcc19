"""The owner's terms for the groups of homes that a device is in: which sums of a policy it takes part in."""

from __future__ import annotations

from bisect import bisect_left

from edge_agent.config_schema import AgentConfig
from fugu.contract.errors import GuaranteeError, Reason, TrustError
from fugu.contract.groups import GroupPin, SharedWindow
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy

__all__ = ["check_joined"]


def check_joined(policy: AnyPolicy, config: AgentConfig) -> None:
    """Refuse a policy with a sum that the owner has not joined, or whose terms it does not keep; TrustError.

    Epsilon is derived here, from the group's noise with the device's own class, windows and symbols.
    """
    pins = {pin.name: pin for pin in config.groups}
    for shared in policy.sums if isinstance(policy, Policy) else ():
        if (pin := pins.get(shared.group.name)) is None:
            raise TrustError(
                f"stream {policy.stream} is to report to group {shared.group.name}, which its owner has not joined: "
                "fugu-agent join, on the device",
                Reason.PINNED,
            )
        if (why := pin.refusal(shared.group)) is not None:
            raise TrustError(why, Reason.PINNED)
        assert isinstance(policy, Policy)
        _check_epsilon(policy, shared, pin)


def _check_epsilon(policy: Policy, shared: SharedWindow, pin: GroupPin) -> None:
    ticks = pin.most.ticks(policy.clock.period_us)
    claim = policy.guarantee.model_copy(update={"epsilon": pin.most.epsilon, "stretch_ticks": ticks})

    def within(noise: int) -> bool:
        group = shared.group.model_copy(update={"noise": noise})
        sums = tuple(
            summed.model_copy(update={"group": group}) if summed is shared else summed for summed in policy.sums
        )
        try:
            policy.model_copy(update={"sums": sums, "guarantee": claim}).verify()
        except GuaranteeError:
            return False
        return True

    if within(shared.group.noise):
        return
    most = bisect_left(range(1, shared.group.noise), True, key=lambda noise: not within(noise))  # less is more noise
    enough = f"at most {most} would do" if most else "no A would do: the stream tells too much beside it"
    raise TrustError(
        f"epsilon {policy.derived().epsilon(ticks):.4g} about {ticks} ticks of stream {policy.stream} is above the "
        f"{pin.most} of group {shared.group.name}: its A is {shared.group.noise}, {enough}",
        Reason.PINNED,
    )
