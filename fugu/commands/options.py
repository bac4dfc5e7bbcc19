"""Options that several commands share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fugu.commands.arguments import one_of

if TYPE_CHECKING:
    from mqtt_link import Broker

__all__ = [
    "AdversaryOption",
    "BrokerOption",
    "CaFile",
    "CertFile",
    "ConfidenceOption",
    "JsonOption",
    "KeyFile",
    "ModelOption",
    "PasswordFile",
    "Protocol",
    "QOption",
    "ROption",
    "Username",
    "broker_of",
]

QOption = Annotated[str | None, typer.Option("--q", metavar="Q", help="Pr(state 0 -> 1), as NUMBER or LOW:HIGH.")]
ROption = Annotated[str | None, typer.Option("--r", metavar="R", help="Pr(state 1 -> 0), as NUMBER or LOW:HIGH.")]
ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="FILE", help="Chain written by 'fugu model fit', instead of Q and R.")
]
ConfidenceOption = Annotated[
    float, typer.Option("--confidence", help="With a fitted chain: its class holds the chain with this confidence.")
]
AdversaryOption = Annotated[
    str,
    typer.Option(
        "--adversary",
        help="ignorant (knows no state), informed (may know any states: Bayesian DP) or universal "
        "(any side information, chains that change).",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, for machines.")]

BrokerOption = Annotated[str, typer.Option("--broker", metavar="HOST:PORT", help="The MQTT broker.")]
Username = Annotated[str | None, typer.Option("--username", help="User name at the broker.")]
PasswordFile = Annotated[str | None, typer.Option("--password-file", help="Its first line is the password.")]
CaFile = Annotated[str | None, typer.Option("--ca-file", help="Certificate authority; switches TLS on.")]
CertFile = Annotated[str | None, typer.Option("--cert-file", help="Client certificate.")]
KeyFile = Annotated[str | None, typer.Option("--key-file", help="Key of the client certificate.")]
Protocol = Annotated[str, typer.Option("--protocol", help="MQTT version: auto, 5 or 3.1.1.")]

_Version = Literal["auto", "5", "3.1.1"]
_VERSIONS: tuple[_Version, ...] = ("auto", "5", "3.1.1")


def broker_of(
    address: str,
    *,
    username: str | None,
    password_file: str | None,
    ca_file: str | None,
    cert_file: str | None,
    key_file: str | None,
    protocol: str,
) -> Broker:
    """Put the options of a connection together.

    Raises:
        FuguError: the address or the protocol cannot be read.
    """
    from mqtt_link import Broker

    return replace(
        Broker.parse(address),
        username=username,
        password_file=password_file,
        ca_file=ca_file,
        cert_file=cert_file,
        key_file=key_file,
        protocol=one_of(protocol, "protocol", _VERSIONS),
    )
