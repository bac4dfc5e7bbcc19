"""`fugu release`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fugu.cli.commands.options import ConnectionOptions, JsonOption, grouped, store_of
from fugu.cli.view.ledger import show_releases
from fugu.cli.view.terminal import answer, say_waiting, working
from gateway.location import store_location

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
@grouped
def release(
    config: Annotated[Path, typer.Option(metavar="FILE", help="Batch releases: audiences and schedules (TOML).")],
    store: Annotated[str, typer.Option(metavar="FILE|URL", help="The gateway's store.")],
    policies: Annotated[Path, typer.Option(metavar="DIR", help="Folder of policy files, *.json.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="A release of the configuration.")],
    first: Annotated[int, typer.Option(metavar="TICK", min=0, help="First tick of the window.")],
    connection: ConnectionOptions,
    ledger: Annotated[
        str | None, typer.Option(metavar="FILE|URL", help="The gateway's ledger (default: beside the store).")
    ] = None,
    broker: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Publish there (default: print only).")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Make a release now, and charge it in the ledger.

    It is refused, or printed, and published if a broker is named.

    \b
    examples:
      fugu release --config releases.toml --store home.db --policies policies --ledger home-ledger.db \\
          --name active --first 3600
    """
    address = None if broker is None else connection.broker(broker)
    from gateway.releases.setup import release_now

    with working(f"making {name}"):
        frames = release_now(
            config=config,
            store=store_of(store),
            policies=policies,
            ledger=None if ledger is None else store_location(ledger),
            name=name,
            first=first,
            broker=address,
            waiting=say_waiting,
        )
    answer(as_json, lambda: [json.loads(frame.encode()) for frame in frames], lambda: show_releases(frames))
    return 0
