"""How long a frame takes to become an estimate: Mosquitto, gateway and TLS, with and without TCP_NODELAY.

Also how much processor time a gateway takes from its start until a first frame is durable, and until its estimate is
out. It is measured without stored kernels, as on a new machine, and with them. Times of the clock would be those of a
busy machine.

Usage: python benchmarks/latency.py [--json]      (make bench installs a broker)
"""

from __future__ import annotations

import argparse
import logging
import os
import pwd
import queue
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from figures import command_line, show
from gateways import FLEET, STREAM, binary_policy, run_gateway, write_policies
from processes import processor_seconds, started

from fugu.contract.frames import SymbolFrame
from fugu.contract.reports import decode_estimate
from fugu.contract.topics import topic_of
from fugu.mqtt import Broker, Link
from fugu_cli.demo.processes import start_broker
from gateway.deployment.certificates import Authority

FRAMES, ROUNDS = 150, 3
TICKS = 10
NAMES = FLEET, "watch", STREAM


def main() -> int:
    """Measure and print, or be the gateway of a measurement."""
    parser = command_line(__doc__)
    parser.add_argument("--gateway", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--wait", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.gateway is not None:
        logging.basicConfig(level=logging.INFO if "NUMBA_CACHE_DIR" in os.environ else logging.ERROR)
        with _small_packets(wait=options.wait):
            return run_gateway(_broker(options.gateway, options.port), options.gateway)
    show(measured() | first_frames(), as_json=options.json)
    return 0


def measured() -> dict[str, float]:
    """Medians of all frames of interleaved rounds, in milliseconds."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(ROUNDS):
        for wait in times:
            with tempfile.TemporaryDirectory() as name:
                times[wait] += _round(Path(name), _exchange, wait=wait)
    without, with_it = (statistics.median(times[wait]) * 1e3 for wait in (True, False))
    return {
        "frame to estimate, without TCP_NODELAY: ms (median)": round(without, 2),
        "frame to estimate, with TCP_NODELAY: ms (median)": round(with_it, 2),
        "ratio": round(without / with_it, 1),
    }


def first_frames() -> dict[str, float]:
    """Seconds of the gateway's processor time from its start to what a first frame brings about."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as kernels, patch.dict(os.environ, NUMBA_CACHE_DIR=kernels):
        for name in ("without stored kernels", "with stored kernels"):
            with tempfile.TemporaryDirectory() as folder:
                (seconds,) = _round(Path(folder), _first_frame, wait=False)
            figures |= {f"{name}, start to {event}: s of a processor": round(seconds[event], 1) for event in seconds}
    return figures


def _round(folder: Path, exchange: Callable[[Broker, int], list[Any]], *, wait: bool) -> list[Any]:
    epoch_us = time.time_ns() // 1000 - 2 * FRAMES * TICKS * 1_000_000
    write_policies(folder, [binary_policy(NAMES[1], TICKS, epoch_us)])
    authority = Authority.create(NAMES[0], datetime.now(UTC), 2)
    issued = authority.issue_server(["127.0.0.1"], datetime.now(UTC), 1)
    files = {"ca.pem": authority.pem().certificate, "broker.pem": issued.certificate, "broker.key": issued.key}
    for file, content in files.items():
        (folder / file).write_bytes(content)
    tls = f"cafile {folder}/ca.pem\ncertfile {folder}/broker.pem\nkeyfile {folder}/broker.key\n"
    tls += f"user {pwd.getpwuid(os.geteuid()).pw_name}\n"  # who may read these files
    with (
        start_broker("mosquitto", folder, tls) as (port, _),
        started(__file__, "--gateway", folder, "--port", port, *(["--wait"] if wait else [])) as gateway,
        _small_packets(wait=wait),
    ):
        return exchange(_broker(folder, port), gateway.pid)


def _exchange(broker: Broker, _gateway: int) -> list[float]:
    """Publish frame by frame, each when the estimate of the one before is there; seconds from one to the other."""
    answers: queue.Queue[int] = queue.Queue()
    link = Link(
        broker,
        client_id="device",
        subscriptions=(topic_of("estimate", *NAMES),),
        on_message=lambda _topic, payload, _retained: answers.put(decode_estimate(payload).tick),
    )
    link.start()
    times = []
    try:
        for number in range(FRAMES):
            first = number * TICKS
            frame = SymbolFrame(1, first - 1, first, bytes(TICKS)).encode()
            start = time.perf_counter()
            while link.publish(topic_of("symbols", *NAMES), frame) is None or not _answered(answers, first, number):
                link.maintain()
                time.sleep(0.05)
            times.append(time.perf_counter() - start)
    finally:
        link.stop()
    return times[10:]


def _first_frame(broker: Broker, gateway: int) -> list[dict[str, float]]:
    """Publish a frame until it is durable and estimated, and the gateway has nothing to do: its processor time then."""
    seconds_of: dict[str, float] = {}
    topics = {topic_of("committed", *NAMES[:2]): "a durable frame", topic_of("estimate", *NAMES): "an estimate"}

    def heard(topic: str, _payload: bytes, _retained: bool) -> None:
        seconds_of.setdefault(topics[topic], processor_seconds(gateway))

    link = Link(broker, client_id="device", subscriptions=tuple(topics), on_message=heard)
    link.start()
    try:
        frame = SymbolFrame(1, -1, 0, bytes(TICKS)).encode()
        while len(seconds_of) < len(topics):
            link.maintain()
            link.publish(topic_of("symbols", *NAMES), frame)
            time.sleep(0.1)
    finally:
        link.stop()
    before = 0.0
    while (now := processor_seconds(gateway)) - before > 0.2:
        before = now
        time.sleep(5.0)
    return [{**seconds_of, "all kernels ready": now}]


def _answered(answers: queue.Queue[int], first: int, number: int) -> bool:
    """True once the estimate of a frame has come; the first has to wait for the gateway, and is sent until it has."""
    try:
        while answers.get(timeout=60.0 if number else 0.5) < first:
            pass
    except queue.Empty:
        if number:
            raise SystemExit("no estimate came") from None
        return False
    return True


def _broker(folder: Path, port: int) -> Broker:
    return Broker(port=port, ca_file=str(folder / "ca.pem"), max_backoff=1)


def _small_packets(*, wait: bool) -> AbstractContextManager[object]:
    """Leave connections as the operating system opens them: a small packet waits for the answer to the one before."""
    if not wait:
        return nullcontext()
    opened = vars(Link)["_socket_opened"]

    def undone(link: Link, client: object, data: object, connection: socket.socket) -> None:
        opened(link, client, data, connection)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)

    return patch.object(Link, "_socket_opened", undone)


if __name__ == "__main__":
    sys.exit(main())
