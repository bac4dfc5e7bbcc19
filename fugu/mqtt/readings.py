"""What a subscriber is handed: one typed reading for each thing that a stream says.

Times are in UTC. What a device releases itself is dated, and named, by its stream's description; `time` and the names
are None where the version of the policy that it was released under is not described.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from fugu.contract.descriptions import Description
from fugu.contract.measure_frames import Point
from fugu.contract.release_frames import ReleaseFrame
from fugu.contract.reports import Estimate, WindowCount

__all__ = [
    "CountReading",
    "DescriptionReading",
    "EstimateReading",
    "PointReading",
    "Reading",
    "ReleaseReading",
    "SymbolReading",
    "WindowReading",
]


class SymbolReading(NamedTuple):
    """One randomised symbol. It is not the state: on its own it says little of that, by design.

    Attributes:
        tick: its number.
        symbol: what was drawn, by its number.
        shift: by how many ticks the numbers are ahead of the wall clock: it happened at wall tick tick - shift.
        time: when it happened.
        label: the name that the symbol, randomised as it is, has where there are as many symbols as states.
    """

    device: str
    stream: str
    tick: int
    symbol: int
    shift: int = 0
    time: datetime | None = None
    label: str | None = None


class PointReading(NamedTuple):
    """One released point of a measured stream. It is not the measurement, but drawn around it.

    Attributes:
        table: number of the table that it was drawn from.
        point: in steps of the lattice.
        latitude, longitude: of the point, in degrees, if what is measured are places.
        tick, shift, time: as for symbols.
    """

    device: str
    stream: str
    tick: int
    table: int
    point: Point
    shift: int = 0
    time: datetime | None = None
    latitude: float | None = None
    longitude: float | None = None


class WindowReading(NamedTuple):
    """Noisy counts of a window, as its device has released them.

    Attributes:
        first, length: the window's ticks.
        observed: so many of them are counted; the device was not running at the others.
        counts: ticks in the counted states, or in each state, with noise: one may be negative, or above `observed`.
        shift: as for symbols.
        since, time: beginning and end of the window.
        states: that are counted together; of a histogram, all, each by itself.
    """

    device: str
    stream: str
    window: str
    first: int
    length: int
    observed: int
    counts: tuple[int, ...]
    shift: int = 0
    since: datetime | None = None
    time: datetime | None = None
    states: tuple[str, ...] | None = None


class EstimateReading(NamedTuple):
    """The gateway's estimate: of states, of a place, or of another measurement."""

    device: str
    stream: str
    estimate: Estimate


class CountReading(NamedTuple):
    """The gateway's report of a window that the device has counted: the same noisy counts, with intervals."""

    device: str
    stream: str
    window: WindowCount


class ReleaseReading(NamedTuple):
    """A noisy statistic of a window, and all that is known about it."""

    name: str
    release: ReleaseFrame


class DescriptionReading(NamedTuple):
    """What a stream says of itself."""

    device: str
    stream: str
    description: Description


Reading = (
    SymbolReading | PointReading | WindowReading | EstimateReading | CountReading | ReleaseReading | DescriptionReading
)
