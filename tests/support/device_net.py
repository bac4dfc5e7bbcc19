"""States and frames of devices, and their verdicts on documents, as digests in tests/golden/device_digests.json.

Whoever computes them anew draws the same. Readings, gaps, restarts and random words come from SHA-256 of a case's name,
so that they are the same everywhere. A digest changes when what a device does changes: then
`python -m tests.support.device_net` writes all of them anew, and the change says why.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from edge_agent.outbox import Outbox
from edge_agent.plan import StreamPlan
from edge_agent.sensors.sharing import SharedSensor
from edge_agent.sensors.source import Reading, Sensor, SensorUpdate
from edge_agent.stored_frames import Keeping
from edge_agent.ticker import Stream
from edge_agent.window_file import RecordedCounter
from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.discretisers import Baseline, Categories, Cells, Thresholds
from fugu.contract.guarantee import Guarantee
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.contract.windows import Window
from fugu.core.clocks import TickClock
from fugu.core.noise import uniform_below
from tests.support.agents import plan_of
from tests.support.device_claims import CLAIMS, FEW_OF, claims_digest, lowest_rungs
from tests.support.device_documents import DOCUMENTS, FEW_DOCUMENTS, MANY_DOCUMENTS, verdicts, verdicts_digest
from tests.support.device_histories import HISTORIES, LONG, SHORT, history_digests
from tests.support.device_source import Source

__all__ = ["CASES", "FEW", "GOLDEN", "MANY", "Case", "agent_digest", "board_lines"]

GOLDEN = Path(__file__).parents[1] / "golden" / "device_digests.json"
FEW, MANY = 400, 44_000
"""Ticks of a case in `make test`, and in the soak."""
_NONE = 255
_ROOM = Keeping(max_bytes=1 << 30)


@dataclass(frozen=True)
class Case:
    """A policy, what a reading of 1 stands for, and readings; a board does not do all of them."""

    policy: Policy
    readings: Callable[[Source], Iterator[Any]]
    unit: Fraction = Fraction(1)
    board: bool = True

    def value(self, reading: Any) -> Any:
        """The reading as an agent's sensor has it."""
        return float(reading * self.unit) if self.board and isinstance(reading, int) else reading


@dataclass(frozen=True)
class Restart:
    """An orderly stop and a start; numbers of ticks are ahead by `shift` from the tick `since` on."""

    shift: int
    since: int


def _walk(source: Source) -> Iterator[int | None]:
    """Readings that wander, jump, and are missing in stretches."""
    value, silent = 70, 0
    while True:
        value = min(max(value + source.below(7) - 3, 30), 200)
        silent = silent - 1 if silent else source.among([0] * 50 + [1, 4, 40])
        yield None if silent else source.among([value] * 20 + [-5, 10**12, 2**60])


def _names(source: Source) -> Iterator[str | None]:
    while True:
        yield source.among(["off", "on", "on", "ON", "sitting", None])


def _anything(source: Source) -> Iterator[Any]:
    """Doubles next to edges and far away, and what is no number."""
    odd = [
        *(float("nan"), float("inf"), -float("inf"), 1e308, 5e-324, 0.1 + 0.2, 0.3, 0.29999999999999993, 0.1),
        *(10**400, -(10**400), True, "on", " off ", "unavailable", "0.3", "1e400", "-inf", "", b"1", [], {}, 0.5, 1),
    ]
    while True:
        near = source.below(1 << 20) / (1 << 20)
        yield source.among([None, near, near, near * 100 - 50, near, source.among(odd)])


def _places(source: Source) -> Iterator[Any]:
    while True:
        place = 48.0 + source.below(10**6) / 10**7, 11.0 + source.below(10**6) / 10**7
        text = "{},{}".format(*place)
        yield source.among([place, list(place), text, None, (91.0, 11.0), "nowhere", (float("nan"), 11.0)])


def _policy(
    discretiser: Any, table: NoiseTable | None, *windows: Window, frame_ticks: int = 128, seconds: int = 1
) -> Policy:
    states = len(discretiser.states)
    promise = Guarantee(epsilon=60.0, adversary="universal")
    chains = BinaryChains(q=(0.2, 0.3), r=(0.35, 0.4)) if states == 2 else BoundedChains(states=states, odds_ratio=9.0)
    return Policy(
        *(), fleet="home", device="watch", stream="hr", version=3,
        clock=Clock(epoch_us=0, period_us=seconds * 1_000_000),
        frame_ticks=1 if table is None else frame_ticks,
        discretiser=discretiser, table=table, chains=chains, guarantee=promise, windows=windows,
        windows_guarantee=promise if windows and table is not None else None,
    )  # fmt: skip


def _table(states: int, symbols: int) -> NoiseTable:
    rows = []
    for state in range(states):
        source, row = Source(f"row {state}"), set[int]()
        while len(row) < symbols - 1:
            row.add(1 + source.below(2**32 - 1))
        rows.append(tuple(sorted(row)))
    return NoiseTable(tuple(rows))


BINARY = NoiseTable.binary(1_200_000_000, 900_000_000)
ON = Window(name="on", length=60, stride=60, states=(1,), scale="7/3")
SLIDING = Window(name="last", length=100, stride=30, start=7, states=(0,), scale="20")
SHARES = Window(name="shares", length=48, stride=50, states="histogram", scale="5")
QUIET = Window(name="quiet", length=30, stride=30, states=(0,), scale="1/3")
LOUD = Window(name="loud", length=20, stride=20, states=(1,), scale="9999999999/7")
EVERY = Window(name="every", length=64, stride=1, states=(1,), scale="300")
BERLIN = {"zone": "Europe/Berlin", "seconds": 3600, "offsets": ((0, 3600), (99_000, 7200), (9_000_000, 3600))}
DAY = Window(name="day", length=144, stride=144, states=(1,), scale="7", blocks=BERLIN)
NAMES = Categories(categories={"off": 0, "on": 1, "ON": 1}, states=("off", "on"))
LEVELS = ("low", "middle", "high")
GRID = Cells(
    *(), origin=(48.0, 11.0), step=(0.05, 0.05), cells=((0, 0), (1, 0), (1, 1)), states=("a", "b", "c", "none"),
    missing="none",
)  # fmt: skip
_MEAN = {"baseline_ticks": 100, "lowest": 30.0, "highest": 220.0}
_LEVEL = Thresholds(edges=(72.5,), states=("low", "high"))

CASES: dict[str, Case] = {
    "binary": Case(_policy(_LEVEL, BINARY), _walk),
    "frames of a tick": Case(_policy(_LEVEL, BINARY, ON, frame_ticks=1), _walk),
    "frames of 4096 ticks": Case(_policy(_LEVEL, BINARY, frame_ticks=4096), _walk),
    "hysteresis and windows": Case(
        _policy(
            Thresholds(edges=(6.55, 8.1), states=(*LEVELS, "none"), hysteresis=0.3, missing="none"),
            *(NoiseTable.randomised_response(4, 900_000_000), ON, SHARES),
        ),
        *(_walk, Fraction(1, 10)),
    ),
    "hysteresis that is forgotten": Case(
        _policy(
            Thresholds(edges=(60.0, 75.0), states=LEVELS, hysteresis=4.0, hysteresis_ticks=2, missing="low"),
            *(NoiseTable.randomised_response(3, 900_000_000),),
        ),
        _walk,
    ),
    "7 symbols of 3 states": Case(
        _policy(Thresholds(edges=(60.0, 80.0), states=LEVELS), _table(3, 7), SLIDING, frame_ticks=100), _walk
    ),
    "200 symbols of 2 states": Case(_policy(_LEVEL, _table(2, 200), frame_ticks=50), _walk),
    "running mean": Case(_policy(Baseline(**_MEAN), BINARY, ON), _walk),
    "differences from a mean": Case(
        _policy(
            Baseline(**_MEAN, edges=(-7.5, 12.0), states=(*LEVELS, "none"), missing="none"),
            *(NoiseTable.randomised_response(4, 800_000_000), SHARES),
        ),
        _walk,
    ),
    "multiples of a mean": Case(
        _policy(
            Baseline(**_MEAN | {"lowest": 3.1}, compare="multiple", edges=(0.9, 1.05), states=LEVELS),
            *(NoiseTable.randomised_response(3, 800_000_000),),
        ),
        *(_walk, Fraction(1, 4)),
    ),
    "multiples of a short mean": Case(
        _policy(
            Baseline(
                *(), baseline_ticks=50, lowest=3.1, highest=22.7, compare="multiple", edges=(0.9, 1.05),
                states=(*LEVELS, "none"), missing="none",
            ),
            NoiseTable.randomised_response(4, 800_000_000),
        ),
        *(_walk, Fraction(1, 8)),
    ),
    "names": Case(_policy(NAMES, BINARY, ON, SLIDING), _names),
    "names, one for missing": Case(
        _policy(NAMES.model_copy(update={"missing": "off"}), BINARY, SHARES, frame_ticks=33), _names
    ),
    "windows only": Case(_policy(NAMES, None, ON, SLIDING, SHARES), _names),
    "noise of all sizes": Case(_policy(NAMES, None, QUIET, LOUD), _names),
    "windows of every tick": Case(_policy(_LEVEL, None, EVERY), _walk),
    "doubles": Case(_policy(Thresholds(edges=(0.1, 0.3, 1e300), states=("a", "b", "c", "d")), _table(4, 4)), _anything,
                    board=False),
    "words for on and off": Case(_policy(Thresholds(edges=(0.5,), states=("off", "on")), BINARY, ON), _anything,
                                 board=False),
    "doubles and hysteresis": Case(
        _policy(Thresholds(edges=(0.3, 0.7), states=LEVELS, hysteresis=0.1), _table(3, 3)), _anything, board=False
    ),
    "mean of doubles": Case(
        _policy(Baseline(baseline_ticks=60, lowest=-20.0, highest=50.0, edges=(0.1,)), BINARY), _anything, board=False
    ),
    "places": Case(_policy(GRID, NoiseTable.randomised_response(4, 900_000_000)), _places, board=False),
    "profile of the day": Case(_policy(NAMES, None, DAY, seconds=600), _names, board=False),
}  # fmt: skip


def _run(name: str, count: int) -> Iterator[Restart | tuple[int, Any]]:
    """History of a stream: readings of ticks in order, some of which are left out, and restarts."""
    case, source = CASES[name], Source(name)
    tick, shift, readings = 0, 0, case.readings(Source(f"readings of {name}"))
    for _ in range(count):
        tick += source.among([1] * 300 + [2, 30])
        if not source.below(700):
            more = source.among([0, 0, 10, 600])
            tick += 5 + more
            shift += more
            yield Restart(shift, tick)
        yield tick, next(readings)


class _OneReading(Sensor):
    recorded = True
    reading: Any = None

    def poll(self, tick: int) -> SensorUpdate:
        return SensorUpdate(None if self.reading is None else Reading(self.reading), None)


class _Life:
    """An agent's stream and outbox between two restarts; its classifier, windows, and blocks of words are new."""

    def __init__(self, folder: Path, plan: StreamPlan, policy: Policy, name: str, since: Restart) -> None:
        self.plan, self.sensor = plan, _OneReading()
        self.outbox = Outbox(folder / "outbox.sqlite", policy.fleet, policy.device, _ROOM)
        self.outbox.register(plan)
        self.outbox.set_shift(plan, since.shift, since.since)
        released = [self.outbox.register_window(plan.stream, window) for window in plan.windows]
        noise = Source(f"noise of {name} from {since.since}").noise
        draw = uniform_below(noise)
        rows = zip(plan.windows, released, strict=True)
        self.counters = [RecordedCounter(window, draw, last, since.since) for window, last in rows]
        clock, words = TickClock(plan.epoch_us, plan.period_us), Source(f"words of {name} from {since.since}").words
        self.stream = Stream(plan, clock, SharedSensor(self.sensor), words, -1, self.counters)

    def tick(self, tick: int, reading: Any) -> int | None:
        """Do as `edge_agent.ticker` does; the state."""
        self.sensor.reading = reading
        state = self.stream.observe(tick)
        self.outbox.append(self.plan, tick, self.stream.mechanism.draw(tick, state, 0))
        for counter in () if self.stream.discretiser.beginning else self.counters:
            counter.observe(tick, state)
        if closed := [(counter.window, *window) for counter in self.counters for window in counter.close(tick)]:
            self.outbox.append_windows(self.plan, closed)
        return state

    def stop(self) -> None:
        self.outbox.finish()
        self.outbox.close()


def agent_digest(name: str, count: int, folder: Path) -> str:
    """The digest of the states and frames of so many ticks, by the agent's own stream and outbox."""
    case = CASES[name]
    plan = plan_of(case.policy)
    states, frames = hashlib.sha256(), hashlib.sha256()
    life = _Life(folder, plan, case.policy, name, Restart(0, 0))
    for step in _run(name, count):
        if isinstance(step, Restart):
            life.stop()
            life = _Life(folder, plan, case.policy, name, step)
        else:
            tick, reading = step
            state = life.tick(tick, case.value(reading))
            states.update(bytes([_NONE if state is None else state]))
    life.stop()
    outbox = Outbox(folder / "outbox.sqlite", case.policy.fleet, case.policy.device, _ROOM)
    after = 0
    while (frame := outbox.frames.next(after)) is not None:
        after = frame.id
        frames.update(struct.pack(">BH", len(frame.sequence), len(frame.payload)) + frame.sequence.encode())
        frames.update(frame.payload)
    outbox.close()
    assert after > count // 5000
    return hashlib.sha256(states.digest() + frames.digest()).hexdigest()[:32]


def board_lines(name: str, count: int, compiled: bytes) -> Iterator[str]:
    """The same case for tests/support/board_net.py."""
    yield f"case {compiled.hex()} {name}"
    for step in _run(name, count):
        if isinstance(step, Restart):
            yield f"restart {step.shift} {step.since}"
        else:
            tick, reading = step
            yield f"{tick} {'' if reading is None else reading}"
    yield "end"


def main() -> None:
    """Write the digests of the cases that are named, or of everything."""
    named = sys.argv[1:]
    digests: dict[str, dict[str, str]] = json.loads(GOLDEN.read_text()) if named else {}
    for name in named or CASES:
        digests[name] = {}
        for count in (FEW, MANY):
            with TemporaryDirectory() as folder:
                digests[name][str(count)] = agent_digest(name, count, Path(folder))
        print(name, file=sys.stderr)
    for name in () if named else HISTORIES:
        digests[name] = {}
        for count in (SHORT, LONG):
            with TemporaryDirectory() as folder:
                digests[name][str(count)] = " ".join(history_digests(name, count, Path(folder)))
        print(name, file=sys.stderr)
    for name in () if named else CLAIMS:
        digests[name] = {str(each): claims_digest(lowest_rungs(name, each)) for each in (FEW_OF, 1)}
    if not named:
        counts = FEW_DOCUMENTS, MANY_DOCUMENTS
        digests[DOCUMENTS] = {str(count): verdicts_digest(verdicts(count)) for count in counts}
    GOLDEN.write_text(json.dumps(digests, indent=1) + "\n")


if __name__ == "__main__":
    main()
