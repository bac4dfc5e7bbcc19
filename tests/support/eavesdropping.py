"""An observer of times and sizes alone, and whether they tell one kind of run from another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats

from tests.support.faulty_lines import Chunk

__all__ = ["Seen", "features", "records", "told_apart"]

Seen = tuple[float, int]
"""When a record of TLS was complete, in seconds, and its length."""
Floats = npt.NDArray[np.float64]
_HEADER = 5
_APPLICATION_DATA = 23
_FOLDS = 10


def records(chunks: Sequence[Chunk], *, up: bool) -> list[Seen]:
    """The records with data of one direction of one connection."""
    pieces: list[Seen] = []
    rest = bytearray()
    for chunk in chunks:
        if chunk.up != up:
            continue
        rest += chunk.data
        while len(rest) >= _HEADER and len(rest) >= (end := _HEADER + int.from_bytes(rest[3:5], "big")):
            if rest[0] == _APPLICATION_DATA:
                pieces.append((chunk.seconds, end))
            del rest[:end]
    return pieces


def features(upwards: Sequence[Seen], downwards: Sequence[Seen], frame_seconds: float) -> Floats:
    """A run as numbers: lengths, gaps, and where in the rhythm of frames they lie, in both directions."""
    statistics: list[float] = []
    for seen in (upwards, downwards):
        times, lengths = np.array([at for at, _ in seen]), np.array([length for _, length in seen], dtype=float)
        gaps = np.diff(times)
        phase = np.exp(2j * np.pi * times / frame_seconds)
        statistics += [lengths.mean(), lengths.std(), lengths.max(), len(seen) / (times[-1] - times[0])]
        statistics += [gaps.mean(), gaps.std(), *np.quantile(gaps, (0.1, 0.5, 0.9))]
        statistics += [phase.real.mean(), phase.imag.mean()]
    return np.array(statistics)


def told_apart(runs: Floats, kinds: npt.NDArray[np.bool_], generator: np.random.Generator) -> float:
    """How surprising it would be to tell two kinds of runs apart as well as this, if there were no difference.

    Every feature of the runs is tested by itself, for another distribution (Kolmogorov and Smirnov) and for another
    rank (Mann and Whitney). All together are tested by a linear classifier that is judged on runs that are new to it.
    It is the least of all p-values, times how many there are.
    """
    varying = runs[:, runs.std(axis=0) > 0]
    ones, others = varying[kinds], varying[~kinds]
    p_values = [float(stats.ks_2samp(a, b).pvalue) for a, b in zip(ones.T, others.T, strict=True)]
    p_values += [float(stats.mannwhitneyu(a, b).pvalue) for a, b in zip(ones.T, others.T, strict=True)]
    right = _classified(varying, kinds, generator)
    p_values.append(float(stats.binomtest(right, len(kinds), 0.5, "greater").pvalue))
    return min(1.0, min(p_values) * len(p_values))


def _classified(runs: Floats, kinds: npt.NDArray[np.bool_], generator: np.random.Generator) -> int:
    """How many runs a ridge regression gets right that has learnt from the others."""
    fold = np.empty(len(kinds), dtype=int)
    for kind in (True, False):
        where = np.flatnonzero(kinds == kind)
        fold[generator.permutation(where)] = np.arange(len(where)) % _FOLDS
    right = 0
    for left_out in range(_FOLDS):
        learnt = fold != left_out
        mean, spread = runs[learnt].mean(axis=0), runs[learnt].std(axis=0) + 1e-12
        scaled = (runs - mean) / spread
        target = np.where(kinds, 1.0, -1.0)
        gram = scaled[learnt].T @ scaled[learnt] + len(kinds) * np.eye(runs.shape[1])
        weights = np.linalg.solve(gram, scaled[learnt].T @ (target[learnt] - target[learnt].mean()))
        right += int(np.sum((scaled[~learnt] @ weights > 0) == kinds[~learnt]))
    return right
