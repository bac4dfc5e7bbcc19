"""Memory of the messages of devices that an account has received: a bounded number of values of a week.

The memory is not stored, and begins when the page starts. To make room, the devices that were not shown for the longest
time are removed. If there are still too many numbers, even watched devices lose their history.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from fugu.contract.descriptions import DescribedWindow
from fugu.contract.errors import FuguError
from fugu.contract.reports import Estimate, PlaceEstimate, StateEstimate, WindowCount, decode_estimate
from fugu.contract.sentences import unix_us
from fugu.contract.topics import Topic
from fugu.mqtt.readings import Descriptions
from gateway.page import Fields

__all__ = ["MOST_REMEMBERED", "MOST_SECONDS", "Memory", "ReportNumbers", "report_numbers"]

MOST_REMEMBERED = 256
"""The most devices that are remembered."""
TIERS = ((300, 86_400), (1800, 7 * 86_400))
"""Step and span of each tier, in seconds: for the last `span` seconds, the newest value of each step is kept."""
MOST_SECONDS = TIERS[-1][1]
_MOST_NUMBERS = 1_500_000
"""The most numbers of all histories together: 12 MB."""
_MOST_STREAMS, _MOST_NAMES, _MOST_NEWEST = 16, 8, 3
_SHARE = "share"


class ReportNumbers(NamedTuple):
    """Numbers of a report, as the page draws them.

    Attributes:
        window: the window's name; '' for an estimate.
        time: Unix seconds.
        names: the label of each number; '' for the only number of a measurement.
        numbers: for each name a value and the ends of its interval, NaN if there is none; shares are from 0 to 1.
        useful: whether the plan found the report better than a guess.
    """

    window: str
    time: float
    names: tuple[str, ...]
    unit: str
    numbers: tuple[tuple[float, float, float], ...]
    useful: bool

    @property
    def labels(self) -> tuple[tuple[str, ...], str]:
        """The names and the unit: only reports with equal labels share a history."""
        return self.names, self.unit

    def event(self) -> Fields:
        """Return the numbers as fields of an update for the page."""
        row = _rounded_row([self.time, *chain(*self.numbers)])
        return {"of": self.window, "names": self.names, "unit": self.unit, "row": row, "useful": self.useful}


def report_numbers(report: Estimate | WindowCount, windows: Iterable[DescribedWindow]) -> ReportNumbers | None:
    """Return the numbers of a report; numbers of a count are shares of the ticks that the device observed.

    Returns `None` for places and for profiles of a day, which are no line over time. Also `None` for a count whose
    window is not among the described `windows`, because only these say what was counted.
    """
    if isinstance(report, PlaceEstimate):
        return None
    time = unix_us(report.time) / 1e6
    if isinstance(report, StateEstimate):
        names, intervals = tuple(report.shares), tuple((share, math.nan, math.nan) for share in report.shares.values())
        columns = slice(1 if len(names) == 2 else 0, _MOST_NAMES)
        return ReportNumbers("", time, names[columns], _SHARE, intervals[columns], report.useful)
    intervals = tuple(zip(report.values, report.low, report.high, strict=True))
    if not isinstance(report, WindowCount):
        return ReportNumbers("", time, tuple(report.labels()) or ("",), report.unit or "", intervals, report.useful)
    window = next((window for window in windows if window.name == report.window), None)
    if window is None or report.blocks:
        return None
    names = tuple(report.labels()) or (" or ".join(report.states),)
    columns = slice(1 if len(names) == 2 else 0, _MOST_NAMES)
    shares = [[min(max(bound / report.observed, 0.0), 1.0) for bound in interval] for interval in intervals[columns]]
    share_intervals = tuple((share, low, high) for share, low, high in shares)
    return ReportNumbers(report.window, time, names[columns], _SHARE, share_intervals, report.useful)


class Memory:
    """Takes messages of remembered devices. `changes` grows with every description, estimate and count."""

    def __init__(self) -> None:
        self.changes = 0
        self._devices: dict[str, dict[str, _Stream]] = {}  # the last was looked at last

    @property
    def is_full(self) -> bool:
        """True if a further device would displace another, or if there will soon be too many numbers."""
        return len(self._devices) >= MOST_REMEMBERED or self._size() > _MOST_NUMBERS * 3 // 4

    def remember(self, devices: Iterable[str], exempt: Container[str] = ()) -> tuple[list[str], list[str]]:
        """Remember devices that are shown. Return the names of new devices, and of devices removed to make room.

        A device in `exempt` is not removed, but can lose its history.
        """
        names = list(devices)[:MOST_REMEMBERED]
        old_names = [*self._devices]
        for name in names:
            self._devices[name] = self._devices.pop(name, {})
        self._shrink(exempt)
        new_names = [name for name in names if name in self._devices and name not in old_names]
        return new_names, [name for name in old_names if name not in self._devices]

    def _shrink(self, exempt: Container[str]) -> None:
        number_count = self._size()
        for device in [device for device in self._devices if device not in exempt]:
            if len(self._devices) <= MOST_REMEMBERED and number_count <= _MOST_NUMBERS:
                return
            number_count -= sum(stream.size for stream in self._devices.pop(device).values())
        for streams in self._devices.values():
            for stream in streams.values():
                if number_count <= _MOST_NUMBERS:
                    return
                number_count -= stream.size
                stream.forget()

    def _size(self) -> int:
        return sum(stream.size for streams in self._devices.values() for stream in streams.values())

    def take(self, topic: Topic, payload: bytes) -> None:
        """Take a description, estimate or count of a remembered device. Estimates wait for `read`."""
        streams = self._devices.get(topic.device)
        if streams is None or topic.kind not in ("description", "estimate", "count"):
            return
        if topic.stream not in streams and len(streams) >= _MOST_STREAMS:
            return
        streams.setdefault(topic.stream, _Stream()).take_message(topic, payload)
        self.changes += 1

    def read(self) -> None:
        """Read the newest estimate of each stream; older estimates that still wait are never read."""
        for streams in self._devices.values():
            for stream in streams.values():
                stream.read()

    def prepend_stored(self, device: str, stream: str, reports: Iterable[ReportNumbers]) -> None:
        """Put a stream's stored reports before the received reports."""
        if (stream_memory := self._devices.get(device, {}).get(stream)) is not None:
            stream_memory.prepend_stored(reports)

    def messages(self, device: str) -> Iterator[tuple[Topic, bytes]]:
        """Yield the newest message of each kind and stream of a device, descriptions first."""
        messages = [message for stream in self._devices.get(device, {}).values() for message in stream.newest.values()]
        yield from sorted(messages, key=lambda message: message[0].kind != "description")

    def histories(self, device: str) -> list[Fields]:
        """Return updates for the page with all that is remembered of a device's streams."""
        streams = self._devices.get(device, {})
        histories = ((name, history) for name, stream in streams.items() for history in stream.histories())
        return [{"kind": "history", "stream": name, **history} for name, history in histories]

    def headlines(self, device: str) -> list[Fields]:
        """Return the newest value and the promise of each of a device's first streams."""
        streams = list(self._devices.get(device, {}).items())[:_MOST_NEWEST]
        return [{"stream": name, **stream.headline()} for name, stream in streams]


class _Stream:
    def __init__(self) -> None:
        self.newest: dict[str, tuple[Topic, bytes]] = {}
        self._windows: tuple[DescribedWindow, ...] = ()
        self._promise: Fields | None = None
        self._series: dict[str, _Series] = {}
        self._estimate: Estimate | None = None
        self._unread_payload: bytes | None = None

    @property
    def size(self) -> int:
        return sum(map(len, self._all_rows))

    def take_message(self, topic: Topic, payload: bytes) -> None:
        message_key: str = topic.kind
        if topic.kind == "description":
            # Only what the page needs is kept of a description: there may be thousands of streams.
            if (description := Descriptions().store(topic, payload)) is None:
                return
            promise, ticks = description.guarantee, description.guarantee.stretch_ticks
            stretch_names = (stretch.name for stretch in promise.stretches if stretch.ticks == ticks > 1)
            self._windows = description.windows
            self._promise = {
                "epsilon": promise.epsilon,
                "ticks": ticks,
                "period": description.period_seconds,
                "name": next(stretch_names, None),
                "when": promise.when_words,
                "conditions": [shared.condition for shared in description.sums],
            }
        elif topic.kind == "estimate":
            self._unread_payload = payload
        else:
            report = WindowCount.decode(payload)
            message_key += report.window
            self._keep_report(report_numbers(report, self._windows))
        if message_key in self.newest or len(self.newest) < _MOST_STREAMS:
            self.newest[message_key] = topic, payload

    def forget(self) -> None:
        """Forget the history, and keep the newest values."""
        for rows in self._all_rows:
            del rows[:]

    @property
    def _all_rows(self) -> list[array[float]]:
        return [rows for series in self._series.values() for rows in series.tiers]

    def prepend_stored(self, reports: Iterable[ReportNumbers]) -> None:
        """Put stored reports of windows before the received reports."""
        series_of_window = dict[str, _Series]()
        for report in sorted(reports, key=lambda report: report.time):
            series_of_window.setdefault(report.window, _Series(report)).add(report)
        for window, series in series_of_window.items():
            if window in self._series:
                series.append_later(self._series[window])
            if window in self._series or len(self._series) < _MOST_STREAMS:
                self._series[window] = series

    def read(self) -> None:
        payload, self._unread_payload = self._unread_payload, None
        if payload is not None:
            with suppress(FuguError):
                self._estimate = decode_estimate(payload)
                self._keep_report(report_numbers(self._estimate, self._windows))

    def _keep_report(self, report: ReportNumbers | None) -> None:
        if report is None or (report.window not in self._series and len(self._series) >= _MOST_STREAMS):
            return
        series = self._series.setdefault(report.window, _Series(report))
        if series.newest.labels != report.labels:
            series = self._series[report.window] = _Series(report)
        series.add(report)

    def histories(self) -> Iterator[Fields]:
        for series in self._series.values():
            yield {**series.newest.event(), "tiers": series.rows()}

    def headline(self) -> Fields:
        all_series = sorted(self._series.values(), key=lambda series: (series.newest.window == "", -series.newest.time))
        place = state = None
        match self._estimate:
            case PlaceEstimate(time=time, accuracy=accuracy):
                place = {"accuracy": accuracy, "time": unix_us(time) / 1e6}
            case StateEstimate(state=name, probability=probability):
                state = {"state": name, "probability": probability}
        newest_row = all_series[0].newest.event() if all_series else None
        return {"newest": newest_row, "place": place, "state": state, "promise": self._promise}


class _Series:
    """The history of a report: in each tier, one row for each step, of a time and each name's value and interval."""

    def __init__(self, report: ReportNumbers) -> None:
        self.newest = report
        self.tiers = tuple(array("d") for _ in TIERS)

    def add(self, report: ReportNumbers) -> None:
        self.newest = report
        width = 1 + 3 * len(report.names)
        for (time_step, time_span), tier in zip(TIERS, self.tiers, strict=True):
            while tier and (tier[-width] // time_step >= report.time // time_step):
                del tier[-width:]
            tier.extend((report.time, *chain(*report.numbers)))
            expired_rows = 0
            while tier[expired_rows] < report.time - time_span:
                expired_rows += width
            del tier[:expired_rows]

    def append_later(self, other_series: _Series) -> None:
        """Append the later rows of another series. If its names or unit differ, take all its rows instead."""
        if other_series.newest.labels != self.newest.labels:
            self.tiers, self.newest = other_series.tiers, other_series.newest
            return
        width = 1 + 3 * len(self.newest.names)
        for tier, later_rows in zip(self.tiers, other_series.tiers, strict=True):
            for offset in range(0, len(later_rows), width):
                if not tier or later_rows[offset] > tier[-width]:
                    tier.extend(later_rows[offset : offset + width])
        if other_series.newest.time > self.newest.time:
            self.newest = other_series.newest

    def rows(self) -> list[list[list[float | None]]]:
        width = 1 + 3 * len(self.newest.names)
        return [[_rounded_row(rows[i : i + width]) for i in range(0, len(rows), width)] for rows in self.tiers]


def _rounded_row(numbers: Iterable[float]) -> list[float | None]:
    """Round all numbers but the first, a time, to 4 significant digits. NaN, which JSON lacks, becomes `None`."""
    time, *row_numbers = numbers
    return [time, *(None if math.isnan(number) else float(f"{number:.4g}") for number in row_numbers)]
