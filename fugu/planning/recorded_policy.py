"""Hold a recording against a policy: states at the policy's clock, the policy's class, and attacks on its releases.

Attackers ask about ticks, and about stretches if the policy protects stretches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fugu.attackers.evaluation import DRAWS, Attack, attack, furthest_learner, learners
from fugu.attackers.outputs import CountOutputs, Outputs, SymbolOutputs, known_ticks, release_counts, release_symbols
from fugu.attackers.stretches import FEWEST, MOST_FOLLOWED, StretchAttack, attack_stretches
from fugu.chains.arrays import Floats, Ints
from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.groups import GroupDocument
from fugu.contract.losses import Adversary
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.windows import Window
from fugu.planning.errors import PlanningError
from fugu.planning.question import sample_mask
from fugu.planning.states import states_of
from fugu.privacy.covering_class import covering_class
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import AS_FOUND, Readings, Recorded, load, read_readings

__all__ = [
    "RecordedClass",
    "Release",
    "Released",
    "StretchTrial",
    "Trial",
    "Truth",
    "draw_released",
    "recorded_class",
    "releases_of",
    "states_at_clock",
    "stretch_trial",
    "true_states",
    "unknown_ticks",
]

_SAME_PERIOD = 0.05
_MOST_TICKS = 20_000_000


def states_at_clock(policy: Policy, recording: Recorded, options: ReadOptions) -> tuple[Readings, Ints, Ints]:
    """Read a recording at a policy's clock. Return its readings, and states and segments (n,) of the policy's ticks.

    A log of changes is sampled once per tick, of samples one is taken per tick, and each event is a tick.

    Raises:
        PlanningError: a tick is no whole number of readings, or no reading has a state.
        FuguError: the recording cannot be read.
        QuestionError: the recording can be read in more than one way.
    """
    readings, is_at_tick, states = _readings_at_clock(policy, recording, options)
    return readings, states, readings.segments[is_at_tick]


def _readings_at_clock(
    policy: Policy, recording: Recorded, options: ReadOptions
) -> tuple[Readings, NDArray[np.bool_], Ints]:
    """Read the readings, a mask (n,) of those at ticks of the policy, and the states at these ticks."""
    table, period = load(recording, options), policy.clock.period_us / 1e6
    readings = read_readings(table, options)
    tick_stride = 1
    if readings.changes:
        readings = read_readings(table, replace(options, period=period))
    elif readings.steady and readings.period_seconds:
        ratio = period / readings.period_seconds
        tick_stride = round(ratio)
        if tick_stride < 1 or abs(ratio - tick_stride) > _SAME_PERIOD * tick_stride:
            raise PlanningError(
                f"{readings.source} has a reading every {readings.period_seconds:g} s, and the policy a tick every "
                f"{period:g} s: no whole number of readings is a tick"
            )
    is_at_tick = sample_mask(readings.segments, tick_stride)
    states = states_of(policy.discretiser, readings.values[is_at_tick], readings.segments[is_at_tick])
    if not (states >= 0).any():
        raise PlanningError(f"{readings.source}: no reading has a state under this policy")
    return readings, is_at_tick, states


class Numbered(NamedTuple):
    """States and segments (n,) of consecutive ticks from `first` on; -1 for no state."""

    first: int
    states: Ints
    segments: Ints

    def at(self, ticks: Ints, *, loop: bool) -> tuple[Ints, Ints]:
        """Look up states and segments of ticks; beyond the range there is no state, or a repeated one with `loop`."""
        loop_counts, indices = np.divmod(ticks - self.first, len(self.states))
        states = np.where(loop | (loop_counts == 0), self.states[indices], -1)
        return states, self.segments[indices] + loop_counts * len(self.states)


class Truth(NamedTuple):
    """The true states of a sensor at the ticks of a policy.

    Attributes:
        source: name of the recording.
        replayed: states by ticks as an agent counts them that replays the recording, from 0.
        dated: states by ticks of the recording's own times; `None` if these are not dates.
    """

    source: str
    replayed: Numbered
    dated: Numbered | None

    def between(self, begin: int, end: int) -> Numbered:
        """The states between two ticks: by the recording's own times if any lie there, else by a replay."""
        if self.dated is not None and self.dated.first < end and self.dated.first + len(self.dated.states) > begin:
            return self.dated
        return self.replayed


def true_states(policy: Policy, recording: Recorded, options: ReadOptions) -> Truth:
    """Read the true states at the ticks of a policy; errors as for `states_at_clock`."""
    readings, is_at_tick, states = _readings_at_clock(policy, recording, options)
    segments = readings.segments[is_at_tick]
    tick_numbers = np.arange(len(states)) if readings.rows is None or not is_at_tick.all() else readings.rows
    replayed_states = _states_by_tick(tick_numbers, states, segments)
    if readings.moments is None or readings.facts[0].first is None:
        return Truth(readings.source, replayed_states, None)
    ticks = np.round((readings.moments[is_at_tick] * 1e6 - policy.clock.epoch_us) / policy.clock.period_us)
    return Truth(readings.source, replayed_states, _states_by_tick(ticks.astype(np.int64), states, segments))


def _states_by_tick(ticks: Ints, states: Ints, segments: Ints) -> Numbered:
    """Place states and segments at their ticks; those with tick -1 are left out."""
    has_tick = ticks >= 0
    ticks, states, segments = ticks[has_tick], states[has_tick], segments[has_tick]
    first_tick, last_tick = (int(ticks.min()), int(ticks.max())) if ticks.size else (0, 0)
    length = last_tick - first_tick + 1
    if length > _MOST_TICKS:
        raise PlanningError(
            f"the recording has times of more than {_MOST_TICKS} ticks of the policy: give a part of it"
        )
    tick_states, tick_segments = np.full(length, -1, dtype=np.int64), np.zeros(length, dtype=np.int64)
    tick_states[ticks - first_tick], tick_segments[ticks - first_tick] = states, segments
    return Numbered(first_tick, tick_states, np.maximum.accumulate(tick_segments))


class RecordedClass(NamedTuple):
    """The comparison of a recording's class with the class of a policy.

    `inside` says whether the policy's class contains the one that covers the recording. `odds_ratio` is the largest
    odds ratio of a step that the recording needs, `declared` that of the policy. `epsilon` is the loss of the policy's
    noise for the recording's class (infinite without a bound), `claimed` the promised one, both against `adversary`.
    """

    inside: bool
    odds_ratio: float
    declared: float
    epsilon: float
    claimed: float
    adversary: Adversary


def recorded_class(policy: Policy, recording: Recorded, options: ReadOptions = AS_FOUND) -> RecordedClass:
    """Compare the class that covers a recording with the class of a policy.

    Raises:
        PlanningError: the policy's class has neither intervals of two states nor a largest odds ratio, or the
            recording's ticks do not fit.
        ChainClassError: the recording is too short to tell.
        FuguError: the recording cannot be read.
        QuestionError: the recording can be read in more than one way.
    """
    declared_class = policy.chains
    if not isinstance(declared_class, BinaryChains | BoundedChains):
        raise PlanningError(
            "a recording is held against intervals of two states, or a largest odds ratio; here is neither"
        )
    _, states, segments = states_at_clock(policy, recording, options)
    covering_chains = covering_class(states, segments, len(policy.discretiser.states)).chains
    bounded_chains = covering_chains
    if declared_class.changes:
        bounded_chains = BoundedChains(states=covering_chains.states, odds_ratio=covering_chains.odds_bound)
    adversary = policy.guarantee.adversary
    tick_epsilon = bounded_chains.ratio_loss(*policy.outputs.ratios, adversary).epsilon
    return RecordedClass(
        declared_class.covers(covering_chains),
        covering_chains.odds_bound,
        declared_class.odds_bound,
        policy.outputs.bound(bounded_chains, adversary, tick_epsilon).epsilon(policy.guarantee.stretch_ticks),
        policy.guarantee.epsilon,
        adversary,
    )


_DAY_US = 86_400_000_000
_ROUNDING = 1e-9


class Trial(NamedTuple):
    """The attacks on one release of a recording's states, the most successful first.

    `noise` is a flip probability (the larger of two), or the scale of a count in ticks. `learners` holds the habit
    learner whose odds moved furthest, for this draw of the noise and for further simulated draws.
    """

    source: str
    released: str
    noise: float
    epsilon: float
    attacks: tuple[Attack, ...]
    learners: tuple[Attack, ...] = ()

    @property
    def known_chain(self) -> Attack:
        """The attack by forward-backward inference with the recording's mean chain and every output."""
        return next(attack for attack in self.attacks if attack.attacker == "forward-backward")


class Release(NamedTuple):
    """Outputs of a policy, with a name, their noise (as in a `Trial`), and the epsilon about one tick."""

    name: str
    noise: float
    epsilon: float
    outputs: Outputs


def releases_of(
    policy: Policy, symbols: SymbolOutputs | None, draw_counts: Callable[[Window | GroupDocument], CountOutputs | None]
) -> list[Release]:
    """List all releases that can be attacked: symbols, each tumbling window, and each window together with symbols.

    `draw_counts` draws the counts of a window, anew at each call.
    """
    releases: list[Release] = []
    tick_epsilon, windows_bound = policy.bound().epsilon(1), policy.windows_bound()  # attackers ask about single ticks
    if symbols is not None:
        is_square = symbols.emission.shape[0] == symbols.emission.shape[1]
        noise = float(1 - symbols.emission.diagonal().min()) if is_square else math.nan
        releases.append(Release("symbols", noise, tick_epsilon, symbols))
    for window in policy.counted_windows:
        if window.stride < window.length or windows_bound is None or not window.query.is_additive:
            continue
        if (window_counts := draw_counts(window)) is None or not window_counts.counts.size:
            continue
        scale = float(Fraction(window.scale))
        releases.append(Release(f"{window.kind} {window.name}", scale, windows_bound.epsilon(1), window_counts))
        if symbols is not None and (redrawn_counts := draw_counts(window)) is not None:
            both_outputs = replace(redrawn_counts, symbol_outputs=symbols)
            releases.append(Release(f"symbols, {window.name}", scale, tick_epsilon, both_outputs))
    return releases


class Released(NamedTuple):
    """A policy's releases of the states (n,) of a recording; `redraws` holds the same with other draws of the noise."""

    source: str
    states: Ints
    segments: Ints
    releases: Sequence[Release]
    redraws: Sequence[Sequence[Release]] = ()

    def trials(self, known_one_in: int | None = None) -> Iterator[Trial]:
        """Attack each release; attackers know the true state of every `known_one_in`-th tick.

        Learners also attack the redraws.
        """
        known_states = known_ticks(self.states, known_one_in)
        attack_outputs = partial(attack, self.states, self.segments, known_states=known_states)
        for (name, noise, epsilon, outputs), *redraws in zip(self.releases, *self.redraws, strict=True):
            attacks = attack_outputs(outputs, epsilon)
            redrawn_outputs = (release.outputs for release in redraws)
            learner_attacks = (attack_outputs(drawn, epsilon, attackers=learners(drawn)) for drawn in redrawn_outputs)
            furthest_learners = filter(None, map(furthest_learner, (attacks, *learner_attacks)))
            yield Trial(self.source, name, noise, epsilon, attacks, tuple(furthest_learners))

    def stretch_trials(self, policy: AnyPolicy) -> list[StretchTrial]:
        """Attack each kind of output by itself; empty if the policy's promise is about single ticks."""
        if not isinstance(policy, Policy) or policy.guarantee.stretch_ticks == 1:
            return []
        unknown_count = unknown_ticks(policy, MOST_FOLLOWED)
        return [
            stretch_trial(policy, self.source, name, self.states, self.segments, outputs, unknown_count, None)
            for name, _, _, outputs in self.releases
            if isinstance(outputs, SymbolOutputs) or outputs.symbol_outputs is None
        ]


def draw_released(policy: Policy, recording: Recorded, options: ReadOptions) -> Released:
    """Simulate the releases of a recording at a policy's clock, with several draws of the noise.

    Raises:
        PlanningError: no reading has a state, or the policy releases nothing that can be attacked.
        FuguError: the recording cannot be read.
        QuestionError: it can be read in more than one way.
    """
    readings, states, segments = states_at_clock(policy, recording, options)
    first_draw, *other_draws = (_draw_releases(policy, states, segments, seed) for seed in range(1, DRAWS + 1))
    return Released(readings.source, states, segments, first_draw, other_draws)


def _draw_releases(policy: Policy, states: Ints, segments: Ints, seed: int) -> list[Release]:
    """Draw the releases of states (n,) and their segments once."""
    names, generator = policy.discretiser.states, np.random.default_rng(seed)

    def draw_counts(window: Window | GroupDocument) -> CountOutputs:
        groups = window.groups(names)
        return release_counts(states, segments, window.length, Fraction(window.scale), groups, generator, k=len(names))

    symbols = None if policy.table is None else release_symbols(states, policy.table, generator)
    releases = releases_of(policy, symbols, draw_counts)
    if not releases:
        raise PlanningError("the policy releases nothing of this recording that can be attacked")
    return releases


class StretchTrial(NamedTuple):
    """Attacks on stretches of `ticks` ticks, one for each secret; if there are none, `why` is the reason, else "".

    `source` names the recording. `in_class` says that the attacker's chain is in the class: then no output moves odds
    further than promised.
    """

    source: str
    released: str
    ticks: int
    epsilon: float
    attacks: tuple[StretchAttack, ...]
    why: str
    in_class: bool

    @property
    def epsilon_low(self) -> float:
        """A lower bound on epsilon by the success of attacks and, for a chain of the class, by the odds that moved."""
        bounds = [attack.epsilon_low for attack in self.attacks]
        if self.in_class:
            bounds += [math.log(attack.furthest) - _ROUNDING for attack in self.attacks]
        return max(bounds, default=0.0)


def stretch_trial(
    policy: Policy,
    source: str,
    release_name: str,
    states: Ints,
    segments: Ints,
    outputs: Outputs,
    unknown_ticks: int,
    chain: Floats | None,
) -> StretchTrial:
    """Attack stretches of an output by `chain`, by default the mean chain; attackers do not know `unknown_ticks`."""
    ticks = policy.guarantee.stretch_ticks
    bound = policy.bound()
    if isinstance(outputs, CountOutputs):
        bound = policy.windows_bound() or bound
        if ticks > outputs.length:
            ticks = ticks // outputs.length * outputs.length
    trial = StretchTrial(source, release_name, ticks, bound.epsilon(ticks), (), "", chain is not None)
    length = outputs.length if isinstance(outputs, CountOutputs) else 1
    if max(ticks, length) > MOST_FOLLOWED:
        return trial._replace(why=f"courses of more than {MOST_FOLLOWED} ticks are not followed")
    counted_states = (outputs.states - 1,) if isinstance(outputs, SymbolOutputs) else outputs.groups[-1]
    attacks = attack_stretches(states, segments, outputs, counted_states, ticks, unknown_ticks, trial.epsilon, chain)
    scored_stretches = max((stretch_attack.scored for stretch_attack in attacks), default=0)
    if scored_stretches < FEWEST:
        return trial._replace(why=f"too short: {scored_stretches} stretches could be scored, and it takes {FEWEST}")
    return trial._replace(attacks=tuple(result for result in attacks if result.scored >= FEWEST))


def unknown_ticks(policy: Policy, max_distance: int) -> int:
    """The ticks that the attacker does not know: a day, but at most `max_distance` to each side of the stretch."""
    ticks = policy.guarantee.stretch_ticks
    return max(ticks, min(-(-_DAY_US // policy.clock.period_us), ticks + 2 * max_distance))
