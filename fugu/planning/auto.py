"""Plan from readings and a question what a device should release: compare candidates, attack them, judge the best.

The class of chains is fitted to the whole of each recording and covers 98 % of its stretches at every length. It is
widened until attackers stay below their ceiling on a first set. Candidates are compared on a second set; a third,
held-back set can only refute the recommendation. The usefulness of answers plays no part in the class.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from fugu.attackers.evaluation import DRAWS, Attack, attack, learners
from fugu.attackers.outputs import Outputs
from fugu.attackers.stretches import MOST_FOLLOWED, StretchAttack, attack_stretches
from fugu.chains.arrays import Floats, Ints
from fugu.contract.calendar import DAY, DayBlocks
from fugu.contract.errors import FuguError
from fugu.contract.policy import Policy
from fugu.contract.windows import policy_scale
from fugu.planning.answers import noisy_shares
from fugu.planning.candidates import (
    LEAST_JUDGED,
    RUNS,
    SHORTEST,
    Bins,
    Candidate,
    Curve,
    Problem,
    best_symbols,
    no_candidate,
    window_candidates,
    window_lengths,
)
from fugu.planning.errors import PlanningError
from fugu.planning.policy_builder import ANY_TARGET, PolicyHeader, Target, build_window_policy
from fugu.planning.profiles import profile_lengths
from fugu.planning.question import (
    ChosenStates,
    Cut,
    Progress,
    Question,
    choose_states,
    long_stay,
    merged_states,
    no_progress,
    protected_seconds,
)
from fugu.planning.states import MOST_MISSING, Gaps, gaps_of
from fugu.planning.true_class import TrueClass, ceiling_failures, true_class
from fugu.planning.window_plan import joint_plan, symbol_plan
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.covering_class import CoveringChains, union, widen
from fugu.recordings.readings import Readings

__all__ = ["AIM", "AutoPlan", "auto_policy", "least_epsilon", "longest_useful", "plan_auto", "scarce_answer"]


AIM = 0.05
"""The largest mean absolute error of a recommendation, if the question names none."""

_TICK_STRIDES = (1, 5, 30)
_EPSILONS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0)
_MOST_CHOICES, _MOST_CANDIDATES, _MOST_STEPS = 4, 4, 8
_SHOWN_WINDOWS = 48
_SAFE_SHARE = 0.8


class Example(NamedTuple):
    """The last windows of the third set: true answers (w, b), and answers released by a simulated device (w, b)."""

    truth: Floats
    released: Floats


class AutoPlan(NamedTuple):
    """The recommended candidate, or the reasons why none is recommended.

    The kind of `recommended` is `none` if no candidate is recommended; `reasons` are empty if none was useful. `bins`
    are the sets of states whose shares are asked for; `curves` hold error against epsilon. `least_epsilon` is the least
    compared epsilon at which an answer is useful and close enough; it is above the wanted one if nothing is
    recommended. `scarce_answer` is a candidate that has no such epsilon only because too few answers judge it, with the
    least epsilon at which it may be useful. `stay` is the number of ticks that 99 % of stays in a state do not exceed,
    `None` without stays; it describes the recording and enters no policy. `held_back` holds the increasing indices of
    readings in the third set. `covered` is the share of stretches of the worst length that the class covers. `gaps`
    describes ticks without a reading. `merged` lists states with rare ones merged, `None` if no state is rare. For each
    of several donors, `left_out` is the epsilon of a plan made without that donor; infinite without a bound.
    """

    recommended: Candidate
    candidates: tuple[Candidate, ...]
    readings: Readings
    question: Question
    states: ChosenStates
    bins: Bins
    reasons: tuple[str, ...]
    curves: tuple[Curve, ...]
    least_epsilon: float | None
    scarce_answer: tuple[Candidate, float] | None
    example: Example | None
    held_back: Ints
    covered: float | None
    stay: int | None
    gaps: Gaps | None
    merged: tuple[str, ...] | None
    left_out: tuple[float, ...]


_Choice = tuple[Candidate | None, tuple[Candidate, ...], tuple[str, ...]]
"""The chosen candidate or `None`, all candidates, and the reasons why none was chosen."""


def plan_auto(
    readings: Readings, question: Question, rng: np.random.Generator, progress: Progress = no_progress
) -> AutoPlan:
    """Compare candidates, and recommend one that is useful and that attackers do not refute.

    Readings of several donors follow one another; a device will release other readings than these.

    Raises:
        FuguError: the recording is too short, or cannot answer the question.
    """
    question = replace(question, protect=protected_seconds(question.protect, readings.period))
    progress("states", 0.0)
    problem = Problem(readings, question, choose_states(readings, question), rng)
    states, is_daily = problem.states, question.want == "profile"
    samples = problem.samples(daily=is_daily)
    day_divisions = [*problem.day_divisions] if is_daily else [None]
    samples.refuse_constant(readings.source)
    missing_name = states.discretiser.missing
    missing_state = None if missing_name is None else len(states.discretiser.states) - 1
    gaps = gaps_of(samples.whole, missing_state) if readings.missing_share > MOST_MISSING else None
    if question.missing == "ignore" and gaps is not None and gaps.dependent:
        raise PlanningError(
            f"{readings.source}: which ticks are missing depends on states (p = {min(gaps.before, gaps.after):.2g}), "
            "and would tell of them: without --missing ignore, missing is a state that is protected"
        )
    outcome = _compare(problem, day_divisions, progress)
    progress("error against epsilon", 0.9)
    recommended, reasons = outcome.recommended, outcome.reasons
    curves = tuple(_error_curve(problem, candidate) for candidate in outcome.candidates)
    least_useful_epsilon = None
    if not reasons:
        least_useful_epsilon = question.epsilon if recommended.kind != "none" else least_epsilon(curves, question)
    covered_share = None
    if recommended.chains is not None:
        donor_classes = problem.donor_classes(recommended.every)
        covered_share = min(donor._replace(chains=recommended.chains).share() for donor in donor_classes)
    return AutoPlan(
        recommended=recommended,
        candidates=outcome.candidates,
        readings=readings,
        question=question,
        states=states,
        bins=recommended.bins or problem.bins,
        reasons=reasons,
        curves=curves,
        least_epsilon=least_useful_epsilon,
        scarce_answer=scarce_answer(curves, question) if least_useful_epsilon is None and not reasons else None,
        example=outcome.example,
        held_back=problem.samples(daily=is_daily or recommended.blocks is not None).sets.test.rows,
        covered=covered_share,
        stay=long_stay(*samples.joined),
        gaps=gaps,
        merged=merged_states(states, samples.whole),
        left_out=_left_out_losses(problem, recommended),
    )


def _left_out_losses(problem: Problem, candidate: Candidate) -> tuple[float, ...]:
    """Compute for each donor the epsilon of the recommended noise if planned without that donor's recording."""
    if candidate.kind == "none" or candidate.chains is None:
        return ()
    donor_classes = problem.donor_classes(candidate.every)
    if len(donor_classes) < 2:
        return ()
    widening = max(1.0, math.sqrt(candidate.chains.odds_bound / problem.chains(candidate.every).odds_bound))
    losses = []
    for donor in donor_classes:
        other_class = union([other.chains for other in donor_classes if other is not donor])
        other_class = other_class if widening == 1.0 else widen(other_class, widening)
        try:
            # a policy for a class of changing chains promises also for a changing chain
            chains = widen(donor.chains, 1.0) if other_class.changes else donor.chains
            release = candidate.with_noise(other_class, candidate.epsilon)
            losses.append(release.bound(chains).epsilon(candidate.stretch_ticks))
        except FuguError:
            losses.append(math.inf)
    return tuple(losses)


class _Outcome(NamedTuple):
    """A choice after it was judged on the third set."""

    recommended: Candidate
    candidates: tuple[Candidate, ...]
    reasons: tuple[str, ...]
    example: Example | None


def _compare(problem: Problem, day_divisions: Sequence[DayBlocks | None], progress: Progress) -> _Outcome:
    """Compare and judge candidates; if none is useful and the question is open, compare profiles as well."""
    progress("the class of chains", 0.1)
    question = problem.question
    try:
        chains = problem.chains()
    except ChainClassError as error:
        progress("the third set", 0.7)
        return _outcome(problem, None, (None, (), (str(error),)))
    progress("candidates, and attackers on the first set", 0.15)
    choice = _first_choice(problem, chains, day_divisions)
    progress("the third set", 0.7)
    outcome = _outcome(problem, chains, choice)
    is_chosen_by_user = question.want is not None or question.window is not None
    if is_chosen_by_user or outcome.recommended.kind != "none" or not problem.readings.timed:
        return outcome
    profiles = _outcome(problem, chains, _first_choice(problem, chains, [*problem.day_divisions]))
    candidates = outcome.candidates + profiles.candidates
    if profiles.recommended.kind != "none":
        return profiles._replace(candidates=candidates)
    profile_reasons = profiles.reasons if any(candidate.useful for candidate in profiles.candidates) else ()
    return outcome._replace(candidates=candidates, reasons=outcome.reasons + profile_reasons)


def _first_choice(problem: Problem, chains: CoveringChains, day_divisions: Iterable[DayBlocks | None]) -> _Choice:
    """Choose the best candidate of the first division of the day that has one; the division `None` is for windows."""
    rivals, reasons = tuple[Candidate, ...](), dict[str, None]()
    for blocks in day_divisions:
        leader, candidates, refusals = _widened_choice(problem, chains, blocks)
        rivals += candidates
        if leader is not None:
            return leader, rivals, ()
        reasons |= dict.fromkeys(refusals)
    return None, rivals, tuple(reasons)


def _outcome(problem: Problem, chains: CoveringChains | None, choice: _Choice) -> _Outcome:
    """Judge a choice on the third set; without a chosen candidate, the class that is reported is `chains`."""
    leader, rivals, reasons = choice
    example = None
    recommended = no_candidate(problem.states.discretiser, chains, problem.question)
    candidates = tuple(replace(rival, held_back_error=problem.score(rival, "test", RUNS)) for rival in rivals)
    if leader is not None:
        winner, failures = _judge(problem, leader)
        reasons += failures
        recommended = replace(recommended, chains=leader.chains) if failures else winner
        if not failures and winner.scale is not None:
            shares = problem.shares(winner, "test")
            noisy_answers = noisy_shares(shares, winner.scale, winner.devices, problem.rng, 1)[0]
            example = Example(shares.truth[-_SHOWN_WINDOWS:], noisy_answers[-_SHOWN_WINDOWS:])
        candidates = tuple(winner if candidate.same_release(winner) else candidate for candidate in candidates)
    return _Outcome(recommended, candidates, reasons, example)


def longest_useful(plan: AutoPlan, candidate: Candidate) -> int:
    """The longest stretch, in ticks, that windows of a candidate's length could protect and still be useful.

    The noise is as large as the wanted error, or half the error of guessing, allows; 0 if no such noise is possible.
    """
    if candidate.chains is None or candidate.window_ticks is None or candidate.devices > 1 or candidate.blocks:
        return 0
    largest_error = min(candidate.guess_error / 2.0, plan.question.within or 1.0)
    noise_scale = Fraction(largest_error * candidate.window_ticks)
    if not noise_scale > 0:
        return 0
    try:
        release = replace(candidate, scale=policy_scale(float(noise_scale)))
        return release.bound(candidate.chains).longest(candidate.epsilon)
    except FuguError:
        return 0


def _try_windows(
    problem: Problem, chains: CoveringChains, lengths: Sequence[int], blocks: DayBlocks | None
) -> tuple[Candidate, ...]:
    try:
        return tuple(window_candidates(problem, chains, lengths, blocks))
    except FuguError:
        return ()  # no noise is enough for this class: nothing can be compared


def _try_symbols(problem: Problem, lengths: list[int]) -> tuple[Candidate, ...]:
    """Find a symbol candidate for each stride with a class; its shares are over one of `lengths`."""
    candidates = []
    for stride in _TICK_STRIDES:
        allowed_lengths = [length for length in lengths if length >= 10 * stride]
        try:
            candidates.append(best_symbols(problem, stride, problem.chains(stride), allowed_lengths))
        except FuguError:
            continue  # too few readings are left at this period, or no noise is enough
    return tuple(candidate for candidate in candidates if candidate is not None)


def _widened_choice(problem: Problem, chains: CoveringChains, blocks: DayBlocks | None) -> _Choice:
    """Choose the best candidate that attackers do not refute on the first set; if they refute all, widen the class.

    Candidates are windows and symbols, or profiles by `blocks`. A longer window often costs less than a wider class, so
    the next best candidates are tried first.

    Raises:
        PlanningError: the window length that is asked for is out of range.
    """
    question, readings = problem.question, problem.readings
    if blocks is None:
        lengths = window_lengths(readings.period, readings.steady, question)
    else:
        lengths = profile_lengths(question, readings.period)
    windows = () if question.want == "now" else _try_windows(problem, chains, lengths, blocks)
    symbols: tuple[Candidate, ...] = ()
    if blocks is None:
        symbols = _try_symbols(problem, [window.window_ticks for window in windows if window.window_ticks is not None])
    reason = f"no window of {SHORTEST} ticks or more is known within the latency that is asked for"
    if lengths:
        reason = "the recording holds too few whole windows to compare, or no noise is enough for its class of chains"
    for _ in range(_MOST_CHOICES):
        candidates = windows + symbols
        if not (ranking := _ranking(candidates, question)[:_MOST_CANDIDATES]):
            return None, candidates, () if candidates else (reason,)
        for candidate in ranking:
            if _try_class(problem, candidate, 1).chains is not None:
                return candidate, candidates, ()
        leader = ranking[0]
        widened_class = _try_class(problem, leader, _MOST_STEPS)
        if widened_class.chains is None:
            return None, candidates, (widened_class.reason,)
        if leader.kind == "windows":
            windows = _try_windows(problem, widened_class.chains, lengths, blocks)
        else:
            new_symbols = best_symbols(problem, leader.every, widened_class.chains, [leader.window_ticks or 0])
            symbols = tuple(new_symbols if new_symbols and symbol is leader else symbol for symbol in symbols)
    return None, windows + symbols, ("no class was found whose best answer passes its attackers",)


def _try_class(problem: Problem, candidate: Candidate, most_steps: int) -> TrueClass:
    """Attack a candidate's releases of the first set, and widen its class until it passes, in `most_steps` attempts."""
    fit_cut = problem.samples_of(candidate).fit
    assert candidate.chains is not None

    def draw_outputs(chains: CoveringChains, rng: np.random.Generator) -> Outputs | None:
        try:
            release = candidate.with_noise(chains, candidate.epsilon)
        except FuguError:
            return None
        return problem.outputs(release, fit_cut, rng)

    return true_class(*fit_cut, candidate.chains, candidate.epsilon, draw_outputs, problem.rng, most_steps=most_steps)


def _ranking(candidates: Iterable[Candidate], question: Question) -> list[Candidate]:
    """Rank useful candidates: the shortest window whose error is safely below the limit, then similar lengths.

    Without a wished error the limit is 5 %. If no candidate meets that, the one that beats guessing by most is first.
    """
    eligible_rivals = [
        rival
        for rival in candidates
        if rival.useful
        and rival.devices == question.devices
        and (rival.latency_seconds or 0.0) <= question.max_latency
        and (question.want != "now" or rival.answers == "now")
    ]
    limit = question.within or AIM
    accurate_rivals = [rival for rival in eligible_rivals if rival.expected_error <= limit]
    if not accurate_rivals:
        ranked_rivals = sorted(eligible_rivals, key=lambda rival: rival.expected_error / rival.guess_error)
        return ranked_rivals if question.within is None else []
    safe_rivals = [rival for rival in accurate_rivals if rival.expected_error <= _SAFE_SHARE * limit] or accurate_rivals
    first_length = min(rival.window_ticks or 1 for rival in safe_rivals)
    return sorted(
        accurate_rivals, key=lambda rival: (abs(math.log((rival.window_ticks or 1) / first_length)), rival.every)
    )


def _judge(problem: Problem, candidate: Candidate) -> tuple[Candidate, tuple[str, ...]]:
    """Attack a candidate on the third set. Return it with the attacks, and the reasons that refute it."""
    test_cut = problem.samples_of(candidate).test
    outputs = problem.outputs(candidate, test_cut, problem.rng)
    attacks = attack(*test_cut, outputs, candidate.epsilon)
    judged_candidate = replace(
        candidate,
        held_back_error=problem.score(candidate, "test", RUNS),
        attack=attacks[0],
        known_chain=next((attack for attack in attacks if attack.attacker == "forward-backward"), None),
        learners=tuple(_learner_attacks(problem, candidate)),
        stretch=_stretch_attack(problem, candidate, test_cut, outputs),
    )
    failures = []
    if judged_candidate.held_back_error is None:
        failures.append("the third set holds no whole window: the recording is too short to judge such answers")
    elif judged_candidate.held_back_error > judged_candidate.error_95:
        failures.append(
            f"on the third set the answers are off by {judged_candidate.held_back_error:.1%} on average, beyond the "
            f"{judged_candidate.error_95:.1%} that 95 % of them should be within"
        )
    return judged_candidate, (*failures, *ceiling_failures(attacks))


def _learner_attacks(problem: Problem, candidate: Candidate) -> Iterator[Attack]:
    """Attack the whole recording; for each draw of the noise, yield the habit learner whose odds moved furthest."""
    whole_cut = problem.samples(candidate.every).joined
    [rng] = problem.rng.spawn(1)  # so that later draws do not depend on these
    for _ in range(DRAWS):
        outputs = problem.outputs(candidate, whole_cut, rng)
        attacks = attack(*whole_cut, outputs, candidate.epsilon, attackers=learners(outputs))
        yield max(attacks, key=lambda attack: attack.furthest or 0.0)


def _stretch_attack(problem: Problem, candidate: Candidate, cut: Cut, outputs: Outputs) -> StretchAttack | None:
    """The attack on protected stretches whose odds moved furthest; `None` for single ticks, and for profiles."""
    if candidate.blocks is not None:
        return None
    day_ticks, stretch_ticks = round(DAY / (problem.readings.period * candidate.every)), candidate.stretch_ticks
    if stretch_ticks == 1 or max(stretch_ticks, candidate.window_ticks or 1) > MOST_FOLLOWED:
        return None
    unknown_ticks, group = max(stretch_ticks, day_ticks), candidate.bins[-1]
    attacks = attack_stretches(*cut, outputs, group, stretch_ticks, unknown_ticks, candidate.epsilon)
    return max(attacks, key=lambda stretch_attack: stretch_attack.furthest, default=None)


def _error_curve(problem: Problem, candidate: Candidate) -> Curve:
    points = []
    assert candidate.chains is not None
    for epsilon in sorted({*_EPSILONS, candidate.epsilon}):
        try:
            release = candidate.with_noise(candidate.chains, epsilon)
        except FuguError:
            continue  # no noise is enough for so small an epsilon
        if candidate.blocks is not None:
            error = problem.score(release, "fit", RUNS)
        elif (error := problem.score(release, "choose")) is None:
            error = problem.score(release, "fit")
        points.append((epsilon, error or 0.0))
    return Curve(candidate, tuple(points))


def least_epsilon(curves: Sequence[Curve], question: Question) -> float | None:
    """The least compared epsilon, above the wanted one, at which an answer would be chosen; `None` without any."""
    return min(
        (epsilon for curve in curves for epsilon in _useful_epsilons(curve, question) if epsilon > question.epsilon),
        default=None,
    )


def scarce_answer(curves: Sequence[Curve], question: Question) -> tuple[Candidate, float] | None:
    """Find the answer that would be useful if the recording held enough such answers, and its least epsilon."""
    scarce_curves = [curve for curve in curves if curve.candidate.judged < LEAST_JUDGED]
    answers = [(curve.candidate, e) for curve in scarce_curves for e in _useful_epsilons(curve, question, LEAST_JUDGED)]
    return min((answer for answer in answers if answer[1] >= question.epsilon), key=itemgetter(1), default=None)


def _useful_epsilons(curve: Curve, question: Question, answer_count: int | None = None) -> Iterator[float]:
    """Yield the epsilons at which an answer would be useful if `answer_count` answers judged it."""
    for epsilon, error in curve.points:
        judged_candidate = replace(curve.candidate, expected_error=error, judged=answer_count or curve.candidate.judged)
        if _ranking([judged_candidate], question):
            yield epsilon


def auto_policy(plan: AutoPlan, target: Target = ANY_TARGET) -> Policy:
    """Make the recommended policy, checked as a device would. PlanningError: nothing is recommended."""
    candidate = plan.recommended
    column_name = re.sub(r"[^A-Za-z0-9_-]+", "-", plan.readings.column.rpartition(".")[2]).strip("-")[:32]
    if candidate.chains is None or candidate.kind == "none":
        raise PlanningError("nothing is recommended: there is no policy to write")
    header = PolicyHeader(
        fleet=target.fleet,
        device=target.device,
        stream=target.stream or column_name or "readings",
        discretiser=candidate.discretiser,
        period_seconds=plan.readings.period * candidate.every,
        latency_seconds=plan.question.gathering_seconds,
        epoch=target.epoch,
        missing_share=None if candidate.discretiser.missing else plan.readings.missing_share or None,
        useful_for=candidate.useful_for,
    )
    promise = candidate.chains, candidate.epsilon, candidate.adversary
    if candidate.table is not None:
        return build_window_policy(symbol_plan(*promise, candidate.stretch_ticks), header)
    windows = [candidate.window(target.epoch)]
    return build_window_policy(joint_plan(*promise, windows, stretch_ticks=candidate.stretch_ticks), header)
