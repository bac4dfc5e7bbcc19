"""Shared subscriptions at the broker, whose number Mosquitto publishes: more than accounts burden it for nothing.

None of our programs shares a subscription. A reader may, once, to spread its work. Mosquitto has no limit for them, and
its access list is only asked when it delivers: one account can have hundreds of thousands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gateway.parts import Message, Part

if TYPE_CHECKING:
    from gateway.estimates.catalogue import Catalogue

__all__ = ["CLIENTS_TOPIC", "SHARED_TOPIC", "SharedSubscriptions"]

SHARED_TOPIC = "$SYS/broker/shared_subscriptions/count"
CLIENTS_TOPIC = "$SYS/broker/clients/total"
"""Accounts that are connected, or have a session: each has one connection."""
_GATEWAY = 1
_MOST_DIGITS = 12


class SharedSubscriptions(Part):
    """Compares two numbers of the broker; `hold` is told whether there is an alarm, with words about it by name.

    There are at least as many accounts as devices in the catalogue, the gateway's and one for each client.
    """

    topics = SHARED_TOPIC, CLIENTS_TOPIC

    def __init__(self, catalogue: Catalogue, hold: Callable[[Mapping[str, str]], None]) -> None:
        self._catalogue = catalogue
        self._hold = hold
        self._numbers = dict.fromkeys(self.topics, 0)
        self.due = math.inf

    def heard(self, message: Message) -> bool:
        """Take note of a number; whether the message was for nobody else."""
        topic, payload = message.topic, message.payload
        if topic not in self._numbers:
            return False
        if payload.isdigit() and len(payload) <= _MOST_DIGITS:
            self._numbers[topic] = int(payload)
            self.due = 0.0
        return True

    def pump(self, *, idle: bool = False) -> None:
        """Say whether there are too many."""
        self.due = math.inf
        accounts = max(len(self._catalogue.names()) + _GATEWAY, self._numbers[CLIENTS_TOPIC])
        shared = self._numbers[SHARED_TOPIC]
        self._hold({"": f"{shared:,} of at least {accounts:,} accounts"} if shared > accounts else {})
