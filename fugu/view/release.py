"""A release as a table and a sentence."""

from __future__ import annotations

from contract.release_frames import ReleaseFrame
from fugu.view.terminal import say, show_table

__all__ = ["show_release"]


def show_release(frame: ReleaseFrame) -> None:
    """Print a release."""
    percent = f"{frame.confidence * 100:g} %"
    labels = frame.states if frame.query == "histogram" else (f"{frame.query} of {', '.join(frame.states)}",)
    columns = zip(labels, frame.values, frame.standard_errors, frame.low, frame.high, strict=True)
    title = f"{frame.name}: {frame.stream}, ticks {frame.first}..{frame.last}, {_devices(frame.devices)}"
    rows = [(label, *(f"{number:.6g}" for number in numbers)) for label, *numbers in columns]
    show_table(title, ("", "estimate", "standard error", f"{percent} from", "to"), rows)
    say(
        f"Ledger entry {frame.entry}: noise of scale {frame.scale}, {frame.charge:.6g} nats charged to each tick. "
        f"Audience {frame.audience} has epsilon {frame.epsilon:g} ({frame.adversary} adversary)."
    )


def _devices(number: int) -> str:
    return "1 device" if number == 1 else f"{number} devices"
