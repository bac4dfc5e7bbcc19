"""`fugu demo`."""

from __future__ import annotations

from pathlib import Path

import typer

from fugu.cli.commands.options import command
from fugu.host.arguments import one_of, positive

_KINDS = ("auto", "mosquitto", "embedded")
_SHOWN = ("hearts", "walk")

demo = typer.Typer(rich_markup_mode=None, add_completion=False)


@command(demo)
def _demo(
    what: str = "hearts",
    *,
    out: Path | None = None,
    live: bool = True,
    page: bool = True,
    seconds: float = 40.0,
    broker_kind: str = "auto",
) -> int:
    """Show the whole system: sleeping hearts, or a walk.

    With real processes and real MQTT, on this machine. Of hearts three recordings, whose live page has the address
    that is printed. Of a walk on a grid a private measurement, and a map: tables come from the gateway; there are
    restarts and losses.

    \b
    examples:
      fugu demo
      fugu demo --no-live --no-page --out /tmp/demo
      fugu demo walk --seconds 20

    Args:
        what ([hearts|walk]): Counts of three nights, or places.
        out: Folder for report.html and everything that the run writes (default: demo).
        live: Show hearts in the terminal.
        page: Show hearts in a browser, on this machine.
        seconds: The walk ends when so many seconds' points have arrived.
        broker_kind: auto, mosquitto or embedded.
    """
    kind = one_of(broker_kind, "broker kind", _KINDS)
    if one_of(what, "demo", _SHOWN) == "hearts":
        from fugu.cli.demo.session import run

        return run(out or Path("demo"), live, kind, page=page)
    from fugu.cli.demo.location import run as walk

    return walk(out or Path("demo-location"), positive(seconds, "seconds"), kind)
