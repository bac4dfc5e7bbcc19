"""A street: homes that run the agent, the helper's own program, and a leader that asks it for sums, at one broker."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from edge_agent.agent import Agent
from edge_agent.config import load
from edge_agent.randomiser import system_entropy
from edge_agent.sensors.sharing import open_sensors
from edge_agent.shares import device_key
from fugu.contract.envelope import Envelope, key_digits
from fugu.contract.frames import Committed, StreamCommit, sequence_name
from fugu.contract.group_frames import OpeningAnswer, Report, SealedMasks, signed_total, split_pages, unpack_numbers
from fugu.contract.groups import GroupDocument, SharedWindow, check_signed
from fugu.contract.guarantee import Guarantee
from fugu.contract.topics import parse_topic, topic_of
from fugu.host.toml_file import toml_lines
from fugu.mqtt import Broker, Link
from tests.support.brokers import PATIENCE, await_end, wait_until
from tests.support.gateway_files import toml
from tests.support.groups import PUBLIC, group, member_policy, signed

_INSERTED = {"document", "fleet", "helper"}


class HelperProgram:
    """`fugu helper run` with the key of `tests.support.groups`, in a folder of its own."""

    def __init__(
        self, folder: Path, broker: Broker, *documents: GroupDocument, members: dict[str, str], starts: bool = True
    ) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "root.key").write_bytes(b"h" * 32)
        (folder / "root.key").chmod(0o600)
        self.members = folder / "members"
        self.admit(members)
        self.file = folder / "helper.toml"
        lines = ['fleet = "home"', "[broker]", f'host = "{broker.host}"', f"port = {broker.port}"]
        for document in documents:
            fields = document.model_dump(mode="json", exclude=_INSERTED, exclude_none=True)
            lines += ["[[groups]]", *toml_lines(fields)]
        self.file.write_text("\n".join(lines) + "\n")
        self.log = folder / "helper.log"
        self.environment = dict(os.environ)
        if starts:
            self.start()

    def admit(self, members: dict[str, str]) -> None:
        self.members.write_text("".join(f"{name}: {text}\n" for name, text in members.items()))

    def start(self) -> None:
        with self.log.open("a") as log:
            command = [sys.executable, "-m", "fugu_helper", "run", str(self.file), "--verbose"]
            self.process = subprocess.Popen(command, stderr=log, env=self.environment)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)


class Home:
    """A home whose readings are all of one state, with a policy file of its own."""

    def __init__(self, folder: Path, name: str, broker: Broker, window: SharedWindow, reading: float) -> None:
        self.name, self.reading = name, reading
        folder.mkdir()
        self.outbox = folder / "outbox.sqlite"
        policy = member_policy(name, window, guarantee=Guarantee(epsilon=1e5, adversary="informed"))
        (folder / "policy.json").write_text(policy.to_json())
        (folder / "readings.csv").write_text(f"value\n{reading}\n")
        self.config = folder / "agent.toml"
        self.environment = dict(os.environ)
        pin = {"name": window.group.name, "helper": key_digits(PUBLIC), "honest": 1, "most": {"epsilon": 1e6}}
        sensor = {"kind": "replay", "file": "readings.csv"}
        self.config.write_text(
            f'fleet = "home"\ndevice = "{name}"\noutbox = "outbox.sqlite"\nceiling = 1e6\n'
            f"[broker]\nhost = {toml(broker.host)}\nport = {broker.port}\n"
            f"[[groups]]\n" + "\n".join(toml_lines(pin)) + "\n"
            f'[[streams]]\npolicy = "policy.json"\nsensor = {toml(sensor)}\n'
        )

    @property
    def digits(self) -> str:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return key_digits(Ed25519PrivateKey.from_private_bytes(device_key(self.outbox)).public_key().public_bytes_raw())

    def start(self) -> None:
        plan = load(self.config)
        self.agent = Agent(plan, open_sensors(plan.streams), system_entropy())
        self.thread = threading.Thread(target=self.agent.run, daemon=True)
        self.thread.start()

    def start_program(self) -> None:
        with (self.config.parent / "agent.log").open("a") as log:
            command = [sys.executable, "-m", "edge_agent", str(self.config)]
            self.process = subprocess.Popen(command, stderr=log, env=self.environment)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self) -> None:
        self.agent.stop()
        await_end(self.thread)


class Leader:
    """A minimal site: it acknowledges reports, asks for sums and opens them."""

    def __init__(self, broker: Broker, document: GroupDocument) -> None:
        self.document = document
        self.reports: dict[int, dict[str, Report]] = defaultdict(dict)
        self.sets: dict[int, list[list[Report]]] = defaultdict(list)
        self.answers: list[OpeningAnswer] = []
        self.heard: list[tuple[str, bytes]] = []
        self._link = Link(
            broker,
            client_id="leader",
            subscriptions=("fugu/2/home/+/report/+", "fugu/2/home/group/+/+"),
            on_message=self._arrived,
        )
        self._link.start()

    def _arrived(self, topic: str, payload: bytes, _retained: bool) -> None:
        self.heard.append((topic, payload))
        place = parse_topic(topic)
        if place.kind == "report":
            report = Report.decode(payload)
            self.reports[report.number][place.device] = report
            commit = StreamCommit(sequence_name(place.stream, report.window), report.number, ())
            self._link.publish(topic_of("committed", "home", place.device), Committed((commit,)).encode())
        elif place.kind == "group_answer":
            envelope = Envelope.decode(payload)
            check_signed(envelope, "answer", bytes.fromhex(self.document.helper))
            self.answers.append(OpeningAnswer.decode(envelope.payload))

    def ask(self, number: int, reports: Sequence[Report]) -> None:
        self.request(number, [report.sealed for report in reports])

    def request(self, number: int, sealed: Sequence[SealedMasks]) -> None:
        for page in split_pages(self.document.digest, number, sealed):
            wait_until(
                lambda page=page: (
                    self._link.publish(topic_of("group_request", "home", self.document.name), page.encode()) is not None
                ),
                "a connection",
            )

    def answered(self, count: int = 1) -> OpeningAnswer:
        """The newest of so many answers."""
        wait_until(lambda: len(self.answers) >= count, f"{count} answers")
        return self.answers[-1]

    def close(self) -> None:
        self._link.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def opened(answer: OpeningAnswer, reports: Sequence[Report]) -> list[int]:
    """The sums of the homes that an answer names, by their parts and its masks."""
    parts: Iterable[tuple[int, ...]] = (unpack_numbers(reports[i].parts) for i in answer.report_indices)
    return [signed_total(column) for column in zip(*parts, unpack_numbers(answer.sums), strict=True)]


def street(folder: Path, broker: Broker, readings: Sequence[float], **changes: Any) -> tuple[GroupDocument, list[Home]]:
    """A group with next to no noise, and its homes, none of which runs yet."""
    fields: dict[str, Any] = {"noise": 4_294_780_000, "honest": len(readings) - 1, "period_us": 200_000, "length": 20}
    document = group(**fields | changes)
    window = SharedWindow.of(signed(document))
    return document, [
        Home(folder / f"home-{i}", f"home-{i}", broker, window, reading) for i, reading in enumerate(readings)
    ]
