"""`fugu gateway run`."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fugu.commands.options import BrokerOption, CaFile, CertFile, KeyFile, PasswordFile, Protocol, Username, broker_of

__all__ = ["app"]

app = typer.Typer(
    help="The side that tracks and estimates.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)


@app.callback()
def _group() -> None:
    """The side that tracks and estimates."""


@app.command("run")
def run(
    fleet: Annotated[str, typer.Option(help="Name of the fleet to serve.")],
    store: Annotated[Path, typer.Option(metavar="FILE", help="SQLite file for symbols and estimates.")],
    policies: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of policy files, *.json; optional with --registry.")
    ] = None,
    broker: BrokerOption = "127.0.0.1:1883",
    lag: Annotated[int, typer.Option(help="Ticks of later symbols that each estimate sees.")] = 8,
    releases: Annotated[
        Path | None, typer.Option("--releases", metavar="FILE", help="Batch releases: audiences and schedules (TOML).")
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option("--ledger", metavar="FILE", help="Ledger of the releases (default: beside the store)."),
    ] = None,
    registry: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Registry of a fleet whose devices are sent signed policies."),
    ] = None,
    root: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="With --registry: a root.envelope; all of them, if there have been several."),
    ] = None,
    gateway_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --registry: the gateway's key, for tables and the time.")
    ] = None,
    passphrase_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Of the gateway's key.")] = None,
    operator_username: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --registry: who publishes policies (default: --username)."),
    ] = None,
    operator_password_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Of the operator.")] = None,
    operator_cert_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Of the operator.")] = None,
    operator_key_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Of the operator.")] = None,
    username: Username = None,
    password_file: PasswordFile = None,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    protocol: Protocol = "auto",
    verbose: Annotated[bool, typer.Option(help="Log what happens, not only what goes wrong.")] = False,
) -> int:
    """Serve a fleet until SIGTERM or SIGINT.

    \b
    examples:
      fugu gateway run --fleet home --policies /etc/fugu/policies --store /var/lib/fugu/home.db
      fugu gateway run --fleet home --policies policies --store home.db --broker gw.example:8883 --ca-file ca.pem
      fugu gateway run --fleet home --policies policies --store home.db --releases releases.toml
      fugu gateway run --fleet home --store home.db --registry fleet.db --root keys/root.envelope \\
          --gateway-key keys/gateway-1a2b3c4d.key --passphrase-file passphrase --operator-username operator \\
          --operator-password-file operator.password
    """
    connection = broker_of(
        broker,
        username=username,
        password_file=password_file,
        ca_file=ca_file,
        cert_file=cert_file,
        key_file=key_file,
        protocol=protocol,
    )
    from gateway.service import GatewaySettings
    from gateway.service import run as serve

    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    enrolled = None
    if registry is not None:
        from gateway.service import FleetFiles

        operator = connection
        if operator_username is not None:
            operator = replace(operator, username=operator_username, password_file=_text(operator_password_file))
        if operator_cert_file is not None:
            operator = replace(operator, cert_file=str(operator_cert_file), key_file=_text(operator_key_file))
        enrolled = FleetFiles(registry, tuple(root or ()), operator, gateway_key, passphrase_file)
    settings = GatewaySettings(
        fleet=fleet,
        broker=connection,
        store=store,
        policies=policies,
        lag=lag,
        releases=releases,
        ledger=ledger,
        enrolled=enrolled,
    )
    return serve(settings)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
