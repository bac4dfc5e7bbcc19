"""Shared subscriptions at the broker, whose number Mosquitto publishes: more than accounts are a needless burden.

No program of this project shares a subscription. A reader may, once, to spread its work. Mosquitto does not limit their
number, and consults its access list only at delivery: one account can have hundreds of thousands.
"""

from __future__ import annotations

import math

from fugu.contract.reports import AlarmCode
from gateway.parts import Loop, Message, Part

__all__ = ["CLIENTS_TOPIC", "SHARED_TOPIC", "SharedSubscriptions"]

SHARED_TOPIC = "$SYS/broker/shared_subscriptions/count"
CLIENTS_TOPIC = "$SYS/broker/clients/total"
"""Clients that are connected, or have a session; each account has one connection."""
_GATEWAY = 1
_MOST_DIGITS = 12


class SharedSubscriptions(Part):
    """Compares two numbers of the broker, and holds the alarm while there are more subscriptions than accounts.

    The number of accounts is at least that of the catalogue's devices and the gateway, and at least that of clients.
    """

    topics = SHARED_TOPIC, CLIENTS_TOPIC

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._numbers = dict.fromkeys(self.topics, 0)
        self.due = math.inf

    def heard(self, message: Message) -> bool:
        """Note one of the two numbers. Return whether no other part needs the message."""
        topic, payload = message.topic, message.payload
        if topic not in self._numbers:
            return False
        if payload.isdigit() and len(payload) <= _MOST_DIGITS:
            self._numbers[topic] = int(payload)
            self.due = 0.0
        return True

    def pump(self, *, idle: bool = False) -> None:
        """Begin or end the alarm, by the newest numbers."""
        self.due = math.inf
        accounts = max(len(self._catalogue.names()) + _GATEWAY, self._numbers[CLIENTS_TOPIC])
        shared_count = self._numbers[SHARED_TOPIC]
        details = {"": f"{shared_count:,} of at least {accounts:,} accounts"} if shared_count > accounts else {}
        self._monitor.hold(AlarmCode.SUBSCRIPTIONS, details)
