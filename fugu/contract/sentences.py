"""What a guarantee is about, in a sentence: the same for a reviewer, a device's owner and whoever subscribes."""

from __future__ import annotations

from collections.abc import Sequence

from fugu.contract.chains import ChainClass
from fugu.contract.discretisers import Baseline, Discretiser, Thresholds
from fugu.contract.stretches import Stretch

__all__ = ["class_sentence", "protected_sentence", "unprotected_sentence"]

_MOST_NAMES = 6


def protected_sentence(discretiser: Discretiser | None) -> str:
    """What of a tick is protected: which state its reading has, and not the reading itself.

    Args:
        discretiser: what makes the states; none if only their chains are known.
    """
    if discretiser is None:
        return "protected is which state of its chain a tick is in"
    names, tail = discretiser.states, ""
    states = ", ".join(names) if len(names) <= _MOST_NAMES else f"{len(names)} states"
    if isinstance(discretiser, Thresholds):
        tail = f" ({_numbered(discretiser.edges)})"
    if isinstance(discretiser, Baseline):
        mean = f"one's own running mean of {discretiser.baseline_ticks} ticks"
        start = f"; the first {discretiser.baseline_ticks} ticks after every start have no state"
        if discretiser.edges == (0.0,) and discretiser.compare == "difference":
            return f"protected is being above {mean} at a tick, not the reading{start}"
        tail = f" ({discretiser.compare} of {mean}: {_numbered(discretiser.edges)}), not the reading{start}"
        tail = tail.replace("difference of", "difference from")
    return f"protected is which of {states} a tick is in{tail}"


def unprotected_sentence(stretches: Sequence[Stretch]) -> str:
    """What is not protected: stretches from some length on, and what is public of every stream.

    Args:
        stretches: of the stream, the shortest first.
    """
    public = "that the device is on, and when it was not, is public"
    if bare := next((stretch for stretch in stretches if not stretch.protected), None):
        return f"not protected is being in one sequence of states or another for {bare.name} or longer; {public}"
    return f"a stretch of time is protected less than a single tick, the less the longer it is; {public}"


def class_sentence(chains: ChainClass | None) -> str:
    """For which chains a promise holds.

    Args:
        chains: the class; none of points, whose promise rests on which steps are possible.
    """
    if chains is None:
        return "any chain that starts and steps as the policy allows, however likely each step is"
    return chains.words


def _numbered(edges: tuple[float, ...]) -> str:
    if len(edges) > _MOST_NAMES:
        return f"{len(edges)} edges from {edges[0]:g} to {edges[-1]:g}"
    return ("edge " if len(edges) == 1 else "edges ") + ", ".join(f"{edge:g}" for edge in edges)
