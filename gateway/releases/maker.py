"""Makes one release: sums of symbols or windows, noise, the ledger's entry. Other modules publish it.

A release is made by one call, which reads the rows of all devices at once, from one state of the store. Nothing is
drawn and nothing is charged before the last step, which is one transaction of the ledger. A process that is killed
before that has told nobody anything, and the window is made again. After it, the release is published from the ledger.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Ints
from fugu.contract.dating import SLACK, dates_of, first_quiet_tick
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
    smallest_scale,
    window_sensitivity,
)
from gateway.releases.charges import PER_NAT, nats, units_above, units_below
from gateway.releases.config import Audience
from gateway.releases.entries import (
    CHARGED_BEFORE,
    SITE,
    AccountKey,
    Content,
    Entry,
    LouderTicks,
    Release,
    canonical_bytes,
)
from gateway.releases.inputs import (
    Addend,
    Inputs,
    NoisyInputs,
    Question,
    canonical_table,
    sum_addends,
    symbols_variances,
)
from gateway.releases.jobs import CountedTicks, Job, answer_rows
from gateway.releases.ledger import Ledger
from gateway.releases.statistics import UNOBSERVED, Tally, add_noise, count_symbols, noise_variance, sensitivity
from gateway.store.engine import LedgerError
from gateway.store.journal import wall_time
from gateway.store.store import Store

__all__ = ["EmptyWindowError", "LaterError", "Maker", "content_of"]


Versions = dict[int, tuple[Policy, int, int]]
"""Policies of a stream by version, with the first and last counted tick of each."""


def _widen_version(versions: Versions, policy: Policy, first: int, last: int) -> None:
    """Add a policy with ticks first..last to `versions`, or widen the ticks that it has there."""
    _, old_first, old_last = versions.get(policy.version, (policy, first, last))
    versions[policy.version] = policy, min(old_first, first), max(old_last, last)


class DeviceWindows(NamedTuple):
    """The answer of a device's own windows.

    Attributes:
        scale: the largest scale of the windows' noise.
        versions: the policies of the windows.
        beginning: ticks at the start of a baseline, which windows leave out.
        shift: by how much the windows' tick numbers are ahead of the release's wall ticks.
    """

    addend: Addend
    scale: Fraction
    versions: Versions
    beginning: int = 0
    shift: int = 0


class DeviceSymbols(NamedTuple):
    """A device's symbols of a release's wall ticks.

    Attributes:
        shift: by how much the device's tick numbers are ahead of the wall ticks.
        tables: for each noise table the symbols (length,) made by it, -1 where there is none.
        versions: the policies of the symbols.
    """

    shift: int
    tables: dict[NoiseTable, Ints]
    versions: Versions


def _devices_by_shift(
    store: Store, sequence: str, devices: Sequence[str], wall_ticks: tuple[int, int], window: Window | None = None
) -> dict[int, dict[int, str]]:
    """Group devices by how far their tick numbers are ahead of wall ticks.

    Returns by shift a map from the store's number of a sequence `sequence` to its device. A device is left out if its
    clock was set within the wall ticks, given as first and last. `window` is the device window that the sequence is of,
    `None` for symbols.
    """
    sequence_numbers, groups = store.numbers(sequence, devices), dict[int, dict[int, str]]()
    shifts = store.shifts_of([*sequence_numbers.values()])
    for device, sequence_number in sequence_numbers.items():
        tick_shifts = shifts[sequence_number] if window is None else shifts[sequence_number].in_ticks(window)
        if (shift := tick_shifts.owner(*wall_ticks)[0]) is not None:
            groups.setdefault(shift, {})[sequence_number] = device
    return groups


def device_symbols(
    store: Store, catalogue: Catalogue, question: Question, devices: Sequence[str], first_wall: int
) -> dict[str, DeviceSymbols]:
    """Read devices' symbols of a question's window from a wall tick on, by device.

    A device is left out if its clock was set within the window, or some of its symbols are of other states. A device
    chooses the version of its policy, and must not stop the release about other devices.
    """
    stream, length = question.stream, question.length
    symbols: dict[str, DeviceSymbols] = {}
    for shift, owners in _devices_by_shift(store, stream, devices, (first_wall, first_wall + length - 1)).items():
        first, last = first_wall + shift, first_wall + shift + length - 1
        frames = store.symbols.columns_between([*owners], first, last)
        answers = {device: DeviceSymbols(shift, {}, {}) for device in owners.values()}
        lines, rows, row_lines = dict[tuple[str, NoiseTable], int](), list[int](), list[int]()
        columns = (frames.number, frames.version, frames.shift, frames.first, frames.last)
        frame_rows = zip(*(column.tolist() for column in columns), strict=True)
        for row, (sequence_number, version, frame_shift, frame_first, frame_last) in enumerate(frame_rows):
            device = owners[sequence_number]
            policy = catalogue.recall(device, stream, version, SymbolModel).policy
            if policy.discretiser.states != question.labels:
                answers.pop(device, None)
            elif frame_shift == shift and device in answers:
                assert policy.table is not None  # the symbols were drawn from it
                rows.append(row)
                row_lines.append(lines.setdefault((device, policy.table), len(lines)))
                _widen_version(answers[device].versions, policy, max(frame_first, first), min(frame_last, last))
        symbol_lines = np.full((len(lines), length), UNOBSERVED, dtype=np.int64)
        frames.lay_out(rows, row_lines, first, symbol_lines)
        for (device, table), line in lines.items():
            if device in answers:
                answers[device].tables[table] = symbol_lines[line]
        symbols |= {device: answer for device, answer in answers.items() if answer.tables}
    return symbols


def device_windows(
    store: Store, catalogue: Catalogue, question: Question, devices: Sequence[str], first_wall: int
) -> dict[str, DeviceWindows]:
    """Read the answers of devices' own windows to a question from a wall tick on, by device.

    Devices without such an answer are left out.
    """
    devices_by_window: dict[Window, list[str]] = {}
    for device in devices:
        if (window := question.windows.get(device)) is not None:
            devices_by_window.setdefault(window, []).append(device)
    answers: dict[str, DeviceWindows] = {}
    wall_ticks = first_wall, first_wall + question.length - 1
    for window, window_devices in devices_by_window.items():
        sequence = sequence_name(question.stream, window.name)
        for shift, owners in _devices_by_shift(store, sequence, window_devices, wall_ticks, window).items():
            first = first_wall + shift
            frames: dict[str, list[WindowFrame]] = {}
            for number, frame in store.windows.frames_between([*owners], first, first + question.length - 1):
                frames.setdefault(owners[number], []).append(frame)
            for device, device_frames in frames.items():
                answer = _windows_answer(catalogue, question, device, device_frames, first, shift)
                if answer is not None:
                    answers[device] = answer
    return answers


def _windows_answer(
    catalogue: Catalogue, question: Question, device: str, frames: list[WindowFrame], first: int, shift: int
) -> DeviceWindows | None:
    """Add up the frames of a device's windows that lie side by side from tick `first` on.

    Returns `None` if there are none, or a frame's policy has other states or no such window.
    """
    counts, scales, matrix, beginning = [], [], np.ones((1, 1), dtype=np.int64), 0
    length, ticks = question.windows[device].length, 0
    versions: Versions = {}
    for frame in frames:
        policy = catalogue.recall(device, question.stream, frame.policy_version, SymbolModel).policy
        window = policy.window(frame.window)
        window_matrix = None if window is None else answer_rows(window, policy.discretiser.states, question.query)
        if window is None or window_matrix is None or policy.discretiser.states != question.labels:
            return None
        if (frame.first - first) % length or frame.length != length or frame.shift != shift:
            continue  # it overlaps two windows that lie side by side
        matrix, beginning = window_matrix, getattr(policy.discretiser, "baseline_ticks", 0)
        counts.append(matrix @ np.array(frame.counts, dtype=np.int64))
        scales.append(Fraction(window.scale))
        ticks += frame.observed
        _widen_version(versions, policy, frame.first, frame.last)
    if not counts:
        return None
    addend = windows_addend(np.array(counts), matrix.sum(axis=1), scales, ticks)
    return DeviceWindows(addend, max(scales), versions, beginning, shift)


def windows_addend(counts: Ints, summand_counts: Ints, scales: Sequence[Fraction], ticks: int) -> Addend:
    """Compute the answer of w windows of a device.

    Args:
        counts: (w, n) noisy counts of each window, added up over the states of each value.
        summand_counts: (n,) how many noisy counts of a window were added up for each value.
        scales: (w,) scale of each window's noise.
        ticks: number of ticks that the windows have counted.
    """
    variance = sum(noise_variance(scale) for scale in scales)
    return Addend(
        counts.sum(axis=0).astype(np.float64),
        np.asarray(summand_counts * variance, dtype=np.float64),
        np.ones(len(summand_counts)),
        ticks,
    )


def table_ticks(symbols: dict[NoiseTable, Ints]) -> Counter[NoiseTable]:
    """The number of ticks that have a symbol of each table."""
    return Counter({table: int((symbol_row >= 0).sum()) for table, symbol_row in symbols.items()})


def windows_are_better(question: Question, windows: DeviceWindows, symbols: dict[NoiseTable, Ints]) -> bool:
    """Tell whether a device's windows answer better than its symbols: about no fewer ticks, with no more variance.

    The first ticks of a baseline have symbols of a public distribution, and windows leave these ticks out. The variance
    is the bound for the worst states, without the noise that counts of symbols would get: it depends on nothing
    private.
    """
    if not symbols:
        return True
    ticks = table_ticks(symbols)
    if windows.addend.ticks + windows.beginning < ticks.total():
        return False
    return bool(windows.addend.variances.sum() <= symbols_variances(question.query, ticks, None).sum())


@dataclass(slots=True)
class Counts:
    """The counts of a window.

    Attributes:
        symbols: by noise table, the symbols of devices whose windows are not used.
        paired_symbols: by noise table, the symbols of devices whose windows are used as well.
        windows: the windows that are used, by device.
        tables: the noise tables of the symbols that are used, by device.
        counted_symbols: inputs of the distribution of a device's count, by device; for the Wasserstein mechanism only.
        shifts: by how much a device's tick numbers are ahead of the window's wall ticks, by device.
        versions: policies of all that is counted, with the first and last tick of each.
    """

    symbols: dict[NoiseTable, Tally] = field(default_factory=dict)
    paired_symbols: dict[NoiseTable, Tally] = field(default_factory=dict)
    windows: dict[str, DeviceWindows] = field(default_factory=dict)
    tables: dict[str, set[NoiseTable]] = field(default_factory=dict)
    counted_symbols: dict[str, CountedSymbols] = field(default_factory=dict)
    shifts: dict[str, int] = field(default_factory=dict)
    versions: list[tuple[Policy, int, int]] = field(default_factory=list)

    @property
    def inputs(self) -> Inputs:
        """The numbers that the answer is computed from, before noise is added to the counts of symbols."""
        lone_addends = [window.addend for device, window in self.windows.items() if device not in self.tables]
        paired_addends = [window.addend for device, window in self.windows.items() if device in self.tables]
        return Inputs(
            tuple(self.symbols.values()),
            tuple(self.paired_symbols.values()),
            sum_addends(lone_addends) if lone_addends else None,
            sum_addends(paired_addends) if paired_addends else None,
            max((window.scale for window in self.windows.values()), default=None),
        )


_MOST_TICKS = 1 << 20
"""Most ticks of all devices that are counted at once."""
_STORED_SECONDS = 0.001
_NO_SYMBOLS = DeviceSymbols(0, {}, {})
_NO_CHARGE = "post-processing: this audience sees the symbols"


class EmptyWindowError(FuguError):
    """Raised if a window has nothing to count."""


class LaterError(Exception):
    """Raised when the time is up: a part of the work is done and cached, and the next call goes on from there."""


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes releases from a store, and charges them to a ledger.

    Attributes:
        catalogue: the policies that made the symbols in the store.
        draw: draw(below) is uniform in range(below), from the operating system.
        now_us: the time now, in microseconds of Unix time.
        history: the history of a device's stream: which ticks are of which policy.
    """

    store: Store
    catalogue: Catalogue
    ledger: Ledger
    draw: Callable[[int], int]
    now_us: Callable[[], int]
    history: Callable[[str, str], History]

    def make(self, job: Job, first: int, progress: int | None = None, *, seconds: float = math.inf) -> Entry:
        """Release the window that begins at a wall tick. Return the reserved entry.

        `progress` is the first tick of the schedule's next window, `None` outside of a schedule. Raises
        EmptyWindowError without symbols and counts, FuguError if they do not answer the query, LedgerError if the
        ledger refuses, or DatabaseError. Raises LaterError if exact distributions of single devices take more than
        `seconds`.
        """
        counts = self.count(job.question, first)
        if not counts.tables and not counts.windows:
            raise EmptyWindowError(
                f"release {job.name}: no tick of {first}..{first + job.plan.length - 1} has a symbol or a count"
            )
        basis = self._noise_basis(job, counts, seconds) if job.question.mechanism in ALONE else None
        inputs = counts.inputs
        scale = self._noise_scale(job, counts, inputs, basis) if counts.tables else Fraction(1)
        spread = float_up(sensitivity(inputs.tallies) / scale)
        is_for_site = job.plan.audience == SITE
        promise = job.promise([self.counted_ticks(*version) for version in counts.versions] if is_for_site else ())
        charges = dict.fromkeys((*counts.windows, *counts.tables), 0)
        if basis is not None:
            charges = dict.fromkeys(charges, units_below(job.epsilon))
        elif not is_for_site:
            table_charge = cache(lambda table: units_above(charge(table, spread)))
            charges |= {device: max(map(table_charge, tables)) for device, tables in counts.tables.items()}
        release = Release(
            name=job.name,
            audience=job.plan.audience,
            stream=job.plan.stream,
            first=first,
            last=first + job.plan.length - 1,
            since_us=job.clock.epoch_us + first * job.clock.period_us,
            charges=charges,
            shifts=counts.shifts,
            mechanism=job.question.mechanism,
            noise=inputs.noise,
            scale=str(inputs.largest_scale(scale)),
            topic=job.topic,
            basis="" if basis is None else basis.model_dump_json(),
            reason="" if min(charges.values()) else _NO_CHARGE if is_for_site else CHARGED_BEFORE,
        )
        if not is_for_site:
            self.refuse_leaks(job, release)
        return self.ledger.reserve(
            release,
            lambda number: content_of(
                job, release, promise, NoisyInputs(inputs, scale, add_noise(inputs.tallies, scale, self.draw)), number
            ),
            time_us=self.now_us(),
            progress=progress,
        )

    def refuse_leaks(self, job: Job, release: Release) -> None:
        """Refuse ticks into which louder ticks leak more than the promise allows.

        Louder ticks were charged before a policy that allows less. Charges of a lost ledger may have been anything.
        Raises FuguError, which names the first tick that is far enough from all louder ticks.
        """
        since_us = max(0, self.ledger.binding.not_before_us - job.clock.epoch_us)
        allowances = self.ledger.allowances(job.plan.stream, job.plan.audience, release.charges)
        max_allowance = None if since_us else self.ledger.largest_allowance(job.plan.audience)
        for device in release.charges:
            if max_allowance is not None and allowances[device][0] >= max_allowance:
                continue
            key, ticks_ahead = AccountKey(device, job.plan.stream, job.plan.audience), release.shifts.get(device, 0)
            first, stretches = release.first + ticks_ahead, self.ledger.louder_ticks(key, ticks_ahead)
            if since_us:
                stretches.append(LouderTicks(-(-since_us // job.clock.period_us) - 1 + ticks_ahead, None))
            # The ledger itself refuses ticks before a beginning.
            stretches = [louder for louder in stretches if louder.excess is not None or louder.last < first]
            if not stretches:
                continue
            worst_odds = [chains.worst_odds for chains in classes_of(self.ledger.classes(key))]
            history, slack = self.history(device, job.plan.stream), SLACK * Fraction(job.epsilon) / len(stretches)
            quiet_tick: int | None = 0
            for last, excess in stretches:
                loss = None if excess is None else Fraction(excess, PER_NAT)
                tick = (
                    first_quiet_tick(history, worst_odds, last, loss, slack) if release.mechanism == "chain" else None
                )
                quiet_tick = None if tick is None or quiet_tick is None else max(quiet_tick, tick)
            if quiet_tick is None or first < quiet_tick:
                when_text = "never again" if quiet_tick is None else f"again from tick {quiet_tick} on"
                raise FuguError(
                    f"release {job.name}: ticks {first}..{first + job.plan.length - 1} of {device}/{job.plan.stream} "
                    f"are next to ticks of which more was told, or may have been: it may be told of {when_text}"
                )

    def count(self, question: Question, first: int) -> Counts:
        """Count the window that begins at a wall tick.

        Raises FuguError if the symbols do not answer the query, or DatabaseError.
        """
        counts = Counts()
        batch_size = max(1, _MOST_TICKS // question.length)
        with self.store.snapshot():
            for begin in range(0, len(question.devices), batch_size):
                self._count(question, question.devices[begin : begin + batch_size], first, counts)
        return counts

    def _count(self, question: Question, devices: Sequence[str], first: int, counts: Counts) -> None:
        """Add the symbols and windows of some devices to `counts`."""
        symbols_by_device = device_symbols(self.store, self.catalogue, question, devices, first)
        windows_by_device = device_windows(self.store, self.catalogue, question, devices, first)
        symbol_rows: dict[tuple[bool, NoiseTable], list[Ints]] = {}
        for device in devices:
            shift, symbols, versions = symbols_by_device.get(device, _NO_SYMBOLS)
            windows = windows_by_device.get(device)
            symbol_ticks = table_ticks(symbols).total()
            uses_both = question.source == "both" and windows is not None and windows.addend.ticks == symbol_ticks
            if windows is not None and (uses_both or windows_are_better(question, windows, symbols)):
                counts.windows[device] = windows
                counts.shifts[device] = windows.shift
                counts.versions += windows.versions.values()
                if not uses_both:
                    continue
            if symbols:
                counts.tables[device] = set(symbols)
                counts.shifts[device] = shift
                counts.versions += versions.values()
                if question.mechanism == "wasserstein":
                    counts.counted_symbols[device] = self._counted_symbols(question, device, symbols)
                for table, symbol_row in symbols.items():
                    symbol_rows.setdefault((uses_both, table), []).append(symbol_row)
        for (uses_both, table), table_rows in symbol_rows.items():
            tallies = counts.paired_symbols if uses_both else counts.symbols
            tally = count_symbols(question.query, np.stack(table_rows), table)
            tallies[table] = tallies[table].plus(tally) if table in tallies else tally

    def _counted_symbols(self, question: Question, device: str, symbols: dict[NoiseTable, Ints]) -> CountedSymbols:
        """The inputs of the distribution of a device's count. FuguError if the Wasserstein mechanism cannot use it."""
        if len(symbols) > 1:
            raise FuguError(
                f"release {question.name}: mechanism wasserstein releases one number, and the symbols of "
                f"{device}/{question.stream} are of {len(symbols)} tables in this window"
            )
        ((table, symbol_row),) = symbols.items()
        if (np.diff(np.flatnonzero(symbol_row >= 0)) > 1).any():
            # Numbers do not say how much time has passed over absent ticks: the device's clock may have been set.
            raise FuguError(
                f"release {question.name}: mechanism wasserstein needs ticks next to one another, and "
                f"{device}/{question.stream} has some in this window without those between them"
            )
        chains = question.classes(self.catalogue.charged_policies(device, question.stream))
        return counted_symbols(chains, table, question.query.states, (symbol_row >= 0).tolist())

    def _noise_basis(self, job: Job, counts: Counts, seconds: float) -> WholeWindow:
        """Compute what the noise of a mechanism that does not compose is based on. LaterError after `seconds`."""
        if job.question.mechanism == "wasserstein":
            spent_seconds = 0.0
            for symbols in counts.counted_symbols.values():
                start = time.monotonic()
                _ = symbols.distance  # takes half a minute at most, and is cached
                duration = time.monotonic() - start
                spent_seconds += duration if duration > _STORED_SECONDS else 0.0
                if spent_seconds > seconds:
                    raise LaterError
            return WholeWindow(symbols=tuple(counts.counted_symbols.values()))
        count = max(tally.counts.size for tally in counts.symbols.values())
        return WholeWindow(moved=window_sensitivity(job.question.query.kind, count, job.plan.length))

    def _noise_scale(self, job: Job, counts: Counts, inputs: Inputs, basis: WholeWindow | None) -> Fraction:
        """The scale of the noise on counts of symbols. LedgerError if a share of the allowance is nothing."""
        if basis is not None:
            return basis.scale(job.epsilon)
        if job.plan.scale is not None:
            return Fraction(job.plan.scale)
        assert job.plan.share is not None
        allowances = self.ledger.allowances(job.plan.stream, job.plan.audience, counts.tables)
        free_charge = min(allowances[device][0] - allowances[device][1] for device in counts.tables)
        budget = int(Fraction(job.plan.share) * free_charge)
        if budget < 1:
            raise LedgerError(
                f"release {job.name}, audience {job.plan.audience}: nothing of the allowance is left beside the "
                "windows that devices release themselves"
            )
        return smallest_scale(set.union(*counts.tables.values()), sensitivity(inputs.tallies), budget)

    def counted_ticks(self, policy: Policy, first: int, last: int) -> CountedTicks:
        """The counted ticks of a stream under one version of its policy, with the history that dates them."""
        return CountedTicks(policy, dates_of(policy, self.history(policy.device, policy.stream)), first, last)


def content_of(job: Job, release: Release, promise: tuple[Audience, int], inputs: NoisyInputs, number: int) -> Content:
    """Write the content of a release for the ledger: the message with the number of its entry, and its documents."""
    estimates, ticks = inputs.answer(job.question.query, job.plan.confidence)
    audience, stretch_ticks = promise
    frame = ReleaseFrame(
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
        unit=job.question.query.definition.unit,
        confidence=job.plan.confidence,
        epsilon=audience.epsilon,
        adversary=audience.adversary,
        stretch_ticks=stretch_ticks,
        mechanism=release.mechanism,
        noise=release.noise,
        scale=release.scale,
        charge=nats(max(release.charges.values())),
        entry=number,
        time=wall_time(job.clock, release.first + job.plan.length),
        since=wall_time(job.clock, release.first),
        useful=job.is_useful,
        helper=job.helper,
        honest=job.honest,
    )
    tables = dict.fromkeys(tally.table for tally in inputs.counts)
    return Content(
        frame.encode(),
        canonical_bytes(job.question.document()),
        canonical_bytes(inputs.document()),
        tuple(map(canonical_table, tables)),
    )
