"""Streams that move together: which those are by a class of chains, and what they are called where they share a charge.

Given the states of a joint chain, what is told of its streams is independent, so that charges of a tick add up over all
of them, against the allowance of the joint class. Source: docs/proofs/joint-streams.md, "Streams that move together".
"""

from __future__ import annotations

from collections.abc import Iterable

from fugu.contract.chains import ChainClass

__all__ = ["Stream", "named_streams", "together_name"]

Stream = tuple[str, str]
"""A device and one of its streams."""


def named_streams(chains: ChainClass, device: str) -> frozenset[Stream]:
    """The streams that a class of a device's policy is of, if they are several; else none."""
    if len(chains.named_streams) < 2:
        return frozenset()
    parts = [shown.name.rpartition("/") for shown in chains.named_streams]
    return frozenset((owner or device, stream) for owner, _, stream in parts)


def together_name(members: Iterable[Stream]) -> str:
    """What streams that move together are called: their names, with the device once if it is one."""
    streams = sorted(members)
    if len({device for device, _ in streams}) == 1:
        return f"{streams[0][0]}/{'+'.join(stream for _, stream in streams)}"
    return "+".join(f"{device}/{stream}" for device, stream in streams)
