"""Attackers of stretches: who knows every state outside a stretch, and asks about the stretch as a whole.

They believe one chain, know the true states of all other days and of the ticks around, and see all that is released.
They ask whether a state took more of the stretch than it usually does, at least half of it, or began in it. Their odds
on such a secret, before and after the outputs, are computed over all courses of the stretch (forward, over pairs of a
state and a count). If the chain is in the class, no output moves them by more than the promise for the stretch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fugu.attack.evaluation import mean_interval, mean_transitions
from fugu.attack.outputs import CountOutputs, Outputs
from fugu.chains.arrays import Bools, Floats, Ints

__all__ = ["SECRETS", "StretchAttack", "attack_stretches"]

SECRETS = ("more than usual", "at least half", "begins in it")
FEWEST, MOST = 200, 800
"""Stretches that are scored where the recording is long enough; they overlap where it is not."""
_LARGEST = 700.0


class StretchAttack(NamedTuple):
    """Result of attacks on stretches of so many ticks about one secret.

    `success` is the share of stretches on which the likelier answer is true, `low` and `high` its 95 % interval,
    `guess` the same without outputs. `furthest` is the largest factor by which outputs moved the odds, `typical` the median.
    """

    secret: str
    ticks: int
    scored: int
    success: float
    low: float
    high: float
    guess: float
    furthest: float
    typical: float


def attack_stretches(
    states: Ints, outputs: Outputs, counted: tuple[int, ...], ticks: int, transition: Floats | None = None
) -> tuple[StretchAttack, ...]:
    """Attack stretches of so many ticks of outputs whose truth is known; one result for each of `SECRETS`.

    Args:
        states: (n,) true states, -1 where there is none; stretches have a state at every tick, and beside them.
        outputs: symbols, or counts of windows, which are read where they count `counted` together.
        counted: the states that the secrets are about.
        ticks: of a stretch, at least 1.
        transition: (k, k) the chain that is believed; by default the recording's own mean chain.

    Returns nothing where no stretch can be scored, or no count is of `counted`.
    """
    k = outputs.states
    if isinstance(outputs, CountOutputs) and counted not in outputs.groups:
        return ()
    chain = mean_transitions(states, np.zeros_like(states), k) if transition is None else transition
    inside = np.isin(np.arange(k), counted)
    present = np.concatenate([[0], np.cumsum(states >= 0)])
    last = states.size - ticks
    every = max(1, min(ticks, (last - 1) // FEWEST), last // MOST)
    starts = [f for f in range(1, last, every) if present[f + ticks + 1] - present[f - 1] == ticks + 2]
    if not starts:
        return ()
    sums = np.concatenate([[0], np.cumsum(np.isin(states, counted))])
    usual = float(np.median([sums[f + ticks] - sums[f] for f in starts]))
    found: dict[str, list[tuple[bool, float, float]]] = {secret: [] for secret in SECRETS}
    for first in starts:
        truth = _secrets_of(inside[states[first - 1 : first + ticks]], usual)
        prior, after = (_odds(states, seen, first, ticks, chain, inside, counted, usual) for seen in (None, outputs))
        for secret, true, before, now in zip(SECRETS, truth, prior, after, strict=True):
            if math.isfinite(before):  # what is certain from around the stretch is no secret
                found[secret].append((true, before, now))
    return tuple(_judged(secret, ticks, some) for secret, some in found.items() if some)


def _secrets_of(course: Bools, usual: float) -> tuple[bool, bool, bool]:
    """Answers about a stretch, by whether its ticks are counted, the one before it first."""
    own = course[1:]
    return bool(own.sum() > usual), bool(2 * own.sum() >= own.size), bool((own & ~course[:-1]).any())


def _judged(secret: str, ticks: int, some: list[tuple[bool, float, float]]) -> StretchAttack:
    truth, before, after = (np.array(column) for column in zip(*some, strict=True))
    right, guessed = (after > 0) == truth, (before > 0) == truth
    least, most = mean_interval(right - guessed.astype(np.float64), 0.95)
    guess, moved = float(guessed.mean()), np.exp(np.minimum(np.abs(after - before), _LARGEST))
    return StretchAttack(
        secret,
        ticks,
        len(some),
        float(right.mean()),
        max(0.0, guess + least),
        min(1.0, guess + most),
        guess,
        float(moved.max()),
        float(np.median(moved)),
    )


def _odds(
    states: Ints,
    outputs: Outputs | None,
    first: int,
    ticks: int,
    chain: Floats,
    inside: Bools,
    counted: tuple[int, ...],
    usual: float,
) -> tuple[float, float, float]:
    """Log-odds of the secrets of a stretch, all states outside it known; without outputs those before anything."""
    k, before, after = len(chain), int(states[first - 1]), int(states[first + ticks])
    shares = np.zeros((k, 1))
    shares[before, 0] = 1.0
    onset = np.zeros((k, 2))
    onset[before, 0] = 1.0
    for begin, length, emission, weigh in _pieces(states, outputs, first, ticks, inside, counted):
        moves = _moves(chain, emission, inside, length)  # [from, to, onset, count]
        moves *= weigh(np.arange(length + 1))
        plain = moves.sum(axis=2)
        grown = np.zeros((k, begin - first + length + 1))
        for x in range(k):
            for y in range(k):
                grown[y] += np.convolve(shares[x], plain[x, y])
        shares = grown
        began = moves.sum(axis=3)
        onset = np.stack(
            [
                np.einsum("x,xy->y", onset[:, 0], began[:, :, 0]),
                np.einsum("xo,xyp->y", onset, began) - np.einsum("x,xy->y", onset[:, 0], began[:, :, 0]),
            ],
            axis=1,
        )
        scale = shares.max()
        shares, onset = shares / scale, onset / scale
    total = chain[:, after] @ shares
    began_at_all = chain[:, after] @ onset
    numbers = np.arange(ticks + 1)
    return (
        _log_odds(total[numbers > usual].sum(), total[numbers <= usual].sum()),
        _log_odds(total[2 * numbers >= ticks].sum(), total[2 * numbers < ticks].sum()),
        _log_odds(began_at_all[1], began_at_all[0]),
    )


def _log_odds(yes: float, no: float) -> float:
    with np.errstate(divide="ignore"):
        return float(np.log(max(yes, 0.0)) - np.log(max(no, 0.0)))


def _moves(chain: Floats, emission: Floats | None, inside: Bools, length: int) -> Floats:
    """(k, k, 2, length + 1): weights of moves through so many ticks, by whether a counted state began and the count."""
    k = len(chain)
    moves = np.zeros((k, k, 2, length + 1))
    moves[np.arange(k), np.arange(k), 0, 0] = 1.0
    begins = ~inside[:, None] & inside[None, :]
    for tick in range(length):
        kept = np.einsum("axoc,xy->ayoc", moves, np.where(begins, 0.0, chain))
        began = np.einsum("axoc,xy->ayc", moves, np.where(begins, chain, 0.0))
        kept[:, :, 1] += began
        if emission is not None:
            kept *= emission[tick][None, :, None, None]
        moves = kept
        moves[:, inside, :, 1:] = kept[:, inside, :, :-1]
        moves[:, inside, :, 0] = 0.0
    return moves


class _Weigh(NamedTuple):
    """The likelihood of a noisy count by how many ticks of a piece are counted: what `rest` would be without noise."""

    rest: float = 0.0
    scale: float = math.inf

    def __call__(self, counts: Ints) -> Floats:
        return np.asarray(np.exp(-np.abs(self.rest - counts) / self.scale))


def _pieces(
    states: Ints, outputs: Outputs | None, first: int, ticks: int, inside: Bools, counted: tuple[int, ...]
) -> Iterator[tuple[int, int, Floats | None, _Weigh]]:
    """Parts of a stretch, each in one window or in none: begin, length, likelihoods (length, k) of symbols, weights."""
    if outputs is None:
        yield first, ticks, None, _Weigh()
        return
    seen = outputs.seen() if isinstance(outputs, CountOutputs) else outputs
    emission = None
    if (seen.symbols[first : first + ticks] >= 0).any():
        symbols = seen.symbols[first : first + ticks]
        emission = np.where(symbols[:, None] >= 0, seen.emission.T[np.maximum(symbols, 0)], 1.0)
    if not isinstance(outputs, CountOutputs):
        yield first, ticks, emission, _Weigh()
        return
    windows = outputs.windows()[first : first + ticks]
    edges = [0, *(np.flatnonzero(np.diff(windows)) + 1).tolist(), ticks]
    group = outputs.groups.index(counted)
    for low, high in pairwise(edges):
        part = None if emission is None else emission[low:high]
        if (number := int(windows[low])) < 0:
            yield first + low, high - low, part, _Weigh()
            continue
        begin, end = int(outputs.first[number]), int(outputs.first[number]) + outputs.length
        outside = np.concatenate([states[begin : first + low], states[first + high : end]])
        known = int(inside[outside[outside >= 0]].sum())
        yield first + low, high - low, part, _Weigh(float(outputs.counts[number, group]) - known, float(outputs.scale))
