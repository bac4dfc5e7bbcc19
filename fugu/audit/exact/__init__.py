"""The second certificate: recompute the claims of a policy in exact fractions, by separate code.

It is for readers who want to trust a policy without trusting its planner. The proofs are in
docs/proofs/second-certificate.md.

Reading this folder takes an hour, and suffices for a policy for all chains of a class:

1. `numbers`: fractions, and logarithms and powers that are rounded outward.
2. `binary`: the loss of two-state chains, by odds.
3. `points`: the loss of released points, for the tables that a device accepts.
4. `claims`: which claims a policy's JSON makes, and the loss of each. Begin at `recompute`.

The folder `chains` takes a second hour, for policies with known chains. Its `claims` bounds what neighbours tell of a
tick, and combines the past, the tick and the future for each adversary.

`guesses` proposes what to try, and proves nothing: `chains` proves or refuses each guess, so nobody has to read it.
"""

from __future__ import annotations

from fugu.audit.exact.claims import Claim, recompute, stream_loss, tick_ratios, window_rate
from fugu.audit.exact.numbers import NotRecomputed

__all__ = ["Claim", "NotRecomputed", "recompute", "stream_loss", "tick_ratios", "window_rate"]
