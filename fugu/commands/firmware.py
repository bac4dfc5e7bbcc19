"""`fugu firmware build`."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from contract.errors import PolicyError, UsageError
from contract.fleet_documents import read_enrolment
from contract.policies import read_policy
from firmware_sim.build import BOARDS, Burnt, build, enrolled
from fugu.commands.arguments import one_of, positive
from fugu.commands.options import JsonOption, command_group
from fugu.view.firmware import image_document, show_image
from fugu.view.terminal import answer
from mqtt_link import Broker

__all__ = ["app"]

app = command_group("Images for microcontrollers.")


@app.command("build")
def build_image(
    file: Annotated[Path, typer.Argument(metavar="POLICY", help="A policy in its JSON form.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the image.")],
    board: Annotated[str, typer.Option(help=f"One of {', '.join(BOARDS)}.")] = "esp32",
    broker: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where it publishes.")] = "127.0.0.1:1883",
    username: Annotated[str, typer.Option(help="User name at the broker.")] = "",
    password_file: Annotated[Path | None, typer.Option(help="Its first line is the password.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Certificate authority; switches TLS on.")] = None,
    enrolment: Annotated[Path | None, typer.Option(help="The device's enrolment, from fugu fleet enrol.")] = None,
    ceiling: Annotated[float | None, typer.Option(metavar="E", help="Largest epsilon it accepts.")] = None,
    unit: Annotated[str, typer.Option(help="What a reading of 1 stands for: 1, 1/10.")] = "1",
    as_json: JsonOption = False,
) -> None:
    """Build the image of a board from a policy.

    The policy becomes integers, and the board's own check of its guarantee is run. The image is for the root of the
    board's file system, beside a driver.py that reads the sensor.

    \b
    examples:
      fugu firmware build policy.json --board esp32 -o image
      fugu firmware build policy.json --board unix --unit 1/10 -o image
    """
    try:
        policy = read_policy(file.read_bytes())
    except PolicyError as error:
        raise PolicyError(f"{file}: {error}") from None
    at = Broker.parse(broker)
    burnt = Burnt(
        board=one_of(board, "board", BOARDS),
        ceiling=None if ceiling is None else positive(ceiling, "ceiling"),
        host=at.host,
        port=at.port,
        username=username,
        password="" if password_file is None else password_file.read_text().partition("\n")[0].strip(),
        ca=b"" if ca_file is None else ca_file.read_bytes(),
    )
    if enrolment is not None:
        burnt = enrolled(burnt, read_enrolment(enrolment.read_bytes()), policy)
    image = build(policy, output, burnt, _fraction(unit))
    answer(as_json, lambda: image_document(image), lambda: show_image(image))


def _fraction(text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"unit {text!r} is no number: write 1 or 1/10") from None
