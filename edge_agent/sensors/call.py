"""Readings from a Python function."""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from edge_agent.sensors.source import ConfigError, FailedError, LiveSensor, Reading, SensorUpdate, UnavailableError
from fugu.contract.errors import cause

__all__ = ["CallSensor", "import_function"]

ENTRY_POINT_GROUP = "fugu_edge.sensors"


class CallSensor(LiveSensor):
    """Calls a function once a tick, in a thread of its own; the reading of a tick is the result of the call before it.

    So a slow function delays no symbol. Ticks before it returns, and ticks at which it raises, have no reading.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__()
        self._function = function
        self._call_due = threading.Event()
        self._call_due.set()
        threading.Thread(target=self._call_function, name="sensor", daemon=True).start()

    def _call_function(self) -> None:
        while self._call_due.wait():
            self._call_due.clear()
            try:
                reading_value = _plain_value(self._function())
            except FailedError as error:
                self._trouble = str(error)
                self._add_update(works=False)
            except BaseException as error:  # also SystemExit: foreign code must not end the thread
                if not isinstance(error, UnavailableError):
                    self._trouble = "its function raises an exception; run it by hand to see which"
                self._add_update(works=False)
            else:
                self._add_update(None if reading_value is None else Reading(reading_value), works=True)

    def poll(self, tick: int) -> SensorUpdate:
        """Return the function's result since the last tick, and let it be called again."""
        update = super().poll(tick)
        self._call_due.set()
        return update


def _plain_value(result: Any) -> Any:
    """Convert a function's result to a number or a text, so that no foreign code runs in the agent's loop."""
    if result is None or type(result) in (bool, int, float, str):
        return result
    for convert in (operator.index, float, str):
        try:
            return convert(result)
        except OverflowError:
            return math.inf if result > 0 else -math.inf
        except (TypeError, ValueError):
            continue
    raise TypeError("a reading is neither a number nor a text")


def import_function(target: str) -> Callable[[], Any]:
    """Import a function by `package.module:name` or the name of an entry point. Raises ConfigError."""
    try:
        if ":" in target:
            module, _, function_name = target.partition(":")
            target_object = getattr(import_module(module), function_name)
        else:
            from importlib.metadata import entry_points

            (entry_point,) = entry_points(group=ENTRY_POINT_GROUP, name=target)
            target_object = entry_point.load()
    except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
        raise ConfigError(f"cannot import sensor {target!r}: {cause(error)}") from None
    if not callable(target_object):
        raise ConfigError(f"sensor {target!r} is not a function")
    function: Callable[[], Any] = target_object
    return function
