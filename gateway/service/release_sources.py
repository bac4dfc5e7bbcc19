"""What a release is made of: each device's symbols, or windows that it has made noisy itself, or both."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fugu.chains.arrays import Ints
from fugu.contract.noise_table import NoiseTable
from fugu.contract.window_frames import WindowFrame, sequence_name
from gateway.release.addends import Addend, symbols_variances, windows_addend
from gateway.release.question import Question
from gateway.release.statistics import Part
from gateway.service.kinds.symbol_model import SymbolModel
from gateway.service.policies import Catalogue
from gateway.service.release_jobs import answers
from gateway.service.store import Store

__all__ = ["DeviceSymbols", "DeviceWindows", "better", "device_symbols", "device_windows", "observed"]


class DeviceWindows(NamedTuple):
    """What a device's own windows answer, the largest scale of their noise, and how long a start leaves no states.

    `shift` is by how much their tick numbers are ahead of the release's wall ticks.
    """

    addend: Addend
    scale: Fraction
    beginning: int = 0
    shift: int = 0


class DeviceSymbols(NamedTuple):
    """A device's symbols of a release's ticks, (length,) for each table, -1 where it made none; `shift` as above."""

    tables: dict[NoiseTable, Ints]
    shift: int = 0


def device_symbols(store: Store, catalogue: Catalogue, question: Question, device: str, wall: int) -> DeviceSymbols:
    """A device's symbols of a release's wall ticks.

    None if its clock was set within them, or some are of other states: a device chooses the version of its policy, and
    must not stop the release of the others.
    """
    stream, length = question.stream, question.length
    number = store.stream_id(device, stream)
    shift, _ = store.shifts(number).owner(wall, wall + length - 1)
    if number is None or shift is None:
        return DeviceSymbols({})
    first = wall + shift
    ticks: dict[NoiseTable, Ints] = {}
    for frame in store.symbols.holding(number, first, first + length - 1):
        policy = catalogue.recall(device, stream, frame.policy_version, SymbolModel).policy
        if policy.discretiser.states != question.labels:
            return DeviceSymbols({})
        assert policy.table is not None  # it made these
        if frame.shift != shift:
            continue
        symbols = np.frombuffer(frame.symbols, dtype=np.uint8).astype(np.int64)
        low, high = max(frame.first, first), min(frame.last, first + length - 1)
        of_table = ticks.setdefault(policy.table, np.full(length, -1, dtype=np.int64))
        of_table[low - first : high - first + 1] = symbols[low - frame.first : high - frame.first + 1]
    return DeviceSymbols({table: laid_out for table, laid_out in ticks.items() if laid_out.max() >= 0}, shift)


def device_windows(
    store: Store, catalogue: Catalogue, question: Question, device: str, wall: int
) -> DeviceWindows | None:
    """What a device's windows answer of a release's wall ticks; none without such windows, or if they counted none."""
    wanted = question.windows.get(device)
    if wanted is None:
        return None
    number = store.stream_id(device, sequence_name(question.stream, wanted.name))
    shift, _ = store.shifts(number).in_ticks(wanted).owner(wall, wall + question.length - 1)
    if number is None or shift is None:
        return None
    first = wall + shift
    frames = store.windows.within(number, first, first + question.length - 1)
    counts, scales, rows, beginning = [], [], np.ones((1, 1), dtype=np.int64), 0
    used: list[WindowFrame] = []
    for frame in frames:
        policy = catalogue.recall(device, question.stream, frame.policy_version, SymbolModel).policy
        window = policy.window(frame.window)
        known = None if window is None else answers(window, policy.discretiser.states, question.query)
        if window is None or known is None or policy.discretiser.states != question.labels:
            return None
        if (frame.first - first) % wanted.length or frame.length != wanted.length or frame.shift != shift:
            continue  # between two that are side by side
        rows, beginning = known, getattr(policy.discretiser, "baseline_ticks", 0)
        counts.append(rows @ np.array(frame.counts, dtype=np.int64))
        scales.append(Fraction(window.scale))
        used.append(frame)
    if not used:
        return None
    ticks = sum(frame.observed for frame in used)
    addend = windows_addend(np.array(counts), rows.sum(axis=1), scales, ticks)
    return DeviceWindows(addend, max(scales), beginning, shift)


def observed(symbols: dict[NoiseTable, Ints]) -> int:
    """The ticks that have a symbol."""
    return sum(int((laid >= 0).sum()) for laid in symbols.values())


def better(question: Question, windows: DeviceWindows | None, symbols: dict[NoiseTable, Ints]) -> bool:
    """Whether a device's windows answer better than its symbols: of no fewer ticks, with no more variance.

    The ticks that a baseline begins with have symbols of a public distribution, and windows leave them out.

    The variance is the bound for the worst of states, without the noise that symbols would get on top, so that it
    depends on nothing private.
    """
    if windows is None or not symbols:
        return windows is not None
    parts = [Part(table, int((laid >= 0).sum()), 0, np.zeros(1, dtype=np.int64)) for table, laid in symbols.items()]
    if windows.addend.ticks + windows.beginning < observed(symbols):
        return False
    variance = sum(symbols_variances(question.query, part, None).sum() for part in parts)
    return bool(windows.addend.variances.sum() <= variance)
