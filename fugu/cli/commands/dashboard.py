"""`fugu gateway dashboard`: the live page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fugu.cli.commands.options import BrokerOption
from fugu.cli.connection import broker_of
from fugu.cli.errors import CommandLineError
from fugu.cli.view.terminal import say
from fugu.host.files import write_secret
from fugu.mqtt import Broker
from gateway.location import store_location
from gateway.page.login import password_line
from gateway.page.server import PageSettings, serve

__all__ = ["dashboard"]


dashboard = typer.Typer(rich_markup_mode=None, add_completion=False)


@dashboard.command()
def show(
    fleet: Annotated[str | None, typer.Option(help="Name of the fleet to show.")] = None,
    broker: BrokerOption = "127.0.0.1:1883",
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where browsers find the page.")] = "127.0.0.1:8080",
    login_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The hash of the page's password, as --new-login writes it.")
    ] = None,
    no_login: Annotated[
        bool, typer.Option("--no-login", help="Show it to whoever is on this machine; loopback only.")
    ] = False,
    new_login: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ask for a password, write its hash there, and stop.")
    ] = None,
    ledger: Annotated[
        str | None, typer.Option(metavar="FILE|URL", help="The gateway's ledger, to show charges and budgets.")
    ] = None,
    audience: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the ledger show this audience's part only (default: all).")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate of the page.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key.")] = None,
    session_seconds: Annotated[float, typer.Option(metavar="S", help="How long a login lasts.")] = 43_200.0,
) -> None:
    """Show in a browser what an account may read.

    It shows nothing that the account could not read, and changes nothing. Stops at Ctrl-C.

    \b
    examples:
      fugu gateway dashboard --fleet home --no-login
      fugu gateway dashboard --fleet home --no-login --ledger home-ledger.db
      fugu gateway dashboard --new-login page.login
      fugu gateway dashboard --fleet home --login-file page.login --broker site/broker.toml
    """
    if new_login is not None:
        terminal = sys.stdin.isatty()
        password = typer.prompt("password", hide_input=True) if terminal else sys.stdin.readline().rstrip("\n")
        write_secret(new_login, password_line(password) + "\n")
        return
    if fleet is None:
        raise CommandLineError("which fleet: give --fleet")
    if (login_file is None) != no_login:
        raise CommandLineError("give either --login-file or --no-login")
    if audience is not None and ledger is None:
        raise CommandLineError("of which ledger is that audience: give --ledger")
    found = Broker.parse(listen)
    settings = PageSettings(
        fleet,
        broker_of(broker),
        (found.host, found.port),
        password=login_file,
        certificate=tls_cert,
        key=tls_key,
        session_seconds=session_seconds,
        ledger=None if ledger is None else store_location(ledger),
        audience=audience,
    )
    say(f"the page: {settings.address}")
    serve(settings)
