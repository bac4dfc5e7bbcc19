"""The commands behind `fugu`: a list of groups, each of which is loaded when it is used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fugu.cli import edge
from fugu.cli.errors import CommandLineError
from fugu.host.command_line import Word

__all__ = ["COMMANDS", "app", "load", "next_words", "run"]

_WIDTH = 80

COMMANDS = {
    "model": ("fugu.cli.commands.model:app", "Chains that describe readings."),
    "plan": ("fugu.cli.commands.plan:app", "Noise for a guarantee."),
    "loss": ("fugu.cli.commands.loss:app", "What given noise really loses."),
    "attack": ("fugu.cli.commands.attack:app", "Attack what would be released of a recording."),
    "policy": ("fugu.cli.commands.policy:app", "Policies: what a device does with a stream."),
    "audit": ("fugu.cli.commands.audit:app", "Check what is promised, trusting nobody."),
    "gateway": ("fugu.cli.commands.gateway:app", "Receive what devices publish, and estimate from it."),
    "dashboard": (
        "fugu.cli.commands.dashboard:dashboard",
        "Show in a browser what an account may read.",
    ),
    "release": ("fugu.cli.commands.release:app", "Make a release now, and charge it in the ledger."),
    "ledger": ("fugu.cli.commands.ledger:app", "What every audience has been told."),
    "export": ("fugu.cli.commands.history:export", "Write what a gateway has stored as Parquet files."),
    "learn": ("fugu.cli.commands.history:learn", "Learn a class of chains from randomised symbols."),
    "smooth": ("fugu.cli.commands.history:smooth", "Tell states from all symbols, as Parquet files."),
    "deploy": ("fugu.cli.commands.deploy:app", "Write a broker, and folders for those who use it."),
    "firmware": ("fugu.cli.commands.firmware:app", "Images for microcontrollers."),
    "fleet": ("fugu.cli.commands.fleet:app", "A fleet: its keys, its devices, and their signed documents."),
    "doctor": ("fugu.cli.commands.doctor:doctor", "Look at an installation, and say what to do."),
    **{name: ("", about) for name, about in edge.COMMANDS.items()},
    "asyncapi": ("fugu.cli.commands.asyncapi:asyncapi", "Print the protocol as an AsyncAPI 3 document."),
    "demo": ("fugu.cli.commands.demo:demo", "Show the whole system on recordings of sleeping hearts."),
    "demo-location": ("fugu.cli.commands.demo:location", "Show a private measurement: a walk on a grid, and a map."),
}
"""By name: where a command or group is defined, unless it is the edge's, and its help in the list of commands."""


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


def next_words(before: Sequence[str]) -> Iterator[Word]:
    """What may come after some words.

    Args:
        before: the words before the one that has begun.
    """
    here = True
    command: Any = _root_command(app)
    for word in before:
        if (below := getattr(command, "commands", {}).get(word)) is not None:
            here, command = False, load(word) if here else below
    options = {name: one for one in command.params for name in (*one.opts, *one.secondary_opts) if name[0] == "-"}
    if before and (given := options.get(before[-1])) is not None and not given.is_flag:
        return
    yield from ((name, one.get_short_help_str(_WIDTH)) for name, one in getattr(command, "commands", {}).items())
    yield from ((name, getattr(one, "help", None) or "") for name, one in options.items())
    yield "--help", edge.OPTIONS["--help"]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help=edge.OPTIONS["--version"])] = False,
    completion: Annotated[
        str | None, typer.Option("--completion", metavar="SHELL", help=edge.OPTIONS["--completion"])
    ] = None,
) -> None:
    """Private sensor streams: plan a guarantee, run devices and gateways, read private streams.

    \b
    examples:
      fugu model fit sleep.csv.gz --column state -o chain.json
      fugu plan stream --model chain.json --epsilon 1
      fugu subscribe --fleet home --json
    """
