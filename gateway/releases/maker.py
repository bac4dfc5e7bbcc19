"""Makes one release: sums of symbols or windows, noise, the ledger's entry. Publishing is somebody else's.

It is one call: whatever is needed of all devices is read at once, from one state of the store. Nothing is drawn and
nothing is charged before the last step, which is one transaction of the ledger. A process that is killed before has
told nobody anything, and the window is made again. After it, the drawn release is published from the ledger.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Ints
from fugu.contract.dating import SLACK, dated, quiet_from
from fugu.contract.errors import FuguError
from fugu.contract.frames import WindowFrame, sequence_name
from fugu.contract.history import History
from fugu.contract.losses import float_up
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.reports import ReleaseFrame
from fugu.contract.windows import ALONE, Window
from gateway.estimates.beliefs import SymbolModel
from gateway.estimates.catalogue import Catalogue
from gateway.releases.allowance import (
    CountedSymbols,
    WholeWindow,
    charge,
    classes_of,
    counted_symbols,
    moved_by_all,
    smallest_scale,
)
from gateway.releases.charges import PER_NAT, nats, units_above, units_below
from gateway.releases.config import Audience
from gateway.releases.entries import CHARGED_BEFORE, SITE, Drawn, Entry, Key, Louder, Release, canonical
from gateway.releases.inputs import Addend, Inputs, Noisy, Question, added, canonical_table, symbols_variances
from gateway.releases.jobs import Counted, Job, answers
from gateway.releases.ledger import Ledger
from gateway.releases.statistics import UNOBSERVED, SymbolCounter, noise_variance, noisy, sensitivity
from gateway.store.engine import LedgerError
from gateway.store.journal import wall_time
from gateway.store.store import Store

__all__ = ["EmptyWindowError", "LaterError", "Maker", "drawn_of", "windows_addend"]


Versions = dict[int, tuple[Policy, int, int]]
"""Policies of a stream by version, with the first and last tick that was drawn under each."""


def _take_in(versions: Versions, policy: Policy, first: int, last: int) -> None:
    _, low, high = versions.get(policy.version, (policy, first, last))
    versions[policy.version] = policy, min(low, first), max(high, last)


class DeviceWindows(NamedTuple):
    """A device's own windows' answer, the largest scale of their noise, and how long a start leaves no states.

    `shift` is by how much their tick numbers are ahead of the release's wall ticks; `versions` are those of the frames.
    """

    addend: Addend
    scale: Fraction
    versions: Versions
    beginning: int = 0
    shift: int = 0


class DeviceSymbols(NamedTuple):
    """A device's symbols of a release's wall ticks: (length,) for each table, -1 where it made none.

    `shift` and `versions` are as for its windows.
    """

    shift: int
    tables: dict[NoiseTable, Ints]
    versions: Versions


def _by_shift(
    store: Store, name: str, devices: Sequence[str], walls: tuple[int, int], window: Window | None = None
) -> dict[int, dict[int, str]]:
    """Devices by the numbers of their sequences of a name, by how far these are ahead of the wall ticks first..last.

    Whose clock was set within them is left out.
    """
    numbers, groups = store.numbers(name, devices), dict[int, dict[int, str]]()
    shifts = store.shifts_of([*numbers.values()])
    for device, number in numbers.items():
        own = shifts[number] if window is None else shifts[number].in_ticks(window)
        if (shift := own.owner(*walls)[0]) is not None:
            groups.setdefault(shift, {})[number] = device
    return groups


def device_symbols(
    store: Store, catalogue: Catalogue, question: Question, devices: Sequence[str], wall: int
) -> dict[str, DeviceSymbols]:
    """Devices' symbols of the wall ticks from one on.

    A device is left out if its clock was set within them, or some are of other states. A device chooses the version of
    its policy, and must not stop the release of the others.
    """
    stream, length = question.stream, question.length
    symbols: dict[str, DeviceSymbols] = {}
    for shift, owners in _by_shift(store, stream, devices, (wall, wall + length - 1)).items():
        first, last = wall + shift, wall + shift + length - 1
        frames = store.symbols.across([*owners], first, last)
        device_symbols = {device: DeviceSymbols(shift, {}, {}) for device in owners.values()}
        lines, picked = dict[NoiseTable, dict[str, int]](), dict[NoiseTable, list[tuple[int, int]]]()
        columns = (frames.number, frames.version, frames.shift, frames.first, frames.last)
        for row, (number, version, ahead, low, high) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
            device = owners[number]
            policy = catalogue.recall(device, stream, version, SymbolModel).policy
            if policy.discretiser.states != question.labels:
                device_symbols.pop(device, None)
            elif ahead == shift and device in device_symbols:
                assert policy.table is not None  # it made these
                line = lines.setdefault(policy.table, {})
                picked.setdefault(policy.table, []).append((row, line.setdefault(device, len(line))))
                _take_in(device_symbols[device].versions, policy, max(low, first), min(high, last))
        for table, rows in picked.items():
            laid = np.full((len(lines[table]), length), UNOBSERVED, dtype=np.int64)
            frames.lay_out([row for row, _ in rows], [line for _, line in rows], first, laid)
            for device, place in lines[table].items():
                if device in device_symbols:
                    device_symbols[device].tables[table] = laid[place]
        symbols |= {device: symbols_of for device, symbols_of in device_symbols.items() if symbols_of.tables}
    return symbols


def device_windows(
    store: Store, catalogue: Catalogue, question: Question, devices: Sequence[str], wall: int
) -> dict[str, DeviceWindows]:
    """The answers of devices' windows to a release's wall ticks, as far as they have counted any of them."""
    asked: dict[Window, list[str]] = {}
    for device in devices:
        if (window := question.windows.get(device)) is not None:
            asked.setdefault(window, []).append(device)
    answered: dict[str, DeviceWindows] = {}
    for wanted, owners_asked in asked.items():
        name = sequence_name(question.stream, wanted.name)
        for shift, owners in _by_shift(store, name, owners_asked, (wall, wall + question.length - 1), wanted).items():
            first = wall + shift
            frames: dict[str, list[WindowFrame]] = {}
            for number, frame in store.windows.across([*owners], first, first + question.length - 1):
                frames.setdefault(owners[number], []).append(frame)
            for device, own in frames.items():
                answer = _answered(catalogue, question, device, own, wanted, first, shift)
                if answer is not None:
                    answered[device] = answer
    return answered


def _answered(
    catalogue: Catalogue,
    question: Question,
    device: str,
    frames: list[WindowFrame],
    wanted: Window,
    first: int,
    shift: int,
) -> DeviceWindows | None:
    counts, scales, rows, beginning = [], [], np.ones((1, 1), dtype=np.int64), 0
    used: list[WindowFrame] = []
    versions: Versions = {}
    for frame in frames:
        policy = catalogue.recall(device, question.stream, frame.policy_version, SymbolModel).policy
        window = policy.window(frame.window)
        groups = None if window is None else answers(window, policy.discretiser.states, question.query)
        if window is None or groups is None or policy.discretiser.states != question.labels:
            return None
        if (frame.first - first) % wanted.length or frame.length != wanted.length or frame.shift != shift:
            continue  # between two that are side by side
        rows, beginning = groups, getattr(policy.discretiser, "baseline_ticks", 0)
        counts.append(rows @ np.array(frame.counts, dtype=np.int64))
        scales.append(Fraction(window.scale))
        used.append(frame)
        _take_in(versions, policy, frame.first, frame.last)
    if not used:
        return None
    ticks = sum(frame.observed for frame in used)
    addend = windows_addend(np.array(counts), rows.sum(axis=1), scales, ticks)
    return DeviceWindows(addend, max(scales), versions, beginning, shift)


def windows_addend(counts: Ints, numbers: Ints, scales: Sequence[Fraction], ticks: int) -> Addend:
    """The answer of a device's own windows.

    Args:
        counts: (w, n) noisy counts of each window that answer the query, added up over its states.
        numbers: (n,) how many noisy numbers of a window were added up.
        scales: (w,) of each window's noise.
    """
    variance = sum(noise_variance(scale) for scale in scales)
    return Addend(
        counts.sum(axis=0).astype(np.float64),
        np.asarray(numbers * variance, dtype=np.float64),
        np.ones(len(numbers)),
        ticks,
    )


def observed(symbols: dict[NoiseTable, Ints]) -> int:
    """The ticks that have a symbol."""
    return sum(int((laid >= 0).sum()) for laid in symbols.values())


def better(question: Question, windows: DeviceWindows | None, symbols: dict[NoiseTable, Ints]) -> bool:
    """True if a device's windows answer better than its symbols: of no fewer ticks, with no more variance.

    The ticks that a baseline begins with have symbols of a public distribution, and windows leave them out. The
    variance is the bound for the worst of states, without the noise that symbols would get on top: it depends on
    nothing private.
    """
    if windows is None or not symbols:
        return windows is not None
    if windows.addend.ticks + windows.beginning < observed(symbols):
        return False
    seen = {table: int((laid >= 0).sum()) for table, laid in symbols.items()}
    variance = sum(symbols_variances(question.query, table, ticks, None).sum() for table, ticks in seen.items())
    return bool(windows.addend.variances.sum() <= variance)


@dataclass(slots=True)
class Counts:
    """Result of counting.

    Attributes:
        tally, beside: symbols of devices whose windows are not used, and of those whose windows are used as well.
        windows, tables: by device, its windows that are used, and the tables of its symbols that are.
        counted: by device, what the distribution of its count follows from, for the mechanism that needs it.
        shifts: by device, by how much its tick numbers are ahead of the window's wall ticks.
        versions: of all that is counted: policies, with their first and last tick.
    """

    tally: SymbolCounter
    beside: SymbolCounter
    windows: dict[str, DeviceWindows] = field(default_factory=dict)
    tables: dict[str, set[NoiseTable]] = field(default_factory=dict)
    counted: dict[str, CountedSymbols] = field(default_factory=dict)
    shifts: dict[str, int] = field(default_factory=dict)
    versions: list[tuple[Policy, int, int]] = field(default_factory=list)

    @property
    def inputs(self) -> Inputs:
        """The numbers that the answer is computed from, once noise is on them."""
        alone = [window for device, window in self.windows.items() if device not in self.tables]
        doubled = [window for device, window in self.windows.items() if device in self.tables]
        return Inputs(
            self.tally.parts,
            self.beside.parts,
            added([released.addend for released in alone]) if alone else None,
            added([released.addend for released in doubled]) if doubled else None,
            max((window.scale for window in self.windows.values()), default=None),
        )


_MOST_TICKS = 1 << 20
"""Of devices that are counted at once."""
_STORED_SECONDS = 0.001
_NO_SYMBOLS = DeviceSymbols(0, {}, {})
_NO_CHARGE = "post-processing: this audience sees the symbols"


class EmptyWindowError(FuguError):
    """There is nothing to count."""


class LaterError(Exception):
    """A part of the work is done and kept: once more, and it goes on from there."""


@dataclass(frozen=True, slots=True)
class Maker:
    """Inputs and tools of releases.

    The catalogue has the policies that made the symbols in the store. `history` tells which ticks of a device's stream
    are of which policy. draw(below) is uniform in range(below), from the operating system.
    """

    store: Store
    catalogue: Catalogue
    ledger: Ledger
    draw: Callable[[int], int]
    now_us: Callable[[], int]
    history: Callable[[str, str], History]

    def make(self, job: Job, first: int, progress: int | None = None, *, seconds: float = math.inf) -> Entry:
        """Release the window from a wall tick on; returns the reserved entry.

        `progress` is where the schedule goes on, if this is part of one. Raises EmptyWindowError without symbols and
        counts, FuguError if they do not answer the query, LedgerError if the ledger refuses, or DatabaseError.
        Raises LaterError if exact distributions of single devices take more than so many seconds.
        """
        count = self.count(job.question, first)
        if not count.tables and not count.windows:
            raise EmptyWindowError(
                f"release {job.name}: no tick of {first}..{first + job.plan.length - 1} has a symbol or a count"
            )
        basis = self._basis(job, count, seconds) if job.question.mechanism in ALONE else None
        inputs = count.inputs
        scale = self._scale(job, count, inputs, basis) if count.tables else Fraction(1)
        spread = float_up(sensitivity(inputs.parts) / scale)
        to_site = job.plan.audience == SITE
        promise = job.promise([self.counted(*version) for version in count.versions] if to_site else ())
        charges = dict.fromkeys((*count.windows, *count.tables), 0)
        if basis is not None:
            charges = dict.fromkeys(charges, units_below(job.epsilon))
        elif not to_site:
            loss = cache(lambda table: units_above(charge(table, spread)))
            charges |= {device: max(map(loss, tables)) for device, tables in count.tables.items()}
        release = Release(
            name=job.name,
            audience=job.plan.audience,
            stream=job.plan.stream,
            first=first,
            last=first + job.plan.length - 1,
            since_us=job.clock.epoch_us + first * job.clock.period_us,
            charges=charges,
            shifts=count.shifts,
            mechanism=job.question.mechanism,
            noise=inputs.noise,
            scale=str(inputs.largest_scale(scale)),
            topic=job.topic,
            basis="" if basis is None else basis.model_dump_json(),
            reason="" if min(charges.values()) else _NO_CHARGE if to_site else CHARGED_BEFORE,
        )
        if not to_site:
            self.refuse_loud(job, release)
        return self.ledger.reserve(
            release,
            lambda number: drawn_of(
                job, release, promise, Noisy(inputs, scale, noisy(inputs.parts, scale, self.draw)), number
            ),
            time_us=self.now_us(),
            progress=progress,
        )

    def refuse_loud(self, job: Job, release: Release) -> None:
        """Refuse ticks to which more leaks than the promise has room for, from before a policy that allows less.

        Charges that were made cannot be undone. What a lost ledger had charged may be anything. Raises FuguError
        with the tick from which on all of that is far enough.
        """
        since_us = max(0, self.ledger.binding.not_before_us - job.clock.epoch_us)
        allowances = self.ledger.allowances(job.plan.stream, job.plan.audience, release.charges)
        enough = None if since_us else self.ledger.never_louder(job.plan.audience)
        for device in release.charges:
            if enough is not None and allowances[device][0] >= enough:
                continue
            key, ahead = Key(device, job.plan.stream, job.plan.audience), release.shifts.get(device, 0)
            first, louder = release.first + ahead, self.ledger.louder(key, ahead)
            if since_us:
                louder.append(Louder(-(-since_us // job.clock.period_us) - 1 + ahead, None))
            # The ledger itself refuses what lies before a border.
            louder = [stretch for stretch in louder if stretch.excess is not None or stretch.last < first]
            if not louder:
                continue
            worst_odds = [stretch.worst_odds for stretch in classes_of(self.ledger.classes(key))]
            history, slack = self.history(device, job.plan.stream), SLACK * Fraction(job.epsilon) / len(louder)
            since: int | None = 0
            for last, excess in louder:
                above = None if excess is None else Fraction(excess, PER_NAT)
                far = quiet_from(history, worst_odds, last, above, slack) if release.mechanism == "chain" else None
                since = None if far is None or since is None else max(since, far)
            if since is None or first < since:
                when = "never again" if since is None else f"again from tick {since} on"
                raise FuguError(
                    f"release {job.name}: ticks {first}..{first + job.plan.length - 1} of {device}/{job.plan.stream} "
                    f"are next to ticks of which more was told, or may have been: it may be told of {when}"
                )

    def count(self, question: Question, first: int) -> Counts:
        """Count the window that begins at a wall tick.

        Raises FuguError if what was found does not answer the query; DatabaseError if a file cannot be used.
        """
        counts = Counts(SymbolCounter(question.query), SymbolCounter(question.query))
        most = max(1, _MOST_TICKS // question.length)
        with self.store.snapshot():
            for begin in range(0, len(question.devices), most):
                self._count(question, question.devices[begin : begin + most], first, counts)
        return counts

    def _count(self, question: Question, devices: Sequence[str], first: int, counts: Counts) -> None:
        every = device_symbols(self.store, self.catalogue, question, devices, first)
        answered = device_windows(self.store, self.catalogue, question, devices, first)
        rows: dict[tuple[bool, NoiseTable], list[Ints]] = {}
        for device in devices:
            shift, symbols, versions = every.get(device, _NO_SYMBOLS)
            windows = answered.get(device)
            both = question.source == "both" and windows is not None and windows.addend.ticks == observed(symbols)
            if windows is not None and (both or better(question, windows, symbols)):
                counts.windows[device] = windows
                counts.shifts[device] = windows.shift
                counts.versions += windows.versions.values()
                if not both:
                    continue
            if symbols:
                counts.tables[device] = set(symbols)
                counts.shifts[device] = shift
                counts.versions += versions.values()
                if question.mechanism == "wasserstein":
                    counts.counted[device] = self._counted(question, device, symbols)
                for table, laid_out in symbols.items():
                    rows.setdefault((both, table), []).append(laid_out)
        for (both, table), laid in rows.items():
            (counts.beside if both else counts.tally).add(np.stack(laid), table)

    def _counted(self, question: Question, device: str, symbols: dict[NoiseTable, Ints]) -> CountedSymbols:
        if len(symbols) > 1:
            raise FuguError(
                f"release {question.name}: mechanism wasserstein releases one number, and the symbols of "
                f"{device}/{question.stream} are of {len(symbols)} tables in this window"
            )
        ((table, laid_out),) = symbols.items()
        if (np.diff(np.flatnonzero(laid_out >= 0)) > 1).any():
            # how much time has passed where ticks are absent, numbers do not say: the device's clock may have been set
            raise FuguError(
                f"release {question.name}: mechanism wasserstein needs ticks next to one another, and "
                f"{device}/{question.stream} has some in this window without those between them"
            )
        chains = question.classes(self.catalogue.charged(device, question.stream))
        return counted_symbols(chains, table, question.query.states, (laid_out >= 0).tolist())

    def _basis(self, job: Job, counts: Counts, seconds: float) -> WholeWindow:
        if job.question.mechanism == "wasserstein":
            spent = 0.0
            for counted in counts.counted.values():
                began = time.monotonic()
                _ = counted.distance  # of half a minute at most, and kept
                took = time.monotonic() - began
                spent += took if took > _STORED_SECONDS else 0.0
                if spent > seconds:
                    raise LaterError
            return WholeWindow(symbols=tuple(counts.counted.values()))
        numbers = max(part.counts.size for part in counts.tally.parts)
        return WholeWindow(moved=moved_by_all(job.question.query.kind, numbers, job.plan.length))

    def _scale(self, job: Job, counts: Counts, inputs: Inputs, basis: WholeWindow | None) -> Fraction:
        if basis is not None:
            return basis.scale(job.epsilon)
        if job.plan.scale is not None:
            return Fraction(job.plan.scale)
        assert job.plan.share is not None
        allowances = self.ledger.allowances(job.plan.stream, job.plan.audience, counts.tables)
        free = min(allowances[device][0] - allowances[device][1] for device in counts.tables)
        budget = int(Fraction(job.plan.share) * free)
        if budget < 1:
            raise LedgerError(
                f"release {job.name}, audience {job.plan.audience}: nothing of the allowance is left beside the "
                "windows that devices release themselves"
            )
        return smallest_scale(set.union(*counts.tables.values()), sensitivity(inputs.parts), budget)

    def counted(self, policy: Policy, first: int, last: int) -> Counted:
        """Date ticks that are counted of a stream, of one version of its policy."""
        return Counted(policy, dated(policy, self.history(policy.device, policy.stream)), first, last)


def drawn_of(job: Job, release: Release, promise: tuple[Audience, int], drawn: Noisy, number: int) -> Drawn:
    """Write out for the ledger a release with this entry number."""
    tables = dict.fromkeys(part.table for part in drawn.counts)
    return Drawn(
        _frame(job, release, promise, drawn, number).encode(),
        canonical(job.question.document()),
        canonical(drawn.document()),
        tuple(map(canonical_table, tables)),
    )


def _frame(job: Job, release: Release, promise: tuple[Audience, int], drawn: Noisy, number: int) -> ReleaseFrame:
    estimates, ticks = drawn.answer(job.question.query, job.plan.confidence)
    limit, stretch_ticks = promise
    return ReleaseFrame(
        name=job.name,
        stream=job.plan.stream,
        audience=job.plan.audience,
        query=job.question.query.kind,
        states=tuple(job.question.labels[state] for state in job.question.query.states),
        devices=len(release.charges),
        first=release.first,
        length=job.plan.length,
        observed=ticks,
        values=tuple(estimates.values.tolist()),
        standard_errors=tuple(estimates.standard_errors.tolist()),
        low=tuple(estimates.low.tolist()),
        high=tuple(estimates.high.tolist()),
        unit=job.question.query.asked.unit,
        confidence=job.plan.confidence,
        epsilon=limit.epsilon,
        adversary=limit.adversary,
        stretch_ticks=stretch_ticks,
        mechanism=release.mechanism,
        noise=release.noise,
        scale=release.scale,
        charge=nats(max(release.charges.values())),
        entry=number,
        time=wall_time(job.clock, release.first + job.plan.length),
        since=wall_time(job.clock, release.first),
        useful=job.useful,
        helper=job.helper,
        honest=job.honest,
    )
