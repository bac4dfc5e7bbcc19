"""The agent that several benchmarks measure: it replays a short recording with the noise for a sleeper's heart."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from gateways import binary_policy

from firmware_sim.devices import simulate_recording
from fugu.contract.chains import BinaryChains
from fugu.mqtt import Broker
from fugu.privacy.randomised_response import calibrate

sys.path.insert(0, str(Path(__file__).parents[1]))  # before packages that install a `tests` of their own

from tests.support.processes import write_device

__all__ = ["write_agent"]


def write_agent(
    folder: Path, broker: Broker, device: str, frame_ticks: int, epoch_us: int, period_us: int, **options: Any
) -> Path:
    """Write policy, recording and configuration of a device's agent, which begins again at the recording's end."""
    chains = BinaryChains(q=(0.08938, 0.08938), r=(0.10924, 0.10924))
    calibration = calibrate(chains, 1.0)
    noise = {"table": calibration.table, "chains": chains, "guarantee": calibration.guarantee}
    policy = binary_policy(device, frame_ticks, epoch_us, period_us).model_copy(update=noise)
    simulate_recording(folder / "readings.csv", policy, [0, 0, 1, 1] * 1000)
    return write_device(folder, policy, folder / "readings.csv", "value", broker, loop=True, **options)
