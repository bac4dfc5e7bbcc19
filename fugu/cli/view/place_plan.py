"""The answer of `fugu plan auto` for places: sentences and a table, an object for JSON, and a page."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Any

from fugu.cli.view.auto_plan import candidate_document, percent, time_words
from fugu.cli.view.guarantee import promise_document, promise_words, show_stretches, stretch_documents
from fugu.cli.view.plan_page import colours, errors, page
from fugu.cli.view.terminal import say, show_table
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.policies import AnyPolicy
from fugu.contract.stretches import Stretch
from fugu.places.composition import measured_stretches
from fugu.planning.auto import Curve
from fugu.planning.auto_places import PlacePlan
from fugu.planning.candidates import Candidate

__all__ = ["place_document", "place_page", "show_places"]

_PLACE_COLUMNS = ("a point", "cells of", "of one", "off by", "95 % within", "held back", "guessing")


def show_places(plan: PlacePlan, policy: AnyPolicy | None) -> None:
    """Print the verdict, what was compared, and what stretches of time lose."""
    first, *more = place_verdict(plan)
    say(first, style="bold")
    say(promise_words(plan.question.epsilon, 0), style="bold")
    say(f"{plan.traces.source}: {len(plan.traces.places)} places{_every_place(plan, 1, ', one ')}")
    for sentence in more:
        say(sentence)
    if plan.candidates:
        title = f"What was compared, all points together within epsilon {plan.question.epsilon:g} about one of them"
        show_table(title, _PLACE_COLUMNS, [_place_row(plan, place) for place in range(len(plan.candidates))])
        say("of one: epsilon of a single point. off by: mean distance of the best guess from all points so far.")
        say("guessing: the most central cell, always.")
    if isinstance(policy, MeasurePolicy):
        show_stretches(_place_stretches(policy))


def place_verdict(plan: PlacePlan) -> list[str]:
    """Why, in sentences; the first one is the answer."""
    one, epsilon = plan.recommended, plan.question.epsilon
    if one.kind == "points":
        told = [
            f"Yes: release {place_words(plan, one)}. It is off by {one.expected_error:.0f} m on average, 95 % within "
            f"{one.error_95:.0f} m; always guessing is off by {one.guess_error:.0f} m.",
            f"On the part of the recording that was held back it is off by {one.held_back_error:.0f} m.",
        ]
        if one.attack is not None:
            told.append(
                f"There, the strongest of the attackers that were run ({one.attack.attacker}) names the cell "
                f"{one.attack.success:.1%} of the time, and {one.attack.guess:.1%} without what is released; epsilon "
                f"{one.epsilon:g} allows {one.attack.ceiling:.1%}."
            )
        return [
            *told,
            f"Protected is the cell at a tick, with epsilon {one.epsilon:g} of all points together "
            f"({one.point_epsilon:.3g} of one) against any side information about places; "
            "habits are not protected. It is proven if places are in the class of chains.",
        ]
    told = [f"No: nothing is recommended at epsilon {epsilon:g}."]
    if plan.reasons:
        return told + [f"{reason[0].upper()}{reason[1:]}." for reason in plan.reasons]
    best = min(plan.candidates, key=lambda each: each.expected_error)
    told.append(
        f"The most accurate, {place_words(plan, best)}, is off by {best.expected_error:.0f} m on average and no less, "
        f"95 % within {best.error_95:.0f} m; always guessing is off by {best.guess_error:.0f} m."
    )
    if plan.least_epsilon is not None:
        return [*told, f"Nothing useful below epsilon {plan.least_epsilon:g}."]
    return [*told, f"Nothing useful up to epsilon {max(e for curve in plan.curves for e, _ in curve):g}."]


def place_words(plan: PlacePlan, one: Candidate) -> str:
    """Words for the answer of a candidate."""
    side = plan.sides[next(i for i, each in enumerate(plan.candidates) if each.same_release(one))]
    return f"a point {_every_place(plan, one.every)} for cells of {side:g} m"


def place_document(plan: PlacePlan, policy: AnyPolicy | None) -> dict[str, Any]:
    """The plan as an object for JSON."""
    return {
        **promise_document(plan.question.epsilon, 0, 1),
        "recommended": candidate_document(plan.recommended),
        "candidates": [candidate_document(one) for one in plan.candidates],
        "verdict": place_verdict(plan),
        "least_epsilon": plan.least_epsilon,
        "protected": "the cell at a tick",
        "stretches": stretch_documents(_place_stretches(policy)) if isinstance(policy, MeasurePolicy) else [],
        "readings": {
            "source": plan.traces.source,
            "kind": "places",
            "ticks": len(plan.traces.places),
            "period_seconds": plan.period,
        },
    }


def _place_stretches(policy: MeasurePolicy) -> tuple[Stretch, ...]:
    assert policy.stream_loss.epsilon is not None
    return measured_stretches(policy.measurement, policy.stream_loss.epsilon, policy.clock.period_us)


def _place_row(plan: PlacePlan, place: int) -> list[str]:
    one = plan.candidates[place]
    return [
        _every_place(plan, one.every) + (" *" if one.same_release(plan.recommended) else ""),
        f"{plan.sides[place]:g} m",
        f"{one.point_epsilon:.3g}",
        *(f"{error:.0f} m" for error in (one.expected_error, one.error_95)),
        "-" if one.held_back_error is None else f"{one.held_back_error:.0f} m",
        f"{one.guess_error:.0f} m",
    ]


def _every_place(plan: PlacePlan, every: int, before: str = "") -> str:
    return f"{before}every {time_words(every * plan.period)}"


def place_page(plan: PlacePlan) -> str:
    """The page of a plan for places as HTML: errors as shares of what always guessing gives."""
    parts: list[str] = []
    curves = [
        Curve(
            replace(one, expected_error=one.expected_error / one.guess_error),
            tuple((e, off / one.guess_error) for e, off in curve),
        )
        for one, curve in zip(plan.candidates, plan.curves, strict=True)
        if one.guess_error
    ]
    if curves:
        parts += [
            "<h2>How far off answers are, by epsilon: 100 % is always guessing</h2>",
            errors(curves, plan.question.epsilon, plan.recommended),
        ]
        words = [f"{place_words(plan, one.candidate)}: {percent(one.candidate.expected_error)}" for one in curves]
        keys = zip(colours(curves), words, strict=True)
        rows = (f'<li><span class="key dash" style="color:{x}"></span>{escape(told)}</li>' for x, told in keys)
        parts.append(f"<ul>{''.join(rows)}</ul>")
    return page(plan.traces.source, place_verdict(plan), parts)
