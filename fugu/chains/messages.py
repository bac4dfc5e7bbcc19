"""Steps of a message by one tick, which the forward and the backward passes share.

A message is an unnormalised vector over the k states. A pass never divides it. When its sum falls below 2^-100 the
message is multiplied by 2^100, which is exact and rare. So the loop waits for a multiplication and an addition per
tick, not for a division. Components smaller than about 2^-750 of the largest are lost, as in every scaled (not
logarithmic) recursion. That does not matter if every state can be left and entered with a larger probability.

For k = 2, 3, 4 a message is a tuple: compiled code keeps it in registers, without branches on the length. For other k
it is a row of a small array.
"""

from __future__ import annotations

from typing import TypeAlias

from fugu.chains.arrays import Floats, Ints
from fugu.chains.kernel import part

__all__ = [
    "LIFT",
    "TINY",
    "Message",
    "begin",
    "combine",
    "condition_on",
    "lift",
    "lift_row",
    "normalise_row",
    "predict_and_condition",
    "scale",
    "store",
]


Message: TypeAlias = tuple[float, ...]
TINY = 2.0**-100
LIFT = 2.0**100


@part
def _load(messages: Floats, t: int, like_message: Message) -> Message:
    if len(like_message) == 2:
        return messages[t, 0], messages[t, 1]
    if len(like_message) == 3:
        return messages[t, 0], messages[t, 1], messages[t, 2]
    return messages[t, 0], messages[t, 1], messages[t, 2], messages[t, 3]


@part
def store(messages: Floats, t: int, message: Message) -> None:
    """Write a message into row t of `messages` (n, k)."""
    for x in range(len(message)):
        messages[t, x] = message[x]


@part
def _product(a: Message, b: Message) -> Message:
    if len(a) == 2:
        return a[0] * b[0], a[1] * b[1]
    if len(a) == 3:
        return a[0] * b[0], a[1] * b[1], a[2] * b[2]
    return a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3]


@part
def scale(message: Message, factor: float) -> Message:
    """Return a message times a number."""
    if len(message) == 2:
        return message[0] * factor, message[1] * factor
    if len(message) == 3:
        return message[0] * factor, message[1] * factor, message[2] * factor
    return message[0] * factor, message[1] * factor, message[2] * factor, message[3] * factor


@part
def _total(message: Message) -> float:
    if len(message) == 2:
        return message[0] + message[1]
    if len(message) == 3:
        return message[0] + message[1] + message[2]
    return (message[0] + message[1]) + (message[2] + message[3])


@part
def _times_column(a: Message, table: Floats, z: int, y: int) -> float:
    if len(a) == 2:
        return _total((a[0] * table[z, 0, y], a[1] * table[z, 1, y]))
    if len(a) == 3:
        return _total((a[0] * table[z, 0, y], a[1] * table[z, 1, y], a[2] * table[z, 2, y]))
    return _total((a[0] * table[z, 0, y], a[1] * table[z, 1, y], a[2] * table[z, 2, y], a[3] * table[z, 3, y]))


@part
def predict_and_condition(a: Message, table: Floats, symbols: Ints, t: int) -> Message:
    """Return message `a` of the next tick: times the matrix of tick t's symbol, not normalised.

    `table` (m + 1, k, k) has a matrix for each symbol, that of an unobserved tick (symbol -1) first.
    """
    z = symbols[t] + 1
    if len(a) == 2:
        return _times_column(a, table, z, 0), _times_column(a, table, z, 1)
    if len(a) == 3:
        return _times_column(a, table, z, 0), _times_column(a, table, z, 1), _times_column(a, table, z, 2)
    return (
        _times_column(a, table, z, 0),
        _times_column(a, table, z, 1),
        _times_column(a, table, z, 2),
        _times_column(a, table, z, 3),
    )


@part
def begin(initial: Floats, sequence: int, likelihoods: Floats, symbol: int, unit: Message) -> Message:
    """Return a sequence's first message: its row of `initial` times the likelihoods of its first symbol."""
    return _product(
        _load(initial, sequence, unit), _load(likelihoods, symbol if symbol >= 0 else likelihoods.shape[0] - 1, unit)
    )


@part
def lift(message: Message) -> tuple[Message, float, int]:
    """Return a message times 2^(100 j), its sum, and j, which is 0 unless the message is tiny."""
    mass = _total(message)
    lifts = 0
    while 0.0 < mass < TINY:
        message = scale(message, LIFT)
        mass *= LIFT
        lifts += 1
    return message, mass, lifts


@part
def combine(messages: Floats, t: int, other_message: Message) -> bool:
    """Turn row t of `messages` (n, k) into a posterior by the message of the other side; return False if that is 0."""
    posterior = _product(other_message, _load(messages, t, other_message))
    mass = _total(posterior)
    if not mass > 0.0:
        return False
    store(messages, t, scale(posterior, 1.0 / mass))
    return True


@part
def condition_on(messages: Floats, row: int, likelihoods: Floats, symbol: int) -> float:
    """Multiply a row of `messages` (rows, k) by a symbol's row of `likelihoods`, and return its sum."""
    mass = 0.0
    for j in range(messages.shape[1]):
        messages[row, j] *= likelihoods[symbol, j]
        mass += messages[row, j]
    return mass


@part
def normalise_row(distributions: Floats, row: int) -> bool:
    """Scale a row of `distributions` (rows, k) to sum 1; return False if its sum is 0."""
    mass = 0.0
    for j in range(distributions.shape[1]):
        mass += distributions[row, j]
    if not mass > 0.0:
        return False
    for j in range(distributions.shape[1]):
        distributions[row, j] /= mass
    return True


@part
def lift_row(messages: Floats, row: int, mass: float) -> tuple[float, int]:
    """Multiply a row of `messages` (rows, k) by 2^(100 j) if its sum `mass` is tiny; return the new sum, and j."""
    lifts = 0
    while 0.0 < mass < TINY:
        for j in range(messages.shape[1]):
            messages[row, j] *= LIFT
        mass *= LIFT
        lifts += 1
    return mass, lifts
