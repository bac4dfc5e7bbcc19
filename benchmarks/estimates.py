"""Delay of estimates under load: frames come faster than the gateway can take them: Mosquitto, 500 streams.

Usage: python benchmarks/estimates.py [--json]      (make bench installs a broker)
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import tempfile
import time
from contextlib import closing
from itertools import count
from pathlib import Path

from figures import command_line, show
from gateways import FLEET, STREAM, binary_policy, run_gateway, write_policies
from processes import started

from fugu.contract.frames import SymbolFrame
from fugu.contract.reports import decode_estimate
from fugu.contract.topics import parse_topic, topic_of
from fugu.mqtt import Broker, Link
from fugu_cli.demo.processes import start_broker
from gateway.store.store import Store

DEVICES, SECONDS, TICKS = 500, 30.0, 10
START_SECONDS = 10.0
MOST_UNDER_WAY = 2_000


def main() -> int:
    """Measure and print, or be the gateway of a measurement."""
    parser = command_line(__doc__)
    parser.add_argument("--gateway", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--writer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.writer:
        return _flood(Broker(port=options.port))
    if options.gateway is not None:
        logging.basicConfig(level=logging.ERROR)
        return run_gateway(Broker(port=options.port), options.gateway)
    show(measured(), as_json=options.json)
    return 0


def measured() -> dict[str, float]:
    """Counts of stored, waiting and published frames after half a minute of a flood."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        epoch = time.time_ns() // 1000 - 10**7 * 1_000_000
        write_policies(folder, (binary_policy(f"d{number}", TICKS, epoch) for number in range(DEVICES)))
        with start_broker("mosquitto", folder) as (port, _), started(__file__, "--port", port, "--gateway", folder):
            return _heard(Broker(port=port), folder)


def _heard(broker: Broker, folder: Path) -> dict[str, float]:
    ticks: dict[str, int] = {}
    heard = 0

    def received(topic: str, payload: bytes, _retained: bool) -> None:
        nonlocal heard
        heard += 1
        ticks[parse_topic(topic).device] = decode_estimate(payload).tick

    reader = Link(
        broker, client_id="reader", subscriptions=(topic_of("estimate", FLEET, "+", "+"),), on_message=received
    )
    reader.start()
    with started(__file__, "--port", broker.port, "--writer"):
        while not ticks:
            time.sleep(0.1)
        time.sleep(SECONDS)
        with closing(Store(folder / "s.sqlite", create=False)) as store, store.snapshot():
            newest = {sequence.device: _newest(store, sequence.number) for sequence in store.aged.sequences(0, DEVICES)}
        stored = sum(last + 1 for last in newest.values()) // TICKS
        behind = [(last - ticks.get(device, -1)) // TICKS for device, last in newest.items()]
    reader.stop()
    return {
        "streams": DEVICES,
        "frames stored a second": round(stored / SECONDS),
        "messages of estimates heard a second": round(heard / SECONDS),
        "streams of which no estimate was heard": DEVICES - len(ticks),
        "frames that estimates are behind the store (median of streams)": statistics.median(behind),
        "frames that estimates are behind the store (most)": max(behind),
    }


def _newest(store: Store, number: int) -> int:
    """The last tick that is stored of a stream."""
    tail = store.symbols.tail.of(number)
    return int(tail.last[-1]) if tail.row_count else store.symbols.last(number)


def _flood(broker: Broker) -> int:
    """Send frames of all devices, as fast as the broker takes them, until ended."""
    under_way = 0

    def published(_message_id: int, _accepted: bool) -> None:
        nonlocal under_way
        under_way -= 1

    writer = Link(broker, client_id="writer", on_published=published)
    writer.start()
    time.sleep(START_SECONDS)
    for number in count():
        first = number * TICKS
        payload = SymbolFrame(1, first - 1, first, bytes([number % 2] * TICKS)).encode()
        for device in range(DEVICES):
            while under_way > MOST_UNDER_WAY:
                time.sleep(0.001)
            under_way += writer.publish(topic_of("symbols", FLEET, f"d{device}", STREAM), payload) is not None
    return 0


if __name__ == "__main__":
    sys.exit(main())
