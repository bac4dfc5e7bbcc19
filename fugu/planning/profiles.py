"""Profiles as candidates: a share for each block of the local day, over days, judged like other windows.

The blocks of the days of a stretch without gaps are compared with one share for all of them, which is the guess of
whoever does not know the habit: a profile is worth it where it tells the parts of a day apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from fugu.attack.outputs import CountOutputs, release_counts
from fugu.chains.arrays import Floats, Ints
from fugu.contract.calendar import DAY, DayBlocks
from fugu.contract.frames import MAX_WINDOW_TICKS, WindowFrame
from fugu.contract.guarantee import StreamOutputs
from fugu.planning.answers import Shares, group_error, noisy_shares, true_shares
from fugu.planning.candidates import Candidate, nothing, sent
from fugu.planning.day_blocks import profile_query
from fugu.planning.question import Cut, Question, Sampled, ThreeSets
from fugu.planning.readings import Readings
from fugu.planning.window_plan import JointPlan, WantedWindow, joint_plan
from fugu.privacy.covering_class import CoveringChains

__all__ = [
    "profile_attacked",
    "profile_candidates",
    "profile_error",
    "profile_lengths",
    "profile_plan",
    "profile_scale",
    "profile_shares",
    "recorded_blocks",
]

WINDOW = "profile"
"""Name of a profile in its policy."""
DAYS = (7, 14)
"""How many days are tried if none are asked for."""
_RUNS, _ANSWERS = 100, 20_000


def profile_lengths(readings: Readings, question: Question) -> list[int]:
    """Ticks of the profiles to compare; none where ticks are no steady times, or blocks would be shorter than one."""
    period = readings.period_seconds
    if period is None or not readings.steady or readings.moments is None:
        return []
    days = DAYS if question.days is None else (question.days,)
    lengths = [math.ceil(round(one * DAY / period, 6)) for one in days]
    most = math.inf if question.latency_seconds is None else question.latency_seconds / period * (1.0 + 1e-9)
    return [length for length in lengths if length <= min(most, MAX_WINDOW_TICKS) and period <= _seconds(question)]


def _seconds(question: Question) -> int:
    blocks = profile_query(f"profile:{question.blocks}", 0).blocks
    assert blocks is not None
    return blocks.seconds


def recorded_blocks(readings: Readings, question: Question) -> tuple[DayBlocks, Ints]:
    """The blocks at the time of a recording, and which of them its ticks (n,) are in; PlanningError as the query."""
    assert readings.moments is not None
    blocks = profile_query(f"profile:{question.blocks}", float(readings.moments.min())).blocks
    assert blocks is not None
    return blocks, np.array([blocks.at(round(1e6 * moment)) for moment in readings.moments.tolist()], dtype=np.int64)


def profile_shares(cut: Cut, place: Ints, blocks: DayBlocks, length: int, counted: Sequence[int]) -> Shares:
    """The true answers of the profiles of `length` ticks in a set: a share of each block; `place` (m,) are its blocks.

    `Shares.length` is what a count is divided by, the ticks of a block in so many days.
    """
    size = len(blocks.labels)
    inside = np.isin(cut.states, list(counted))
    seen = np.where(cut.states < 0, -1, np.where(inside, place, size + place))
    counts = true_shares(seen, cut.segments, length, tuple((block,) for block in range(size)))
    stated = true_shares(seen, cut.segments, length, tuple((block, size + block) for block in range(size))).counts
    part = max(1, length * blocks.seconds // DAY)
    return counts._replace(truth=counts.counts / np.maximum(stated, 1), length=part)


def profile_window(candidate: Candidate, question: Question, counted: Sequence[int], epoch: float | None) -> WantedWindow:
    """The window of a recommended profile, by the transitions of its zone in the years from `epoch` (default: now)."""
    assert candidate.window_ticks is not None
    query = profile_query(f"profile:{question.blocks}", epoch)
    return WantedWindow(WINDOW, candidate.window_ticks, tuple(counted), query=query)


def profile_candidates(
    data: Sampled,
    places: tuple[Ints, Ints],
    chains: CoveringChains,
    question: Question,
    counted: Sequence[int],
    blocks: DayBlocks,
    period: float,
    lengths: Sequence[int],
) -> list[Candidate]:
    """Profiles over several times; `places` are the blocks of the ticks of the first two sets.

    Raises:
        FuguError: no noise is enough.
    """
    scale = window_scale(chains, question, question.epsilon, (tuple(counted),))
    found = []
    for length in lengths:
        known, more = (
            profile_shares(cut, place, blocks, length, counted)
            for cut, place in zip((data.fit, data.choose), places, strict=True)
        )
        if not len(known.counts):
            continue
        both = known._replace(
            counts=np.concatenate([known.counts, more.counts]), truth=np.concatenate([known.truth, more.truth])
        )
        frame = WindowFrame(1, WINDOW, -1, 0, 0, length, length, (0,) * len(blocks.labels))
        rng = np.random.default_rng(length)
        for devices in sorted({1, question.devices}):
            found.append(
                replace(
                    nothing(data.discretiser, chains, question),
                    kind="windows",
                    answers="profile",
                    blocks=blocks,
                    devices=devices,
                    window_ticks=length,
                    scale=scale,
                    expected_error=_off(both, scale, devices, rng, max(_RUNS, _ANSWERS // both.counts.size)),
                    error_95=min(1.0, group_error(scale, both.length, devices)[1] + float(both.bias.max())),
                    guess_error=float(np.abs(both.truth - np.median(known.truth)).mean()),
                    judged=both.counts.size,
                    **sent(length * period, length * period, len(frame.encode()), devices),
                )
            )
    return found


def profile_error(shares: Shares, candidate: Candidate, rng: np.random.Generator) -> float | None:
    """The mean absolute error of a candidate's answers, noise drawn many times; None if there is no whole profile."""
    assert candidate.scale is not None
    return _off(shares, candidate.scale, candidate.devices, rng, _RUNS) if len(shares.counts) else None


def profile_attacked(cut: Cut, place: Ints, counted: Sequence[int], scale: Fraction, k: int, rng: np.random.Generator) -> CountOutputs:
    """What attackers see of a profile, and more: each block of each day by itself, with the noise of the whole count.

    A tick is in one count with this noise either way, and fewer others hide it here.
    """
    parts = np.cumsum((np.diff(place, prepend=place[0]) != 0) | (np.diff(cut.segments, prepend=cut.segments[0]) != 0))
    length = int(np.median(np.bincount(parts)[1:-1])) if parts[-1] > 1 else len(place)
    return release_counts(cut.states, cut.segments, length, scale, (tuple(counted),), rng, k=k)


def _off(shares: Shares, scale: Fraction, devices: int, rng: np.random.Generator, runs: int) -> float:
    return float(np.abs(noisy_shares(shares, scale, devices, rng, runs) - shares.truth).mean())
