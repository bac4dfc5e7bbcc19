"""A gateway with all options, in this thread and on a virtual clock: a test delivers messages, and rounds follow."""

from __future__ import annotations

import gc
import time
import types
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fugu.contract.fleet_documents import Address
from fugu.contract.policy import Policy
from fugu.contract.windows import Window
from fugu.mqtt import Broker, Link
from gateway.config import FleetConfig, Listen
from gateway.fleet.entries import Document, Target
from gateway.fleet.registry import Registry
from gateway.fleet.service import FleetService
from gateway.loop.gateway import Gateway
from gateway.parts import describe, home_assistant
from tests.support.brokers import free_port
from tests.support.enrolled import write_gateway_files
from tests.support.gateway_files import gateway_config
from tests.support.groups import member_policy, shared
from tests.support.measured import measure_policy
from tests.support.processes import policy
from tests.support.signing import Keys, policy_document

__all__ = ["DEVICES", "PLACED", "START", "STREET", "Driver", "largest_containers"]

DEVICES = 300
PLACED = 3
START = 1_800_000_000
"""Unix time at which the virtual clock begins."""
STREET = shared(deadline=3_600)
"""A window of those that are placed, who are homes of a group; its reports have an hour to come."""
_RELEASES = """
[audiences.street]
epsilon = 5.0
adversary = "universal"
[[releases]]
name = "active"
stream = "hr"
query = "count"
states = ["high"]
length = 20
audience = "street"
scale = "20"
"""


class _Connected(Link):
    """A link to a broker that takes everything, and answers at once."""

    @property
    def connected(self) -> bool:
        return True

    def start(self) -> None:
        self._ids = 0
        self.on_connected()

    def stop(self, *, in_order: bool = True) -> None:
        pass

    def maintain(self) -> None:
        pass

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int | None:
        self._ids += 1
        self.on_published(self._ids, True)
        return self._ids


class Driver:
    """Runs within a context; `made` counts descriptions and documents of each name since the last round began.

    Work takes no time by this clock, but for descriptions, which take 60 ms each.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, devices: int = DEVICES) -> None:
        self.now, self.worked = 1_000.0, 0.0
        self.made: Counter[tuple[str, ...]] = Counter()
        self.most_made = 0
        self._patch = monkeypatch
        names = [f"d{number}" for number in range(devices)]
        keys = Keys()
        write_gateway_files(folder, keys)
        (folder / "releases.toml").write_text(_RELEASES)
        counted = Window(name="high", length=20, stride=20, states=("high",), scale="200")
        symbols = policy(epoch_us=0, period_us=1_000_000, windows=(counted,), epsilon=20.0)
        with closing(Registry(folder / "fleet.sqlite", fleet="home")) as registry, registry.transaction():
            for number, name in enumerate(names):
                registry.enrol(name, ["placed"] if number < PLACED else ["others"], actor="me", time_us=1)
            for version in (1, 2):
                for group in ("others", "placed"):
                    number = 2 * version - (group == "others")
                    more: list[Policy] = []
                    if group == "placed":
                        more = [
                            measure_policy(2, delta=0.05, version=number),
                            member_policy("d0", STREET, version=number),
                        ]
                    document = policy_document(symbols, *more, version=number, to=Address(group=group))
                    signed = keys.envelope(document)
                    registry.add_document(
                        Document(number, Target("group", group), signed.digest, signed.encode(), "test", "", 0, None),
                        actor="me",
                        time_us=1,
                    )
        operator = Broker("127.0.0.1", 1)
        files = FleetConfig(
            registry=folder / "fleet.sqlite",
            roots=(folder / "root.envelope",),
            key=folder / "gateway.key",
            passphrase_file=folder / "passphrase",
            trusted_clock=True,
        )
        self._settings = gateway_config(
            *("home", operator, folder / "store.sqlite", None),
            releases=folder / "releases.toml",
            signed=files,
            on_conflict="stop",
            metrics=Listen("127.0.0.1", free_port()),
            home_assistant=True,
            page_url="http://127.0.0.1:8080/",
        )

    def __enter__(self) -> Driver:
        """Start everything but the worker's and the monitor's threads, whose work `round` does."""
        patch = self._patch
        for place in ("gateway.loop.gateway", "gateway.loop.duties"):
            patch.setattr(f"{place}.Link", _Connected)
        patch.setattr(time, "monotonic", lambda: self.now)
        usual = FleetService.__init__.__kwdefaults__ or {}
        patch.setattr(FleetService.__init__, "__kwdefaults__", usual | {"seconds": lambda: self.now})
        patch.setattr(time, "monotonic_ns", lambda: int(self.now * 1e9))
        patch.setattr(time, "time", lambda: START + self.now)
        patch.setattr(time, "time_ns", lambda: int((START + self.now) * 1e9))
        patch.setattr(time, "perf_counter", lambda: self.worked)
        of, document = describe.Described.of, home_assistant.device_document

        def described(running: Any) -> Any:
            self.made["description", running.policy.device, running.policy.stream] += 1
            self.worked += 0.06
            return of(running)

        def documented(streams: Any, page_url: Any = None) -> Any:
            self.made["document", streams[0].device] += 1
            return document(streams, page_url)

        patch.setattr(describe.Described, "of", described)
        patch.setattr(home_assistant, "device_document", documented)
        self.gateway = Gateway(self._settings)
        self.gateway._worker.run = lambda: None
        patch.setattr("gateway.health.monitor.Monitor._work", lambda _monitor: None)
        self.gateway.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()
        self.gateway.stop()

    def deliver(self, messages: Iterable[tuple[str, bytes]], each: int = 2_000, seconds: float = 0.1) -> int:
        """Deliver messages a few at a time, with rounds of some seconds between; how many of them were taken."""
        before, part = self.gateway.counters["not_taken"], []
        sent = 0
        for topic, payload in messages:
            part.append((topic, payload, False))
            if len(part) == each:
                sent += len(part)
                self.gateway._deliver(part)
                part = []
                self.round(seconds)
        sent += len(part)
        self.gateway._deliver(part)
        while self.gateway._inbox._count:
            self.round(seconds)
        return sent - (self.gateway.counters["not_taken"] - before)

    def round(self, seconds: float = 0.1) -> None:
        """Let a tenth of a second pass, or another time, and do what the worker and the monitor do in it."""
        self.now += seconds
        self.made.clear()
        gateway = self.gateway
        gateway._last_round = gateway._monitor.round_began = self.now
        gateway._round(gateway._inbox.take(2_000, 0.0))
        gateway._monitor.step()
        self.most_made = max(self.most_made, *self.made.values(), 0)


_CONTAINERS = (dict, set, frozenset)
_LEFT_OUT = (types.ModuleType, type, types.FrameType, types.CodeType)


def largest_containers(root: object, least: int) -> dict[str, int]:
    """All dictionaries and sets that can be reached from an object, and have more entries: by what holds them."""
    seen: set[int] = set()
    sizes: dict[str, int] = {}
    waiting: list[tuple[str, object]] = [(type(root).__name__, root)]
    while waiting:
        where, thing = waiting.pop()
        if id(thing) in seen or not (type(thing) is dict or gc.is_tracked(thing)) or isinstance(thing, _LEFT_OUT):
            continue  # what is not tracked holds nothing that grows, but for a dictionary of numbers or words
        seen.add(id(thing))
        if isinstance(thing, _CONTAINERS) and len(thing) > least:
            sizes[where] = max(sizes.get(where, 0), len(thing))
        waiting += _inside(where, thing)
    return sizes


def _inside(where: str, thing: object) -> Iterator[tuple[str, object]]:
    if isinstance(thing, types.FunctionType):  # its globals are modules
        yield from ((f"{where}()", part) for part in (*(thing.__closure__ or ()), *(thing.__defaults__ or ())))
        return
    attributes = getattr(thing, "__dict__", None)
    if type(attributes) is dict:
        yield from ((f"{where.rpartition('.')[2]}.{name}", value) for name, value in attributes.items())
    yield from ((where, part) for part in gc.get_referents(thing) if part is not attributes)
