"""Policies, frames and runs of the recorder that the gateway's tests share."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass
from fugu.contract.discretisers import Thresholds
from fugu.contract.frames import Committed, SymbolFrame
from fugu.contract.guarantee import Guarantee
from fugu.contract.measure_frames import AnyFrame
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.contract.windows import Window
from gateway.estimates.beliefs import model_of
from gateway.estimates.catalogue import Catalogue
from gateway.loop.inbox import Usage
from gateway.loop.recorder import Recorder
from gateway.parts import Loop, Registered
from gateway.store.coverage import Place
from gateway.store.journal import Arrivals, ReceivedFrame
from gateway.store.location import Location
from gateway.store.shards import Shard
from gateway.store.store import Store

BINARY = NoiseTable.binary(1_200_000_000, 900_000_000)
OTHER = NoiseTable.binary(1_500_000_000, 1_400_000_000)
TERNARY = NoiseTable.randomised_response(3, 900_000_000)
STICKY = BinaryChains(q=(0.1, 0.2), r=(0.2, 0.3))
BOUNDED = BoundedChains(states=3, odds_ratio=9.0)


def loop_of(**objects: Any) -> Loop:
    """A gateway's loop with these objects, and others that do nothing."""
    idle: dict[str, Any] = {name: Mock() for name in ("store", "link", "monitor")}
    idle |= {"catalogue": Catalogue("home"), "counters": Counter(), "registered": Registered()}
    return Loop(**idle | objects)


def policy(
    version: int = 1,
    *,
    device: str = "watch",
    stream: str = "hr",
    fleet: str = "home",
    table: NoiseTable = BINARY,
    chains: ChainClass = STICKY,
    windows: tuple[Window, ...] = (),
    period_us: int = 1_000_000,
) -> Policy:
    """A policy with a guarantee that is true because it promises next to nothing."""
    states = table.states
    promise = Guarantee(epsilon=50.0, adversary="universal" if isinstance(chains, BoundedChains) else "informed")
    return Policy(
        fleet=fleet,
        device=device,
        stream=stream,
        version=version,
        clock=Clock(epoch_us=0, period_us=period_us),
        frame_ticks=10,
        discretiser=Thresholds(
            edges=tuple(float(edge) for edge in range(1, states)),
            states=tuple(f"level {state}" for state in range(states)),
        ),
        table=table,
        chains=chains,
        guarantee=promise,
        windows=windows,
        windows_guarantee=promise if windows else None,
    )


POLICIES = (
    policy(1),
    policy(2, table=OTHER),
    policy(3, table=TERNARY, chains=BOUNDED),
    policy(1, stream="steps"),
    policy(1, device="ring"),
)
MODELS = {
    1: model_of(policy(1)),
    2: model_of(policy(2, table=OTHER)),
    3: model_of(policy(3, table=TERNARY, chains=BOUNDED)),
}


def catalogue(policies: Iterable[Policy] = POLICIES) -> Catalogue:
    catalogue = Catalogue("home")
    for policy in policies:
        catalogue.add(policy)
    return catalogue


def write_policies(folder: Path, policies: Iterable[Policy] = POLICIES) -> Path:
    """A directory of policy files."""
    folder.mkdir(exist_ok=True)
    for policy in policies:
        (folder / f"{policy.device}-{policy.stream}-{policy.version}.json").write_text(policy.to_json())
    return folder


def frames(
    sizes: Sequence[int], *, gaps: Sequence[int] = (), versions: Sequence[int] = (), seed: int = 1
) -> list[SymbolFrame]:
    """A device's frames: so many ticks each, so many ticks without a frame before each."""
    generator = random.Random(seed)
    frames, previous = [], -1
    for i, size in enumerate(sizes):
        first = previous + 1 + (gaps[i % len(gaps)] if gaps else 0)
        version = versions[i % len(versions)] if versions else 1
        symbols = generator.choices([0, 1, 2] if version == 3 else [0, 1, 1], k=size)
        frames.append(SymbolFrame(version, previous, first, bytes(symbols), bits=2 if version == 3 else 1))
        previous = frames[-1].last
    return frames


def packed(symbols: bytes) -> bytes:
    """Symbols of one bit as they are stored and sent."""
    return np.packbits(np.frombuffer(symbols, dtype=np.uint8)).tobytes()


@dataclass
class Scene:
    """A recorder on a store file, which can be opened anew as after a crash."""

    path: Location
    lag: int = 8
    policies: tuple[Policy, ...] = POLICIES
    counters: Counter[str] = field(default_factory=Counter)
    shard: Shard | None = None

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        self.store = Store(self.path, shard=self.shard)
        self.catalogue = models = catalogue(self.policies)
        models.retire(self.store.policy_documents())
        self.usage = Usage()
        self.recorder = Recorder(self.store, models, self.lag, self.counters, self.usage)

    def reopen(self) -> None:
        self.store.close()
        self.open()

    def record(self, *some: AnyFrame, device: str = "watch", stream: str = "hr") -> None:
        self.receive([ReceivedFrame(device, stream, frame) for frame in some])

    def receive(self, some: Sequence[ReceivedFrame]) -> None:
        self.recorder.record(Arrivals.of(self.recorder.streams, some))

    def stored(self, device: str = "watch", stream: str = "hr") -> list[SymbolFrame]:
        """The frames of a stream, as they are stored."""
        number = self.store.stream_id(device, stream)
        return [] if number is None else list(self.store.symbols.following(number, 0))

    def committed(self, device: str = "watch") -> Committed:
        (message,) = self.recorder.watermarks(device)
        return message


def asked(location: Location, query: str) -> list[Any]:
    with closing(Store(location)) as store:
        return store._db.execute(query).fetchall()


@dataclass(frozen=True, eq=False)
class Final:
    """Everything whose final value must not depend on the order of arrival, to the bit; estimates to 12 digits."""

    symbols: list[tuple[int, int, int, int]]
    estimates: list[tuple[int, tuple[float, ...]]]
    intervals: list[tuple[int, int]]
    committed: Committed
    belief: bytes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Final):
            return NotImplemented
        exact = [(scene.symbols, scene.intervals, scene.committed, scene.belief) for scene in (self, other)]
        if exact[0] != exact[1] or len(self.estimates) != len(other.estimates):
            return False
        shapes, numbers = [], []
        for scene in (self, other):
            shapes.append([(tick, len(row)) for tick, row in scene.estimates])
            numbers.append(np.array([*chain.from_iterable(row for _, row in scene.estimates)]))
        return shapes[0] == shapes[1] and bool((np.abs(np.subtract(*numbers)) < 1e-12).all())


class Tracked(NamedTuple):
    """The newest frame of a stream, and the belief (k,) at its last tick."""

    frame: SymbolFrame
    belief: Floats


def newest(scene: Scene, device: str = "watch", stream: str = "hr") -> Tracked | None:
    """The newest frame of a stream of symbols, and the belief at its end, computed from the store."""
    number, past = scene.store.stream_id(device, stream), scene.recorder.symbols.past
    if number is None or (frame := past.newest_frame(Place(number, device, stream))) is None:
        return None
    place = Place(number, device, stream)
    beliefs, _ = past.follow(place, *past.beliefs_before(place, frame.first))
    states = len(past.bank.models[int(beliefs.heads[0, 0])].initial)
    return Tracked(frame, beliefs.distribution[0, :states].copy())


def symbols_of(some: Iterable[SymbolFrame]) -> list[tuple[int, int, int, int]]:
    """Each tick with its policy version, shift and symbol."""
    ticks = (zip(count(f.first), repeat(f.policy_version), repeat(f.shift), f.symbols) for f in some)
    return [*chain.from_iterable(ticks)]


def final_state(scene: Scene, device: str = "watch", stream: str = "hr") -> Final:
    """Final state of a scene, whether or not it is sealed."""
    last = newest(scene, device, stream)
    runs = scene.recorder.symbols.past.estimates(Place(scene.store.number_of(device, stream), device, stream))
    return Final(
        symbols_of(scene.stored(device, stream)),
        [(tick, tuple(row.tolist())) for run in runs for tick, row in enumerate(run.probabilities, run.first)],
        scene.recorder._load(device, stream).coverage.intervals,
        scene.committed(device),
        b"" if last is None else last.belief.tobytes(),
    )


def laid_out(some: Sequence[SymbolFrame]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The symbols of all ticks, -1 where there is none."""
    symbols = np.full(some[-1].last + 1, -1, dtype=np.int64)
    for frame in some:
        for i, symbol in enumerate(frame.symbols):
            symbols[frame.first + i] = symbol
    return symbols
