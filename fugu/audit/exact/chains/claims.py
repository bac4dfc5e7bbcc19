"""The claims of a policy, with known chains; and what they lose."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from fugu.audit.exact import claims
from fugu.audit.exact.chains.known import joint_loss, known_loss, least_loss
from fugu.audit.exact.chains.points import all_points_loss
from fugu.audit.exact.numbers import ceil_of, exp_up

__all__ = ["recompute", "stream_loss"]


def recompute(policy: Mapping[str, Any]) -> list[claims.Claim]:
    """All claims of a policy, see `fugu.audit.exact`."""
    return claims.recompute(policy, chains_loss, all_points_loss)


def stream_loss(chains: Mapping[str, Any], most: claims.Ratios, adversary: str) -> Fraction:
    """At least the loss of an endless stream, see `fugu.audit.exact`."""
    return claims.stream_loss(chains, most, adversary, chains_loss)


def chains_loss(chains: Mapping[str, Any], most: Fraction, adversary: str) -> Fraction:
    """At least the e^epsilon of known chains, `most` bounding the ratio of a tick's outputs if they are not joint."""
    known, shows = chains["transitions"], chains.get("shows") or [(x,) for x in range(len(chains["transitions"][0]))]
    told = [exp_up(Fraction(one["rate"])) for one in chains["streams"]] if chains["kind"] == "joint" else [most]
    tick = [[Fraction(1) for _ in shows] for _ in shows]
    for x, y in ((x, y) for x in range(len(shows)) for y in range(len(shows))):
        for ratio, a, b in zip(told, shows[x], shows[y], strict=True):
            tick[x][y] *= ratio if a != b else 1
    bounds = [[ceil_of(value) for value in row] for row in tick]

    def loss() -> Fraction:
        if chains["kind"] == "joint":
            return joint_loss(known, bounds, shows, adversary)
        return max(known_loss(chain, bounds, adversary) for chain in known)

    return least_loss(known, max(map(max, tick)), loss)
