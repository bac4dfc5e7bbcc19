"""What it would be worth if readings came in segments that are independent of one another.

A recording with gaps is such a thing only if nothing lasts across a gap. No device can check that, nor how long a
segment will be, so that these figures are comparisons and decide nothing.

Source: docs/proofs/learned-classes.md, "Segments".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.errors import FuguError
from fugu.contract.exponential import log_up
from fugu.contract.guarantee import Adversary, tick_ratios
from fugu.planning.errors import PlanningError
from fugu.planning.planner import Option
from fugu.privacy.accountant import ChainAccountant

__all__ = ["SegmentGain", "segment_gain", "segment_loss"]


class SegmentGain(NamedTuple):
    """The Laplace noise of counts at epsilon 1, universal adversary, in ticks.

    Attributes:
        dependent: of windows of one chain without end.
        independent: of windows in independent segments.
    """

    dependent: float
    independent: float


def segment_loss(option: Option, adversary: Adversary, ticks: int) -> float:
    """What the symbols of a stream would lose in independent segments.

    Args:
        option: the stream.
        adversary: what the adversary may know.
        ticks: the most of a segment, of the chain before readings are left out.

    Returns:
        Epsilon, rounded up; at most that of the stream.

    Raises:
        PlanningError: the chain is that of several streams, or of order 2.
    """
    chains = option.chains
    if chains.named_streams:
        raise PlanningError("segments are compared for a chain of one stream")
    loss_01, loss_10 = map(log_up, tick_ratios(option.table))
    rate = np.array([[0.0, loss_01], [loss_10, 0.0]]) if chains.states == 2 else loss_01
    found = ChainAccountant(chains).loss(rate, adversary, -(-ticks // option.every)).epsilon
    return min(found, option.loss.epsilon)


def segment_gain(chains: BinaryChains | BoundedChains, ticks: int) -> SegmentGain | None:
    """The noise of counts with and without independence; none where no noise is enough.

    Args:
        chains: the class.
        ticks: the most of a segment.
    """
    accountant = ChainAccountant(chains)
    try:
        without, within = (1.0 / accountant.allowance(1.0, "universal", length) for length in (None, ticks))
    except FuguError:
        return None
    return SegmentGain(without, min(without, within))
