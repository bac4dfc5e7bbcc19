"""A reading never shows its value, whatever it is."""

from __future__ import annotations

import copy
import pickle

import pytest

from edge_agent.sensors.source import Reading

SECRET = 71.5319


def test_a_reading_never_shows_its_value() -> None:
    reading = Reading(SECRET)
    shown = [repr(reading), str(reading), f"{reading}", f"{reading:>20}", "%s" % reading, repr([reading])]  # noqa: UP031
    assert not any("71" in text for text in shown)
    with pytest.raises(TypeError):
        pickle.dumps(reading)
    with pytest.raises(TypeError):
        copy.copy(reading)
