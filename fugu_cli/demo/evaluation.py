"""The truth of recordings beside the windows that a subscriber received, and attackers on those."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

import numpy as np

import fugu
from fugu.attackers.evaluation import Attack, attack, furthest_learner, odds_change
from fugu.attackers.learning import COUNT_ATTACKERS
from fugu.attackers.outputs import CountOutputs, Knowledge, release_symbols
from fugu.chains.arrays import Floats, Ints
from fugu.contract.chains import BinaryChains
from fugu.contract.discretisers import Baseline
from fugu.contract.errors import FuguError
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.sentences import epsilon_to_odds
from fugu.host.csv_file import csv_rows
from fugu.planning.answers import window_error
from fugu.planning.policy_builder import PolicyHeader, build_window_policy
from fugu.planning.states import states_of
from fugu.planning.window_plan import WantedWindow, joint_plan
from fugu.privacy.covering_class import covering_class
from fugu.privacy.quilts import group_dp_scale, mqm_exact

__all__ = [
    "BEATS",
    "EPSILON",
    "RECORDINGS",
    "AnyFrame",
    "Replay",
    "Results",
    "evaluate",
    "load_night",
    "read_night",
    "summary",
]


AnyFrame: TypeAlias = SymbolFrame | WindowFrame
FLEET = "demo"
RECORDINGS = Path(fugu.__file__).parent / "data"
"""The recordings of the demo; they keep their own licences."""
EPSILON = 1.0
BEATS = 300
"""Heartbeats of a window, and of the running baseline."""
BASELINE = Baseline(baseline_ticks=BEATS, lowest=30.0, highest=230.0)


@dataclass(frozen=True)
class Replay:
    """A recording that a device replays, and the truth.

    Attributes:
        name: for people.
        policy: of the device; its only window counts states.
        sensor: the table of the sensor in the agent's file.
        values: (n,) what the sensor reads at each tick; NaN or `None` where nothing.
        states: (n,) their states, -1 where there is none, as before a running mean.
        transition: (k, k) the chain that an attacker believes who knows the habits.
        steady: chains that never change, for quilts to be compared with; `None` without a comparison.
        of: what is counted, in words after "the share of time".
        tick: what a tick is called.
        recorded: what was recorded.
    """

    name: str
    policy: Policy
    sensor: Mapping[str, object]
    values: Floats | list[str | None]
    states: Ints
    transition: Floats
    steady: BinaryChains | None = None
    of: str = "above the sleeper's own baseline"
    tick: str = "heartbeat"
    recorded: str = "heart rate"

    topic: ClassVar[Literal["window", "symbols"]] = "window"

    @property
    def device(self) -> str:
        """Name of its device."""
        return self.policy.device

    @property
    def expected(self) -> int:
        """Number of values that are to come."""
        return len(self.windows)

    @property
    def every(self) -> float:
        """Seconds from one message to the next."""
        [window] = self.policy.windows
        return window.stride * self.policy.clock.period_us / 1e6

    def decode(self, payload: bytes) -> tuple[int, int, AnyFrame]:
        """First tick of a message, the tick after its last, and its frame; a FrameError if it is none."""
        frame = WindowFrame.decode(payload)
        return frame.first, frame.first + frame.length, frame

    def came(self, frames: Mapping[int, AnyFrame]) -> int:
        """Number of values in frames."""
        return len(frames)

    def results(
        self, live: Mapping[int, AnyFrame], others: Mapping[int, AnyFrame] | None = None, *, attacked: bool = False
    ) -> Results | None:
        """Compare what arrived with the truth, and attack it: see `evaluate`."""
        windows = {first: frame for first, frame in live.items() if isinstance(frame, WindowFrame)}
        prepared = {first: frame for first, frame in (others or {}).items() if isinstance(frame, WindowFrame)}
        return evaluate(self, windows, prepared, attacked=attacked)

    @property
    def hours(self) -> float:
        """From one tick to the next, in hours."""
        return self.policy.clock.period_us / 3.6e9

    @property
    def promise(self) -> float:
        """By how much the odds on a tick may change, at the most."""
        return epsilon_to_odds(self.policy.guarantee.epsilon)

    @property
    def beginning(self) -> int:
        """Ticks before there is a running mean."""
        return self.policy.discretiser.baseline_ticks if self.policy.discretiser.kind == "baseline" else 0

    @property
    def windows(self) -> range:
        """First ticks of the windows that are to come, but for those that begin before there is a running mean."""
        [window] = self.policy.windows
        at = window.start + -(-max(self.beginning - window.start, 0) // window.stride) * window.stride
        return range(at, self.states.size - window.length + 1, window.stride)

    def counts(self, first: int) -> tuple[Ints, Ints]:
        """The true counts (g,) of a window, and of how many ticks each is."""
        [window] = self.policy.windows
        clock, query = self.policy.clock, window.query
        span = self.states[first : first + window.length]
        if query.blocks is None:
            groups = window.groups(self.policy.discretiser.states)
            return np.array([np.isin(span, some).sum() for some in groups]), np.full(len(groups), span.size)
        blocks = np.array(
            [query.blocks.at(clock.epoch_us + t * clock.period_us) for t in range(first, first + span.size)]
        )
        inside = np.isin(span, window.counted(self.policy.discretiser.states))
        least = len(query.blocks.labels)
        return np.bincount(blocks[inside], minlength=least), np.bincount(blocks, minlength=least)

    @cached_property
    def prepared(self) -> Mapping[int, AnyFrame]:
        """Frames of the first third of the windows, by first tick: simulated here, with the noise of the policy."""
        [window] = self.policy.windows
        frames, rng = dict[int, AnyFrame](), np.random.default_rng()
        success = -math.expm1(-1.0 / float(Fraction(window.scale)))
        for first in self.windows[: -(-len(self.windows) // 3)]:
            true, _ = self.counts(first)
            # The difference of two geometric numbers with ratio exp(-1/s) is discrete Laplace noise of scale s.
            up, down = rng.geometric(success, (2, true.size))
            index, length = (first - window.start) // window.stride, window.length
            counts = tuple((true + up - down).tolist())
            frames[first] = WindowFrame(1, window.name, index - 1, index, first, length, length, counts)
        return frames


def read_night(name: str) -> tuple[Path, float, Floats]:
    """A recorded night: its file, seconds from one heartbeat to the next on average, and heart rates."""
    path = RECORDINGS / f"hr_sleep_{name}.csv.gz"
    with csv_rows(path, FuguError) as (header, rows):
        columns = header.index("t"), header.index("value")
        seconds, values = np.array([[float(row[column]) for column in columns] for _, row in rows]).T
    return path, round(float(seconds[-1] - seconds[0]) / (len(seconds) - 1), 3), values


def load_night(name: str, epoch: float | None = None) -> Replay:
    """A recorded night as a device replays it: a noisy count of every 300 heartbeats, and nothing else.

    Args:
        name: of the recording.
        epoch: Unix time of the first heartbeat; by default the night has just ended.
    """
    path, period, values = read_night(name)
    segments = np.zeros(len(values), dtype=np.int64)
    states = states_of(BASELINE, values, segments)
    covered = covering_class(states, segments, 2)
    plan = joint_plan(covered.chains, EPSILON, "universal", [WantedWindow("above", BEATS, ("above",))])
    epoch = time.time() - period * len(values) if epoch is None else epoch
    about = PolicyHeader(FLEET, f"watch-{name}", "heart-rate", BASELINE, period, epoch=round(epoch))
    low, high = covered.low, covered.high
    steady = BinaryChains(q=(low[0, 1], high[0, 1]), r=(low[1, 0], high[1, 0]))
    sensor = {"kind": "replay", "file": str(path.resolve()), "column": "value", "loop": False}
    return Replay(
        f"Sleeper {name}", build_window_policy(plan, about), sensor, values, states, covered.transition, steady
    )


@dataclass(frozen=True)
class Results:
    """Windows of one replay that arrived, or were prepared; shares are in 0..1.

    Attributes:
        hours: (w,) middle of each share.
        truth: (w,) the true shares, (w, g) flattened where windows have several counts.
        released: (w,) the shares that arrived.
        live: how many windows really arrived; the others were prepared.
        band: half the width of a 95 % interval of a released share.
        quilts: the same with the noise of quilts, for chains inside those of the class that do not change, and an
            adversary who knows no state; `None` unless there are two states.
        group: the same if all ticks of a window are protected as one; `None` likewise.
        ordinary: (n,) ln of the factor by which symbols of ordinary randomised response change the odds on each
            tick, for an attacker who uses all of them (forward-backward with the average chain of the class).
        ours: (n,) the same of the windows that arrived; `None` for counts by parts of the day.
        learner: (n,) the same, for the attacker who learns habits and moves furthest beyond the promise, which is not
            made to him; `None` while the replay goes on.
        attack: the most successful attacker on those windows; `None` while the replay goes on.
    """

    replay: Replay
    hours: Floats
    truth: Floats
    released: Floats
    live: int
    band: float
    quilts: float | None
    group: float | None
    ordinary: Floats | None
    ours: Floats | None
    learner: Floats | None
    attack: Attack | None
    attackers: ClassVar[int] = len(COUNT_ATTACKERS)

    @property
    def head(self) -> str:
        """First line of the picture of use."""
        [window] = self.replay.policy.windows
        parts = ", for each part of the day" if window.blocks is not None else ""
        return f"Useful: share of {window.length} {self.replay.tick}s{parts}"

    @property
    def legend(self) -> tuple[str, str]:
        """Words for the line that a subscriber gets, and for the true one."""
        return "what a subscriber gets, with its 95 % band", "the truth, which stays on the device"

    @property
    def reaches(self) -> tuple[tuple[str, float | None], ...]:
        """Half widths of the bands of several mechanisms under the same promise."""
        return ("Fugu Edge", self.band), ("Markov quilts", self.quilts), ("group privacy", self.group)

    @property
    def axis_hours(self) -> float:
        """Hours of the picture's axis."""
        return self.replay.states.size * self.replay.hours

    def use(self) -> str:
        """Say in a sentence how far off what was released is."""
        return (
            f"Useful: the released shares are off by {100 * self.error:.1f} points on average (a share of 40 % reads "
            f"{40 - 100 * self.error:.0f} to {40 + 100 * self.error:.0f} %), and {100 * self.inside:.0f} % of "
            f"them by at most {100 * self.band:.0f} points."
        )

    @property
    def error(self) -> float:
        """Mean absolute error of the released shares."""
        return float(np.abs(self.released - self.truth).mean())

    @property
    def inside(self) -> float:
        """How often the truth was inside the band."""
        return float((np.abs(self.released - self.truth) <= self.band).mean())

    def beyond(self, changes: Floats) -> float:
        """The share of ticks on which odds change by more than is promised."""
        return float((changes > self.replay.policy.guarantee.epsilon).mean())


def evaluate(
    replay: Replay,
    live: Mapping[int, WindowFrame],
    others: Mapping[int, WindowFrame] | None = None,
    *,
    attacked: bool = False,
) -> Results | None:
    """Compare what arrived with the truth, and attack it; `None` if no whole window did.

    Args:
        replay: the recording.
        live: windows that arrived, by first tick.
        others: windows that were prepared, for those that have not arrived.
        attacked: run all attackers, not only the one who knows the habits; it takes a while.
    """
    [window] = replay.policy.windows
    policy, truths = replay.policy, {}
    frames = {**(others or {}), **live}
    for at in sorted(set(replay.windows) & set(frames)):
        # Of a window in which the device has missed ticks nobody can say what was counted.
        if frames[at].observed == window.length:
            truths[at] = replay.counts(at)
    if not truths:
        return None
    first, length, scale = np.array(list(truths)), window.length, Fraction(window.scale)
    true, ticks = (np.stack(arrays) for arrays in zip(*truths.values(), strict=True))
    counts = np.array([frames[at].counts for at in truths], dtype=np.int64)
    parts = counts.shape[1] if window.query.blocks is not None else 1
    middles = first[:, None] + (np.arange(parts) + 0.5) * length / parts
    chosen = slice(None) if parts > 1 else slice(varied := int(np.argmax(true.std(axis=0))), varied + 1)
    tail = -math.log(0.05) / length  # of Laplace noise of scale 1: as far as its 95 % reach
    quilts = group = ordinary = None
    segments, seen, epsilon = np.zeros_like(replay.states), replay.states >= 0, policy.guarantee.epsilon
    knowledge = Knowledge(replay.transition, segments)
    if replay.steady is not None:
        quilts = tail * mqm_exact(replay.steady, None, epsilon).scale
        group = tail * group_dp_scale(length, epsilon)
    if replay.transition.shape == (2, 2):
        flip = round(2**32 / (1.0 + replay.promise))
        symbols = release_symbols(replay.states, NoiseTable.binary(flip, flip), np.random.default_rng(2026))
        ordinary = odds_change(symbols, knowledge)[seen]
    ours = learned = None
    attacks: tuple[Attack, ...] = ()
    if parts == 1 and window.overlap == 1:
        end = replay.states.size if attacked else int(first[-1]) + length
        groups, names = window.groups(policy.discretiser.states), len(policy.discretiser.states)
        present = seen[:end].astype(np.int64)
        outputs = CountOutputs(counts, first, length, scale, groups, end, names, present)
        knowledge = Knowledge(replay.transition, segments[:end])
        ours = odds_change(outputs, knowledge)[seen[:end]]
        if attacked:
            attacks = attack(replay.states, segments, outputs, epsilon)
            if (learner := furthest_learner(attacks)) is not None:
                told = replace(knowledge, truth=replay.states)
                learned = odds_change(outputs, told, COUNT_ATTACKERS[learner.attacker])[seen]
    return Results(
        replay,
        (middles * replay.hours).ravel(),
        (true / ticks)[:, chosen].ravel(),
        np.clip(counts / ticks, 0.0, 1.0)[:, chosen].ravel(),
        len(set(truths) & set(live)),
        window_error(scale, length).share_95 * parts,
        quilts,
        group,
        ordinary,
        ours,
        learned,
        attacks[0] if attacks else None,
    )


def _factor(changes: Floats) -> str:
    """The largest factor of changes of log-odds; one without bound is not written out."""
    most = float(changes.max())
    return f"x {math.exp(most):.1f}" if most < math.log(1000.0) else "more than x 1000"


def summary(results: Results) -> tuple[str, ...]:
    """A sentence about use, and one about privacy; once it is over, one each about learners and success."""
    replay, found = results.replay, results.attack
    tick, promise = replay.tick, f"x {replay.promise:.1f}"
    said = [results.use()]
    if results.ours is not None:
        said.append(
            "Private: for an attacker who already knows the habits behind it, what is released changes the odds on a "
            f"{tick} by at most x {math.exp(results.ours.max()):.1f}, where {promise} is promised"
        )
        if results.ordinary is not None:
            said[-1] += (
                "; ordinary randomised response goes beyond that promise on "
                f"{100 * results.beyond(results.ordinary):.0f} % of the {tick}s, "
                f"up to x {math.exp(results.ordinary.max()):.0f}"
            )
        said[-1] += "."
    if results.learner is not None:
        said.append(
            "Habits are not protected: for an attacker who learns them, odds change by up to "
            f"{_factor(results.learner)}, and by more than {promise} on "
            f"{100 * results.beyond(results.learner):.0f} % of the {tick}s."
        )
    if found is not None:
        said.append(
            f"The strongest of {results.attackers} attackers on what was released ({found.attacker}) is right on "
            f"{100 * found.success:.1f} % of the {tick}s ({100 * found.low:.1f} to {100 * found.high:.1f}), always "
            f"guessing on {100 * found.guess:.1f} %; epsilon allows {100 * found.ceiling:.1f} %, if the readings are "
            "in the class."
        )
    return tuple(said)
