"""The page of a plan: one file with its verdicts and pictures that needs nothing else, for phones as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape

from fugu.contract.policies import AnyPolicy
from fugu.lanes import Lane, lanes_svg, part_shapes, percent_marks, share_scale, share_shapes
from fugu.library.auto_words import answer_words, error_words, percent, time_words, verdict
from fugu.library.place_words import place_verdict, place_words
from fugu.planning.auto import AutoPlan, Curve
from fugu.planning.auto_places import PlacePlan
from fugu.planning.candidates import Candidate
from fugu.svg import Axis, frame, points, svg

__all__ = ["answer_pictures", "errors", "place_page", "plan_page"]


_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:760px;margin:1.5em auto;padding:0 1em;color:#17201c}
h1{font-size:1.35em;line-height:1.3}h2{font-size:1.1em;margin-top:1.6em}svg{width:100%;height:auto}
svg text{font:12px system-ui,sans-serif;fill:currentColor}ul{list-style:none;padding:0;margin:.3em 0}
li{margin:.2em 0;padding-left:2.2em;text-indent:-2.2em}
.key{display:inline-block;width:1.6em;height:0;margin-right:.6em;border-top:4px solid;vertical-align:middle}
.dash{border-top-style:dashed}.small{color:#666;font-size:.9em}
svg.fugu{max-width:520px}
@media (prefers-color-scheme:dark){body{color:#e8eeea;background:#0f1412}.small{color:#9aa8a0}
svg:not(.fugu),.key{filter:invert(0.9) hue-rotate(180deg)}svg:not(.fugu){color:#17201c}}
"""
_WIDTH, _LEFT, _RIGHT = 460, 46, 12
_LOWEST = 0.001
_WINDOWS = ("#a8d5c2", "#7cc3a4", "#4fae88", "#2d9871", "#1b7f5c", "#12674a", "#0c5039", "#073a29", "#042a1e")
_SYMBOLS = ("#e0a458", "#c9742b", "#8f4a12")


def plan_page(plan: AutoPlan, policy: AnyPolicy | None = None) -> str:
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
            '<p class="small">Of the part of the recording that was held back, with simulated noise.</p>',
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
    parts.append(f'<path d="M{at:.1f} 14V{bottom}" stroke="currentColor" stroke-dasharray="4 3"/>')
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
    """Released shares over the last windows, a lane for each set of states, and of profiles one of the last.

    With `truth`, the recording's shares too.
    """
    told, names, blocks = plan.told, plan.states.discretiser.states, plan.recommended.blocks
    if told is None:
        return []
    lanes = []
    for place, some in enumerate(plan.bins):
        of = "the share" if len(plan.bins) == 1 else f"the share of {names[some[0]]}"
        recorded, released = told.truth[:, place], told.told[:, place]
        if blocks is not None:
            recorded, released = told.truth[-1], told.told[-1]
        lanes.append(_answers(of, recorded.tolist() if truth else [], released.tolist(), plan.recommended))
    return [lanes_svg("What leaves, from the part of the recording that was held back", lanes, narrow=True)]


def _answers(of: str, truth: list[float], released: list[float], release: Candidate) -> Lane:
    """Answers in a row, or of a profile the parts of the last."""
    blocks, within, count = release.blocks, release.error_95, len(released)
    top = share_scale([*released, *truth])
    noun = "answers" if blocks is None else "parts of a day"
    off = sum(abs(one - other) for one, other in zip(released, truth, strict=False)) / max(1, count)
    lane = Lane(
        "leaves",
        "Leaves",
        f"{count}",
        f"{noun}, off by {error_words(off)} on average" if truth else f"{noun}, with simulated noise",
        f"{of}, the last {count} answers · band: 95 %{' · dashes: truth' if truth else ''}",
        160,
        (0.0, float(count)),
        (),
        (0.0, top),
        percent_marks((0.0, top / 2, top)),
        share_shapes([at + 0.5 for at in range(count)], released, truth, within, top),
    )
    if blocks is None:
        return lane
    return lane._replace(
        head=f"{of} in each {time_words(blocks.seconds)} of the day ({blocks.zone}), the last days",
        height=176,
        marks=[(at + 0.5, label.partition("-")[0]) for at, label in enumerate(blocks.labels)],
        shapes=part_shapes(released, truth, within, top),
        middles=True,
    )


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
