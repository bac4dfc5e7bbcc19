"""Results of a target: rows of a table, and pictures as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

__all__ = [
    "Basis",
    "Chart",
    "Drawing",
    "Found",
    "Line",
    "Row",
    "Setting",
    "Target",
    "Value",
    "at_most",
    "lines_through",
]

Value: TypeAlias = float | str
Basis = Literal["printed", "formula", "claim", "log", "in kind", "picture", "other data", "ours"]
"""Where the paper's value is from: a number in its text, its own formula at this point, a sentence of it. Or from a log
or a formula of its authors' program, a sentence about other data that is judged on ours. Or a picture without numbers,
a number about other data or another machine, or nowhere: the quantity is ours."""
Status = Literal["agrees", "differs", "no number"]
_JUDGED = ("printed", "formula", "claim", "log", "in kind")


@dataclass(frozen=True)
class Row:
    """A quantity, by the paper and by us.

    Attributes:
        ours: a number, or words.
        paper: the same of the paper, if it has one.
        basis: where the paper's value is from; those of the last three kinds are not judged.
        tolerance: the paper's own error: half a unit of its last digit, or that of its method.
        limit: whether the paper's value bounds the quantity instead of being it.
        interval: of ours, if it is estimated, with its confidence in the quantity's name.
        why: they differ, if they do; or what a number without a counterpart says.
        counterexample: the target that shows it by enumeration, where the difference is a correction; in that target
            itself it is not named.
        computed: whether the paper's value is a number of ours: its formula or its claim, computed by this program.
    """

    quantity: str
    ours: Value
    paper: Value | None = None
    basis: Basis = "ours"
    tolerance: float = 0.0
    limit: Literal["", "at most", "at least"] = ""
    interval: tuple[float, float] | None = None
    why: str = ""
    counterexample: str = ""
    computed: bool = False

    @property
    def status(self) -> Status:
        """True if ours is the paper's value, or keeps to it, within the paper's error or our interval."""
        if self.paper is None or self.basis not in _JUDGED:
            return "no number"
        if isinstance(self.ours, str) or isinstance(self.paper, str):
            return "agrees" if self.ours == self.paper else "differs"
        low, high = self.interval or (self.ours, self.ours)
        above, below = low > self.paper + self.tolerance, high < self.paper - self.tolerance
        differs = {"at most": above, "at least": below, "": above or below}[self.limit]
        return "differs" if differs else "agrees"


def at_most(quantity: str, ours: Value, paper: Value, why: str = "", *, case: str = "", computed: bool = True) -> Row:
    """A claim of the paper that something is not above a value, which is computed here unless it is said.

    Args:
        case: the counterexample.
    """
    return Row(quantity, ours, paper, "claim", 1e-9, "at most", why=why, counterexample=case, computed=computed)


class Line(NamedTuple):
    """Points (x, y) of a chart, joined or not."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    joined: bool = True

    @classmethod
    def through(cls, name: str, points: Iterable[tuple[float, float]], *, joined: bool = True) -> Line:
        """The line through points (x, y)."""
        xs, ys = zip(*points, strict=True)
        return cls(name, xs, ys, joined)


def lines_through(points: Mapping[str, Iterable[tuple[float, float]]], *, joined: bool = True) -> list[Line]:
    """The lines of some names, each through its points (x, y)."""
    return [Line.through(name, some, joined=joined) for name, some in points.items()]


class Chart(NamedTuple):
    """Lines over two axes, each linear or logarithmic."""

    title: str
    x_axis: str
    y_axis: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False


class Drawing(NamedTuple):
    """A picture that is drawn already, as SVG text."""

    title: str
    svg: str


class Found(NamedTuple):
    """Results of a target."""

    rows: Sequence[Row]
    pictures: Sequence[Chart | Drawing] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Setting:
    """Inputs of a target.

    Attributes:
        recordings: folder of the recordings that the repository ships.
        quick: fewer points, shorter recordings, fewer trials.
        traces: a file of location traces that the user gave, or none.
        chains: a file with an assumed chain and another, or none.
        policy: of points, or none.
        between: two sequences of states, or none.
    """

    recordings: Path
    quick: bool = False
    traces: Path | None = None
    chains: Path | None = None
    policy: Path | None = None
    between: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    progress: Callable[[str], None] = field(default=lambda part: None)


class Target(NamedTuple):
    """A figure or table.

    Attributes:
        name: for the command line.
        title: of its part of the report.
        find: it.
    """

    name: str
    title: str
    find: Callable[[Setting], Found]
