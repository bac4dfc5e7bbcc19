"""`fugu helper`: commands for the person who runs a group's helper, on a machine that is not the site's."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fugu.contract.envelope import key_digits
from fugu.contract.errors import FuguError, UsageError
from fugu.host.files import write_secret
from fugu.host.process import Notifier, at_stop_signals
from fugu.host.terminal import LOG_FORMATS, Parser, exit_code, log_to_stderr, run_program
from fugu_helper.members import Members

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "init": "Make a helper's key and its folder; shows the 30 digits for those who join.",
    "admit": "Admit a home, by the 30 digits of its device that its people read out.",
    "remove": "Take a home out of the list of members.",
    "digits": "Show the helper's own 30 digits again.",
    "group": "Print a group's signed document, for whoever writes policies.",
    "run": "Run the helper until SIGTERM or SIGINT.",
}
"""Help text of each command."""

_TEMPLATE = """\
# A group's helper. Start it with: fugu helper run {file}
fleet = "{fleet}"
root = "root.key"
members = "members"

[broker]
# host, port, username, password_file and ca_file, as in the folder that the site's `fugu deploy helper` has made

# One table for each group; plan it with `fugu plan auto --homes N`, which prints these numbers.
# [[groups]]
# name = "street"
# stream = "power"
# states = ["low", "high"]
# count = ["high"]
# epoch_us = 0
# period_us = 60000000
# length = 60
# honest = 30
# colluding = 6
# noise = 4290000000
# deadline = 600
"""


def main(words: Sequence[str] | None = None) -> int:
    """Run a command. Return 0 on success, 1 for a refusal, 2 for a wrong command line, 130 for an interruption."""
    return run_program(lambda: exit_code("fugu helper", lambda: _run(words)))


def _parser() -> Parser:
    parser = Parser(
        prog="fugu helper",
        description="Help a group of homes to a sum that nobody can take apart. Run it on a machine that is not the "
        "site's: site and helper together could see single homes.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    parsers = {name: commands.add_parser(name, description=purpose, help=purpose) for name, purpose in COMMANDS.items()}
    parsers["init"].add_argument("folder", metavar="FOLDER", type=Path, help="a new folder, for this account only")
    parsers["init"].add_argument("--fleet", required=True, help="the name of the fleet that the homes are in")
    for name in ("admit", "remove", "digits", "group", "run"):
        parsers[name].add_argument("config", metavar="HELPER.toml", type=Path, help="the helper's file")
    for name in ("admit", "remove"):
        parsers[name].add_argument("name", metavar="DEVICE", help="the name of the home's device")
    parsers["admit"].add_argument("--digits", help="of the device, as `fugu-agent key` shows them there; else it asks")
    parsers["group"].add_argument("name", metavar="GROUP", help="which group")
    parsers["run"].add_argument("--verbose", action="store_true", help="log what happens, not only what goes wrong")
    parsers["run"].add_argument("--log-format", choices=LOG_FORMATS, default="text", help="of the log")
    return parser


def _run(words: Sequence[str] | None) -> int:
    options = _parser().parse_args(words)
    match options.command:
        case "init":
            return _create_helper(options.folder, options.fleet)
        case "run":
            return _run_helper(options)
    from fugu_helper.config import read_config, read_root_key, signed_documents

    config = read_config(options.config)
    folder = options.config.parent
    members = Members(folder / config.members)
    root_key = read_root_key(folder / config.root)
    own_digits = key_digits(root_key.public_key().public_bytes_raw())
    match options.command:
        case "admit":
            members.admit(options.name, options.digits or _ask_digits(f"the 30 digits of {options.name}: "))
            print(f"{options.name} is a member. Read these digits to the people there, who type them in: {own_digits}")
        case "remove":
            members.remove(options.name)
            print(f"{options.name} is no member any more, from the next request on")
        case "digits":
            print(own_digits)
        case "group":
            from fugu.contract.envelope import Envelope
            from fugu.contract.groups import SharedWindow

            documents = signed_documents(config, root_key).get(options.name)
            if documents is None:
                raise FuguError(f"{options.config} has no group {options.name!r:.60}")
            print(SharedWindow.of(Envelope.decode(documents[0][1])).model_dump_json(indent=2))
    return 0


def _create_helper(folder: Path, fleet: str) -> int:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from fugu.contract.topics import check_device_name
    from fugu.host.files import new_folder

    check_device_name(fleet)
    new_folder(folder, private=True)
    seed = os.urandom(32)
    write_secret(folder / "root.key", seed)
    write_secret(folder / "members", "")
    file = folder / "helper.toml"
    write_secret(file, _TEMPLATE.format(fleet=fleet, file=file))
    print(f"{file}: write the broker and the groups into it, then fugu helper run {file}")
    public_key = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    print(f"the helper's digits, for everybody who joins: {key_digits(public_key)}")
    return 0


def _ask_digits(question: str) -> str:
    try:
        return input(question)
    except EOFError:
        raise UsageError("no digits were typed") from None


def _run_helper(options: Namespace) -> int:
    log_to_stderr(options.log_format, verbose=options.verbose)
    import logging

    from fugu_helper.service import Helper, lock_memory

    helper = Helper(options.config)
    if not lock_memory():
        logging.getLogger(__name__).warning(
            "memory cannot be locked: keys might be written to swap; set LimitMEMLOCK=infinity, or switch swap off"
        )
    at_stop_signals(helper.stop)
    helper.run(Notifier.of_process())
    return 0


if __name__ == "__main__":
    sys.exit(main())
