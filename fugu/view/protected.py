"""What a guarantee is about, in a sentence."""

from __future__ import annotations

from contract.discretisers import Baseline, Discretiser, Thresholds

__all__ = ["protected_sentence"]

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


def _numbered(edges: tuple[float, ...]) -> str:
    if len(edges) > _MOST_NAMES:
        return f"{len(edges)} edges from {edges[0]:g} to {edges[-1]:g}"
    return ("edge " if len(edges) == 1 else "edges ") + ", ".join(f"{edge:g}" for edge in edges)
