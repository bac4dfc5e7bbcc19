"""Later points tell where a walk was: the errors of estimates that wait for them are below the filter's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fugu.chains.tracking import smooth_stream
from fugu.places.tables import emission
from fugu.planning.measure_planner import make_measure_plan
from fugu.planning.measure_spec import read_spec
from gateway.estimates.points import moments

SMALL = 'grid = "6x6"\ngraph = { radius = 1.0 }\nepsilon = 0.7\n'


@pytest.mark.long
def test_an_estimate_that_waits_errs_less_than_the_filter(tmp_path: Path) -> None:
    """On a simulated walk of 2000 ticks: 8 ticks later the error is 14 % below at least."""
    (tmp_path / "spec.toml").write_text(SMALL)
    gain = 0.86
    plan = make_measure_plan(read_spec(tmp_path / "spec.toml"), "ignorant", quick=True)
    generator = np.random.default_rng(7)
    transition, values = plan.spec.transition, plan.spec.values
    noise = plan.sets[-1].noise
    assert noise is not None
    distribution = emission(noise, values).probabilities
    path = [int(generator.integers(len(values)))]
    for _ in range(1999):
        path.append(int(generator.choice(len(values), p=transition[path[-1]])))
    seen = [distribution[:, generator.choice(distribution.shape[1], p=distribution[state])] for state in path]
    errors, spread = [], []
    for lag in (0, 2, 8):
        beliefs = smooth_stream(plan.prior, transition, seen, lag)
        means, covariances = moments(beliefs, values)
        errors.append(float(np.sqrt(np.mean(np.sum((means - values[path]) ** 2, axis=1)))))
        spread.append(float(np.sqrt(np.mean(covariances[:, 0] + covariances[:, 2]))))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < gain * errors[0]
    assert errors == pytest.approx(spread, rel=0.1), "estimates know how far off they are"
