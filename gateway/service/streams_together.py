"""Which streams move together, as their policies say."""

from __future__ import annotations

from fugu.contract.policy import Clock
from gateway.release.together import Stream, named_streams, together_name
from gateway.service.policies import Catalogue
from gateway.service.release_config import ReleaseConfigError

__all__ = ["streams_together", "together_with"]


def streams_together(catalogue: Catalogue) -> list[frozenset[Stream]]:
    """The streams of each joint chain, or of several chains that share some; of policies in force and retired.

    Raises:
        ReleaseConfigError: such streams do not have one clock, so that nothing can be charged to their ticks.
    """
    found: list[frozenset[Stream]] = []
    clocks: dict[Stream, set[Clock]] = {}
    for device, stream in catalogue.symbol_streams():
        for policy in catalogue.policies(device, stream):
            if named := named_streams(policy.chains, device):
                clocks.setdefault((device, stream), set()).add(policy.clock)
                touched = [each for each in found if each & named]
                found = [each for each in found if not each & named] + [named.union(*touched)]
    for each in found:
        if len(set[Clock]().union(*(clocks.get(member, set()) for member in each))) > 1:
            raise ReleaseConfigError(
                f"streams {together_name(each)} move together and do not have one clock: plan them with one --epoch"
            )
    return found


def together_with(groups: list[frozenset[Stream]], device: str, stream: str) -> frozenset[Stream]:
    """The streams that move with one, itself among them."""
    own = (device, stream)
    return next((each for each in groups if own in each), frozenset([own]))
