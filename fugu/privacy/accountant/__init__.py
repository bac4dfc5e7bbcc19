"""The chain accountant: the loss of a stream whose readings depend on one another, and the allowed rate of a tick.

Read `accountant` (the interface), `finite` (known chains), `endless_leakage` (the recursion along one direction) and
`inner_maximum` (one step of it). `walks` has streams that end and many states; `bounded` has classes given by bounds.
"""

from fugu.privacy.accountant.accountant import ChainAccountant, ChainLoss, Chains, chain_loss

__all__ = ["ChainAccountant", "ChainLoss", "Chains", "chain_loss"]
