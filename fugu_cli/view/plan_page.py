"""The page of `fugu plan auto`: one file with two pictures that needs nothing else, for phones as well.

The answer of `fugu plan auto` for places: sentences and a table, an object for JSON, and a page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.policies import AnyPolicy
from fugu.contract.stretches import Stretch
from fugu.places.composition import measured_stretches
from fugu.planning.auto import AutoPlan, Curve
from fugu.planning.auto_places import PlacePlan
from fugu.planning.candidates import Candidate
from fugu.recordings.summary import summary
from fugu.svg import points, svg
from fugu_cli.view.auto_plan import answer_words, candidate_document, percent, taken_words, time_words, verdict
from fugu_cli.view.guarantee import promise_document, promise_words, show_stretches, stretch_documents
from fugu_cli.view.terminal import answer, say, show_table

__all__ = [
    "answer_pictures",
    "errors",
    "place_document",
    "place_page",
    "place_verdict",
    "place_words",
    "plan_page",
    "tell_places",
]


class Axis:
    """From values to places in a picture, with a few round values to mark.

    Args:
        values: that have a place; the axis goes from the least to the largest.
        logarithmic: or linear, out to round values.
        first, last: places of its ends.
    """

    def __init__(self, values: Sequence[float], logarithmic: bool, first: float, last: float) -> None:
        seen = [value for value in values if math.isfinite(value) and (value > 0.0 or not logarithmic)] or [1.0]
        low, high = min(seen), max(seen)
        self._scale = math.log if logarithmic else float
        self.first, self.last = first, last
        if logarithmic:
            self._low, self._high = low, high if high > 1.01 * low else 2.0 * low
            self.marks = _powers(self._low, self._high)
        else:
            step = _round_step((high - low) or abs(high) or 1.0)
            self._low, self._high = math.floor(low / step) * step, math.ceil(high / step) * step
            if self._low == self._high:
                self._high += step
            count = round((self._high - self._low) / step)
            self.marks = [self._low + step * place for place in range(count + 1)]

    def place(self, value: float) -> float:
        """Where a value is, held inside the axis."""
        low, high = self._scale(self._low), self._scale(self._high)
        at = self._scale(min(max(value, self._low), self._high))
        return self.first + (at - low) / (high - low) * (self.last - self.first)


def frame(xs: Axis, ys: Axis, x_axis: str, text: Callable[[float], str] = "{:.4g}".format) -> Iterator[str]:
    """The beginning of a picture: a line and a word for each mark of the upright axis, words for the other.

    Args:
        x_axis: what the level axis shows.
        text: of a mark of the upright axis.
    """
    for value in ys.marks:
        at = ys.place(value)
        yield f'<path d="M{xs.first} {at:.1f}H{xs.last}" stroke="#e4e4e4"/>'
        yield f'<text x="{xs.first - 6}" y="{at + 4:.1f}" text-anchor="end">{text(value)}</text>'
    for value in xs.marks:
        at = xs.place(value)
        yield f'<path d="M{at:.1f} {ys.first}v5" stroke="#888"/>'
        yield f'<text x="{at:.1f}" y="{ys.first + 18}" text-anchor="middle">{value:.4g}</text>'
    middle = (xs.first + xs.last) / 2
    yield f'<text x="{middle:.0f}" y="{ys.first + 33}" text-anchor="middle">{escape(x_axis)}</text>'


def _round_step(span: float) -> float:
    """A step of 1, 2 or 5 times a power of ten, of which four to eight make a span."""
    power = 10.0 ** math.floor(math.log10(span))
    return next(step * power for step in (0.1, 0.2, 0.5, 1.0, 2.0) if span / (step * power) <= 8.0)


def _powers(low: float, high: float) -> list[float]:
    """Round values of a logarithmic axis: powers of ten, and between them 2 and 5 where there is room."""
    between = (1.0, 2.0, 5.0) if high / low < 2e3 else (1.0,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [part * 10.0**power for power in powers for part in between]
    return [value for value in found if low * 0.999 <= value <= high * 1.001][:: max(1, len(found) // 12)]


_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:760px;margin:1.5em auto;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.35em;line-height:1.3}h2{font-size:1.1em;margin-top:1.6em}svg{width:100%;height:auto}
svg text{font:12px system-ui,sans-serif;fill:#444}ul{list-style:none;padding:0;margin:.3em 0}
li{margin:.2em 0;padding-left:2.2em;text-indent:-2.2em}
.key{display:inline-block;width:1.6em;height:0;margin-right:.6em;border-top:4px solid;vertical-align:middle}
.dash{border-top-style:dashed}.small{color:#666;font-size:.9em}
@media (prefers-color-scheme:dark){html{background:#fff;filter:invert(.9) hue-rotate(180deg)}}
"""
_WIDTH, _LEFT, _RIGHT = 460, 46, 12
_LOWEST = 0.001
_MOST_WORDS = 8
_WINDOWS = ("#a8d5c2", "#7cc3a4", "#4fae88", "#2d9871", "#1b7f5c", "#12674a", "#0c5039", "#073a29", "#042a1e")
_SYMBOLS = ("#e0a458", "#c9742b", "#8f4a12")
_TRUE, _TOLD = "#222", "#0a7d5a"


def plan_page(plan: AutoPlan, policy: AnyPolicy | None) -> str:
    """The page as HTML."""
    parts: list[str] = []
    if plan.curves:
        parts += [
            "<h2>How far off answers are, by epsilon</h2>",
            errors(plan.curves, plan.question.epsilon, plan.recommended),
            _keys(plan),
        ]
    if plan.told is not None:
        parts += [
            "<h2>The last stretch: the truth, and what subscribers would see</h2>",
            *answer_pictures(plan, truth=True),
            f'<p class="small"><span class="key" style="color:{_TRUE}"></span>truth '
            f'<span class="key" style="color:{_TOLD}"></span>released, with what 95 % of answers are within. '
            "From the part of the recording that was held back, with simulated noise.</p>",
        ]
    return page(plan.readings.source, verdict(plan, policy), parts)


def page(source: str, sentences: Sequence[str], parts: Sequence[str]) -> str:
    """A page with this headline, sentences and parts."""
    first, *more = sentences
    head = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>A plan for {escape(source)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(first)}</h1>",
        *(f"<p>{escape(sentence)}</p>" for sentence in more),
    ]
    return "\n".join([*head, *parts, "</html>"]) + "\n"


def colours(curves: Sequence[Curve]) -> list[str]:
    """One for each curve: windows the darker the longer, symbols apart."""
    found = []
    for kind, palette in (("windows", _WINDOWS), ("symbols", _SYMBOLS), ("points", _WINDOWS)):
        places = [i for i, curve in enumerate(curves) if curve.candidate.kind == kind]
        found += [(place, palette[(2 * i + 1) * len(palette) // (2 * len(places))]) for i, place in enumerate(places)]
    return [colour for _, colour in sorted(found)]


def errors(curves: Sequence[Curve], epsilon: float, chosen: Candidate) -> str:
    """Error against epsilon, both on logarithmic axes, of every candidate."""
    height, bottom = 334, 296
    xs = Axis([*(e for curve in curves for e, _ in curve.points), epsilon], True, _LEFT, _WIDTH - _RIGHT)
    ys = Axis([_LOWEST, 1.0], True, bottom, 14)
    title = "Mean absolute error of every candidate against epsilon"
    parts = [*frame(xs, ys, "epsilon", percent)]
    at = xs.place(epsilon)
    parts.append(f'<path d="M{at:.1f} 14V{bottom}" stroke="#222" stroke-dasharray="4 3"/>')
    for curve, colour in zip(curves, colours(curves), strict=True):
        line = points((xs.place(e), ys.place(error)) for e, error in curve.points)
        wide = 3.5 if curve.candidate.same_release(chosen) else 1.6
        dash = "" if curve.candidate.kind == "windows" else ' stroke-dasharray="6 3"'
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{wide}"{dash}/>')
        if curve.candidate.same_release(chosen):
            spot = ys.place(curve.candidate.expected_error)
            parts.append(f'<circle cx="{at:.1f}" cy="{spot:.1f}" r="5" fill="{colour}"/>')
    return svg(title, (_WIDTH, height), parts)


def _keys(plan: AutoPlan) -> str:
    rows = []
    for curve, colour in zip(plan.curves, colours(plan.curves), strict=True):
        one = curve.candidate
        words = f"{answer_words(plan, one)}: {percent(one.expected_error)}; always guessing {percent(one.guess_error)}"
        kind = "key" if one.kind == "windows" else "key dash"
        shown = f"<b>{escape(words)}</b>" if one.same_release(plan.recommended) else escape(words)
        rows.append(f'<li><span class="{kind}" style="color:{colour}"></span>{shown}</li>')
    return f'<ul>{"".join(rows)}</ul><p class="small">At epsilon {plan.question.epsilon:g}, the dashed line.</p>'


def answer_pictures(plan: AutoPlan, *, truth: bool) -> list[str]:
    """Released shares over the last windows, a picture for each set of states, and of profiles one of the last.

    With `truth`, the recording's shares too.
    """
    told, names, blocks = plan.told, plan.states.discretiser.states, plan.recommended.blocks
    if told is None:
        return []
    pictures = []
    for place, some in enumerate(plan.bins):
        title = "the share" if len(plan.bins) == 1 else f"the share of {names[some[0]]}"
        shares, begins = [told.truth[:, place], told.told[:, place]], []
        title += f", {len(told.told)} answers"
        if blocks is not None:
            title = f"the share in each {time_words(blocks.seconds)} of the day ({blocks.zone}), over the last days"
            shares, begins = [told.truth[-1], told.told[-1]], [label.partition("-")[0] for label in blocks.labels]
        recorded, released = (one.tolist() for one in shares)
        pictures.append(_stretch(title, recorded if truth else [], released, plan.recommended.error_95, begins))
    return pictures


def _stretch(title: str, truth: list[float], released: list[float], within: float, begins: Sequence[str]) -> str:
    """A picture of answers in a row; `begins` are words below the beginnings of each, as many as have room."""
    bottom = 164
    height = bottom + (42 if begins else 26)
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(released))

    def y(share: float) -> float:
        return bottom - min(max(share, 0.0), 1.0) * (bottom - 14)

    parts = []
    for share in (0.0, 0.5, 1.0):
        parts.append(f'<path d="M{_LEFT} {y(share):.1f}H{_WIDTH - _RIGHT}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y(share) + 4:.1f}" text-anchor="end">{100 * share:.0f} %</text>')
    for place, share in enumerate(released):
        middle = _LEFT + (place + 0.5) * step
        parts.append(
            f'<path d="M{middle:.1f} {y(share - within):.1f}V{y(share + within):.1f}" stroke="{_TOLD}" '
            f'stroke-width="{max(1.0, 0.6 * step):.1f}" opacity=".18"/>'
        )
    path = "".join(
        f"{'L' if place else 'M'}{_LEFT + place * step:.1f} {y(share):.1f}H{_LEFT + (place + 1) * step:.1f}"
        for place, share in enumerate(truth)
    )
    if truth:
        parts.append(f'<path d="{path}" fill="none" stroke="{_TRUE}" stroke-width="1.8"/>')
    dots = [(_LEFT + (place + 0.5) * step, y(share)) for place, share in enumerate(released)]
    parts.append(f'<polyline points="{points(dots)}" fill="none" stroke="{_TOLD}" stroke-width="1.4"/>')
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{_TOLD}"/>' for x, y in dots]
    for place in range(0, len(begins), max(1, -(-len(begins) // _MOST_WORDS))):
        at = _LEFT + place * step
        parts.append(f'<path d="M{at:.1f} {bottom}v5" stroke="#888"/>')
        parts.append(f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{escape(begins[place])}</text>')
    parts.append(f'<text x="{_LEFT}" y="{height - 8}">{escape(title)}</text>')
    return svg(f"{title}: {'the truth, and ' if truth else ''}what is released", (_WIDTH, height), parts)


_PLACE_COLUMNS = ("a point", "cells of", "of one", "off by", "95 % within", "held back", "guessing")


def tell_places(as_json: bool, plan: PlacePlan, policy: AnyPolicy | None, offers: Sequence[str]) -> None:
    """Print the verdict, what was compared, and what stretches of time lose; and what else would do."""

    def show() -> None:
        _show_places(plan, policy)
        for line in offers:
            print(line)

    answer(as_json, lambda: place_document(plan, policy) | {"offers": offers}, show, indent=2)


def _show_places(plan: PlacePlan, policy: AnyPolicy | None) -> None:
    for line in summary(plan.traces.source, plan.traces.facts):
        say(line)
    useful, private, *more = place_verdict(plan, policy)
    say(useful, style="bold")
    say(private, style="bold")
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


def place_verdict(plan: PlacePlan, policy: AnyPolicy | None) -> list[str]:
    """Sentences: is it useful, is it private, and why."""
    one, epsilon = plan.recommended, plan.question.epsilon
    rows = _place_stretches(policy) if isinstance(policy, MeasurePolicy) else ()
    private = promise_words(epsilon, 0, rows)
    if one.kind == "points":
        told = [
            f"Useful: {place_words(plan, one)}, {place_quality(one)}.",
            private,
            f"95 % of places are off by at most {one.error_95:.0f} m.",
            f"On the part of the recording that chose nothing they are off by {one.held_back_error:.0f} m.",
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
            *([taken_words(_every_place(plan, one.every))] if one.every > 1 else []),
        ]
    if plan.reasons:
        reasons = [f"{reason[0].upper()}{reason[1:]}." for reason in plan.reasons[1:]]
        return [f"Not useful: {plan.reasons[0]}.", private, *reasons]
    best = min(plan.candidates, key=lambda each: each.expected_error)
    told = [
        f"Not useful: {place_words(plan, best)}, {place_quality(best, least=True)}.",
        private,
        f"95 % of places are off by at most {best.error_95:.0f} m.",
    ]
    if plan.least_epsilon is not None:
        return [*told, f"Nothing useful below epsilon {plan.least_epsilon:g}."]
    return [*told, f"Nothing useful up to epsilon {max(e for curve in plan.curves for e, _ in curve):g}."]


def place_quality(one: Candidate, *, least: bool = False) -> str:
    """How good points are, beside guessing; with `least`, they are this bad or worse."""
    more = " or more" if least else ""
    return f"off by {one.expected_error:.0f} m{more} on average; guessing is off by {one.guess_error:.0f}"


def place_words(plan: PlacePlan, one: Candidate) -> str:
    """Words for the answer of a candidate."""
    side = plan.sides[next(i for i, each in enumerate(plan.candidates) if each.same_release(one))]
    return f"a point {_every_place(plan, one.every)} for cells of {side:g} m"


def place_document(plan: PlacePlan, policy: AnyPolicy | None) -> dict[str, Any]:
    """The plan as an object for JSON."""
    rows = _place_stretches(policy) if isinstance(policy, MeasurePolicy) else ()
    return {
        "useful": plan.recommended.kind != "none",
        **promise_document(plan.question.epsilon, 0, 1, rows),
        "recommended": candidate_document(plan.recommended),
        "candidates": [candidate_document(one) for one in plan.candidates],
        "verdict": place_verdict(plan, policy),
        "least_epsilon": plan.least_epsilon,
        "protected": "the cell at a tick",
        "stretches": stretch_documents(rows),
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


def place_page(plan: PlacePlan, policy: AnyPolicy | None) -> str:
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
    return page(plan.traces.source, place_verdict(plan, policy), parts)
