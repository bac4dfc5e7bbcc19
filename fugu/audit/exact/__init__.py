"""The second certificate: the claims of a policy, computed again in exact fractions, by code of its own.

For whoever wants to believe a policy without believing its planner. docs/proofs/second-certificate.md has the proofs.

First hour, this folder, which is enough for a policy for all chains of a class:

1. `numbers`: fractions, and logarithms and powers that are rounded outward.
2. `binary`: the loss of two-state chains, by odds.
3. `points`: the loss of released points, for the tables that a device accepts.
4. `claims`: which claims a policy's JSON makes, and the loss of each. Begin at `recompute`.

Second hour, `chains`, for policies with known chains. `claims` bounds what neighbours tell of a tick, and puts the
past, the tick and the future together for each adversary.

`guesses` says what to try and proves nothing: `chains` proves or refuses each guess, so nobody has to read it.
"""

from __future__ import annotations

from fugu.audit.exact.claims import Claim, recompute, stream_loss, tick_ratios, window_rate
from fugu.audit.exact.numbers import NotRecomputed

__all__ = ["Claim", "NotRecomputed", "recompute", "stream_loss", "tick_ratios", "window_rate"]
