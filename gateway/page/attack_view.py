"""The messages of one stream as the page received them, and what attackers make of them: what the page is told."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fugu.contract.descriptions import Description
from fugu.contract.errors import FuguError
from fugu.contract.frames import SymbolFrame
from fugu.contract.window_frames import WindowFrame
from gateway.page.attackers import (
    EVERYTHING,
    MOST_TICKS,
    ONE_SYMBOL,
    ONE_WINDOW,
    AttackerError,
    CountAttack,
    attacked,
    chains_of,
    moved,
)

__all__ = ["AttackView"]

_MOST_SHOWN = 8
"""Bands of states."""
_MOST_WINDOWS = 240
_ROUNDING = 1e-9


class _Symbol(NamedTuple):
    version: int
    symbol: int
    shift: int


class AttackView:
    """Keeps the newest symbols and counts of a stream, of whichever policy, and its newest description."""

    def __init__(self) -> None:
        self._told: Description | None = None
        self._ticks: dict[int, _Symbol] = {}
        self._windows: dict[tuple[str, int], WindowFrame] = {}
        self._counts: tuple[Description, CountAttack] | None = None
        self._changed = False

    def describe(self, told: Description) -> None:
        """Read messages as those of this policy from now on; those of other versions wait."""
        self._told, self._changed = told, True

    def take(self, frame: SymbolFrame) -> None:
        """Symbols that have come, late or again ones, too."""
        first = frame.first + max(0, len(frame.symbols) - MOST_TICKS)
        for tick, symbol in enumerate(frame.symbols[-MOST_TICKS:], first):
            self._ticks[tick] = _Symbol(frame.policy_version, symbol, frame.shift)
        begin = max(self._ticks) - MOST_TICKS
        self._ticks = {tick: self._ticks[tick] for tick in sorted(self._ticks) if tick > begin}
        self._changed = True

    def take_window(self, frame: WindowFrame) -> None:
        """A count that has come, of a window through all of which the device ran; others are not read."""
        if frame.observed == frame.length:
            self._windows[frame.window, frame.first] = frame
            if len(self._windows) > _MOST_WINDOWS:
                del self._windows[min(self._windows, key=lambda one: one[1])]
            self._changed = True

    def due(self) -> Callable[[], dict[str, Any]] | None:
        """What computes the update, in a thread that no other such thing runs in; `None` if there are none."""
        if not self._changed or self._told is None:
            return None
        self._changed = False
        told = self._told
        ticks = {tick: one for tick, one in self._ticks.items() if one.version == told.version}
        windows = [self._windows[key] for key in sorted(self._windows, key=lambda one: one[1])]
        return lambda: {
            "kind": "attack",
            "stream": told.stream,
            "version": told.version,
            **self._update(told, ticks, windows),
        }

    def _update(self, told: Description, ticks: Mapping[int, _Symbol], windows: list[WindowFrame]) -> dict[str, Any]:
        try:
            if told.kind == "windows":
                if self._counts is None or self._counts[0] is not told:
                    self._counts = told, CountAttack(told)
                return _of_counts(told, self._counts[1], windows)
            return _of_symbols(told, ticks)
        except AttackerError as error:
            return {"none": str(error)}
        except (FuguError, ValueError, ArithmeticError, IndexError):
            return {"none": "The description of the stream does not fit together: no attacker can read it."}


def _of_symbols(told: Description, ticks: Mapping[int, _Symbol]) -> dict[str, Any]:
    chains = chains_of(told)
    if not ticks:
        return {"waits": True}
    first, last = min(ticks), max(ticks)
    found = attacked(told, chains, [ticks[t].symbol if t in ticks else -1 for t in range(first, last + 1)])
    shown = [1] if len(told.states) == 2 else list(range(min(len(told.states), _MOST_SHOWN)))
    shifts = [ticks[t].shift if t in ticks else 0 for t in range(first, last + 1)]
    for i in range(1, len(shifts)):
        shifts[i] = max(shifts[i], shifts[i - 1])  # it only grows, and is not said of a tick without a symbol
    return {
        **_common(told, found.chains),
        "read": f"the {len(ticks)} newest symbols that this page received, those after a moment, too"
        + (", and no counts beside them" if told.windows else ""),
        "alone": ONE_SYMBOL,
        "alone_read": "the newest symbol and nothing else",
        "states": [told.states[x] for x in shown],
        "times": [_seconds(told, first + i - shift) for i, shift in enumerate(shifts)],
        **_bands([[row[x] for row in found.low] for x in shown], [[row[x] for row in found.high] for x in shown]),
        "low_alone": [_rounded(found.low_alone[x]) for x in shown],
        "high_alone": [_rounded(found.high_alone[x]) for x in shown],
        **_allowed([(found.least[x], found.most[x]) for x in shown]),
        "guesses": [told.states[x] for x in found.guesses],
        "beyond": any(
            low < least - _ROUNDING or high > most + _ROUNDING
            for rows in zip(found.low, found.high, strict=True)
            for low, high, least, most in zip(*rows, found.least, found.most, strict=True)
        ),
    }


def _of_counts(told: Description, attack: CountAttack, windows: list[WindowFrame]) -> dict[str, Any]:
    counts = len(attack.window.groups(told.states))
    mine = [
        one
        for one in windows
        if (one.policy_version, one.window, one.length) == (told.version, attack.window.name, attack.window.length)
        and len(one.counts) == counts
    ]
    if not mine:
        return {"waits": True}
    shares = [attack.shares(one.counts) for one in mine]
    epsilon = math.inf if told.guarantee.epsilon is None else told.guarantee.epsilon
    least, most = moved(min(attack.priors), -epsilon), moved(max(attack.priors), epsilon)
    newest = shares[-1]
    return {
        **_common(told, attack.chains),
        "read": f"the counts of window {attack.window.name}, one window at a time: what is shown is the probability "
        "that any one tick of the window was in that state",
        "alone": ONE_WINDOW,
        "alone_read": "the newest count, and takes ticks for independent",
        "states": [attack.counted],
        "times": [_seconds(told, one.first + one.length - one.shift) for one in mine],
        **_bands([[one.low for one in shares]], [[one.high for one in shares]]),
        "low_alone": [_rounded(newest.low_alone)],
        "high_alone": [_rounded(newest.high_alone)],
        **_allowed([(least, most)]),
        "guesses": [attack.counted] * (newest.high >= 0.5) + [attack.others] * (newest.low < 0.5),
        "beyond": any(one.low < least - _ROUNDING or one.high > most + _ROUNDING for one in shares),
    }


def _common(told: Description, chains: int) -> dict[str, Any]:
    typical = told.chains is not None and told.chains.kind == "bounded"
    return {
        "attacker": EVERYTHING,
        "believes": "the typical chain" if typical else chains,
        "epsilon": told.guarantee.epsilon,
    }


def _bands(low: list[list[float]], high: list[list[float]]) -> dict[str, list[list[float]]]:
    return {"low": [[*map(_rounded, row)] for row in low], "high": [[*map(_rounded, row)] for row in high]}


def _allowed(ranges: list[tuple[float, float]]) -> dict[str, list[float]]:
    return {"least": [_rounded(low) for low, _ in ranges], "most": [_rounded(high) for _, high in ranges]}


def _seconds(told: Description, tick: int) -> float:
    """When a tick of the wall clock begins, in seconds of Unix time."""
    return (told.epoch_us + tick * told.period_us) / 1e6


def _rounded(probability: float) -> float:
    return round(probability, 4)
