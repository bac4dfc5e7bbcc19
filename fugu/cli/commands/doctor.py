"""`fugu doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fugu.cli.commands.options import ConnectionOptions, JsonOption, grouped, store_of
from fugu.cli.errors import CommandLineError
from fugu.cli.view.terminal import answer, say_waiting, working
from fugu.host.checks import failed, lines

__all__ = ["doctor"]

doctor = typer.Typer(rich_markup_mode=None, add_completion=False)


@doctor.command()
@grouped
def _doctor(
    connection: ConnectionOptions,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="A device's agent.toml: look at that.")] = None,
    gateway: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder of 'fugu deploy gateway': look at that.")
    ] = None,
    store: Annotated[str | None, typer.Option(metavar="FILE|URL", help="The gateway's store.")] = None,
    policies: Annotated[Path | None, typer.Option(metavar="DIR", help="The gateway's folder of policies.")] = None,
    fleet: Annotated[str, typer.Option(help="The gateway's fleet, if there is no --gateway.")] = "home",
    broker: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The broker, if there is no --gateway; options as for run.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Look at an installation, and say what to do.

    Exit code 1 if something does not work.

    \b
    examples:
      fugu doctor --config agent.toml
      fugu doctor --gateway /etc/fugu-gateway
      fugu doctor --fleet home --store gateway.sqlite --policies policies --broker 127.0.0.1:1883
    """
    if config is not None:
        from edge_agent.doctor import examine as examine_device

        found = examine_device(config, say_waiting)
    else:
        from gateway.deployment.doctor import Installation, examine, installed

        location = None if store is None else store_of(store)
        if gateway is not None:
            installation = installed(gateway, location)
        elif store is None and policies is None and broker is None:
            raise CommandLineError("say what to look at: --config, --gateway, or --store, --policies and --broker")
        else:
            address = None if broker is None else connection.broker(broker)
            installation = Installation(fleet, address, location, policies)
        with working("looking at everything"):
            found = examine(installation, say_waiting)
    answer(as_json, lambda: {"findings": [one._asdict() for one in found]}, lambda: print("\n".join(lines(found))))
    return 1 if failed(found) else 0
