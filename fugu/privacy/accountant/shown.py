"""Chains whose states show the states of one or several streams: what all of these lose together.

Known ones are followed by the accountant, with the loss that each two of their states have, to those who know no state.
Those who may have other side information, too, have the bound of the device's own check.

Source: docs/proofs/joint-streams.md, "Streams that move together".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract.chains import BoundedChains, ChainClass, JointChains
from fugu.contract.errors import GuaranteeError
from fugu.contract.guarantee import Adversary
from fugu.contract.soft_leakage import informed_loss, soft_loss
from fugu.privacy.accountant.bounded import OddsRatioChains
from fugu.privacy.accountant.finite import KnownChains
from fugu.privacy.chain_class import ChainClassError, Chains, MarkovChain, Start
from fugu.privacy.sampling import DecimationError

__all__ = ["ShownBoundedChains", "ShownChains", "stream_losses"]

SOFT_EVIDENCE = "soft evidence"
KNOWN_STATES = "known states"
_NOT_FOLLOWED = "needs the chain of one stream, not of several or of a higher order"
_ONE_PERIOD = "joint chains are of one period, that of all their streams"


def _secrets(chains: JointChains) -> Floats:
    return np.array([[a != b for b in chains.shows] for a in chains.shows], dtype=np.float64)


def _words(chains: JointChains, words: str) -> str:
    return f"{words}, which show {' and '.join(stream.name for stream in chains.streams)}"


class ShownBoundedChains(OddsRatioChains):
    """Every chain with bounded odds ratios, by the states that it shows; see `ClassOfChains`."""

    def __init__(self, chains: JointChains) -> None:
        super().__init__(BoundedChains(states=chains.states, odds_ratio=chains.odds_ratio or 1.0))
        self._joint = chains
        self.secrets, self.words = _secrets(chains), _words(chains, self.words)

    def equal_leakages(self, adversary: Adversary) -> bool:
        """As the class says."""
        return self._joint.equal_leakages(adversary)

    def started(self, start: Start | None) -> Chains:
        """The class itself, which has every start."""
        return self._joint

    def followed(self, start: Start | None) -> tuple[MarkovChain, ...]:
        """None: a `ChainClassError`."""
        raise ChainClassError(_NOT_FOLLOWED)

    def decimated(self, step: int) -> ChainClass:
        """None: a `DecimationError`."""
        raise DecimationError(_ONE_PERIOD)


class ShownChains(KnownChains):
    """A few known chains, by the states that they show; see `ClassOfChains`."""

    sticky: tuple[tuple[float, float], ...] = ()

    def __init__(self, chains: JointChains) -> None:
        super().__init__(tuple(map(MarkovChain.stationary, chains.transitions)), _secrets(chains))
        self._transitions = [[list(row) for row in matrix] for matrix in chains.transitions]
        self._shows = chains.shows
        self._told, self._joint = _words(chains, super().words), chains

    @property
    def words(self) -> str:
        """The class in words."""
        return self._told

    def endless(self, rate: Floats, adversary: Adversary) -> tuple[float, str]:
        """The accountant's, and for those who may know states of single streams that of any side information."""
        if adversary == "ignorant":
            return super().endless(rate, adversary)
        rates = rate.tolist()
        try:
            if adversary == "universal":
                return soft_loss(self._transitions, rates), SOFT_EVIDENCE
            of_whole = super().endless
            return informed_loss(
                self._transitions, rates, self._shows, lambda: of_whole(rate, adversary)[0]
            ), KNOWN_STATES
        except GuaranteeError as error:
            raise ChainClassError(str(error)) from None

    def tick_by_tick(self, rates: Floats, adversary: Adversary) -> tuple[Floats, str]:
        """As for an endless stream with the largest rates, for those who may know states."""
        if adversary == "ignorant":
            return super().tick_by_tick(rates, adversary)
        epsilon, bound = self.endless(rates.max(axis=0), adversary)
        return np.broadcast_to(epsilon * self.secrets, rates.shape).copy(), bound

    def follows(self, length: int, adversary: Adversary) -> bool:
        """Not for those who may know states."""
        return adversary == "ignorant" and super().follows(length, adversary)

    def work(self, length: int, adversary: Adversary) -> int:
        """As of known chains, for those who know no state; else none that grows."""
        return super().work(length, adversary) if adversary == "ignorant" else 0

    def started(self, start: Start | None) -> Chains:
        """The class itself, which starts stationary."""
        if start == "any":
            raise ChainClassError("known joint chains start stationary; for any start give their odds_ratio instead")
        return self._joint

    def followed(self, start: Start | None) -> tuple[MarkovChain, ...]:
        """None: a `ChainClassError`."""
        raise ChainClassError(_NOT_FOLLOWED)

    def decimated(self, step: int) -> ChainClass:
        """None: a `DecimationError`."""
        raise DecimationError(_ONE_PERIOD)


def stream_losses(chains: JointChains, rates: Sequence[float] | None = None) -> tuple[float, ...]:
    """What all streams of joint chains together tell of each of them, to those who know no state.

    The epsilon of a guarantee is also for joint states, which differ in several streams at once: of streams that hardly
    depend on one another it is the sum of what each loses, while each loses little more than it would alone.

    Args:
        chains: the class.
        rates: what a tick of each stream tells at most, in nats; none for what the class allows.

    Returns:
        For each stream a bound on the log-likelihood ratio of any two of its states at a tick, in nats.

    Raises:
        ChainClassError: no bound exists.
    """
    rate = np.array(chains.joint_rates([stream.rate for stream in chains.streams] if rates is None else rates))
    if chains.odds_ratio is not None:
        whole = ShownBoundedChains(chains).endless(rate, "ignorant")[0]
        return (whole,) * len(chains.streams)
    known = ShownChains(chains)
    whole = known.endless(rate, "ignorant")[0]
    columns = np.array(chains.shows).T
    return tuple(min(known.of_group(rate, column), whole) for column in columns)
