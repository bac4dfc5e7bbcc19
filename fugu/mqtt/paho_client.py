"""paho-mqtt's client, without what it imports for proxies only.

paho-mqtt imports `urllib.request` to look for a proxy where PySocks is installed. With HTTP and e-mail behind it, that
takes 1.4 MB of an agent's memory, and a third of the time of the import. Here it is imported at its first use.
"""

from __future__ import annotations

import importlib
import sys
import urllib
from types import ModuleType
from typing import Any

__all__ = ["mqtt"]

_PROXIES = "urllib.request"


class _Deferred(ModuleType):
    """A module that is imported once one of its names is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


if _PROXIES not in sys.modules:
    # Only paho-mqtt finds the deferred module: whoever imports it later gets the real one.
    sys.modules[_PROXIES] = urllib.request = _Deferred(_PROXIES)

import paho.mqtt.client as mqtt  # noqa: E402

if isinstance(sys.modules[_PROXIES], _Deferred):
    del sys.modules[_PROXIES]
