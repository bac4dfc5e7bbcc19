"""The page of a device: what it has published, and what the gateway has made of it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any

from fugu.contract.chains import BinaryChains
from fugu.contract.descriptions import (
    METRES_PER_DEGREE,
    Described,
    DescribedVersion,
    DescribedWindow,
    Description,
    PlaceGrid,
)
from fugu.contract.ellipse import ellipse
from fugu.contract.errors import FuguError
from fugu.contract.frames import PolicyStatus, Status, SymbolFrame, WindowFrame
from fugu.contract.measure_frames import MeasureFrame, Point
from fugu.contract.noise_table import NoiseTable
from fugu.contract.queries import EACH
from fugu.contract.reports import CONFIDENCE, Estimate, PlaceEstimate, StateEstimate, WindowCount, decode_estimate
from fugu.contract.sentences import instant, instant_text
from fugu.contract.topics import Topic
from fugu.contract.windows import noise_within
from fugu.mqtt.readings import Descriptions
from gateway.page.attackers import MOST_WINDOWS, Ask, AttackView, shift_odds
from gateway.page.memory import MOST_SECONDS, ReportNumbers, report_numbers

__all__ = ["DeviceView"]


def posterior_bounds(chains: BinaryChains, epsilon: float) -> tuple[float, float]:
    """Least and greatest probability of state 1 at a tick over a class's chains, whatever a stream says of it.

    Beforehand a chain of the class is in state 1 with probability q / (q + r). What is released changes these odds by a
    factor of at most e^epsilon, for an attacker who knows only the chain.
    """
    low, high = chains.q[0] / (chains.q[0] + chains.r[1]), chains.q[1] / (chains.q[1] + chains.r[0])
    return shift_odds(low, -epsilon), shift_odds(high, epsilon)


_DIGITS, _METRE_DIGITS = 7, 1


def placed_symbols(version: DescribedVersion | None, symbols: Sequence[int]) -> list[dict[str, Any]]:
    """The middle of the cell that each symbol names, as latitude and longitude; nothing of other streams."""
    if (
        version is None
        or version.place is None
        or version.table is None
        or len(version.table[0]) + 1 != len(version.states)
    ):
        return []
    places = []
    for symbol in symbols:
        if symbol < len(version.place.cells):
            latitude, longitude = version.place.position(*version.place.cells[symbol])
            places.append({"latitude": latitude, "longitude": longitude, "state": version.states[symbol]})
    return places


def placed_shares(version: DescribedVersion | None, shares: Mapping[str, float]) -> dict[str, Any]:
    """Place by shares of states, by label: how likely each cell is, and an ellipse that holds it with 95 %.

    `cells` are in the order of the description's. The ellipse has latitude, longitude, half-axes in metres, orientation
    and the probability that there is a place at all. States without a cell, such as `missing`, are left out of it.
    Other streams have nothing.
    """
    if version is None or version.place is None or set(shares) != set(version.states):
        return {}
    grid = version.place
    weights = [shares[label] for label in version.states[: len(grid.cells)]]
    if not sum(weights) > 0.0 or len(weights) != len(grid.cells):
        return {}
    return {"cells": weights, "placed": sum(weights), **_outline(grid, weights)}


def _outline(grid: PlaceGrid, weights: Sequence[float]) -> dict[str, float]:
    rows = [row for _, row in grid.cells]
    middle_latitude = grid.origin[0] + (min(rows) + max(rows) + 1) / 2.0 * grid.step[0]
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
"""Values and messages of a store that the page draws one by one; a message has all its bytes."""


class DeviceView:
    """Takes messages of one device; keeps the newest of each kind, whatever a broker sends.

    `refused_count` counts messages that could not be used.
    """

    def __init__(self) -> None:
        self.refused_count = 0
        self._descriptions = Descriptions()
        self._messages: dict[tuple[str, str], deque[dict[str, Any]]] = {}
        self._streams: set[str] = set()
        self._attack_views: dict[str, AttackView] = {}
        self._latest: dict[str, Description] = {}
        self._recalled_versions: dict[str, int] = {}

    def take(self, topic: Topic, payload: bytes, heard_at: float = 0.0) -> dict[str, Any] | None:
        """Update for the page by a message, heard in Unix seconds; `None` if it cannot be used, or says nothing new."""
        if topic.stream not in self._streams and len(self._streams) >= _MAX_STREAMS:
            self.refused_count += 1
            return None
        try:
            update = self._read(topic, payload, heard_at)
        except FuguError:
            self.refused_count += 1
            return None
        if update is not None:
            self._streams.add(topic.stream)
            update["stream"] = topic.stream
            self.keep(update)
        return update

    def keep(self, update: dict[str, Any]) -> None:
        """Keep what the page is told for those who open it later."""
        kind = update["kind"]
        self._messages.setdefault((update["stream"], kind), deque(maxlen=_MAX_MESSAGES[kind])).append(update)

    def budgets(self, accounts: dict[str, Any]) -> dict[str, Any] | None:
        """Budgets in the ledger now, as the page is told; `None` if it has been told."""
        update = {"kind": "budget", "stream": "", **accounts}
        if list(self._messages.get(("", "budget"), ())) == [update]:
            return None
        self.keep(update)
        return update

    def stored_due(self, now: float) -> dict[tuple[str, str], int]:
        """From which tick on a store is to be read, by stream and window; each version of a stream is named once."""
        first_ticks = {}
        for stream, description in self._latest.items():
            if description.version <= self._recalled_versions.get(stream, 0):
                continue
            self._recalled_versions[stream] = description.version
            for window in description.windows:
                last_tick = (int(now * 1e6) - description.epoch_us) // description.period_us
                ticks_back = min(
                    MOST_SECONDS * 1_000_000 // description.period_us, MOST_WINDOWS * window.stride + window.length
                )
                first_ticks[stream, window.name] = max(0, last_tick - ticks_back)
        return first_ticks

    def take_stored(self, topic: Topic, frames: Sequence[WindowFrame]) -> tuple[dict[str, Any], list[ReportNumbers]]:
        """Take windows that a store has, before those that come; an update for the page, and all their numbers."""
        description, reports, counts = self._latest[topic.stream], list[ReportNumbers](), dict[str, WindowCount]()
        described_frames = [frame for frame in frames if frame.policy_version == description.version]
        messages = [self._window(topic, frame.encode()) for frame in described_frames]
        for frame in described_frames:
            counts[frame.window] = _window_count(description, frame)
            if frame.observed and (report := report_numbers(counts[frame.window], description.windows)) is not None:
                reports.append(report)
        series = dict[str, dict[str, Any]]()
        for event in (report.event() for report in reports):
            series.setdefault(event["of"], {**event, "rows": []})["rows"].append(event["row"])
        newest = [{**series, "rows": series["rows"][-_NEWEST:]} for series in series.values()]
        update = {"kind": "stored", "stream": topic.stream, "messages": messages[-_MAX_STORED:], "series": newest}
        update["counts"] = [{"kind": "count", **self._report(topic, count)} for count in counts.values()]
        self.keep(update)
        return update, reports

    def attacks_due(self) -> list[Callable[[Ask], dict[str, Any]]]:
        """Functions that ask for the attacks on each stream of which something came."""
        return [attack for adversary in self._attack_views.values() if (attack := adversary.due()) is not None]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All that is kept, descriptions first, then in the order in which it came."""
        kinds = list(_MAX_MESSAGES)[::-1]
        for key in sorted(self._messages, key=lambda sequence: kinds.index(sequence[1])):
            yield from self._messages[key]

    def _read(self, topic: Topic, payload: bytes, heard_at: float) -> dict[str, Any] | None:
        match topic.kind:
            case "description":
                description = self._descriptions.take(topic.fleet, topic.device, topic.stream, payload)
                if description is None:
                    return None
                self._latest[topic.stream] = description
                self._attack(topic).describe(description)
                return {"kind": "description", **_description(description)}
            case "symbols" if payload[:1] == bytes([MeasureFrame.SCHEMA]):
                return self._points(topic, payload)
            case "symbols":
                frame = SymbolFrame.decode(payload)
                self._attack(topic).take(frame)
                version = self._descriptions.of(topic.device, topic.stream, frame.policy_version)
                places = placed_symbols(version, frame.symbols[-_POINTS_PLACED:])
                return self._message(topic, payload, "frame", frame, {"symbols": list(frame.symbols), "newest": places})
            case "window":
                return self._window(topic, payload)
            case "status" | "policy_status" if payload:
                decode = _status if topic.kind == "status" else _policy_status
                return {**decode(payload), "time": _time_text(instant(int(heard_at * 1e6))), **_byte_fields(payload)}
            case "estimate":
                estimate = decode_estimate(payload)
                place_fields = self._place_fields(topic.stream, estimate)
                return {"kind": "estimate", **self._report(topic, estimate), "where": place_fields}
            case "count":
                return {"kind": "count", **self._report(topic, WindowCount.decode(payload))}
        return None

    def _place_fields(self, stream: str, estimate: Estimate) -> dict[str, Any]:
        if isinstance(estimate, PlaceEstimate):
            names = ("latitude", "longitude", "accuracy", "semi_major", "semi_minor", "orientation", "protection")
            return {name: getattr(estimate, name) for name in names}
        return placed_shares(self._latest.get(stream), estimate.shares) if isinstance(estimate, StateEstimate) else {}

    def _report(self, topic: Topic, report: Estimate | WindowCount) -> dict[str, Any]:
        numbers = report_numbers(report, self._latest[topic.stream].windows if topic.stream in self._latest else ())
        return {**report.written(), "said": numbers and numbers.event()}

    def _attack(self, topic: Topic) -> AttackView:
        return self._attack_views.setdefault(topic.stream, AttackView())

    def _points(self, topic: Topic, payload: bytes) -> dict[str, Any]:
        frame = MeasureFrame.decode(payload)
        description = self._descriptions.of(topic.device, topic.stream, frame.policy_version)
        points = [r.point for r in frame.released]
        places = [_point_fields(description, point) for point in points[-_POINTS_PLACED:]]
        return self._message(topic, payload, "points", frame, {"points": [*map(list, points)], "newest": places})

    def _window(self, topic: Topic, payload: bytes) -> dict[str, Any]:
        frame = WindowFrame.decode(payload)
        self._attack(topic).take_window(frame)
        fields: dict[str, Any] = {"window": frame.window, "length": frame.length}
        fields |= {"observed": frame.observed, "counts": frame.counts}
        description = self._descriptions.of(topic.device, topic.stream, frame.policy_version)
        windows = {} if description is None else {window.name: window for window in description.windows}
        if description is not None and (window := windows.get(frame.window)) is not None:
            labels = window.named(description.states)
            fields |= {"labels": labels, "noise": _noise_range(window.scale), "confidence": CONFIDENCE}
        return self._message(topic, payload, "window", frame, fields)

    def _message(
        self,
        topic: Topic,
        payload: bytes,
        kind: str,
        frame: SymbolFrame | MeasureFrame | WindowFrame,
        fields: dict[str, Any],
    ) -> dict[str, Any]:
        """Fields of a message with its bytes, and the time of its first tick, or that at which a window was over."""
        tick = frame.last + 1 if isinstance(frame, WindowFrame) else frame.first
        description = self._descriptions.of(topic.device, topic.stream, frame.policy_version)
        time = None if description is None else description.time_of(tick, frame.shift)
        head = {"kind": kind, "version": frame.policy_version, "first": frame.first, "shift": frame.shift}
        return {**head, **fields, "time": _time_text(time), **_byte_fields(payload)}


def _byte_fields(payload: bytes) -> dict[str, Any]:
    return {"bytes": payload.hex(), "size": len(payload)}


def _status(payload: bytes) -> dict[str, Any]:
    status = Status.decode(payload)
    streams = [
        {"name": stream.stream, "version": stream.policy_version, "next": stream.next_tick} for stream in status.streams
    ]
    fields = {"online": status.online, "agent": status.agent_version, "outbox": status.outbox_depth}
    return {"kind": "status", **fields, "codes": [*map(str, status.codes)], "streams": streams}


def _policy_status(payload: bytes) -> dict[str, Any]:
    status = PolicyStatus.decode(payload)
    fields = {name: getattr(status, name) for name in ("reason", "detail", "refused", "stale")}
    return {"kind": "policy", "running": status.version, "judged": status.judged.hex(), **fields}


def _point_fields(version: DescribedVersion | None, point: Point) -> dict[str, Any]:
    """A point with the cell that it is in, and its latitude and longitude, where the stream is one of places."""
    fields: dict[str, Any] = {"point": list(point)}
    if version is None or version.place is None or version.place.cell_size is None or len(point) != 2:
        return fields
    latitude, longitude = version.place.position(*point)
    cells = {cell: version.states[number] for number, cell in enumerate(version.place.cells[: len(version.states)])}
    return {**fields, "latitude": latitude, "longitude": longitude, "state": cells.get((point[0], point[1]))}


def _window_count(description: Description, frame: WindowFrame) -> WindowCount:
    """The report of a window, as the gateway makes it."""
    window = next(window for window in description.windows if window.name == frame.window)
    states = description.states if window.states == EACH else window.states
    noise_bound, promise = _noise_range(window.scale) or 0, description.guarantee
    return WindowCount.of(frame, window, states, noise_bound, description.time_of, promise, description.useful_for)


def _noise_range(scale: str) -> int | None:
    """The least h such that noise of a scale is in -h..h at `CONFIDENCE`; `None` if the scale is none."""
    try:
        return noise_within(Fraction(scale), CONFIDENCE)
    except (ValueError, ArithmeticError):
        return None


def _time_text(time: datetime | None) -> str | None:
    return None if time is None else instant_text(time)


def _description(description: Description) -> dict[str, Any]:
    symbols = 0 if description.table is None else len(description.table[0]) + 1
    names = ("version", "confirmed", "unit", "period_seconds", "frame_ticks", "chain_class", "point_epsilon")
    return {
        **{name: getattr(description, name) for name in (*names, "protects", "does_not_protect")},
        "of": description.kind,
        "states": description.states[:_MOST_STATES_SHOWN],
        "labels": [description.label(number) for number in range(min(symbols, _MOST_STATES_SHOWN))],
        "guarantee": _promise(description.guarantee),
        "windows_guarantee": description.windows_guarantee and _promise(description.windows_guarantee),
        "flips": () if description.table is None else NoiseTable(description.table).flips,
        "place": _grid(description),
        "bounds": _posterior_fields(description),
        "windows": [_window(window, description.period_seconds) for window in description.windows],
        "conditions": [shared.condition for shared in description.sums],
    }


def _window(window: DescribedWindow, period: float) -> dict[str, Any]:
    return {
        "name": window.name,
        "seconds": window.length * period,
        "every": window.stride * period,
        "blocks": window.blocks is not None,
    }


def _grid(description: Description) -> dict[str, Any] | None:
    if (grid := description.place) is None:
        return None
    fields = {"origin": grid.origin, "step": grid.step, "cells": grid.cells}
    return {**fields, "labels": description.states[: len(grid.cells)]}


def _promise(promise: Described) -> dict[str, Any]:
    stretches = [stretch.model_dump() for stretch in promise.stretches]
    fields = {name: getattr(promise, name) for name in ("epsilon", "adversary", "stretch_ticks", "of_a_tick", "when")}
    return {**fields, "stretches": stretches}


def _posterior_fields(description: Description) -> dict[str, Any] | None:
    """Between what the promise holds the probability of the last of two states, whatever the stream says."""
    chains, epsilon = description.chains, description.guarantee.of_a_tick
    if not isinstance(chains, BinaryChains) or epsilon is None:
        return None
    low, high = posterior_bounds(chains, epsilon)
    return {"state": description.states[1], "low": low, "high": high}
