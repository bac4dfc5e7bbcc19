"""Describe plans of streams and windows as results of commands: JSON, tables and sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

from fugu.attackers.evaluation import success_bound
from fugu.contract.dating import settling_ticks
from fugu.contract.discretisers import Discretiser
from fugu.contract.noise_table import SCALE
from fugu.contract.sentences import protected_sentence
from fugu.contract.stretches import Stretch
from fugu.library.guarantee import (
    change_words,
    promise_document,
    promise_words,
    stretch_documents,
    stretch_table,
    time_words,
)
from fugu.library.report import JsonObject, Line, Part, Report, Result, Table
from fugu.planning.answers import WindowAccuracy, error_of, window_error
from fugu.planning.chain_source import ChainSource, cost_words
from fugu.planning.planner import Option, Refusal, StreamPlan
from fugu.planning.question import microseconds
from fugu.planning.streams_plan import StreamsPlan
from fugu.planning.window_plan import JointPlan
from fugu.privacy.chain_class import Covered
from fugu.privacy.window_mechanisms import JointBound, Mechanism, PlannedNoise, WindowRelease, WindowRequest

__all__ = ["joint_result", "noise_result", "releases_loss", "stream_result", "windows_result"]

_FEW_BITS = 0.01
_ROUNDING = 1e-6
_SEGMENTS = (
    "this holds only where readings come in segments of at most so many ticks that are independent of one another. No "
    "device can check that: it is a comparison, and goes into no policy."
)


def stream_result(plan: StreamPlan, source: ChainSource, discretiser: Discretiser | None) -> Result:
    """Describe the plan of a symbol stream.

    In JSON rho0 and rho1 are the exact values threshold / 2^32. Epsilon is the loss of the table, and epsilon_asked the
    loss that was allowed. Information per hour is null if a tick's length is unknown; bits_per_tick is always given.
    """
    return Result(lambda: _plan_document(plan, source, discretiser), _plan_report(plan, source, discretiser))


def _plan_document(plan: StreamPlan, source: ChainSource, discretiser: Discretiser | None) -> JsonObject:
    request, chosen = plan.request, plan.chosen
    return {
        **_option_document(plan, chosen),
        **promise_document(request.epsilon, request.protect, chosen.release.guarantee.stretch_ticks, chosen.stretches),
        "settling_ticks": settling_ticks(chosen.release.chains, request.epsilon),
        "protected": protected_sentence(discretiser),
        "adversary": chosen.release.guarantee.adversary,
        "adversary_asked": request.adversary,
        "objective": request.objective,
        "epsilon_asked": request.epsilon,
        "chains": chosen.release.chains.model_dump(mode="json"),
        "transition": chosen.transition.tolist(),
        "weights": chosen.table.weights(),
        "periods": [
            {"every": option.every, "refused": option.reason}
            if isinstance(option, Refusal)
            else _option_document(plan, option)
            for option in plan.periods
        ],
        "better_every": None if plan.better is None else plan.better.every,
        "unaware": None if plan.unaware is None else plan.unaware._asdict(),
        "advice": [*_advice(plan)],
        "notes": list(source.notes),
        "warnings": list(source.warnings),
    }


def _option_document(plan: StreamPlan, option: Option) -> JsonObject:
    seconds, loss = plan.request.period_seconds, option.release.loss._asdict()
    flips = _flip_weights(option) if option.table.states == 2 else (None, None)
    return {
        "every": option.every,
        "period_seconds": None if seconds is None else seconds * option.every,
        **{f"rho{state}": None if flip is None else flip / SCALE for state, flip in enumerate(flips)},
        **{f"threshold{state}": flip for state, flip in enumerate(flips)},
        "epsilon": option.epsilon,
        **{name: loss[name] for name in ("epsilon_01", "epsilon_10", "bound")},
        "expected_flips": option.flips,
        **option.utility._asdict(),
        "bits_per_tick": option.utility.bits_per_reading / option.every,
        "bits_per_hour": None if seconds is None else option.bits_per_hour,
        "stretches": stretch_documents(option.stretches),
    }


def _plan_report(plan: StreamPlan, source: ChainSource, discretiser: Discretiser | None) -> Report:
    request, chosen = plan.request, plan.chosen
    yield Line(promise_words(request.epsilon, request.protect, chosen.stretches), bold=True)
    noise_columns = ("rho0", "rho1") if chosen.table.states == 2 else ("wrong symbol",)
    unit = "bits/tick" if request.period_seconds is None else "bits/hour"
    for note in source.notes:
        yield Line(note)
    yield Line(f"Chains: {chosen.release.chains.label}; one reading every {_interval(plan, chosen.every)}")
    if between_words := _between_words(plan):
        yield Line(between_words)
    yield Line(protected_sentence(discretiser))
    yield Table("The stream", ("", ""), _stream_facts(plan))
    yield stretch_table(chosen.stretches, discretiser=discretiser)
    period = request.period_seconds and chosen.every * request.period_seconds
    yield Line(change_words(chosen.release.chains, request.epsilon, period))
    yield Table(
        f"The same epsilon ({request.epsilon:g}, {request.adversary}) at longer sampling periods",
        ("a reading every", *noise_columns, "estimate right", "majority", "bits/reading", unit),
        [_period_row(plan, option) for option in plan.periods],
    )
    for sentence in _advice(plan):
        yield Line(sentence, bold=True)


def _between_words(plan: StreamPlan) -> str:
    """Say what it costs that readings between ticks may be known; "" if the noise is for the adversary asked for."""
    if plan.chosen.release.guarantee.adversary == plan.request.adversary:
        return ""
    cost = "" if plan.unaware is None else f", instead of {plan.unaware.bits_per_reading:.3g} if nobody could know them"
    return (
        "A tick is a reading that is taken. An attacker may know the readings in between, so the noise is the one "
        f"against any side information. A symbol carries {plan.chosen.utility.bits_per_reading:.3g} bits{cost}."
    )


def _advice(plan: StreamPlan) -> Iterator[str]:
    option = plan.chosen
    accuracies = [other.utility.accuracy for other in plan.periods if isinstance(other, Option)]
    if option.utility.bits_per_reading < _FEW_BITS:
        yield (
            f"At this period a symbol carries only {option.utility.bits_per_reading:.2g} bits. Neighbouring readings "
            "reveal so much of one another that each must be hidden almost entirely."
        )
    if plan.better is not None:
        yield _recommendation(plan, plan.better)
    elif max(accuracies, default=0.0) > option.utility.accuracy + 0.01:
        yield "Sampling less often makes each estimate better, but an hour of estimates carries less information."
    elif len(plan.periods) > 1:
        yield "Sampling less often gains nothing here."


def _recommendation(plan: StreamPlan, option: Option) -> str:
    chosen = plan.chosen
    factor = option.bits_per_hour / chosen.bits_per_hour
    accuracy_words = f"{option.utility.accuracy:.1%} of the estimates right instead of {chosen.utility.accuracy:.1%}"
    if option.utility.accuracy < option.utility.majority + 0.01:
        accuracy_words += " (a guess without any symbol is as good, because the state is rare)"
    return (
        f"Sampling less often is better: with one reading every {_interval(plan, option.every)}, {accuracy_words}, and "
        f"{factor:.3g} times the information in the same time, at the same epsilon. Try --every {option.every}."
    )


def _stream_facts(plan: StreamPlan) -> list[tuple[str, str]]:
    option, weights, guarantee = plan.chosen, _flip_weights(plan.chosen), plan.chosen.release.guarantee
    facts = [*option.table.flips] or [("Pr(each wrong symbol)", f"{weights[0] / SCALE:.10f}  ({weights[0]} of 2^32)")]
    facts += [
        ("epsilon achieved", f"{option.epsilon:.10f}  ({guarantee.adversary}; {option.release.loss.bound})"),
        ("symbols that are not the state", f"{option.flips:.2%}"),
        ("gateway's estimate is right", f"{option.utility.accuracy:.2%}"),
        ("a guess without any symbol", f"{option.utility.majority:.2%}"),
    ]
    if len(weights) == 2:
        q, r = option.transition[0, 1], option.transition[1, 0]
        distribution = [r / (q + r), q / (q + r)]
        bound = success_bound(distribution, option.release.loss.epsilon_01, option.release.loss.epsilon_10)
        facts.append(("an attacker is right at most, if readings are in the class", f"{bound:.2%}"))
    return facts


def _flip_weights(option: Option) -> tuple[int, ...]:
    """Weights of a wrong symbol, as shares of 2^32: one per state if there are two states, else a single common one."""
    table = option.table
    return table.flip_weights if table.states == 2 else (table.weights()[0][1],)


def _period_row(plan: StreamPlan, option: Option | Refusal) -> list[str]:
    name = _interval(plan, option.every) + (" *" if option.every == plan.chosen.every else "")
    if isinstance(option, Refusal):
        return [name, *["-"] * (len(_flip_weights(plan.chosen)) + 4)]
    return [
        name,
        *(f"{flip / SCALE:.5f}" for flip in _flip_weights(option)),
        f"{option.utility.accuracy:.2%}",
        f"{option.utility.majority:.2%}",
        f"{option.utility.bits_per_reading:.4f}",
        f"{option.bits_per_hour:.4g}",
    ]


def _interval(plan: StreamPlan, every: int) -> str:
    seconds = plan.request.period_seconds
    if seconds is not None:
        return f"{seconds * every:g} s"
    return "tick" if every == 1 else f"{every} ticks"


_COLUMNS = ("mechanism", "scale", "about", "further", "start", "determined by")
_SHARES = ("share (mean)", "share (95 %)")
_WINDOW_COLUMNS = ("window", "ticks", "counts", "scale", "off by (mean)", "off by (95 %)", *_SHARES)
_LONGEST = 1 << 31
_TWO_DIGITS = Context(prec=2, rounding=ROUND_CEILING)


def noise_result(
    request: WindowRequest,
    notes: Sequence[str],
    planned_noises: Sequence[PlannedNoise],
    best_plan: PlannedNoise,
    refusals: Mapping[Mechanism, str] | None,
) -> Result:
    """Describe the noise of each mechanism, or of one; `refusals`, which say why others have none, are then `None`."""
    documents = [_noise_document(request, plan) for plan in planned_noises]
    comparison = {} if refusals is None else {"mechanisms": documents, "refused": refusals}
    document = {**_noise_document(request, best_plan), "notes": notes, **comparison}
    return Result(document, _noise_report(request, notes, planned_noises, best_plan, refusals))


def _noise_report(
    request: WindowRequest,
    notes: Sequence[str],
    planned_noises: Sequence[PlannedNoise],
    best_plan: PlannedNoise,
    refusals: Mapping[Mechanism, str] | None,
) -> Report:
    yield Line(promise_words(request.epsilon, 0, best_plan.stretches), bold=True)
    for note in notes:
        yield Line(note)
    span_words = "windows without end" if request.length is None else f"one window of {request.length} ticks"
    if request.segments is not None:
        span_words += f", independent segments of at most {request.segments} ticks"
    title = f"Noise for a {request.query} at epsilon {request.epsilon:g}, {request.adversary} adversary, {span_words}"
    least_plan = None if refusals is None else best_plan
    yield Table(title, _COLUMNS, [_noise_row(plan, is_least=plan is least_plan) for plan in planned_noises])
    for mechanism, reason in (refusals or {}).items():
        yield Line(f"{mechanism}: {reason}")
    error = _number_error(request, best_plan)
    share_words = "" if request.length is None else f", {_percent(error.share_95)} of the window"
    yield Line(
        f"With the noise of {best_plan.noise.mechanism} a number is off by {error.count_mean:.3g} on average, and 95 % "
        f"of the time by at most {error.count_95}{share_words}."
    )
    yield stretch_table(best_plan.stretches, f" ({best_plan.noise.mechanism})")
    yield Line(
        "Scale: of the Laplace noise on every number, in ticks, as in a policy. Further: whether the same epsilon "
        "covers a stream of such windows that do not overlap. Start: the distributions that the first tick may have."
    )
    if request.segments is not None:
        yield Line(_SEGMENTS)
    elif request.length is not None:
        yield Line(
            "Without --length the noise of chain and quilts covers a stream of windows, and a policy can have it."
        )
    elif best_plan.device is None:
        yield Line("No policy can declare these chains with their start, so a device cannot check this noise.")


def _noise_row(plan: PlannedNoise, *, is_least: bool) -> tuple[str, ...]:
    noise = plan.noise
    name = f"{noise.mechanism} (least)" if is_least else noise.mechanism
    raise_words = f"; raised from {noise.scale:.6g} to what a device accepts" if plan.raised else ""
    composes_text = "yes" if noise.composes else "no"
    return name, str(plan.scale), f"{float(plan.scale):.6g}", composes_text, noise.start, noise.reason + raise_words


def _number_error(request: WindowRequest, plan: PlannedNoise) -> WindowAccuracy:
    """The error of one number of a window, which is of 2^31 ticks if the request has no length."""
    return window_error(plan.scale, _LONGEST if request.length is None else request.length)


def _noise_document(request: WindowRequest, plan: PlannedNoise) -> JsonObject:
    noise = plan.noise
    return {
        **promise_document(request.epsilon, 0, 1, plan.stretches),
        "mechanism": noise.mechanism,
        "scale": str(plan.scale),
        "epsilon": noise.epsilon,
        "adversary": noise.adversary,
        "start": noise.start,
        "query": request.query,
        "length": request.length,
        "segments": request.segments,
        "error": {
            name: value
            for name, value in _number_error(request, plan)._asdict().items()
            if request.length is not None or name.startswith("count")
        },
        "composes": noise.composes,
        "protects_correlated": noise.mechanism != "entry",
        "chains": None if plan.device is None else plan.device.model_dump(mode="json"),
        "stretches": stretch_documents(plan.stretches),
        "reason": noise.reason,
    }


def windows_result(
    plan: JointPlan, protect: int, period: float | None, notes: Sequence[str], discretiser: Discretiser | None
) -> Result:
    """Describe the windows of a policy, with the errors of their answers; `protect` and `period` are in seconds."""
    stretches, period_us = _stretches(plan, period), microseconds(period)
    document = {
        **promise_document(plan.guarantee.epsilon, protect, plan.guarantee.stretch_ticks, stretches),
        "settling_ticks": settling_ticks(plan.chains, plan.guarantee.epsilon),
        "protected": protected_sentence(discretiser),
        "epsilon": plan.guarantee.epsilon,
        "adversary": plan.guarantee.adversary,
        "start": plan.start,
        "chains": plan.chains.model_dump(mode="json"),
        "loss": plan.loss._asdict(),
        "windows_loss": None if plan.windows_loss is None else plan.windows_loss._asdict(),
        "weights": None if plan.table is None else plan.table.weights(),
        "windows": [
            {
                **window.model_dump(mode="json"),
                "seconds": None if period is None else window.length * period,
                "error": error_of(window, period_us)._asdict(),
            }
            for window in plan.windows
        ],
        "stretches": stretch_documents(stretches),
        "notes": notes,
    }
    return Result(document, _joint_report(plan, protect, period, notes, discretiser))


def _joint_report(
    plan: JointPlan, protect: int, period: float | None, notes: Sequence[str], discretiser: Discretiser | None
) -> Report:
    stretches, period_us = _stretches(plan, period), microseconds(period)
    yield Line(promise_words(plan.guarantee.epsilon, protect, stretches), bold=True)
    for note in notes:
        yield Line(note)
    yield Line(protected_sentence(discretiser))
    release_words = "Windows" if plan.table is None else "Windows and symbols"
    setting_words = f"{plan.guarantee.adversary} adversary, {plan.start} start"
    window_rows, share_lines = [], []
    for window in plan.windows:
        error = error_of(window, period_us)
        states_text = window.states if isinstance(window.states, str) else ", ".join(map(str, window.states))
        noise_cells = f"{float(Fraction(window.scale)):.6g}", f"{error.count_mean:.3g}", str(error.count_95)
        window_rows.append((window.name, str(window.length), states_text, *noise_cells, *map(_percent, error[2:])))
        span_words = f"{window.length} ticks" if period is None else time_words(window.length * period)
        share_words = "share" if window.query.blocks is None else "share of each part of the day"
        share_lines.append(
            Line(f"The {share_words} over {span_words} is off by at most {_percent(error.share_95)}, 95 % of the time.")
        )
    title = f"{release_words} at epsilon {plan.guarantee.epsilon:g} together, {setting_words}"
    yield Table(title, _WINDOW_COLUMNS, window_rows)
    yield from share_lines
    if (mechanism := plan.windows[0].mechanism) != "chain":
        yield Line(
            f"Planned by {mechanism}, which is for single ticks. The chain accountant, and so the device, computes "
            f"epsilon {plan.loss.epsilon:.6g}."
        )
    if plan.table is not None:
        probabilities = ", ".join(f"{weights[state] / 2**32:.4f}" for state, weights in enumerate(plan.table.weights()))
        yield Line(f"a symbol every tick is the true state with probability {probabilities}, by state")
        if plan.windows_loss is not None:
            epsilon_text = f"{plan.windows_loss.epsilon:.6g}"
            yield Line(f"whoever sees the windows alone learns at most epsilon {epsilon_text} of a tick")
    yield stretch_table(stretches, discretiser=discretiser)
    yield Line(change_words(plan.chains, plan.guarantee.epsilon, period))


def _percent(share: float) -> str:
    """Write a share in percent, rounded up to two digits."""
    return f"{_TWO_DIGITS.create_decimal(Decimal(100.0 * share)).normalize():f} %"


def _stretches(plan: JointPlan, period: float | None) -> tuple[Stretch, ...]:
    return plan.bound.rows(microseconds(period), plan.guarantee.epsilon)


def joint_result(plan: StreamsPlan) -> Result:
    """Describe a plan of streams; in JSON `apart` is null if it was not computed, and "infinite" without a bound."""
    request = plan.request
    period_us = microseconds(request.period_seconds)
    stretches = plan.bound.rows(period_us, request.epsilon)
    document = {
        **promise_document(request.epsilon, request.protect, request.stretch_ticks, stretches),
        "settling_ticks": settling_ticks(plan.chains, request.epsilon),
        "epsilon": request.epsilon,
        "adversary": request.adversary,
        "epsilon_achieved": plan.bound.epsilon(request.stretch_ticks),
        "stretches": stretch_documents(stretches),
        "bound": plan.loss.bound,
        "chains": plan.chains.model_dump(mode="json"),
        "notes": list(_class_notes(plan)),
        "apart": "infinite" if plan.apart == math.inf else plan.apart,
        "streams": [
            {
                "name": stream.name,
                "rate": stream.rate,
                "rate_alone": stream.alone,
                "table": None if stream.table is None else [list(weights) for weights in stream.table.weights()],
                "windows": [window.model_dump(mode="json") for window in stream.windows],
                "errors": [error_of(window, period_us)._asdict() for window in stream.windows],
                **({} if stream.utility is None else stream.utility._asdict()),
            }
            for stream in plan.streams
        ],
    }
    return Result(document, _streams_report(plan, stretches))


def _streams_report(plan: StreamsPlan, stretches: Sequence[Stretch]) -> Report:
    request, chains, epsilon = plan.request, plan.chains, plan.bound.epsilon(plan.request.stretch_ticks)
    yield Line(promise_words(request.epsilon, request.protect, stretches), bold=True)
    states_words = "joint states, steps" if chains.steps == 1 else "pairs of states, two steps"
    odds_words = f"of odds ratios up to {chains.odds_ratio:.4g}"
    yield Line(f"Class: {chains.states} {states_words} {odds_words}, which may change from tick to tick.")
    for note in _class_notes(plan):
        yield Line(f"{note[0].upper()}{note[1:]}.")
    for stream in request.model.streams:
        yield Line(f"{stream.name}. {protected_sentence(stream.discretiser)}")
    scope_words = "" if len(plan.streams) == 1 else ", all streams together"
    achieved_words = f"epsilon achieved: {epsilon:.10f} of {request.epsilon:g}"
    yield Line(f"{achieved_words} ({request.adversary}; {plan.loss.bound}){scope_words}")
    if symbols := [(stream, stream.utility) for stream in plan.streams if stream.utility is not None]:
        yield Table(
            "Symbols, one every tick",
            ("stream", "tells of a tick", "wrong symbol", "estimate right", "a guess", "bits/reading"),
            [
                (
                    *(stream.name, f"{stream.rate:.6g} nats", f"{1.0 - max(stream.table.weights()[0]) / SCALE:.4%}"),
                    *(f"{utility.accuracy:.2%}", f"{utility.majority:.2%}", f"{utility.bits_per_reading:.4g}"),
                )
                for stream, utility in symbols
                if stream.table is not None
            ],
        )
    if plan.request.windows:
        yield Table(
            "Windows",
            ("stream", "window", "ticks", "scale", "off by (mean)", "off by (95 %)", "share (mean)"),
            [
                (
                    *(stream.name, window.name, str(window.length), window.scale),
                    *(f"{error.count_mean:.3g}", str(error.count_95), f"{error.share_mean:.1%}"),
                )
                for stream in plan.streams
                for window in stream.windows
                for error in [error_of(window, microseconds(request.period_seconds))]
            ],
        )
    if plan.apart is not None:
        rates_text = ", ".join(f"{stream.name} {stream.alone:.4g}" for stream in plan.streams)
        bound_text = "without any bound" if math.isinf(plan.apart) else f"{plan.apart:.4g}"
        yield Line(
            f"Planned one by one for epsilon {request.epsilon:g} each, they would tell {rates_text} nats of a tick, "
            f"and lose {bound_text} together.",
            bold=True,
        )
    discretisers = (stream.discretiser for stream in request.model.streams)
    memory_discretiser = next((discretiser for discretiser in discretisers if discretiser.remembers), None)
    yield stretch_table(stretches, discretiser=memory_discretiser)
    yield Line(change_words(plan.chains, plan.request.epsilon, plan.chains.period_us / 1_000_000))


def _class_notes(plan: StreamsPlan) -> tuple[str, ...]:
    """Say what it costs that devices know only odds ratios; empty unless the chain is taken as it is, or of order 2."""
    return cost_words(plan.chains, plan.chains.typical_matrices) if plan.request.known or plan.chains.steps > 1 else ()


def releases_loss(
    releases: Sequence[WindowRelease], start: Covered, losses: Sequence[JointBound], notes: Sequence[str]
) -> Result:
    """Describe the loss of several releases together for a kind of start; `notes` say how the class was made."""
    documents, loss_documents = [asdict(release) for release in releases], [loss._asdict() for loss in losses]
    subject_words = "release loses" if len(releases) == 1 else "releases lose"
    title = f"What {len(releases)} {subject_words} about a tick together, {start} start"
    loss_rows = [(loss.name, "" if loss.epsilon is None else f"{loss.epsilon:.6g}", loss.note) for loss in losses]
    footnote = "each row is a bound for every tick, against the ignorant adversary where no other is named."
    report: list[Part] = [*map(Line, notes), Table(title, ("bound", "epsilon", "why"), loss_rows), Line(footnote)]
    return Result({"releases": documents, "start": start, "bounds": loss_documents, "notes": notes}, report)
