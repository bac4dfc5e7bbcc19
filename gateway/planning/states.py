"""The states of a recording, as a device that reads it has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from contract.classify import Classifier
from contract.discretisers import Discretiser
from gateway.chain.arrays import Floats, Ints

__all__ = ["states_of"]


def states_of(discretiser: Discretiser, readings: Sequence[object] | Floats, segments: Ints) -> Ints:
    """Run a discretiser over a recording, tick by tick, with the code that devices run.

    Args:
        readings: (n,) of whatever a sensor gives; None, NaN and what else is unusable is a tick without a reading.
        segments: (n,) equal inside a stretch of consecutive ticks; each stretch begins like a device that was started.

    Returns:
        (n,) states; -1 where there is none.

    Raises:
        ValueError: there is not one segment for each reading.
    """
    if len(readings) != len(segments):
        raise ValueError(f"{len(readings)} readings and {len(segments)} segments")
    classifier = Classifier(discretiser.model_dump(mode="json"))
    observe = classifier.observe
    begins = np.ones(len(segments), dtype=np.bool_)
    begins[1:] = segments[1:] != segments[:-1]
    states = np.full(len(readings), -1, dtype=np.int64)
    values = readings.tolist() if isinstance(readings, np.ndarray) else readings
    for tick, (value, begin) in enumerate(zip(values, begins.tolist(), strict=True)):
        if begin:
            classifier.restart()
        if (state := observe(tick, value)) is not None:
            states[tick] = state
    return states
