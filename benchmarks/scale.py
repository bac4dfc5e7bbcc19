"""Cost of taking and storing frames without a broker, and of a million devices, shard by shard.

Usage: python benchmarks/scale.py [--json] [--devices N] [--shards N]      (default: 10^6 devices in 8 shards)

Bytes in memory become rows on the disk, on one thread, by the gateway's own code. That is parsing, all checks, order,
coverage, what is known of each stream, the journal (written through to the disk at every round) and sealing. In the
same run: the contract's decoder for one frame after the other, which checks nothing else and stores nothing.
"""

from __future__ import annotations

import gc
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
from figures import command_line, show
from gateways import FLEET, STREAM, binary_policy

from fugu.contract.frames import SymbolFrame
from fugu.contract.topics import topic_of
from gateway.estimates.catalogue import Catalogue
from gateway.estimates.symbols import warm
from gateway.loop.inbox import Ingest
from gateway.loop.recorder import Recorder
from gateway.parts import Message
from gateway.store.shards import owner
from gateway.store.store import Store

BATCH = 2_000
HISTORY = 1_500_000
LATE = 0.01
FEW = 8_000
FAR_US = 10**17


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__)
    parser.add_argument("--devices", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=8)
    options = parser.parse_args()
    warm()
    figures: dict[str, object] = {}
    for ticks in (100, 10):
        alone = decoded(ticks)
        frames = taken(100, ticks, 300_000)
        figures[f"{ticks} ticks a frame: frames/s"] = round(frames.per_second)
        figures[f"{ticks} ticks a frame: us of processor time"] = round(frames.processor, 2)
        figures[f"{ticks} ticks a frame: ratio to the contract's decoder alone"] = round(frames.processor / alone, 2)
    late = taken(100, 100, 100_000, late=LATE)
    figures["100 ticks, 1 % of the frames late: frames/s"] = round(late.per_second)
    few, many = taken(100, 100, 300_000), taken(10_000, 100, 600_000)
    figures["10,000 streams over 100: ratio of processor time a frame"] = round(many.processor / few.processor, 2)
    old = taken(100, 100, 300_000, history=HISTORY)
    figures["after 1.5 million frames: frames/s"] = round(old.per_second)
    figures["after 1.5 million frames: ratio to none"] = round(old.per_second / few.per_second, 2)
    figures["bytes a binary symbol, sealed, of the whole file"] = round(old.stored, 3)
    figures["opening that store, ms"] = round(old.opened * 1e3, 1)
    figures |= million(options.devices, options.shards)
    show(figures, as_json=options.json)


class Cost(NamedTuple):
    """Of taking frames.

    Attributes:
        per_second: frames.
        processor: microseconds of processor time a frame.
        stored: bytes of the sealed store a symbol.
        opened: seconds to open the store again, ready for frames.
    """

    per_second: float
    processor: float
    stored: float
    opened: float


def decoded(ticks: int) -> float:
    """Microseconds of the contract's decoder a frame."""
    payloads = [message.payload for message in rounds(["d"], ticks, 0, 20_000)]
    seconds = []
    for _ in range(3):
        began = time.process_time()
        for payload in payloads:
            SymbolFrame.decode(payload)
        seconds.append(time.process_time() - began)
    return min(seconds) / len(payloads) * 1e6


def taken(streams: int, ticks: int, frames: int, *, late: float = 0.0, history: int = 0) -> Cost:
    """Take frames of some streams, after two of each that have made them known."""
    devices = [f"d{number}" for number in range(streams)]
    each = frames // streams
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        store, catalogue = Store(path), catalogue_of(devices)
        ingest, recorder = worker_of(store, catalogue)
        before = 2 + history // streams
        for number in range(0, before, 200):
            take(ingest, recorder, [*rounds(devices, ticks, number, min(200, before - number))])
        messages = [*rounds(devices, ticks, before, each)]
        if late:
            messages = mixed(messages, streams, late)
        gc.collect()
        began, worked = time.perf_counter(), time.process_time()
        take(ingest, recorder, messages)
        seconds, worked = time.perf_counter() - began, time.process_time() - worked
        recorder.seal(now=True)
        store.close()
        began = time.perf_counter()
        with closing(Store(path)) as again:
            Recorder(again, catalogue, 8, Counter())
        opened = time.perf_counter() - began
        symbols = (before + each) * streams * ticks
        return Cost(len(messages) / seconds, worked / len(messages) * 1e6, path.stat().st_size / symbols, opened)


def worker_of(store: Store, catalogue: Catalogue) -> tuple[Ingest, Recorder]:
    """The checks and the recorder of a gateway on a store."""
    recorder = Recorder(store, catalogue, 8, Counter())
    return Ingest(catalogue, Counter(), now_us=lambda: FAR_US, streams=recorder.streams), recorder


def take(ingest: Ingest, recorder: Recorder, messages: Sequence[Message]) -> None:
    """As the gateway's worker does it."""
    for at in range(0, len(messages), BATCH):
        arrivals, _ = ingest.take(messages[at : at + BATCH])
        recorder.record(arrivals)
        recorder.seal()


def rounds(devices: Sequence[str], ticks: int, first: int, each: int) -> Iterator[Message]:
    """So many frames of each device in turn, from a number on."""
    topics = [topic_of("symbols", FLEET, device, STREAM) for device in devices]
    generator = np.random.default_rng(first)
    for number in range(first, first + each):
        start = number * ticks
        payload = SymbolFrame(1, start - 1, start, generator.integers(0, 2, ticks, np.uint8).tobytes()).encode()
        for topic in topics:
            yield Message(topic, payload)


def mixed(messages: list[Message], streams: int, late: float) -> list[Message]:
    """Some frames change places with one of the next three of their device."""
    generator = random.Random(1)
    for at in range(len(messages) - 3 * streams):
        if generator.random() < late:
            other = at + generator.randint(1, 3) * streams
            messages[at], messages[other] = messages[other], messages[at]
    return messages


def catalogue_of(devices: Sequence[str]) -> Catalogue:
    """Each device has a policy, of one kind."""
    catalogue = Catalogue(FLEET)
    policy = binary_policy("d", 100, 0)
    for device in devices:
        catalogue.add(policy.model_copy(update={"device": device}))
    return catalogue


class Fleet(NamedTuple):
    """Cost of a fleet.

    Attributes:
        known: seconds of processor time to make its devices known.
        processor, seconds: for so many `frames` then.
        memory: kB a device that the process has grown by, at most, over the shards.
    """

    known: float
    processor: float
    seconds: float
    frames: int
    memory: float

    @property
    def each(self) -> float:
        """Microseconds of processor time a frame."""
        return self.processor / self.frames * 1e6


def fleet(devices: int, shards: int, each: int) -> Fleet:
    """Two frames of each device to make it known, then some more, in the shard that owns it; one shard at a time."""
    owned: list[list[str]] = [[] for _ in range(shards)]
    for number in range(devices):
        owned[owner(f"d{number}", shards)].append(f"d{number}")
    known_seconds = worked = seconds = memory = 0.0
    frames = 0
    for mine in owned:
        with tempfile.TemporaryDirectory() as folder, closing(Store(Path(folder) / "store.sqlite")) as store:
            before = resident()
            ingest, recorder = worker_of(store, catalogue_of(mine))
            began = time.process_time()
            take(ingest, recorder, [*rounds(mine, 100, 0, 2)])
            known_seconds += time.process_time() - began
            memory = max(memory, (resident() - before) / len(mine))
            messages = [*rounds(mine, 100, 2, each)]
            gc.collect()
            began, wall = time.process_time(), time.perf_counter()
            take(ingest, recorder, messages)
            worked, seconds = worked + time.process_time() - began, seconds + time.perf_counter() - wall
            frames += len(messages)
    return Fleet(known_seconds, worked, seconds, frames, memory)


def resident() -> float:
    """kB of memory that this process has."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024


def million(devices: int, shards: int) -> dict[str, object]:
    """Many devices, shard by shard; and whether shards do anything twice."""
    few = [min(fleet(FEW, many, 40).each for _ in range(3)) for many in (1, 8)]
    all_of_them = fleet(devices, shards, 4)
    name = f"{devices:,} devices in {shards} shards"
    return {
        f"{FEW:,} devices: ratio of processor time a frame, 8 shards to 1": round(few[1] / few[0], 2),
        f"{name}: us of processor time a frame": round(all_of_them.each, 2),
        f"{name}: frames/s of one core": round(all_of_them.frames / all_of_them.seconds),
        f"{name}: ms of processor time to know a device": round(all_of_them.known / devices * 1e3, 3),
        f"{name}: kB of memory a device, policies that share their parts": round(all_of_them.memory, 1),
    }


if __name__ == "__main__":
    main()
