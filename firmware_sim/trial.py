"""Boards and agents that suffer faults by a schedule, and what has become of everything that they have sealed.

Every fault is drawn from a seed: the same seed, the same faults at the same moments.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from edge_agent.outbox import Outbox
from firmware_sim.boards import BoardProcess, Sealed
from firmware_sim.devices import AgentProcess
from fugu.contract.errors import FuguError
from fugu.contract.frames import Status, SymbolFrame, WindowFrame
from fugu.contract.policies import AnyPolicy
from fugu.contract.topics import parse_topic
from fugu.mqtt import Broker, Link

__all__ = ["AgentDevice", "BoardDevice", "Fault", "Heard", "Line", "Outcome", "Stored", "outcome", "schedule", "suffer"]

Mode = Literal["whole", "away", "silent", "slow"]
_SLOW_SECONDS = 0.3


class Line:
    """Listens on a free port, and forwards to a broker on another; `carried` are bytes towards the broker, and from it.

    `away`: connections are refused, and those that there are end. `silent`: nothing is forwarded, and nobody is told;
    such a connection stays dead, and ends when the line is whole again. `slow`: everything takes 0.3 s.
    """

    def __init__(self, broker_port: int) -> None:
        self.carried = [0, 0]
        self._broker_port = broker_port
        self._mode: Mode = "whole"
        self._open: set[socket.socket] = set()
        self._dead: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def become(self, mode: Mode) -> None:
        """Change what the line does."""
        with self._lock:
            if mode == "silent":
                self._dead |= self._open
            ends = set(self._dead if mode == "whole" else self._open | self._dead if mode == "away" else ())
            self._mode = mode
        for end in ends:
            self._end(end)

    def close(self) -> None:
        """End it."""
        self._listener.close()
        self.become("away")

    def _accept(self) -> None:
        while True:
            try:
                device, _ = self._listener.accept()
            except OSError:
                return
            if self._mode == "away":
                device.close()
                continue
            try:
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
            except OSError:
                device.close()
                continue
            with self._lock:
                self._open |= {device, broker}
                if self._mode == "silent":
                    self._dead |= {device, broker}
            for way, (source, sink) in enumerate(((device, broker), (broker, device))):
                threading.Thread(target=self._forward, args=(source, sink, way), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, way: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self._mode == "slow":
                    time.sleep(_SLOW_SECONDS)  # this is the fault
                if source not in self._dead:
                    sink.sendall(data)
                    self.carried[way] += len(data)
        for end in (source, sink):
            self._end(end)

    def _end(self, end: socket.socket) -> None:
        with self._lock:
            self._open.discard(end)
            self._dead.discard(end)
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


LINE_FAULTS = ("broker away", "half-open", "slow line")
BOARD_FAULTS = (
    *LINE_FAULTS,
    *("write fails", "power cut", "power off", "bit rot", "clock drift", "clock jump", "heap exhausted"),
)
_MODES: dict[str, Mode] = {"broker away": "away", "half-open": "silent", "slow line": "slow"}
_LOOK_SECONDS = 0.05
_PATIENCE_SECONDS = 20.0
_OFF_SECONDS = 0.2
_LAST_CALM = 0.15
"""Of the time, without faults at its end."""


class Fault(NamedTuple):
    """A fault some seconds after the beginning; `amount`, from 0 to 1, is of what it has much or little."""

    at: float
    device: str
    kind: str
    seconds: float
    amount: float


@dataclass
class BoardDevice:
    """A board and its line; `rotten` frames have a bit turned in the flash memory, before the gateway had them."""

    name: str
    policy: AnyPolicy
    process: BoardProcess
    line: Line
    rotten: list[Sealed] = field(default_factory=list)


@dataclass
class AgentDevice:
    """An agent on CPython, and its line to the broker; it is started anew when it was killed."""

    name: str
    policy: AnyPolicy
    config: Path
    line: Line
    process: AgentProcess | None = None
    starts: int = 0

    def start(self) -> None:
        """Start it."""
        self.process = AgentProcess(self.config, self.config.parent / "agent.log")
        self.starts += 1


Device = BoardDevice | AgentDevice


class Heard:
    """Everything that devices publish, by device, kind (symbols or window) and stream; `versions` are what they say."""

    def __init__(self, broker: Broker, fleet: str) -> None:
        self.frames: list[tuple[str, str, str, bytes]] = []
        self.versions: dict[str, str] = {}
        ready = threading.Event()
        topics = tuple(f"fugu/2/{fleet}/+/{kind}" for kind in ("status", "symbols/+", "window/+"))
        self.link = Link(broker, "simulation", topics, durable=True, on_connected=ready.set, on_message=self._take)
        self.link.start()
        if not ready.wait(_PATIENCE_SECONDS):
            raise FuguError("the broker does not answer")

    def _take(self, topic: str, payload: bytes, _retained: bool) -> None:
        parsed = parse_topic(topic)
        if parsed.kind == "status":
            self.versions[parsed.device] = Status.decode(payload).agent_version
            return
        self.frames.append((parsed.device, topic.split("/")[4], parsed.stream, payload))


@dataclass
class Stored:
    """What the gateway has made durable of a device: frames of symbols and of windows, by their streams."""

    symbols: dict[str, list[SymbolFrame]] = field(default_factory=dict)
    windows: dict[str, list[WindowFrame]] = field(default_factory=dict)


class Outcome(NamedTuple):
    """What has become of what a device has drawn: ticks, and windows likewise; an agent's are published or kept.

    `version` is what it says that it is. The gateway has those `received` as they were sealed; those `unsent` are still
    on the device only; in the segments of those `rotten` a bit was turned in the flash memory; nobody has those `lost`.
    `twice` counts ticks that were drawn for twice, or that have two symbols, and windows with two counts. `refused` is
    how often the device could not write, and drew nothing until it could.
    """

    device: str
    kind: str
    version: str
    ticks: int
    received: int
    unsent: int
    rotten: int
    lost: int
    windows: int
    windows_received: int
    twice: int
    starts: int
    refused: int

    @property
    def sound(self) -> bool:
        """True if nothing was lost, and nothing drawn twice."""
        return not self.lost and not self.twice and bool(self.ticks)


def schedule(boards: Sequence[str], agents: Sequence[str], seconds: float, seed: int, rounds: int = 1) -> list[Fault]:
    """Faults of every kind, so many of each, one after the other on every device."""
    generator = random.Random(f"faults {seed}")
    todo: dict[str, list[str]] = {name: [] for name in (*boards, *agents)}
    for _ in range(rounds):
        for kinds, names in ((BOARD_FAULTS, boards), ((*LINE_FAULTS, "power off"), agents)):
            if names:
                start = generator.randrange(len(names))
                for number, kind in enumerate(generator.sample(kinds, len(kinds))):
                    todo[names[(start + number) % len(names)]].append(kind)
    faults = []
    for name, mine in todo.items():
        each = seconds * (1 - _LAST_CALM) / max(1, len(mine))
        faults += [
            Fault((number + 0.3 * generator.random()) * each, name, kind, 0.5 * each, generator.random())
            for number, kind in enumerate(mine)
        ]
    return sorted(faults)


def suffer(devices: Sequence[Device], faults: Sequence[Fault], seconds: float, stop: threading.Event) -> None:
    """Run devices for some time, with faults; in the end everything is whole and runs.

    A thread for every device does what the schedule says, and starts the device whenever it is off.
    """
    begin = time.monotonic()
    with ThreadPoolExecutor(len(devices)) as threads:
        mine = ([fault for fault in faults if fault.device == one.name] for one in devices)
        lives = [threads.submit(_live, *both, begin, seconds, stop) for both in zip(devices, mine, strict=True)]
        for life in lives:
            life.result()


def _live(device: Device, faults: Sequence[Fault], begin: float, seconds: float, stop: threading.Event) -> None:
    generator = random.Random(f"{device.name} {faults}")
    for fault in faults:
        _run_until(device, begin + fault.at, stop)
        if stop.is_set():
            break
        _suffer(device, fault, generator, stop)
    device.line.become("whole")
    _run_until(device, begin + seconds, stop)


def _run_until(device: Device, end: float, stop: threading.Event) -> None:
    while True:
        if isinstance(device, BoardDevice):
            if not device.process.runs:
                device.process.start()
        elif device.process is None or device.process.process.poll() is not None:
            device.start()
        left = end - time.monotonic()
        if left <= 0 or stop.wait(min(left, _LOOK_SECONDS)):
            return


def _suffer(device: Device, fault: Fault, generator: random.Random, stop: threading.Event) -> None:
    end = time.monotonic() + fault.seconds
    if fault.kind in _MODES:
        device.line.become(_MODES[fault.kind])
        _run_until(device, end, stop)
        device.line.become("whole")
    elif fault.kind == "power off":
        _switch_off(device)
        stop.wait(_OFF_SECONDS)
        _run_until(device, end, stop)
    elif isinstance(device, BoardDevice):
        _suffer_on_board(device, fault, end, generator, stop)


def _switch_off(device: Device) -> None:
    if isinstance(device, BoardDevice):
        device.process.cut()
    elif device.process is not None:
        device.process.kill()


def _suffer_on_board(
    device: BoardDevice, fault: Fault, end: float, generator: random.Random, stop: threading.Event
) -> None:
    board = device.process
    sign = 1 if fault.amount < 0.5 else -1
    if fault.kind == "write fails":
        board.suffer("fail", 1 + round(5 * fault.amount))
    elif fault.kind == "power cut":
        board.suffer("cut", round(12 * fault.amount))
    elif fault.kind == "clock drift":
        board.suffer("drift", sign * (100 + round(400 * fault.amount)))
    elif fault.kind == "heap exhausted":
        board.suffer("memory", round(6000 * fault.amount), round(500 * fault.seconds))
    elif fault.kind == "clock jump":
        jump = sign * round(1e6 * (1 + 4 * fault.amount))
        board.suffer("jump", jump)
        _run_until(device, time.monotonic() + fault.seconds / 2, stop)
        board.jump_us = jump
        board.cut()  # a clock that is wrong when it starts counts at once
        _run_until(device, end, stop)
        board.jump_us = 0
        board.cut()
    elif fault.kind == "bit rot":
        device.line.become("away")
        before = len(board.life().sealed)
        _run_until_sealed(device, before + 3, stop)
        board.cut()
        device.rotten += board.rot(generator, board.life().sealed[before:])
        board.jump_us = -round(3e6 * fault.amount)  # of what was reserved, only the flash knows
        device.line.become("whole")
        _run_until(device, end, stop)
        board.jump_us = 0
        board.cut()
    _run_until(device, end, stop)


def _run_until_sealed(device: BoardDevice, count: int, stop: threading.Event) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while len(device.process.life().sealed) < count and time.monotonic() < end and not stop.is_set():
        _run_until(device, time.monotonic() + _LOOK_SECONDS, stop)


def outcome(device: Device, heard: Heard, stored: Stored, first: int | None = None) -> Outcome:
    """What has become of what a device has drawn; it is off, and its flash memory was read.

    With `first`, of so many frames of a board only: it may still run then.
    """
    if isinstance(device, BoardDevice):
        life = device.process.life()
        sealed = [(one.sequence, one.last, one.payload) for one in life.sealed[:first]]
        unsent = life.unsent
        rotten = {(one.sequence, one.last) for one in device.rotten}
        drawn = len(life.drawn) - len(set(life.drawn))
        starts, refused = life.starts, life.failures
    else:
        outbox = _outbox(device)
        published = [
            (stream if kind == "symbols" else f"{stream}/{WindowFrame.decode(payload).window}", _last(payload), payload)
            for name, kind, stream, payload in heard.frames
            if name == device.name
        ]
        sealed = [*published, *outbox]
        unsent = {(sequence, last) for sequence, last, _ in outbox}
        rotten, drawn, starts, refused = set(), 0, device.starts, 0
    count = _Count()
    for sequence, last, payload in dict.fromkeys(sealed):
        count.add(sequence, last, payload, stored, unsent, rotten)
    for name, kind, stream, payload in heard.frames:
        if name == device.name:
            count.compare(kind, stream, payload)
    return Outcome(
        device.name, "board" if isinstance(device, BoardDevice) else "agent", heard.versions.get(device.name, ""),
        count.ticks, count.received, count.unsent, count.rotten, count.lost, count.windows, count.windows_received,
        drawn + count.twice, starts, refused,
    )  # fmt: skip


def _last(payload: bytes) -> int:
    return SymbolFrame.decode(payload).last if payload[0] == 1 else WindowFrame.decode(payload).index


def _outbox(device: AgentDevice) -> list[tuple[str, int, bytes]]:
    found, after = [], 0
    with contextlib.closing(
        Outbox(device.config.parent / "outbox.sqlite", device.policy.fleet, device.policy.device)
    ) as outbox:
        while (frame := outbox.next_frame(after)) is not None:
            after = frame.id
            found.append((frame.sequence, _last(frame.payload), frame.payload))
    return found


class _Count:
    def __init__(self) -> None:
        self.ticks = self.received = self.unsent = self.rotten = self.lost = self.windows = self.windows_received = 0
        self.twice = 0
        self._symbols: dict[tuple[str, int], int] = {}
        self._counts: dict[tuple[str, str, int], tuple[int, ...]] = {}
        self._stored: dict[str, dict[int, int]] = {}

    def add(
        self,
        sequence: str,
        last: int,
        payload: bytes,
        stored: Stored,
        unsent: set[tuple[str, int]],
        rotten: set[tuple[str, int]],
    ) -> None:
        """A frame that was sealed."""
        stream, _, window = sequence.partition("/")
        self.compare("window" if window else "symbols", stream, payload)
        if window:
            frame = WindowFrame.decode(payload)
            size, there = 1, int(frame in stored.windows.get(sequence, ()))
            self.windows += 1
            self.windows_received += there
        else:
            symbols = SymbolFrame.decode(payload)
            size = len(symbols.symbols)
            known = self._ticks(stream, stored)
            there = sum(known.get(tick) == symbol for tick, symbol in enumerate(symbols.symbols, symbols.first))
            self.ticks += size
            self.received += there
        missing = size - there
        if (sequence, last) in rotten:
            self.rotten += missing
        elif (sequence, last) in unsent:
            self.unsent += missing
        else:
            self.lost += missing

    def compare(self, kind: str, stream: str, payload: bytes) -> None:
        """Hold a frame against all others: a tick has one symbol, and a window one set of counts."""
        if kind == "window":
            window = WindowFrame.decode(payload)
            key = (stream, window.window, window.index)
            self.twice += self._counts.setdefault(key, window.counts) != window.counts
            return
        frame = SymbolFrame.decode(payload)
        for tick, symbol in enumerate(frame.symbols, frame.first):
            self.twice += self._symbols.setdefault((stream, tick), symbol) != symbol

    def _ticks(self, stream: str, stored: Stored) -> Mapping[int, int]:
        if stream not in self._stored:
            frames = stored.symbols.get(stream, ())
            self._stored[stream] = {
                tick: symbol for frame in frames for tick, symbol in enumerate(frame.symbols, frame.first)
            }
        return self._stored[stream]
