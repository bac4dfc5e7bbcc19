"""Real loss of a stream, tick by tick, never exceeds its guarantee."""

from __future__ import annotations

import numpy as np
import pytest

from edge_agent.randomiser import randomiser, system_entropy
from edge_agent.sensors.replay import read_recording
from fugu.chains import posterior_marginals, simulate, stationary_distribution
from fugu.contract.chains import BinaryChains
from fugu.contract.losses import Adversary
from fugu.privacy.randomised_response import Calibration, calibrate
from fugu_cli.demo.evaluation import RECORDINGS


def evidence(calibration: Calibration, q: float, r: float, symbols: np.ndarray) -> np.ndarray:
    transition = np.array([[1 - q, q], [r, 1 - r]])
    emission = np.array(calibration.table.weights()) / 2**32
    prior = stationary_distribution(transition)
    posterior = posterior_marginals(symbols, prior, transition, emission)
    return np.log(posterior[:, 0] / posterior[:, 1]) - np.log(prior[0] / prior[1])


def assert_within(calibration: Calibration, ratios: np.ndarray) -> None:
    assert ratios.max() <= calibration.loss.epsilon_01 + 1e-12
    assert -ratios.min() <= calibration.loss.epsilon_10 + 1e-12


@pytest.mark.parametrize("adversary", ["ignorant", "informed", "universal"])
@pytest.mark.parametrize(
    ("q", "r"),
    [(0.2, 0.35), (0.01, 0.3), (0.7, 0.6)],
)
@pytest.mark.parametrize("epsilon", [0.5, 6.0])
def test_simulated_streams(q: float, r: float, epsilon: float, adversary: Adversary) -> None:
    calibration = calibrate(BinaryChains(q=(q, q), r=(r, r)), epsilon, adversary)
    transition = np.array([[1 - q, q], [r, 1 - r]])
    emission = np.array(calibration.table.weights()) / 2**32
    path = simulate(5_000, stationary_distribution(transition), transition, emission, np.random.default_rng(11))
    assert_within(calibration, evidence(calibration, q, r, path.symbols))
    gaps = np.where(np.random.default_rng(12).random(5_000) < 0.1, -1, path.symbols)
    assert_within(calibration, evidence(calibration, q, r, gaps))


@pytest.mark.parametrize(("q", "r"), [(0.2, 0.35), (0.01, 0.3), (0.7, 0.6)])
def test_the_worst_outputs_come_close(q: float, r: float) -> None:
    """The test above can fail: constant (or alternating) outputs reach the ignorant bound."""
    calibration = calibrate(BinaryChains(q=(q, q), r=(r, r)), 2.0, "ignorant")
    tick = np.arange(2001)
    worst = (tick + tick[1000]) % 2 if q + r > 1 else np.zeros(2001, dtype=np.int64)
    for symbols in (worst, 1 - worst):
        ratios = evidence(calibration, q, r, symbols)
        assert_within(calibration, ratios)
        assert np.abs(ratios).max() > 2.0 - 1e-6


@pytest.mark.long
@pytest.mark.parametrize("name", ["N10", "N05", "N07"])
def test_recorded_hearts_through_the_devices_randomiser(name: str) -> None:
    states = np.array(read_recording(RECORDINGS / f"hr_sleep_{name}.csv.gz", "state"), dtype=np.int64)
    before, after = states[:-1], states[1:]
    q, r = float(after[before == 0].mean()), float((1 - after[before == 1]).mean())
    calibration = calibrate(BinaryChains(q=(q * 0.8, q * 1.2), r=(r * 0.8, r * 1.2)), 1.0)
    draw = randomiser(calibration.table, system_entropy())
    symbols = np.array([draw(int(state)) for state in states])
    for inside_q, inside_r in ((q, r), (q * 0.8, r * 0.8), (q * 1.2, r * 0.8)):
        assert_within(calibration, evidence(calibration, inside_q, inside_r, symbols))
