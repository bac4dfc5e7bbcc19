"""Describe a plan for places: verdicts, a report, and an object for JSON."""

from __future__ import annotations

from typing import Any

from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.policies import AnyPolicy
from fugu.contract.stretches import Stretch
from fugu.library.auto_words import candidate_document, thinned_words
from fugu.library.guarantee import promise_document, promise_words, stretch_documents, stretch_table
from fugu.library.report import Line, Table
from fugu.places.composition import measured_stretches
from fugu.planning.auto_places import PlacePlan
from fugu.planning.candidates import Candidate
from fugu.recordings.summary import summary, time_words

__all__ = ["place_document", "place_report", "place_verdict", "place_words"]

_COLUMNS = ("a point", "cells of", "of one", "off by", "95 % within", "test data", "guessing")


def place_report(plan: PlacePlan, policy: AnyPolicy | None) -> list[Line | Table]:
    """Report how the recording was read, the verdicts with reasons, the candidates, and the losses of stretches."""
    usefulness, promise, *reasons = place_verdict(plan, policy)
    report: list[Line | Table] = [*map(Line, [*summary(plan.traces.source, plan.traces.facts), ""])]
    report += [Line(usefulness, bold=True), Line(promise, bold=True), *map(Line, reasons)]
    report.append(Line(f"- {len(plan.traces.places)} places{_interval(plan, 1, ', one ')}"))
    if plan.candidates:
        title = f"Compared, at epsilon {plan.question.epsilon:g} for all points together"
        report += [
            Table(title, _COLUMNS, [_candidate_row(plan, index) for index in range(len(plan.candidates))]),
            Line("Of one: epsilon of a single point. Off by: mean distance of the best guess from all points so far."),
            Line("Guessing: always the most central cell. Test data: rows that were not used for planning."),
        ]
    if isinstance(policy, MeasurePolicy):
        report.append(stretch_table(_stretches(policy)))
    return report


def place_verdict(plan: PlacePlan, policy: AnyPolicy | None) -> list[str]:
    """List sentences on the plan: whether it is useful, whether it is private, then the reasons."""
    recommended, epsilon = plan.recommended, plan.question.epsilon
    stretches = _stretches(policy) if isinstance(policy, MeasurePolicy) else ()
    promise = promise_words(epsilon, 0, stretches)
    if recommended.kind == "points":
        lines = [
            f"Useful: {place_words(plan, recommended)}, {_quality_words(recommended)}.",
            promise,
            f"95 % of places are off by at most {recommended.error_95:.0f} m.",
            f"Test data, not used for planning: off by {recommended.held_back_error:.0f} m.",
        ]
        if recommended.attack is not None:
            lines.append(
                f"Test data: the strongest attacker that was run ({recommended.attack.attacker}) named "
                f"{recommended.attack.success:.1%} of cells right with the release and {recommended.attack.guess:.1%} "
                f"without it. Epsilon {recommended.epsilon:g} allows {recommended.attack.ceiling:.1%}."
            )
        return [
            *lines,
            f"Protected: the cell at a tick. Epsilon {recommended.epsilon:g} is for all points together, and "
            f"{recommended.point_epsilon:.3g} for one. It is proven against any side information about places, if "
            "places are in the class of chains. Habits are not protected.",
            *([thinned_words(_interval(plan, recommended.every))] if recommended.every > 1 else []),
        ]
    if plan.reasons:
        reasons = [f"{reason[0].upper()}{reason[1:]}." for reason in plan.reasons[1:]]
        return [f"Not useful: {plan.reasons[0]}.", promise, *reasons]
    best_candidate = min(plan.candidates, key=lambda candidate: candidate.expected_error)
    lines = [
        f"Not useful: {place_words(plan, best_candidate)}, {_quality_words(best_candidate, at_least=True)}.",
        promise,
        f"95 % of places are off by at most {best_candidate.error_95:.0f} m.",
    ]
    if plan.least_epsilon is not None:
        return [*lines, f"Nothing useful below epsilon {plan.least_epsilon:g}."]
    return [*lines, f"Nothing useful up to epsilon {max(e for curve in plan.curves for e, _ in curve.points):g}."]


def _quality_words(candidate: Candidate, *, at_least: bool = False) -> str:
    """Compare the error of points with that of guessing; with `at_least` the error may be larger than this."""
    suffix = " or more" if at_least else ""
    return f"off by {candidate.expected_error:.0f} m{suffix} on average; guessing is off by {candidate.guess_error:.0f}"


def place_words(plan: PlacePlan, candidate: Candidate) -> str:
    """Name a candidate by the interval between its points and the side of its cells."""
    cell_side = plan.sides[next(i for i, other in enumerate(plan.candidates) if other.same_release(candidate))]
    return f"a point {_interval(plan, candidate.every)} for cells of {cell_side:g} m"


def place_document(plan: PlacePlan, policy: AnyPolicy | None) -> dict[str, Any]:
    """The plan as an object for JSON."""
    stretches = _stretches(policy) if isinstance(policy, MeasurePolicy) else ()
    return {
        "useful": plan.recommended.kind != "none",
        **promise_document(plan.question.epsilon, 0, 1, stretches),
        "recommended": candidate_document(plan.recommended),
        "candidates": [candidate_document(candidate) for candidate in plan.candidates],
        "verdict": place_verdict(plan, policy),
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


def _stretches(policy: MeasurePolicy) -> tuple[Stretch, ...]:
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


def _interval(plan: PlacePlan, every: int, prefix: str = "") -> str:
    return f"{prefix}every {time_words(every * plan.period)}"
