"""The symbols of one stream as the page received them, and what attackers make of them: what the page is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from contract.descriptions import Description
from contract.frames import SymbolFrame
from gateway.dashboard.attacker import ALL_SYMBOLS, MOST_TICKS, ONE_SYMBOL, AttackerError, attacked, chains_of

__all__ = ["AttackView"]

_MOST_SHOWN = 8
"""Bands of states."""
_ROUNDING = 1e-9


class AttackView:
    """Keeps the newest symbols of a stream, of whichever policy, and its newest description."""

    def __init__(self) -> None:
        self._told: Description | None = None
        self._ticks: dict[int, tuple[int, int, int]] = {}
        self._changed = False

    def describe(self, told: Description) -> None:
        """Read symbols as those of this policy from now on; those of other versions wait."""
        self._told, self._changed = told, True

    def take(self, frame: SymbolFrame) -> None:
        """Symbols that have come, late or again ones, too."""
        for tick, symbol in enumerate(
            frame.symbols[-MOST_TICKS:], frame.first + max(0, len(frame.symbols) - MOST_TICKS)
        ):
            self._ticks[tick] = (frame.policy_version, symbol, frame.shift)
        begin = max(self._ticks) - MOST_TICKS
        self._ticks = {tick: self._ticks[tick] for tick in sorted(self._ticks) if tick > begin}
        self._changed = True

    def due(self) -> Callable[[], dict[str, Any]] | None:
        """What computes the news, without looking at this object again; none if there are none."""
        if not self._changed or self._told is None:
            return None
        self._changed = False
        told = self._told
        ticks = {tick: one for tick, one in self._ticks.items() if one[0] == told.version}
        return lambda: {"kind": "attack", "stream": told.stream, "version": told.version, **_news(told, ticks)}


def _news(told: Description, ticks: dict[int, tuple[int, int, int]]) -> dict[str, Any]:
    """What the page is told: bands, or a sentence where no attacker applies."""
    try:
        chains = chains_of(told)
        if not ticks:
            return {"waits": True}
        first, last = min(ticks), max(ticks)
        found = attacked(told, chains, [ticks[t][1] if t in ticks else -1 for t in range(first, last + 1)])
    except AttackerError as error:
        return {"none": str(error)}
    except (ValueError, ArithmeticError, IndexError):
        return {"none": "The description of the stream holds no table that an attacker could read."}
    shown = [1] if len(told.states) == 2 else list(range(min(len(told.states), _MOST_SHOWN)))
    shifts = [ticks[t][2] if t in ticks else 0 for t in range(first, last + 1)]
    for i in range(1, len(shifts)):
        shifts[i] = max(shifts[i], shifts[i - 1])  # it only grows, and is not said of a tick without a symbol
    times = [(told.epoch_us + (first + i - shift) * told.period_us) / 1e6 for i, shift in enumerate(shifts)]
    return {
        "attacker": ALL_SYMBOLS,
        "alone": ONE_SYMBOL,
        "believes": "the typical chain" if told.chains is not None and told.chains.kind == "bounded" else found.chains,
        "symbols": len(ticks),
        "states": [told.states[x] for x in shown],
        "times": times,
        "low": [[_rounded(row[x]) for row in found.low] for x in shown],
        "high": [[_rounded(row[x]) for row in found.high] for x in shown],
        "low_alone": [_rounded(found.low_alone[x]) for x in shown],
        "high_alone": [_rounded(found.high_alone[x]) for x in shown],
        "least": [_rounded(found.least[x]) for x in shown],
        "most": [_rounded(found.most[x]) for x in shown],
        "guesses": [told.states[x] for x in found.guesses],
        "epsilon": told.guarantee.epsilon,
        "beyond": any(
            low < least - _ROUNDING or high > most + _ROUNDING
            for rows in zip(found.low, found.high, strict=True)
            for low, high, least, most in zip(*rows, found.least, found.most, strict=True)
        ),
    }


def _rounded(probability: float) -> float:
    return round(probability, 4)
