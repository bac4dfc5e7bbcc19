"""The request of a release to its devices, how their answers are put together, and their record in the ledger.

A question has all that is needed to count symbols and windows, and nothing else. Its canonical bytes are the same
wherever they are made, so that their digest names it.

An addend is an unbiased answer for some devices. The bound on its variance depends only on scales, tables and how many
ticks there were. So which of two answers is taken, and how much each counts, depends on nothing private, and what is
put together is unbiased. Two answers for the same devices have independent errors given the states, and are weighed by
the inverse of their variances.

The ledger stores each noise table's counts of symbols before noise, the noise on each, and the answers of devices' own
windows. So a release can be computed once more when its symbols are gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter

from fugu.chains.arrays import Floats
from fugu.contract.class_of_chains import Rows
from fugu.contract.errors import FuguError
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.reports import Noise
from fugu.contract.windows import Mechanism, Window
from fugu.privacy.chain_class import ChainClassError, ListedChains, ReleaseClass
from gateway.releases.entries import canonical, digest
from gateway.releases.statistics import (
    Estimates,
    Part,
    Query,
    estimate,
    noise_variance,
    quantile,
    values_of,
    weights_of,
)

__all__ = [
    "Addend",
    "Inputs",
    "Noisy",
    "Question",
    "added",
    "canonical_table",
    "classes_of_release",
    "symbols_variances",
    "table_of",
]


@dataclass(frozen=True, slots=True)
class Question:
    """Question about some devices.

    Attributes:
        devices: whose symbols are counted together.
        labels: of all states, in order; symbols of policies that mean other states are not counted with them.
        length: ticks of a window.
        source: as in the configuration of the release.
        windows: by device, that of its windows which answers the query, if it is to be answered from them.
        silent: the devices that have windows only.
        chains: transition matrices of its own, if its mechanism takes them for true; else the classes of policies are.
    """

    name: str
    stream: str
    devices: tuple[str, ...]
    labels: tuple[str, ...]
    query: Query
    length: int
    source: str
    mechanism: Mechanism
    confidence: float
    windows: Mapping[str, Window]
    silent: frozenset[str]
    chains: tuple[Rows, ...] = ()

    def classes(self, policies: Iterable[Policy]) -> tuple[ReleaseClass, ...]:
        """Classes of streams with these policies; as `classes_of_release`."""
        return classes_of_release(self.chains, policies)

    def document(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        document: dict[str, Any] = _QUESTION.dump_python(self, mode="json")
        return document | {"silent": sorted(self.silent)}

    @classmethod
    def read(cls, document: bytes) -> Question:
        """Read what `document` wrote, as JSON. ValueError if it was not made so."""
        return _QUESTION.validate_json(document)


_QUESTION = TypeAdapter(Question)


def classes_of_release(chains: tuple[Rows, ...], policies: Iterable[Policy]) -> tuple[ReleaseClass, ...]:
    """The classes of policies, or a release's own chains, if it has some.

    Raises ChainClassError if these are of another number of states, or of streams that are told about together.
    """
    declared = tuple(dict.fromkeys(policy.chains for policy in policies))
    if not chains:
        return declared
    listed = ListedChains(transitions=chains)
    for policy in declared:
        if policy.named_streams or policy.states != listed.states:
            raise ChainClassError(
                f"its own chains have {listed.states} states, and are of one stream: the policies' are not so"
            )
    return (listed,)


class Addend(NamedTuple):
    """An answer for some devices.

    Attributes:
        values: (n,) unbiased counts of ticks, n = 1 but for a histogram.
        variances: (n,) bounds of their variances.
        steps: (n,) the largest weight of a single noise in each.
    """

    values: Floats
    variances: Floats
    steps: Floats
    ticks: int

    def document(self) -> list[Any]:
        """As plain values, for JSON."""
        return [*(column.tolist() for column in self[:3]), self.ticks]


def symbols_addend(query: Query, parts: Sequence[Part], scale: Fraction) -> Addend:
    """The answer of noisy counts of symbols; `scale` is that of their noise."""
    addends = []
    for part in parts:
        steps = np.abs(weights_of(query, part.table).noises).max(axis=1)
        variances = symbols_variances(query, part.table, part.ticks, scale)
        addends.append(Addend(values_of(query, part), variances, steps, part.ticks))
    return added(addends)


def symbols_variances(query: Query, table: NoiseTable, ticks: int, scale: Fraction | None) -> Floats:
    """Bounds (n,) of the variances of a table's answer (no dwell time) with noise of a scale, for the worst states."""
    _, noises, spread = weights_of(query, table)
    noise = 0.0 if scale is None else noise_variance(scale)
    return np.asarray(ticks * spread.max(axis=1) + noise * (noises**2).sum(axis=1), dtype=np.float64)


def combined(addend: Addend, other: Addend) -> Addend:
    """Two answers for the same devices and ticks, weighed by the inverse of their variances."""
    weight = other.variances / (addend.variances + other.variances)
    rest = 1.0 - weight
    return Addend(
        weight * addend.values + rest * other.values,
        weight**2 * addend.variances + rest**2 * other.variances,
        np.maximum(weight * addend.steps, rest * other.steps),
        max(addend.ticks, other.ticks),
    )


def added(addends: Sequence[Addend]) -> Addend:
    """Answers for different devices, added up."""
    values, variances, steps, ticks = zip(*addends, strict=True)
    return Addend(np.sum(values, axis=0), np.sum(variances, axis=0), np.max(steps, axis=0), sum(ticks))


def answer(query: Query, total: Addend, confidence: float) -> Estimates:
    """Values (no dwell time) with standard errors and intervals, which are too wide rather than too narrow.

    Half of an interval is the larger of the normal and the Laplace quantile, and one step, because noise is whole.
    """
    errors = np.sqrt(total.variances)
    width = quantile(confidence) * errors + total.steps
    divisor = query.asked.divisor(total.ticks)
    return Estimates(
        *(column / divisor for column in (total.values, errors, total.values - width, total.values + width))
    )


class Inputs(NamedTuple):
    """Whole numbers of symbols, and answers of windows that devices have made noisy themselves.

    Attributes:
        symbols, beside: of devices whose windows are not used, and of those whose windows are used as well.
        windows: what the devices answer of which windows alone are used; `None` without such devices.
        doubled: what the windows of those devices answer whose symbols are in `beside`.
        windows_scale: the largest scale of the noise of windows, `None` without windows.
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
    def noise(self) -> Noise:
        """The party that adds the noise."""
        if self.windows_scale is None:
            return "discrete-laplace"
        return "mixed" if self.parts else "device-windows"

    def largest_scale(self, own: Fraction) -> Fraction:
        """Of the noise, if counts of symbols get noise of a scale."""
        return max([*([own] if self.parts else []), *([] if self.windows_scale is None else [self.windows_scale])])


class Noisy(NamedTuple):
    """Inputs, and `inputs.parts` with noise of a scale."""

    inputs: Inputs
    own_scale: Fraction
    counts: tuple[Part, ...]

    def answer(self, query: Query, confidence: float) -> tuple[Estimates, int]:
        """The answer, and the ticks that it is about; from noisy sums only. FuguError if nothing was counted."""
        _, _, windows, doubled, _ = self.inputs
        scale, place = self.own_scale, len(self.inputs.symbols)
        symbols, beside = self.counts[:place], self.counts[place:]
        if windows is None and doubled is None:
            return estimate(query, symbols, scale, confidence), sum(part.ticks for part in symbols)
        addends = [] if windows is None else [windows]
        if doubled is not None:
            addends.append(combined(doubled, symbols_addend(query, beside, scale)))
        if symbols:
            addends.append(symbols_addend(query, symbols, scale))
        total = added(addends)
        if not total.ticks:
            raise FuguError("no tick of the window was counted")
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

    @classmethod
    def read(cls, document: Mapping[str, Any], tables: Mapping[str, NoiseTable]) -> Noisy:
        """Read the object of `document`, with tables by digest. KeyError, TypeError or ValueError if it is none."""
        symbols, beside = (_parts(document.get(name, ()), tables) for name in ("symbols", "beside"))
        windows, doubled = (_addend(document.get(name)) for name in ("windows", "doubled"))
        largest = Fraction(document["windows_scale"]) if "windows_scale" in document else None
        alone, doubly = (tuple(part for part, _ in parts) for parts in (symbols, beside))
        inputs = Inputs(alone, doubly, windows, doubled, largest)
        if not inputs.parts and windows is None:
            raise ValueError("there is nothing in it")
        counts = tuple(noisy for _, noisy in (*symbols, *beside))
        return Noisy(inputs, Fraction(document["scale"]) if counts else Fraction(1), counts)


def _addend(listed: Sequence[Any] | None) -> Addend | None:
    """Read the object of `Addend.document`."""
    if listed is None:
        return None
    values, variances, steps = (np.array(column, dtype=np.float64) for column in listed[:3])
    return Addend(values, variances, steps, listed[3])


def _parts(listed: Sequence[Any], tables: Mapping[str, NoiseTable]) -> list[tuple[Part, Part]]:
    noisy = []
    for name, ticks, steps, counts, noise in listed:
        sums, added_noise = np.array(counts, dtype=np.int64), np.array(noise, dtype=np.int64)
        if sums.shape != added_noise.shape:
            raise ValueError("a sum has no noise")
        part = Part(tables[name], ticks, steps, sums)
        noisy.append((part, part._replace(counts=sums + added_noise)))
    return noisy


def canonical_table(table: NoiseTable) -> bytes:
    """The one way to write a table of symbols."""
    return canonical({"rows": [list(row) for row in table.rows]})


def table_of(document: bytes) -> NoiseTable:
    """Read the text of `canonical_table`. KeyError, TypeError or ValueError if it is none."""
    return NoiseTable(tuple(tuple(row) for row in json.loads(document)["rows"]))
