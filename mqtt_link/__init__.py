"""The MQTT connection that agents, gateways and subscribers share, and the subscriber's helper.

`Link` keeps one connection alive (MQTT 5, falling back to 3.1.1); `Subscription` yields typed readings from one.
"""

from __future__ import annotations

from mqtt_link.link import Broker, Link, LinkError, Will
from mqtt_link.subscription import (
    EstimateReading,
    MeasureEstimateReading,
    MeasureReading,
    ReleaseReading,
    Subscription,
    SymbolReading,
    WindowReading,
)

__all__ = [
    "Broker",
    "EstimateReading",
    "Link",
    "LinkError",
    "MeasureEstimateReading",
    "MeasureReading",
    "ReleaseReading",
    "Subscription",
    "SymbolReading",
    "Will",
    "WindowReading",
]
