"""What the subscriber received, held against the truth that only the recordings know."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from contract.policy import Policy
from fugu.demo.attack import Attack, Price, attack, price
from fugu.demo.counts import GroupRelease, WindowErrors, group_release, window_errors
from fugu.demo.people import Person
from fugu.demo.processes import DemoError

__all__ = ["DemoError", "DeviceResult", "Result", "evaluate"]

_PRICE_EPSILONS = (1.0, 2.0, 4.0)
_LEAST_SYMBOLS = 100


@dataclass(frozen=True)
class DeviceResult:
    """What the run showed for one device.

    Attributes:
        states: true state of each tick that the device was to send.
        symbols: symbol that the subscriber received for each of them, -1 for none.
        estimates: the gateway's probability of state 1 as received, NaN for none.
        honest: how often the gateway's most likely state was the true one.
        attack: what attackers got.
        prices: accuracy at several epsilons.
        windows: the counts that the device released.
    """

    person: Person
    states: npt.NDArray[np.int64]
    symbols: npt.NDArray[np.int64]
    estimates: npt.NDArray[np.float64]
    honest: float
    attack: Attack
    prices: Sequence[Price]
    windows: WindowErrors


class Result(NamedTuple):
    """What the run showed: for each device, and for the gateway's releases in their order."""

    devices: Sequence[DeviceResult]
    releases: Sequence[GroupRelease]


class _Received(NamedTuple):
    """What the subscriber printed: by device, symbols and estimates by tick, windows as they are; and releases."""

    symbols: dict[str, npt.NDArray[np.int64]]
    estimates: dict[str, npt.NDArray[np.float64]]
    windows: dict[str, list[Mapping[str, Any]]]
    releases: list[Mapping[str, Any]]


def evaluate(people: Sequence[Person], policies: Mapping[str, Policy], readings: Path) -> Result:
    """Compare what arrived with the recordings.

    Args:
        people: the recordings.
        policies: by device.
        readings: what `fugu subscribe --json` printed.

    Raises:
        DemoError: next to nothing of a device arrived.
    """
    received = _read(people, readings)
    devices = [_device(person, policies[person.device], received) for person in people]
    releases = [group_release(people, received.symbols, reading) for reading in received.releases]
    return Result(devices, sorted(releases, key=lambda release: release.frame.entry))


def _read(people: Sequence[Person], readings: Path) -> _Received:
    received = _Received(
        {person.device: np.full(len(person.states), -1, dtype=np.int64) for person in people},
        {person.device: np.full(len(person.states), np.nan) for person in people},
        {person.device: [] for person in people},
        [],
    )
    for line in readings.read_text().splitlines():
        reading = json.loads(line)
        kind = reading["kind"]
        if kind == "release":
            received.releases.append(reading)
        elif kind == "window":
            received.windows[reading["device"]].append(reading)
        elif reading["tick"] >= len(received.symbols[reading["device"]]):
            continue
        elif kind == "symbol":
            received.symbols[reading["device"]][reading["tick"]] = reading["symbol"]
        else:
            received.estimates[reading["device"]][reading["tick"]] = reading["probabilities"][1]
    return received


def _device(person: Person, policy: Policy, received: _Received) -> DeviceResult:
    symbols = received.symbols[person.device]
    known = np.flatnonzero(symbols >= 0)
    if len(known) < _LEAST_SYMBOLS:
        raise DemoError(f"only {len(known)} symbols of {person.device} reached the subscriber")
    ticks = slice(int(known[0]), int(known[-1]) + 1)
    states, sent, estimate = person.states[ticks], symbols[ticks], received.estimates[person.device][ticks]
    estimated = ~np.isnan(estimate)
    honest = float(((estimate[estimated] > 0.5) == states[estimated]).mean())
    generator = np.random.default_rng(2020)
    prices = [price(person, epsilon, generator) for epsilon in _PRICE_EPSILONS]
    return DeviceResult(
        person,
        states,
        sent,
        estimate,
        honest,
        attack(person, policy, states, sent, generator),
        prices,
        window_errors(person, policy, symbols, received.windows[person.device]),
    )
