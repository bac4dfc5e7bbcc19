"""What the demo's devices do, and what its gateway releases: one promise for symbols and windows together."""

from __future__ import annotations

import math
from fractions import Fraction

from contract.chains import BinaryChains
from contract.errors import FuguError, GuaranteeError
from contract.exponential import exp_up
from contract.guarantee import Adversary, Guarantee, check_ratios, tick_ratios
from contract.noise_table import SCALE, NoiseTable
from contract.policy import Clock, Policy, Thresholds
from contract.windows import Window
from fugu.demo.people import FLEET, STREAM, Person
from gateway.privacy.accountant import ChainAccountant
from gateway.privacy.randomised_response import allowed_ratios

__all__ = ["ADVERSARY", "GROUP_TICKS", "RELEASES", "WINDOW", "WINDOWS_EPSILON", "WINDOW_TICKS", "policy_for"]

ADVERSARY: Adversary = "informed"
FRAME_TICKS = 100
LABELS = ("below", "above")
WINDOW = "above"
WINDOW_TICKS = 1000
WINDOWS_EPSILON = 0.2
"""What those learn who see the windows only, whatever the device promises for symbols and windows together."""
GROUP_TICKS = 2000
_BUMPS = 64
RELEASES = f"""\
[audiences.public]
epsilon = 0.5
adversary = "{ADVERSARY}"

[[releases]]
name = "above"
stream = "{STREAM}"
query = "count"
states = ["above"]
length = {GROUP_TICKS}
audience = "public"
share = 1.0
"""
"""The gateway's releases: how many heartbeats of all devices were above their mean, for whoever sees no symbols."""


def policy_for(person: Person, *, epoch_us: int, period_us: int) -> Policy:
    """The policy of the person's device: its symbols and windows together are within the person's epsilon.

    Raises:
        FuguError: the windows leave nothing of epsilon for the symbols.
    """
    guarantee = Guarantee(epsilon=person.epsilon, adversary=ADVERSARY)
    windows_guarantee = Guarantee(epsilon=WINDOWS_EPSILON, adversary=ADVERSARY)
    rate = ChainAccountant(person.chains).allowance(WINDOWS_EPSILON, ADVERSARY)
    scale = str(math.ceil(1.0 / rate))
    window = Window(name=WINDOW, length=WINDOW_TICKS, stride=WINDOW_TICKS, states=(LABELS[1],), scale=scale)
    policy = Policy(
        fleet=FLEET,
        device=person.device,
        stream=STREAM,
        version=1,
        clock=Clock(epoch_us=epoch_us, period_us=period_us),
        frame_ticks=FRAME_TICKS,
        discretiser=Thresholds(edges=(person.mean,), states=LABELS),
        table=table_beside(person.chains, guarantee, window.rate),
        chains=person.chains,
        guarantee=guarantee,
        windows=(window,),
        windows_guarantee=windows_guarantee,
    )
    policy.verify(person.epsilon)
    return policy


def table_beside(chains: BinaryChains, guarantee: Guarantee, rate: Fraction) -> NoiseTable:
    """The table that keeps most of each reading, beside something else that adds a rate to the loss of every tick.

    The likelihood ratios that the guarantee allows a tick are divided by e^rate; flips are rounded up.

    Args:
        chains: class of chains.
        guarantee: of both together.
        rate: of what is beside the table, in nats.

    Raises:
        FuguError: nothing is left for the table.
    """
    growth = exp_up(rate)
    allowed = allowed_ratios(chains, guarantee.epsilon, guarantee.adversary)
    v01, v10 = (Fraction(ratio) / growth for ratio in allowed)
    if min(v01, v10) > 1:
        least = [math.ceil((ratio - 1) / (v01 * v10 - 1) * SCALE) for ratio in (v01, v10)]
        for bump in range(_BUMPS):
            table = NoiseTable.binary(least[0] + bump, least[1] + bump)
            ratio_01, ratio_10 = tick_ratios(table)
            try:
                check_ratios(chains, (ratio_01 * growth, ratio_10 * growth), guarantee, "the table")
            except GuaranteeError:  # the last digit was rounded the wrong way: a step more is safe
                continue
            return table
    raise FuguError(
        f"windows of {float(rate):g} nats a tick leave nothing of epsilon {guarantee.epsilon:g} for symbols"
    )
