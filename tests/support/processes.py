"""Real processes for system tests: agents, gateways, and what they have stored."""

from __future__ import annotations

import json
import os
import re
import secrets
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from firmware_sim.devices import write_config
from fugu.contract.chains import BinaryChains
from fugu.contract.discretisers import Thresholds
from fugu.contract.errors import FuguError
from fugu.contract.frames import SymbolFrame, WindowFrame
from fugu.contract.guarantee import Guarantee
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Clock, Policy
from fugu.contract.topics import parse_topic
from fugu.contract.windows import Window
from fugu.mqtt import Broker, Link
from gateway.health.monitor import ask_gateway
from tests.support.brokers import PATIENCE, wait_until
from tests.support.gateway_files import gateway_file
from tests.support.stored import stored_symbols

Decoded = TypeVar("Decoded")
THRESHOLD = 2_050_000_000
CHAINS = BinaryChains(q=(0.2, 0.2), r=(0.35, 0.35))


def policy(
    *,
    epoch_us: int,
    period_us: int,
    device: str = "watch",
    frame_ticks: int = 10,
    windows: tuple[Window, ...] = (),
    epsilon: float = 1.0,
) -> Policy:
    """A policy whose guarantee holds with room to spare."""
    promise = Guarantee(epsilon=epsilon, adversary="universal")
    return Policy(
        fleet="home",
        device=device,
        stream="hr",
        version=1,
        clock=Clock(epoch_us=epoch_us, period_us=period_us),
        frame_ticks=frame_ticks,
        discretiser=Thresholds(edges=(0.5,), states=("low", "high")),
        table=NoiseTable.binary(THRESHOLD, THRESHOLD),
        chains=CHAINS,
        guarantee=promise,
        windows=windows,
        windows_guarantee=promise if windows else None,
    )


def write_device(
    folder: Path,
    policy: AnyPolicy,
    recording: Path,
    column: str,
    broker: Broker,
    *,
    loop: bool = False,
    ceiling: float | None = None,
    **options: object,
) -> Path:
    """Write the configuration of one device, in its own folder; its tick t reads row t of the recording.

    The ceiling is the largest epsilon that the device accepts, by default the policy's own; for measurements it is that
    of one released point. `options` are further keys of the file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "policy.json").write_text(policy.to_json())
    epsilon = policy.guarantee.epsilon if isinstance(policy, Policy) else policy.epsilon
    kind = "ceiling" if isinstance(policy, Policy) else "measurement_ceiling"
    usual = {"fleet": policy.fleet, "device": policy.device, "outbox": "outbox.sqlite", "ceiling": 1.0}
    usual |= {"drain_seconds": 10.0, "grace_seconds": 0.0, kind: epsilon if ceiling is None else ceiling}
    sensor: dict[str, object] = {"kind": "replay", "file": str(recording.resolve()), "column": column, "loop": loop}
    return write_config(folder, {**usual, **options}, broker, {"policy.json": sensor})


class Program:
    """A module of Python that runs as a program; what it says is in a log."""

    def __init__(self, log: Path, module: str, *words: object, environment: Mapping[str, str] | None = None) -> None:
        self._log = log
        command, variables = [sys.executable, "-m", module, *map(str, words)], {**os.environ, **(environment or {})}
        with log.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=variables)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.ended()

    def stop(self) -> int:
        self.process.terminate()
        return self.ended()

    def ended(self) -> int:
        """Wait until it has ended; returns its exit code."""
        return self.process.wait(PATIENCE)


class AgentProcess(Program):
    """An agent that runs."""

    def __init__(self, config: Path, log: Path) -> None:
        super().__init__(log, "edge_agent", config)


class GatewayProcess(Program):
    """`fugu gateway run` in a process of its own; `values` are more keys of its file."""

    def __init__(
        self, folder: Path, broker: Broker | int, environment: Mapping[str, str] | None = None, **values: object
    ) -> None:
        self._folder = folder
        self.store = folder / "gateway.sqlite"
        file = gateway_file(folder / "gateway.toml", broker, store=self.store, policies=folder / "policies", **values)
        super().__init__(folder / "gateway.log", "fugu", "gateway", "run", file, environment=environment)

    def counters(self) -> Counter[str]:
        return Counter(ask_gateway(self.store)["counters"])

    def hears(self) -> bool:
        """True if the broker has granted what it subscribes to: what is published before never reaches it."""
        return self.answers() and ask_gateway(self.store)["connected"]

    def answers(self) -> bool:
        try:
            return bool(ask_gateway(self.store))
        except FuguError:
            return False

    def frames(self) -> list[SymbolFrame]:
        some = [frame for frames in stored_symbols(self.store).values() for frame in frames]
        return sorted(some, key=lambda frame: frame.first)

    def windows(self) -> list[tuple[str, WindowFrame]]:
        """Stream and frame of every window that is durable, in the order of their indices."""
        if not self.store.exists():
            return []
        columns = "policy_version, previous, number, first, length, observed, counts"
        query = f"SELECT streams.stream, {columns} FROM windows JOIN streams ON id=windows.stream ORDER BY 1, number"
        with sqlite3.connect(f"file:{self.store}?mode=ro", uri=True) as db:
            frames = []
            for name, version, previous, index, first, length, observed, counts in db.execute(query):
                stream, _, window = name.partition("/")
                ticks = previous, index, first, length, observed
                frames.append((stream, WindowFrame(version, window, *ticks, tuple(json.loads(counts)))))
            return frames


def by_tick(frames: Sequence[SymbolFrame]) -> dict[int, int]:
    """The symbol of every tick; fails if two frames hold different ones."""
    symbols: dict[int, int] = {}
    for frame in frames:
        for tick, symbol in enumerate(frame.symbols, frame.first):
            assert symbols.setdefault(tick, symbol) == symbol, f"tick {tick} was randomised twice"
    return symbols


def troubles(log: Path) -> list[str]:
    """Lines of a log besides notices; every line that no logger wrote is one."""
    return [line for line in log.read_text().splitlines() if not re.match(r"\S+ \S+ INFO ", line)]


def kind_of(topic: str) -> str:
    """Nothing for a topic that is not the fleet's."""
    return parse_topic(topic).kind if topic.startswith("fugu/") else ""


class Recorder:
    """Keeps every symbol frame (or what other topics have) that a broker delivers, as it was delivered."""

    def __init__(self, broker: Broker, *topics: str) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.link = Link(
            broker,
            client_id=f"recorder-{secrets.token_hex(4)}",
            subscriptions=topics or ("fugu/2/home/+/symbols/+",),
            durable=True,
            on_message=self.received,
        )
        self.link.start()
        wait_until(lambda: self.link.subscribed, "a subscription")

    def received(self, topic: str, payload: bytes, _retained: bool) -> None:
        self.messages.append((topic, payload))

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, payload in list(self.messages)]

    @property
    def newest(self) -> dict[str, bytes]:
        """The last message of each topic."""
        return dict(self.messages)

    def on(self, topic: str) -> list[bytes]:
        return [payload for heard, payload in list(self.messages) if heard == topic]

    def frames(self) -> list[SymbolFrame]:
        return [SymbolFrame.decode(payload) for payload in self.of("symbols", bytes) if payload[0] == 1]

    def of(self, kind: str, decode: Callable[[bytes], Decoded]) -> list[Decoded]:
        """Its messages of a kind, but empty ones, decoded."""
        return [decode(payload) for topic, payload in list(self.messages) if payload and kind_of(topic) == kind]
