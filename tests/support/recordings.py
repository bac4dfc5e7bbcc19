"""Recordings for plans, simulated."""

from __future__ import annotations

import random
from pathlib import Path

__all__ = ["write_joint_recordings"]


def write_joint_recordings(folder: Path) -> None:
    """`room.csv`, two streams of one room that move together, and `order.csv`, one that remembers two ticks."""
    draw = random.Random(4).random
    a, b, rows = 0, 0, ["t,light,motion"]
    for tick in range(4000):
        a = a if draw() < 0.6 else 1 - a
        b = a if draw() < 0.5 else b if draw() < 0.6 else 1 - b
        rows.append(f"{tick * 60},{a},{b}")
    (folder / "room.csv").write_text("\n".join(rows) + "\n")
    states = [0, 0]
    for _ in range(4000):
        states.append(int(draw() < {(0, 0): 0.2, (0, 1): 0.4, (1, 0): 0.5, (1, 1): 0.7}[states[-2], states[-1]]))
    (folder / "order.csv").write_text("t,state\n" + "".join(f"{t * 60},{x}\n" for t, x in enumerate(states)))
