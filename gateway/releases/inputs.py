"""The question of a release, the answers of symbols and windows, how they are combined, and their record in the ledger.

A question has all that is needed to count symbols and windows, and nothing else. Its canonical bytes are the same
wherever they are made, so that their digest names the question.

An addend is an unbiased answer for some devices. The bound on its variance depends only on scales, tables and the
number of ticks. So the choice between two answers, and their weights, depend on nothing private, and a combination is
unbiased, too. Two answers for the same devices have independent errors given the states, and are weighed by the inverse
of their variances.

The ledger stores each noise table's counts of symbols before noise, the noise on each count, and the answers of
devices' own windows. So a release can be computed once more when its symbols are gone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter

from fugu.chains.arrays import Floats
from fugu.contract.chains import Rows
from fugu.contract.errors import FuguError
from fugu.contract.frames import sequence_name
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.reports import Noise
from fugu.contract.windows import Mechanism, Window
from fugu.privacy.chain_class import ChainClassError, ListedChains, ReleaseClass
from gateway.releases.entries import canonical_bytes, digest
from gateway.releases.statistics import (
    Estimates,
    Query,
    Tally,
    estimate,
    noise_variance,
    quantile,
    values_of,
    weights_of,
)

__all__ = [
    "Addend",
    "Inputs",
    "NoisyInputs",
    "Question",
    "canonical_table",
    "classes_of_release",
    "read_table",
    "sum_addends",
    "symbols_variances",
]


@dataclass(frozen=True, slots=True)
class Question:
    """A query about some devices, over windows of a length.

    Attributes:
        devices: the devices that are counted together.
        labels: labels of all states, in order; symbols of policies with other labels are not counted.
        length: ticks of a window.
        source: as in the configuration of the release.
        windows: by device, its own window that answers the query; devices that answer by symbols only are left out.
        silent: the devices that have windows and no symbols.
        chains: transition matrices that the mechanism assumes; empty if it assumes the classes of policies.
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

    def sequences(self, device: str) -> list[tuple[str, Window | None]]:
        """List a device's sequences that may answer, each with its device window, or with `None` for symbols."""
        window, sequences = self.windows.get(device), list[tuple[str, Window | None]]()
        if device not in self.silent:
            sequences.append((self.stream, None))
        if window is not None:
            sequences.append((sequence_name(self.stream, window.name), window))
        return sequences

    def classes(self, policies: Iterable[Policy]) -> tuple[ReleaseClass, ...]:
        """The classes of chains for streams with these policies; raises as `classes_of_release` does."""
        return classes_of_release(self.chains, policies)

    def document(self) -> dict[str, Any]:
        """The question as plain values, for JSON."""
        document: dict[str, Any] = _QUESTION.dump_python(self, mode="json")
        return document | {"silent": sorted(self.silent)}

    @classmethod
    def read(cls, document: bytes) -> Question:
        """Read a question from the JSON of its `document`. Raises ValueError for other bytes."""
        return _QUESTION.validate_json(document)


_QUESTION = TypeAdapter(Question)


def classes_of_release(chains: tuple[Rows, ...], policies: Iterable[Policy]) -> tuple[ReleaseClass, ...]:
    """The classes of chains of policies, or a release's own chains, if it has some.

    With own `chains`, raises ChainClassError if their states are of another number, or policies' streams move together.
    """
    declared_classes = tuple(dict.fromkeys(declared_class.chains for declared_class in policies))
    if not chains:
        return declared_classes
    own_class = ListedChains(transitions=chains)
    for declared_class in declared_classes:
        if declared_class.named_streams or declared_class.states != own_class.states:
            raise ChainClassError(
                f"its own chains have {own_class.states} states, and are of one stream: the policies' are not so"
            )
    return (own_class,)


class Addend(NamedTuple):
    """An answer for some devices.

    Attributes:
        values: (n,) unbiased counts of ticks, n = 1 but for a histogram.
        variances: (n,) bounds of the values' variances.
        steps: (n,) the largest weight of a single noise in each value.
        ticks: number of ticks that the answer is about.
    """

    values: Floats
    variances: Floats
    steps: Floats
    ticks: int

    def document(self) -> list[Any]:
        """The addend as plain values, for JSON."""
        return [*(column.tolist() for column in self[:3]), self.ticks]


def symbols_addend(query: Query, tallies: Sequence[Tally], scale: Fraction) -> Addend:
    """The answer of noisy counts of symbols; `scale` is the scale of their noise."""
    addends = []
    for tally in tallies:
        variances = symbols_variances(query, {tally.table: tally.ticks}, scale)
        addends.append(Addend(values_of(query, tally), variances, weights_of(query, tally.table).steps, tally.ticks))
    return sum_addends(addends)


def symbols_variances(query: Query, tick_counts: Mapping[NoiseTable, int], scale: Fraction | None) -> Floats:
    """Bound the variances (n,) of an answer, no dwell time, for the worst states.

    `tick_counts` has the number of symbols by table. `scale` is that of the noise on each table's counts;
    `None` for no noise.
    """
    variances, noise_var = np.zeros(len(query.groups)), 0.0 if scale is None else noise_variance(scale)
    for table, tick_count in tick_counts.items():
        weights = weights_of(query, table)
        variances += tick_count * weights.spread.max(axis=1) + noise_var * weights.noise
    return variances


def weighted_mean(addend: Addend, other: Addend) -> Addend:
    """Combine two answers for the same devices and ticks, weighed by the inverse of their variances."""
    weight = other.variances / (addend.variances + other.variances)
    other_weight = 1.0 - weight
    return Addend(
        weight * addend.values + other_weight * other.values,
        weight**2 * addend.variances + other_weight**2 * other.variances,
        np.maximum(weight * addend.steps, other_weight * other.steps),
        max(addend.ticks, other.ticks),
    )


def sum_addends(addends: Sequence[Addend]) -> Addend:
    """Add up answers for different devices."""
    values, variances, largest_steps, ticks = zip(*addends, strict=True)
    return Addend(np.sum(values, axis=0), np.sum(variances, axis=0), np.max(largest_steps, axis=0), sum(ticks))


def answer(query: Query, addend: Addend, confidence: float) -> Estimates:
    """Compute an answer's estimates, no dwell time; its intervals are rather too wide than too narrow.

    Half of an interval is the larger of the normal and the Laplace quantile, plus one step, because noise is whole.
    """
    errors = np.sqrt(addend.variances)
    width = quantile(confidence) * errors + addend.steps
    divisor = query.definition.divisor(addend.ticks)
    columns = addend.values, errors, addend.values - width, addend.values + width
    return Estimates(*(column / divisor for column in columns))


class Inputs(NamedTuple):
    """Counts of symbols before noise, and answers of windows that devices have made noisy themselves.

    Attributes:
        symbols: counts of devices whose symbols alone are used.
        paired_symbols: counts of devices whose symbols and windows are both used.
        windows: answer of the devices whose windows alone are used; `None` without such devices.
        paired_windows: answer of the windows of the devices in `paired_symbols`; `None` without such devices.
        windows_scale: the largest scale of the noise of windows; `None` without windows.
    """

    symbols: tuple[Tally, ...]
    paired_symbols: tuple[Tally, ...]
    windows: Addend | None
    paired_windows: Addend | None
    windows_scale: Fraction | None

    @property
    def tallies(self) -> tuple[Tally, ...]:
        """All counts of symbols, which get noise."""
        return self.symbols + self.paired_symbols

    @property
    def noise(self) -> Noise:
        """The kind of noise: the gateway's own, that of device windows, or both."""
        if self.windows_scale is None:
            return "discrete-laplace"
        return "mixed" if self.tallies else "device-windows"

    def largest_scale(self, own: Fraction) -> Fraction:
        """The largest scale of all noise, if counts of symbols get noise of scale `own`."""
        return max([*([own] if self.tallies else []), *([] if self.windows_scale is None else [self.windows_scale])])


class NoisyInputs(NamedTuple):
    """Inputs with noise: `counts` are `inputs.tallies` with noise of scale `own_scale`."""

    inputs: Inputs
    own_scale: Fraction
    counts: tuple[Tally, ...]

    def answer(self, query: Query, confidence: float) -> tuple[Estimates, int]:
        """Compute the answer, from noisy numbers only, and the number of ticks it is about. FuguError without ticks."""
        _, _, windows, paired_windows, _ = self.inputs
        scale, symbol_count = self.own_scale, len(self.inputs.symbols)
        symbols, paired_counts = self.counts[:symbol_count], self.counts[symbol_count:]
        if windows is None and paired_windows is None:
            return estimate(query, symbols, scale, confidence), sum(tally.ticks for tally in symbols)
        addends = [] if windows is None else [windows]
        if paired_windows is not None:
            addends.append(weighted_mean(paired_windows, symbols_addend(query, paired_counts, scale)))
        if symbols:
            addends.append(symbols_addend(query, symbols, scale))
        total = sum_addends(addends)
        if not total.ticks:
            raise FuguError("no tick of the window was counted")
        return answer(query, total, confidence), total.ticks

    def document(self) -> dict[str, Any]:
        """The counts before noise, the noise and the answers as plain values, for JSON; empty fields are left out."""
        symbol_count = len(self.inputs.symbols)
        tallies = [
            [digest(canonical_table(sums.table)), sums.ticks, sums.steps, sums.counts.tolist(), noise.tolist()]
            for sums, counts in zip(self.inputs.tallies, self.counts, strict=True)
            for noise in [counts.counts - sums.counts]
        ]
        _, _, windows, paired_windows, windows_scale = self.inputs
        fields = {
            "beside": tallies[symbol_count:],
            "doubled": paired_windows and paired_windows.document(),
            "scale": tallies and str(self.own_scale),
            "symbols": tallies[:symbol_count],
            "windows": windows and windows.document(),
            "windows_scale": windows_scale and str(windows_scale),
        }
        return {name: value for name, value in fields.items() if value}

    @classmethod
    def read(cls, document: Mapping[str, Any], tables: Mapping[str, NoiseTable]) -> NoisyInputs:
        """Read a `document`, with tables by digest. ArithmeticError, KeyError, TypeError or ValueError for others."""
        symbol_pairs, paired_tallies = (_read_tallies(document.get(name, ()), tables) for name in ("symbols", "beside"))
        windows, paired_windows = (_read_addend(document.get(name)) for name in ("windows", "doubled"))
        windows_scale = _read_scale(document["windows_scale"]) if "windows_scale" in document else None
        symbol_sums, paired_sums = (tuple(tally for tally, _ in tallies) for tallies in (symbol_pairs, paired_tallies))
        inputs = Inputs(symbol_sums, paired_sums, windows, paired_windows, windows_scale)
        if not inputs.tallies and windows is None:
            raise ValueError("there is nothing in it")
        counts = tuple(noisy_tally for _, noisy_tally in (*symbol_pairs, *paired_tallies))
        return NoisyInputs(inputs, _read_scale(document["scale"]) if counts else Fraction(1), counts)


def _read_scale(scale_text: str) -> Fraction:
    """Read a scale above 0. An exponent, which could make a number of any size, is a ValueError."""
    if not re.fullmatch("[1-9][0-9]{0,18}(/[1-9][0-9]{0,18})?", scale_text):
        raise ValueError("a scale is no number above 0")
    return Fraction(scale_text)


def _read_addend(columns: Sequence[Any] | None) -> Addend | None:
    """Read an `Addend.document`; `None` stays `None`."""
    if columns is None:
        return None
    values, variances, steps = (np.array(column, dtype=np.float64) for column in columns[:3])
    return Addend(values, variances, steps, columns[3])


def _read_tallies(tally_columns: Sequence[Any], tables: Mapping[str, NoiseTable]) -> list[tuple[Tally, Tally]]:
    """Read the tallies of a `NoisyInputs.document`: each before noise, and with noise."""
    pairs = []
    for table_digest, ticks, steps, counts, noise in tally_columns:
        sums, noises = np.array(counts, dtype=np.int64), np.array(noise, dtype=np.int64)
        if sums.shape != noises.shape:
            raise ValueError("a sum has no noise")
        tally = Tally(tables[table_digest], ticks, steps, sums)
        pairs.append((tally, tally._replace(counts=sums + noises)))
    return pairs


def canonical_table(table: NoiseTable) -> bytes:
    """Write a noise table as JSON, so that equal tables have equal bytes."""
    return canonical_bytes({"rows": [list(row) for row in table.rows]})


def read_table(document: bytes) -> NoiseTable:
    """Read the bytes of `canonical_table`. KeyError, TypeError or ValueError if they hold none."""
    return NoiseTable(tuple(tuple(row) for row in json.loads(document)["rows"]))
