"""`fugu gateway dashboard`: the live page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fugu.host.files import write_secret
from fugu_cli.app import BrokerOption, command
from fugu_cli.connection import broker_of
from fugu_cli.errors import CommandLineError
from fugu_cli.view.terminal import say

dashboard = typer.Typer(rich_markup_mode=None, add_completion=False)


@command(dashboard)
def show(
    config: Annotated[
        Path | None, Argument(metavar="[PAGE.toml]", help="fleet, [broker], ledger and [page], in place of options.")
    ] = None,
    *,
    fleet: Annotated[str | None, Option(help="Name of the fleet to show.")] = None,
    broker: BrokerOption = "127.0.0.1:1883",
    listen: Annotated[str, Option(metavar="HOST:PORT", help="Where browsers find the page.")] = "127.0.0.1:8080",
    no_login: Annotated[
        bool, Option("--no-login", help="Show it to whoever is on this machine; loopback only.")
    ] = False,
    new_login: Annotated[
        Path | None, Option(metavar="FILE", help="Ask for a password, write its hash there, and stop.")
    ] = None,
) -> None:
    """Show in a browser what an account may read.

    It shows nothing that the account could not read, and changes nothing. Stops at Ctrl-C.

    \b
    For others than this machine a file says more:
      fleet = "home"
      broker = { host = "gw.example", ca_file = "ca.pem", username = "site", password_file = "password" }
      [page]
      listen = "0.0.0.0:8443"
      login_file = "page.login"
      tls_cert = "page.pem"
      tls_key = "page.key"

    \b
    examples:
      fugu gateway dashboard --fleet home --no-login
      fugu gateway dashboard --new-login page.login
      fugu gateway dashboard page.toml
    """
    from gateway.page.login import password_line

    if new_login is not None:
        terminal = sys.stdin.isatty()
        password = typer.prompt("password", hide_input=True) if terminal else sys.stdin.readline().rstrip("\n")
        write_secret(new_login, password_line(password) + "\n")
        return
    from gateway.config import PageConfig, PageFile
    from gateway.page.server import serve

    if config is not None:
        page = PageFile.read(config)
    elif fleet is None:
        raise CommandLineError("which fleet: give --fleet, or a file")
    elif not no_login:
        raise CommandLineError("give --no-login, or a file with login_file in [page]")
    else:
        page = PageFile(fleet=fleet, broker=broker_of(broker), page=PageConfig(listen=listen, no_login=True))
    settings = page.settings()
    say(f"the page: {settings.address}")
    serve(settings)
