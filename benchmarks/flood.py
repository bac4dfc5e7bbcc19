"""Cost of one device that floods to the others: until a frame of an honest one is durable, and what one repeat costs.

Usage: python benchmarks/flood.py [--json] [--seconds N]     (make bench installs a broker)

The flood repeats 700 stored frames, at 1,000 messages a second and as fast as the broker takes them (QoS 0, one
connection). An honest device sends a frame ten times a second; its delay is from there to the watermark that has it.
A repeat is measured in a recorder alone, with 100 and with 60,000 frames of a tick in the journal.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from statistics import median

from figures import command_line, show

from fugu.contract.frames import SymbolFrame
from fugu.contract.topics import topic_of

sys.path.insert(0, str(Path(__file__).parents[1]))  # before packages that install a `tests` of their own

from tests.support.brokers import Mosquitto, wait_until
from tests.support.gateway_service import Device, GatewayProcess
from tests.support.mqtt_packets import Publication, connect, publish
from tests.support.scenes import Scene, frames, write_policies

LOADS = {"alone": 0.0, "beside 1,000 messages a second": 1_000.0, "beside all that the broker takes": float("inf")}
JOURNALS = 100, 60_000
STORED, EVERY, REPEATS = 700, 0.1, 200


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each load")
    options = parser.parse_args()
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        costs = [_repeat(folder, journal) for journal in JOURNALS]
        figures |= {f"a repeat, {n:,} frames in the journal, ms": cost for n, cost in zip(JOURNALS, costs, strict=True)}
        figures["ratio"] = costs[1] / costs[0]
        write_policies(folder / "policies")
        with Mosquitto(folder) as broker:
            gateway, numbers = GatewayProcess(broker, folder), count()
            honest, loud = Device(broker, "ring"), Device(broker, "watch")
            for device in (honest, loud):
                device.say_birth()
                wait_until(device.answered_after(0), "the gateway")
            stored = frames([20] * STORED)
            loud.send(stored)
            wait_until(lambda: not loud.outbox, "the frames that are repeated")
            for name, rate in LOADS.items():
                ended = threading.Event()
                flood = threading.Thread(target=_flood, args=(broker.port, stored, rate, ended))
                flood.start()
                delays = _delays(honest, numbers, options.seconds)
                ended.set()
                flood.join()
                begun = time.monotonic()
                while max(_delays(honest, numbers, 5 * EVERY)) > 1.0:
                    pass
                figures |= {
                    f"{name}: median delay, s": median(delays),
                    f"{name}: longest delay, s": max(delays),
                    f"{name}: well again after, s": time.monotonic() - begun,
                }
            gateway.stop()
    show(figures, as_json=options.json)


def _repeat(folder: Path, journal: int) -> float:
    """Milliseconds, the median."""
    scene = Scene(folder / f"{journal}.sqlite")
    some = [SymbolFrame(1, tick - 1, tick, bytes([tick & 1]), bits=1, padding=0) for tick in range(journal)]
    for first in range(0, journal, 2_000):
        scene.record(*some[first : first + 2_000])
    times = []
    for number in range(REPEATS):
        begun = time.perf_counter()
        scene.record(some[number % journal])
        times.append(time.perf_counter() - begun)
    return 1e3 * median(times)


def _delays(device: Device, numbers: count[int], seconds: float) -> list[float]:
    """Of every frame that was sent in so many seconds, in seconds, until all are durable."""
    until, sent, delays = time.monotonic() + seconds, dict[int, float](), []
    while time.monotonic() < until or sent:
        now = time.monotonic()
        waiting = {frame.first for frame in list(device.outbox)}
        delays += [now - sent.pop(first) for first in [*sent] if first not in waiting]
        if now < until and now - max(sent.values(), default=0.0) >= EVERY:
            first = 20 * next(numbers)
            sent[first] = now
            device.send([SymbolFrame(1, first - 1, first, bytes(20))])
        time.sleep(0.002)
    return delays


def _flood(port: int, stored: Sequence[SymbolFrame], rate: float, ended: threading.Event) -> None:
    """Publish them again and again, by plain packets of MQTT 3.1.1."""
    if not rate:
        return
    topic = topic_of("symbols", "home", "watch", "hr")
    packets = [publish(Publication(topic, frame.encode(), retain=False), 4) for frame in stored]
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(connect("flood", "flood", "", 0))
        begun, sent = time.monotonic(), 0
        while not ended.is_set():
            some = 10 if rate < float("inf") else len(packets)
            link.sendall(b"".join(packets[(sent + place) % len(packets)] for place in range(some)))
            sent += some
            time.sleep(max(0.0, begun + sent / rate - time.monotonic()))


if __name__ == "__main__":
    main()
