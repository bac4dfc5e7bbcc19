"""Plan a window: each mechanism's noise with its scale as a policy holds it, and the least that composes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fugu.contract.errors import FuguError
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.window_mechanisms import (
    COMPOSING,
    MECHANISMS,
    Mechanism,
    WindowNoise,
    WindowRequest,
    least_noise,
    window_noise,
)
from fugu.privacy.window_scale import PlannedScale, planned_scale

__all__ = ["NoiseComparison", "PlannedNoise", "compare_noise", "plan_noise"]


class PlannedNoise(NamedTuple):
    """A mechanism's noise, and its scale as a policy holds it."""

    noise: WindowNoise
    planned: PlannedScale


class NoiseComparison(NamedTuple):
    """What every mechanism needs.

    Attributes:
        found: of those that can be had.
        best: the one of the least scale among those that compose.
        refused: by mechanism, why it cannot be had.
    """

    found: tuple[PlannedNoise, ...]
    best: PlannedNoise
    refused: dict[Mechanism, str]


def plan_noise(request: WindowRequest, mechanism: Mechanism | None, period_us: int | None) -> PlannedNoise:
    """The noise of a mechanism.

    Args:
        request: what is to be released.
        mechanism: its name; none for the least noise that composes.
        period_us: microseconds from tick to tick, or none if that is not known.

    Raises:
        FuguError: the mechanism cannot be had.
    """
    noise = least_noise(request) if mechanism is None else window_noise(request, mechanism)
    return PlannedNoise(noise, planned_scale(request, noise, period_us))


def compare_noise(request: WindowRequest, period_us: int | None, begun: Callable[[Mechanism], None]) -> NoiseComparison:
    """The noise of every mechanism.

    Args:
        request: what is to be released.
        period_us: microseconds from tick to tick, or none if that is not known.
        begun: told of each mechanism before its noise is sought, which can take long.

    Raises:
        ChainClassError: none protects these chains.
    """
    found: list[PlannedNoise] = []
    refused: dict[Mechanism, str] = {}
    for name in MECHANISMS:
        begun(name)
        try:
            found.append(plan_noise(request, name, period_us))
        except FuguError as error:
            refused[name] = str(error)
    composing = [each for each in found if each.noise.mechanism in COMPOSING]
    if not composing:
        raise ChainClassError(refused.get("chain", "no mechanism protects this class of chains"))
    return NoiseComparison(tuple(found), min(composing, key=lambda each: each.planned.scale), refused)
