"""Options of calls in Python: an unknown one is refused, and errors write options as Python does."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from inspect import signature
from typing import Any

from fugu.contract.errors import FuguError, UsageError

__all__ = ["READ_OPTIONS", "option_names", "python_call"]

READ_OPTIONS = frozenset({"time", "column", "only", "zone", "missing_values", "rows", "period", "gap", "as_it_is"})
"""Options of reading a recording, which several calls have."""


def option_names(function: Callable[..., Any]) -> set[str]:
    """Names of a function's parameters that have a default."""
    parameters = signature(function).parameters.values()
    return {parameter.name for parameter in parameters if parameter.default is not parameter.empty}


@contextmanager
def python_call(function: Callable[..., Any], options: Iterable[str], extra_names: Collection[str]) -> Iterator[None]:
    """Refuse unknown options of a call, and let its errors name options as `baseline=` in place of `--baseline`.

    Options are those of the function's signature, and `extra_names`. The UsageError suggests a similar name.
    """
    names = sorted(option_names(function).union(extra_names))
    for option in options:
        if option not in names:
            call, similar_names = function.__name__, get_close_matches(option, names, n=1)
            advice = f"did you mean {similar_names[0]}?" if similar_names else f"help(fugu.{call}) has the options"
            raise UsageError(f"{call} has no option {option!r}: {advice}")
    try:
        yield
    except FuguError as error:
        python_text = re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda match: f"{match[1].replace('-', '_')}=", str(error))
        error.args = (python_text,)
        raise
