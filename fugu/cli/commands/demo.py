"""`fugu demo` and `fugu demo-location`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fugu.cli.commands.arguments import one_of, positive

__all__ = ["demo", "location"]

BrokerKindOption = Annotated[str, typer.Option(help="auto, mosquitto or embedded.")]
OutOption = Annotated[Path, typer.Option(help="Folder for report.html and everything that the run writes.")]
_KINDS = ("auto", "mosquitto", "embedded")

demo = typer.Typer(rich_markup_mode=None, add_completion=False)
location = typer.Typer(rich_markup_mode=None, add_completion=False)


@demo.command()
def _demo(
    out: OutOption = Path("demo"),
    live: Annotated[bool, typer.Option("--live/--no-live", help="Show the running system in the terminal.")] = True,
    broker_kind: BrokerKindOption = "auto",
    page: Annotated[bool, typer.Option("--page/--no-page", help="Show it in a browser, on this machine.")] = True,
) -> int:
    """Show the whole system on recordings of sleeping hearts.

    Three of them, with real processes and real MQTT, on this machine. Prints the address of its live page.

    \b
    examples:
      fugu demo
      fugu demo --no-live --no-page --out /tmp/demo
    """
    from fugu.cli.demo.session import run

    return run(out, live, one_of(broker_kind, "broker kind", _KINDS), page=page)


@location.command()
def _location(
    seconds: Annotated[float, typer.Option(help="The walk ends when so many seconds' points have arrived.")] = 40.0,
    out: OutOption = Path("demo-location"),
    broker_kind: BrokerKindOption = "auto",
) -> int:
    """Show a private measurement: a walk on a grid, and a map.

    Tables come from the gateway; there are restarts and losses.

    \b
    examples:
      fugu demo-location
      fugu demo-location --seconds 20 --out /tmp/walk
    """
    from fugu.cli.demo.location import run

    return run(out, positive(seconds, "seconds"), one_of(broker_kind, "broker kind", _KINDS))
