"""What the same epsilon would cost with another state, period or window: the error of a share over the same time."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fugu.chains.arrays import Ints
from fugu.contract.errors import FuguError
from fugu.planning.answers import window_error
from fugu.planning.recording import Recording, read_recording
from fugu.planning.true_class import count_scale
from fugu.privacy.covering_class import covering_class
from fugu.privacy.model_fit import decimate
from fugu.privacy.window_scale import lawful_scale

__all__ = ["SPANS", "Alternative", "alternatives"]

SPANS = (300, 3000)
"""Ticks of the recording that shares are of."""
_BASELINES = (100, 300, 1000)
_PERIODS = (2, 5, 10, 20)


class Alternative(NamedTuple):
    """Another way to make states, or another period.

    Attributes:
        count_scale: Laplace scale of a count, in its own ticks, universal adversary; none if there is no class.
        share_errors: mean absolute error of the share of each of `SPANS` in ticks of the recording; none likewise.
    """

    what: str
    count_scale: float | None
    share_errors: tuple[float, ...] | None


def alternatives(path: Path, recording: Recording, epsilon: float) -> tuple[Alternative, ...]:
    """Compare the states of a recording with others of the same column, before attackers are asked.

    A running mean asks another question than a threshold, and a longer period answers later: neither is chosen for
    anybody. States of a running mean are not compared at other periods, at which they are other states.

    Args:
        epsilon: the guarantee, in nats.
    """
    discretiser = recording.discretiser
    k = int(recording.states.max()) + 1
    found = [_cost("as it is", recording.states, recording.segments, k, epsilon)]
    if discretiser is None or discretiser.kind != "baseline":
        for every in _PERIODS:
            states, segments = decimate(recording.states, recording.segments, every)
            found.append(_cost(f"one reading in {every}", states, segments, k, epsilon, every))
    for edge in range(1, k) if k > 2 else ():
        merged = (recording.states >= edge).astype(recording.states.dtype)
        found.append(_cost(f"only whether the state is at least {edge}", merged, recording.segments, 2, epsilon))
    if discretiser is not None:
        taken = discretiser.baseline_ticks if discretiser.kind == "baseline" else None
        for ticks in _BASELINES:
            if ticks != taken:
                other = read_recording(path, recording.column, None, ticks)
                what = f"above the running mean of {ticks} ticks"
                found.append(_cost(what, other.states, other.segments, k, epsilon))
    return tuple(found)


def _cost(what: str, states: Ints, segments: Ints, k: int, epsilon: float, every: int = 1) -> Alternative:
    try:
        scale = count_scale(covering_class(states, segments, k).chains, epsilon)
        errors = tuple(window_error(lawful_scale(scale), span // every).share_mean for span in SPANS)
    except FuguError:
        return Alternative(what, None, None)
    return Alternative(what, scale, errors)
