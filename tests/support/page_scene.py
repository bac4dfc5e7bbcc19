"""A fleet that is told to a page message by message: everything that a page draws, and a week of it."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from fugu.contract.descriptions import describe
from fugu.contract.discretisers import Cells
from fugu.contract.errors import StatusCode
from fugu.contract.frames import PolicyStatus, Status, StreamStatus, SymbolFrame, WindowFrame
from fugu.contract.guarantee import Guarantee
from fugu.contract.reports import AlarmCode, Health, HealthAlarm, StateEstimate, WindowCount
from fugu.contract.topics import topic_of
from fugu.contract.windows import Window
from fugu.mqtt import Broker, Link
from tests.support.brokers import wait_until
from tests.support.example_frames import RELEASE_FRAME
from tests.support.processes import policy

PERIOD_US = 5_000_000
WINDOW = 60
PROMISE = {"epsilon": 1.0, "adversary": "universal", "useful": True}
LONG = "a-device-with-a-name-that-is-as-long-as-a-name-can-be-0123456789"


class Told:
    """Messages of devices and of a gateway, published at a broker; retained where they are."""

    def __init__(self, broker: Broker) -> None:
        self._link = Link(broker, client_id="scene")
        self._link.start()
        self._random = random.Random(1)
        begun = int(time.time()) // 300 * 300
        self.end = datetime.fromtimestamp(begun, UTC)
        self.counted = policy(epoch_us=0, period_us=PERIOD_US).model_copy(
            update={
                "windows": (Window(name="active", length=WINDOW, stride=WINDOW, states=("high",), scale="5"),),
                "windows_guarantee": Guarantee(epsilon=1.0, adversary="universal"),
            }
        )
        grid = Cells(origin=(46.0, 14.25), step=(0.001, 0.00125), cells=((0, 0), (1, 0)), states=("garden", "street"))
        self.place = policy(epoch_us=0, period_us=PERIOD_US, device="tag").model_copy(update={"discretiser": grid})

    def say(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        wait_until(lambda: self._link.publish(topic, payload, retain=retain) is not None, "room for a message")

    def close(self) -> None:
        self._link.stop()

    def introduce(self) -> None:
        """Say what is retained: statuses, descriptions, health, and a release."""
        stream = (StreamStatus("hr", 1, 5),)
        for name, online, codes in (
            ("watch", True, ()),
            ("tag", True, ()),
            ("quiet", True, ()),
            (LONG, False, (StatusCode.CONNECTION_LOST,)),
            ("sick", True, (StatusCode.STORAGE_FULL, StatusCode.CLOCK)),
        ):
            self.say(
                topic_of("status", "home", name),
                Status(online, "1.0", 3, codes, stream if online else ()).encode(),
                retain=True,
            )
        refused = PolicyStatus(
            3, b"\1" * 8, "ceiling", "epsilon 2 of stream hr is above the owner's ceiling of 1", 1, False
        )
        self.say(topic_of("policy_status", "home", "sick"), refused.encode(), retain=True)
        for described in (self.counted, self.place, self.counted.model_copy(update={"device": "quiet"})):
            self.say(topic_of("description", "home", described.device, "hr"), describe(described).encode(), retain=True)
        alarm = HealthAlarm(AlarmCode.POLICY_REFUSED, 0, 1, ("sick",), 0, "Sign a document that its owner accepts.")
        self.say(topic_of("health", "home"), Health(True, 10, 1, 5, 3, 7, 0, (alarm,)).encode(), retain=True)
        self.say(topic_of("release", "home", "public", "active"), RELEASE_FRAME.encode(), retain=True)

    def counts(self, days: float) -> Iterator[WindowCount]:
        """Counts of a window of 5 minutes, a part of which is missing."""
        number = int(days * 288)
        for i in range(number):
            if 0.5 < i / number < 0.6:
                continue
            end = self.end - timedelta(minutes=5 * (number - 1 - i))
            share = 0.5 + 0.4 * math.sin(2 * math.pi * i / 288)
            value = round(WINDOW * share + self._random.gauss(0, 5))
            yield WindowCount(
                **{"time": end, "since": end - timedelta(minutes=5), "window": "active", "states": ("high",)},
                **{"values": (float(value),), "low": (value - 15.0,), "high": (value + 15.0,), "confidence": 0.95},
                **{"observed": WINDOW, "unit": "ticks", **PROMISE},
            )

    def history(self, days: float) -> None:
        """Say a week of counts."""
        for count in self.counts(days):
            self.say(topic_of("count", "home", "watch", "hr"), count.encode())

    def live(self) -> None:
        """Say an estimate of each kind, and what left the devices."""
        now = datetime.now(UTC).replace(microsecond=0)
        high = round(0.3 + 0.5 * self._random.random(), 3)
        self._estimate("watch", now, {"low": round(1 - high, 3), "high": high})
        self._estimate("tag", now, {"garden": 0.7, "street": 0.3})
        tick = int(now.timestamp() * 1e6) // PERIOD_US
        symbols = bytes(self._random.randrange(2) for _ in range(10))
        for name in ("watch", "tag"):
            self.say(topic_of("symbols", "home", name, "hr"), SymbolFrame(1, tick - 11, tick - 10, symbols).encode())
        first = tick // WINDOW * WINDOW - WINDOW
        self.say(
            topic_of("window", "home", "watch", "hr"),
            WindowFrame(1, "active", -1, 0, first, WINDOW, WINDOW, (31,)).encode(),
        )

    def _estimate(self, device: str, now: datetime, shares: dict[str, float]) -> None:
        state = max(shares, key=shares.__getitem__)
        estimate = StateEstimate(now, now - timedelta(seconds=50), 1, 10, state, shares[state], shares, **PROMISE)
        self.say(topic_of("estimate", "home", device, "hr"), estimate.encode())
