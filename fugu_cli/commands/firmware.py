"""`fugu deploy firmware build`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from firmware_sim.build import BOARDS, Burnt, Image, build, enrol
from fugu.contract.errors import FuguError
from fugu.contract.fleet_documents import read_enrolment
from fugu.contract.losses import log_up
from fugu.host.arguments import ceiling_of, one_of, stream_units
from fugu.library.checks import load_policy
from fugu.library.report import Line, Report, Result, Table
from fugu_cli.app import BrokerOption, UnitOption, command_group, output_option
from fugu_cli.connection import broker_of


def build_image(
    files: Annotated[list[Path], Argument(metavar="POLICY...", help="Policies in their JSON form, one a stream.")],
    *,
    output: Annotated[Path, output_option("DIR", "Folder for the image.")],
    board: Annotated[str, Option(help=f"One of {', '.join(BOARDS)}.")] = "esp32",
    broker: BrokerOption = "127.0.0.1:1883",
    enrolment: Annotated[Path | None, Option(help="The device's enrolment, from fugu fleet enrol.")] = None,
    ceiling: Annotated[
        str | None,
        Option(metavar="E@TIME", help="Largest epsilon it accepts, of a tick or about any stretch of that time."),
    ] = None,
    secret_file: Annotated[
        Path | None, Option(help="32 random bytes or more, for an RP2040 or RP2350: what its randomness rests on.")
    ] = None,
    unit: UnitOption = None,
) -> Result:
    """Build the image of a board from policies.

    They become integers, and the board's own check of its guarantee is run. The image is for the root of the
    board's file system, beside a driver.py that reads the sensor.

    \b
    examples:
      fugu deploy firmware build policy.json --board esp32 --broker watch/agent.toml -o image
      fugu deploy firmware build policy.json --board unix --unit hr=1/10 -o image
      fugu deploy firmware build policy.json --board rp2040 --secret-file secret -o image
    """
    policies = [load_policy(file) for file in files]
    address = broker_of(broker)
    if address.cert_file is not None:
        raise FuguError("a board has no client certificate: give it an account with a password")
    burnt_settings = Burnt(
        board=one_of(board, "board", BOARDS),
        ceilings=() if ceiling is None else (ceiling_of(ceiling),),
        host=address.host,
        port=address.port,
        username=address.username or "",
        password=(address.password() or "").strip(),
        ca=b"" if address.ca_file is None else Path(address.ca_file).read_bytes(),
        secret=b"" if secret_file is None else secret_file.read_bytes(),
    )
    if enrolment is not None:
        burnt_settings = enrol(burnt_settings, read_enrolment(enrolment.read_bytes()), policies)
    image = build(policies, output, burnt_settings, stream_units(unit))
    document = {
        "folder": str(image.folder),
        "epsilon": log_up(image.ratio),
        "randomness": image.randomness,
        "policies": [
            {"bytes": len(compiled), "sha256": hashlib.sha256(compiled).hexdigest()} for compiled in image.compiled
        ],
        "files": dict(image.sizes),
        "bytes": image.size,
    }
    return Result(document, _image_report(image))


app = command_group({"build": build_image})


def _image_report(image: Image) -> Report:
    file_rows = [(name, str(byte_count)) for name, byte_count in image.sizes.items()]
    yield Table(f"{image.folder}: {image.size} bytes", ("file", "bytes"), file_rows)
    yield Line(f"The board derives that a stream loses at most epsilon {log_up(image.ratio):.6g}.")
    yield Line(f"Its randomness: {image.randomness}.")
    yield Line("Copy the files to the root of the board, beside a driver.py with a function read().")
