"""What a stream of one chain loses, by whichever bound is least: the accountant's, or that of walks.

Source: docs/privacy.md, "The chain accountant".
"""

from __future__ import annotations

import math
from dataclasses import replace

from contract.guarantee import Adversary
from contract.rounding import OUTWARD
from gateway.chain.arrays import Floats
from gateway.privacy.accountant.accountant import ChainAccountant, ChainLoss
from gateway.privacy.accountant.inner_maximum import EXACT_STATES
from gateway.privacy.accountant.walks import any_start_bound, endless_bound
from gateway.privacy.chain_class import ChainClassError, MarkovChain

__all__ = ["chain_loss"]

_NO_BOUND = 1200.0  # numbers beyond are where the accountant stops counting, not bounds


def chain_loss(chain: MarkovChain, rate: Floats, adversary: Adversary, length: int | None = None) -> ChainLoss:
    """The loss of a stream of one chain whose every tick has the same rate.

    Args:
        chain: the chain, with its start.
        rate: (k, k) for each pair of states, finite.
        adversary: what the adversary may know.
        length: ticks, or None for an endless stream.

    Returns:
        Epsilon, never below the truth; infinite if no bound was found.

    Raises:
        ChainClassError: a rate is negative, or no bound exists for such a chain.
    """
    if chain.states > EXACT_STATES and chain.is_stationary and adversary != "universal":
        found = endless_bound(chain, rate, adversary)
        if found is not None and (length is None or found <= length * float(rate.max())):
            words = f"1 chain of {chain.states} states, started stationary"
            name = "quilts" if adversary == "informed" else "local linear programmes"
            return ChainLoss(found, adversary, name, words, length)
    if length is None and chain.states > 2 and not chain.is_stationary and adversary != "universal":
        return _from_elsewhere(chain, rate, adversary)
    loss = ChainAccountant((chain,)).loss(rate, adversary, length)
    if loss.epsilon > _NO_BOUND and loss.bound != "every tick in full":
        everything = math.inf if length is None else length * float(rate.max()) * (1.0 + OUTWARD)
        return replace(loss, epsilon=everything, bound="none" if length is None else "every tick in full")
    return loss


def _from_elsewhere(chain: MarkovChain, rate: Floats, adversary: Adversary) -> ChainLoss:
    """The loss of an endless stream of many states that does not start stationary: the least of what is known."""
    words = f"1 chain of {chain.states} states, started {'anyhow' if chain.initial is None else 'as given'}"
    anyhow = any_start_bound(chain, rate, adversary)
    best = ChainLoss(math.inf, adversary, "none", words, None)
    if anyhow is not None:
        best = replace(best, epsilon=anyhow, bound="any start")
    if chain.states <= EXACT_STATES and (chain.initial is not None or chain.transition.min() > 0.0):
        try:
            followed = ChainAccountant((chain,)).loss(rate, adversary)
        except ChainClassError:
            return best
        if followed.epsilon < min(best.epsilon, _NO_BOUND):
            return followed
    return best
