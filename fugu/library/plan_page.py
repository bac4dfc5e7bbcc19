"""The page of a plan: one file with its verdicts and pictures that needs nothing else, for phones as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from fugu.contract.policies import AnyPolicy
from fugu.lanes import Lane, lanes_svg, part_shapes, share_scale, share_shapes, shares_lane
from fugu.library.auto_words import answer_words, error_words, percent, verdict
from fugu.library.place_words import place_verdict, place_words
from fugu.planning.auto import AutoPlan
from fugu.planning.auto_places import PlacePlan
from fugu.planning.candidates import Candidate
from fugu.recordings.summary import time_words

__all__ = ["answer_pictures", "errors", "place_page", "plan_page"]


_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:760px;margin:1.5em auto;padding:0 1em;color:#17201c}
h1{font-size:1.35em;line-height:1.3}h2{font-size:1.1em;margin-top:1.6em}svg{width:100%;max-width:520px}
table{border-collapse:collapse}th,td{padding:.3em .5em;border-bottom:1px solid #8886;text-align:right}
:is(th,td):first-child{text-align:left}td:not(:first-child){white-space:nowrap}
.small{color:#666;font-size:.9em}
@media (prefers-color-scheme:dark){body{color:#e8eeea;background:#0f1412}.small{color:#9aa8a0}}
"""
_COLUMNS = 0.5, 1.0, 2.0, 3.0, 6.0
_ERRORS = "<h2>How far off answers are</h2>"


def plan_page(plan: AutoPlan, policy: AnyPolicy | None = None) -> str:
    """The page as HTML."""
    parts: list[str] = []
    if plan.curves:
        parts += [_ERRORS, errors(plan, answer_words, percent)]
    if plan.example is not None:
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


def errors(plan: AutoPlan | PlacePlan, words: Callable[[Any, Candidate], str], text: Callable[[float], str]) -> str:
    """Mean absolute errors of every candidate at some epsilons, as a table, with that of guessing."""
    asked_epsilon = plan.question.epsilon
    epsilons = sorted({asked_epsilon, *_COLUMNS} & {epsilon for curve in plan.curves for epsilon, _ in curve.points})
    heads = "".join(f"<th>{epsilon:g}{' (asked)' * (epsilon == asked_epsilon)}</th>" for epsilon in epsilons)
    lines = [f"<tr><th>answer, by epsilon</th>{heads}<th>guessing</th></tr>"]
    for candidate, points in plan.curves:
        error_at = dict(points)
        numbers = [text(error_at[at]) if at in error_at else "none" for at in epsilons]
        cells = [number.replace(" ", "\N{NO-BREAK SPACE}") for number in (*numbers, text(candidate.guess_error))]
        weight = "<td><b>{}</b></td>" if candidate.same_release(plan.recommended) else "<td>{}</td>"
        lines.append(f"<tr>{''.join(map(weight.format, (escape(words(plan, candidate)), *cells)))}</tr>")
    return f"<table>{''.join(lines)}</table>"


def answer_pictures(plan: AutoPlan, *, truth: bool) -> list[str]:
    """Released shares over the last windows, a lane for each set of states, and of profiles one of the last.

    With `truth`, the recording's shares too.
    """
    example, names, blocks = plan.example, plan.states.discretiser.states, plan.recommended.blocks
    if example is None:
        return []
    lanes = []
    for place, states in enumerate(plan.bins):
        of = "the share" if len(plan.bins) == 1 else f"the share of {names[states[0]]}"
        recorded, released = example.truth[:, place], example.released[:, place]
        if blocks is not None:
            recorded, released = example.truth[-1], example.released[-1]
        lanes.append(_answers(of, recorded.tolist() if truth else [], released.tolist(), plan.recommended))
    return [lanes_svg("What leaves, from the part of the recording that was held back", lanes, narrow=True)]


def _answers(of: str, truth: list[float], released: list[float], release: Candidate) -> Lane:
    """Answers in a row, or of a profile the parts of the last."""
    blocks, within, count = release.blocks, release.error_95, len(released)
    top = share_scale([*released, *truth])
    noun = "answers" if blocks is None else "parts of a day"
    mean_error = sum(abs(value - other) for value, other in zip(released, truth, strict=False)) / max(1, count)
    lane = shares_lane(
        f"{count}",
        f"{noun}, off by {error_words(mean_error)} on average" if truth else f"{noun}, with simulated noise",
        f"{of}, the last {count} answers · band: 95 %{' · dashes: truth' if truth else ''}",
        160,
        (0.0, float(count)),
        share_shapes([at + 0.5 for at in range(count)], released, truth, within, top),
        top,
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
    """The page of a plan for places as HTML: errors in metres."""
    table = errors(plan, place_words, "{:.0f} m".format)
    return page(plan.traces.source, place_verdict(plan, policy), [_ERRORS, table])
