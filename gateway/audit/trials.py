"""Attacks on what was published of a stream, on the path that was read: each kind of output, and the kinds together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from fugu.attack import CountOutputs, Outputs, SymbolOutputs
from fugu.chains.arrays import Ints
from fugu.contract.frames import SymbolFrame
from fugu.contract.policy import Policy
from fugu.contract.window_frames import WindowFrame
from fugu.contract.windows import Window
from fugu.planning.attacked import Trial, tried
from fugu.planning.readings import Readings
from fugu.planning.recording import states_of
from gateway.audit.heard import Message, StreamError, frames_of, placed

__all__ = ["attack_stream", "refuted"]


def attack_stream(
    policy: Policy, messages: Iterable[Message], readings: Readings, *, loop: bool, known: int | None = None
) -> list[Trial]:
    """Attack what was published of a stream under a policy.

    Args:
        messages: topics and payloads; those of other streams and of other versions of the policy are left out.
        readings: the truth: the row of a tick's number, without the clock's shift, is its reading.
        loop: whether the rows begin anew after the last.
        known: attackers are given the true state of every so many ticks; none: no state.

    Returns:
        A trial for symbols, for each window whose counts do not overlap, and for each of these beside the symbols.

    Raises:
        StreamError: a payload is no frame, or nothing can be attacked.
    """
    frames, counted = frames_of(policy, messages)
    rows = states_of(policy.discretiser, readings.values, readings.segments)
    every: list[SymbolFrame | WindowFrame] = [*frames, *counted]
    ends = [(frame.first - frame.shift, frame.last - frame.shift + 1) for frame in every]
    if not ends:
        raise StreamError("nothing in the recording is of the policy's stream and version")
    begin = min(low for low, _ in ends)
    end = max(high for _, high in ends)
    if not loop:
        end = min(end, rows.size)
    if end <= begin:
        raise StreamError(f"the ticks from {begin} on have no row in {readings.source}: does it --loop?")
    places = np.arange(begin, end) % rows.size
    states, segments = rows[places], readings.segments[places] + np.arange(begin, end) // rows.size * rows.size
    if not (states >= 0).any():
        raise StreamError(f"{readings.source}: no reading has a state under this policy")
    seen = _symbols(policy, frames, states, begin) if frames else None
    trials = []
    for what, noise, epsilon, outputs in _outputs(policy, seen, counted, states, begin):
        found = tried(states, segments, outputs, epsilon, known)
        named = f"{len(policy.discretiser.states)} states of the policy"
        trials.append(Trial(readings.source, named, "what was published", what, noise, epsilon, found))
    if not trials:
        raise StreamError("the recording has no symbols, and no whole windows that do not overlap")
    return trials


def refuted(trials: Iterable[Trial]) -> list[Trial]:
    """Those that no epsilon as small as the promised one explains, at the confidence of the attacks."""
    return [trial for trial in trials if max(one.epsilon_low for one in trial.attacks) > trial.epsilon]


def _symbols(policy: Policy, frames: Sequence[SymbolFrame], states: Ints, begin: int) -> SymbolOutputs:
    """The symbols of all ticks that have a state."""
    symbols = placed(policy, frames, states.size, begin)
    assert policy.table is not None
    weights = np.array(policy.table.weights(), dtype=np.float64)
    return SymbolOutputs(np.where(states >= 0, symbols, -1), weights / weights.sum(axis=1, keepdims=True))


def _outputs(
    policy: Policy, seen: SymbolOutputs | None, counted: Sequence[WindowFrame], states: Ints, begin: int
) -> list[tuple[str, float, float, Outputs]]:
    """What is attacked: its name, its noise, its epsilon, and the outputs."""
    found: list[tuple[str, float, float, Outputs]] = []
    if seen is not None:
        square = seen.emission.shape[0] == seen.emission.shape[1]
        noise = float(1 - seen.emission.diagonal().min()) if square else math.nan
        found.append(("symbols", noise, policy.guarantee.epsilon, seen))
    for window in policy.windows:
        mine = {frame.index: frame for frame in counted if frame.window == window.name}
        alone = _counts(policy, window, [mine[index] for index in sorted(mine)], states, begin)
        if alone is None or policy.windows_alone is None:
            continue
        scale = float(Fraction(window.scale))
        found.append((f"window {window.name}", scale, policy.windows_alone.epsilon, alone))
        if seen is not None:
            both = CountOutputs(**{**vars(alone), "beside": seen})
            found.append((f"symbols, {window.name}", scale, policy.guarantee.epsilon, both))
    return found


def _counts(
    policy: Policy, window: Window, frames: Sequence[WindowFrame], states: Ints, begin: int
) -> CountOutputs | None:
    """The counts of the whole windows of a definition, if these do not overlap."""
    names = policy.discretiser.states
    groups = tuple((x,) for x in range(len(names))) if window.states == "histogram" else (window.counted(names),)
    whole = [
        frame for frame in frames if frame.observed == frame.length and frame.last - frame.shift - begin < states.size
    ]
    if window.stride < window.length or not whole:
        return None
    return CountOutputs(
        np.array([frame.counts for frame in whole], dtype=np.int64),
        np.array([frame.first - frame.shift - begin for frame in whole], dtype=np.int64),
        window.length,
        Fraction(window.scale),
        groups,
        int(states.size),
        len(names),
        (states >= 0).astype(np.int64),
    )
