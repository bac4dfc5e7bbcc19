"""Compare the windows that a subscriber received with the truth of recordings, and attack them."""

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
from fugu.attackers.evaluation import Attack, attack, furthest_learner, learners, odds_change
from fugu.attackers.learning import COUNT_ATTACKERS
from fugu.attackers.outputs import CountOutputs, Knowledge, Outputs, laplace_noise, release_symbols
from fugu.chains.arrays import Floats, Ints
from fugu.contract.discretisers import Baseline, Thresholds
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.queries import Query
from fugu.contract.sentences import epsilon_to_odds, privacy_sentence
from fugu.contract.stretches import Stretch, stretch_ticks
from fugu.contract.windows import Window
from fugu.lanes import Marks, time_marks
from fugu.library.auto_words import range_text
from fugu.planning.answers import window_error
from fugu.planning.policy_builder import PolicyHeader, build_window_policy
from fugu.planning.profiles import profile_blocks
from fugu.planning.states import states_of
from fugu.planning.window_plan import WantedWindow, joint_plan
from fugu.privacy.covering_class import covering_class
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import read_readings
from fugu.recordings.values import Cells

__all__ = [
    "BEATS",
    "EPSILON",
    "HEART",
    "RECORDINGS",
    "AnyFrame",
    "Frames",
    "Replay",
    "Results",
    "load_home",
    "load_night",
    "read_night",
    "summary",
]

AnyFrame: TypeAlias = SymbolFrame | WindowFrame
Frames: TypeAlias = Mapping[int, AnyFrame]
"""Frames by their first tick."""
FLEET = "demo"
RECORDINGS = Path(fugu.__file__).parent / "data"
"""The folder of the demo's recordings, which keep their own licences."""
EPSILON = 1.0
BEATS = 300
"""The number of heartbeats of a window, and of the running baseline."""
_MINUTE, _WEEK = 60.0, 10_080
HEART = "heart rate, beats a minute"
FURTHER_DRAWS = 5
BASELINE = Baseline(baseline_ticks=BEATS, lowest=30.0, highest=230.0)


@dataclass(frozen=True)
class Replay:
    """A recording that a device replays, with its true states.

    Attributes:
        name: the name of the recording, for people.
        policy: the policy of the device; its only window counts states.
        sensor: the table of the sensor in the agent's file.
        values: (n,) the sensor's readings by tick; NaN or None where there is none.
        states: (n,) the true states; -1 where there is none, as before a running mean.
        transition: (k, k) the chain that an attacker believes who knows the habits.
        share_of: the counted states, in words after "the share of time".
        tick: the word for a tick.
        quantity: the recorded quantity, with its unit.
    """

    name: str
    policy: Policy
    sensor: Mapping[str, object]
    values: Cells
    states: Ints
    transition: Floats
    share_of: str = "above the sleeper's own baseline"
    tick: str = "heartbeat"
    quantity: str = HEART

    topic: ClassVar[Literal["window", "symbols"]] = "window"

    @property
    def window(self) -> Window:
        """The only window of the policy."""
        [window] = self.policy.windows
        return window

    @property
    def device(self) -> str:
        """The name of the device."""
        return self.policy.device

    @property
    def expected_count(self) -> int:
        """The number of values that the device will send."""
        return len(self.window_starts)

    def decode(self, payload: bytes) -> tuple[int, int, AnyFrame]:
        """Return the first tick of a message, the tick after its last, and its frame; FrameError if it is none."""
        frame = WindowFrame.decode(payload)
        return frame.first, frame.first + frame.length, frame

    def count_values(self, frames: Frames) -> int:
        """Return the number of expected values in frames."""
        return sum(first_tick in self.window_starts for first_tick in frames)

    def results(self, frames: Frames, *, attack_all: bool = False) -> Results | None:
        """Compare the frames that arrived with the truth, and attack them; None if there is no whole window.

        `attack_all` runs all attackers, not only the one who knows the habits; this takes a while.
        """
        window_rows, noisy_counts = [], []
        for first_tick in sorted(set(self.window_starts) & set(frames)):
            frame = frames[first_tick]
            # If the device has missed ticks of a window, the true count is unknown.
            if isinstance(frame, WindowFrame) and frame.observed == self.window.length:
                window_rows.append((first_tick, *self.true_counts(first_tick)))
                noisy_counts.append(frame.counts)
        if not window_rows:
            return None
        first_ticks, true_counts, ticks = (np.array(column) for column in zip(*window_rows, strict=True))
        return self._compare(first_ticks, true_counts, ticks, np.array(noisy_counts, dtype=np.int64), attack_all)

    def _compare(self, first_ticks: Ints, true_counts: Ints, ticks: Ints, released: Ints, attack_all: bool) -> Results:
        """Compare the released counts (w, g) of windows with their true counts (w, g).

        `first_ticks` are (w,), `ticks` (w, g): the number of ticks that each count is of.
        """
        window, scale = self.window, Fraction(self.window.scale)
        part_count = len(self.day_parts) or 1
        shown_columns = slice(None) if part_count > 1 else [int(np.argmax(true_counts.std(axis=0)))]
        tick_count = self.states.size if attack_all else int(first_ticks[-1]) + window.length
        has_state = self.states[:tick_count] >= 0
        changes, best_attack, learners = None, None, tuple[Floats, ...]()
        if part_count == 1 and window.overlap == 1:
            groups, state_count = window.groups(self.policy.discretiser.states), len(self.policy.discretiser.states)
            sizes = tick_count, state_count, has_state.astype(np.int64)
            outputs = CountOutputs(released, first_ticks, window.length, scale, groups, *sizes)
            knowledge = Knowledge(self.transition, np.zeros(tick_count, dtype=np.int64))
            changes = odds_change(outputs, knowledge)[has_state]
            if attack_all:

                def redraw(generator: np.random.Generator) -> Outputs:
                    return replace(outputs, counts=true_counts + laplace_noise(scale, released.shape, generator))

                best_attack, learners = self.attacks(outputs, redraw, knowledge)
        middle_ticks = first_ticks[:, None] + (np.arange(part_count) + 0.5) * window.length / part_count
        return Results(
            replay=self,
            hours=(middle_ticks * self.hours).ravel(),
            truth=(true_counts / ticks)[:, shown_columns].ravel(),
            released=np.clip(released / ticks, 0.0, 1.0)[:, shown_columns].ravel(),
            arrivals=len(first_ticks),
            end_tick=tick_count,
            band=window_error(scale, window.length).share_95 * part_count,
            ticks=np.flatnonzero(has_state),
            ordinary_changes=None if self.ordinary_changes is None else self.ordinary_changes[:tick_count][has_state],
            own_changes=changes,
            learners=learners,
            attack=best_attack,
        )

    def attacks(
        self, outputs: Outputs, redraw: Callable[[np.random.Generator], Outputs], knowledge: Knowledge
    ) -> tuple[Attack | None, tuple[Floats, ...]]:
        """Attack the outputs of the first ticks; `redraw` draws their noise again.

        Return the most successful attack, None if there is none. Return also the changes of odds that the furthest
        learner reaches, on these outputs and on each further draw of their noise; empty without a learner.
        """
        states = self.states[: knowledge.segments.size]
        attacks = attack(states, knowledge.segments, outputs, self.tick_epsilon)
        if (furthest_attack := furthest_learner(attacks)) is None:
            return attacks[0] if attacks else None, ()
        full_knowledge, generator = replace(knowledge, truth=states), np.random.default_rng(1)
        attacker = learners(outputs)[furthest_attack.attacker]
        output_draws = [outputs, *(redraw(generator) for _ in range(FURTHER_DRAWS))]
        changes = (odds_change(further_outputs, full_knowledge, attacker) for further_outputs in output_draws)
        return attacks[0], tuple(change[states >= 0] for change in changes)

    @property
    def hours(self) -> float:
        """Hours from one tick to the next."""
        return self.policy.clock.period_us / 3.6e9

    @property
    def promise(self) -> float:
        """The largest factor that is promised for a change of the odds on a tick."""
        return epsilon_to_odds(self.tick_epsilon)

    @cached_property
    def stretches(self) -> tuple[Stretch, ...]:
        """The loss of a tick, and the losses of usual lengths of time."""
        stretches = self.policy.bound(self.policy.verify()).rows(self.policy.clock.period_us)
        return stretches[0]._replace(name=self.tick), *(stretch for stretch in stretches if stretch.name[0].isdigit())

    @property
    def attacker_question(self) -> str:
        """The question that an attacker asks about a tick, in words."""
        *_, state = self.policy.discretiser.states
        if len(self.policy.discretiser.states) == 2:
            state_words = f"\N{LEFT DOUBLE QUOTATION MARK}{state}\N{RIGHT DOUBLE QUOTATION MARK}"
            return f"of any one {self.tick} being {state_words} or not"
        return f"of the state of any one {self.tick}"

    @property
    def tick_epsilon(self) -> float:
        """The epsilon of a single tick."""
        promise = self.policy.guarantee
        return promise.epsilon if promise.stretch_ticks == 1 else self.stretches[0].epsilon

    @property
    def promised_stretch(self) -> str:
        """The name of the stretch of time that the guarantee is about."""
        ticks = self.policy.guarantee.stretch_ticks
        return next((stretch.name for stretch in self.stretches if stretch.ticks == ticks), self.tick)

    def span(self, ticks: int) -> tuple[float, float]:
        """Return the hours at which the drawing begins and ends: those of the whole recording, whatever `ticks` is."""
        return 0.0, self.states.size * self.hours

    @cached_property
    def marks(self) -> Marks:
        """Hours with their labels along the axis of time."""
        return time_marks(self.states.size * self.hours)

    @property
    def caption(self) -> str:
        """The header of the lane of released values."""
        band = "upright lines" if self.day_parts else "band"
        return f"share of {self.tick}s {self.share_of} · {band}: 95 % · dashes: the truth, which does not leave"

    @property
    def day_parts(self) -> tuple[str, ...]:
        """The labels of the parts of the day that a window counts separately; () if it counts none."""
        blocks = self.window.query.blocks
        return () if blocks is None else tuple(blocks.labels)

    @cached_property
    def ordinary_changes(self) -> Floats | None:
        """(n,) changes of the log-odds on each tick by ordinary randomised response.

        The attacker uses all symbols (forward-backward with the average chain of the class). None unless there are two
        states.
        """
        if self.transition.shape != (2, 2):
            return None
        flip_weight = round(2**32 / (1.0 + self.promise))
        symbols = release_symbols(self.states, NoiseTable.binary(flip_weight, flip_weight), np.random.default_rng(2026))
        return odds_change(symbols, Knowledge(self.transition, np.zeros_like(self.states)))

    @property
    def window_starts(self) -> range:
        """The first ticks of all expected windows, without windows that begin before the running mean exists."""
        window, discretiser = self.window, self.policy.discretiser
        first_mean_tick = discretiser.baseline_ticks if discretiser.kind == "baseline" else 0
        first_tick = window.start + -(-max(first_mean_tick - window.start, 0) // window.stride) * window.stride
        return range(first_tick, self.states.size - window.length + 1, window.stride)

    def true_counts(self, first_tick: int) -> tuple[Ints, Ints]:
        """Return the true counts (g,) of a window, and the number of ticks (g,) behind each count."""
        window, clock, query = self.window, self.policy.clock, self.window.query
        states = self.states[first_tick : first_tick + window.length]
        if query.blocks is None:
            groups = window.groups(self.policy.discretiser.states)
            return np.array([np.isin(states, group).sum() for group in groups]), np.full(len(groups), states.size)
        ticks = range(first_tick, first_tick + states.size)
        blocks = np.array([query.blocks.index_at(clock.epoch_us + tick * clock.period_us) for tick in ticks])
        is_counted = np.isin(states, window.counted(self.policy.discretiser.states))
        group_count = len(query.blocks.labels)
        return np.bincount(blocks[is_counted], minlength=group_count), np.bincount(blocks, minlength=group_count)

    def simulated_frames(self) -> Frames:
        """Return frames of all windows by first tick, with the policy's noise, as a device would send them."""
        window, frames, rng = self.window, dict[int, AnyFrame](), np.random.default_rng()
        for first_tick in self.window_starts:
            true_counts, _ = self.true_counts(first_tick)
            noisy_counts = true_counts + laplace_noise(Fraction(window.scale), true_counts.shape, rng)
            index, length = (first_tick - window.start) // window.stride, window.length
            frames[first_tick] = WindowFrame(
                1, window.name, index - 1, index, first_tick, length, length, tuple(noisy_counts.tolist())
            )
        return frames


def read_night(name: str) -> tuple[Path, float, Floats]:
    """Return the file of a recorded night, its mean seconds from heartbeat to heartbeat, and its heart rates (n,)."""
    path = RECORDINGS / f"hr_sleep_{name}.csv.gz"
    readings = read_readings(path, ReadOptions(column="value"))
    assert readings.moments is not None
    return path, round(float(np.diff(readings.moments).mean()), 3), readings.values


def load_night(name: str, epoch: float | None = None) -> Replay:
    """Plan the replay of a recorded night, which releases only a noisy count of every 300 heartbeats.

    `epoch` is the Unix time of the first heartbeat; by default the night has just ended.
    """
    path, period, readings = read_night(name)
    epoch = time.time() - period * len(readings) if epoch is None else epoch
    header = PolicyHeader(FLEET, f"watch-{name}", "heart-rate", BASELINE, period, epoch=round(epoch))
    return _plan_replay(f"Sleeper {name}", header, WantedWindow("above", BEATS, ("above",)), path, "value", readings)


def load_home(epoch: float | None = None) -> Replay:
    """Plan the replay of a household's water meter: a weekly profile of each four hours, with any hour protected.

    `epoch` is the Unix time of the first minute; by default the month ended with the last day.
    """
    path = RECORDINGS / "water_states.csv.gz"
    readings = read_readings(path, ReadOptions(period=_MINUTE)).values
    if epoch is None:
        epoch = (time.time() // 86_400 - readings.size * _MINUTE // 86_400) * 86_400
    discretiser = Thresholds(edges=(0.5,), states=("off", "on"))
    header = PolicyHeader(FLEET, "water-meter", "water", discretiser, _MINUTE, epoch=round(epoch))
    window = WantedWindow("profile", _WEEK, (1,), query=Query("profile", blocks=profile_blocks("4h/UTC", epoch)))
    hour_ticks = stretch_ticks(3600, round(_MINUTE * 1e6))
    replay = _plan_replay("A household's month", header, window, path, "state", readings, hour_ticks)
    return replace(replay, share_of="with water running", tick="minute", quantity="water runs (1) or not (0)")


def _plan_replay(
    name: str, header: PolicyHeader, window: WantedWindow, path: Path, column: str, readings: Floats, stretch: int = 1
) -> Replay:
    """Plan windows for a recording's own class of chains, with any `stretch` ticks in a row protected."""
    segments = np.zeros(len(readings), dtype=np.int64)
    states = states_of(header.discretiser, readings, segments)
    chain_class = covering_class(states, segments, 2)
    plan = joint_plan(chain_class.chains, EPSILON, "universal", [window], stretch_ticks=stretch)
    sensor = {"kind": "replay", "file": str(path.resolve()), "column": column, "loop": False}
    return Replay(name, build_window_policy(plan, header), sensor, readings, states, chain_class.transition)


@dataclass(frozen=True)
class Results:
    """The released windows of a replay beside the truth; shares are in 0..1.

    Attributes:
        replay: the replay.
        hours: (w,) the hour in the middle of each share.
        truth: (w,) the true shares, (w, g) flattened where windows have several counts.
        released: (w,) the released shares.
        arrivals: the number of values that arrived.
        end_tick: the tick after the last value.
        band: half the width of a 95 % interval of a released share.
        ticks: (n,) the ticks that have a state.
        ordinary_changes: (n,) ln of the factor by which symbols of ordinary randomised response change the odds on each
            of these ticks; `None` if this is not compared.
        own_changes: (n,) the same for the values that arrived; `None` for counts by parts of the day.
        learners: (n,) arrays of the same for the attacker who learns habits and moves furthest, whom the promise does
            not bound: for the values that arrived, then for further draws of their noise; () during the replay.
        attack: the most successful attack on the values that arrived; `None` during the replay.
    """

    replay: Replay
    hours: Floats
    truth: Floats
    released: Floats
    arrivals: int
    end_tick: int
    band: float
    ticks: Ints
    ordinary_changes: Floats | None
    own_changes: Floats | None
    learners: tuple[Floats, ...]
    attack: Attack | None
    attackers: ClassVar[int] = len(COUNT_ATTACKERS)

    @property
    def learner(self) -> Floats | None:
        """The changes of odds for the attacker who learns habits, by the windows that arrived; None without them."""
        return next(iter(self.learners), None)

    @property
    def error_text(self) -> str:
        """The error of the released values, in a few words."""
        digits = f"{100 * self.error:.{int(self.error < 0.01)}f}"
        return f"off by {digits} percentage point{'s' * (digits != '1')} on average"

    def use_sentence(self) -> str:
        """Return a sentence about the error of the released values."""
        return (
            f"Useful: the released shares are off by {100 * self.error:.1f} points on average, and "
            f"{100 * self.share_inside:.0f} % of them by at most {100 * self.band:.0f} points."
        )

    @property
    def error(self) -> float:
        """The mean absolute error of the released shares."""
        return float(np.abs(self.released - self.truth).mean())

    @property
    def share_inside(self) -> float:
        """The share of released values whose band holds the truth."""
        return float((np.abs(self.released - self.truth) <= self.band).mean())

    def share_beyond(self, changes: Floats) -> float:
        """Return the share of ticks on which odds change by more than the promise."""
        return float((changes > self.replay.tick_epsilon).mean())


def _factor_words(log_odds: float) -> str:
    """Return the factor of a change of log-odds in words; large factors are not written out."""
    return f"x {math.exp(log_odds):.1f}" if log_odds < math.log(1000.0) else "more than x 1000"


def summary(results: Results) -> tuple[str, ...]:
    """Return sentences about use and privacy; after all attacks, about learners and success, too."""
    replay, attack = results.replay, results.attack
    tick, promise = replay.tick, f"x {replay.promise:.1f}"
    sentences = [results.use_sentence()]
    if results.own_changes is None:
        stretch = replay.promised_stretch.removeprefix("1 ")
        sentences.append(privacy_sentence(replay.policy.guarantee.epsilon, stretch, replay.stretches))
    else:
        sentences.append(
            "Private: for an attacker who already knows the habits behind it, the odds on a "
            f"{tick} change by at most x {math.exp(results.own_changes.max()):.1f}, where {promise} is promised"
        )
        if results.ordinary_changes is not None:
            sentences[-1] += (
                "; ordinary randomised response goes beyond that promise on "
                f"{100 * results.share_beyond(results.ordinary_changes):.0f} % of the {tick}s, "
                f"up to x {math.exp(results.ordinary_changes.max()):.0f}"
            )
        sentences[-1] += "."
    if results.learner is not None:
        peaks = sorted(float(learner.max()) for learner in results.learners)
        excess_shares = sorted(results.share_beyond(learner) for learner in results.learners)
        sentences.append(
            "Habits are not protected: for an attacker who learns them, odds change by up to "
            f"{_factor_words(float(results.learner.max()))}, and over {len(peaks)} draws of the noise by "
            f"{range_text([*map(_factor_words, peaks)])}. They change by more than {promise} on "
            f"{range_text([f'{100 * share:.0f}' for share in excess_shares])} % of the {tick}s."
        )
    if attack is not None:
        sentences.append(
            f"The strongest of {results.attackers} attackers on what was released ({attack.attacker}) is right on "
            f"{100 * attack.success:.1f} % of the {tick}s ({100 * attack.low:.1f} to {100 * attack.high:.1f}), always "
            f"guessing on {100 * attack.guess:.1f} %. The promise allows {100 * attack.ceiling:.1f} %, if the readings "
            "are in the class."
        )
    return tuple(sentences)
