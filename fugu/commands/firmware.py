"""`fugu firmware build`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from contract.errors import PolicyError
from contract.fleet_documents import read_enrolment
from contract.policies import AnyPolicy, read_policy
from firmware_sim.build import BOARDS, Burnt, build, enrolled
from fugu.commands.arguments import one_of, positive, stream_units
from fugu.commands.options import JsonOption, UnitOption, command_group
from fugu.view.firmware import image_document, show_image
from fugu.view.terminal import answer
from mqtt_link import Broker

__all__ = ["app"]

app = command_group("Images for microcontrollers.")


@app.command("build")
def build_image(
    files: Annotated[
        list[Path], typer.Argument(metavar="POLICY...", help="Policies in their JSON form, one a stream.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the image.")],
    board: Annotated[str, typer.Option(help=f"One of {', '.join(BOARDS)}.")] = "esp32",
    broker: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where it publishes.")] = "127.0.0.1:1883",
    username: Annotated[str, typer.Option(help="User name at the broker.")] = "",
    password_file: Annotated[Path | None, typer.Option(help="Its first line is the password.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Certificate authority; switches TLS on.")] = None,
    enrolment: Annotated[Path | None, typer.Option(help="The device's enrolment, from fugu fleet enrol.")] = None,
    ceiling: Annotated[float | None, typer.Option(metavar="E", help="Largest epsilon it accepts.")] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option(help="32 random bytes or more, for an RP2040 or RP2350: what its randomness rests on."),
    ] = None,
    unit: UnitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build the image of a board from policies.

    They become integers, and the board's own check of its guarantee is run. The image is for the root of the
    board's file system, beside a driver.py that reads the sensor.

    \b
    examples:
      fugu firmware build policy.json --board esp32 -o image
      fugu firmware build policy.json --board unix --unit hr=1/10 -o image
      fugu firmware build policy.json --board rp2040 --secret-file secret -o image
    """
    policies = [_read(file) for file in files]
    at = Broker.parse(broker)
    burnt = Burnt(
        board=one_of(board, "board", BOARDS),
        ceiling=None if ceiling is None else positive(ceiling, "ceiling"),
        host=at.host,
        port=at.port,
        username=username,
        password="" if password_file is None else password_file.read_text().partition("\n")[0].strip(),
        ca=b"" if ca_file is None else ca_file.read_bytes(),
        secret=b"" if secret_file is None else secret_file.read_bytes(),
    )
    if enrolment is not None:
        burnt = enrolled(burnt, read_enrolment(enrolment.read_bytes()), policies)
    image = build(policies, output, burnt, stream_units(unit))
    answer(as_json, lambda: image_document(image), lambda: show_image(image))


def _read(file: Path) -> AnyPolicy:
    try:
        return read_policy(file.read_bytes())
    except PolicyError as error:
        raise PolicyError(f"{file}: {error}") from None
