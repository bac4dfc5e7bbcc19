"""The page of a device: what the device has published, and what the gateway has computed from that."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from fractions import Fraction

from fugu.contract.chains import BinaryChains
from fugu.contract.descriptions import METRES_PER_DEGREE, DescribedPromise, DescribedVersion, Description, PlaceGrid
from fugu.contract.ellipse import ellipse
from fugu.contract.errors import FuguError
from fugu.contract.frames import PolicyStatus, Status, SymbolFrame, WindowFrame
from fugu.contract.measure_frames import MeasureFrame, Point
from fugu.contract.noise_table import NoiseTable
from fugu.contract.queries import EACH
from fugu.contract.reports import CONFIDENCE, Estimate, PlaceEstimate, StateEstimate, WindowCount, decode_estimate
from fugu.contract.sentences import instant, instant_text
from fugu.contract.topics import Topic
from fugu.contract.windows import noise_half_width
from fugu.mqtt.readings import Descriptions, symbol_states
from gateway.page import Fields
from gateway.page.attackers import MOST_WINDOWS, Ask, AttackView, shift_odds
from gateway.page.memory import MOST_SECONDS, ReportNumbers, report_numbers

__all__ = ["DeviceView"]


def posterior_bounds(chains: BinaryChains, epsilon: float) -> tuple[float, float]:
    """Return bounds of the probability of state 1 at a tick, whatever the chain of a class and the releases.

    Before any release, a chain of the class is in state 1 with probability q / (q + r). Releases change these odds by a
    factor of at most e^epsilon, for an attacker who knows only the chain.
    """
    low, high = chains.q[0] / (chains.q[0] + chains.r[1]), chains.q[1] / (chains.q[1] + chains.r[0])
    return shift_odds(low, -epsilon), shift_odds(high, epsilon)


_DIGITS, _METRE_DIGITS = 7, 1


def placed_symbols(version: DescribedVersion | None, symbols: Sequence[int]) -> list[Fields]:
    """Return latitude, longitude and state of the cell of each symbol that has one; [] for a stream without cells."""
    if version is None or (grid := version.place) is None or not (states := symbol_states(version)):
        return []
    places = ((*grid.position(*grid.cells[symbol]), states[symbol]) for symbol in symbols if symbol < len(grid.cells))
    return [{"latitude": latitude, "longitude": longitude, "state": state} for latitude, longitude, state in places]


def placed_shares(version: DescribedVersion | None, shares: Mapping[str, float]) -> Fields:
    """Return the probability of each cell, from the probabilities of states by name, and an ellipse that holds 95 %.

    `cells` has the order of the description's cells. `placed` is the probability that there is a place at all: states
    without a cell, such as `missing`, are left out. The ellipse has latitude, longitude, half-axes in metres and
    orientation. Returns {} for a stream without places, or if no cell has a probability.
    """
    if version is None or version.place is None or set(shares) != set(version.states):
        return {}
    grid = version.place
    weights = [shares[label] for label in version.states[: len(grid.cells)]]
    if not sum(weights) > 0.0 or len(weights) != len(grid.cells):
        return {}
    return {"cells": weights, "placed": sum(weights), **_ellipse_fields(grid, weights)}


def _ellipse_fields(grid: PlaceGrid, weights: Sequence[float]) -> dict[str, float]:
    cell_rows = [row for _, row in grid.cells]
    middle_latitude = grid.origin[0] + (min(cell_rows) + max(cell_rows) + 1) / 2.0 * grid.step[0]
    width = grid.step[1] * METRES_PER_DEGREE * math.cos(math.radians(middle_latitude))
    height = grid.step[0] * METRES_PER_DEGREE
    places = [(column * width, row * height) for column, row in grid.cells]
    region = ellipse(places, weights, (width, height), CONFIDENCE)
    latitude, longitude = grid.position(region.east / width, region.north / height)
    scale = 10.0**_METRE_DIGITS
    return {
        "latitude": round(latitude, _DIGITS),
        "longitude": round(longitude, _DIGITS),
        "semi_major": math.ceil(region.semi_major * scale) / scale,
        "semi_minor": math.ceil(region.semi_minor * scale) / scale,
        "orientation": region.orientation,
    }


_MAX_STREAMS = 64
_MAX_MESSAGES = {
    **{"frame": 40, "points": 40, "window": 40, "status": 5, "policy": 5},
    **{"estimate": 300, "attack": 1, "count": 40, "budget": 1, "stored": 1, "description": 1},
}
_MOST_STATES_SHOWN = 64
_POINTS_PLACED = 3
_NEWEST, _MAX_STORED = 300, 144
"""The most stored values, and the most stored messages, that the page is sent."""


class DeviceView:
    """Takes messages of one device, and keeps a bounded number of the newest of each kind.

    `refused_count` counts messages that could not be used. `listeners` are called with each update that is kept.
    """

    def __init__(self) -> None:
        self.refused_count = 0
        self.listeners: list[Callable[[Fields], None]] = []
        self._descriptions = Descriptions()
        self._messages: dict[tuple[str, str], deque[Fields]] = {}
        self._streams: set[str] = set()
        self._attack_views = defaultdict[str, AttackView](AttackView)
        self._latest: dict[str, Description] = {}
        self._recalled_versions: dict[str, int] = {}

    def take(self, topic: Topic, payload: bytes, heard_at: float = 0.0) -> Fields | None:
        """Take a message, heard at a Unix time in seconds. Return the page's update, or `None` without one."""
        if topic.stream not in self._streams and len(self._streams) >= _MAX_STREAMS:
            self.refused_count += 1
            return None
        try:
            update = self._read(topic, payload, heard_at)
        except (FuguError, ValueError):  # also a table that a description may state, and no device may have
            self.refused_count += 1
            return None
        if update is not None:
            self._streams.add(topic.stream)
            update["stream"] = topic.stream
            self.keep(update)
        return update

    def keep(self, update: Fields) -> None:
        """Give an update to the listeners, and keep it for later watchers."""
        kind = update["kind"]
        self._messages.setdefault((update["stream"], kind), deque(maxlen=_MAX_MESSAGES[kind])).append(update)
        self.tell(update)

    def tell(self, update: Fields) -> None:
        """Give an update to the listeners."""
        for listener in self.listeners:
            listener(update)

    def take_budgets(self, accounts: Fields) -> None:
        """Take the ledger's budgets, and keep their update if they have changed."""
        update = {"kind": "budget", "stream": "", **accounts}
        if list(self._messages.get(("", "budget"), ())) != [update]:
            self.keep(update)

    def stored_due(self, now: float) -> dict[tuple[str, str], int]:
        """Return the first tick to read from a store, by stream and window, for streams with a new version.

        These are the ticks of a week until Unix time `now` in seconds, or of as many windows as are kept.
        """
        first_ticks = {}
        for stream, description in self._latest.items():
            if description.version <= self._recalled_versions.get(stream, 0):
                continue
            self._recalled_versions[stream] = description.version
            for window in description.windows:
                last_tick = (int(now * 1e6) - description.epoch_us) // description.period_us
                window_ticks = MOST_WINDOWS * window.stride + window.length
                ticks_back = min(MOST_SECONDS * 1_000_000 // description.period_us, window_ticks)
                first_ticks[stream, window.name] = max(0, last_tick - ticks_back)
        return first_ticks

    def take_stored(self, topic: Topic, frames: Sequence[WindowFrame]) -> tuple[Fields, list[ReportNumbers]]:
        """Take stored windows of a stream. Return the page's update, and the numbers of its version's windows."""
        description, reports, counts = self._latest[topic.stream], list[ReportNumbers](), dict[str, WindowCount]()
        described_frames = [frame for frame in frames if frame.policy_version == description.version]
        messages = [self._window_update(topic, frame.encode()) for frame in described_frames]
        for frame in described_frames:
            counts[frame.window] = _window_count(description, frame)
            if frame.observed and (report := report_numbers(counts[frame.window], description.windows)) is not None:
                reports.append(report)
        series = dict[str, Fields]()
        for event in (report.event() for report in reports):
            series.setdefault(event["of"], {**event, "rows": []})["rows"].append(event["row"])
        events = [{**event, "rows": event["rows"][-_NEWEST:]} for event in series.values()]
        update = {"kind": "stored", "stream": topic.stream, "messages": messages[-_MAX_STORED:], "series": events}
        update["counts"] = [{"kind": "count", **self._report_fields(topic, count)} for count in counts.values()]
        self.keep(update)
        return update, reports

    def attacks_due(self) -> list[Callable[[Ask], Fields]]:
        """Return for each stream with new messages a function that asks for the attack on it."""
        return [attack for view in self._attack_views.values() if (attack := view.due_attack()) is not None]

    def __iter__(self) -> Iterator[Fields]:
        """Yield all kept updates by kind, descriptions first, within a kind and stream in order of arrival."""
        kinds = list(_MAX_MESSAGES)[::-1]
        for stream_and_kind in sorted(self._messages, key=lambda stream_kind: kinds.index(stream_kind[1])):
            yield from self._messages[stream_and_kind]

    def _read(self, topic: Topic, payload: bytes, heard_at: float) -> Fields | None:
        match topic.kind:
            case "description":
                description = self._descriptions.store(topic, payload)
                if description is None:
                    return None
                fields = _description_fields(description)
                self._latest[topic.stream] = description
                self._attack_views[topic.stream].describe(description)
                return fields
            case "symbols" if payload[:1] == bytes([MeasureFrame.SCHEMA]):
                return self._points_update(topic, payload)
            case "symbols":
                frame = SymbolFrame.decode(payload)
                self._attack_views[topic.stream].take(frame)
                version = self._descriptions.find(topic.device, topic.stream, frame.policy_version)
                newest_places = placed_symbols(version, frame.symbols[-_POINTS_PLACED:])
                symbol_fields = {"symbols": list(frame.symbols), "newest": newest_places}
                return _frame_fields(version, payload, "frame", frame, symbol_fields)
            case "window":
                return self._window_update(topic, payload)
            case "status" | "policy_status" if payload:
                decode = _status_fields if topic.kind == "status" else _policy_status_fields
                return {**decode(payload), "time": _time_text(instant(int(heard_at * 1e6))), **_byte_fields(payload)}
            case "estimate":
                estimate = decode_estimate(payload)
                place_fields = self._place_fields(topic.stream, estimate)
                return {"kind": "estimate", **self._report_fields(topic, estimate), "where": place_fields}
            case "count":
                return {"kind": "count", **self._report_fields(topic, WindowCount.decode(payload))}
        return None

    def _place_fields(self, stream: str, estimate: Estimate) -> Fields:
        if isinstance(estimate, PlaceEstimate):
            names = ("latitude", "longitude", "accuracy", "semi_major", "semi_minor", "orientation", "protection")
            return {name: getattr(estimate, name) for name in names}
        return placed_shares(self._latest.get(stream), estimate.shares) if isinstance(estimate, StateEstimate) else {}

    def _report_fields(self, topic: Topic, report: Estimate | WindowCount) -> Fields:
        numbers = report_numbers(report, self._latest[topic.stream].windows if topic.stream in self._latest else ())
        return {**report.json_fields(), "numbers": numbers and numbers.event()}

    def _points_update(self, topic: Topic, payload: bytes) -> Fields:
        frame = MeasureFrame.decode(payload)
        version = self._descriptions.find(topic.device, topic.stream, frame.policy_version)
        points = [released.point for released in frame.released]
        places = [_point_fields(version, point) for point in points[-_POINTS_PLACED:]]
        return _frame_fields(version, payload, "points", frame, {"points": [*map(list, points)], "newest": places})

    def _window_update(self, topic: Topic, payload: bytes) -> Fields:
        frame = WindowFrame.decode(payload)
        self._attack_views[topic.stream].take_window(frame)
        names = ("window", "length", "observed", "counts")
        fields: Fields = {name: getattr(frame, name) for name in names}
        version = self._descriptions.find(topic.device, topic.stream, frame.policy_version)
        windows = {} if version is None else {window.name: window for window in version.windows}
        if version is not None and (window := windows.get(frame.window)) is not None:
            labels = window.count_names(version.states)
            fields |= {"labels": labels, "noise": _noise_range(window.scale), "confidence": CONFIDENCE}
        return _frame_fields(version, payload, "window", frame, fields)


def _frame_fields(
    version: DescribedVersion | None,
    payload: bytes,
    kind: str,
    frame: SymbolFrame | MeasureFrame | WindowFrame,
    fields: Fields,
) -> Fields:
    """Return a message's fields, with its bytes and the time of its first tick, or of the end of its window."""
    tick = frame.last + 1 if isinstance(frame, WindowFrame) else frame.first
    time = None if version is None else version.time_of(tick, frame.shift)
    common_fields = {"kind": kind, "version": frame.policy_version, "first": frame.first, "shift": frame.shift}
    return {**common_fields, **fields, "time": _time_text(time), **_byte_fields(payload)}


def _byte_fields(payload: bytes) -> Fields:
    return {"bytes": payload.hex(), "size": len(payload)}


def _status_fields(payload: bytes) -> Fields:
    status = Status.decode(payload)
    rows = [(stream.stream, stream.policy_version, stream.next_tick) for stream in status.streams]
    streams = [{"name": name, "version": version, "next": next_tick} for name, version, next_tick in rows]
    fields = {"online": status.online, "agent": status.agent_version, "outbox": status.outbox_depth}
    return {"kind": "status", **fields, "codes": [*map(str, status.codes)], "streams": streams}


def _policy_status_fields(payload: bytes) -> Fields:
    status = PolicyStatus.decode(payload)
    fields = {name: getattr(status, name) for name in ("reason", "detail", "refused", "stale")}
    return {"kind": "policy", "running": status.version, "judged": status.judged.hex(), **fields}


def _point_fields(version: DescribedVersion | None, point: Point) -> Fields:
    """Return a point, and its latitude, longitude and cell if the stream is one of places."""
    fields: Fields = {"point": list(point)}
    grid = None if version is None else version.place
    if version is None or grid is None or grid.cell_size is None or len(point) != 2:
        return fields
    latitude, longitude = grid.position(*point)
    states = dict(zip(grid.cells, version.states, strict=False))
    return {**fields, "latitude": latitude, "longitude": longitude, "state": states.get((point[0], point[1]))}


def _window_count(description: Description, frame: WindowFrame) -> WindowCount:
    """Make the report of a window as the gateway does."""
    window = next(window for window in description.windows if window.name == frame.window)
    states = description.states if window.states == EACH else window.states
    noise_bound, promise = _noise_range(window.scale) or 0, description.guarantee
    return WindowCount.of(frame, window, states, noise_bound, description.time_of, promise, description.useful_for)


def _noise_range(scale: str) -> int | None:
    """Return the least h such that noise is in -h..h with probability `CONFIDENCE`; `None` if `scale` is no scale."""
    try:
        return noise_half_width(Fraction(scale), CONFIDENCE)
    except (ValueError, ArithmeticError):
        return None


def _time_text(time: datetime | None) -> str | None:
    return None if time is None else instant_text(time)


def _description_fields(description: Description) -> Fields:
    symbols = 0 if description.table is None else len(description.table[0]) + 1
    period = description.period_seconds
    names = ("version", "confirmed", "unit", "period_seconds", "frame_ticks", "chain_class", "point_epsilon")
    return {
        "kind": "description",
        **{name: getattr(description, name) for name in (*names, "protects", "does_not_protect")},
        "of": description.kind,
        "states": description.states[:_MOST_STATES_SHOWN],
        "labels": [description.label(symbol) for symbol in range(min(symbols, _MOST_STATES_SHOWN))],
        "guarantee": _promise_fields(description.guarantee),
        "windows_guarantee": description.windows_guarantee and _promise_fields(description.windows_guarantee),
        "flips": () if description.table is None else NoiseTable(description.table).flips,
        "place": _grid_fields(description),
        "bounds": _posterior_fields(description),
        "windows": [
            {"name": w.name, "seconds": w.length * period, "every": w.stride * period, "blocks": w.blocks is not None}
            for w in description.windows
        ],
        "conditions": [shared.condition for shared in description.sums],
    }


def _grid_fields(description: Description) -> Fields | None:
    if (grid := description.place) is None:
        return None
    labels = description.states[: len(grid.cells)]
    return {"origin": grid.origin, "step": grid.step, "cells": grid.cells, "labels": labels}


def _promise_fields(promise: DescribedPromise) -> Fields:
    names = ("epsilon", "adversary", "stretch_ticks", "tick_epsilon")
    stretches = [stretch.model_dump() for stretch in promise.stretches]
    return {**{name: getattr(promise, name) for name in names}, "when": promise.when_words, "stretches": stretches}


def _posterior_fields(description: Description) -> Fields | None:
    """Return the bounds that the promise sets to the second state's probability, or `None` without bounds."""
    chains, epsilon = description.chains, description.guarantee.tick_epsilon
    if not isinstance(chains, BinaryChains) or epsilon is None:
        return None
    low, high = posterior_bounds(chains, epsilon)
    return {"state": description.states[1], "low": low, "high": high}
