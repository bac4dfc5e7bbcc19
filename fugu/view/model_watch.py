"""What a gateway's watch over the classes of its streams has found."""

from __future__ import annotations

from collections.abc import Sequence

from fugu.view.terminal import say, show_table
from gateway.service.model_watch import WatchedStream

__all__ = ["show_watched"]


def show_watched(found: Sequence[WatchedStream], false_alarms: float) -> None:
    """Print a line for each stream, and what an alarm means."""
    rows = [(f"{one.device}/{one.stream}", str(one.version), *_cells(one)) for one in found]
    title = f"Are the symbols from the declared classes? At most {false_alarms:g} false alarms a year in all"
    show_table(title, ("stream", "policy", "would notice in a week", "evidence", "found"), rows)
    if any(one.alarm is not None for one in found):
        say("Where one was found, epsilon is larger than promised, or readings are missing: plan with a wider class.")


def _cells(one: WatchedStream) -> tuple[str, str, str]:
    if one.off is not None:
        return one.off, "", ""
    notices = f"states that change {one.notices:g} times less often than in the class"
    alarm = "nothing" if one.alarm is None else f"NOT in the class, at tick {one.alarm}"
    return notices, f"{one.evidence:.3g} of {one.threshold:g}", alarm
