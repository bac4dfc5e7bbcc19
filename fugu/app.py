"""The commands behind `fugu`: a list of groups, each of which is loaded when it is used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fugu.errors import CommandLineError

__all__ = ["COMMANDS", "agent", "app", "load", "run", "subscribe"]

# The framework exports only the leaf of its tree of usage errors; its parent stands for all of them.
_USAGE_ERROR: type[typer.BadParameter] = typer.BadParameter.__mro__[1]

COMMANDS = {
    "model": ("fugu.commands.model:app", "Chains that describe readings."),
    "plan": ("fugu.commands.plan:app", "Noise for a guarantee."),
    "loss": ("fugu.commands.loss:app", "What given noise really loses."),
    "attack": ("fugu.commands.attack:app", "Attack what would be released of a recording, with its truth to judge by."),
    "policy": ("fugu.commands.policy:app", "Policies: what a device does with a stream."),
    "gateway": ("fugu.commands.gateway:app", "The side that tracks and estimates."),
    "release": (
        "fugu.commands.release:app",
        "Make a release now: charge it in the ledger, or be refused, then print it, and publish it to a broker.",
    ),
    "ledger": ("fugu.commands.ledger:app", "What every audience has been told."),
    "deploy": (
        "fugu.commands.deploy:app",
        "Write a broker with certificates, accounts and access lists, and folders for devices and the gateway.",
    ),
    "fleet": (
        "fugu.commands.fleet:app",
        "A fleet: its keys, its devices, and the signed documents that say what they do.",
    ),
    "doctor": (
        "fugu.commands.doctor:doctor",
        "Look at an installation, and say what to do; exit code 1 if something does not work.",
    ),
    "agent": ("fugu.app:agent", "The side that randomises, on a device."),
    "subscribe": (
        "fugu.app:subscribe",
        "Print private readings of a fleet, symbols, estimates and releases, as they arrive.",
    ),
    "asyncapi": (
        "fugu.commands.asyncapi:asyncapi",
        "Print the protocol as an AsyncAPI 3 document: every topic, and what its messages hold.",
    ),
    "demo": (
        "fugu.commands.demo:demo",
        "Show the whole system on three recordings of sleeping hearts: real processes, real MQTT, on this machine.",
    ),
    "demo-location": (
        "fugu.commands.demo:location",
        "Show a private measurement: a walk on a grid, tables from the gateway, restarts and losses, and a map.",
    ),
}
"""By name: where a command or group is defined, and its help as the list of commands has it."""


@cache
def load(name: str) -> Any:
    """A command or group of commands of the list, put together.

    Args:
        name: its key in COMMANDS.
    """
    module, _, attribute = COMMANDS[name][0].partition(":")
    return typer.main.get_command(getattr(importlib.import_module(module), attribute))


class _LazyGroup(TyperGroup):
    """Knows its commands by name and help only, until one of them is used."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command that was named, and load it."""
        name, known, rest = super().resolve_command(ctx, args)
        return name, known if name is None else load(name), rest


app = typer.Typer(
    name="fugu",
    cls=_LazyGroup,
    help="Private sensor streams: plan a guarantee, run devices and gateways, read private streams.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
for _name, (_, _help) in COMMANDS.items():
    app.add_typer(typer.Typer(help=_help), name=_name)

# `fugu.main` starts these two without the framework, and answers --version: here they are for the help.
_FORWARDED = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
agent = typer.Typer(help=COMMANDS["agent"][1], no_args_is_help=True, rich_markup_mode=None, add_completion=False)
subscribe = typer.Typer(rich_markup_mode=None, add_completion=False)
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
    except _USAGE_ERROR as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "fugu"
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error, file=sys.stderr)
            return 2
        raise CommandLineError(f"{error.format_message()} (try '{path} --help')") from None
    return int(code or 0)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Private sensor streams: plan a guarantee, run devices and gateways, read private streams.

    \b
    examples:
      fugu model fit sleep.csv.gz --column state -o chain.json
      fugu plan stream --model chain.json --epsilon 1
      fugu subscribe --fleet home --json
    """


def _forwarding(module: str, *before: str) -> Callable[[typer.Context], int]:
    """What a command does that reads its words itself."""

    def run_it(context: typer.Context) -> int:
        code: int = importlib.import_module(module).main([*before, *context.args])
        return code

    return run_it


for _name, _before, _help in (
    ("run", (), "Run the agent of one device: fugu agent run CONFIG.toml"),
    ("status", ("--status",), "How the agent on this device is: its sensors, too."),
    ("pause", ("pause",), "Draw nothing and read no sensor, until it is over: for the person who is measured."),
    ("resume", ("resume",), "End a pause."),
    ("moved", ("moved",), "Let an outbox belong to this machine, to which its disk was moved."),
    ("doctor", ("--doctor",), "Look at the installation of this device, and say what to do."),
):
    agent.command(_name, context_settings=_FORWARDED, help=_help)(_forwarding("edge_agent.__main__", *_before))
subscribe.command(context_settings=_FORWARDED, help=COMMANDS["subscribe"][1])(_forwarding("fugu.commands.subscribe"))
