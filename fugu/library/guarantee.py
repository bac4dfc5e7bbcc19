"""Describe a guarantee in words: its subject and its losses about stretches, the same wherever epsilon is shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fugu.contract.chains import ChainClass
from fugu.contract.dating import settling_ticks
from fugu.contract.discretisers import Discretiser
from fugu.contract.sentences import largest_posterior, loss_words, privacy_of, privacy_sentence
from fugu.contract.stretches import Stretch
from fugu.library.report import JsonObject, Table

__all__ = [
    "change_words",
    "promise_document",
    "promise_words",
    "stretch_documents",
    "stretch_lines",
    "stretch_table",
    "stretch_words",
    "time_words",
]

_TITLE = "Epsilon for stretches of ticks: between any two courses of states"
_STATES = "states, not readings: one reading changes later states"
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_COLUMNS = ("stretch", "ticks", "epsilon", "if the rest is known")


def promise_words(epsilon: float | None, seconds: int, stretches: Sequence[Stretch]) -> str:
    """The verdict on privacy for a promise about any stretch of `seconds`, with the losses of other stretches."""
    return privacy_sentence(epsilon, stretch_words(seconds), stretches)


def stretch_words(seconds: int) -> str:
    """Name a length of time in whole seconds, as it follows the word "any"; 0 is a single tick."""
    if not seconds:
        return "single tick"
    unit_seconds, unit = next(row for row in _UNITS if seconds % row[0] == 0)
    return unit if seconds == unit_seconds else f"{seconds // unit_seconds} {unit}s"


def promise_document(epsilon: float | None, seconds: int, ticks: int, stretches: Sequence[Stretch] = ()) -> JsonObject:
    """The promise as fields for JSON; a stretch of `seconds` has at most `ticks` ticks."""
    return {
        "privacy": privacy_of(epsilon),
        "promise": promise_words(epsilon, seconds, stretches),
        "protect_seconds": seconds,
        "stretch_ticks": ticks,
    }


def change_words(chains: ChainClass, epsilon: float, period_seconds: float | None, slack: float | None = None) -> str:
    """Say after how many ticks a promise holds on a device that had another policy before.

    `slack` is the part of epsilon that the policy leaves unused; by default the slack of a plan.
    """
    if (ticks := settling_ticks(chains, epsilon, slack)) is None:
        has_impossible_step = chains.worst_odds is None
        reason = "the class has an impossible step" if has_impossible_step else "nothing of epsilon is left for it"
        return f"After a change of policy the larger loss of both policies counts for ever: {reason}."
    if not ticks:
        return "After a change of policy the promise is true at once."
    time_text = "" if period_seconds is None else f" ({time_words(ticks * period_seconds)})"
    return f"After a change of policy the promise is true again after at most {ticks} ticks{time_text}."


def time_words(seconds: float) -> str:
    """Write a time in the largest unit that it fills: days, hours, minutes, or seconds."""
    unit_seconds, unit = next((row for row in _UNITS if seconds >= row[0]), _UNITS[-1])
    return f"{seconds / unit_seconds:.3g} {unit}{'s' * (seconds != unit_seconds)}"


def stretch_table(
    stretches: Sequence[Stretch],
    title_suffix: str = "",
    discretiser: Discretiser | None = None,
    *,
    changes: bool = False,
    stream_names: Sequence[str] = (),
) -> Table:
    """Tabulate what is lost about stretches; `stream_names`, if given, names the stream of each.

    `changes` says that the recording is a log of changes, of which one reading is the state of several ticks.
    """
    rows: list[tuple[str, ...]] = [(stretch.name, str(stretch.ticks), *_loss_cells(stretch)) for stretch in stretches]
    columns = ("stream", *_COLUMNS) if stream_names else _COLUMNS
    if stream_names:
        rows = [(name, *row) for name, row in zip(stream_names, rows, strict=True)]
    return Table(_TITLE + title_suffix + (f" ({_STATES})" if changes else _memory_warning(discretiser)), columns, rows)


def _memory_warning(discretiser: Discretiser | None) -> str:
    """Warn that one reading moves later states; "" if the discretiser does not remember readings."""
    return "" if discretiser is None or not discretiser.remembers else f" ({_STATES})"


def _loss_cells(stretch: Stretch) -> tuple[str, str]:
    """Write a stretch's epsilon and its floor, which needs no class of chains; both are rounded up."""
    return loss_words(stretch.epsilon, ""), loss_words(stretch.floor, "")


def stretch_lines(stretches: Sequence[Stretch], discretiser: Discretiser | None) -> Iterator[str]:
    """Yield what is lost about stretches as lines of text; nothing if there are no stretches."""
    if stretches:
        yield f"for whole stretches{_memory_warning(discretiser)}:"
    for stretch in stretches:
        epsilon_text, floor_text = _loss_cells(stretch)
        tick_words = f"{stretch.ticks} tick{'s' * (stretch.ticks > 1)}"
        floor_words = f"; {floor_text} if the attacker already knows the rest" if floor_text != epsilon_text else ""
        yield f"  {stretch.name} ({tick_words}): {epsilon_text}{floor_words}"


def stretch_documents(stretches: Sequence[Stretch]) -> list[JsonObject]:
    """List what is lost about stretches for JSON; an infinite epsilon is null."""
    return [
        {
            "stretch": stretch.name,
            "seconds": stretch.seconds,
            "ticks": stretch.ticks,
            "epsilon": stretch.epsilon if math.isfinite(stretch.epsilon) else None,
            "sure": largest_posterior(stretch.epsilon),
            "floor": stretch.floor,
        }
        for stretch in stretches
    ]
