"""Candidates for an answer to a question: windows of several lengths, and symbols at several periods.

A candidate is planned for a class of chains of a first set of a recording, and judged on a second one. Judged is how
far off its answers are, what always guessing would give, when a subscriber knows, and what it sends. Shares from
randomised symbols come by inverting the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from fugu.attackers.evaluation import Attack, mean_transitions
from fugu.attackers.outputs import release_symbols
from fugu.attackers.stretches import StretchAttack
from fugu.chains.arrays import Floats, Ints
from fugu.chains.inference import filter_beliefs
from fugu.chains.model import stationary_distribution
from fugu.contract.calendar import DayBlocks
from fugu.contract.discretisers import Discretiser
from fugu.contract.frames import MAX_WINDOW_TICKS, SymbolFrame, WindowFrame, symbol_bits
from fugu.contract.guarantee import StreamOutputs
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import UsefulFor
from fugu.contract.queries import EACH
from fugu.contract.stretches import StretchBound
from fugu.planning.answers import group_error, true_shares
from fugu.planning.errors import PlanningError
from fugu.planning.question import Cut, Question, Sampled, Want, frame_ticks
from fugu.planning.window_plan import WantedWindow, joint_plan, symbol_plan
from fugu.privacy.covering_class import CoveringChains

__all__ = [
    "LEAST_JUDGED",
    "SHORTEST",
    "Bins",
    "Candidate",
    "Curve",
    "Task",
    "best_symbols",
    "no_candidate",
    "traffic",
    "wanted_window",
    "window_candidates",
    "window_lengths",
    "window_message",
    "window_scale",
]

Kind = Literal["windows", "symbols", "points", "none"]
Bins = tuple[tuple[int, ...], ...]
"""Sets of states whose shares are asked for: one, or one for each state."""
WINDOW = "share"
"""Name of a plan's window in its policy."""
SHORTEST = 10
"""Ticks of the shortest window that is compared."""

_TIMES_BETTER = 2.0
_LENGTHS = (30, 60, 100, 150, 200, 300, 600, 1000, 3000, 10_000)
_TIMES = (0.1, 0.3, 1, 3, 10, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 8 * 3600, 86_400, 7 * 86_400)
_LEAST_WINDOWS = 2
LEAST_JUDGED = 4
"""Answers without which nobody can say that a candidate is useful."""
_DAY = 86_400.0
_RUNS, _ANSWERS = 100, 20_000
_SYMBOL_RUNS, _BLOCKS, _GROUPS = 20, 8, 400
_CONFIDENCE = 0.95
_RELEASE_FIELDS = ("kind", "answers", "window_ticks", "every", "devices", "scale", "table", "discretiser", "blocks")
"""Fields of a candidate that say what a device releases."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """Something that a device could release.

    An answer is the average over `devices`, of one reading `every` so many ticks; `window_ticks` is None for the state
    now. `scale` is of the noise on each count of windows. Errors are mean absolute ones: `expected_error` on the second
    set (with the first for the longest windows), with noise drawn many times over; `held_back_error` on the third.
    `error_95` is what 95 % of answers are within, exactly for windows. For the state now, it is how often it is wrong
    in 95 % of the stretches like the held back one. `guess_error` is that of guessing the median answer of the first
    set, on the first two. For the state now, the guess is the most frequent state where it is judged. `judged` counts
    answers of the first two sets. `latency_seconds` is until a subscriber knows; messages are of all its devices, each
    as long as `message`. On the third set, `attack` is right most often. `known_chain` is the attacker who believes the
    mean chain, whose odds epsilon bounds. `stretch` asks about whole stretches that are promised, knowing all other
    days. On the whole recording, `learners` has for each of several draws of the noise the one who learns habits and
    moved furthest. `point_epsilon` is of a single point, `blocks` of a profile, at the time of the recording. `bins`
    are the sets of states that windows count, `stretch_ticks` what epsilon is about.
    """

    kind: Kind
    answers: Want
    devices: int = 1
    every: int = 1
    discretiser: Discretiser
    chains: CoveringChains | None
    epsilon: float
    adversary: Adversary
    window_ticks: int | None = None
    scale: Fraction | None = None
    table: NoiseTable | None = None
    expected_error: float = np.nan
    error_95: float = np.nan
    held_back_error: float | None = None
    guess_error: float = np.nan
    judged: int = 0
    latency_seconds: float | None = None
    messages_per_day: float | None = None
    message: Callable[[], bytes] = bytes
    attack: Attack | None = None
    known_chain: Attack | None = None
    learners: tuple[Attack, ...] = ()
    stretch: StretchAttack | None = None
    point_epsilon: float | None = None
    blocks: DayBlocks | None = None
    bins: Bins = ()
    stretch_ticks: int = 1

    @property
    def bytes_per_day(self) -> float | None:
        """Bytes of all messages, without MQTT's own."""
        return None if self.messages_per_day is None else self.messages_per_day * len(self.message())

    @property
    def learner(self) -> Attack | None:
        """The one of all draws whose odds moved furthest; `None` if none was run."""
        return max(self.learners, key=lambda attack: attack.furthest or 0.0, default=None)

    @property
    def unit(self) -> str:
        """Of all errors."""
        return "metres" if self.answers == "place" else "share"

    def same_release(self, other: Candidate) -> bool:
        """True if another one releases the same, whatever is known of it."""
        return all(getattr(self, name) == getattr(other, name) for name in _RELEASE_FIELDS)

    @property
    def useful(self) -> bool:
        """True if answers are twice as good as always guessing, as far as four or more of them show."""
        return _TIMES_BETTER * self.expected_error <= self.guess_error and self.judged >= LEAST_JUDGED

    @property
    def useful_for(self) -> UsefulFor | None:
        """Uses of the stream of one device if it is released so; of a group the average has uses, not one device."""
        if self.kind == "none" or self.devices > 1 or not self.useful:
            return None
        useful_as: dict[str, UsefulFor] = {"now": "state", "place": "place"}
        return useful_as.get(self.answers, "share")

    @property
    def window(self) -> WantedWindow:
        """The window that it releases."""
        return wanted_window(self.window_ticks or SHORTEST, self.bins)

    def planned(self, chains: CoveringChains, epsilon: float) -> Candidate:
        """The same with the noise for a class and an epsilon; FuguError if no noise is enough."""
        if self.kind == "symbols":
            return replace(self, table=symbol_plan(chains, epsilon, self.adversary, self.stretch_ticks).table)
        return replace(self, scale=window_scale(chains, epsilon, self.adversary, self.bins, self.stretch_ticks))

    def bound(self, chains: CoveringChains) -> StretchBound:
        """Bound the loss of its noise about stretches, for readings of a class; GuaranteeError if there is none."""
        outputs = StreamOutputs(self.table)
        if self.scale is not None:
            outputs = StreamOutputs(None, (self.window.window(self.scale),))
        return outputs.bound(chains, self.adversary, chains.ratio_loss(*outputs.ratios, self.adversary).epsilon)

    def assess(self, samples: Sampled, choice: Cut, rng: np.random.Generator) -> Assessment | None:
        """Assess its symbols in a set, for the state now or for shares; None if there are too few windows."""
        assert self.table is not None
        if self.window_ticks is None:
            return assess_now(self.table, samples.fit, choice, len(samples.test.states), rng)
        return assess_shares(
            self.table, samples.fit, choice, max(1, self.window_ticks // samples.every), self.bins, rng
        )


def no_candidate(
    discretiser: Discretiser, chains: CoveringChains | None, question: Question, **extra: Any
) -> Candidate:
    """Recommendation if nothing is worth it: the states and their class, and of an answer only `extra`."""
    fields = {"kind": "none", "answers": question.want or "share", "devices": question.devices, **extra}
    return Candidate(
        discretiser=discretiser, chains=chains, epsilon=question.epsilon, adversary=question.adversary, **fields
    )


class Curve(NamedTuple):
    """A candidate's expected error at several epsilons: pairs of both."""

    candidate: Candidate
    points: tuple[tuple[float, float], ...]


class Task(NamedTuple):
    """The purpose of candidates: a question, the sets of states that it asks for, and seconds between readings."""

    question: Question
    bins: Bins
    period: float

    def planned(self, kind: Kind, samples: Sampled, chains: CoveringChains) -> Candidate:
        """A candidate of a kind with its noise, and no numbers yet; FuguError if no noise is enough."""
        ticks = self.question.ticks(self.period * samples.every)
        empty = no_candidate(samples.discretiser, chains, self.question, kind=kind, bins=self.bins, stretch_ticks=ticks)
        answers: Want = "histogram" if len(self.bins) > 1 else "share"
        return replace(empty, every=samples.every, answers=answers).planned(chains, self.question.epsilon)


def window_lengths(period_seconds: float, steady: bool, question: Question) -> list[int]:
    """Lengths to compare, in ticks: the one that is asked for; else usual times, or round numbers of uneven ticks.

    Raises:
        PlanningError: the one that is asked for is none.
    """
    lengths = [seconds / period_seconds for seconds in _TIMES] if steady else [float(length) for length in _LENGTHS]
    limit = np.inf
    if question.window is not None:
        lengths = [question.window / period_seconds if question.window_is_time else question.window]
        if not SHORTEST <= round(lengths[0], 6) <= MAX_WINDOW_TICKS:
            raise PlanningError(f"a window of {lengths[0]:.3g} ticks is not from {SHORTEST} to {MAX_WINDOW_TICKS}")
    if question.latency_seconds is not None:
        limit = question.latency_seconds / period_seconds * (1.0 + 1e-9)
        lengths += [limit] if question.window is None else []
    return sorted({int(round(length, 6)) for length in lengths if SHORTEST <= length <= limit})


def wanted_window(length: int, bins: Bins) -> WantedWindow:
    """The window of a plan for these shares."""
    return WantedWindow(WINDOW, length, EACH if len(bins) > 1 else bins[0])


@lru_cache(maxsize=64)  # windows of all lengths ask for the same
def window_scale(chains: CoveringChains, epsilon: float, adversary: Adversary, bins: Bins, ticks: int) -> Fraction:
    """The noise of tumbling windows of every length, for `ticks` in a row; FuguError if none is enough."""
    plan = joint_plan(chains, epsilon, adversary, [wanted_window(SHORTEST, bins)], stretch_ticks=ticks)
    return Fraction(plan.windows[0].scale)


def window_candidates(
    task: Task,
    samples: Sampled,
    chains: CoveringChains,
    lengths: Sequence[int],
    moments: tuple[Floats, Floats] | None = None,
) -> list[Candidate]:
    """Windows of several lengths, per device and as a group; those too long for the recording are left out.

    `moments` are times of the ticks of the first two sets, by which devices of a group have the day in common.

    Raises:
        FuguError: no noise is enough.
    """
    release, candidates = task.planned("windows", samples, chains), []
    assert release.scale is not None
    for length in lengths:
        fit, choice = (true_shares(*cut, length, task.bins) for cut in (samples.fit, samples.choose))
        if not len(fit.counts) or len(fit.counts) + len(choice.counts) < _LEAST_WINDOWS:
            continue
        all_shares = fit.joined(choice)
        scored = choice if len(choice.counts) >= _LEAST_WINDOWS else all_shares
        runs = max(_RUNS, _ANSWERS // len(scored.counts))
        message = partial(window_message, WINDOW, length, len(task.bins))
        seconds, times = length * task.period, None
        if moments is not None:
            fit_times, choice_times = (
                np.rint(tick_times[shares.first] % _DAY / seconds).astype(np.int64) % max(1, round(_DAY / seconds))
                for tick_times, shares in zip(moments, (fit, choice), strict=True)
            )
            times = fit_times, np.concatenate([fit_times, choice_times])
        for devices in sorted({1, task.question.devices}):
            _, noise_95 = group_error(release.scale, length, devices)
            rng = np.random.default_rng(length)
            candidates.append(
                replace(
                    release,
                    devices=devices,
                    window_ticks=length,
                    expected_error=scored.error(release.scale, devices, rng, runs),
                    error_95=min(1.0, noise_95 + float(all_shares.bias.max())),
                    guess_error=guess_error(fit.truth, all_shares.truth, devices, rng, times),
                    judged=len(all_shares.counts),
                    **traffic(seconds, seconds, message, devices),
                )
            )
    return candidates


def best_symbols(
    task: Task, samples: Sampled, chains: CoveringChains, lengths: Sequence[int], rng: np.random.Generator
) -> Candidate | None:
    """Symbols at one period, for the state now or for shares over the length at which they do best; None without any.

    `lengths` are in ticks of the recording. ChainClassError: no noise is enough.
    """
    seconds = task.period * samples.every
    ticks = frame_ticks(task.question.gathering_seconds, seconds)
    release, candidates = replace(task.planned("symbols", samples, chains), devices=1), []
    assert release.table is not None
    message = partial(_symbol_message, ticks, release.table.symbols)
    wants_state_now = task.question.want == "now"
    lengths_or_none: Sequence[int | None] = (None,) if wants_state_now else lengths
    for length in lengths_or_none:
        candidate = replace(release, answers="now" if wants_state_now else release.answers, window_ticks=length)
        if (figures := candidate.assess(samples, samples.choose, rng)) is not None:
            latency = ticks * seconds + (length or 0) * task.period
            candidates.append(replace(candidate, **figures._asdict(), **traffic(ticks * seconds, latency, message, 1)))
    return min(
        candidates, key=lambda candidate: candidate.expected_error / max(candidate.guess_error, 1e-9), default=None
    )


def traffic(message_seconds: float, latency: float, message: Callable[[], bytes], devices: int) -> dict[str, Any]:
    """Latency and traffic, for a message of each device every so many seconds."""
    return {"latency_seconds": latency, "messages_per_day": devices * _DAY / message_seconds, "message": message}


def window_message(name: str, ticks: int, counts: int) -> bytes:
    """A message of a window that has so many counts."""
    return WindowFrame(1, name, -1, 0, 0, ticks, ticks, (0,) * counts).encode()


def _symbol_message(ticks: int, symbols: int) -> bytes:
    return SymbolFrame(1, -1, 0, bytes(ticks), bits=symbol_bits(symbols)).encode()


def guess_error(
    fitted: Floats, truth: Floats, devices: int, rng: np.random.Generator, times: tuple[Ints, Ints] | None = None
) -> float:
    """The mean absolute error of always guessing the median of the known answers (w, b), for `truth` (v, b).

    Of a group, the average is guessed, each device like a window taken at random. The windows have the same of `times`
    (w,) and (v,), the part of the day: devices have that in common.
    """
    if devices > 1:
        parts = (np.zeros(len(fitted)), np.zeros(len(truth))) if times is None else times
        fitted, truth = (_group_means(*pair, devices, rng) for pair in zip((fitted, truth), parts, strict=True))
    return float(np.abs(truth - np.median(fitted, axis=0)).mean())


def _group_means(answers: Floats, times: NDArray[Any], devices: int, rng: np.random.Generator) -> Floats:
    """The averages of some groups of devices, as many of each time."""
    groups = [answers[times == time] for time in np.unique(times)]
    sample_shape = (math.ceil(_GROUPS / len(groups)), min(devices, 1000))
    return np.concatenate([group[rng.integers(len(group), size=sample_shape)].mean(axis=1) for group in groups])


class Assessment(NamedTuple):
    """The mean absolute error of answers, what 95 % are within, the error of always guessing, and how many answers."""

    expected_error: float
    error_95: float
    guess_error: float
    judged: int


def assess_now(table: NoiseTable, fit: Cut, choice: Cut, stretch_ticks: int, rng: np.random.Generator) -> Assessment:
    """How often the most likely state, given all symbols up to its tick, is wrong.

    A subscriber's chain is learned from `fit`; 95 % of stretches of `stretch_ticks` ticks are wrong no more
    often than is told.
    """
    k = table.states
    transition = mean_transitions(*fit, k, more=1.0)
    distribution = stationary_distribution(transition)
    is_wrong = _wrong_estimates(table, choice, transition, distribution, rng)
    all_wrong = np.concatenate([is_wrong, _wrong_estimates(table, fit, transition, distribution, rng)])
    block_errors = [part.mean() for part in np.array_split(all_wrong, _BLOCKS) if len(part)]
    size = len(all_wrong) / _BLOCKS
    spread = float(np.std(block_errors, ddof=1)) * math.sqrt(1.0 / len(block_errors) + size / max(stretch_ticks, 1))
    error_95 = float(np.mean(block_errors)) + float(stdtrit(len(block_errors) - 1, _CONFIDENCE)) * spread
    states = choice.states[choice.states >= 0]
    # The state that is most frequent there: a guess learned elsewhere would make symbols look better after a drift.
    guess = 1.0 - float(np.bincount(states, minlength=k).max()) / max(len(states), 1)
    return Assessment(float(is_wrong.mean()), min(1.0, max(error_95, float(is_wrong.mean()))), guess, len(is_wrong))


def assess_shares(
    table: NoiseTable, fit: Cut, choice: Cut, length: int, bins: tuple[tuple[int, ...], ...], rng: np.random.Generator
) -> Assessment | None:
    """How far off shares of `length` ticks are that come from counts of symbols; None if there are too few windows.

    The guess is learned from `fit`, where 95 % of the errors are looked for as well.
    """
    inverse = np.linalg.inv(np.array(table.weights(), dtype=np.float64) / SCALE)
    errors, truths = [], []
    for cut in (fit, choice):
        shares = true_shares(cut.states, cut.segments, length, bins)
        if len(shares.counts) < 2:
            return None
        windows, m = len(shares.first), table.symbols
        rows, cells = ((shares.first[:, None] + np.arange(length)).ravel(), np.repeat(np.arange(windows) * m, length))
        run_errors = []
        for _ in range(_SYMBOL_RUNS):
            symbols = np.bincount(cells + _draw_symbols(cut.states, table, rng)[rows], minlength=windows * m)
            shares_of = symbols.reshape(windows, m) / length @ inverse
            answers = np.stack([shares_of[:, list(group)].sum(axis=1) for group in bins], axis=1)
            run_errors.append(np.abs(np.clip(answers, 0.0, 1.0) - shares.truth))
        errors.append(np.concatenate(run_errors))
        truths.append(shares.truth)
    all_errors = np.concatenate(errors).ravel()
    guess = guess_error(truths[0], np.concatenate(truths), 1, rng)
    # A quantile of so many simulated answers is off by little; half a per cent more covers it.
    return Assessment(
        float(errors[1].mean()), float(np.quantile(all_errors, _CONFIDENCE + 0.005)), guess, sum(map(len, truths))
    )


def _wrong_estimates(
    table: NoiseTable, cut: Cut, transition: Floats, distribution: Floats, rng: np.random.Generator
) -> Floats:
    symbols = _draw_symbols(cut.states, table, rng)
    emission = np.array(table.weights(), dtype=np.float64) / SCALE
    lengths = np.diff(np.flatnonzero(np.diff(cut.segments, prepend=-1, append=-1)))
    beliefs = filter_beliefs(symbols, distribution, transition, emission, lengths=lengths).beliefs
    return np.asarray(beliefs.argmax(axis=1) != cut.states, dtype=np.float64)[cut.states >= 0]


def _draw_symbols(states: Ints, table: NoiseTable, rng: np.random.Generator) -> Ints:
    """Symbols of all ticks: one without a state has that of a row taken at random."""
    filled_states = np.where(states < 0, rng.integers(table.states, size=len(states)), states)
    return np.asarray(release_symbols(filled_states, table, rng).symbols)
