"""Counts that were released with noise, held against the truth: windows of one device, and sums over all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contract.guarantee import Guarantee
from contract.policy import Policy
from contract.release_frames import ReleaseFrame
from fugu.demo.people import Person
from fugu.demo.policies import WINDOW
from gateway.chain.arrays import Ints
from gateway.privacy.quilts import group_dp_scale, mqm_exact
from gateway.release.audit import verify
from gateway.release.charges import nats
from gateway.release.ledger import Ledger

__all__ = ["GroupRelease", "LedgerLines", "WindowErrors", "group_release", "ledger_lines", "window_errors"]


class WindowErrors(NamedTuple):
    """The windows of one device; errors are in ticks.

    Attributes:
        length: ticks in a window.
        scale: of the noise.
        guarantee: what holds for those who see the windows only.
        errors: (n,) released count minus true count, of each window that arrived.
        expected: mean absolute error of such noise.
        quilts: the same for Markov quilts (MQMExact, an endless stream) at the same epsilon, against an adversary who
            knows no state.
        group: the same if all ticks of a window are protected as one.
    """

    length: int
    scale: str
    guarantee: Guarantee
    errors: Ints
    expected: float
    quilts: float
    group: float

    @property
    def mean(self) -> float | None:
        """Mean absolute error, none without windows."""
        return float(np.abs(self.errors).mean()) if len(self.errors) else None

    def percent(self, ticks: float) -> float:
        """Ticks in percent of a window."""
        return 100.0 * ticks / self.length


class GroupRelease(NamedTuple):
    """A release of the gateway, and how many ticks of all devices really were in its states."""

    frame: ReleaseFrame
    truth: int

    @property
    def error(self) -> float:
        """Released value minus truth."""
        return self.frame.values[0] - self.truth

    @property
    def inside(self) -> bool:
        """Whether the truth is inside the interval."""
        return self.frame.low[0] <= self.truth <= self.frame.high[0]


class LedgerLines(NamedTuple):
    """The ledger in words: a sentence about the whole, and one about each device."""

    summary: str
    devices: tuple[str, ...]


def window_errors(person: Person, policy: Policy, symbols: Ints, readings: Sequence[Mapping[str, Any]]) -> WindowErrors:
    """Hold a device's windows against its recording.

    Args:
        person: the recording.
        policy: of the device.
        symbols: the symbol of each tick, -1 on which the device was not running.
        readings: windows as the subscriber prints them.
    """
    window, guarantee = policy.window(WINDOW), policy.windows_guarantee
    assert window is not None
    assert guarantee is not None
    errors = []
    for reading in readings:
        ticks = slice(reading["first"], reading["first"] + reading["length"])
        seen = symbols[ticks] >= 0
        if seen.sum() == reading["observed"]:  # else a symbol got lost on its way, and nobody knows what was counted
            errors.append(reading["counts"][0] - int(person.states[ticks][seen].sum()))
    return WindowErrors(
        window.length,
        window.scale,
        guarantee,
        np.array(errors, dtype=np.int64),
        1.0 / math.sinh(1.0 / float(Fraction(window.scale))),  # 2 p / (1 - p^2), p = e^(-1/scale)
        mqm_exact(person.chains, None, guarantee.epsilon).scale,
        group_dp_scale(window.length, guarantee.epsilon),
    )


def group_release(people: Sequence[Person], symbols: Mapping[str, Ints], reading: Mapping[str, Any]) -> GroupRelease:
    """Hold a release over all devices against their recordings.

    Args:
        people: the recordings.
        symbols: for each device, the symbol of each tick, -1 on which it was not running.
        reading: the release as the subscriber prints it.
    """
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in reading.items()}
    del fields["kind"]
    frame = ReleaseFrame(**fields)
    ticks = slice(frame.first, frame.last + 1)
    truth = sum(int(person.states[ticks][symbols[person.device][ticks] >= 0].sum()) for person in people)
    return GroupRelease(frame, truth)


def ledger_lines(path: Path) -> LedgerLines:
    """What a gateway's ledger says, and whether it adds up.

    Raises:
        LedgerError: there is no ledger.
    """
    with closing(Ledger(path, create=False)) as ledger:
        found, accounts = verify(ledger), ledger.accounts()
    count = f"{found.entries} {'entry' if found.entries == 1 else 'entries'}"
    state = found.problems[0] if found.problems else "it adds up"
    devices = tuple(
        f"{account.key.device}: {nats(account.allowance):.4f} allowed, {nats(account.base):.4f} for its own windows, "
        f"{nats(account.spent):.4f} spent"
        for account in accounts
    )
    return LedgerLines(f"ledger of audience public: {count}, {state}; nats a tick", devices)
