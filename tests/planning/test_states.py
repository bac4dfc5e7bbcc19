"""The states of a recording are those that a device has which reads it."""

from __future__ import annotations

import numpy as np
import pytest

from fugu.chains.arrays import Ints
from fugu.contract.classify import ON_OFF
from fugu.contract.discretisers import Baseline, Categories, Cells, Discretiser, Thresholds
from fugu.planning.states import states_of
from tests.support.classifiers import classifier_of

PULSE = Baseline(baseline_ticks=5, lowest=40.0, highest=200.0)
NUMBERS: tuple[Discretiser, ...] = (
    PULSE,
    PULSE.model_copy(update={"states": ("below", "above", "gone"), "missing": "gone"}),
    Baseline(baseline_ticks=3, lowest=0.0, highest=9e9, compare="multiple", edges=(0.5, 2.0), states=("a", "b", "c")),
    Thresholds(edges=(70.0, 90.0), states=("a", "b", "c"), hysteresis=4.0, hysteresis_ticks=1),
    Thresholds(edges=(70.0, 90.0), states=("a", "b", "c")),
)


def segments(*lengths: int) -> Ints:
    return np.repeat(np.arange(len(lengths)), lengths)


@pytest.mark.parametrize("discretiser", NUMBERS, ids=lambda rule: rule.kind)
def test_every_stretch_is_read_as_by_a_device_that_was_started_for_it(discretiser: Discretiser) -> None:
    rng = np.random.default_rng(8)
    readings = rng.normal(80.0, 20.0, 600) * 10.0 ** rng.choice([0, 0, 0, 0, 300, -300], 600)
    readings[rng.random(600) < 0.2] = np.nan
    stretches, expected = np.split(readings, [100, 102, 350]), []
    for stretch in stretches:
        device = classifier_of(discretiser.model_dump(mode="json"))
        expected += [device.observe(1000 + tick, float(value)) for tick, value in enumerate(stretch)]
    states = states_of(discretiser, readings, segments(100, 2, 248, 250))
    assert states.tolist() == [-1 if state is None else state for state in expected]
    assert set(states.tolist()) >= {-1, 0, 1}
    assert states_of(discretiser, readings.tolist(), segments(100, 2, 248, 250)).tolist() == states.tolist()


def test_names_and_places_are_readings_too() -> None:
    names = ["on", "OFF", "unavailable", None, True, "not_home", " Open ", "1", ""]
    words = Categories(categories=ON_OFF | {"0": 0, "1": 1}, states=("off", "on"))
    assert states_of(words, names, segments(9)).tolist() == [1, 0, -1, -1, 1, 0, 1, 1, -1]
    cells = Cells(origin=(0.0, 0.0), step=(1.0, 1.0), cells=((0, 0), (1, 0)), states=("west", "east"))
    assert states_of(cells, ["0.5,0.5", "0.5 1.5", None], segments(3)).tolist() == [0, 1, -1]


def test_a_recording_of_nothing_has_no_states() -> None:
    assert states_of(PULSE, [], segments()).tolist() == []
    with pytest.raises(ValueError, match="3 readings and 2 segments"):
        states_of(PULSE, [1, 2, 3], segments(2))
