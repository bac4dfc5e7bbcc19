"""A gateway that does everything and a device that has everything, as processes, and somebody who hears it all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from fugu.contract.discretisers import Categories
from fugu.contract.frames import SymbolFrame
from fugu.contract.reports import Health
from fugu.contract.topics import topic_of
from fugu.contract.windows import Window
from fugu.host.files import write_secret
from fugu.mqtt import Broker, Link
from gateway.fleet.registry import Registry
from tests.support.brokers import Mosquitto, free_port, wait_until
from tests.support.enrolled import Gateway, add, write_gateway_files
from tests.support.gateway_files import toml
from tests.support.measured import measure_policy
from tests.support.processes import AgentProcess, Recorder, kind_of, policy
from tests.support.signing import Keys, policy_document

PERIOD_US = 50_000
PLACES = tuple(f"c{x}" for x in range(9))


class Everything(Recorder):
    """Keeps what a broker delivers, whatever its topic is."""

    def __init__(self, broker: Mosquitto) -> None:
        super().__init__(broker.address("site"), "#")

    def kinds(self) -> set[str]:
        """Of the fleet's topics so far."""
        return {kind_of(topic) for topic, _ in list(self.messages)} - {""}


def _credentials(broker: Broker) -> dict[str, str]:
    names = ("username", "password_file", "ca_file", "cert_file", "key_file")
    return {name: str(getattr(broker, name)) for name in names if getattr(broker, name) is not None}


class WholeFleet:
    """Runs within a context; a broker with accounts has `watch`, `gateway`, `gateway-rollout` and `site`."""

    def __init__(self, broker: Mosquitto, folder: Path, readings: Sequence[tuple[str, str]]) -> None:
        keys = Keys()
        write_gateway_files(folder, keys)
        (folder / "readings.csv").write_text("\n".join(["value,place", *(f"{x},{y}" for x, y in readings)]) + "\n")
        watch = broker.address("watch")
        connection = toml({"port": watch.port, "max_backoff": 1, **_credentials(watch)})
        (folder / "agent.toml").write_text(
            'fleet = "home"\ndevice = "watch"\noutbox = "outbox.sqlite"\nenrolment = "enrolment.json"\n'
            f"status_seconds = 0.5\nbroker = {connection}\n"
            '[[streams]]\nstream = "hr"\nsensor = {kind = "replay", file = "readings.csv"}\n'
            '[[streams]]\nstream = "place"\nsensor = {kind = "replay", file = "readings.csv", column = "place"}\n'
        )
        (folder / "releases.toml").write_text(
            '[audiences]\n[[releases]]\nname = "active"\nstream = "hr"\nquery = "count"\nstates = ["high"]\n'
            'length = 20\naudience = "site"\nscale = "20"\n'
        )
        counted = Window(name="high", length=20, stride=20, states=("high",), scale="200")
        measured = measure_policy(
            3,
            start=4,
            tables=False,
            discretiser=Categories(categories={name: x for x, name in enumerate(PLACES)}, states=PLACES),
            clock={"epoch_us": time.time_ns() // 1000, "period_us": PERIOD_US},
        )
        symbols = policy(epoch_us=0, period_us=PERIOD_US, windows=(counted,), epsilon=20.0)
        with closing(Registry(folder / "fleet.sqlite", fleet="home")) as registry:
            key = registry.enrol("watch", ["wrists"], actor="me", time_us=1)
            enrolment = keys.enrolment(measurement_ceiling=1.0, ceiling=50.0, key=key.hex())
            write_secret(folder / "enrolment.json", enrolment.model_dump_json())
            add(registry, keys, policy_document(symbols, measured, version=1))
        self._broker = broker
        self._folder = folder
        self.metrics = free_port()

    def __enter__(self) -> Self:
        folder = self._folder
        self.heard = Everything(self._broker)
        operator = _credentials(self._broker.address("gateway-rollout"))
        operator.pop("ca_file", None)  # its connection trusts the same authority
        self.gateway = Gateway(
            folder,
            self._broker.address("gateway"),
            operator,
            releases="releases.toml",
            on_conflict="stop",
            home_assistant=True,
            metrics=self.metrics,
        )
        self.agent = AgentProcess(folder / "agent.toml", folder / "agent.log")
        return self

    def malform(self, word: bytes) -> list[tuple[str, bytes]]:
        """Publish messages with a word under the device's name, too large or malformed; returns them."""
        sent = [
            (topic_of("symbols", "home", "watch", "hr"), b"\xc1" + word),
            (topic_of("window", "home", "watch", "hr"), b"\xc1" + word * 1000),
            (topic_of("policy_status", "home", "watch"), b"\xc1" + word),
        ]
        copy = Link(self._broker.address("watch"), client_id="copy")
        copy.start()
        for topic, payload in sent:
            wait_until(lambda t=topic, p=payload: copy.publish(t, p) is not None, "a connection of the copy")
        wait_until(lambda: {*sent} <= {*self.heard.messages}, "what the copy says")
        copy.stop()
        return sent

    def alarm(self, code: str) -> tuple[str, ...] | None:
        """The names of an alarm in the newest health message, if there is one."""
        health = self.heard.of("health", Health.decode)
        return next((alarm.names for alarm in health[-1].alarms if alarm.code == code), None) if health else None

    def contradict(self) -> None:
        """Publish, under the device's name, a frame that says the opposite of one of its own."""
        (topic, payload), *_ = (
            message for message in self.heard.messages if "/symbols/" in message[0] and message[1][0] == 1
        )
        frame = SymbolFrame.decode(payload)
        other = replace(frame, symbols=bytes(1 - symbol for symbol in frame.symbols))
        copy = Link(self._broker.address("watch"), client_id="copy")
        copy.start()
        wait_until(lambda: copy.publish(topic, other.encode()) is not None, "a connection of the copy")
        wait_until(lambda: (topic, other.encode()) in self.heard.messages, "what the copy says")
        copy.stop()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; say what was heard and logged if something went wrong."""
        self.heard.link.stop()
        for program in (self.agent, self.gateway):
            program.kill()
        if kind is not None:
            print(self.heard.kinds(), self.gateway.log, self.agent.log)
