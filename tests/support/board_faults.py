"""Boards that suffer faults by a schedule, and what has become of everything that they have sealed.

Every fault is drawn from a seed: the same seed, the same faults at the same moments.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fugu.contract.frames import Status, SymbolFrame, WindowFrame
from fugu.contract.topics import parse_topic
from fugu.mqtt import Broker
from tests.support.faulty_boards import BoardProcess, Sealed
from tests.support.processes import Recorder
from tests.support.wiretap import Line, Mode

__all__ = ["FAULTS", "BoardDevice", "Fault", "Heard", "Outcome", "Stored", "outcome", "schedule", "suffer"]

_MODES: dict[str, Mode] = {"broker away": "away", "half-open": "silent", "slow line": "slow"}
FAULTS = (*_MODES, *("write fails", "power cut", "power off", "bit rot", "clock drift", "clock jump", "heap exhausted"))
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
    process: BoardProcess
    line: Line
    rotten: list[Sealed] = field(default_factory=list)


class Heard(Recorder):
    """Everything that devices publish: `published` are device, stream and frame; `versions` are what they say."""

    def __init__(self, broker: Broker, fleet: str) -> None:
        self.published: list[tuple[str, str, bytes]] = []
        self.versions: dict[str, str] = {}
        super().__init__(broker, *(f"fugu/2/{fleet}/+/{kind}" for kind in ("status", "symbols/+", "window/+")))

    def received(self, topic: str, payload: bytes, _retained: bool) -> None:
        parsed = parse_topic(topic)
        if parsed.kind == "status":
            self.versions[parsed.device] = Status.decode(payload).agent_version
        else:
            self.published.append((parsed.device, parsed.stream, payload))


@dataclass
class Stored:
    """Durable frames of a device at the gateway: of symbols and of windows, by their streams."""

    symbols: dict[str, list[SymbolFrame]] = field(default_factory=dict)
    windows: dict[str, list[WindowFrame]] = field(default_factory=dict)


@dataclass
class Outcome:
    """Fate of a board's draws: ticks, and windows likewise.

    `version` is what it says that it is. The gateway has those `received` as they were sealed; those `unsent` are still
    on the board only. In the segments of those `rotten` a bit was turned in the flash memory; nobody has those `lost`.
    `twice` counts ticks that were drawn for twice, or that have two symbols, and windows with two counts. `refused` is
    how often the board could not write, and drew nothing until it could.
    """

    device: str
    version: str
    ticks: int = 0
    received: int = 0
    unsent: int = 0
    rotten: int = 0
    lost: int = 0
    windows: int = 0
    windows_received: int = 0
    twice: int = 0
    starts: int = 0
    refused: int = 0

    @property
    def sound(self) -> bool:
        """True if nothing was lost, and nothing drawn twice."""
        return not self.lost and not self.twice and bool(self.ticks)


def schedule(boards: Sequence[str], seconds: float, seed: int, rounds: int = 1) -> list[Fault]:
    """Faults of every kind, so many of each, one after the other on every board."""
    generator = random.Random(f"faults {seed}")
    todo: dict[str, list[str]] = {name: [] for name in boards}
    for _ in range(rounds):
        start = generator.randrange(len(boards))
        for number, kind in enumerate(generator.sample(FAULTS, len(FAULTS)), start):
            todo[boards[number % len(boards)]].append(kind)
    faults = []
    for name, mine in todo.items():
        each = seconds * (1 - _LAST_CALM) / max(1, len(mine))
        faults += [
            Fault((number + 0.3 * generator.random()) * each, name, kind, 0.5 * each, generator.random())
            for number, kind in enumerate(mine)
        ]
    return sorted(faults)


def suffer(devices: Sequence[BoardDevice], faults: Sequence[Fault], seconds: float, stop: threading.Event) -> None:
    """Run boards for some time, with faults; in the end everything is whole and runs.

    A thread for every board does what the schedule says, and starts the board whenever it is off.
    """
    begin = time.monotonic()
    with ThreadPoolExecutor(len(devices)) as threads:
        lives = [threads.submit(_live, device, faults, begin, seconds, stop) for device in devices]
        for life in lives:
            life.result()


def _live(device: BoardDevice, faults: Sequence[Fault], begin: float, seconds: float, stop: threading.Event) -> None:
    generator = random.Random(f"{device.name} {faults}")
    for fault in faults:
        if fault.device == device.name and not stop.is_set():
            _run_until(device, begin + fault.at, stop)
            _suffer(device, fault, generator, stop)
    device.line.become("whole")
    _run_until(device, begin + seconds, stop)


def _run_until(device: BoardDevice, end: float, stop: threading.Event) -> None:
    while True:
        if not device.process.runs:
            device.process.start()
        seconds = end - time.monotonic()
        if seconds <= 0 or stop.wait(min(seconds, _LOOK_SECONDS)):
            return


def _suffer(device: BoardDevice, fault: Fault, generator: random.Random, stop: threading.Event) -> None:
    end, board = time.monotonic() + fault.seconds, device.process
    sign = 1 if fault.amount < 0.5 else -1
    match fault.kind:
        case "power off":
            board.cut()
            stop.wait(_OFF_SECONDS)
        case "write fails":
            board.suffer("fail", 1 + round(5 * fault.amount))
        case "power cut":
            board.suffer("cut", round(12 * fault.amount))
        case "clock drift":
            board.suffer("drift", sign * (100 + round(400 * fault.amount)))
        case "heap exhausted":
            board.suffer("memory", round(6000 * fault.amount), round(500 * fault.seconds))
        case "clock jump":
            jump = sign * round(1e6 * (1 + 4 * fault.amount))
            board.suffer("jump", jump)
            _run_until(device, time.monotonic() + fault.seconds / 2, stop)
            _run_wrong(device, jump, end, stop)  # a clock that is wrong when it starts counts at once
        case "bit rot":
            device.line.become("away")
            before = len(board.life().sealed)
            _run_until_sealed(device, before + 3, stop)
            board.cut()
            device.rotten += board.rot(generator, board.life().sealed[before:])
            device.line.become("whole")
            _run_wrong(device, -round(3e6 * fault.amount), end, stop)  # of what was reserved, only the flash knows
        case line:
            device.line.become(_MODES[line])
    _run_until(device, end, stop)
    device.line.become("whole")


def _run_wrong(device: BoardDevice, jump_us: int, end: float, stop: threading.Event) -> None:
    """Run a board that begins anew, with a clock that is off, and then anew with a right one."""
    device.process.jump_us = jump_us
    device.process.cut()
    _run_until(device, end, stop)
    device.process.jump_us = 0
    device.process.cut()


def _run_until_sealed(device: BoardDevice, count: int, stop: threading.Event) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while len(device.process.life().sealed) < count and time.monotonic() < end and not stop.is_set():
        _run_until(device, time.monotonic() + _LOOK_SECONDS, stop)


def outcome(device: BoardDevice, heard: Heard, stored: Stored, first: int | None = None) -> Outcome:
    """Fate of a board's draws; it is off, and its flash memory was read.

    With `first`, of so many frames only: it may still run then.
    """
    life, rotten = device.process.life(), {(frame.sequence, frame.last) for frame in device.rotten}
    outcome = Outcome(device.name, heard.versions.get(device.name, ""), starts=life.starts, refused=life.failures)
    symbols = {
        (stream, tick): symbol
        for stream, frames in stored.symbols.items()
        for frame in frames
        for tick, symbol in enumerate(frame.symbols, frame.first)
    }
    drawn: dict[tuple[object, ...], object] = {}  # a tick has one symbol, and a window one set of counts
    outcome.twice = len(life.drawn) - len(set(life.drawn))
    for sequence, last, payload in dict.fromkeys(
        (frame.sequence, frame.last, frame.payload) for frame in life.sealed[:first]
    ):
        if "/" in sequence:
            size, there = 1, int(WindowFrame.decode(payload) in stored.windows.get(sequence, ()))
            outcome.windows += 1
            outcome.windows_received += there
        else:
            mine = _drawn(sequence, payload)
            size, there = len(mine), sum(symbols.get((sequence, key[-1])) == symbol for key, symbol in mine.items())
            outcome.ticks += size
            outcome.received += there
        missing = size - there
        if (sequence, last) in rotten:
            outcome.rotten += missing
        elif (sequence, last) in life.unsent:
            outcome.unsent += missing
        else:
            outcome.lost += missing
    frames = [(frame.sequence.partition("/")[0], frame.payload) for frame in life.sealed[:first]]
    frames += [(stream, payload) for name, stream, payload in heard.published if name == device.name]
    for stream, payload in dict.fromkeys(frames):
        for key, value in _drawn(stream, payload).items():
            outcome.twice += drawn.setdefault(key, value) != value
    return outcome


def _drawn(stream: str, payload: bytes) -> dict[tuple[Any, ...], object]:
    """Draws of a frame: symbols by stream and tick, or counts by stream, window and index."""
    if payload[0] == WindowFrame.SCHEMA:
        window = WindowFrame.decode(payload)
        return {(stream, window.window, window.index): window.counts}
    frame = SymbolFrame.decode(payload)
    return {(stream, tick): symbol for tick, symbol in enumerate(frame.symbols, frame.first)}
