"""Which of a round's frames simply follow what is there: the rest needs a closer look, one frame after the other."""

from __future__ import annotations

import numpy as np

from fugu.chains.arrays import Bools, Ints
from fugu.chains.kernel import kernel
from gateway.service.symbols.columns import Columns

__all__ = ["AFTER", "END", "MARKS", "NUMBER", "SHIFT", "UNKNOWN", "VERSION", "following"]

NUMBER, AFTER, END, SHIFT, VERSION = range(5)
MARKS = 5
"""What is stored of a stream: its number in the store, the last interval (after, end] of ticks that are accounted
for, and shift and policy version of its newest frame."""
UNKNOWN = -2
"""In place of the end of a stream that has to be looked up."""


def following(slots: Ints, columns: Columns, order: Ints, marks: Ints) -> Bools:
    """Take the frames that go on where their stream ends, without a gap, under the same policy and clock.

    From the first frame on that does not, no more of its stream are taken.

    Args:
        slots: (n,) of each row the stream in `marks`.
        order: (n,) the rows in the order of their streams and ticks.
        marks: (streams, 5), changed in place by what is taken.

    Returns:
        (n,) which rows are taken.
    """
    taken = np.zeros(columns.rows, dtype=np.bool_)
    _following(
        order, slots, columns.version, columns.shift, columns.previous, columns.first, columns.ticks, marks, taken
    )
    return taken


@kernel
def _following(
    order: Ints, slots: Ints, version: Ints, shift: Ints, previous: Ints, first: Ints, count: Ints, marks: Ints,
    taken: Bools,
) -> None:  # fmt: skip
    slot, going = -1, True
    for row in order:
        if slots[row] != slot:
            slot, going = slots[row], True
        mark = marks[slot]
        going &= mark[AFTER] <= previous[row] <= mark[END] < first[row]
        going &= version[row] == mark[VERSION] and shift[row] == mark[SHIFT]
        if going:
            mark[END] = first[row] + count[row] - 1
            taken[row] = True
