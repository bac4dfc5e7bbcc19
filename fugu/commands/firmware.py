"""`fugu firmware build`."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from contract.errors import PolicyError, UsageError
from contract.fleet_documents import read_enrolment
from contract.policies import read_policy
from firmware_sim.build import BOARDS, Burnt, build, enrolled, signed
from firmware_sim.compiled_policy import compile_policy
from fugu.commands.arguments import one_of, positive
from fugu.commands.fleet_options import PassphraseFiles, at_hand
from fugu.commands.options import JsonOption, command_group
from fugu.errors import CommandError
from fugu.view.firmware import image_document, show_image
from fugu.view.terminal import answer
from gateway.fleet.keystore import key_files, unlock
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
    secret_file: Annotated[
        Path | None,
        typer.Option(help="32 random bytes or more, for an RP2040 or RP2350: what its randomness rests on."),
    ] = None,
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
      fugu firmware build policy.json --board rp2040 --secret-file secret -o image
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
        secret=b"" if secret_file is None else secret_file.read_bytes(),
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


@app.command("sign")
def sign_policy(
    file: Annotated[Path, typer.Argument(metavar="POLICY", help="A policy in its JSON form.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write it.")],
    key: Annotated[list[Path], typer.Option("--key", help="A fleet's policy key; again for more.")],
    unit: Annotated[str, typer.Option(help="As the image was built with.")] = "1",
    passphrase_file: PassphraseFiles = None,
) -> None:
    """Sign a policy for boards that are out already.

    Copied to a board as policy.signed, it is judged at the next start: by its signatures, by what is pinned in the
    image, and by its guarantee, derived anew.

    \b
    examples:
      fugu firmware sign policy.json --key keys/policy-1.pem -o policy.signed
    """
    try:
        policy = read_policy(file.read_bytes())
    except PolicyError as error:
        raise PolicyError(f"{file}: {error}") from None
    passphrases = at_hand(passphrase_file)
    found = [one for path in key for one in key_files([path.parent]) if one.path == path]
    if len(found) != len(key):
        raise CommandError("a key is no file as 'fugu fleet init' writes them")
    keys = [unlock(one, passphrases) for one in found]
    output.write_bytes(signed(compile_policy(policy, _fraction(unit)), keys))
    print(f"{output}: {len(keys)} signatures")
