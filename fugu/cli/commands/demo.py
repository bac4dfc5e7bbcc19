"""`fugu demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fugu.cli.commands.arguments import one_of, positive

_KINDS = ("auto", "mosquitto", "embedded")
_SHOWN = ("hearts", "walk")

demo = typer.Typer(rich_markup_mode=None, add_completion=False)


@demo.command()
def _demo(
    what: Annotated[str, typer.Argument(metavar="[hearts|walk]", help="Counts of three nights, or places.")] = "hearts",
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.html and everything that the run writes (default: demo).")
    ] = None,
    live: Annotated[bool, typer.Option("--live/--no-live", help="Show hearts in the terminal.")] = True,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Show hearts in a browser, on this machine.")] = True,
    seconds: Annotated[float, typer.Option(help="The walk ends when so many seconds' points have arrived.")] = 40.0,
    broker_kind: Annotated[str, typer.Option(help="auto, mosquitto or embedded.")] = "auto",
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
    """
    kind = one_of(broker_kind, "broker kind", _KINDS)
    if one_of(what, "demo", _SHOWN) == "hearts":
        from fugu.cli.demo.session import run

        return run(out or Path("demo"), live, kind, page=page)
    from fugu.cli.demo.location import run as walk

    return walk(out or Path("demo-location"), positive(seconds, "seconds"), kind)
