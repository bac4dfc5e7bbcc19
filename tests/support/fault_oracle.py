"""Rules of a fleet when all faults are over, judged from everything that was ever said and is kept.

It knows every frame that has left a device, from the lines (also those that no broker ever got), what the gateway has
stored. It knows what the outboxes still hold, every release that has left the gateway, and the ledger. Frames name the
one before them, so that a frame that was sealed and never seen anywhere is missed as well.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise

from edge_agent.outbox import Outbox
from fugu.contract.frames import SymbolFrame, WindowFrame, sequence_name
from fugu.contract.reports import ReleaseFrame
from fugu.contract.topics import parse_topic
from gateway.releases.charges import nats
from gateway.releases.entries import SITE, AccountKey
from gateway.releases.ledger import Ledger
from gateway.store.store import Store
from tests.support.fault_world import World
from tests.support.outboxes import symbol_frames, window_frames

__all__ = ["Verdict", "judge"]

STREAM, WINDOW = "hr", "high"


@dataclass
class Verdict:
    """Findings: problems, a line each, and figures of how much was looked at."""

    problems: list[str] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def __str__(self) -> str:
        shown = ", ".join(f"{number} {name}" for name, number in self.figures.items())
        return "\n".join([shown, *self.problems[:50]])


@dataclass
class _Device:
    """Knowledge of one: from the lines, from the store, and from its outbox."""

    said: list[SymbolFrame] = field(default_factory=list)
    stored: list[SymbolFrame] = field(default_factory=list)
    unsent: list[SymbolFrame] = field(default_factory=list)
    windows_said: list[WindowFrame] = field(default_factory=list)
    windows_stored: list[WindowFrame] = field(default_factory=list)
    windows_unsent: list[WindowFrame] = field(default_factory=list)


def judge(world: World) -> Verdict:
    """Everything that must hold; nothing of the world runs any more."""
    verdict = Verdict()
    devices = {name: _Device() for name in world.names}
    releases: dict[bytes, str] = {}
    for (topic, payload), times in world.messages().items():
        parsed = parse_topic(topic)
        verdict.figures["publications"] += times
        if parsed.kind == "release":
            releases[payload] = topic
        elif parsed.kind == "symbols":
            devices[parsed.device].said.append(SymbolFrame.decode(payload))
        else:
            devices[parsed.device].windows_said.append(WindowFrame.decode(payload))
    with closing(Store(world.store)) as store:
        for name, device in devices.items():
            _load(store, name, device)
    for name, device in devices.items():
        with closing(Outbox(world.disks[name].folder / "outbox.sqlite", "home", name)) as outbox:
            device.unsent, device.windows_unsent = symbol_frames(outbox), window_frames(outbox)
        _judge_device(name, device, world.healed, verdict)
    with closing(Ledger(world.ledger, create=False)) as ledger:
        _judge_releases(releases, ledger, verdict)
    _judge_ledger(world, verdict)
    _judge_logs(world, verdict)
    return verdict


def _load(store: Store, name: str, device: _Device) -> None:
    if (number := store.stream_id(name, STREAM)) is not None:
        device.stored = list(store.symbols.following(number, 0))
    if (number := store.stream_id(name, sequence_name(STREAM, WINDOW))) is not None:
        device.windows_stored = store.windows.within(number, 0, 2**53)


def _judge_device(name: str, device: _Device, healed: int, verdict: Verdict) -> None:
    problems, figures = verdict.problems, verdict.figures
    symbols: dict[int, int] = {}
    for frame in (*device.said, *device.stored, *device.unsent):
        for tick, symbol in enumerate(frame.symbols, frame.first):
            if symbols.setdefault(tick, symbol) != symbol:
                problems.append(f"{name}: tick {tick} has two symbols")
    figures["ticks"] += len(symbols)
    sent = {frame.first: frame for frame in (*device.said, *device.unsent)}
    stored, unsent = _ticks(device.stored), _ticks(device.unsent)
    for frame in device.said:
        if not (_ticks([frame]) <= stored or _ticks([frame]) <= unsent):
            problems.append(f"{name}: the frame of ticks {frame.first}..{frame.last} was sent and is nowhere")
    if stored - _ticks(sent.values()):
        problems.append(f"{name}: {len(stored - _ticks(sent.values()))} ticks are stored that it never sent")
    figures["frames stored"] += sum(_ticks([frame]) <= stored for frame in sent.values())
    waiting = [frame for frame in device.unsent if not _ticks([frame]) <= stored]
    figures["frames that wait"] += len(waiting)
    for frame in waiting:
        if frame.last - frame.shift <= healed:
            problems.append(f"{name}: the frame of ticks {frame.first}..{frame.last} waits, although all is well")
    every = sorted({(frame.first, frame.shift) for frame in (*device.said, *device.stored, *device.unsent)})
    problems += [
        f"{name}: the shift falls from {before[1]} to {after[1]} at tick {after[0]}"
        for before, after in pairwise(every)
        if after[1] < before[1]
    ]
    figures["shifts"] += len({shift for _, shift in every}) - 1
    problems += _breaks(name, [(f.previous, f.first, f.last) for f in sent.values()])
    counted: dict[int, tuple[int, ...]] = {}
    for window in (*device.windows_said, *device.windows_stored, *device.windows_unsent):
        if counted.setdefault(window.index, window.counts) != window.counts:
            problems.append(f"{name}: window {window.index} was released twice")
    held = {window.index for window in (*device.windows_stored, *device.windows_unsent)}
    problems += [f"{name}: window {index} was sent and is nowhere" for index in sorted(counted.keys() - held)]
    figures["windows of devices"] += len(counted)
    indices = [(w.previous, w.index, w.index) for w in (*device.windows_stored, *device.windows_unsent)]
    problems += _breaks(f"{name}, windows", indices)


def _ticks(some: Iterable[SymbolFrame]) -> set[tuple[int, int, int]]:
    """Each tick with its policy version and shift: how frames were cut is not known of what is sealed."""
    return {(frame.policy_version, frame.shift, tick) for frame in some for tick in range(frame.first, frame.last + 1)}


def _breaks(name: str, spans: Iterable[tuple[int, int, int]]) -> list[str]:
    """Where a sequence of (previous, first, last) misses one: each names the end of the one before it."""
    before = -1
    problems = []
    for previous, first, last in sorted(set(spans)):
        if previous != before:
            problems.append(f"{name}: what ends with {previous} is missing before {first}; there is only {before}")
        before = last
    return problems


def _judge_releases(releases: dict[bytes, str], ledger: Ledger, verdict: Verdict) -> None:
    problems = verdict.problems
    verdict.figures["releases published"] += len(releases)
    frames = {payload: ReleaseFrame.decode(payload) for payload in releases}
    windows: dict[tuple[str, int], bytes] = {}
    for payload, frame in frames.items():
        if windows.setdefault((releases[payload], frame.first), payload) != payload:
            problems.append(f"{releases[payload]}: the window from tick {frame.first} was released twice")
    by_key: dict[AccountKey, list[tuple[int, int, int]]] = defaultdict(list)
    for payload, frame in frames.items():
        entry = ledger.entry(frame.entry)
        if entry is None or entry.payload != payload:
            problems.append(f"{releases[payload]}: what was published of tick {frame.first} is not in the ledger")
            continue
        charges, shifts = ledger.charges(frame.entry), ledger.shifts(frame.entry)
        if frame.audience != SITE:
            problems += _uncharged(frame, charges)
            for device, units in charges.items():
                by_key[AccountKey(device, frame.stream, frame.audience)].append(
                    (frame.first + shifts[device], frame.last + shifts[device], units)
                )
    for key, spans in by_key.items():
        problems += _under_counts(key, spans, ledger)


def _uncharged(frame: ReleaseFrame, charges: dict[str, int]) -> list[str]:
    if frame.noise == "discrete-laplace" and (not charges or min(charges.values()) <= 0):
        return [f"release {frame.name} from tick {frame.first}: charges nothing"]
    if frame.noise == "discrete-laplace" and nats(max(charges.values())) < frame.charge:
        return [f"release {frame.name} from tick {frame.first}: says that it charges more than the ledger has"]
    return []


def _under_counts(key: AccountKey, spans: Sequence[tuple[int, int, int]], ledger: Ledger) -> list[str]:
    """Where more was published of an account's ticks than the ledger has charged; added up change by change."""
    more: dict[int, int] = defaultdict(int)
    for first, last, units in spans:
        more[first] += units
        more[last + 1] -= units
    for run in ledger.spent(key, 0, max(more)):
        more[run.first] -= run.charge
        more[run.last + 1] += run.charge
    beyond = 0
    for tick in sorted(more):
        beyond += more[tick]
        if beyond > 0:
            return [f"{key}: ticks from {tick} on are charged less than was published"]
    return []


def _judge_ledger(world: World, verdict: Verdict) -> None:
    words = ["check", "ledger", "--ledger", str(world.ledger), "--store", str(world.store)]
    done = subprocess.run([sys.executable, "-m", "fugu", *words], capture_output=True, text=True)
    if done.returncode != 0:
        verdict.problems.append(f"fugu check ledger: {done.stdout}{done.stderr}")


def _judge_logs(world: World, verdict: Verdict) -> None:
    for name, program in world.programs.items():
        text = program.log.read_text()
        verdict.figures["starts"] += program.starts
        if "Traceback" in text:
            verdict.problems.append(f"{name}: {text[text.index('Traceback') :][:2000]}")
        if " conflict=" in text:
            verdict.problems.append(f"{name} has counted a conflict")
        if program.deaths:
            verdict.problems.append(f"{name} has ended by itself, with {program.deaths}: {text[-500:]}")
