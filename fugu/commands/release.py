"""`fugu release`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from contract.release_frames import ReleaseFrame
from fugu.commands.options import CaFile, CertFile, JsonOption, KeyFile, PasswordFile, Protocol, Username, broker_of
from fugu.view.terminal import say, show_table

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def release(
    config: Annotated[Path, typer.Option(metavar="FILE", help="Batch releases: audiences and schedules (TOML).")],
    store: Annotated[Path, typer.Option(metavar="FILE", help="The gateway's store.")],
    policies: Annotated[Path, typer.Option(metavar="DIR", help="Folder of policy files, *.json.")],
    ledger: Annotated[Path, typer.Option(metavar="FILE", help="The gateway's ledger.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="A release of the configuration.")],
    first: Annotated[int, typer.Option(metavar="TICK", min=0, help="First tick of the window.")],
    broker: Annotated[
        str | None, typer.Option("--broker", metavar="HOST:PORT", help="Publish there (default: print only).")
    ] = None,
    username: Username = None,
    password_file: PasswordFile = None,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    protocol: Protocol = "auto",
    as_json: JsonOption = False,
) -> int:
    """Make a release now: charge it in the ledger, or be refused, then print it, and publish it to a broker.

    \b
    examples:
      fugu release --config releases.toml --store home.db --policies policies --ledger home-ledger.db \\
          --name active --first 3600
    """
    connection = None
    if broker is not None:
        connection = broker_of(
            broker,
            username=username,
            password_file=password_file,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            protocol=protocol,
        )
    from gateway.service import release_now

    frames = release_now(
        config=config, store=store, policies=policies, ledger=ledger, name=name, first=first, broker=connection
    )
    if as_json:
        print(json.dumps([_fields(frame) for frame in frames]))
    else:
        for frame in frames:
            _show(frame)
    return 0


def _fields(frame: ReleaseFrame) -> dict[str, Any]:
    return asdict(frame)


def _show(frame: ReleaseFrame) -> None:
    percent = f"{frame.confidence * 100:g} %"
    labels = frame.states if frame.query == "histogram" else (f"{frame.query} of {', '.join(frame.states)}",)
    columns = zip(labels, frame.values, frame.standard_errors, frame.low, frame.high, strict=True)
    title = f"{frame.name}: {frame.stream}, ticks {frame.first}..{frame.last}, {_devices(frame.devices)}"
    rows = [(label, *(f"{number:.6g}" for number in numbers)) for label, *numbers in columns]
    show_table(title, ("", "estimate", "standard error", f"{percent} from", "to"), rows)
    say(
        f"Ledger entry {frame.entry}: noise of scale {frame.scale}, {frame.charge:.6g} nats charged to each tick. "
        f"Audience {frame.audience} has epsilon {frame.epsilon:g} ({frame.adversary} adversary)."
    )


def _devices(number: int) -> str:
    return "1 device" if number == 1 else f"{number} devices"
