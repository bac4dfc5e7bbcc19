"""The certificate of a policy, computed a second time: in exact fractions, without any other code of this project.

Begin with `claims`, which reads a policy's JSON; `numbers` rounds outward. It is meant to be read in an hour.
"""

from __future__ import annotations

from gateway.exact.claims import Claim, recompute, stream_loss, tick_ratios, window_rate
from gateway.exact.numbers import NotRecomputed

__all__ = ["Claim", "NotRecomputed", "recompute", "stream_loss", "tick_ratios", "window_rate"]
