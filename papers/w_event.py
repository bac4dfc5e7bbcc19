"""Schemes of w-event privacy, for counts of one person's ticks: what a stretch really loses by them, and what they err.

Kellaris, Papadopoulos, Xiao, Papadias (PVLDB 2014): uniform, sample, budget distribution (BD) and absorption (BA). Only
the paper's beginning was at hand; the rules are those of the benchmark by Schäler, Hütter, Schäler (PVLDB 2023), which
implements them (github.com/chryenix/streamdp-benchmark). Here a time stamp is a block of n ticks. Its count changes by
up to n, and a scheme that spends b on it charges each of its ticks with b / n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Literal, TypeAlias

import numpy as np

from fugu.chains.arrays import Bools, Floats

__all__ = ["SCHEMES", "Scheme", "released", "sampled_loss", "spent", "stretch_loss"]

Scheme = Literal["uniform", "sample", "BD", "BA"]
SCHEMES: tuple[Scheme, ...] = ("uniform", "sample", "BD", "BA")
Publishes: TypeAlias = Callable[[int, Floats], Bools]
"""Which rows publish a block, given its number and the budgets that they are offered."""


def spent(scheme: Scheme, rows: int, blocks: int, w: int, publishes: Publishes) -> Floats:
    """(rows, blocks) what a scheme spends of a budget of 1 for any w blocks in a row, if `publishes` decides."""
    published, looked = np.zeros((rows, blocks)), np.zeros((rows, blocks))
    units, nullified = np.ones(rows), np.zeros(rows)
    for block in range(blocks):
        if scheme == "uniform":
            offered = np.full(rows, 1.0 / w)
        elif scheme == "sample":
            offered = np.full(rows, float(block % w == 0))
        else:
            if scheme == "BD":
                offered = (0.5 - published[:, max(0, block - w + 1) : block].sum(axis=1)) / 2.0
            else:
                offered = np.where(nullified > 0.0, 0.0, units / (2.0 * w))
            if block:
                looked[:, block] = np.where(offered > 0.0, 0.5 / w, 0.0)
        chosen = publishes(block, offered) & (offered > 0.0)
        published[:, block] = np.where(chosen, offered, 0.0)
        free = offered > 0.0
        nullified = np.where(chosen, units - 1.0, np.maximum(nullified - 1.0, 0.0))
        units = np.where(chosen, 1.0, np.where(free, np.minimum(units + 1.0, w), units))
    return published + looked


def released(
    scheme: Scheme, counts: Floats, n: int, w: int, epsilon: float, generator: np.random.Generator, columns: int = 1
) -> Floats:
    """(rows, blocks) what a scheme publishes of counts (rows, blocks), each of which one person moves by up to n.

    So many rows together are the columns of one stream: published at the same times, and a person is in one of them.
    """
    rows = len(counts)
    out, last = np.zeros_like(counts), np.zeros(rows)

    def publishes(block: int, offered: Floats) -> Bools:
        scale = n / (epsilon * np.maximum(offered, 1e-12))
        far = np.abs(last - counts[:, block]).reshape(-1, columns).mean(axis=1)
        far = np.repeat(far + generator.laplace(0.0, 2.0 * w * n / (epsilon * columns), len(far)), columns)
        chosen = (offered > 0.0) & ((far > scale) if block and scheme in ("BD", "BA") else True)
        last[chosen] = counts[chosen, block] + generator.laplace(0.0, scale[chosen])
        out[:, block] = last
        return np.asarray(chosen, dtype=np.bool_)

    spent(scheme, rows, counts.shape[1], w, publishes)
    return out


@cache
def stretch_loss(scheme: Scheme, n: int, w: int, odds_ratio: float, stretch: int) -> float:
    """The most that a stretch of ticks loses by a scheme of epsilon 1 for w blocks of n ticks, any side information.

    By theorem 2 of docs/proofs/stretches.md, in a stream of 4 w blocks, over all choices of which are published and all
    places of the stretch about its middle. Losses are in proportion to epsilon: to lose 1, a scheme needs this many
    times its noise.
    """
    blocks = 4 * w
    adaptive = scheme in ("BD", "BA")  # the first block is always published, and of the other two schemes all
    patterns = (np.arange(2**blocks - 1, 0, -2 if adaptive else -(2**blocks))[:, None] >> np.arange(blocks)) & 1 > 0
    charged = spent(scheme, len(patterns), blocks, w, lambda block, offered: np.asarray(patterns[:, block])) / n
    ticks, worst, middle = np.arange(blocks * n), 0.0, (blocks * n - stretch) // 2
    reach = n if adaptive else w * n // 2  # what moves on by a block is another choice, or comes back after w
    for first in range(middle - reach, middle + reach + 1):
        distance = np.maximum(np.maximum(first - ticks, ticks - (first + stretch - 1)), 0)
        weights = (_kappa(odds_ratio) ** distance).reshape(blocks, n).sum(axis=1)
        worst = max(worst, float((charged @ weights).max()))
    return worst


def _kappa(odds_ratio: float) -> float:
    return (math.sqrt(odds_ratio) - 1.0) / (math.sqrt(odds_ratio) + 1.0)


def sampled_loss(w: int, odds_ratio: float, stretch: int) -> float:
    """The same for one tick in w with all of the budget, and w at least the stretch: LDP-IDS's division of people.

    The stretch has one such tick at its end; the nearest others are w ticks before and after it.
    """
    kappa = _kappa(odds_ratio)
    return 1.0 + (kappa ** (w - stretch + 1) + kappa**w) / (1.0 - kappa**w)
