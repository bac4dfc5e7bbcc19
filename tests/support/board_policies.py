"""Policies for boards."""

from __future__ import annotations

from fugu.contract.chains import BinaryChains, BoundedChains
from fugu.contract.discretisers import Thresholds
from fugu.contract.guarantee import Guarantee
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.contract.windows import Window

PROMISE = Guarantee(epsilon=4.0, adversary="informed")
_QUICK = {
    "guarantee": Guarantee(epsilon=4.0, adversary="universal"),
    "chains": BoundedChains(states=2, odds_ratio=1.5, transition=((0.55, 0.45), (0.45, 0.55))),
}


def quick(policy: Policy) -> Policy:
    """The same about a class of chains whose loss a board derives at once, which it does at every start."""
    promised = {"windows_guarantee": _QUICK["guarantee"]} if policy.windows else {}
    return policy.model_copy(update={**_QUICK, **promised})


def board_policy(*windows: Window, frame_ticks: int = 10, period_us: int = 1_000_000, version: int = 1) -> Policy:
    return Policy(
        fleet="home",
        device="watch",
        stream="hr",
        version=version,
        clock=Clock(epoch_us=0, period_us=period_us),
        frame_ticks=frame_ticks,
        discretiser=Thresholds(edges=(72.5,), states=("low", "high")),
        table=NoiseTable.binary(1_500_000_000, 1_500_000_000),
        chains=BinaryChains(q=(0.2, 0.3), r=(0.3, 0.4)),
        guarantee=PROMISE,
        windows=windows,
        windows_guarantee=PROMISE if windows else None,
    )
