"""Estimates of ticks from symbols and a window's noisy count: exact, whatever came first, used where all is here."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from fugu.chains.arrays import Floats
from fugu.contract.frames import SymbolFrame, WindowFrame, sequence_name
from fugu.contract.policy import Policy
from fugu.contract.windows import Window
from gateway.estimates.history import CountedEstimates, estimated_window
from gateway.estimates.models import model_of
from gateway.estimates.past import TickProbabilities
from gateway.journal.arrivals import Received
from gateway.store.coverage import Place
from tests.support.scenes import Scene, catalogue, policy

LAG = 2
HIGH = Window(name="high", length=5, stride=5, start=1, states=(1,), scale="2")
BARS = Window(name="bars", length=5, stride=5, start=1, states="histogram", scale="3")
SYMBOLS = (1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0)


def symbols(first: int, last: int, previous: int | None = None) -> SymbolFrame:
    return SymbolFrame(1, first - 1 if previous is None else previous, first, bytes(SYMBOLS[first : last + 1]))


def window(index: int, *counts: int, name: str = "high", observed: int = 5) -> WindowFrame:
    return WindowFrame(1, name, index - 1, index, 1 + 5 * index, 5, observed, counts)


def scene(folder: Path, *windows: Window) -> Scene:
    return Scene(folder / "s.sqlite", lag=LAG, policies=(policy(1, windows=windows),))


def record(here: Scene, *some: SymbolFrame | WindowFrame, sealed: bool = False) -> None:
    for one in some:
        here.receive([Received("watch", "hr", one)])
        if sealed:
            here.recorder.seal(now=True)


def run(here: Scene, index: int, kind: str = "high") -> TickProbabilities | None:
    """What a window and the symbols of its ticks determine together."""
    number = here.store.stream_id("watch", sequence_name("hr", kind))
    assert number is not None
    counted = CountedEstimates(here.store, catalogue(here.policies), LAG)
    return counted.run(Place(number, "watch", "hr"), index)


def found(here: Scene, index: int, kind: str = "high") -> TickProbabilities:
    there = run(here, index, kind)
    assert there is not None
    return there


def enumerated(made: Policy, end: int, first: int, released: tuple[int, ...]) -> Floats:
    """The distribution of ticks first..first+4 given all symbols up to `end` and a count, by all paths."""
    model = model_of(made)
    (one,) = made.windows
    scale = float(Fraction(one.scale))
    total = np.zeros((end + 1, 2))
    for path in product(range(2), repeat=end + 1):
        weight = model.initial[path[0]] * np.prod([model.transition[a, b] for a, b in pairwise(path)])
        weight *= np.prod([model.emission[x, z] for x, z in zip(path, SYMBOLS, strict=False)])
        count = sum(path[first : first + 5])
        true = (5 - count, count) if one.states == "histogram" else (count,)
        weight *= np.exp(-sum(abs(a - b) for a, b in zip(true, released, strict=True)) / scale)
        total[np.arange(end + 1), path] += weight
    return np.asarray((total / total.sum(axis=1, keepdims=True))[first : first + 5])


@pytest.mark.long
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(("one", "released"), [(HIGH, (4,)), (HIGH, (-3,)), (BARS, (5, 1))])
def test_the_estimates_are_those_of_all_paths(
    tmp_path: Path, one: Window, released: tuple[int, ...], sealed: bool
) -> None:
    here = scene(tmp_path, one)
    record(here, symbols(0, 3), symbols(4, 9), window(0, *released, name=one.name), sealed=sealed)
    counted = found(here, 0, one.name)
    assert counted.first == 1
    wanted = enumerated(policy(1, windows=(one,)), 5 + LAG, 1, released)
    assert np.allclose(counted.probabilities, wanted, atol=1e-6)
    alone = here.recorder.symbols.past.estimates(Place(here.store.stream_id("watch", "hr") or 0, "watch", "hr"))
    rows = {each.first + i: row for each in alone for i, row in enumerate(each.probabilities)}
    assert not np.allclose([rows[tick] for tick in range(1, 6)], wanted, atol=1e-3), "the count says nothing"


@pytest.mark.long
@pytest.mark.parametrize("sealed", [False, True])
def test_a_window_in_the_middle_begins_at_what_the_symbols_before_say(tmp_path: Path, sealed: bool) -> None:
    here = scene(tmp_path, HIGH)
    record(here, symbols(0, 3), symbols(4, 8), symbols(9, 11), window(0, 2), sealed=sealed)
    assert run(here, 0) is not None
    record(here, window(1, 5))
    assert run(here, 1) is None, "two ticks after the window's end are not here yet"
    made = policy(1, windows=(Window(name="high", length=5, stride=5, start=4, states=(1,), scale="2"),))
    here = Scene(tmp_path / "c.sqlite", lag=LAG, policies=(made,))
    counted = WindowFrame(1, "high", -1, 0, 4, 5, 5, (5,))
    record(here, symbols(0, 1), symbols(2, 6), symbols(7, 11), counted, sealed=sealed)
    assert np.allclose(found(here, 0).probabilities, enumerated(made, 8 + LAG, 4, (5,)), atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_the_last_that_is_told_does_not_depend_on_what_came_first(tmp_path: Path, seed: int) -> None:
    parts = [symbols(0, 2), symbols(3, 4), symbols(5, 7), symbols(8, 11), window(0, 4)]
    random.Random(seed).shuffle(parts)
    here = scene(tmp_path, HIGH)
    record(here, *parts, sealed=seed % 2 == 0)
    wanted = enumerated(policy(1, windows=(HIGH,)), 5 + LAG, 1, (4,))
    assert np.allclose(found(here, 0).probabilities, wanted, atol=1e-6)


def test_a_window_of_which_a_part_is_missing_is_not_used(tmp_path: Path) -> None:
    here = scene(tmp_path, HIGH)
    record(here, symbols(0, 2), symbols(4, 11, previous=2), window(0, 4))
    assert run(here, 0) is None, "tick 3 has no symbol"
    cut = Scene(tmp_path / "cut.sqlite", lag=LAG, policies=here.policies)
    record(cut, symbols(0, 11), window(0, 4, observed=4))
    assert run(cut, 0) is None, "the device has not counted every tick"


def test_one_window_is_used_the_one_with_the_least_noise() -> None:
    least = Window(name="least", length=300, stride=300, states=(1,), scale="1")
    others = (
        HIGH,
        Window(name="long", length=301, stride=301, states=(1,), scale="1/2"),
        Window(name="sliding", length=10, stride=5, states=(1,), scale="1/2"),
    )
    assert estimated_window(policy(1, windows=(*others, least))) == least
    assert estimated_window(policy(1, windows=others)) == HIGH
    assert estimated_window(policy(1)) is None
