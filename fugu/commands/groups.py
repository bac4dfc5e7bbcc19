"""Options that belong together are the fields of one dataclass, shared by the commands that have them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter
from typing import Any, TypeVar, get_type_hints

__all__ = ["grouped"]

_Result = TypeVar("_Result")


def grouped(command: Callable[..., _Result]) -> Callable[..., _Result]:
    """Give a command an option for each field of the dataclasses among its parameters.

    Args:
        command: a function, some of whose parameters are dataclasses with fields as `typer` wants its parameters.

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
