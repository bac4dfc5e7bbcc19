"""`fugu gateway release`."""

from __future__ import annotations

import json

import typer

from fugu.cli.commands.options import ConfigArgument, JsonOption, command, gateway_of
from fugu.cli.connection import broker_of
from fugu.cli.errors import CommandError
from fugu.cli.view.ledger import show_releases
from fugu.cli.view.terminal import answer, say_waiting, working

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@command(app)
def release(
    config: ConfigArgument, *, name: str, first: int, broker: str | None = None, as_json: JsonOption = False
) -> int:
    """Make a release now, and charge it in the ledger.

    It is refused, or printed, and published if a broker is named.

    \b
    examples:
      fugu gateway release gateway.toml --name active --first 3600

    Args:
        name (NAME): A release of the gateway's configuration of releases.
        first (TICK 0..): First tick of the window.
        broker (HOST:PORT|FILE): Publish there, by an account of its own.
    """
    address = None if broker is None else broker_of(broker)
    gateway = gateway_of(config)
    if gateway.releases is None or gateway.policies is None:
        raise CommandError(f"{config} names no {'releases' if gateway.releases is None else 'policies'}")
    from gateway.releases.setup import release_now

    with working(f"making {name}"):
        frames = release_now(
            config=gateway.releases,
            store=gateway.store,
            policies=gateway.policies,
            ledger=gateway.ledger,
            name=name,
            first=first,
            broker=address,
            waiting=say_waiting,
        )
    answer(as_json, lambda: [json.loads(frame.encode()) for frame in frames], lambda: show_releases(frames))
    return 0
