"""When a row agrees with its paper, from both sides of the boundary."""

from __future__ import annotations

import pytest

from papers.rows import Row


@pytest.mark.parametrize(
    ("row", "status"),
    [
        (Row("", 1.0004, 1.0, "printed", 5e-4), "agrees"),
        (Row("", 1.0006, 1.0, "printed", 5e-4), "differs"),
        (Row("", 0.9994, 1.0, "printed", 5e-4), "differs"),
        (Row("", 0.9, 1.0, "claim", limit="at most"), "agrees"),
        (Row("", 1.1, 1.0, "claim", limit="at most"), "differs"),
        (Row("", 1.1, 1.0, "claim", limit="at least"), "agrees"),
        (Row("", 0.9, 1.0, "claim", limit="at least"), "differs"),
        (Row("", 1.1, 1.0, "formula", interval=(0.99, 1.2)), "agrees"),
        (Row("", 1.1, 1.0, "formula", interval=(1.01, 1.2)), "differs"),
        (Row("", 1.1, 1.0, "claim", limit="at most", interval=(0.99, 1.2)), "agrees"),
        (Row("", "s4", "s4", "printed"), "agrees"),
        (Row("", "s4", "s5", "printed"), "differs"),
        (Row("", 7.0, 1.0, "other data"), "no number"),
        (Row("", 7.0), "no number"),
    ],
)
def test_status(row: Row, status: str) -> None:
    assert row.status == status
