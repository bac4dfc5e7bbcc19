"""Cost of what a gateway keeps of versions of policies: a start with 300 devices, and frames with gaps between them.

Usage: python benchmarks/start.py [--json] [--devices N]     (make bench installs a broker)

Half of the devices promise against `informed`, half against `universal`. Their stores hold one version of each policy
without a gap, or two versions with 100 gaps, of which 40 follow the change. A start is a gateway's process: from its
beginning until the broker has the description of every stream, which each start computes anew. Frames are taken by a
recorder alone, each device in turn, in batches of 30.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from figures import command_line, show
from gateways import run_gateway
from processes import processor_seconds, started

from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.frames import SymbolFrame
from fugu.contract.policy import Policy
from fugu.mqtt import Broker, Link
from fugu_cli.demo.processes import start_broker

sys.path.insert(0, str(Path(__file__).parents[1]))  # before packages that install a `tests` of their own

from gateway.store.journal import ReceivedFrame
from tests.support.scenes import BINARY, OTHER, Scene, frames, policy, write_policies

CLASSES = BinaryChains(q=(0.01, 0.2), r=(0.01, 0.3)), BoundedChains(states=2, odds_ratio=900.0)
GAPS, AFTER, FRAME, BATCH = 100, 40, 20, 30
PATIENCE = 300.0


def main() -> int:
    """Measure and print, or be the gateway of a measurement."""
    parser = command_line(__doc__)
    parser.add_argument("--devices", type=int, default=300)
    parser.add_argument("--gateway", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    if options.gateway is not None:
        return run_gateway(Broker(port=options.port), options.gateway, "home")
    figures: dict[str, object] = {"devices": options.devices}
    for what, gaps in (("one version", 0), (f"two versions, {GAPS} gaps", GAPS)):
        with tempfile.TemporaryDirectory() as name:
            figures |= {f"{what}: {figure}": round(value, 2) for figure, value in _measure(Path(name), options, gaps)}
    show(figures, as_json=options.json)
    return 0


def _measure(folder: Path, options: argparse.Namespace, gaps: int) -> Iterable[tuple[str, float]]:
    devices = [f"watch-{number:03}" for number in range(options.devices)]
    fleet = tuple(
        policy for number, device in enumerate(devices) for policy in _policies(device, number, changed=gaps > 0)
    )
    write_policies(folder / "policies", fleet)
    scene = Scene(folder / "s.sqlite", 8, fleet)
    versions = [1] * (gaps - AFTER) + [2] * AFTER if gaps else [1]
    new_frames = frames([FRAME] * (gaps or GAPS), gaps=[7] if gaps else [], versions=versions)
    yield "a frame, ms of a processor", _take(scene, devices, new_frames) / (len(devices) * len(new_frames)) * 1e3
    scene.store.close()
    with start_broker("mosquitto", folder) as (port, _):
        clock, processor = _start(folder, port, len(devices))
        yield "start, s", clock
        yield "start, s of a processor", processor


def _policies(device: str, number: int, *, changed: bool) -> list[Policy]:
    tables = (BINARY, OTHER) if changed else (OTHER,)
    return [
        policy(version, device=device, table=table, chains=CLASSES[number % 2])
        for version, table in enumerate(tables, 1)
    ]


def _take(scene: Scene, devices: list[str], symbol_frames: list[SymbolFrame]) -> float:
    began = time.process_time()
    every = [ReceivedFrame(device, "hr", frame) for frame in symbol_frames for device in devices]
    for first in range(0, len(every), BATCH):
        scene.receive(every[first : first + BATCH])
    return time.process_time() - began


def _start(folder: Path, port: int, devices: int) -> tuple[float, float]:
    """Seconds, and those of a processor, until the broker has all descriptions."""
    done = threading.Event()
    heard: set[str] = set()

    def message(topic: str, _payload: bytes, _retained: bool) -> None:
        heard.add(topic)
        if len(heard) >= devices:
            done.set()

    began = time.monotonic()
    with started(__file__, "--gateway", folder, "--port", port) as gateway:
        link = Link(
            Broker(port=port), client_id="start", subscriptions=("fugu/2/home/description/+/+",), on_message=message
        )
        link.start()
        try:
            assert done.wait(PATIENCE), f"{len(heard)} of {devices} descriptions"
            return time.monotonic() - began, processor_seconds(gateway.pid)
        finally:
            link.stop()


if __name__ == "__main__":
    sys.exit(main())
