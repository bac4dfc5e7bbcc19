"""What is believed of the first tick: a class of chains with the start that it is to be used with.

A recording need not begin in the long run of its chain: a device is switched on when somebody goes to bed. A guarantee
for any start holds whatever the distribution of the first tick is; one for a stationary start does not.
"""

from __future__ import annotations

from typing import Literal

from fugu.contract.chains import BinaryChains, BoundedChains, FiniteChains, JointChains, odds_ratio
from fugu.privacy.accountant import Chains
from fugu.privacy.chain_class import ChainClassError, MarkovChain
from fugu.privacy.quilts import corner_chains

__all__ = ["Covered", "Start", "covered_start", "started", "started_members"]

Start = Literal["any", "stationary"]
Covered = Literal["any", "stationary", "as given"]
"""The starts that a guarantee holds for; "as given" is the distribution that a chain file names."""


def started(chains: Chains, start: Start | None) -> Chains:
    """A class with a start, for the chain accountant.

    Args:
        chains: of any kind.
        start: the start to be covered; None for the one that the class comes with.

    Returns:
        A class that holds every chain of the given one with that start. An interval of two-state chains with any start
        is one of bounded odds ratios: that its corners are the worst is proved for a stationary start only.

    Raises:
        ChainClassError: a chain has no single stationary distribution, or there is no bound for any start.
    """
    if start is None or isinstance(chains, BoundedChains):
        return chains
    if isinstance(chains, JointChains):
        if start == "any" and chains.odds_ratio is None:
            raise ChainClassError("known joint chains start stationary; for any start give their odds_ratio instead")
        return chains
    if isinstance(chains, BinaryChains):
        if start == "stationary":
            return chains
        corners = corner_chains(chains)
        if len(corners) > 1:
            # log (1-q)(1-r)/(qr) falls in q and r, so that its largest and its least value are at corners
            worst = max(odds_ratio(tuple(tuple(map(float, row)) for row in corner.transition)) for corner in corners)
            return BoundedChains(states=2, odds_ratio=worst)
        return _anyhow(corners)
    return started_members(chains, start)


def started_members(
    chains: tuple[MarkovChain, ...] | BinaryChains | FiniteChains, start: Start | None
) -> tuple[MarkovChain, ...] | BinaryChains:
    """A class with a start, for mechanisms that follow one chain after another; arguments and errors as for `started`.

    The corners of an interval stand for all of it, with any start too, for every Markov quilt. Let D = 1 - q - r and
    G_m = 1 + D + ... + D^(m-1). At node m + 1, a quilt with a left width a has, for states 0 and 1 and any start, the
    likelihood ratio S C R: S = the largest of (1 - r G_m) / (r G_m) and q G_m / (1 - q G_m), the first if D^m >= 0; C
    the same with q and r swapped at a, R of the right width. For D >= 0 the derivative of log S C in r has the sign of
    r (1 - x_a) (q + r D^m) - (q + r x_m) (r + q D^a), x_m = m D^(m-1) / G_m >= D^m, and so is not above 0; that in q
    likewise, and R falls (`corner_chains`). For D < 0, where q and r are at least |D|, the same computation for even
    and odd m and a shows that S C does not fall, and neither does R.
    """
    if isinstance(chains, BinaryChains):
        return _anyhow(corner_chains(chains)) if start == "any" else chains
    members = _members(chains)
    if start is None:
        return members
    return _anyhow(members) if start == "any" else tuple(MarkovChain.stationary(each.transition) for each in members)


def covered_start(chains: Chains) -> Covered:
    """The starts that a class has."""
    if isinstance(chains, BoundedChains) or (isinstance(chains, JointChains) and chains.odds_ratio is not None):
        return "any"
    if not isinstance(chains, tuple):
        return "stationary"
    if all(chain.initial is None for chain in chains):
        return "any"
    return "stationary" if all(chain.is_stationary for chain in chains) else "as given"


def _anyhow(chains: tuple[MarkovChain, ...]) -> tuple[MarkovChain, ...]:
    return tuple(MarkovChain(chain.transition, None) for chain in chains)


def _members(chains: tuple[MarkovChain, ...] | FiniteChains) -> tuple[MarkovChain, ...]:
    if isinstance(chains, FiniteChains):
        return tuple(MarkovChain.stationary(transition) for transition in chains.transitions)
    return chains
