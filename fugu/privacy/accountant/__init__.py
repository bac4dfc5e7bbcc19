"""The chain accountant: what a stream loses when its readings depend on one another, and how much a tick may tell.

Read `accountant` (what is asked of a class), `finite` (known chains), `endless_leakage` (the recursion along one
direction) and `inner_maximum` (one step of it). `schedule` follows streams that end; classes by bounds are `bounded`.
"""

from fugu.privacy.accountant.accountant import ChainAccountant, ChainLoss, Chains, chain_loss

__all__ = ["ChainAccountant", "ChainLoss", "Chains", "chain_loss"]
