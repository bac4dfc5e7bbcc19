"""Claims of a guarantee that a device accepts: the lowest rung of a ladder, policy by policy, as digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import product
from typing import get_args

from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass
from fugu.contract.discretisers import Thresholds
from fugu.contract.errors import GuaranteeError
from fugu.contract.guarantee import Guarantee
from fugu.contract.losses import Adversary
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policy import Clock, Policy
from fugu.contract.windows import Window

__all__ = ["CLAIMS", "FEW_OF", "claiming", "claims_digest", "lowest_rungs"]

FEW_OF = 30
"""Of so many policies, one is in `make test`."""
_RUNGS = [900.0 * 0.97**rung for rung in range(400)]
_SHARED: tuple[ChainClass, ...] = (
    BinaryChains(q=(0.2, 0.3), r=(0.3, 0.4)),
    BinaryChains(q=(0.05, 0.05), r=(0.1, 0.1)),
    BinaryChains(q=(0.5, 0.5), r=(0.5, 0.5)),
    BoundedChains(states=2, odds_ratio=1.0),
    BoundedChains(states=2, odds_ratio=6.5),
    BoundedChains(states=3, odds_ratio=2.0),
)
CLAIMS: dict[str, tuple[ChainClass, ...]] = {
    "claims": _SHARED,
    "claims that a board bounds otherwise": (
        BinaryChains(q=(0.7, 0.8), r=(0.6, 0.7)),
        BinaryChains(q=(0.004, 0.005), r=(0.004, 0.005)),
    ),
}
"""By name, the classes of chains."""
_ADVERSARIES: tuple[Adversary, ...] = get_args(Adversary)


def _tables(states: int) -> Iterator[NoiseTable]:
    if states == 2:
        yield NoiseTable.binary(1_200_000_000, 900_000_000)
        yield NoiseTable.binary((1 << 31) - (1 << 24), (1 << 31) - (1 << 23))
    else:
        yield NoiseTable.randomised_response(states, 1_300_000_000)


def _policies(name: str) -> Iterator[Policy]:
    """Policies of some classes that claim little."""
    window = Window(name="w", length=10, stride=5, states=(1,), scale="20")
    for chains in CLAIMS[name]:
        cases = product(_tables(chains.states), _ADVERSARIES, (1, 61, 600), (False, True))
        for table, adversary, ticks, counted in cases:
            promise = Guarantee(epsilon=900.0, adversary=adversary, stretch_ticks=ticks)
            yield Policy(
                *(), fleet="home", device="watch", stream="hr", version=1,
                clock=Clock(epoch_us=0, period_us=1_000_000),
                discretiser=Thresholds(edges=(1.0, 2.0)[: chains.states - 1], states=tuple("abc"[: chains.states])),
                table=table, chains=chains, guarantee=promise,
                windows=(window,) if counted else (), windows_guarantee=promise if counted else None,
            )  # fmt: skip


def claiming(policy: Policy, rung: int) -> Policy:
    """The policy with a claim of the ladder."""
    promise = policy.guarantee.model_copy(update={"epsilon": _RUNGS[rung]})
    return policy.model_copy(update={"guarantee": promise})


def _agent_accepts(policy: Policy) -> bool:
    """True if an agent proves what a policy claims."""
    try:
        policy.verify()
    except GuaranteeError:
        return False
    return True


def lowest_rungs(name: str, each: int) -> list[tuple[Policy, int]]:
    """Of every so many policies, the lowest rung that an agent accepts; -1 stands for none."""
    lowest = []
    for policy in list(_policies(name))[::each]:
        low, high = 0, len(_RUNGS) - 1
        while low < high:  # the rungs above `low` are accepted, that of `high` is not
            middle = (low + high) // 2
            if _agent_accepts(claiming(policy, middle)):
                low = middle + 1
            else:
                high = middle
        lowest.append((policy, low - 1))
    return lowest


def claims_digest(rungs: list[tuple[Policy, int]]) -> str:
    return hashlib.sha256(repr([rung for _, rung in rungs]).encode()).hexdigest()[:32]
