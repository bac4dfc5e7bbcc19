"""Describe a plan for places: verdicts, a report, and an object for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.policies import AnyPolicy
from fugu.contract.stretches import Stretch
from fugu.library.auto_words import candidate_document, quality_words, refusal_words, thinned_words, verdict_lines
from fugu.library.guarantee import promise_document, promise_words, stretch_documents, stretch_table
from fugu.library.report import JsonObject, Line, Report, Table
from fugu.places.composition import measured_stretches
from fugu.planning.auto_places import PlacePlan
from fugu.planning.candidates import Candidate
from fugu.recordings.summary import summary, time_text

__all__ = ["place_document", "place_report", "place_verdict", "place_words"]

_COLUMNS = ("a point", "cells of", "of one", "off by", "95 % within", "test data", "guessing")


def place_report(plan: PlacePlan, policy: AnyPolicy | None) -> Report:
    """Report how the recording was read, the verdicts with reasons, the candidates, and the losses of stretches."""
    yield from map(Line, [*summary(plan.traces.source, plan.traces.facts), ""])
    yield from verdict_lines(place_verdict(plan, policy))
    yield Line(f"- {len(plan.traces.places)} places, one {_interval(plan, 1)}")
    if plan.candidates:
        title = f"Compared, at epsilon {plan.question.epsilon:g} for all points together"
        yield Table(title, _COLUMNS, [_candidate_row(plan, index) for index in range(len(plan.candidates))])
        yield Line("Of one: epsilon of a single point. Off by: mean distance of the best guess from all points so far.")
        yield Line("Guessing: always the most central cell. Test data: rows that were not used for planning.")
    if isinstance(policy, MeasurePolicy):
        yield stretch_table(_stretches(policy))


def place_verdict(plan: PlacePlan, policy: AnyPolicy | None) -> Iterator[str]:
    """Yield sentences on the plan: whether it is useful, whether it is private, then the reasons."""
    recommended = plan.recommended
    promise = promise_words(plan.question.epsilon, 0, _stretches(policy))
    if recommended.kind == "points":
        yield f"Useful: {place_words(plan, recommended)}, {quality_words(recommended)}."
        yield promise
        yield f"95 % of places are off by at most {recommended.error_95:.0f} m."
        yield f"Test data, not used for planning: off by {recommended.held_back_error:.0f} m."
        if (attack := recommended.attack) is not None:
            yield (
                f"Test data: the strongest attacker that was run ({attack.attacker}) named {attack.success:.1%} of "
                f"cells right with the release and {attack.guess:.1%} without it. Epsilon {recommended.epsilon:g} "
                f"allows {attack.ceiling:.1%}."
            )
        yield (
            f"Protected: the cell at a tick. Epsilon {recommended.epsilon:g} is for all points together, and "
            f"{recommended.point_epsilon:.3g} for one. It is proven against any side information about places, if "
            "places are in the class of chains. Habits are not protected."
        )
        if recommended.every > 1:
            yield thinned_words(_interval(plan, recommended.every))
    elif plan.reasons:
        usefulness, *reasons = refusal_words(plan.reasons)
        yield from (usefulness, promise, *reasons)
    else:
        best_candidate = min(plan.candidates, key=attrgetter("expected_error"))
        yield f"Not useful: {place_words(plan, best_candidate)}, {quality_words(best_candidate, at_least=True)}."
        yield promise
        yield f"95 % of places are off by at most {best_candidate.error_95:.0f} m."
        if plan.least_epsilon is not None:
            yield f"Nothing useful below epsilon {plan.least_epsilon:g}."
        else:
            yield f"Nothing useful up to epsilon {max(loss for curve in plan.curves for loss, _ in curve.points):g}."


def place_words(plan: PlacePlan, candidate: Candidate) -> str:
    """Name a candidate by the interval between its points and the side of its cells."""
    sides = zip(plan.sides, plan.candidates, strict=True)
    cell_side = next(side for side, other in sides if other.same_release(candidate))
    return f"a point {_interval(plan, candidate.every)} for cells of {cell_side:g} m"


def place_document(plan: PlacePlan, policy: AnyPolicy | None) -> JsonObject:
    """The plan as an object for JSON."""
    stretches = _stretches(policy)
    return {
        "useful": plan.recommended.kind != "none",
        **promise_document(plan.question.epsilon, 0, 1, stretches),
        "recommended": candidate_document(plan.recommended),
        "candidates": [candidate_document(candidate) for candidate in plan.candidates],
        "verdict": [*place_verdict(plan, policy)],
        "least_epsilon": plan.least_epsilon,
        "protected": "the cell at a tick",
        "stretches": stretch_documents(stretches),
        "readings": {
            "source": plan.traces.source,
            "kind": "places",
            "ticks": len(plan.traces.places),
            "period_seconds": plan.period,
        },
    }


def _stretches(policy: AnyPolicy | None) -> tuple[Stretch, ...]:
    if not isinstance(policy, MeasurePolicy):
        return ()
    assert policy.stream_loss.epsilon is not None
    return measured_stretches(policy.measurement, policy.stream_loss.epsilon, policy.clock.period_us)


def _candidate_row(plan: PlacePlan, index: int) -> list[str]:
    candidate = plan.candidates[index]
    return [
        _interval(plan, candidate.every) + (" *" if candidate.same_release(plan.recommended) else ""),
        f"{plan.sides[index]:g} m",
        f"{candidate.point_epsilon:.3g}",
        *(f"{error:.0f} m" for error in (candidate.expected_error, candidate.error_95)),
        "-" if candidate.held_back_error is None else f"{candidate.held_back_error:.0f} m",
        f"{candidate.guess_error:.0f} m",
    ]


def _interval(plan: PlacePlan, every: int) -> str:
    return f"every {time_text(every * plan.period)}"
