"""The chain accountant: what a stream loses when its readings depend on one another, and how much a tick may tell.

Read `accountant` (what is asked of a class of chains), `finite` (known chains, and what of them is endless),
`endless_leakage` (the recursion along one direction), `inner_maximum` (one step of it, and bounds for many states) and
`fugu.contract.inner_maximum` (its exact maximum, which devices compute as well). `schedule` follows streams that end;
`bounded` has the classes that are given by bounds on their steps.
"""

from fugu.privacy.accountant.accountant import ChainAccountant, ChainLoss, Chains, chain_loss

__all__ = ["ChainAccountant", "ChainLoss", "Chains", "chain_loss"]
