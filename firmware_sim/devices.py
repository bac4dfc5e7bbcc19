"""Folders for simulated devices, and the agents that run in them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from fugu.contract.discretisers import Baseline, Categories, Cells, Thresholds
from fugu.contract.policies import AnyPolicy
from fugu.host.toml_file import toml_lines
from fugu.mqtt import Broker

__all__ = ["simulate_recording", "write_config"]


def write_config(
    folder: Path, options: dict[str, object], broker: Broker, sensors: Mapping[str, dict[str, object]]
) -> Path:
    """Write an agent's configuration file into a folder; `sensors` has the sensor for each policy file."""
    lines = [*toml_lines(options), "[broker]", *toml_lines(asdict(broker))]
    for policy_file, sensor in sensors.items():
        lines += ["[[streams]]", *toml_lines({"policy": policy_file}), "[streams.sensor]", *toml_lines(sensor)]
    path = folder / "agent.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def simulate_recording(path: Path, policy: AnyPolicy, states: Sequence[int]) -> None:
    """Write readings that the policy's discretiser turns into the given states, as a CSV file with a column `value`.

    For a baseline, readings without a state come first, one for each of its ticks. Readings of bands that its range has
    no room for are clipped to the range.
    """
    discretiser, readings = policy.discretiser, list[object]()
    if isinstance(discretiser, Baseline):
        readings, states = _readings_around_mean(discretiser, states), range(discretiser.baseline_ticks + len(states))
    else:
        readings = readings_of_states(discretiser)
    with path.open("w", newline="") as csv_file:
        writer = csv.writer(csv_file)
        writer.writerow(["t", "value"])
        writer.writerows([tick, readings[state]] for tick, state in enumerate(states))


def readings_of_states(discretiser: Categories | Cells | Thresholds) -> list[object]:
    """Return one reading of each state."""
    match discretiser:
        case Categories():
            names = {state: name for name, state in reversed(discretiser.categories.items())}
            return [names.get(state, "") for state in range(len(discretiser.states))]
        case Cells():
            (lat, lon), (height, width) = discretiser.origin, discretiser.step
            return [f"{lat + (row + 0.5) * height},{lon + (column + 0.5) * width}" for column, row in discretiser.cells]
    edges, margin = discretiser.edges, discretiser.hysteresis + 1.0
    return [edges[0] - margin, *[(low + high) / 2 for low, high in pairwise(edges)], edges[-1] + margin, ""]


def _readings_around_mean(discretiser: Baseline, states: Sequence[int]) -> list[object]:
    edges, lowest, highest = discretiser.edges, discretiser.lowest, discretiser.highest
    is_multiple, margin = discretiser.compare == "multiple", (highest - lowest) / 8
    ends = (edges[0] / 2, edges[-1] * 2) if is_multiple else (edges[0] - margin, edges[-1] + margin)
    offsets = [ends[0], *((low + high) / 2 for low, high in pairwise(edges)), ends[1]]
    mean = (lowest + highest) / 2
    readings: list[object] = [mean] * discretiser.baseline_ticks
    for state in states:
        reading = min(max(mean * offsets[state] if is_multiple else mean + offsets[state], lowest), highest)
        mean += (reading - mean) / discretiser.baseline_ticks
        readings.append(reading)
    return readings
