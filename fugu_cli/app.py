"""The commands behind `fugu`: a table of them, their loading at first use, and their declaration."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, TypeVar, dataclass_transform, get_args, get_origin

import typer
from typer.core import TyperGroup
from typer.models import ParameterInfo

from fugu.contract.errors import UsageError
from fugu.library.report import Result
from fugu_cli import edge
from fugu_cli.connection import BROKER_HELP

__all__ = [
    "BrokerOption",
    "CeilingOption",
    "ConfigArgument",
    "FleetOption",
    "JsonOption",
    "KnownOption",
    "NotPrivateOption",
    "PointCeilingOption",
    "PolicyArgument",
    "UnitOption",
    "check_commands",
    "command_group",
    "option_group",
    "output_option",
    "run",
]

_Group = TypeVar("_Group")
_PACKAGE = "fugu_cli.commands."
_GROUPS = {
    "plan": "Plan a private stream from a recording.",
    "check": "Check what is promised, trusting nobody.",
    "gateway": "Receive what devices publish, and estimate from it.",
    "deploy": "Write a broker, and folders for those who use it.",
}
COMMANDS = {
    "start": ("demo:start", "From a file or a topic to an agent, in a browser."),
    "try": ("demo:try_recording", "Try a recording of yours: plan, replay it, and see what leaves."),
    "demo": ("demo:demo", "Show the whole system: sleeping hearts, a walk, or a street."),
    "read": ("read:read", "Say what a recording is: its columns, times and gaps."),
    "plan auto": ("plan:auto", "Plan from a recording and a question."),
    "plan stream": ("plan:stream", "Plan a stream: how to randomise each reading."),
    "plan window": ("plan:window", "Plan windows of ticks."),
    "plan joint": ("plan:joint", "Plan streams that move together, under one epsilon."),
    "plan measure": ("plan:measure", "Plan private measurements of many states, such as places."),
    "plan network": ("plan:network", "Plan a release over variables that depend on one another."),
    "plan model": ("model:fit", "Fit a chain to a recording, and test what it assumes."),
    "check policy": ("check:policy", "Check a policy as a device does."),
    "check statement": ("audit:policy", "State what a policy releases, to whom, and what that loses."),
    "check windows": ("check:windows", "Compute the loss of several releases about windows."),
    "check attack": ("check:attack", "Attack what would be released of a recording."),
    "check stream": ("audit:stream", "Attack all that each audience may read of a stream."),
    "check device": ("audit:device", "Test the randomness of a device, from what it publishes."),
    "check ledger": ("audit:ledger", "Recompute what audiences have learned."),
    "agent": ("", edge.COMMANDS["agent"]),
    "gateway run": ("gateway:run", "Serve a fleet until SIGTERM or SIGINT."),
    "gateway cluster": ("gateway:cluster", "Serve a fleet by shards on a Ray cluster."),
    "gateway status": ("gateway:status", "Ask the running gateway how it is."),
    "gateway dashboard": ("gateway:dashboard", "Show in a browser what an account may read."),
    "gateway release": ("ledger:release", "Make a release now, and charge it in the ledger."),
    "gateway ledger": ("ledger:app", "What every audience has been told."),
    "gateway history": ("gateway:history", "Print the estimates of a stream from the store, tick by tick."),
    "gateway export": ("gateway:export", "Write what a gateway has stored as Parquet files."),
    "gateway smooth": ("gateway:smooth", "Estimate states from all symbols, and write Parquet files."),
    "gateway learn": ("gateway:learn", "Learn a class of chains from randomised symbols."),
    "gateway forget": ("gateway:forget", "Erase what a device has sent from the store."),
    "gateway asyncapi": ("gateway:asyncapi", "Print the protocol as an AsyncAPI 3 document."),
    "subscribe": ("", edge.COMMANDS["subscribe"]),
    "helper": ("", edge.COMMANDS["helper"]),
    "fleet": ("fleet:app", "A fleet: its keys, its devices, and their signed documents."),
    **{f"deploy {name}": (f"deploy:{name.replace('-', '_')}", about) for name, about in {
        "broker": "Write a Mosquitto configuration with TLS and access lists.",
        "renew": "Renew the certificate of the broker or of an account.",
        "device": "Add a device: its account, and the folder for it.",
        "streams": "Change which streams a device may publish.",
        "gateway": "Add the gateway: its account, and its folder.",
        "operator": "Add an operator, who may send policies to devices.",
        "subscriber": "Add a subscriber.",
        "home-assistant": "Add Home Assistant.",
        "helper": "Add the helper of groups of homes.",
        "join": "Let an account read the releases of one more audience.",
        "leave": "Take the releases of an audience from an account.",
        "retire": "Take the releases of an audience from every account.",
        "remove": "Take an account away, such as that of a lost device.",
    }.items()},
    "deploy fleet": ("deploy_fleet:fleet", "Add all devices of a CSV file."),
    "deploy schemas": ("schemas:schemas", "Write schemas of configuration files, for editors."),
    "deploy firmware": ("firmware:app", "Images for microcontrollers."),
    "doctor": ("doctor:doctor", "Look at an installation, and say what to do."),
}  # fmt: skip
"""By the words of a command or a group: its place as MODULE:NAME ("" if `fugu_cli.main` runs it), and its help."""


@cache
def load(command_words: str) -> Any:
    """Load a command, or a group of commands, by its words in the table."""
    module, name = COMMANDS[command_words][0].split(":")
    target = getattr(importlib.import_module(_PACKAGE + module), name)
    group = target if isinstance(target, typer.Typer) else command_group({name: target})
    command: Any = typer.main.get_command(group)
    command = command if group is target else command.commands[name]
    command.help = command.help or COMMANDS[command_words][1]  # python -OO keeps no docstrings
    return command


class _LazyGroup(TyperGroup):
    """A group of commands that knows only their names and help until one of them is used."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the named command, and load it."""
        name, command, remaining_words = super().resolve_command(ctx, args)
        command_words = " ".join([*ctx.command_path.split()[1:], name or ""])
        return name, load(command_words) if COMMANDS.get(command_words, ("",))[0] else command, remaining_words


def _lazy_group(help_text: str, name: str | None = None) -> typer.Typer:
    """Make a group of commands that are loaded at first use; only the application itself gets a `name`."""
    return typer.Typer(
        name=name,
        cls=_LazyGroup,
        help=help_text,
        no_args_is_help=True,
        add_completion=name is not None,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )


app = _lazy_group("Private sensor streams: plan a guarantee, run devices and gateways, read private streams.", "fugu")
_groups: dict[str, typer.Typer] = {}
for _words, (_, _about) in COMMANDS.items():
    _first, _, _second = _words.partition(" ")
    if _second and _first not in _groups:
        app.add_typer(_groups.setdefault(_first, _lazy_group(_GROUPS[_first])), name=_first)
    (_groups[_first] if _second else app).add_typer(typer.Typer(help=_about), name=_second or _first)
_root_command = cache(typer.main.get_command)


def run(words: list[str]) -> int:
    """Run the command with these words, and return its exit code; the caller prints a FuguError."""
    try:
        code = _root_command(app)(args=words, prog_name="fugu", standalone_mode=False)
    except SystemExit as ending:
        if isinstance(ending.__context__, BrokenPipeError):  # the framework's own answer to it is a failure
            raise ending.__context__ from None
        raise
    except typer.Abort:
        return 130
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        if context is not None and error.message == context.get_help():  # a group without a command
            print(error.message, file=sys.stderr)
            return 2
        path = context.command_path if context is not None else "fugu"
        raise UsageError(f"{error.format_message()} (try '{path} --help')") from None
    return int(code or 0)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help=edge.OPTIONS["--version"])] = False
) -> None:
    """Private sensor streams: plan a guarantee, run devices and gateways, read private streams.

    \b
    examples:
      fugu plan auto sleep.csv.gz -o plan
      fugu gateway run gateway.toml
      fugu subscribe --fleet home --json
    """


JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, for machines.")]
BrokerOption = Annotated[str, typer.Option("--broker", metavar="HOST:PORT|FILE", help=BROKER_HELP)]
ConfigArgument = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The gateway's file.")]
PolicyArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A policy in its JSON form.")]
KnownOption = Annotated[
    int | None, typer.Option(metavar="N", min=2, help="Attackers are told every N-th state; 2: both neighbours.")
]
NotPrivateOption = Annotated[
    bool,
    typer.Option(
        "--not-private", help="Write what is not private too: its owner then writes the ceiling in agent.toml."
    ),
]
FleetOption = Annotated[str, typer.Option(help="Name of the fleet.")]
CeilingOption = Annotated[
    str,
    typer.Option(
        metavar="E@TIME",
        help="Largest epsilon of a stream that its owner accepts, of a tick or about any stretch of a time.",
    ),
]
PointCeilingOption = Annotated[
    float | None, typer.Option(metavar="E", help="Largest epsilon of one released point (default: none may be).")
]
UnitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--unit",
        metavar="STREAM=N",
        help="What a board's reading of 1 stands for, such as hr=1/10 (default: 1); again for more.",
    ),
]


def output_option(metavar: str, help_text: str) -> Any:
    """Make the option -o of a command, for a file or folder that it writes."""
    return typer.Option("--output", "-o", metavar=metavar, help=help_text)


def command_group(
    commands: Mapping[str, Callable[..., object] | typer.Typer], help_text: str | None = None
) -> typer.Typer:
    """Make a group of commands and groups, by name; without a name it shows its help, by default that of the table.

    A command is a function, and one that returns a `Result` has --json. Each parameter is annotated with its type and a
    `typer.Option` or `typer.Argument`, which has its help and bounds. Fields of a dataclass among the parameters are
    options of their own.

    A parameter without help, or with bounds that its type cannot have, is a TypeError. At the import of a module
    `check_commands` and `option_group` raise it, unless the group itself is made there.
    """
    group = typer.Typer(help=help_text, no_args_is_help=True, rich_markup_mode=None, add_completion=False)
    group.callback()(lambda: None)
    for name, command in commands.items():
        if isinstance(command, typer.Typer):
            group.add_typer(command, name=name)
        else:
            group.command(name)(_with_options(command))
    return group


def check_commands(module: str) -> None:
    """Check the commands of a module in its last line, so that the import raises the TypeError of `command_group`."""
    for place, _ in COMMANDS.values():
        if f"{_PACKAGE}{place}".startswith(f"{module}:"):
            command = getattr(sys.modules[module], place.partition(":")[2])
            if not isinstance(command, typer.Typer):
                _with_options(command)


@dataclass_transform(frozen_default=True)
def option_group(group: type[_Group]) -> type[_Group]:
    """Make a dataclass of options of a class, and check them; TypeError as for `command_group`."""
    frozen_group = dataclass(frozen=True, slots=True)(group)
    for parameter in inspect.signature(frozen_group, eval_str=True).parameters.values():
        _check_parameter(parameter, group.__name__)
    return frozen_group


def _with_options(function: Callable[..., object]) -> Callable[..., object]:
    """Return a command's function with one keyword for each of its options."""
    signature = inspect.signature(function, eval_str=True)
    group_types: dict[str, type[Any]] = {}
    parameters: list[Parameter] = []
    for parameter in signature.parameters.values():
        group = parameter.annotation
        if is_dataclass(group):
            assert isinstance(group, type)
            group_types[parameter.name] = group
            parameters += inspect.signature(group, eval_str=True).parameters.values()
        else:
            parameters.append(parameter)
    shows_result = signature.return_annotation is Result
    if shows_result:
        parameters.append(Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption))
    for parameter in parameters:
        _check_parameter(parameter, function.__name__)

    def run(**option_values: Any) -> object:
        as_json = shows_result and option_values.pop("as_json")
        option_groups = {
            name: group(**{field.name: option_values.pop(field.name) for field in fields(group)})
            for name, group in group_types.items()
        }
        outcome: Any = function(**option_groups, **option_values)
        if not shows_result:
            return outcome
        from fugu_cli.view.terminal import show

        return show(outcome, as_json=as_json)

    run.__doc__ = function.__doc__
    keywords = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
    run.__dict__["__signature__"] = inspect.Signature(keywords)
    run.__annotations__ = {}
    return run


def _check_parameter(parameter: Parameter, command: str) -> None:
    """Raise a TypeError for a parameter without help, or with bounds that are reversed or that its type cannot have."""
    if parameter.annotation is typer.Context:
        return
    value_type, *metadata = get_args(parameter.annotation) if get_origin(parameter.annotation) is Annotated else (None,)
    (declaration,) = [note for note in metadata if isinstance(note, ParameterInfo)] or (None,)
    if declaration is None or not declaration.help:
        raise TypeError(f"{command}: parameter {parameter.name} has no help")
    bounds = [bound for bound in (declaration.min, declaration.max) if bound is not None]
    if bounds and (not {int, float} & {value_type, *get_args(value_type)} or bounds != sorted(bounds)):
        raise TypeError(f"{command}: {parameter.name} cannot have the bounds {bounds}")
