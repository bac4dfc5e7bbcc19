"""Candidates for an answer to a question: windows and profiles of several lengths, symbols at several periods.

A candidate is planned for a class of chains, and judged on a second set of the recording. It is judged by the error of
its answers, the error of always guessing, its latency, and its traffic. Shares are estimated from randomised symbols by
inverting the noise. A profile is compared with guessing one share for all parts of the day, which needs no knowledge of
habits. It is useful if it tells the parts apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from fugu.attackers.evaluation import Attack, mean_transitions
from fugu.attackers.outputs import Outputs, release_counts, release_symbols
from fugu.attackers.stretches import StretchAttack
from fugu.chains.arrays import Floats, Ints
from fugu.chains.inference import filter_beliefs
from fugu.chains.model import stationary_distribution
from fugu.contract.calendar import DAY, DayBlocks
from fugu.contract.discretisers import Discretiser
from fugu.contract.frames import MAX_WINDOW_TICKS, SymbolFrame, WindowFrame, symbol_bits
from fugu.contract.guarantee import StreamOutputs
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import UsefulFor
from fugu.contract.queries import EACH, Query
from fugu.contract.stretches import StretchBound
from fugu.planning.answers import Shares, group_error, true_shares
from fugu.planning.errors import PlanningError
from fugu.planning.profiles import block_ticks, blocks_of_ticks, profile_blocks, profile_shares
from fugu.planning.question import (
    MOST_TURNS,
    ChosenStates,
    Cut,
    Question,
    Sampled,
    Want,
    frame_ticks,
    sample_states,
    three_sets,
)
from fugu.planning.window_plan import WantedWindow, joint_plan, symbol_plan
from fugu.privacy.covering_class import CoveringChains, CoveringClass, covering_class, union
from fugu.recordings.readings import Readings

__all__ = [
    "LEAST_JUDGED",
    "RUNS",
    "SHORTEST",
    "Bins",
    "Candidate",
    "Curve",
    "Problem",
    "SetName",
    "best_symbols",
    "no_candidate",
    "traffic",
    "wanted_window",
    "window_candidates",
    "window_lengths",
    "window_scale",
]

Kind = Literal["windows", "symbols", "points", "none"]
Bins = tuple[tuple[int, ...], ...]
"""Sets of states whose shares are asked for: a single set, or a set for each state."""
SetName = Literal["fit", "choose", "test"]
_WINDOW, _PROFILE = "share", "profile"
"""The names of a plan's window and of its profile in a policy."""
SHORTEST = 10
"""The ticks of the shortest window that is compared."""

_TIMES_BETTER = 2.0
_LENGTHS = (30, 60, 100, 150, 200, 300, 600, 1000, 3000, 10_000)
_TIMES = (0.1, 0.3, 1, 3, 10, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 8 * 3600, 86_400, 7 * 86_400)
_LEAST_WINDOWS = 2
LEAST_JUDGED = 4
"""The least number of answers by which a candidate can be called useful."""
RUNS = 100
"""The draws of the noise of windows, if a set holds many answers."""
_ANSWERS = 20_000
_SYMBOL_RUNS, _BLOCKS, _GROUPS = 20, 8, 400
_CONFIDENCE = 0.95
_RELEASE_FIELDS = ("kind", "answers", "window_ticks", "every", "devices", "scale", "table", "discretiser", "blocks")
"""The fields of a candidate that determine what a device releases."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A release that a device could make, with its noise, its errors and the attacks on it.

    An answer is the average over `devices`, with one reading per `every` ticks; `window_ticks` is `None` for the state
    now. `scale` is the scale of the noise on each count of windows. Errors are mean absolute errors. `expected_error`
    is that on the second set (with the first for the longest windows) over many draws of the noise, `held_back_error`
    that on the third set. `error_95` is the error that 95 % of answers do not exceed. For the state now, it is
    the share of wrong states that 95 % of stretches as long as the held-back one do not exceed. `guess_error` is the
    error on the first two sets of guessing the first set's median answer. For the state now, the guess is the most
    frequent state of the second set. `judged` counts answers of the first two sets. `latency_seconds` is the time until
    a subscriber knows an answer. `messages_per_day` counts messages of all devices; each is as long as `message`.

    On the third set, `attack` is right most often. `known_chain` is the attacker who believes the mean chain; epsilon
    bounds its odds. `stretch` asks about whole protected stretches, knowing all other days. On the whole recording,
    `learners` holds for each draw of the noise the habit learner whose odds moved furthest. `point_epsilon` is the
    epsilon of a single point; `blocks` are the parts of the day of a profile, at the time of the recording. `bins` are
    the sets of states that windows count; epsilon is about `stretch_ticks` ticks.
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
        """The bytes of all messages of a day, without those that MQTT adds; `None` if the traffic is unknown."""
        return None if self.messages_per_day is None else self.messages_per_day * len(self.message())

    @property
    def learner(self) -> Attack | None:
        """The habit learner of all draws whose odds moved furthest; `None` if none was run."""
        return max(self.learners, key=lambda attack: attack.furthest or 0.0, default=None)

    @property
    def unit(self) -> str:
        """The unit of all errors."""
        return "metres" if self.answers == "place" else "share"

    def same_release(self, other: Candidate) -> bool:
        """True if another candidate makes the same release; errors and attacks may differ."""
        return all(getattr(self, name) == getattr(other, name) for name in _RELEASE_FIELDS)

    @property
    def relative_error(self) -> float:
        """The expected error as a multiple of the error of guessing."""
        return self.expected_error / max(self.guess_error, 1e-9)

    @property
    def useful(self) -> bool:
        """True if answers are twice as good as always guessing, judged by at least four answers."""
        return _TIMES_BETTER * self.expected_error <= self.guess_error and self.judged >= LEAST_JUDGED

    @property
    def useful_for(self) -> UsefulFor | None:
        """The use of one device's stream; `None` if it is not useful, or only as part of a group's average."""
        if self.kind == "none" or self.devices > 1 or not self.useful:
            return None
        useful_as: dict[str, UsefulFor] = {"now": "state", "place": "place"}
        return useful_as.get(self.answers, "share")

    def window(self, epoch: float | None = None) -> WantedWindow:
        """The window or profile to plan; a profile has its zone's transitions from `epoch` on, by default from now."""
        window = wanted_window(self.window_ticks or SHORTEST, self.bins)
        if self.blocks is None:
            return window
        query = Query("profile", blocks=profile_blocks(f"{self.blocks.seconds}s/{self.blocks.zone}", epoch))
        return window._replace(name=_PROFILE, query=query)

    def with_noise(self, chains: CoveringChains, epsilon: float) -> Candidate:
        """Copy the candidate with the noise for a class and an epsilon. FuguError: no noise is enough."""
        if self.kind == "symbols":
            return replace(self, table=symbol_plan(chains, epsilon, self.adversary, self.stretch_ticks).table)
        return replace(self, scale=window_scale(chains, epsilon, self.adversary, self.bins, self.stretch_ticks))

    def bound(self, chains: CoveringChains) -> StretchBound:
        """Bound the candidate's loss about stretches for readings of a class. GuaranteeError: there is no bound."""
        outputs = StreamOutputs(self.table)
        if self.scale is not None:
            window = wanted_window(self.window_ticks or SHORTEST, self.bins)
            outputs = StreamOutputs(None, (window.window(self.scale),))
        return outputs.bound(chains, self.adversary, chains.ratio_loss(*outputs.ratios, self.adversary).epsilon)

    def assess(self, samples: Sampled, target: Cut, rng: np.random.Generator) -> Assessment | None:
        """Assess the symbols on a set, for the state now or for shares; `None` if there are too few windows."""
        assert self.table is not None
        if self.window_ticks is None:
            return assess_now(self.table, samples.fit, target, len(samples.test.states), rng)
        length = max(1, self.window_ticks // samples.every)
        return assess_shares(self.table, samples.fit, target, length, self.bins, rng)


def no_candidate(
    discretiser: Discretiser, chains: CoveringChains | None, question: Question, **other_fields: Any
) -> Candidate:
    """Make a candidate without a release, from states, their class and a question; `other_fields` are set too."""
    asked_fields = {"answers": question.want or "share", "devices": question.devices, "adversary": question.adversary}
    fields = {"kind": "none", "epsilon": question.epsilon, **asked_fields, **other_fields}
    return Candidate(discretiser=discretiser, chains=chains, **fields)


class Curve(NamedTuple):
    """A candidate's expected error at several epsilons, as pairs (epsilon, error)."""

    candidate: Candidate
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Problem:
    """A question about a recording, with the states that answer it; candidates are planned and judged by it."""

    readings: Readings
    question: Question
    states: ChosenStates
    rng: np.random.Generator
    sample_cache: dict[tuple[int, bool], Sampled] = field(default_factory=dict)
    class_cache: dict[int, tuple[CoveringClass, ...]] = field(default_factory=dict)

    @property
    def bins(self) -> Bins:
        """The sets of states that windows count."""
        states = self.states
        return tuple((x,) for x in range(len(states.discretiser.states))) if states.histogram else (states.counted,)

    @cached_property
    def day_divisions(self) -> dict[DayBlocks, Ints]:
        """The block of each tick (n,) for each division of the day. PlanningError: there are no such blocks."""
        return blocks_of_ticks(self.readings, self.question)

    def samples(self, every: int = 1, *, daily: bool = False) -> Sampled:
        """The states of each `every`-th tick in three sets, computed once; if `daily`, each set is in one piece.

        Raises:
            TooShortError: the recording has too few ticks.
        """
        if (every, daily) not in self.sample_cache:
            readings, states = self.readings, self.states
            sets = three_sets(readings.segments, states.baseline_ticks, 1 if daily else MOST_TURNS)
            self.sample_cache[every, daily] = sample_states(readings, states, sets, every)
        return self.sample_cache[every, daily]

    def samples_of(self, candidate: Candidate) -> Sampled:
        """The states from which a candidate is released."""
        return self.samples(candidate.every, daily=candidate.blocks is not None)

    def donor_classes(self, every: int) -> tuple[CoveringClass, ...]:
        """The class of each donor, fitted once to each `every`-th tick. ChainClassError: there are too few steps."""
        if every not in self.class_cache:
            samples = self.samples(every)
            k = len(samples.discretiser.states)
            self.class_cache[every] = tuple(covering_class(*cut, k) for cut in samples.whole)
        return self.class_cache[every]

    def chains(self, every: int = 1) -> CoveringChains:
        """The class that covers the whole recordings of all donors; errors as for `donor_classes`."""
        return union([donor.chains for donor in self.donor_classes(every)])

    def new_candidate(
        self, kind: Kind, chains: CoveringChains, every: int = 1, blocks: DayBlocks | None = None
    ) -> Candidate:
        """Make a candidate of a kind, with noise but without errors. FuguError: no noise is enough."""
        bins = self.bins if blocks is None else (self.states.counted,)
        release = no_candidate(
            self.samples(every).discretiser,
            chains,
            self.question,
            kind=kind,
            answers="profile" if blocks is not None else "histogram" if len(bins) > 1 else "share",
            every=every,
            bins=bins,
            blocks=blocks,
            stretch_ticks=self.question.ticks(self.readings.period * every),
        )
        return release.with_noise(chains, self.question.epsilon)

    def shares(self, candidate: Candidate, set_name: SetName) -> Shares:
        """The true answers of a candidate's windows in a set of the recording."""
        samples, length = self.samples_of(candidate), candidate.window_ticks
        cut: Cut = getattr(samples, set_name)
        assert length is not None
        if (blocks := candidate.blocks) is None:
            return true_shares(*cut, length, candidate.bins)
        block_of_tick = self.day_divisions[blocks][getattr(samples.sets, set_name).rows]
        return profile_shares(cut, blocks, block_of_tick, self.states.counted, length)

    def score(self, candidate: Candidate, set_name: SetName, runs: int | None = None) -> float | None:
        """The mean absolute error of a candidate in a set; `None` if the set holds no whole answer.

        Noise is drawn `runs` times, by default more often the fewer answers there are.
        """
        if candidate.table is not None:
            samples = self.samples(candidate.every)
            assessment = candidate.assess(samples, getattr(samples, set_name), self.rng)
            return None if assessment is None else assessment.expected_error
        shares = self.shares(candidate, set_name)
        if not len(shares.counts):
            return None
        assert candidate.scale is not None
        runs = runs or max(1, _ANSWERS // len(shares.counts))
        return shares.error(candidate.scale, candidate.devices, self.rng, runs)

    def outputs(self, candidate: Candidate, cut: Cut, rng: np.random.Generator) -> Outputs:
        """Simulate the outputs of a device for some states, as attackers see them.

        For a profile these are windows of a block's length with the profile's noise, which are no harder to attack. A
        tick is in one count with this noise either way, and here fewer other ticks are counted with it.
        """
        if candidate.table is not None:
            return release_symbols(cut.states, candidate.table, rng)
        length = candidate.window_ticks
        if candidate.blocks is not None:
            length = block_ticks(candidate.blocks, max(1, round(DAY / self.readings.period)))
        assert length is not None
        assert candidate.scale is not None
        k = len(candidate.discretiser.states)
        return release_counts(*cut, length, candidate.scale, candidate.bins, rng, k=k)


def window_lengths(period_seconds: float, steady: bool, question: Question) -> list[int]:
    """Window lengths to compare, in ticks: the wanted one, else usual times, or round numbers if ticks are uneven.

    Raises:
        PlanningError: the wanted length is out of range.
    """
    max_ticks = question.max_latency / period_seconds
    if question.window is not None:
        lengths = [question.window / period_seconds if question.window_is_time else question.window]
        if not SHORTEST <= round(lengths[0], 6) <= MAX_WINDOW_TICKS:
            raise PlanningError(f"a window of {lengths[0]:.3g} ticks is not from {SHORTEST} to {MAX_WINDOW_TICKS}")
    else:
        lengths = [seconds / period_seconds for seconds in _TIMES] if steady else [*_LENGTHS]
        if math.isfinite(max_ticks):
            lengths.append(max_ticks)
    return sorted({int(round(length, 6)) for length in lengths if SHORTEST <= length <= max_ticks})


def wanted_window(length: int, bins: Bins) -> WantedWindow:
    """The window of a plan for shares of the sets `bins`."""
    return WantedWindow(_WINDOW, length, EACH if len(bins) > 1 else bins[0])


@lru_cache(maxsize=64)  # windows of all lengths share the noise
def window_scale(chains: CoveringChains, epsilon: float, adversary: Adversary, bins: Bins, ticks: int) -> Fraction:
    """The noise scale of tumbling windows of any length, for `ticks` in a row. FuguError: no noise is enough."""
    plan = joint_plan(chains, epsilon, adversary, [wanted_window(SHORTEST, bins)], stretch_ticks=ticks)
    return Fraction(plan.windows[0].scale)


def window_candidates(
    problem: Problem, chains: CoveringChains, lengths: Sequence[int], blocks: DayBlocks | None = None
) -> list[Candidate]:
    """Make candidates of several lengths, for one device and for the group: windows, or profiles by `blocks`.

    Lengths of which the recording holds too few windows are left out.

    Raises:
        FuguError: no noise is enough.
    """
    release, candidates = problem.new_candidate("windows", chains, blocks=blocks), []
    judge = _judge_windows if blocks is None else _judge_profiles
    scale = release.scale
    assert scale is not None
    for length in lengths:
        window, seconds = replace(release, window_ticks=length), length * problem.readings.period
        share_sets = problem.shares(window, "fit"), problem.shares(window, "choose")
        counts, truth = (np.concatenate(columns) for columns in zip(*(part[:2] for part in share_sets), strict=True))
        all_shares = share_sets[0]._replace(counts=counts, truth=truth)
        if not len(share_sets[0].counts) or (judging := judge(problem, *share_sets, all_shares, seconds)) is None:
            continue
        message = partial(_window_message, judging.name, length, all_shares.counts.shape[1])
        for devices in sorted({1, problem.question.devices}):
            rng = np.random.default_rng(length)
            _, noise_95 = group_error(scale, all_shares.length, devices)
            candidates.append(
                replace(
                    window,
                    devices=devices,
                    expected_error=judging.shares.error(scale, devices, rng, max(RUNS, _ANSWERS // judging.draws)),
                    error_95=min(1.0, noise_95 + float(all_shares.bias.max())),
                    guess_error=judging.guess_error(devices, rng),
                    judged=judging.answers,
                    **traffic(seconds, seconds, message, devices),
                )
            )
    return candidates


class _Judging(NamedTuple):
    """How windows or profiles of a length are judged.

    Attributes:
        name: the name of the window in a policy.
        shares: the shares whose error is expected.
        answers: the number of answers in the first two sets.
        draws: the number of answers for which each run draws noise.
        guess_error: computes the error of guessing for a number of devices.
    """

    name: str
    shares: Shares
    answers: int
    draws: int
    guess_error: Callable[[int, np.random.Generator], float]


def _judge_windows(problem: Problem, fit: Shares, choice: Shares, shares: Shares, seconds: float) -> _Judging | None:
    """Judge windows by the second set, or by all `shares` if that set has too few; `None` if all are too few."""
    if len(shares.counts) < _LEAST_WINDOWS:
        return None
    day_parts, moments = None, problem.readings.moments
    if problem.readings.steady and moments is not None:  # devices of a group share the time of day
        sets = problem.samples().sets
        fit_times, choice_times = (
            np.rint(moments[part.rows][windows.first] % DAY / seconds).astype(np.int64) % max(1, round(DAY / seconds))
            for part, windows in ((sets.fit, fit), (sets.choose, choice))
        )
        day_parts = fit_times, np.concatenate([fit_times, choice_times])
    judged_shares = choice if len(choice.counts) >= _LEAST_WINDOWS else shares
    return _Judging(
        _WINDOW,
        judged_shares,
        len(shares.counts),
        len(judged_shares.counts),
        lambda devices, rng: guess_error(fit.truth, shares.truth, devices, rng, day_parts),
    )


def _judge_profiles(_problem: Problem, fit: Shares, _choice: Shares, shares: Shares, _seconds: float) -> _Judging:
    """Judge profiles by all `shares`; the share of each part of the day is an answer."""
    error = float(np.abs(shares.truth - np.median(fit.truth)).mean())
    return _Judging(_PROFILE, shares, shares.counts.size, shares.counts.size, lambda _devices, _rng: error)


def best_symbols(problem: Problem, every: int, chains: CoveringChains, lengths: Sequence[int]) -> Candidate | None:
    """The best symbol candidate at one period: for the state now, or for shares over the best of the `lengths`.

    Return `None` if no length has enough windows. `lengths` are in ticks of the recording. ChainClassError: no noise
    is enough.
    """
    samples, period = problem.samples(every), problem.readings.period
    frame_length = frame_ticks(problem.question.gathering_seconds, period * every)
    release, candidates = replace(problem.new_candidate("symbols", chains, every), devices=1), []
    assert release.table is not None
    message = partial(_symbol_message, frame_length, release.table.symbols)
    wants_state_now = problem.question.want == "now"
    answer_lengths: Sequence[int | None] = (None,) if wants_state_now else lengths
    for length in answer_lengths:
        candidate = replace(release, answers="now" if wants_state_now else release.answers, window_ticks=length)
        if (errors := candidate.assess(samples, samples.choose, problem.rng)) is not None:
            gathering_seconds = frame_length * period * every
            latency = gathering_seconds + (length or 0) * period
            candidates.append(replace(candidate, **errors._asdict(), **traffic(gathering_seconds, latency, message, 1)))
    return min(candidates, key=attrgetter("relative_error"), default=None)


def traffic(message_seconds: float, latency: float, message: Callable[[], bytes], devices: int) -> dict[str, Any]:
    """The latency and traffic fields of a candidate whose devices each send a message per `message_seconds`."""
    return {"latency_seconds": latency, "messages_per_day": devices * DAY / message_seconds, "message": message}


def _window_message(name: str, ticks: int, bin_count: int) -> bytes:
    """Encode an example message of a window with a number of counts."""
    return WindowFrame(1, name, -1, 0, 0, ticks, ticks, (0,) * bin_count).encode()


def _symbol_message(ticks: int, symbols: int) -> bytes:
    return SymbolFrame(1, -1, 0, bytes(ticks), bits=symbol_bits(symbols)).encode()


def guess_error(
    answers: Floats, truth: Floats, devices: int, rng: np.random.Generator, times: tuple[Ints, Ints] | None = None
) -> float:
    """The mean absolute error, by `truth` (v, b), of always guessing the median of `answers` (w, b).

    For a group, averages are guessed; each device is like a window drawn at random. Windows of a group have the same
    part of the day by `times`, (w,) and (v,), if given.
    """
    if devices > 1:
        day_parts = (np.zeros(len(answers)), np.zeros(len(truth))) if times is None else times
        answers, truth = (_group_means(*pair, devices, rng) for pair in zip((answers, truth), day_parts, strict=True))
    return float(np.abs(truth - np.median(answers, axis=0)).mean())


def _group_means(answers: Floats, day_parts: NDArray[Any], devices: int, rng: np.random.Generator) -> Floats:
    """Simulate averages over groups of devices, with equally many groups for each part of the day."""
    groups = [answers[day_parts == day_part] for day_part in np.unique(day_parts)]
    sample_shape = (math.ceil(_GROUPS / len(groups)), min(devices, 1000))
    return np.concatenate([group[rng.integers(len(group), size=sample_shape)].mean(axis=1) for group in groups])


class Assessment(NamedTuple):
    """The mean absolute error of answers, their 95 % error, the error of always guessing, and the number of answers."""

    expected_error: float
    error_95: float
    guess_error: float
    judged: int


def assess_now(table: NoiseTable, fit: Cut, target: Cut, stretch_ticks: int, rng: np.random.Generator) -> Assessment:
    """Find the share of ticks at which the most likely state, given all symbols so far, is wrong.

    A subscriber's chain is learned from `fit`. The error `error_95` is the share of wrong states that 95 % of stretches
    of `stretch_ticks` do not exceed.
    """
    k = table.states
    transition = mean_transitions(*fit, k, pseudocount=1.0)
    start_distribution = stationary_distribution(transition)
    is_wrong = _wrong_estimates(table, target, transition, start_distribution, rng)
    all_wrong = np.concatenate([is_wrong, _wrong_estimates(table, fit, transition, start_distribution, rng)])
    block_errors = [block.mean() for block in np.array_split(all_wrong, _BLOCKS) if len(block)]
    ticks = len(all_wrong) / _BLOCKS
    spread = float(np.std(block_errors, ddof=1)) * math.sqrt(1.0 / len(block_errors) + ticks / max(stretch_ticks, 1))
    error_95 = float(np.mean(block_errors)) + float(stdtrit(len(block_errors) - 1, _CONFIDENCE)) * spread
    states, error = target.states[target.states >= 0], float(is_wrong.mean())
    # The most frequent state of the same set: a guess learned elsewhere would flatter symbols after a drift.
    share_of_others = 1.0 - float(np.bincount(states, minlength=k).max()) / max(len(states), 1)
    return Assessment(error, min(1.0, max(error_95, error)), share_of_others, len(is_wrong))


def assess_shares(
    table: NoiseTable, fit: Cut, target: Cut, length: int, bins: Bins, rng: np.random.Generator
) -> Assessment | None:
    """Find the errors of shares, over `length` ticks, estimated from symbols; `None` if there are too few windows.

    The guess is learned from `fit`; the 95 % error is that on both sets.
    """
    m, inverse_table = table.symbols, np.linalg.inv(np.array(table.weights(), dtype=np.float64) / SCALE)
    errors, truths = [], []
    for cut in (fit, target):
        shares = true_shares(*cut, length, bins)
        if len(shares.counts) < 2:
            return None
        windows = np.arange(len(shares.first))[:, None]
        window_ticks, run_errors = shares.first[:, None] + np.arange(length), []
        for _ in range(_SYMBOL_RUNS):
            symbol_cells = windows * m + _draw_symbols(cut.states, table, rng)[window_ticks]
            symbol_counts = np.bincount(symbol_cells.ravel(), minlength=len(windows) * m)
            state_shares = symbol_counts.reshape(-1, m) / length @ inverse_table
            answers = np.stack([state_shares[:, list(group)].sum(axis=1) for group in bins], axis=1)
            run_errors.append(np.abs(np.clip(answers, 0.0, 1.0) - shares.truth))
        errors.append(np.concatenate(run_errors))
        truths.append(shares.truth)
    all_errors = np.concatenate(errors).ravel()
    guess = guess_error(truths[0], np.concatenate(truths), 1, rng)
    # The quantile of many simulated answers is nearly exact; half a per cent more covers its error.
    error_95 = float(np.quantile(all_errors, _CONFIDENCE + 0.005))
    return Assessment(float(errors[1].mean()), error_95, guess, sum(map(len, truths)))


def _wrong_estimates(
    table: NoiseTable, cut: Cut, transition: Floats, start_distribution: Floats, rng: np.random.Generator
) -> Floats:
    symbols = _draw_symbols(cut.states, table, rng)
    emission = np.array(table.weights(), dtype=np.float64) / SCALE
    beliefs = filter_beliefs(symbols, start_distribution, transition, emission, lengths=cut.lengths).beliefs
    return np.asarray(beliefs.argmax(axis=1) != cut.states, dtype=np.float64)[cut.states >= 0]


def _draw_symbols(states: Ints, table: NoiseTable, rng: np.random.Generator) -> Ints:
    """Draw a symbol for every tick; a tick without a state is treated as one with a random state."""
    filled_states = np.where(states < 0, rng.integers(table.states, size=len(states)), states)
    return np.asarray(release_symbols(filled_states, table, rng).symbols)
