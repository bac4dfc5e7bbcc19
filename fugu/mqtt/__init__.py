"""MQTT for agents, gateways and subscribers; names load on first use, so agents do not carry subscribers' helpers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fugu.mqtt.broker import Broker as Broker
    from fugu.mqtt.broker import LinkError as LinkError
    from fugu.mqtt.link import Link as Link
    from fugu.mqtt.link import Will as Will
    from fugu.mqtt.readings import CountReading as CountReading
    from fugu.mqtt.readings import Decoder as Decoder
    from fugu.mqtt.readings import DescriptionReading as DescriptionReading
    from fugu.mqtt.readings import EstimateReading as EstimateReading
    from fugu.mqtt.readings import PointReading as PointReading
    from fugu.mqtt.readings import Reading as Reading
    from fugu.mqtt.readings import ReleaseReading as ReleaseReading
    from fugu.mqtt.readings import SymbolReading as SymbolReading
    from fugu.mqtt.readings import WindowReading as WindowReading
    from fugu.mqtt.subscription import AsyncSubscription as AsyncSubscription
    from fugu.mqtt.subscription import Subscription as Subscription

_NAMES_BY_MODULE = {
    "broker": "Broker LinkError",
    "link": "Link Will",
    "readings": "CountReading Decoder DescriptionReading EstimateReading PointReading Reading ReleaseReading "
    "SymbolReading WindowReading",
    "subscription": "AsyncSubscription Subscription",
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'fugu.mqtt' has no attribute {name!r}")
    return getattr(import_module(f"fugu.mqtt.{_MODULE_OF[name]}"), name)
