"""The chain accountant: what a stream loses when its readings depend on one another, and how much a tick may tell.

What does a chain of three states lose? Read `accountant` (what is asked of a class of chains), `finite` (known
chains, and what of them is endless), `endless_leakage` (the recursion along one direction), `inner_maximum` (one step
of it, and bounds on it for many states) and `fugu.contract.inner_maximum` (its exact maximum, which devices compute as
well). Streams that end are followed by `schedule`; classes that are given by bounds on their steps are `bounded`.
"""

from fugu.privacy.accountant.accountant import ChainAccountant, ChainLoss, Chains, chain_loss

__all__ = ["ChainAccountant", "ChainLoss", "Chains", "chain_loss"]
