"""Unloading of modules that are needed seldom: a microcontroller's memory is scarce."""

import gc
import sys

__all__ = ["JUDGES", "release"]

_HERE = "fugu.core."
JUDGES = tuple([_HERE + name for name in ("derived", "compiled", "pins", "guarantee", "leakage", "judge")])
"""Modules that judge documents."""


def release(*names: str) -> None:
    """Unload modules by their full names on a microcontroller; the next import loads them again."""
    if sys.implementation.name != "micropython":
        return
    for name in names:
        package, _, module = name.rpartition(".")
        if name in sys.modules:
            del sys.modules[name]
        if hasattr(sys.modules[package], module):
            delattr(sys.modules[package], module)
    gc.collect()
