"""The MQTT connection that agents, gateways and subscribers share, and the subscriber's helpers.

`Link` keeps one connection alive (MQTT 5, falling back to 3.1.1); `Subscription` yields typed readings from one, and
`AsyncSubscription` does in asyncio. Everything in `__all__` can be imported from here; it is loaded on first use, so
that an agent does not carry in memory what subscribers need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqtt_link.async_subscription import AsyncSubscription as AsyncSubscription
    from mqtt_link.broker import Broker as Broker
    from mqtt_link.broker import LinkError as LinkError
    from mqtt_link.decoder import Decoder as Decoder
    from mqtt_link.link import Link as Link
    from mqtt_link.link import Will as Will
    from mqtt_link.readings import CountReading as CountReading
    from mqtt_link.readings import DescriptionReading as DescriptionReading
    from mqtt_link.readings import EstimateReading as EstimateReading
    from mqtt_link.readings import PointReading as PointReading
    from mqtt_link.readings import Reading as Reading
    from mqtt_link.readings import ReleaseReading as ReleaseReading
    from mqtt_link.readings import SymbolReading as SymbolReading
    from mqtt_link.readings import WindowReading as WindowReading
    from mqtt_link.subscription import Subscription as Subscription

_HOME = {
    "async_subscription": ("AsyncSubscription",),
    "broker": ("Broker", "LinkError"),
    "decoder": ("Decoder",),
    "link": ("Link", "Will"),
    "readings": (
        *("CountReading", "DescriptionReading", "EstimateReading", "PointReading"),
        *("Reading", "ReleaseReading", "SymbolReading", "WindowReading"),
    ),
    "subscription": ("Subscription",),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE)


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    if name not in _MODULE:
        raise AttributeError(f"module 'mqtt_link' has no attribute {name!r}")
    return getattr(import_module(f"mqtt_link.{_MODULE[name]}"), name)
