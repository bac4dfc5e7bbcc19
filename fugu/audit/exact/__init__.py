"""The certificate of a policy, computed again in exact fractions, without other code of this project. Read `claims`."""

from __future__ import annotations

from fugu.audit.exact.claims import Claim, recompute, stream_loss, tick_ratios, window_rate
from fugu.audit.exact.numbers import NotRecomputed

__all__ = ["Claim", "NotRecomputed", "recompute", "stream_loss", "tick_ratios", "window_rate"]
