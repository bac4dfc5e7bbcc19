"""The commands for devices and subscribers, which need only an installation of the edge."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import chain

from fugu.contract.errors import UsageError

__all__ = ["COMMANDS", "OPTIONS", "agent", "edge_help"]

OPTIONS = {"--version": "Print the version and stop.", "--help": "Show this message and exit."}
"""The help of each option of `fugu` itself."""

COMMANDS = {
    "agent": "Randomise readings, on a device.",
    "subscribe": "Print private readings of a fleet as they arrive.",
    "helper": "Run the helper of homes whose sums nobody can take apart.",
}
"""The help of each command."""

AGENT: dict[str, tuple[tuple[str, ...], str]] = {
    "run": ((), "Run the agent of one device: fugu agent run CONFIG.toml"),
    "status": (("--status",), "How the agent on this device is: its sensors, too."),
    "pause": (("pause",), "Draw nothing and read no sensor, until it is over."),
    "resume": (("resume",), "End a pause."),
    "moved": (("moved",), "Let an outbox belong to this machine, to which its disk moved."),
    "set-back": (("set-back",), "Go by this machine's clock again, after the gateway had signed a time far ahead."),
    "key": (("key",), "Show the digits of this device's key, for the helper of a group of homes."),
    "join": (("join",), "Join a group of homes, on your own terms."),
    "doctor": (("--doctor",), "Look at the installation of this device, say what to do."),
}
"""By the name of a command of `fugu agent`: the first arguments of `fugu-agent`, and the help."""

_REST = "\nAll other commands need what a gateway does: pip install 'fugu-edge[gateway]'\n"


def edge_help() -> str:
    """Return the help text of `fugu` where only the edge is installed."""
    return _help_text("fugu", "Private sensor streams: run a device, read private streams.", OPTIONS, COMMANDS) + _REST


def agent(arguments: Sequence[str]) -> int:
    """Run a command of `fugu agent` as one of `fugu-agent`; return its exit code. UsageError: it is unknown."""
    name, *options = arguments or [""]
    if name in AGENT:
        from edge_agent.__main__ import main

        return main([*AGENT[name][0], *options])
    if name not in ("", "--help", "-h"):
        raise UsageError(f"No such command {name[:40]!r} (try 'fugu agent --help')")
    commands_below = {command: about for command, (_, about) in AGENT.items()}
    help_text = _help_text("fugu agent", COMMANDS["agent"], {"--help": OPTIONS["--help"]}, commands_below)
    print(help_text, end="", file=sys.stdout if name else sys.stderr)
    return 0 if name else 2


def _help_text(program: str, description: str, options: dict[str, str], commands: dict[str, str]) -> str:
    """Return the help text of a program with options and commands."""
    width = max(map(len, chain(options, commands)))
    lines = [f"Usage: {program} [OPTIONS] COMMAND [ARGS]...", "", f"  {description}", "", "Options:"]
    lines += [f"  {name:{width}}  {about}" for name, about in options.items()]
    lines += ["", "Commands:", *(f"  {name:{width}}  {about}" for name, about in commands.items())]
    return "\n".join(lines) + "\n"
