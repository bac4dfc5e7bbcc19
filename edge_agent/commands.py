"""`fugu-agent pause`, `resume`, `moved`, `set-back`, `key` and `join`: commands for people at the device."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from edge_agent.config_schema import AgentConfig, read_config
from edge_agent.local_control import LocalStatusError, Pause, ask_status
from edge_agent.outbox import Outbox, OutboxError, identifiers
from fugu.contract.errors import StatusCode, UsageError
from fugu.host.arguments import ceiling_of, span
from fugu.host.files import write_secret
from fugu.host.terminal import Parser
from fugu.host.toml_file import toml_lines

__all__ = ["run_command"]

HELPS = {
    "pause": "Draw nothing and read no sensor, until it is over; what was drawn is sent.",
    "resume": "End a pause.",
    "moved": "Let the outbox belong to this machine: the device was moved, and its old machine never runs it again.",
    "key": "Show the 30 digits of this device's key, for whoever runs the helper of a group.",
    "join": "Join a group of homes on your own terms; it asks for the 30 digits of the group's helper.",
    "set-back": "Go by this machine's clock again, after the gateway had signed a time far ahead.",
}
"""Help text of each command."""

_PATIENCE_SECONDS = 10.0
_POLL_SECONDS = 0.1


def run_command(words: Sequence[str], prompt: Callable[[str], str]) -> str:
    """Run a command and return the text to print; `prompt` asks the person at the device. Raises FuguError."""
    parser = Parser(prog="fugu-agent")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, description in HELPS.items():
        command = commands.add_parser(name, description=description)
        command.add_argument("config", metavar="CONFIG.toml", help="the device's configuration")
        if name == "pause":
            command.add_argument("--for", dest="length", metavar="TIME", help="90s, 30m, 2h or 1d; else until resumed")
        if name == "join":
            command.add_argument("group", metavar="GROUP", help="name of the group")
            command.add_argument("--homes", type=int, required=True, metavar="M", help="how many honest homes at least")
            command.add_argument("--epsilon", required=True, metavar="E@TIME", help="the most it may tell: 1.0@1h")
    options = parser.parse_args(words)
    path = Path(options.config)
    config = read_config(path)
    outbox = path.parent / config.outbox
    match options.command:
        case "moved":
            return _move(config, outbox)
        case "key":
            return _key_digits(outbox)
        case "join":
            return _join(path, config, options, prompt)
        case "set-back":
            return _set_back(path, config, outbox)
        case "pause":
            return _pause(outbox, None if options.length is None else span(options.length, "--for")[0])
    Pause(outbox).end()
    is_obeyed = _wait_for_codes(outbox, lambda codes: StatusCode.PAUSED not in codes)
    return "not paused any more" if is_obeyed else "not paused any more; no agent that runs here says so"


def _key_digits(outbox: Path) -> str:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from edge_agent.shares import device_key
    from fugu.contract.envelope import key_digits

    return key_digits(Ed25519PrivateKey.from_private_bytes(device_key(outbox)).public_key().public_bytes_raw())


def _join(path: Path, config: AgentConfig, options: Namespace, prompt: Callable[[str], str]) -> str:
    """Ask for the helper's digits, and write the owner's terms into the configuration."""
    from pydantic import ValidationError

    from fugu.contract._document import first_problem
    from fugu.contract.envelope import read_digits
    from fugu.contract.groups import GroupPin

    if any(pin.name == options.group for pin in config.groups):
        raise UsageError(f"this device has joined {options.group} already: change its terms in {path}")
    try:
        ceiling = ceiling_of(options.epsilon, "--epsilon").model_dump()
        helper_key = read_digits(prompt(f"the 30 digits of the helper of {options.group}: "))
        terms = {"name": options.group, "helper": helper_key, "honest": options.homes, "most": ceiling}
        AgentConfig.model_validate({**dict(config), "groups": (*config.groups, GroupPin.model_validate(terms))})
    except ValidationError as error:
        raise UsageError(first_problem(error, "join")) from None
    except (ValueError, EOFError) as error:
        raise UsageError(f"{error or 'no digits were typed'}") from None
    toml_section = "".join(f"{line}\n" for line in ("", "[[groups]]", *toml_lines(terms)))
    write_secret(path, path.read_text().rstrip("\n") + "\n" + toml_section)
    return (
        f"{path} joins {options.group} from the next start of the agent on. Read these digits to whoever runs its "
        f"helper: {_key_digits(path.parent / config.outbox)}"
    )


def _pause(outbox: Path, seconds: float | None) -> str:
    pause_end = None if seconds is None else time.time() + seconds
    Pause(outbox).begin(pause_end)
    end_words = "it is resumed" if pause_end is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(pause_end))
    is_obeyed = _wait_for_codes(outbox, lambda codes: StatusCode.PAUSED in codes)
    no_agent_words = "" if is_obeyed else "; no agent that runs here says so, and one that starts obeys"
    return (
        f"paused until {end_words}{no_agent_words}\n"
        "Readers of the stream see that ticks are missing, as if the device were off, and that it is paused. "
        "They do not see what was measured, but when you did not want it to be"
    )


def _wait_for_codes(outbox: Path, condition: Callable[[Sequence[str]], bool]) -> bool:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if condition(ask_status(outbox)["codes"]):
                return True
        except LocalStatusError:
            return False
        time.sleep(_POLL_SECONDS)
    return False


def _set_back(path: Path, config: AgentConfig, outbox: Path) -> str:
    from edge_agent.enrolled import open_trust

    if config.enrolment is None:
        raise LocalStatusError(f"{path}: this device is not enrolled, and follows no signed time")
    if outbox.exists():
        # An outbox that the agent has open is refused: the agent would write its own time.
        Outbox(outbox, config.fleet, config.device).close()
    trust = open_trust(config, path.parent)
    time_before, now = trust.state.time, int(time.time())
    time_after = trust.set_time_back(now)
    if time_after == time_before:
        return f"nothing changes: the newest signed time, {time_before}, is not ahead of this machine's clock, {now}"
    write_secret(path.parent / config.trust, bytes(trust.state.pack()), for_service=True)
    time_words = f"the newest signed time was {time_before} and is {time_after} now"
    time_words += "" if time_after == now else ", where the newest document that was accepted begins"
    return f"{time_words}; see that the gateway's clock is right"


def _move(config: AgentConfig, outbox: Path) -> str:
    if not outbox.exists():
        raise OutboxError(f"there is no outbox {outbox}: copy it from the other machine's disk first")
    with closing(Outbox(outbox, config.fleet, config.device)) as outbox_file:
        outbox_file.bind(machine_identifiers := identifiers(config.binding), moved=True)
    if not machine_identifiers:
        return "the outbox belongs to no machine: this one has no identifier that can be read"
    return "the outbox belongs to this machine; never run the other one again with what it has"
