"""Draw the lanes of a replay: its recording, the released values, and the certainty of attackers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract.sentences import largest_posterior
from fugu.contract.stretches import LARGEST_PROTECTED, Stretch
from fugu.lanes import Lane, Shape, certainty_lane, part_shapes, share_scale, share_shapes, shares_lane
from fugu.recordings.values import Cells, are_names
from fugu_cli.demo.evaluation import Replay, Results

__all__ = ["attacker_lanes", "readings_lane", "replay_lanes", "stretches_lane"]

_COLUMNS = 480
"""The most columns of a drawn recording; each shows its least and its largest reading."""
_MOST_DOTS = 1200
_MOST_NAMES = 5
_ATTACKERS = {
    "knows": "who knows the habits",
    "learns": "who learns the habits",
    "ordinary": "who knows the habits, with ordinary noise",
}


def replay_lanes(replay: Replay, ticks: int, results: Results | None) -> tuple[list[Lane], dict[str, Lane]]:
    """Draw a replay of which some ticks are read; `results` are None before the first value.

    Return the readings, the released values, and the attacker who knows the habits; and other attackers, by name.
    """
    span = replay.span(ticks if results is None else results.end_tick)
    lane = readings_lane(replay.values, replay.hours, ticks, replay.quantity, span)
    lane = lane._replace(words=f"{replay.tick}s, on the device", marks=replay.marks if replay.day_parts else ())
    attackers = attacker_lanes(replay, results)
    return [lane, _released_lane(replay, results, span), attackers.pop("knows")], attackers


def readings_lane(
    readings: Cells, hours: float, ticks: int, quantity: str, span: tuple[float, float] | None = None
) -> Lane:
    """Draw readings (n,) over time; names are drawn as levels, in their alphabetical order.

    `hours` lie between two readings, and `ticks` is the number of ticks that have been read. `quantity` is what was
    recorded. `span` has the first and last hour that are drawn; by default the whole recording.
    """
    heights, names = readings, list[str]()
    if are_names(readings):
        names = sorted({*readings.tolist()} - {None})
        heights = np.array([np.nan if reading is None else names.index(reading) for reading in readings])
    present_heights = heights[~np.isnan(heights)]
    bottom, top = (float(present_heights.min()), float(present_heights.max())) if present_heights.size else (0.0, 1.0)
    if bottom == top:
        bottom, top = bottom - 1.0, top + 1.0
    hours_drawn = span or (0.0, heights.size * hours)
    first_tick, end_tick = (min(max(round(hour / hours), 0), heights.size) for hour in hours_drawn)
    column_edges = np.linspace(first_tick, end_tick, min(end_tick - first_tick, _COLUMNS) + 1).astype(np.int64).tolist()
    columns = []
    for start, end in pairwise(column_edges):
        column_heights = heights[start:end][~np.isnan(heights[start:end])]
        if column_heights.size:
            columns.append((start * hours, float(column_heights.min()), float(column_heights.max())))
    read_hours = min(ticks, heights.size) * hours
    shapes = (
        Shape("range", "later", [column for column in columns if column[0] >= read_hours]),
        Shape("range", "raw", [column for column in columns if column[0] < read_hours]),
    )
    levels = [(float(level), name[:12]) for level, name in enumerate(names)]
    if not names or len(names) > _MOST_NAMES:
        end_words = {bottom: f"{bottom:.3g}", top: f"{top:.3g}"}
        levels = [(height, names[int(height)][:12] if names else words) for height, words in end_words.items()]
    return Lane(
        *("stays", "Stays", f"{min(ticks, heights.size):,}", "readings, on the device", quantity, 140),
        *(hours_drawn, (), (bottom, top), levels, shapes),
    )


def _released_lane(replay: Replay, results: Results | None, span: tuple[float, float]) -> Lane:
    """Draw the values that arrived, with their band and the truth, over time or by parts of the day."""
    arrivals = 0 if results is None else results.arrivals
    noun = "profile" if replay.day_parts else "number"
    noun += "s" * (replay.expected_count != 1)
    words = f"{noun} of the day" if replay.day_parts else noun
    words = words if arrivals == replay.expected_count else f"of {replay.expected_count:,} {words}"
    words += f", here {results.error_text}" if results is not None else ""
    if results is None:
        return shares_lane(f"{arrivals:,}", words, replay.caption, 174, span)
    drawn_count = len(replay.day_parts) or results.released.size  # of profiles only the last is drawn
    released, truth = results.released[-drawn_count:].tolist(), results.truth[-drawn_count:].tolist()
    top = share_scale([*released, *truth])
    if not replay.day_parts:
        shapes = share_shapes(results.hours.tolist(), released, truth, results.band, top)
        return shares_lane(f"{arrivals:,}", words, replay.caption, 174, span, shapes, top)
    shapes = part_shapes(released, truth, results.band, top)
    marks = [(index + 0.5, part.replace(":00", "").replace("-", "–")) for index, part in enumerate(replay.day_parts)]
    lane = shares_lane(f"{arrivals:,}", words, replay.caption, 190, (0.0, float(drawn_count)), shapes, top)
    return lane._replace(marks=marks, middles=True)


def attacker_lanes(replay: Replay, results: Results | None) -> dict[str, Lane]:
    """Return the lanes of the attackers with results, by attacker."""
    if replay.day_parts or (results is not None and results.own_changes is None):
        return {"knows": stretches_lane(replay.stretches, replay.promised_stretch)}
    if results is None:
        return {"knows": _odds_lane(replay, "knows", None, None)}
    changes = {"knows": results.own_changes, "learns": results.learner, "ordinary": results.ordinary_changes}
    return {name: _odds_lane(replay, name, odds, results) for name, odds in changes.items() if odds is not None}


def _odds_lane(replay: Replay, attacker: str, changes: Floats | None, results: Results | None) -> Lane:
    """Draw an attacker's certainty of each tick, from even odds."""
    promise = largest_posterior(replay.tick_epsilon)
    shapes, style, promise_words = list[Shape](), "nobody", "the promise to one who knows the habits:"
    if attacker == "knows":
        shapes = [Shape("zone", "allowed", [(0.5, promise)])]
        style, promise_words = "promise", "the promise: at most"
    number_text, words = "–", f"the surest an attacker got, from 50 %, {replay.attacker_question}"
    if changes is not None and results is not None:
        certainties = 1.0 / (1.0 + np.exp(-np.abs(changes)))
        ticks = results.ticks[: certainties.size]
        first_tick, last_tick = (round(hour / replay.hours) for hour in replay.span(results.end_tick))
        in_span = np.flatnonzero((ticks >= first_tick) & (ticks < last_tick))
        dot_indices = in_span[:: max(1, -(-in_span.size // _MOST_DOTS))]
        if in_span.size:
            dot_indices = np.union1d(dot_indices, in_span[[np.argmax(certainties[in_span])]])
        dot_hours = (ticks[dot_indices] + 0.5) * replay.hours
        dots = [*zip(dot_hours.tolist(), certainties[dot_indices].tolist(), strict=True)]
        limit = promise * (1.0 + 1e-9)
        shapes += [
            Shape("dots", "sure", [dot for dot in dots if dot[1] <= limit]),
            Shape("dots", "beyond", [dot for dot in dots if dot[1] > limit]),
        ]
        number_text = _percent(float(certainties.max()))
        if excess_share := float((certainties > limit).mean()):
            words += f"; above the line for {100 * excess_share:.0f} %"
    shapes.append(Shape("level", style, [(promise,)], f"{promise_words} {_percent(promise)}"))
    header = f"one {_ATTACKERS[attacker]} · 50 %: a coin flip"
    span = replay.span(0 if results is None else results.end_tick)
    return certainty_lane(number_text, words, header, 190, span, shapes, replay.marks)


def stretches_lane(stretches: Sequence[Stretch], promised_stretch: str) -> Lane:
    """Draw how sure the promise lets anybody become about stretches of several lengths."""
    shown_stretches = stretches[:6]
    bars: dict[str, list[tuple[float, ...]]] = {"most": [], "bare": []}
    for index, stretch in enumerate(shown_stretches):
        style = "most" if stretch.epsilon <= LARGEST_PROTECTED else "bare"
        bars[style].append((index + 0.2, index + 0.8, 0.5, largest_posterior(stretch.epsilon)))
    promised_stretches = [stretch for stretch in shown_stretches if stretch.name == promised_stretch] or shown_stretches
    names = ", ".join(_short_name(stretch.name) for stretch in shown_stretches if stretch.epsilon > LARGEST_PROTECTED)
    words = f"at most sure of what went on in any {promised_stretch.removeprefix('1 ')}, if 50 % sure before"
    words += f"; not protected: {names}" if names else ""
    level = largest_posterior(promised_stretches[0].epsilon)
    shapes = [Shape("bars", style, points) for style, points in bars.items()]
    shapes.append(Shape("level", "promise", [(level,)], f"the promise: at most {_percent(level)}"))
    marks = [(index + 0.5, _short_name(stretch.name)) for index, stretch in enumerate(shown_stretches)]
    header = "how sure anybody can get, by the length of time; 50 %: a coin flip"
    lane = certainty_lane(_percent(level), words, header, 190, (0.0, float(len(shown_stretches))), shapes, marks)
    return lane._replace(middles=True)


def _short_name(name: str) -> str:
    for long_unit, short_unit in ((" minutes", " min"), (" minute", " min"), (" hours", " h"), (" hour", " h")):
        name = name.replace(long_unit, short_unit)
    return name


def _percent(share: float) -> str:
    """Return a probability in percent, which is never rounded up to 100."""
    return f"{100 * share:.0f} %" if share < 0.97 else f"{min(100 * share, 99.9):.1f} %"
