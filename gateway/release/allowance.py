"""How much an audience may be told about a tick: from its epsilon to the largest constant per-tick loss.

What one reader of several audiences is told: their charges add up tick by tick, and the accountant runs once. A sum of
epsilons is no bound: what the chain adds to a small loss of a tick grows faster than that loss, so releases of epsilon
.1 to eight audiences may be .86 to whoever has them all. Charges per tick do add up, because each is at most the least
concave function above its release's loss (`gateway.release.amplification`); so the bound of a reader is that of a
stream whose every tick is charged all that its audiences may be told.

Source: docs/proofs/audiences.md, "Audiences and readers".
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache

from fugu.contract.chains import ChainClass
from fugu.contract.guarantee import Adversary
from fugu.contract.mechanisms import ALONE, Mechanism, covers
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.accountant.classes import known_chains
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.eigengap import mqm_approx
from fugu.privacy.quilts import mqm_exact
from gateway.release.amplification import float_above
from gateway.release.charges import PER_NAT, units_below

__all__ = ["allowance", "joint_charge", "joint_loss"]

_INWARD = 1.0 - 1e-9


@cache
def allowance(chains: ChainClass, epsilon: float, adversary: Adversary, mechanism: Mechanism = "chain") -> int:
    """The largest loss that every tick may have, for ever, without any state losing more than epsilon.

    Losses of the chain accountant, and of any one quilt, grow with every tick's own loss, so a schedule of charges that
    never exceeds this number on any tick is within epsilon, however the charges vary from tick to tick. A mechanism
    that does not compose has one release, which is charged the whole of epsilon.

    Args:
        chains: class of chains that the readings belong to.
        epsilon: what the audience is promised, in nats.
        adversary: what the audience may know.
        mechanism: by whose rule.

    Returns:
        The loss in units of `gateway.release.charges`, rounded down; the same for all pairs of states.

    Raises:
        ChainClassError: epsilon is not a positive number, the chains do not forget, or the mechanism has no bound for
            them or against such an adversary.

    Source: docs/proofs/chain-accountant.md, "The chain accountant", and docs/proofs/published-mechanisms.md, "The
    published mechanisms"; for quilts, whose least loss at a constant rate c is min over quilts of influence + c * near
    ticks, `fugu.privacy.quilt_composition`.
    """
    if not covers(mechanism, adversary):
        raise ChainClassError(f"{mechanism} protects against the ignorant adversary only, not against the {adversary}")
    if mechanism in ALONE:
        if mechanism == "wasserstein" or chains.named_streams:
            known_chains(chains)  # refuses what it has no distribution for, and streams that are told about together
        return units_below(epsilon)
    if mechanism == "chain":
        return units_below(ChainAccountant(chains).allowance(epsilon, adversary) * _INWARD)
    scale_of = mqm_exact if mechanism == "mqm-exact" else mqm_approx
    return units_below(1.0 / scale_of(known_chains(chains), None, epsilon).scale * _INWARD)


def joint_charge(allowances: Sequence[int], base: int) -> int:
    """The most that a tick is charged for all audiences of a reader together, in units of `gateway.release.charges`.

    Args:
        allowances: what each audience may be told about a tick, the base included.
        base: what the device itself releases to all of them; it is the same release, and counts once.

    Returns:
        0 if there is no audience that the gateway may tell anything.
    """
    told = sum(max(one - base, 0) for one in allowances)
    return told + base if any(one >= base for one in allowances) else 0


@cache
def joint_loss(chains: ChainClass, charge: int, adversary: Adversary) -> float:
    """What an endless stream loses whose every tick is charged the same.

    Args:
        chains: class of chains that the readings belong to.
        charge: in units of `gateway.release.charges`.
        adversary: what the reader may know.

    Returns:
        A bound in nats, rounded up.

    Raises:
        ChainClassError: no bound exists for such a class.
    """
    return ChainAccountant(chains).loss(float_above(Fraction(charge, PER_NAT)), adversary).epsilon
