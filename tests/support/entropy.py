"""Randomness that is the same in every run, in place of the operating system's."""

from __future__ import annotations

import random
from collections.abc import Callable

__all__ = ["seeded"]


def seeded(seed: int = 1) -> Callable[[memoryview], None]:
    """Fills a buffer, as the operating system does."""
    generator = random.Random(seed)

    def fill(buffer: memoryview) -> None:
        buffer[:] = generator.randbytes(len(buffer))

    return fill
