"""States by integers are those that doubles have: at every edge, from both sides, whatever came before."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from fugu.contract.discretisers import Baseline, Thresholds
from tests.support import naive_device
from tests.support.classifiers import classifier_of

_WHOLE = (0.0, -0.0, 5e-324, -5e-324, 1.7976931348623157e308, -1.7976931348623157e308, math.inf, -math.inf, math.nan)


def thresholds(generator: random.Random) -> Thresholds:
    """Edges of all sizes, with or without hysteresis; some are exact in binary, most are not."""
    size = 10.0 ** generator.choice((-320, -300, -3, 0, 0, 1, 6, 300))
    edges = sorted({generator.choice((0.0, 0.1, 0.3, generator.gauss(0.0, 3.0))) * size for _ in range(4)})
    gaps = [high - low for low, high in pairwise(edges)]
    by = generator.choice((0.0, 0.49, 0.1, 1e-9)) * min(gaps, default=size)
    names = tuple(map(str, range(len(edges) + 1)))
    return Thresholds(edges=tuple(edges), states=names, hysteresis=by, hysteresis_ticks=generator.choice((0, 2, 10)))


def near(generator: random.Random, discretiser: Thresholds) -> Any:
    """A reading at an edge, or where hysteresis ends, or a few doubles beside it; or something else altogether."""
    value = generator.choice(discretiser.edges) + generator.choice((-1, 0, 1)) * discretiser.hysteresis
    for _ in range(generator.randrange(4)):
        value = math.nextafter(value, generator.choice((-math.inf, math.inf)))
    odd = generator.choice((None, "x", "on", repr(value), 10**400, Fraction(1, 3), True, *_WHOLE))
    return generator.choice((value, value, value, value, generator.gauss(0.0, 5.0), odd))


def both(document: dict[str, Any], readings: list[tuple[int, Any]]) -> None:
    core, doubles = classifier_of(document), naive_device.Classifier(document)
    for tick, reading in readings:
        assert core.observe(tick, reading) == doubles.observe(tick, reading), (document, tick, reading)
        assert core.beginning == doubles.beginning
        assert core.observe(tick, 1.0) == doubles.observe(tick, 1.0), "a tick that is asked for again keeps its state"
    assert core.unusable == doubles.unusable


@pytest.mark.parametrize("seed", range(40))
def test_a_place_among_all_doubles_tells_what_the_double_tells(seed: int) -> None:
    generator = random.Random(seed)
    discretiser = thresholds(generator)
    ticks = sorted(generator.sample(range(500), 200))
    both(discretiser.model_dump(mode="json"), [(tick, near(generator, discretiser)) for tick in ticks])


@pytest.mark.parametrize("seed", range(20))
def test_a_step_of_a_range_is_that_of_the_double(seed: int) -> None:
    generator = random.Random(seed)
    low = generator.choice((0.0, 0.1, -3.7, 30.0))
    high = low + generator.choice((1e-9, 1.0, 200.0, 1e9))
    kind: dict[str, Any] = {"compare": "difference", "edges": ((low - high) / 7, 0.0, 0.1 * (high - low))}
    if low >= 0.0 and seed % 2:
        kind = {"compare": "multiple", "edges": (0.5, 1.0, 1.1)}
    kind["states"] = ("a", "b", "c", "d")
    missing = generator.choice((None, "b"))
    discretiser = Baseline(baseline_ticks=generator.choice((1, 7)), lowest=low, highest=high, missing=missing, **kind)
    readings: list[tuple[int, Any]] = []
    for tick in sorted(generator.sample(range(500), 200)):
        at = low + (high - low) * generator.choice((0.0, 1.0, generator.random(), generator.randrange(2**20) / 2**20))
        readings.append((tick, generator.choice((at, at, at, None, "x", 10**400, *_WHOLE))))
    both(discretiser.model_dump(mode="json"), readings)
