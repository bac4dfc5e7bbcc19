"""What the commands of `fugu deploy` have in common: options, adding an account, and what is said of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fugu.cli.view.terminal import warn
from fugu.host.checks import certificate_end
from fugu.host.files import new_folder
from gateway.deployment import folders
from gateway.deployment.accounts import Account
from gateway.deployment.broker_files import BrokerFolder, Credentials

__all__ = [
    "ANEW",
    "AccountArgument",
    "AddOptions",
    "BrokerFolderOption",
    "InPlaceOption",
    "OutOption",
    "PoliciesOption",
    "ReleasesOption",
    "report",
    "show_ends",
]

OutOption = Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write; it must be new or empty.")]
BrokerFolderOption = Annotated[
    Path, typer.Option("--broker", metavar="DIR", help="Folder that 'fugu deploy broker' wrote.")
]
InPlaceOption = Annotated[
    bool, typer.Option("--in-place", help="To run in DIR itself: relative names only, no systemd unit.")
]
ReleasesOption = Annotated[
    Path | None, typer.Option("--releases", metavar="FILE", help="What the audiences are promised (TOML).")
]
PoliciesOption = Annotated[
    Path | None, typer.Option("--policies", metavar="DIR", help="Folder of the fleet's policies, *.json.")
]
AccountArgument = Annotated[str, typer.Argument(metavar="NAME", help="Of the account.")]
ANEW = "once the broker has started anew"


@dataclass(frozen=True, slots=True)
class AddOptions:
    """Where an account is added, and where the folder goes that connects with it."""

    out: OutOption
    broker: BrokerFolderOption
    ca_key: Annotated[
        Path | None,
        typer.Option("--ca-key", metavar="FILE", help="With mutual TLS: the authority's key, if not in DIR-offline."),
    ] = None
    renew: Annotated[bool, typer.Option("--renew", help="Replace the credentials of an account that exists.")] = False

    def add(self, opened: BrokerFolder, account: Account) -> Credentials:
        """Add an account to the broker."""
        return opened.add(account, datetime.now(UTC), ca_key=self.ca_key, renew=self.renew)

    def add_client(self, opened: BrokerFolder, account: Account) -> None:
        """Add an account that needs nothing beside its credentials, and write its folder."""
        new_folder(self.out)
        credentials = self.add(opened, account)
        folders.write_client(self.out, opened, credentials)
        report(self.out, opened, f"{account.name}, role {account.role}", None)


def show_ends(files: list[Path]) -> None:
    """Say when certificates end."""
    for file in files:
        try:
            end = datetime.fromtimestamp(certificate_end(file)[1], UTC)
        except (OSError, ValueError):
            warn(f"{file} cannot be read as a certificate: see fugu deploy renew")
            continue
        print(f"{file}: the certificate ends on {end:%Y-%m-%d}")


def report(out: Path, broker: BrokerFolder, what: str, place: str | None) -> None:
    """Say what was written, how to connect with it, and that the broker must learn of it."""
    print(f"{out}: {what}" + ("" if place is None else f"; install it as {place}"))
    show_ends([*out.glob("*client.pem"), broker.path / "server.pem"])
    (file,) = out.glob("*.toml")
    print(f"commands connect so: --broker {file}")
    print(f"the broker knows it once {broker.path} is installed anew and it has started again, or had a SIGHUP")
