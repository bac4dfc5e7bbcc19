"""Describe a plan from readings: verdicts, a report, and an object for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from fugu.attackers.evaluation import Attack, success_bound
from fugu.attackers.stretches import StretchAttack
from fugu.contract.calendar import DayBlocks
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.sentences import epsilon_to_odds, privacy_of, protected_sentence
from fugu.contract.stretches import Stretch
from fugu.library.guarantee import (
    change_words,
    promise_document,
    promise_words,
    stretch_documents,
    stretch_table,
    stretch_words,
)
from fugu.library.report import JsonObject, Line, Report, Table
from fugu.planning.answers import group_error
from fugu.planning.auto import AIM, AutoPlan, longest_useful
from fugu.planning.candidates import LEAST_JUDGED, Candidate
from fugu.planning.states import Gaps
from fugu.privacy.chain_model import covered_words
from fugu.recordings.summary import summary, time_text

__all__ = [
    "answer_words",
    "auto_document",
    "auto_report",
    "candidate_document",
    "error_texts",
    "error_words",
    "percent",
    "quality_words",
    "range_text",
    "refusal_words",
    "thinned_words",
    "verdict",
    "verdict_lines",
]

_LEVELS = {"private": "", "weak": ", which is weakly private", "none": ", which is not private"}
_WITHOUT_BOUND = 10_000
"""Factors on odds from which on a learner is as good as certain: their digits say nothing."""
_ERRORS = ("off by", "95 % within", "test data", "guessing")
_COLUMNS = ("released", "answer over", *_ERRORS)
_NOT_SHOWN = ("table", "judged", "message", "bins", "stretch_ticks")
"""Fields of a candidate that are left out of its document."""


def auto_report(plan: AutoPlan, policy: AnyPolicy | None) -> Report:
    """Report how the recording was read, the verdicts with reasons, the candidates, and the losses of stretches."""
    readings, question, release = plan.readings, plan.question, plan.recommended
    for facts in readings.facts:
        yield from map(Line, summary(readings.source, facts))
    yield Line("")
    yield from verdict_lines(verdict(plan, policy))
    for note in (*readings.notes, *plan.states.notes):
        yield Line(f"- {note}")
    if plan.gaps is not None:
        yield Line(f"- {_gaps_note(plan.gaps)}")
    if plan.stay is not None:
        stay_note = f"99 % of stays in a state are no longer than {_span(plan, plan.stay)}"
        yield Line(f"- {stay_note} (of this recording; in no policy)")
    if plan.candidates:
        title = f"Compared, all at epsilon {question.epsilon:g}, {question.adversary} adversary"
        yield Table(title, _COLUMNS, [_candidate_row(plan, candidate) for candidate in plan.candidates])
        yield Line("Off by: mean absolute error. Guessing: always the usual answer. Test data: not used for planning.")
        if release.messages_per_day is not None:
            traffic_words = f"{release.messages_per_day:.2g} messages ({release.bytes_per_day:.3g} bytes) a day"
            yield Line(f"* arrives after {time_text(release.latency_seconds or 0.0)}, in {traffic_words}.")
    if isinstance(policy, Policy):
        yield stretch_table(_stretches(policy), discretiser=policy.discretiser, changes=readings.changes)
        yield Line(change_words(policy.chains, policy.guarantee.epsilon, policy.clock.period_us / 1_000_000))


def verdict(plan: AutoPlan, policy: AnyPolicy | None = None) -> Iterator[str]:
    """Yield sentences on the plan: whether it is useful, whether it is private, then the reasons."""
    release, question, stretches = plan.recommended, plan.question, _stretches(policy)
    promise = promise_words(question.epsilon, question.protect or 0, stretches)
    if release.kind == "none":
        usefulness, *reasons = _useless_words(plan)
        yield from (usefulness, promise, *reasons, *_adversary_note(plan))
        return
    yield f"Useful: {answer_words(plan, release)}, {quality_words(release)}."
    yield promise
    yield f"95 % of answers are off by at most {error_words(release.error_95)}."
    best_symbols = _best_candidate(plan, "symbols") if release.kind == "windows" else None
    if best_symbols is not None and not best_symbols.useful:
        yield f"No symbol stream is useful at epsilon {question.epsilon:g}: the best is {quality_words(best_symbols)}."
    if release.blocks is not None:
        yield from _profile_words(plan, release.blocks)
    if release.held_back_error is not None:
        yield f"Test data, not used for planning: off by {error_words(release.held_back_error)}."
    if best_symbols is not None and best_symbols.useful:
        span_words = _span(plan, best_symbols.window_ticks or 1)
        yield f"The best symbol stream is useful too, over {span_words}: {quality_words(best_symbols)}."
    if release.attack is not None:
        yield _attack_words(release.attack, release)
    if release.known_chain is not None:
        yield _odds_words(release.known_chain, release, stretches)
    if release.stretch is not None:
        yield _stretch_words(release.stretch, question.protect or 0, release.epsilon)
    subject_words = protected_sentence(release.discretiser)
    stretch_note = f" about any {stretch_words(question.protect)}" if question.protect else ""
    yield (
        f"{subject_words}. Epsilon {release.epsilon:g}{stretch_note} is proven against "
        f"the {release.adversary} adversary, if the readings are in the class of chains."
    )
    if release.every > 1:
        yield thinned_words(_interval(plan, release))
    if release.chains is not None and release.chains.changes and plan.covered is not None:
        yield (
            f"The class allows steps with odds ratios up to {release.chains.odds_bound:g}. It covers "
            f"{covered_words(plan.covered)} of this recording, of every length."
        )
    if plan.left_out:
        yield _left_out_words(plan)
    if question.missing == "ignore":
        yield (
            "Ticks without a reading have no state (--missing ignore). Which they are must not depend on states: "
            "no epsilon bounds what their pattern reveals."
        )
    yield from _adversary_note(plan)


def verdict_lines(sentences: Iterable[str]) -> Iterator[Line]:
    """Yield a verdict as lines: bold the first two sentences, on usefulness and privacy, and plain the others."""
    for index, sentence in enumerate(sentences):
        yield Line(sentence, bold=index < 2)


def thinned_words(interval_words: str) -> str:
    """Say which ticks a promise is about, where only one reading per interval is taken."""
    return (
        f"One reading {interval_words} is taken. The class is fitted to these readings, and the promise is about them "
        "alone. Readings in between are not used."
    )


def _gaps_note(gaps: Gaps) -> str:
    """Say whether gaps in the recording depend on the states before or after them, with the test's p-values."""
    test_words = f"(p = {gaps.before:.2g} and {gaps.after:.2g}, by simulated draws)"
    if gaps.dependent:
        return f"missing ticks make {gaps.number} gaps, which depend on the states before or after them {test_words}"
    if gaps.independent:
        return f"missing ticks make {gaps.number} gaps; states before and after them are like all others {test_words}"
    return f"missing ticks make {gaps.number} gaps, too few to tell whether they depend on states"


def _left_out_words(plan: AutoPlan) -> str:
    """Say what epsilon each donor would have if the plan had been made without that donor's recording."""
    loss_texts = [f"{donor} of {len(plan.left_out)}: {loss:.2g}" for donor, loss in enumerate(plan.left_out, 1)]
    count_above = sum(loss > plan.question.epsilon for loss in plan.left_out)
    return (
        f"Epsilon {plan.question.epsilon:g} is for people like these. For somebody whom the plan did not see, epsilon "
        f"is (recording by recording, left out in turn) {', '.join(loss_texts)}. That is above the promise for "
        f"{count_above} of {len(plan.left_out)}."
    )


def _stretch_words(attack: StretchAttack, seconds: int, epsilon: float) -> str:
    """Say how far the odds about a whole stretch moved for an attacker who knows all other days."""
    words_by_secret = {"more than usual": "saw more of it than usual", "at least half": "was mostly so"}
    return (
        f"An attacker who knows all other days was asked whether any {stretch_words(seconds)} "
        f"{words_by_secret.get(attack.secret, 'saw its beginning')}. His odds changed by a factor of at most "
        f"{attack.furthest:.2f}. (Epsilon allows {epsilon_to_odds(epsilon):.2f}.) He guessed {attack.success:.1%} "
        f"right with the release and {attack.guess:.1%} without it."
    )


def _profile_words(plan: AutoPlan, blocks: DayBlocks) -> Iterator[str]:
    """Say in which time zone the parts of the day lie, what guessing is, and why a profile was chosen."""
    if plan.question.want is None:
        yield f"No other answer is useful at epsilon {plan.question.epsilon:g}, so the plan is a profile over days."
    zone = plan.question.blocks.partition("/")[2]
    zone_words = f"Times of day are in {zone or 'UTC'}"
    if not zone:
        offset_words, seconds = " and ".join(plan.readings.offsets), blocks.seconds
        block_length = f"{seconds / 3600:g}h" if seconds % 3600 == 0 else f"{seconds / 60:.0f}m"
        zone_words += f", while the recording's times are at {offset_words}" if offset_words else ""
        zone_words += f". For another zone, add it as in --blocks {block_length}/Europe/Berlin"
    yield f"{zone_words}."
    yield (
        "Guessing gives every part of the day the same share, the best one. A profile shows habits, and a promise "
        "about a stretch does not hide habits."
    )


def _adversary_note(plan: AutoPlan) -> Iterator[str]:
    """Yield a note if it makes no difference which adversary was asked for."""
    classes = [candidate.chains for candidate in (plan.recommended, *plan.candidates) if candidate.chains is not None]
    if plan.question.adversary != "universal" and classes and classes[0].changes:
        yield (
            f"--adversary {plan.question.adversary} changes nothing here. The chains of this recording change over "
            "time, and then the bound of the universal adversary is used for every adversary."
        )


def _attack_words(attack: Attack, release: Candidate) -> str:
    interval_words = f" ({attack.low:.1%} to {attack.high:.1%})" if attack.low < attack.high else ""
    return (
        f"Test data: the strongest attacker that was run ({attack.attacker}) guessed {attack.success:.1%} "
        f"right{interval_words} with the release and {attack.guess:.1%} without it. "
        f"Epsilon {release.epsilon:g} allows {attack.ceiling:.1%}."
    )


def _odds_words(attack: Attack, release: Candidate, stretches: Sequence[Stretch]) -> str:
    """Say how far odds moved for an attacker who knows the habits beforehand, and for attackers who learn them.

    `stretches` are the policy's losses about stretches, that of a single tick first.
    """
    allowed_factor = epsilon_to_odds(release.epsilon)
    tick_factor = epsilon_to_odds(stretches[0].epsilon) if stretches else allowed_factor
    tick_words = f", and {tick_factor:.2g} for a single tick" if tick_factor < 0.9 * allowed_factor else ""
    sentence = (
        "Test data: for an attacker who already knows the habits, the odds on a tick changed by a factor of at most "
        f"{attack.furthest:.2g}. Epsilon {release.epsilon:g} allows {allowed_factor:.2g}{tick_words}."
    )
    if release.learner is None:
        return sentence
    factor_range = range_text([*map(_factor_text, sorted(attack.furthest or 1.0 for attack in release.learners))])
    share_range = range_text([f"{share:.1%}" for share in sorted(attack.beyond or 0.0 for attack in release.learners)])
    return (
        f"{sentence} Habits are not protected. For an attacker who learns them from the whole recording "
        f"({release.learner.attacker}) the largest factor is {factor_range}, in {len(release.learners)} draws of the "
        f"noise. The factor is above {allowed_factor:.2g} for {share_range} of ticks."
    )


def _factor_text(factor: float) -> str:
    return f"{float(f'{factor:.2g}'):g}" if factor < _WITHOUT_BOUND else f"more than {_WITHOUT_BOUND:,}"


def range_text(number_texts: Sequence[str]) -> str:
    """Join the first and the last of increasing numbers by "to"; one number if both read alike."""
    return number_texts[0] if number_texts[0] == number_texts[-1] else f"{number_texts[0]} to {number_texts[-1]}"


def _useless_words(plan: AutoPlan) -> Iterator[str]:
    """Say that no answer is useful, which answer comes nearest, and what would have to change."""
    question = plan.question
    if plan.reasons:
        yield from refusal_words(plan.reasons)
        return
    compared_kind = "symbols" if question.want == "now" else "windows"
    if (best_candidate := _best_candidate(plan, compared_kind, relative=True)) is None:
        yield f"Not useful: nothing could be compared at epsilon {question.epsilon:g}."
    else:
        yield f"Not useful: {answer_words(plan, best_candidate)}, {quality_words(best_candidate, at_least=True)}."
        if question.within is not None and best_candidate.useful and best_candidate.expected_error > question.within:
            yield f"That is better than guessing, but not within {error_words(question.within)}."
        if question.window is not None:
            yield "Only this length was compared. Without --window other lengths are, and one may be useful."
        if (error := _day_error(plan, _best_candidate(plan, compared_kind) or best_candidate)) is not None:
            noise_words = f"Over a day the noise alone is off by {error_words(error)}"
            yield f"{noise_words}. The recording is too short to judge that."
        if question.protect and best_candidate.blocks is None:
            yield from _trade_off_words(plan, best_candidate)
        if question.want == "now":
            yield _limit_words(best_candidate)
    if plan.least_epsilon is not None:
        yield (
            f"The least epsilon compared at which an answer may be useful is {plan.least_epsilon:g}"
            f"{_LEVELS[privacy_of(plan.least_epsilon)]}{_answer_at_epsilon(plan, plan.least_epsilon)}."
        )
    elif plan.scarce_answer:
        candidate, epsilon = plan.scarce_answer
        judged_words = f"{candidate.judged} answer{'s' * (candidate.judged != 1)}"
        yield (
            f"The recording is too short to tell. By its {judged_words}, {answer_words(plan, candidate)} may be useful "
            f"at epsilon {epsilon:g}. A verdict needs {LEAST_JUDGED} answers."
        )
    elif plan.curves:
        yield f"Nothing useful up to epsilon {max(epsilon for curve in plan.curves for epsilon, _ in curve.points):g}."


def refusal_words(reasons: Sequence[str]) -> Iterator[str]:
    """Yield the reasons why nothing can be useful, as sentences."""
    yield f"Not useful: {reasons[0]}."
    for reason in reasons[1:]:
        yield f"{reason[0].upper()}{reason[1:]}."


def _limit_words(candidate: Candidate) -> str:
    """Bound how often anybody can name the state now, however the symbols are used."""
    majority_share = 1.0 - candidate.guess_error
    limit = float(success_bound([majority_share, candidate.guess_error], candidate.epsilon))
    guess_words = f"naming the likelier state is right {percent(majority_share)} of the time"
    if limit <= majority_share + 1e-9:
        return f"At epsilon {candidate.epsilon:g} no symbol can beat that: {guess_words}."
    return f"At epsilon {candidate.epsilon:g} nobody can be right more often than {percent(limit)}; {guess_words}."


def _answer_at_epsilon(plan: AutoPlan, epsilon: float) -> str:
    """Describe the answer nearest to useful at a larger epsilon; "" unless answers on the state now were compared."""
    curves = [curve for curve in plan.curves if any(curve_epsilon == epsilon for curve_epsilon, _ in curve.points)]
    if plan.question.want != "now" or not curves:
        return ""
    best_curve = min(curves, key=lambda curve: dict(curve.points)[epsilon] / max(curve.candidate.guess_error, 1e-9))
    return f": {answer_words(plan, best_curve.candidate)}, off by {percent(dict(best_curve.points)[epsilon])}"


def _trade_off_words(plan: AutoPlan, candidate: Candidate) -> Iterator[str]:
    """Say how long windows must be for the protected stretch, and how long a stretch the compared windows protect."""
    question, period = plan.question, plan.readings.period
    if candidate.scale is None or candidate.chains is None or candidate.window_ticks is None or candidate.devices > 1:
        return
    error_limit, epsilon_text = question.within or AIM, f"epsilon {question.epsilon:g}"
    stretch_text, protected_ticks = stretch_words(question.protect or 0), question.ticks(period)
    needed_ticks = math.ceil(float(candidate.scale) / error_limit)
    formula = f"noise of {float(candidate.scale):.3g} ticks / {error_limit:.2g}"
    if len(plan.bins) == 1 and candidate.chains.changes:  # the universal bound in closed form
        odds_root, error_loss = math.sqrt(candidate.chains.odds_bound), error_limit * question.epsilon
        formula = f"({protected_ticks} + {odds_root:.3g} - 1)/{error_loss:.2g} ticks"
    needed_words = f"windows of {time_text(needed_ticks * period)}: {formula}"
    yield f"To protect any {stretch_text} at {epsilon_text}, an error of {percent(error_limit)} needs {needed_words}."
    windows = [other for other in plan.candidates if other.kind == "windows" and other.devices == 1]
    longest_ticks, window_ticks = max((longest_useful(plan, window), window.window_ticks or 0) for window in windows)
    if longest_ticks < 1:
        yield f"No window that was compared could be useful and protect even a single tick at {epsilon_text}."
    else:
        yield (
            f"Windows of {_span(plan, window_ticks)} could be useful and protect stretches of at most "
            f"{longest_ticks} tick{'s' * (longest_ticks > 1)} ({time_text(longest_ticks * period)}) at {epsilon_text}."
        )


def _day_error(plan: AutoPlan, candidate: Candidate) -> float | None:
    """Mean error that the noise alone makes over a day; `None` if no longer window can be asked for."""
    readings = plan.readings
    if not readings.steady or candidate.scale is None or candidate.window_ticks is None:
        return None
    day_ticks = round(86_400.0 / readings.period)
    if day_ticks <= candidate.window_ticks or plan.question.latency_seconds is not None:
        return None
    return group_error(candidate.scale, day_ticks, candidate.devices)[0]


def _best_candidate(plan: AutoPlan, kind: str, *, relative: bool = False) -> Candidate | None:
    """The candidate of a kind with the least error; profiles only if there is no other; `None` if there is none.

    For symbols, or if `relative`, errors are compared as shares of the error of guessing.
    """
    candidates = [
        candidate
        for candidate in plan.candidates
        if candidate.kind == kind and candidate.devices in (1, plan.question.devices)
    ]
    candidates = [candidate for candidate in candidates if candidate.blocks is None] or candidates
    is_relative = relative or kind == "symbols"
    return min(candidates, key=attrgetter("relative_error" if is_relative else "expected_error"), default=None)


def answer_words(plan: AutoPlan, candidate: Candidate) -> str:
    """Describe the answer of a candidate: which share or state, over which time, from which release."""
    if candidate.window_ticks is None:
        return f"a randomised symbol {_interval(plan, candidate)}, for the state now"
    share_words = plan.states.share_of
    share_words = share_words if share_words.startswith(("above ", "at ")) else f"of '{share_words}'"
    share_phrase = "the share of each state" if candidate.answers == "histogram" else f"the share {share_words}"
    if candidate.blocks is not None:
        share_phrase += f" in each {time_text(candidate.blocks.seconds)} of the day ({candidate.blocks.zone})"
    group_words = f", averaged over {candidate.devices} devices" if candidate.devices > 1 else ""
    symbol_words = f" from a randomised symbol {_interval(plan, candidate)}" if candidate.kind == "symbols" else ""
    return f"{share_phrase} over {_span(plan, candidate.window_ticks)}{group_words}{symbol_words}"


def _interval(plan: AutoPlan, candidate: Candidate) -> str:
    return "every tick" if candidate.every == 1 else f"every {_span(plan, candidate.every)}"


def _span(plan: AutoPlan, ticks: int) -> str:
    period = plan.readings.period
    if plan.readings.steady:
        return time_text(ticks * period)
    return f"about {time_text(float(f'{ticks * period:.2g}'))} ({ticks} ticks)"


def quality_words(candidate: Candidate, *, at_least: bool = False) -> str:
    """Compare an answer's error with the error of guessing; `at_least` says that the answer's may be larger."""
    if candidate.window_ticks is None and candidate.unit == "share":
        accuracy, guess_accuracy = 1.0 - candidate.expected_error, 1.0 - candidate.guess_error
        return f"{100.0 * accuracy:.1f} % right; {100.0 * guess_accuracy:.1f} % by guessing"
    suffix = " or more" if at_least else ""
    error, guess = error_texts(candidate.unit, candidate.expected_error, candidate.guess_error)
    return f"off by {error}{suffix} on average; guessing is off by {guess}"


def error_texts(unit: str, error: float, guess_error: float) -> tuple[str, str]:
    """Write an answer's error with its unit, and the error of guessing without one."""
    if unit == "metres":
        return f"{error:.0f} m", f"{guess_error:.0f}"
    return error_words(error), error_words(guess_error).partition(" ")[0]


def error_words(share: float) -> str:
    """Write the error of a share in percentage points, with two digits."""
    digits = f"{100.0 * share:.2g}" if share < 0.995 else f"{100.0 * share:.0f}"
    return f"{digits} point{'' if digits == '1' else 's'}"


def percent(share: float) -> str:
    """Write a share in per cent, with two digits."""
    return f"{100.0 * share:.2g} %" if share < 0.995 else f"{100.0 * share:.0f} %"


def _candidate_row(plan: AutoPlan, candidate: Candidate) -> list[str]:
    name = f"symbols {_interval(plan, candidate).partition(' (')[0]}" if candidate.kind == "symbols" else "windows"
    if candidate.blocks is not None:
        name = f"profile, {time_text(candidate.blocks.seconds)}"
    name += f", {candidate.devices} devices" if candidate.devices > 1 else ""
    return [
        name + " *" * candidate.same_release(plan.recommended),
        "the state now" if candidate.window_ticks is None else _span(plan, candidate.window_ticks).partition(" (")[0],
        percent(candidate.expected_error),
        percent(candidate.error_95),
        "-" if candidate.held_back_error is None else percent(candidate.held_back_error),
        percent(candidate.guess_error),
    ]


def _stretches(policy: AnyPolicy | None) -> tuple[Stretch, ...]:
    if not isinstance(policy, Policy):
        return ()
    return policy.bound(policy.verify()).rows(policy.clock.period_us, policy.guarantee.epsilon)


def auto_document(plan: AutoPlan, policy: AnyPolicy | None) -> JsonObject:
    """The plan as an object for JSON."""
    readings, question, stretches = plan.readings, plan.question, _stretches(policy)
    ticks = question.ticks(readings.period * plan.recommended.every)
    return {
        "useful": plan.recommended.kind != "none",
        **promise_document(question.epsilon, question.protect or 0, ticks, stretches),
        "stay_99_ticks": plan.stay,
        "recommended": candidate_document(plan.recommended),
        "candidates": [candidate_document(candidate) for candidate in plan.candidates],
        "verdict": [*verdict(plan, policy)],
        "least_epsilon": plan.least_epsilon,
        "covered": plan.covered,
        "gaps": None if plan.gaps is None else plan.gaps._asdict(),
        "left_out": [loss if math.isfinite(loss) else None for loss in plan.left_out],
        "protected": protected_sentence(plan.recommended.discretiser),
        "stretches": stretch_documents(stretches),
        "readings": {
            "source": readings.source,
            "column": readings.column,
            "kind": readings.kind,
            "ticks": len(readings.segments),
            "period_seconds": readings.period,
            "notes": [*readings.notes, *plan.states.notes],
        },
        "read": [facts._asdict() for facts in readings.facts],
    }


def candidate_document(candidate: Candidate) -> JsonObject:
    """A candidate as an object for JSON; an unknown error is null."""
    fields = {name: value for name, value in vars(candidate).items() if name not in _NOT_SHOWN}
    return {
        **{name: None if isinstance(value, float) and math.isnan(value) else value for name, value in fields.items()},
        "bytes_per_day": candidate.bytes_per_day,
        "unit": candidate.unit,
        "discretiser": candidate.discretiser.model_dump(mode="json"),
        "chains": None if candidate.chains is None else candidate.chains.model_dump(mode="json"),
        "scale": None if candidate.scale is None else str(candidate.scale),
        "blocks": None
        if candidate.blocks is None
        else {"zone": candidate.blocks.zone, "seconds": candidate.blocks.seconds},
        **{name: _attack_document(getattr(candidate, name)) for name in ("attack", "known_chain")},
        "learners": [_attack_document(attack) for attack in candidate.learners],
        "stretch": None if candidate.stretch is None else candidate.stretch._asdict(),
    }


def _attack_document(attack: Attack | None) -> JsonObject | None:
    return None if attack is None else {name: value for name, value in vars(attack).items() if name != "epsilon_low"}
