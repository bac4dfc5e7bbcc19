"""The truth of recordings beside the windows that a subscriber received, and attackers on those."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

import numpy as np

import fugu
from fugu.attackers.evaluation import Attack, attack, furthest_learner, odds_change
from fugu.attackers.learning import COUNT_ATTACKERS, Attacker
from fugu.attackers.outputs import CountOutputs, Knowledge, Outputs, laplace_noise, release_symbols
from fugu.chains.arrays import Floats, Ints
from fugu.contract.discretisers import Baseline, Thresholds
from fugu.contract.errors import FuguError
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.queries import Query
from fugu.contract.sentences import epsilon_to_odds, privacy_sentence
from fugu.contract.stretches import Stretch, stretch_ticks
from fugu.contract.windows import Window
from fugu.host.csv_file import csv_rows
from fugu.lanes import time_marks
from fugu.planning.answers import window_error
from fugu.planning.policy_builder import PolicyHeader, build_window_policy
from fugu.planning.profiles import profile_blocks
from fugu.planning.states import states_of
from fugu.planning.window_plan import WantedWindow, joint_plan
from fugu.privacy.covering_class import covering_class
from fugu.recordings.values import Cells

__all__ = [
    "BEATS",
    "EPSILON",
    "HEART",
    "RECORDINGS",
    "AnyFrame",
    "Replay",
    "Results",
    "load_home",
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
_MINUTE, _WEEK = 60.0, 10_080
HEART = "heart rate, beats a minute"
FURTHER_DRAWS = 5
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
        of: what is counted, in words after "the share of time".
        tick: what a tick is called.
        recorded: what was recorded, with its unit.
    """

    name: str
    policy: Policy
    sensor: Mapping[str, object]
    values: Cells
    states: Ints
    transition: Floats
    of: str = "above the sleeper's own baseline"
    tick: str = "heartbeat"
    recorded: str = HEART

    topic: ClassVar[Literal["window", "symbols"]] = "window"

    @property
    def window(self) -> Window:
        """The only window of its policy."""
        [window] = self.policy.windows
        return window

    @property
    def device(self) -> str:
        """Name of its device."""
        return self.policy.device

    @property
    def expected(self) -> int:
        """Number of values that are to come."""
        return len(self.windows)

    def decode(self, payload: bytes) -> tuple[int, int, AnyFrame]:
        """First tick of a message, the tick after its last, and its frame; a FrameError if it is none."""
        frame = WindowFrame.decode(payload)
        return frame.first, frame.first + frame.length, frame

    def came(self, frames: Mapping[int, AnyFrame]) -> int:
        """Number of values in frames, of those that are to come."""
        return sum(first in self.windows for first in frames)

    def results(self, frames: Mapping[int, AnyFrame], *, attacked: bool = False) -> Results | None:
        """Compare what arrived with the truth, and attack it; `None` if no whole window did.

        Args:
            frames: that arrived, by first tick.
            attacked: run all attackers, not only the one who knows the habits; it takes a while.
        """
        window_rows, counts = [], []
        for first_tick in sorted(set(self.windows) & set(frames)):
            frame = frames[first_tick]
            # Of a window in which the device has missed ticks nobody can say what was counted.
            if isinstance(frame, WindowFrame) and frame.observed == self.window.length:
                window_rows.append((first_tick, *self.counts(first_tick)))
                counts.append(frame.counts)
        if not window_rows:
            return None
        first_ticks, true_counts, ticks = (np.array(column) for column in zip(*window_rows, strict=True))
        return self._results(first_ticks, true_counts, ticks, np.array(counts, dtype=np.int64), attacked)

    def _results(self, first_ticks: Ints, true_counts: Ints, ticks: Ints, counts: Ints, attacked: bool) -> Results:
        """Results of windows by their first ticks (w,): true counts (w, g), of how many ticks, and those released."""
        window, scale = self.window, Fraction(self.window.scale)
        part_count = len(self.parts) or 1
        columns = slice(None) if part_count > 1 else [int(np.argmax(true_counts.std(axis=0)))]
        end_tick = int(first_ticks[-1]) + window.length
        tick_count = self.states.size if attacked else end_tick
        states = self.states[:tick_count]
        stated_ticks, changes, best_attack, learners = np.flatnonzero(states >= 0), None, None, tuple[Floats, ...]()
        if part_count == 1 and window.overlap == 1:
            groups, names = window.groups(self.policy.discretiser.states), len(self.policy.discretiser.states)
            present = (states >= 0).astype(np.int64)
            outputs = CountOutputs(counts, first_ticks, window.length, scale, groups, tick_count, names, present)
            knowledge = Knowledge(self.transition, np.zeros(tick_count, dtype=np.int64))
            changes = odds_change(outputs, knowledge)[stated_ticks]
            if attacked:

                def redraw(generator: np.random.Generator) -> Outputs:
                    return replace(outputs, counts=true_counts + laplace_noise(scale, counts.shape, generator))

                best_attack, learners = self.attacks(outputs, redraw, knowledge, COUNT_ATTACKERS)
        middles = first_ticks[:, None] + (np.arange(part_count) + 0.5) * window.length / part_count
        return Results(
            replay=self,
            hours=(middles * self.hours).ravel(),
            truth=(true_counts / ticks)[:, columns].ravel(),
            released=np.clip(counts / ticks, 0.0, 1.0)[:, columns].ravel(),
            live=len(first_ticks),
            end=tick_count,
            band=window_error(scale, window.length).share_95 * part_count,
            ticks=stated_ticks,
            ordinary=None if self.ordinary is None else self.ordinary[stated_ticks],
            ours=changes,
            learners=learners,
            attack=best_attack,
        )

    def attacks(
        self,
        outputs: Outputs,
        redraw: Callable[[np.random.Generator], Outputs],
        knowledge: Knowledge,
        attackers: Mapping[str, Attacker],
    ) -> tuple[Attack | None, tuple[Floats, ...]]:
        """Attack what was released of the first ticks; the best attack, and how the furthest learner moved the odds.

        Args:
            redraw: gives the same outputs with further noise.
            knowledge: of those ticks.
            attackers: by name, those who attack such outputs.
        """
        states = self.states[: knowledge.segments.size]
        attacks = attack(states, knowledge.segments, outputs, self.tick_epsilon)
        if (learner := furthest_learner(attacks)) is None:
            return attacks[0] if attacks else None, ()
        supervised, generator = replace(knowledge, truth=states), np.random.default_rng(1)
        draws = [outputs, *(redraw(generator) for _ in range(FURTHER_DRAWS))]
        changes = (odds_change(further_outputs, supervised, attackers[learner.attacker]) for further_outputs in draws)
        return attacks[0], tuple(change[states >= 0] for change in changes)

    @property
    def hours(self) -> float:
        """From one tick to the next, in hours."""
        return self.policy.clock.period_us / 3.6e9

    @property
    def promise(self) -> float:
        """By how much the odds on a tick may change, at the most."""
        return epsilon_to_odds(self.tick_epsilon)

    @cached_property
    def stretches(self) -> tuple[Stretch, ...]:
        """Losses of a tick and of usual lengths of time."""
        rows = self.policy.bound(self.policy.verify()).rows(self.policy.clock.period_us)
        tick_row = rows[0]._replace(name=self.tick)
        return tick_row, *(row for row in rows if row.name[0].isdigit())

    @property
    def asked(self) -> str:
        """Question of an attacker about a tick, in words."""
        *_, state = self.policy.discretiser.states
        if len(self.policy.discretiser.states) == 2:
            state_words = f"\N{LEFT DOUBLE QUOTATION MARK}{state}\N{RIGHT DOUBLE QUOTATION MARK}"
            return f"of any one {self.tick} being {state_words} or not"
        return f"of the state of any one {self.tick}"

    @property
    def tick_epsilon(self) -> float:
        """Loss of a single tick."""
        promise = self.policy.guarantee
        return promise.epsilon if promise.stretch_ticks == 1 else self.stretches[0].epsilon

    @property
    def about(self) -> str:
        """Name of the stretch that the promise is about."""
        ticks = self.policy.guarantee.stretch_ticks
        return next((row.name for row in self.stretches if row.ticks == ticks), self.tick)

    def span(self, ticks: int) -> tuple[float, float]:
        """Hours that are drawn when so many ticks have been read: all of them."""
        return 0.0, self.states.size * self.hours

    @cached_property
    def marks(self) -> list[tuple[float, str]]:
        """Words along the axis of time."""
        return time_marks(self.states.size * self.hours)

    @property
    def drawn(self) -> str:
        """Words for the picture of what leaves."""
        band = "upright lines" if self.parts else "band"
        return f"share of {self.tick}s {self.of} · {band}: 95 % · dashes: the truth, which does not leave"

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts of the day that a window counts apart; none where it counts all together."""
        blocks = self.window.query.blocks
        return () if blocks is None else tuple(blocks.labels)

    @cached_property
    def ordinary(self) -> Floats | None:
        """(n,) ln of the factor by which symbols of ordinary randomised response change the odds on each tick.

        For an attacker who uses all of them (forward-backward with the average chain of the class); `None` unless there
        are two states.
        """
        if self.transition.shape != (2, 2):
            return None
        flip_weight = round(2**32 / (1.0 + self.promise))
        symbols = release_symbols(self.states, NoiseTable.binary(flip_weight, flip_weight), np.random.default_rng(2026))
        return odds_change(symbols, Knowledge(self.transition, np.zeros_like(self.states)))

    @property
    def windows(self) -> range:
        """First ticks of the windows that are to come, but for those that begin before there is a running mean."""
        window, discretiser = self.window, self.policy.discretiser
        mean_from = discretiser.baseline_ticks if discretiser.kind == "baseline" else 0
        first_tick = window.start + -(-max(mean_from - window.start, 0) // window.stride) * window.stride
        return range(first_tick, self.states.size - window.length + 1, window.stride)

    def counts(self, first_tick: int) -> tuple[Ints, Ints]:
        """The true counts (g,) of a window, and of how many ticks each is."""
        window, clock, query = self.window, self.policy.clock, self.window.query
        span = self.states[first_tick : first_tick + window.length]
        if query.blocks is None:
            groups = window.groups(self.policy.discretiser.states)
            return np.array([np.isin(span, group).sum() for group in groups]), np.full(len(groups), span.size)
        blocks = np.array(
            [query.blocks.at(clock.epoch_us + t * clock.period_us) for t in range(first_tick, first_tick + span.size)]
        )
        is_counted = np.isin(span, window.counted(self.policy.discretiser.states))
        group_count = len(query.blocks.labels)
        return np.bincount(blocks[is_counted], minlength=group_count), np.bincount(blocks, minlength=group_count)

    def simulated(self) -> Mapping[int, AnyFrame]:
        """Frames of all values, by first tick, as a device would send them: with the noise of the policy."""
        window, frames, rng = self.window, dict[int, AnyFrame](), np.random.default_rng()
        for first_tick in self.windows:
            true_counts, _ = self.counts(first_tick)
            noisy = true_counts + laplace_noise(Fraction(window.scale), true_counts.shape, rng)
            index, length = (first_tick - window.start) // window.stride, window.length
            frames[first_tick] = WindowFrame(
                1, window.name, index - 1, index, first_tick, length, length, tuple(noisy.tolist())
            )
        return frames


def read_night(name: str) -> tuple[Path, float, Floats]:
    """A recorded night: its file, seconds from one heartbeat to the next on average, and heart rates."""
    path = RECORDINGS / f"hr_sleep_{name}.csv.gz"
    seconds, values = _columns(path, "t", "value")
    return path, round(float(seconds[-1] - seconds[0]) / (len(seconds) - 1), 3), values


def load_night(name: str, epoch: float | None = None) -> Replay:
    """A recorded night as a device replays it: a noisy count of every 300 heartbeats, and nothing else.

    Args:
        name: of the recording.
        epoch: Unix time of the first heartbeat; by default the night has just ended.
    """
    path, period, values = read_night(name)
    epoch = time.time() - period * len(values) if epoch is None else epoch
    header = PolicyHeader(FLEET, f"watch-{name}", "heart-rate", BASELINE, period, epoch=round(epoch))
    return _replay(f"Sleeper {name}", header, WantedWindow("above", BEATS, ("above",)), path, "value", values)


def load_home(epoch: float | None = None) -> Replay:
    """A month of a household's water meter: once a week how often water ran in each four hours, any hour protected.

    Args:
        epoch: Unix time of the first minute; by default the month ended with the last day.
    """
    path = RECORDINGS / "water_states.csv.gz"
    [values] = _columns(path, "state")
    if epoch is None:
        epoch = (time.time() // 86_400 - values.size * _MINUTE // 86_400) * 86_400
    discretiser = Thresholds(edges=(0.5,), states=("off", "on"))
    header = PolicyHeader(FLEET, "water-meter", "water", discretiser, _MINUTE, epoch=round(epoch))
    query = Query("profile", blocks=profile_blocks("4h/UTC", epoch))
    window = WantedWindow("profile", _WEEK, (1,), query=query)
    hour = stretch_ticks(3600, round(_MINUTE * 1e6))
    month = _replay("A household's month", header, window, path, "state", values, hour)
    return replace(month, of="with water running", tick="minute", recorded="water runs (1) or not (0)")


def _columns(path: Path, *names: str) -> Floats:
    """Columns of a recording, one a row."""
    with csv_rows(path, FuguError) as (header, rows):
        columns = [header.index(name) for name in names]
        return np.array([[float(row[column]) for column in columns] for _, row in rows]).T


def _replay(
    name: str, header: PolicyHeader, window: WantedWindow, path: Path, column: str, values: Floats, stretch: int = 1
) -> Replay:
    """A recording whose windows are planned for its own class, and for any stretch of so many ticks."""
    segments = np.zeros(len(values), dtype=np.int64)
    states = states_of(header.discretiser, values, segments)
    chain_class = covering_class(states, segments, 2)
    plan = joint_plan(chain_class.chains, EPSILON, "universal", [window], stretch_ticks=stretch)
    sensor = {"kind": "replay", "file": str(path.resolve()), "column": column, "loop": False}
    return Replay(name, build_window_policy(plan, header), sensor, values, states, chain_class.transition)


@dataclass(frozen=True)
class Results:
    """Windows of one replay that arrived; shares are in 0..1.

    Attributes:
        hours: (w,) middle of each share.
        truth: (w,) the true shares, (w, g) flattened where windows have several counts.
        released: (w,) the shares that arrived.
        live: how many values arrived.
        end: the tick after the last of them.
        band: half the width of a 95 % interval of a released share.
        ticks: (n,) the ticks that have a state.
        ordinary: (n,) ln of the factor by which symbols of ordinary randomised response change the odds on each of
            them. While the replay goes on, it is only of those before `end`.
        ours: (n,) the same of the windows that arrived; `None` for counts by parts of the day.
        learners: (n,) the same, for the attacker who learns habits and moves furthest beyond the promise, which is not
            about him. It is of the windows that arrived, then of further draws of their noise; `None` while the replay
            goes on.
        attack: the most successful attacker on those windows; `None` while the replay goes on.
    """

    replay: Replay
    hours: Floats
    truth: Floats
    released: Floats
    live: int
    end: int
    band: float
    ticks: Ints
    ordinary: Floats | None
    ours: Floats | None
    learners: tuple[Floats, ...]
    attack: Attack | None
    attackers: ClassVar[int] = len(COUNT_ATTACKERS)

    @property
    def learner(self) -> Floats | None:
        """The changes for the one who learns habits, of the windows that arrived."""
        return next(iter(self.learners), None)

    @property
    def off(self) -> str:
        """Error of the values, in a few words."""
        digits = f"{100 * self.error:.{int(self.error < 0.01)}f}"
        return f"off by {digits} percentage point{'s' * (digits != '1')} on average"

    def use(self) -> str:
        """Say in a sentence how far off what was released is."""
        return (
            f"Useful: the released shares are off by {100 * self.error:.1f} points on average, and "
            f"{100 * self.inside:.0f} % of them by at most {100 * self.band:.0f} points."
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
        return float((changes > self.replay.tick_epsilon).mean())


def _factor(log_odds: float) -> str:
    """The factor of a change of log-odds; one without bound is not written out."""
    return f"x {math.exp(log_odds):.1f}" if log_odds < math.log(1000.0) else "more than x 1000"


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def summary(results: Results) -> tuple[str, ...]:
    """A sentence about use, and one about privacy; once it is over, one each about learners and success."""
    replay, attack = results.replay, results.attack
    tick, promise = replay.tick, f"x {replay.promise:.1f}"
    sentences = [results.use()]
    if results.ours is None:
        stretch = replay.about.removeprefix("1 ")
        sentences.append(privacy_sentence(replay.policy.guarantee.epsilon, stretch, replay.stretches))
    else:
        sentences.append(
            "Private: for an attacker who already knows the habits behind it, the odds on a "
            f"{tick} change by at most x {math.exp(results.ours.max()):.1f}, where {promise} is promised"
        )
        if results.ordinary is not None:
            sentences[-1] += (
                "; ordinary randomised response goes beyond that promise on "
                f"{100 * results.beyond(results.ordinary):.0f} % of the {tick}s, "
                f"up to x {math.exp(results.ordinary.max()):.0f}"
            )
        sentences[-1] += "."
    if results.learner is not None:
        peaks = sorted(float(learner.max()) for learner in results.learners)
        excess = sorted(results.beyond(learner) for learner in results.learners)
        sentences.append(
            "Habits are not protected: for an attacker who learns them, odds change by up to "
            f"{_factor(float(results.learner.max()))}, and over {len(peaks)} draws of the noise by "
            f"{_range(_factor(peaks[0]), _factor(peaks[-1]))}. They change by more than {promise} on "
            f"{_range(f'{100 * excess[0]:.0f}', f'{100 * excess[-1]:.0f}')} % of the {tick}s."
        )
    if attack is not None:
        sentences.append(
            f"The strongest of {results.attackers} attackers on what was released ({attack.attacker}) is right on "
            f"{100 * attack.success:.1f} % of the {tick}s ({100 * attack.low:.1f} to {100 * attack.high:.1f}), always "
            f"guessing on {100 * attack.guess:.1f} %. The promise allows {100 * attack.ceiling:.1f} %, if the readings "
            "are in the class."
        )
    return tuple(sentences)
