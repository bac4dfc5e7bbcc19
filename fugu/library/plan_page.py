"""Write the page of a plan: one HTML file with verdicts and pictures that loads no other file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from fugu.contract.policies import AnyPolicy
from fugu.lanes import Lane, lanes_svg, part_shapes, share_scale, share_shapes, shares_lane
from fugu.library.auto_words import answer_words, error_words, percent, verdict
from fugu.library.place_words import place_verdict, place_words
from fugu.planning.auto import AutoPlan
from fugu.planning.auto_places import PlacePlan
from fugu.planning.candidates import Candidate
from fugu.recordings.summary import time_text

__all__ = ["answer_pictures", "errors_table", "place_page", "plan_page"]

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
    """The page of a plan from readings as HTML, with pictures of the recording."""
    sections: list[str] = []
    if plan.curves:
        sections += [_ERRORS, errors_table(plan, answer_words, percent)]
    if plan.example is not None:
        sections += [
            "<h2>The last stretch: the truth, and what subscribers would see</h2>",
            *answer_pictures(plan, truth=True),
            '<p class="small">Of the part of the recording that was held back, with simulated noise.</p>',
        ]
    return page(plan.readings.source, verdict(plan, policy), sections)


def page(source: str, sentences: Iterable[str], sections: Sequence[str]) -> str:
    """Write an HTML page: the first sentence as headline, the others as paragraphs, then the sections."""
    headline, *reasons = sentences
    head_lines = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>A plan for {escape(source)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(headline)}</h1>",
        *(f"<p>{escape(sentence)}</p>" for sentence in reasons),
    ]
    return "\n".join([*head_lines, *sections, "</html>"]) + "\n"


def errors_table(
    plan: AutoPlan | PlacePlan, name_of: Callable[[Any, Candidate], str], error_text: Callable[[float], str]
) -> str:
    """Tabulate the mean errors of candidates at some epsilons.

    `name_of` writes a candidate in words, `error_text` an error with its unit.
    """
    asked_epsilon = plan.question.epsilon
    epsilons = sorted({asked_epsilon, *_COLUMNS} & {epsilon for curve in plan.curves for epsilon, _ in curve.points})
    headings = "".join(f"<th>{epsilon:g}{' (asked)' * (epsilon == asked_epsilon)}</th>" for epsilon in epsilons)
    table_rows = [f"<tr><th>answer, by epsilon</th>{headings}<th>guessing</th></tr>"]
    for candidate, points in plan.curves:
        error_at = dict(points)
        error_texts = [error_text(error_at[epsilon]) if epsilon in error_at else "none" for epsilon in epsilons]
        cells = [cell.replace(" ", "\N{NO-BREAK SPACE}") for cell in (*error_texts, error_text(candidate.guess_error))]
        cell_template = "<td><b>{}</b></td>" if candidate.same_release(plan.recommended) else "<td>{}</td>"
        table_rows.append(f"<tr>{''.join(map(cell_template.format, (escape(name_of(plan, candidate)), *cells)))}</tr>")
    return f"<table>{''.join(table_rows)}</table>"


def answer_pictures(plan: AutoPlan, *, truth: bool) -> list[str]:
    """Draw the last released shares, in a lane for each set of states; of profiles only the last one is drawn.

    With `truth`, the recording's shares are drawn as well.
    """
    example, state_names, blocks = plan.example, plan.states.discretiser.states, plan.recommended.blocks
    if example is None:
        return []
    lanes = []
    for index, states in enumerate(plan.bins):
        caption = "the share" if len(plan.bins) == 1 else f"the share of {state_names[states[0]]}"
        true_shares, shares = example.truth[:, index], example.released[:, index]
        if blocks is not None:
            true_shares, shares = example.truth[-1], example.released[-1]
        lanes.append(_answer_lane(caption, true_shares.tolist() if truth else [], shares.tolist(), plan.recommended))
    return [lanes_svg("What leaves, from the part of the recording that was held back", lanes, narrow=True)]


def _answer_lane(caption: str, true_shares: list[float], shares: list[float], release: Candidate) -> Lane:
    """Draw successive answers in a lane, or the parts of the day of one profile; `true_shares` may be empty."""
    blocks, error_95, answer_count = release.blocks, release.error_95, len(shares)
    axis_top = share_scale([*shares, *true_shares])
    noun = "answers" if blocks is None else "parts of a day"
    answer_errors = [abs(answer - true_answer) for answer, true_answer in zip(shares, true_shares, strict=False)]
    mean_error = sum(answer_errors) / max(1, answer_count)
    lane = shares_lane(
        f"{answer_count}",
        f"{noun}, off by {error_words(mean_error)} on average" if true_shares else f"{noun}, with simulated noise",
        f"{caption}, the last {answer_count} answers · band: 95 %{' · dashes: truth' if true_shares else ''}",
        160,
        (0.0, float(answer_count)),
        share_shapes([index + 0.5 for index in range(answer_count)], shares, true_shares, error_95, axis_top),
        axis_top,
    )
    if blocks is None:
        return lane
    return lane._replace(
        head=f"{caption} in each {time_text(blocks.seconds)} of the day ({blocks.zone}), the last days",
        height=176,
        marks=[(part + 0.5, label.partition("-")[0]) for part, label in enumerate(blocks.labels)],
        shapes=part_shapes(shares, true_shares, error_95, axis_top),
        middles=True,
    )


def place_page(plan: PlacePlan, policy: AnyPolicy | None) -> str:
    """The page of a plan for places as HTML: errors in metres."""
    sections = [_ERRORS, errors_table(plan, place_words, "{:.0f} m".format)]
    return page(plan.traces.source, place_verdict(plan, policy), sections)
