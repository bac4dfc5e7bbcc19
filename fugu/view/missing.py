"""What a policy says of missing readings, in a sentence."""

from __future__ import annotations

from contract.missing import share_bias
from contract.policy_header import PolicyHeader

__all__ = ["missing_sentence"]


def missing_sentence(policy: PolicyHeader) -> str:
    """Which state missing readings have; without one, how far off they can put estimates."""
    states, named = policy.discretiser.states, policy.discretiser.missing
    if named is not None:
        return f"missing readings are in state {states.index(named)} ({named}), protected like the others"
    if policy.missing_share is None:
        return "missing readings have no state, and no bound on their share is declared: estimates do not know of them"
    return (
        f"missing readings have no state: with at most {policy.missing_share:.3%} of the ticks, a state's share is off "
        f"by at most {share_bias(policy.missing_share, len(states)):.3g}, "
        f"a window's count by {policy.missing_share:.3g} of its length"
    )
