"""Cost of taking a frame of 100 ticks: the whole gateway beside subscribers that do nothing with it.

Usage: python benchmarks/ingest.py [--json] [--frames N] [--in-flight N]     (make bench installs a broker)

Mosquitto's `max_queued_messages` is 0, and two processes publish packets that were encoded before. A "stream" of frames
is taken while it is published. A "backlog" waits in the broker until its subscriber is let go, so that only the broker
and the subscriber work. Processor time is that of the subscriber's processes, user and system.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import paho.mqtt.client as mqtt
from figures import command_line, show
from gateways import FLEET, STREAM, binary_policy, run_gateway, write_policies
from paho.mqtt.enums import CallbackAPIVersion
from processes import started

from fugu.contract.frames import Committed, SymbolFrame
from fugu.contract.policy import Policy
from fugu.contract.topics import parse_topic, topic_of
from fugu.mqtt import Broker, Link
from fugu_cli.demo.processes import start_broker
from gateway.estimates.symbols import warm

sys.path.insert(0, str(Path(__file__).parents[1]))  # before packages that install a `tests` of their own

from tests.support.mqtt_packets import Publication, connect, publish

DEVICES, TICKS = 100, 100
FRAMES, IN_FLIGHT = 20_000, 20
WARM_UP = 1_000
PUBLISHERS, WINDOW, AT_ONCE = 2, 1_000, 50
ROUNDS = 3
PATIENCE = 600.0
SUBSCRIBERS = ("paho", "link", "gateway")
NAMES = {"paho": "an empty paho 3.1.1 subscriber", "link": "an empty subscriber by Link", "gateway": "the gateway"}
GATEWAYS = ("gateway",)
LOADS = ("stream", "backlog")
_CONNACK_BYTES, _PUBACK_BYTES = 4, 4


def main() -> int:
    """Measure and print, or be one of the processes of a measurement."""
    parser = command_line(__doc__)
    parser.add_argument("--frames", type=int, default=FRAMES, help="how many are measured")
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT, help="Mosquitto's max_inflight_messages")
    parser.add_argument("--only", choices=SUBSCRIBERS, action="append", help=argparse.SUPPRESS)
    parser.add_argument("--be", choices=("publisher", *SUBSCRIBERS), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--after", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    match options.be:
        case "publisher":
            return _publish(options.port, options.part, options.after, options.frames)
        case "gateway":
            return run_gateway(Broker(port=options.port), options.folder)
        case "paho":
            return _subscribe_by_paho(options.port)
        case "link":
            return _subscribe_by_link(options.port)
    warm()  # a gateway that has nothing compiled yet takes less than comes here, and nobody sends again
    load = Load(options.frames, options.in_flight)
    show(through_a_broker(load, tuple(options.only or SUBSCRIBERS)), as_json=options.json)
    return 0


class Load(NamedTuple):
    """How many frames, and how many of them Mosquitto sends before they are acknowledged."""

    frames: int
    in_flight: int


class Cost(NamedTuple):
    """Of one frame.

    Attributes:
        processor: microseconds of the subscriber's process.
        per_second: frames.
        together: frames that the subscriber was handed at once, on average; 0 if it does not say.
    """

    processor: float
    per_second: float
    together: float = 0.0


def through_a_broker(how: Load, subscribers: Sequence[str]) -> dict[str, object]:
    """The best of a few interleaved rounds of each subscriber under each load, and its ratio to the first."""
    costs_of: dict[tuple[str, str], list[Cost]] = {(load, kind): [] for load in LOADS for kind in subscribers}
    for _ in range(ROUNDS):
        for (load, kind), costs in costs_of.items():
            costs.append(_measured(kind, load, how))
    setting = f"{how.frames}, {DEVICES}, {how.in_flight}"
    figures: dict[str, object] = {"frames, devices, Mosquitto's max_inflight_messages": setting}
    for load in LOADS:
        peer = min(costs_of[load, subscribers[0]]).processor
        for kind in subscribers:
            best = min(costs_of[load, kind])
            name = f"{load}: {NAMES[kind]}"
            figures[f"{name}: us a frame"] = round(best.processor, 1)
            figures[f"{name}: frames/s"] = round(best.per_second)
            if best.together:
                figures[f"{name}: frames at once"] = round(best.together, 1)
            if kind != subscribers[0]:
                figures[f"{name}: ratio to {NAMES[subscribers[0]]}"] = round(best.processor / peer, 2)
    return figures


def _measured(kind: str, load: str, how: Load) -> Cost:
    frames = how.frames
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_policies(folder, policies())
        with start_broker("mosquitto", folder, f"max_inflight_messages {how.in_flight}") as (port, _):
            counted = _Counted(port)
            with _subscriber(kind, folder, port, counted) as process:
                done = counted.done if kind in GATEWAYS else partial(_said, process)
                with _publishers(port, 0, WARM_UP) as publish:
                    publish()
                    done(WARM_UP)
                with _publishers(port, WARM_UP, WARM_UP + frames) as publish:
                    if load == "backlog":
                        _signal(process.pid, signal.SIGSTOP)
                        publish()
                    used, begin = _processor_seconds(process.pid), time.perf_counter()
                    if load == "backlog":
                        _signal(process.pid, signal.SIGCONT)
                    else:
                        publish()
                    together = done(WARM_UP + frames)
                    used, seconds = _processor_seconds(process.pid) - used, time.perf_counter() - begin
            counted.stop()
    return Cost(used / frames * 1e6, frames / seconds, together)


def _processor_seconds(pid: int) -> float:
    """User and system time of a process and those that it has started, all threads."""
    tasks = [task for process in _processes(pid) for task in Path(f"/proc/{process}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _processes(pid: int) -> Iterator[int]:
    """A process and those that it has started, and they."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _processes(int(child))


def _signal(pid: int, number: signal.Signals) -> None:
    for process in [*_processes(pid)]:
        os.kill(process, number)


class _Counted:
    """How far the gateway's watermarks have come."""

    def __init__(self, port: int) -> None:
        self._ticks: dict[str, int] = {}
        self._changed = threading.Condition()
        self._online = threading.Event()
        topics = (topic_of("committed", FLEET, "+"), topic_of("health", FLEET))
        self._link = Link(Broker(port=port), "counter", topics, on_message=self._heard)
        self._link.start()
        while not self._link.subscribed:
            time.sleep(0.01)

    def _heard(self, topic: str, payload: bytes, _retained: bool) -> None:
        if topic == topic_of("health", FLEET):
            self._online.set()
            return
        with self._changed:
            device = str(parse_topic(topic).device)
            for stream in Committed.decode(payload).streams:
                self._ticks[device] = stream.through
            self._changed.notify_all()

    def online(self) -> None:
        """Wait until the gateway is."""
        if not self._online.wait(PATIENCE):
            raise SystemExit("the gateway did not start")

    def done(self, frames: int) -> float:
        """Wait until that many frames are durable."""
        last = frames // DEVICES * TICKS - 1

        def all_there() -> bool:
            return len(self._ticks) == DEVICES and min(self._ticks.values()) >= last

        with self._changed:
            if not self._changed.wait_for(all_there, PATIENCE):
                raise SystemExit("the gateway did not take all frames")
        return 0.0

    def stop(self) -> None:
        """Disconnect."""
        self._link.stop()


@contextmanager
def _subscriber(kind: str, folder: Path, port: int, counted: _Counted) -> Iterator[subprocess.Popen[str]]:
    """The process that is measured, subscribed."""
    pipes = None if kind in GATEWAYS else subprocess.PIPE
    words = ("--be", kind, "--folder", folder, "--port", port)
    with started(__file__, *words, stdin=pipes, stdout=pipes) as process:
        if process.stdout is None:
            counted.online()
        else:
            process.stdout.readline()
        yield process


def _said(process: subprocess.Popen[str], frames: int) -> float:
    """Let a subscriber say when it has received that many; returns how many it received at once."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{frames}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


@contextmanager
def _publishers(port: int, after: int, frames: int) -> Iterator[Callable[[], None]]:
    """Processes that hold, of all frames, those from a number on; what is yielded lets them publish, and waits."""
    words = ("--be", "publisher", "--port", port, "--after", after, "--frames", frames)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with ExitStack() as stack:
        publishers = [
            stack.enter_context(started(__file__, *words, "--part", part, **pipes)) for part in range(PUBLISHERS)
        ]

        def publish() -> None:
            for process in publishers:
                assert process.stdin is not None
                process.stdin.close()
            for process in publishers:
                if process.wait(PATIENCE):
                    raise SystemExit("a publisher has failed")

        for process in publishers:
            assert process.stdout is not None
            process.stdout.readline()
        yield publish


def _publish(port: int, part: int, after: int, frames: int) -> int:
    """Send the frames of a part of the devices in turn, as fast as the broker acknowledges them."""
    devices = [f"d{number}" for number in range(part, DEVICES, PUBLISHERS)]
    packets: list[bytes] = []
    for number in range(after // DEVICES, frames // DEVICES):
        symbols = bytes(random.Random(number).choices((0, 1), k=TICKS))
        frame = SymbolFrame(1, number * TICKS - 1, number * TICKS, symbols).encode()
        for device in devices:
            publication = Publication(topic_of("symbols", FLEET, device, STREAM), frame, retain=False)
            packets.append(publish(publication, 4, len(packets) % 65_535 + 1))
    sent = acknowledged = 0
    with socket.create_connection(("127.0.0.1", port)) as broker:
        broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        broker.sendall(connect(f"publisher-{part}", "publisher", "", 0))
        taken = -_CONNACK_BYTES
        print("ready", flush=True)
        sys.stdin.read()
        while acknowledged < len(packets):
            if sent < len(packets) and sent - acknowledged < WINDOW:
                some = packets[sent : sent + AT_ONCE]
                broker.sendall(b"".join(some))
                sent += len(some)
                continue
            if not (answer := broker.recv(1 << 16)):
                return 1
            taken += len(answer)
            acknowledged = taken // _PUBACK_BYTES
    return 0


class _Tally:
    """Counts what arrives, and how often something does."""

    def __init__(self) -> None:
        self._frames = 0
        self._times = 0
        self._wanted = 0
        self._enough = threading.Event()

    def add(self, frames: int) -> None:
        """So many have arrived together."""
        self._frames += frames
        self._times += 1
        if self._frames >= self._wanted:
            self._enough.set()

    def serve(self) -> int:
        """Say, for each number of frames that is asked for, when they are there, and how many came together."""
        print("subscribed", flush=True)
        for line in sys.stdin:
            self._enough.clear()
            self._wanted = int(line)
            if self._frames < self._wanted:
                self._enough.wait(PATIENCE)
            print(self._frames / self._times, flush=True)
        return 0


def _subscribe_by_paho(port: int) -> int:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, "subscriber")
    tally, ready = _Tally(), threading.Event()
    client.on_message = lambda _client, _data, _message: tally.add(1)
    client.on_subscribe = lambda *_: ready.set()
    client.connect("127.0.0.1", port)
    client.subscribe(topic_of("symbols", FLEET, "+", "+"), qos=1)
    client.loop_start()
    ready.wait(PATIENCE)
    return tally.serve()


def _subscribe_by_link(port: int) -> int:
    tally = _Tally()
    link = Link(
        Broker(port=port),
        "subscriber",
        (topic_of("symbols", FLEET, "+", "+"),),
        on_messages=lambda messages: tally.add(len(messages)),
    )
    link.start()
    while not link.subscribed:
        time.sleep(0.01)
    return tally.serve()


def policies() -> Iterator[Policy]:
    """The policies of all devices."""
    for number in range(DEVICES):
        yield binary_policy(f"d{number}", TICKS, time.time_ns() // 1000 - 10**7 * 1_000_000)


if __name__ == "__main__":
    sys.exit(main())
