"""Letting go of modules that are needed seldom: memory is scarce."""

import gc
import sys

JUDGES = ("derived", "compiled", "guarantee", "ed25519", "judge")
"""Modules that judge documents."""


def release(*names: str) -> None:
    """Unload modules of the sanitiser; the next import loads them anew."""
    for name in names:
        if "sanitiser." + name in sys.modules:
            del sys.modules["sanitiser." + name]
        if hasattr(sys.modules["sanitiser"], name):
            delattr(sys.modules["sanitiser"], name)
    gc.collect()
