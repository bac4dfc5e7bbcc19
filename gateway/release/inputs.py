"""What a release is computed from, so that it can be computed once more when its symbols are gone.

The ledger keeps these numbers beside what was published: for each noise table the whole numbers of symbols before
noise and the noise on each, and what devices' own windows answer. Questions and tables stand there by their digests,
and are kept once for all windows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from fugu.contract.noise_table import NoiseTable
from fugu.contract.release_frames import Noise
from gateway.release.addends import Addend, added, answer, combined, symbols_addend
from gateway.release.canonical import canonical, digest
from gateway.release.inversion import ReleaseError
from gateway.release.statistics import Estimates, Part, Query, estimate, noisy, sensitivity

__all__ = ["Inputs", "Noisy", "canonical_table", "noisy_of", "table_of"]


class Inputs(NamedTuple):
    """Whole numbers of symbols, and answers of windows that devices have made noisy themselves.

    Attributes:
        symbols: of devices whose windows are not used.
        beside: of devices whose windows are used as well.
        windows: what the devices answer of which windows alone are used; none without such devices.
        doubled: what the windows of those devices answer whose symbols are in `beside`.
        windows_scale: the largest scale of the noise of windows, none without windows.
    """

    symbols: tuple[Part, ...]
    beside: tuple[Part, ...]
    windows: Addend | None
    doubled: Addend | None
    windows_scale: Fraction | None

    @property
    def parts(self) -> tuple[Part, ...]:
        """All counts of symbols, which get noise."""
        return self.symbols + self.beside

    @property
    def sensitivity(self) -> int:
        """The most that the counts change with one symbol, which is in one of them."""
        return sensitivity(self.parts)

    @property
    def noise(self) -> Noise:
        """Who adds the noise."""
        if self.windows_scale is None:
            return "discrete-laplace"
        return "mixed" if self.parts else "device-windows"

    def largest_scale(self, own: Fraction) -> Fraction:
        """Of the noise, if counts of symbols get noise of a scale."""
        return max([*([own] if self.parts else []), *([] if self.windows_scale is None else [self.windows_scale])])

    def with_noise(self, scale: Fraction, draw: Callable[[int], int]) -> Noisy:
        """Draw noise for every count; `draw` as for `gateway.release.statistics.noisy`."""
        return Noisy(self, scale, noisy(self.parts, scale, draw))


class Noisy(NamedTuple):
    """Inputs, and the same counts with noise.

    Attributes:
        own_scale: of the noise on the counts of symbols.
        counts: `inputs.parts` with noise.
    """

    inputs: Inputs
    own_scale: Fraction
    counts: tuple[Part, ...]

    def answer(self, query: Query, confidence: float) -> tuple[Estimates, int]:
        """The answer to a query, and the ticks that it is about; of the sums themselves it depends on nothing.

        Raises:
            ReleaseError: nothing was counted.
        """
        _, _, windows, doubled, _ = self.inputs
        scale, place = self.own_scale, len(self.inputs.symbols)
        symbols, beside = self.counts[:place], self.counts[place:]
        if windows is None and doubled is None:
            return estimate(query, symbols, scale, confidence), sum(part.ticks for part in symbols)
        found = [] if windows is None else [windows]
        if doubled is not None:
            found.append(combined(doubled, symbols_addend(query, beside, scale)))
        if symbols:
            found.append(symbols_addend(query, symbols, scale))
        total = added(found)
        if not total.ticks:
            raise ReleaseError("no tick of the window was counted")
        return answer(query, total, confidence), total.ticks

    def document(self) -> dict[str, Any]:
        """As plain values, for JSON; what is not there takes no room."""
        place = len(self.inputs.symbols)
        parts = [
            [digest(canonical_table(sums.table)), sums.ticks, sums.steps, sums.counts.tolist(), noise.tolist()]
            for sums, counts in zip(self.inputs.parts, self.counts, strict=True)
            for noise in [counts.counts - sums.counts]
        ]
        _, _, windows, doubled, windows_scale = self.inputs
        every = {
            "beside": parts[place:],
            "doubled": doubled and doubled.document(),
            "scale": parts and str(self.own_scale),
            "symbols": parts[:place],
            "windows": windows and windows.document(),
            "windows_scale": windows_scale and str(windows_scale),
        }
        return {name: value for name, value in every.items() if value}


def noisy_of(document: Mapping[str, Any], tables: Mapping[str, NoiseTable]) -> Noisy:
    """What `Noisy.document` made.

    Args:
        tables: by their digests.

    Raises:
        KeyError, TypeError, ValueError: it was not made so.
    """
    symbols, beside = (_parts(document.get(name, ()), tables) for name in ("symbols", "beside"))
    windows, doubled = (
        Addend.of_document(document[name]) if name in document else None for name in ("windows", "doubled")
    )
    largest = Fraction(document["windows_scale"]) if "windows_scale" in document else None
    inputs = Inputs(_sums(symbols), _sums(beside), windows, doubled, largest)
    if not inputs.parts and windows is None:
        raise ValueError("there is nothing in it")
    counts = tuple(noisy for _, noisy in (*symbols, *beside))
    return Noisy(inputs, Fraction(document["scale"]) if counts else Fraction(1), counts)


def _sums(parts: Sequence[tuple[Part, Part]]) -> tuple[Part, ...]:
    return tuple(sums for sums, _ in parts)


def _parts(listed: Sequence[Any], tables: Mapping[str, NoiseTable]) -> list[tuple[Part, Part]]:
    found = []
    for name, ticks, steps, counts, noise in listed:
        sums, added_noise = np.array(counts, dtype=np.int64), np.array(noise, dtype=np.int64)
        if sums.shape != added_noise.shape:
            raise ValueError("a sum has no noise")
        part = Part(tables[name], ticks, steps, sums)
        found.append((part, part._replace(counts=sums + added_noise)))
    return found


def canonical_table(table: NoiseTable) -> bytes:
    """The one way to write a table of symbols."""
    return canonical({"rows": [list(row) for row in table.rows]})


def table_of(document: bytes) -> NoiseTable:
    """What `canonical_table` made.

    Raises:
        KeyError, TypeError, ValueError: it was not made so.
    """
    return NoiseTable(tuple(tuple(row) for row in json.loads(document)["rows"]))
