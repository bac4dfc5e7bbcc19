"""The commands behind `fugu`: one table of them, each of which is loaded when it is used."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fugu.cli import edge
from fugu.cli.errors import CommandLineError

__all__ = ["run"]

_AT = "fugu.cli.commands."
_GROUPS = {
    "plan": "From a recording and a question to noise for a guarantee.",
    "check": "Check what is promised, trusting nobody.",
    "gateway": "Receive what devices publish, and estimate from it.",
    "deploy": "Write a broker, and folders for those who use it.",
}
COMMANDS = {
    "start": ("demo:start", "From a file or a topic to an agent, in a browser."),
    "try": ("demo:trial", "Try a recording of yours: plan, replay it, and see what leaves."),
    "demo": ("demo:demo", "Show the whole system: sleeping hearts, or a walk."),
    "plan auto": ("plan:app:auto", "Plan from a recording and a question."),
    "plan stream": ("plan:app:stream", "Plan a stream: how to randomise each reading."),
    "plan window": ("plan:app:window", "Plan windows of ticks."),
    "plan joint": ("plan:app:joint", "Plan streams that move together, under one epsilon."),
    "plan measure": ("plan:app:measure", "Plan private measurements of many states, such as places."),
    "plan network": ("plan:app:network", "Plan a release over variables that depend on one another."),
    "plan model": ("model:app:fit", "Fit a chain to a recording, and test what it assumes."),
    "check policy": ("check:app:policy", "Check a policy as a device does."),
    "check statement": ("audit:app:policy", "State what a policy releases, to whom, and what that loses."),
    "check windows": ("check:app:windows", "Compute the loss of several releases about windows."),
    "check attack": ("check:app:attack", "Attack what would be released of a recording."),
    "check stream": ("audit:app:stream", "Attack all that each audience may read of a stream."),
    "check device": ("audit:app:device", "Test the randomness of a device, from what it publishes."),
    "check ledger": ("audit:app:ledger", "Recompute what audiences have learned."),
    "agent": ("", edge.COMMANDS["agent"]),
    "gateway run": ("gateway:app:run", "Serve a fleet until SIGTERM or SIGINT."),
    "gateway cluster": ("gateway:app:cluster", "Serve a fleet by shards on a Ray cluster."),
    "gateway status": ("gateway:app:status", "Ask the running gateway how it is."),
    "gateway dashboard": ("dashboard:dashboard", "Show in a browser what an account may read."),
    "gateway release": ("ledger:releases", "Make a release now, and charge it in the ledger."),
    "gateway ledger": ("ledger:app", "What every audience has been told."),
    "gateway watch": ("gateway:app:watch", "Test whether streams are in the classes of their policies."),
    "gateway history": ("gateway:app:history", "Print the estimates of a stream from the store, tick by tick."),
    "gateway export": ("history:export", "Write what a gateway has stored as Parquet files."),
    "gateway smooth": ("history:smooth", "Tell states from all symbols, as Parquet files."),
    "gateway learn": ("history:learn", "Learn a class of chains from randomised symbols."),
    "gateway forget": ("gateway:app:forget", "Erase what a device has sent from the store."),
    "gateway asyncapi": ("gateway:app:asyncapi", "Print the protocol as an AsyncAPI 3 document."),
    "subscribe": ("", edge.COMMANDS["subscribe"]),
    "fleet": ("fleet:app", "A fleet: its keys, its devices, and their signed documents."),
    **{f"deploy {name}": (f"deploy:app:{name}", about) for name, about in {
        "broker": "Write a Mosquitto configuration with TLS and access lists.",
        "renew": "Renew the certificate of the broker or of an account.",
        "device": "Add a device: its account, and the folder for it.",
        "streams": "Say anew which streams a device may publish.",
        "gateway": "Add the gateway: its account, and its folder.",
        "operator": "Add an operator, who may send policies to devices.",
        "subscriber": "Add a subscriber.",
        "home-assistant": "Add Home Assistant.",
        "join": "Let an account read the releases of one more audience.",
        "leave": "Take the releases of an audience from an account.",
        "retire": "Take the releases of an audience from every account.",
        "remove": "Take an account away, such as that of a lost device.",
    }.items()},
    "deploy firmware": ("firmware:app", "Images for microcontrollers."),
    "doctor": ("doctor:doctor", "Look at an installation, and say what to do."),
}  # fmt: skip
"""By words: the module of the command or group, its name there, and which of a group's it is; and its help in lists."""


@cache
def load(words: str) -> Any:
    """Load a command, or a group of commands, of the table.

    Args:
        words: its key in COMMANDS.
    """
    module, attribute, *name = COMMANDS[words][0].split(":")
    command: Any = typer.main.get_command(getattr(importlib.import_module(_AT + module), attribute))
    return command.commands[name[0]] if name else command


class _LazyGroup(TyperGroup):
    """Knows its commands by name and help only, until one of them is used."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command that was named, and load it."""
        name, known, rest = super().resolve_command(ctx, args)
        words = " ".join([*ctx.command_path.split()[1:], name or ""])
        return name, load(words) if COMMANDS.get(words, ("",))[0] else known, rest


def _group(about: str, name: str | None = None) -> typer.Typer:
    return typer.Typer(
        name=name,
        cls=_LazyGroup,
        help=about,
        no_args_is_help=True,
        add_completion=name is not None,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )


app = _group("Private sensor streams: plan a guarantee, run devices and gateways, read private streams.", "fugu")
_groups: dict[str, typer.Typer] = {}
for _words, (_, _about) in COMMANDS.items():
    _first, _, _second = _words.partition(" ")
    if _second and _first not in _groups:
        app.add_typer(_groups.setdefault(_first, _group(_GROUPS[_first])), name=_first)
    (_groups[_first] if _second else app).add_typer(typer.Typer(help=_about), name=_second or _first)
_root_command = cache(typer.main.get_command)


def run(words: list[str]) -> int:
    """Run a command of the application.

    Raises:
        FuguError: what was wrong, for the caller to print.
    """
    try:
        code = _root_command(app)(args=words, prog_name="fugu", standalone_mode=False)
    except typer.Abort:
        return 130
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        if context is not None and error.message == context.get_help():  # a group without a command
            print(error.message, file=sys.stderr)
            return 2
        path = context.command_path if context is not None else "fugu"
        raise CommandLineError(f"{error.format_message()} (try '{path} --help')") from None
    return int(code or 0)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help=edge.OPTIONS["--version"])] = False,
) -> None:
    """Private sensor streams: plan a guarantee, run devices and gateways, read private streams.

    \b
    examples:
      fugu plan auto sleep.csv.gz -o plan
      fugu gateway run gateway.toml
      fugu subscribe --fleet home --json
    """
