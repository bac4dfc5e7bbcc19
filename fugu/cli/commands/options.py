"""Options that several commands share; those that belong together are the fields of one dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_type_hints

import typer

from fugu.cli.commands.arguments import one_of
from fugu.cli.connection import BROKER_HELP
from fugu.host.process import LOG_FORMATS, log_to_stderr

if TYPE_CHECKING:
    from gateway.config import GatewayConfig
    from gateway.location import Location


__all__ = [
    "BrokerOption",
    "ConfigArgument",
    "JsonOption",
    "LogOptions",
    "UnitOption",
    "command_group",
    "gateway_of",
    "grouped",
    "place_of",
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

_Result = TypeVar("_Result")


def command_group(about: str) -> typer.Typer:
    """A group of commands, be it of one only, that explains itself where no command is named."""
    group = typer.Typer(help=about, no_args_is_help=True, rich_markup_mode=None, add_completion=False)
    group.callback()(lambda: None)
    return group


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What a process that stays logs."""

    verbose: Annotated[bool, typer.Option("--verbose", help="Log what happens, not only what goes wrong.")] = False
    log_format: Annotated[str, typer.Option(help="Of the log: text, or json (an object a line).")] = "text"

    def begin(self) -> None:
        """Set the log up.

        Raises:
            FuguError: there is no such format.
        """
        log_to_stderr(one_of(self.log_format, "log-format", LOG_FORMATS), verbose=self.verbose)


def store_of(text: str) -> Location:
    """The store that an option names: a file, a URL, or that of a gateway.toml.

    Raises:
        FuguError: it is none of them.
    """
    return place_of(text).store


class Place(NamedTuple):
    """Where a gateway keeps what it has, and how late its estimates are.

    Attributes:
        ledger: `None` if it is beside the store.
        lag: ticks of later symbols or points that an estimate sees.
    """

    store: Location
    ledger: Location | None = None
    lag: int = 8


def place_of(text: str) -> Place:
    """What an option says that names a store: a file, a URL, or a gateway.toml, which knows more.

    Raises:
        FuguError: it is none of them.
    """
    from gateway.location import store_location

    if not text.endswith(".toml"):
        return Place(store_location(text))
    gateway = gateway_of(Path(text))
    return Place(gateway.store, gateway.ledger, gateway.lag)


def gateway_of(path: Path) -> GatewayConfig:
    """Read the file of a gateway.

    Raises:
        FuguError: it cannot be read, or a key is wrong.
    """
    from gateway.config import read_gateway

    return read_gateway(path)


def grouped(command: Callable[..., _Result]) -> Callable[..., _Result]:
    """Give a command an option for each field of the dataclasses among its parameters.

    Args:
        command: a function, some of whose parameters are dataclasses with fields as `typer` takes its parameters.

    Returns:
        The same for `typer`: with the fields as parameters of their own, from which the dataclasses are made.
    """
    groups: dict[str, type[Any]] = {}
    flat: list[Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group = parameter.annotation
        if not is_dataclass(group):
            flat.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
            continue
        assert isinstance(group, type)
        groups[parameter.name] = group
        hints = get_type_hints(group, include_extras=True)
        for field in fields(group):
            default = Parameter.empty if field.default is MISSING else field.default
            flat.append(Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name]))

    def run(**given: Any) -> _Result:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        return command(**made, **given)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__dict__["__signature__"] = inspect.Signature(flat)
    run.__annotations__ = {}
    return run
