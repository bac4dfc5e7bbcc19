"""Policies that an auditor trusts: classes of chains, noise tables and windows that a ledger only repeats.

A ledger says for which classes its allowances were computed, and of which tables its sums are. Whoever can write to it
can change both so that everything still adds up. The tables of an entry say which policies made it; where several have
one table, each of them may have, and the worst of their classes counts.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from fugu.contract.chains import ChainClass
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from gateway.release.canonical import digest
from gateway.release.charges import nats, units_above
from gateway.release.inputs import canonical_table
from gateway.release.together import Stream, named_streams

__all__ = ["TrustedPolicies"]


class TrustedPolicies:
    """What the policies of streams say, whatever a ledger says.

    Args:
        policies: every version that was in force; measured streams have no charges and are left out.
    """

    def __init__(self, policies: Iterable[AnyPolicy] = ()) -> None:
        self._policies: dict[Stream, list[Policy]] = defaultdict(list)
        for policy in policies:
            if isinstance(policy, Policy):
                self._policies[policy.device, policy.stream].append(policy)

    def __bool__(self) -> bool:
        return bool(self._policies)

    def of(self, stream: Stream) -> list[Policy]:
        """The policies of a stream."""
        return self._policies.get(stream, [])

    def makers(self, stream: Stream, inputs: str, charge: int) -> list[Policy]:
        """List the policies that may have made what an entry counts of a stream; empty if none can have.

        Args:
            inputs: of the entry, as the ledger has them; where they name no table (erased, or windows only) all may.
            charge: to the stream; 0 where its own windows are counted.
        """
        tables = _tables_named(inputs)
        if not charge or not tables:
            return [policy for policy in self.of(stream) if charge or policy.windows]
        return [
            policy
            for policy in self.of(stream)
            if policy.table is not None and digest(canonical_table(policy.table)) in tables
        ]

    def has(self, stream: Stream, table: NoiseTable) -> bool:
        """Whether a policy of a stream has a table."""
        return any(policy.table == table for policy in self.of(stream))

    def classes(self, streams: Iterable[Stream]) -> set[ChainClass]:
        """All classes of streams, and of those that their own policies name as moving with them."""
        todo, seen = list(streams), set[Stream]()
        while todo:
            if (stream := todo.pop()) not in seen:
                seen.add(stream)
                todo += [one for policy in self.of(stream) for one in named_streams(policy.chains, stream[0])]
        return {policy.chains for stream in seen for policy in self.of(stream)}

    def base_problem(self, stream: Stream, makers: Iterable[Policy], base: int) -> str:
        """Why a standing charge is below that of the windows of these policies, and of streams that move with them."""
        least = min((self._windows(stream, policy) for policy in makers), default=0)
        if base < least:
            return f"its devices release themselves {nats(least):.12g} of every tick, and {nats(base):.12g} is charged"
        return ""

    def _windows(self, stream: Stream, policy: Policy) -> int:
        """The least that windows charge to every tick if this policy is in force."""
        others = named_streams(policy.chains, stream[0]) - {stream}
        beside = sum(min((units_above(one.window_rate) for one in self.of(other)), default=0) for other in others)
        return units_above(policy.window_rate) + beside


def _tables_named(inputs: str) -> set[str]:
    """Digests of the tables that inputs name; none if they are no inputs, which the audit of contents says."""
    try:
        document: Mapping[str, Any] = json.loads(inputs)
        return {str(part[0]) for name in ("symbols", "beside") for part in document.get(name, ())}
    except (ValueError, LookupError, TypeError, AttributeError):
        return set()
