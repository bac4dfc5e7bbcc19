"""One tick of a message: the few lines that the forward and the backward passes share.

A message is an unnormalised vector over the k states. It is never divided while it travels: when its sum
falls below 2^-100 it is multiplied by 2^100, which is exact and rare, and so the loop that carries it waits
for a multiplication and an addition per tick, not for a division. Components smaller than about 2^-750 of the
largest are lost, as in every scaled (not logarithmic) recursion; where every state can be left and entered
with a probability above that, nothing that matters is.

For k = 2, 3, 4 a message lives in a vector register; for other k it is a row of a small array.
"""

from __future__ import annotations

from fugu.chains.arrays import Floats
from fugu.chains.kernel import kernel
from fugu.chains.vectors import Message, load, product, scaled, store, total

__all__ = [
    "LIFT",
    "TINY",
    "combine",
    "condition_row",
    "first",
    "fits_registers",
    "lift",
    "lift_row",
    "normalise_product",
    "predict_row",
]

TINY = 2.0**-100
LIFT = 2.0**100


def fits_registers(states: int) -> bool:
    """Whether a message over this many states travels in a register."""
    return 2 <= states <= 4


@kernel
def first(initial: Floats, sequence: int, rows: Floats, z: int, unit: Message) -> Message:
    """The first distribution of a sequence, row `sequence` of `initial`, times the likelihood `rows[z]` of a symbol."""
    return product(load(initial, sequence, unit), load(rows, z if z >= 0 else rows.shape[0] - 1, unit))


@kernel
def lift(a: Message) -> tuple[Message, float, int]:
    """Bring a message of 2, 3 or 4 components that has become tiny back into range.

    Returns:
        The message times 2^(100 j), its sum (zero only if the evidence is impossible), and j.
    """
    mass = total(a)
    lifts = 0
    while 0.0 < mass < TINY:
        a = scaled(a, LIFT)
        mass *= LIFT
        lifts += 1
    return a, mass, lifts


@kernel
def combine(out: Floats, t: int, a: Message) -> bool:
    """Turn row t of `out` (n, k), a message from the other side, into a posterior; False if it would be 0."""
    b = product(a, load(out, t, a))
    mass = total(b)
    if not mass > 0.0:
        return False
    store(out, t, scaled(b, 1.0 / mass))
    return True


@kernel
def predict_row(work: Floats, source: int, target: int, matrix: Floats) -> None:
    """Set row `target` of `work` (rows, k) to row `source` times `matrix` (k, k)."""
    k = matrix.shape[0]
    weight = work[source, 0]
    for j in range(k):
        work[target, j] = weight * matrix[0, j]
    for i in range(1, k):
        weight = work[source, i]
        for j in range(k):  # along rows: a sum over columns would not vectorise
            work[target, j] += weight * matrix[i, j]


@kernel
def condition_row(work: Floats, row: int, rows: Floats, z: int) -> float:
    """Weigh a row of `work` (rows, k) by the likelihood `rows[z]` (k,) of a symbol; returns its sum."""
    mass = 0.0
    for j in range(work.shape[1]):
        work[row, j] *= rows[z, j]
        mass += work[row, j]
    return mass


@kernel
def lift_row(work: Floats, row: int, mass: float) -> tuple[float, int]:
    """Bring a row of `work` (rows, k) whose sum is tiny back into range; returns the sum and the exponent."""
    lifts = 0
    while 0.0 < mass < TINY:
        for j in range(work.shape[1]):
            work[row, j] *= LIFT
        mass *= LIFT
        lifts += 1
    return mass, lifts


@kernel
def normalise_product(out: Floats, t: int, work: Floats, row: int) -> bool:
    """Multiply row t of `out` (n, k) by a row of `work` (rows, k) and normalise; False if the product is 0."""
    k = out.shape[1]
    mass = 0.0
    for j in range(k):
        out[t, j] *= work[row, j]
        mass += out[t, j]
    if mass == 0.0:
        return False
    for j in range(k):
        out[t, j] /= mass
    return True
