"""What all points of a stream tell together of one tick, whatever tables a device accepts.

Proofs: docs/proofs/second-certificate.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from fugu.audit.exact.chains.known import known_loss, least_loss, stationary
from fugu.audit.exact.numbers import NotRecomputed, ceil_of, exp_up
from fugu.audit.exact.points import joined

__all__ = ["all_points_loss"]


def all_points_loss(policy: Mapping[str, Any]) -> Fraction:
    """At least the e^epsilon that a policy claims in `stream_loss`."""
    if policy.get("changes"):
        raise NotRecomputed("steps that change with time: of them nothing is claimed of all points")
    start, adversary, initial = policy["stream_loss"]["start"], policy["stream_loss"]["adversary"], policy["initial"]
    chain = [[dict(row).get(y, 0) for y in range(len(initial))] for row in policy["transition"]]
    first = stationary(chain) if start == "stationary" else initial if start == "given" else [1] * len(initial)
    if any(p and not possible for p, possible in zip(first, initial, strict=True)):
        raise NotRecomputed("a start in states that the policy takes for impossible")
    accepted, shows = _accepted(policy), policy.get("shows") or range(len(initial))
    told = [exp_up(Fraction(policy["epsilon"]) * count) for count in range(max(map(max, accepted)) + 1)]
    tick = [[ceil_of(told[accepted[x][y]]) for y in shows] for x in shows]
    begins = {"stationary": None, "any": "any", "given": initial}[start]
    return least_loss([chain], told[-1], lambda: known_loss(chain, tick, adversary, begins))


def _accepted(policy: Mapping[str, Any]) -> list[list[int]]:
    """How many epsilons a table may tell of two states: one for each edge between them, and at most the factor."""
    graph, states = joined(policy), range(len(policy["coordinates"]))
    most, seen = [[int(x != y) for y in states] for x in states], []
    possible = {x for x, p in enumerate(policy["initial"]) if p}
    while possible not in seen:
        seen.append(possible)
        shown = {policy["shows"][x] for x in possible} if policy.get("shows") else possible
        for x in shown:
            reached = {x}
            for edges in range(1, policy["factor"] + 1):
                for y in shown - reached:
                    most[x][y] = max(most[x][y], edges)
                reached |= shown & set().union(*(graph[y] for y in reached))
        possible = {y for x in possible for y, _ in policy["transition"][x]}
    return most
