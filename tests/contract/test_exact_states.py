"""States by integers are those that doubles have: at every edge, from both sides, whatever came before."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from fugu.contract.classify import ON_OFF
from fugu.contract.discretisers import Thresholds
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


def double(discretiser: Thresholds, reading: Any) -> float:
    """A reading as a double, and none as NaN; a word for off or on is a number where one edge tells them apart."""
    if isinstance(reading, str) and len(discretiser.edges) == 1 and 0.0 < discretiser.edges[0] <= 1.0:
        reading = ON_OFF.get(reading, reading)
    try:
        return float(reading)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return math.nan


@pytest.mark.parametrize("seed", range(40))
def test_a_place_among_all_doubles_tells_what_the_double_tells(seed: int) -> None:
    generator = random.Random(seed)
    discretiser = thresholds(generator)
    core, last, before = classifier_of(discretiser.model_dump(mode="json")), -1, None
    for tick in sorted(generator.sample(range(500), 200)):
        reading = near(generator, discretiser)
        value, state = double(discretiser, reading), None
        if tick - last - 1 > discretiser.hysteresis_ticks:
            before = None
        if not math.isnan(value):
            state, by = bisect_right(discretiser.edges, value), discretiser.hysteresis
            if before is not None and by:
                up, down = (bisect_right(discretiser.edges, each) for each in (value - by, value + by))
                state = max(before, up) if state > before else min(before, down)
            last, before = tick, state
        assert core.observe(tick, reading) == state, (discretiser, tick, reading)
        assert core.observe(tick, 1.0) == state, "a tick that is asked for again keeps its state"
