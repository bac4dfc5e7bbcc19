"""Policies with window counts, and windows of ten minutes."""

from __future__ import annotations

from typing import Any

from fugu.contract.chains import BinaryChains
from fugu.contract.discretisers import Thresholds
from fugu.contract.guarantee import Guarantee
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.contract.windows import Window

TABLE = NoiseTable.binary(2_050_000_000, 2_000_000_000)
CHAINS = BinaryChains(q=(0.2, 0.25), r=(0.35, 0.4))


def window(**changes: Any) -> Window:
    """Ten minutes of the second state, one after the other."""
    return Window(**{"name": "high", "length": 600, "stride": 600, "states": ("high",), "scale": "20"} | changes)


def policy(*windows: Window, **changes: Any) -> Policy:
    """A policy with windows that promises next to nothing."""
    loose = Guarantee(epsilon=50.0, adversary="universal")
    fields: dict[str, Any] = {
        **{"fleet": "home", "device": "watch", "stream": "hr", "version": 1, "frame_ticks": 10},
        "clock": Clock(epoch_us=0, period_us=1_000_000),
        "discretiser": Thresholds(edges=(0.5,), states=("low", "high")),
        **{"table": TABLE, "chains": CHAINS, "guarantee": loose},
        **{"windows": windows, "windows_guarantee": loose if windows else None},
    }
    return Policy(**fields | changes)
