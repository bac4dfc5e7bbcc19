"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fugu.commands.arguments import one_of

if TYPE_CHECKING:
    from mqtt_link import Broker

__all__ = ["ConnectionOptions", "JsonOption", "command_group"]

JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, for machines.")]

_Version = Literal["auto", "5", "3.1.1"]
_VERSIONS: tuple[_Version, ...] = ("auto", "5", "3.1.1")


def command_group(about: str) -> typer.Typer:
    """A group of commands, be it of one only, that explains itself where no command is named."""
    group = typer.Typer(help=about, no_args_is_help=True, rich_markup_mode=None, add_completion=False)
    group.callback()(lambda: None)
    return group


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How to connect to the broker."""

    username: Annotated[str | None, typer.Option(help="User name at the broker.")] = None
    password_file: Annotated[str | None, typer.Option(help="Its first line is the password.")] = None
    ca_file: Annotated[str | None, typer.Option(help="Certificate authority; switches TLS on.")] = None
    cert_file: Annotated[str | None, typer.Option(help="Client certificate.")] = None
    key_file: Annotated[str | None, typer.Option(help="Key of the client certificate.")] = None
    protocol: Annotated[str, typer.Option(help="MQTT version: auto, 5 or 3.1.1.")] = "auto"

    def broker(self, address: str) -> Broker:
        """The broker at HOST:PORT.

        Raises:
            FuguError: the address or the protocol cannot be read.
        """
        from mqtt_link import Broker

        return replace(
            Broker.parse(address),
            username=self.username,
            password_file=self.password_file,
            ca_file=self.ca_file,
            cert_file=self.cert_file,
            key_file=self.key_file,
            protocol=one_of(self.protocol, "protocol", _VERSIONS),
        )
