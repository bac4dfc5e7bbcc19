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
    """Calls a function once a tick, in a thread of its own; a tick gets what the call before it returned.

    A slow function therefore delays no symbol: its ticks have no reading. Neither have those at which it raises.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__()
        self._function = function
        self._wanted = threading.Event()
        self._wanted.set()
        threading.Thread(target=self._follow, name="sensor", daemon=True).start()

    def _follow(self) -> None:
        while self._wanted.wait():
            self._wanted.clear()
            try:
                value = _plain(self._function())
            except FailedError as error:
                self._trouble = error.trouble
                self._leave(works=False)
            except BaseException as error:  # also of SystemExit: nothing that foreign code does ends the thread
                if not isinstance(error, UnavailableError):
                    self._trouble = "its function raises an exception; run it by hand to see which"
                self._leave(works=False)
            else:
                self._leave(None if value is None else Reading(value), works=True)

    def poll(self, tick: int) -> SensorUpdate:
        """Return what the function gave since the last tick."""
        update = super().poll(tick)
        self._wanted.set()
        return update


def _plain(value: Any) -> Any:
    """Convert a function's result to a number or a text, so that no code of another type runs in the agent's loop."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    for convert in (operator.index, float, str):
        try:
            return convert(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
        except (TypeError, ValueError):
            continue
    raise TypeError("a reading is neither a number nor a text")


def import_function(target: str) -> Callable[[], Any]:
    """Import a function by `package.module:name` or the name of an entry point. Raises ConfigError."""
    try:
        if ":" in target:
            module, _, name = target.partition(":")
            target_object = getattr(import_module(module), name)
        else:
            from importlib.metadata import entry_points

            (entry_point,) = entry_points(group=ENTRY_POINT_GROUP, name=target)
            target_object = entry_point.load()
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"cannot import sensor {target!r}: {cause(error)}") from None
    if not callable(target_object):
        raise ConfigError(f"sensor {target!r} is not a function")
    function: Callable[[], Any] = target_object
    return function
