"""The chain accountant: what a stream loses when its readings depend on one another, and how much a tick may tell."""

from gateway.privacy.accountant.accountant import ChainAccountant, ChainLoss, Chains

__all__ = ["ChainAccountant", "ChainLoss", "Chains"]
