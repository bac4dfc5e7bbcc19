"""Options that several commands share; those that belong together are the fields of one dataclass."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fugu.cli.connection import BROKER_HELP

if TYPE_CHECKING:
    from gateway.config import GatewayConfig
    from gateway.location import Location

__all__ = [
    "BrokerOption",
    "ConfigArgument",
    "JsonOption",
    "UnitOption",
    "command",
    "command_group",
    "gateway_of",
    "store_of",
]


JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, for machines.")]
BrokerOption = Annotated[str, typer.Option("--broker", metavar="HOST:PORT|FILE", help=BROKER_HELP)]
ConfigArgument = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The gateway's file.")]
UnitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--unit",
        metavar="STREAM=N",
        help="What a board's reading of 1 stands for, such as hr=1/10 (default: 1); again for more.",
    ),
]


def command_group(about: str) -> typer.Typer:
    """A group of commands, be it of one only, that explains itself where no command is named."""
    group = typer.Typer(help=about, no_args_is_help=True, rich_markup_mode=None, add_completion=False)
    group.callback()(lambda: None)
    return group


def store_of(text: str) -> Location:
    """The store that an option names: a file, a URL, or that of a gateway.toml.

    Raises:
        FuguError: it is none of them.
    """
    from gateway.config import place_of

    return place_of(text).store


def gateway_of(path: Path) -> GatewayConfig:
    """Read the file of a gateway.

    Raises:
        FuguError: it cannot be read, or a key is wrong.
    """
    from gateway.config import read_gateway

    return read_gateway(path)


_ENTRY = re.compile(r"(\w+)(?: \((.+?)\))?: (.+)")
_RANGE = re.compile(r"(-?\d*)\.\.(\d*)")


def command(app: typer.Typer, name: str | None = None) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Make a function a command of an application.

    Parameters before the `*` of the function are arguments of the command line, those after it options; fields of a
    dataclass among them are options of their own. What is after "Args:" (of a dataclass, "Attributes:") is their help,
    as in `whose (--for -f FLEET 1..9): For whom.`: further names, how a value is shown, and its bounds.
    """

    def register(function: Callable[..., object]) -> Callable[..., object]:
        about, told = _told(function, "Args")
        groups: dict[str, type[Any]] = {}
        flat: list[Parameter] = []
        for parameter in inspect.signature(function, eval_str=True).parameters.values():
            group = parameter.annotation
            if is_dataclass(group):
                assert isinstance(group, type)
                groups[parameter.name] = group
                of_fields = {key: said for one in group.__mro__ for key, said in _told(one, "Attributes")[1].items()}
                for one in inspect.signature(group, eval_str=True).parameters.values():
                    flat.append(_typed(one.replace(kind=Parameter.KEYWORD_ONLY), of_fields))
            else:
                flat.append(_typed(parameter, told))

        def run(**given: Any) -> object:
            made = {
                name: group(**{field.name: given.pop(field.name) for field in fields(group)})
                for name, group in groups.items()
            }
            return function(**made, **given)

        run.__name__, run.__doc__ = function.__name__, about
        run.__dict__["__signature__"] = inspect.Signature([one.replace(kind=Parameter.KEYWORD_ONLY) for one in flat])
        run.__annotations__ = {}
        app.command(name)(run)
        return function

    return register


def _told(of: object, title: str) -> tuple[str, dict[str, tuple[list[str], str]]]:
    """Split a docstring: its text, and for each parameter the words and the help below a title."""
    about, _, entries = (inspect.getdoc(of) or "").partition(f"\n\n{title}:\n")
    lines = re.sub(r"\n {8,}", " ", entries).splitlines()
    found = [match.groups() for line in lines if (match := _ENTRY.fullmatch(line.strip()))]
    return about, {name: ((words or "").split(), said) for name, words, said in found}


def _typed(parameter: Parameter, told: dict[str, tuple[list[str], str]]) -> Parameter:
    """A parameter as `typer` takes it."""
    if parameter.name not in told:
        return parameter
    words, said = told[parameter.name]
    known: dict[str, Any] = {"help": said}
    names = [word for word in words if word.startswith("--")] or [f"--{parameter.name.replace('_', '-')}"]
    names += [word for word in words if re.match("-[a-z]", word)]
    for word in words:
        if bounds := _RANGE.fullmatch(word):
            known |= {end: int(bound) for end, bound in zip(("min", "max"), bounds.groups(), strict=True) if bound}
        elif word[0] != "-":
            known["metavar"] = word
    if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD:
        made = typer.Argument(**known)
    else:
        made = typer.Option(*names if parameter.default is not True else (), **known)
    return parameter.replace(annotation=Annotated[parameter.annotation, made])
