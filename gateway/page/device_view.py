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
from fugu.contract.reports import Estimate, PlaceEstimate, StateEstimate, WindowCount, decode_estimate
from fugu.contract.sentences import instant, instant_text
from fugu.contract.topics import Topic
from fugu.mqtt.readings import Descriptions
from gateway.page.attackers import MOST_WINDOWS, Ask, AttackView, moved
from gateway.page.memory import MOST_SECONDS, Said, said_of

__all__ = ["DeviceView"]


def posterior_bounds(chains: BinaryChains, epsilon: float) -> tuple[float, float]:
    """Least and greatest probability of state 1 at a tick over a class's chains, whatever a stream says of it.

    A chain of the class is in state 1 with probability q / (q + r) before anything is heard; what is released changes
    these odds by a factor of at most e^epsilon, for whoever knows the chain and nothing else of the readings.
    """
    low, high = chains.q[0] / (chains.q[0] + chains.r[1]), chains.q[1] / (chains.q[1] + chains.r[0])
    return moved(low, -epsilon), moved(high, epsilon)


_CONFIDENCE = 0.95
_DIGITS, _METRE_DIGITS = 7, 1


def placed_symbols(told: DescribedVersion | None, symbols: Sequence[int]) -> list[dict[str, Any]]:
    """The middle of the cell that each symbol names, as latitude and longitude; nothing of other streams."""
    if told is None or told.place is None or told.table is None or len(told.table[0]) + 1 != len(told.states):
        return []
    found = []
    for symbol in symbols:
        if symbol < len(told.place.cells):
            latitude, longitude = told.place.position(*told.place.cells[symbol])
            found.append({"latitude": latitude, "longitude": longitude, "state": told.states[symbol]})
    return found


def placed_shares(told: DescribedVersion | None, shares: Mapping[str, float]) -> dict[str, Any]:
    """Place by shares of states, by label: how likely each cell is, and an ellipse that holds it with 95 %.

    `cells` are in the order of the description's; the ellipse has latitude, longitude, half-axes in metres, orientation
    and the probability that there is a place at all: states without a cell, such as `missing`, are left out of it.
    Other streams have nothing.
    """
    if told is None or told.place is None or set(shares) != set(told.states):
        return {}
    grid = told.place
    weights = [shares[label] for label in told.states[: len(grid.cells)]]
    if not sum(weights) > 0.0 or len(weights) != len(grid.cells):
        return {}
    return {"cells": weights, "placed": sum(weights), **_outline(grid, weights)}


def _outline(grid: PlaceGrid, weights: Sequence[float]) -> dict[str, float]:
    rows = [row for _, row in grid.cells]
    middle = grid.origin[0] + (min(rows) + max(rows) + 1) / 2.0 * grid.step[0]
    width = grid.step[1] * METRES_PER_DEGREE * math.cos(math.radians(middle))
    height = grid.step[0] * METRES_PER_DEGREE
    places = [(column * width, row * height) for column, row in grid.cells]
    found = ellipse(places, weights, (width, height), _CONFIDENCE)
    latitude, longitude = grid.position(found.east / width, found.north / height)
    scale = 10.0**_METRE_DIGITS
    return {
        "latitude": round(latitude, _DIGITS),
        "longitude": round(longitude, _DIGITS),
        "semi_major": math.ceil(found.semi_major * scale) / scale,
        "semi_minor": math.ceil(found.semi_minor * scale) / scale,
        "orientation": found.orientation,
    }


_MOST_STREAMS = 64
_MOST = {
    **{"frame": 40, "points": 40, "window": 40, "status": 5, "policy": 5},
    **{"estimate": 300, "attack": 1, "count": 40, "budget": 1, "stored": 1, "description": 1},
}
_MOST_STATES_SHOWN = 64
_POINTS_PLACED = 3
_NEWEST, _MESSAGES = 300, 144
"""Values and messages of a store that the page draws one by one; a message has all its bytes."""


class DeviceView:
    """Takes messages of one device; keeps the newest of each kind, whatever a broker sends.

    `left_out` counts messages that could not be used.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self._described = Descriptions()
        self._stored: dict[tuple[str, str], deque[dict[str, Any]]] = {}
        self._streams: set[str] = set()
        self._attacks: dict[str, AttackView] = {}
        self._newest: dict[str, Description] = {}
        self._recalled: dict[str, int] = {}

    def take(self, topic: Topic, payload: bytes, heard: float = 0.0) -> dict[str, Any] | None:
        """Update for the page by a message, heard in Unix seconds; `None` if it cannot be used, or says nothing new."""
        if topic.stream not in self._streams and len(self._streams) >= _MOST_STREAMS:
            self.left_out += 1
            return None
        try:
            found = self._read(topic, payload, heard)
        except FuguError:
            self.left_out += 1
            return None
        if found is not None:
            self._streams.add(topic.stream)
            found["stream"] = topic.stream
            self.keep(found)
        return found

    def keep(self, told: dict[str, Any]) -> None:
        """Keep what the page is told for those who open it later."""
        kind = told["kind"]
        self._stored.setdefault((told["stream"], kind), deque(maxlen=_MOST[kind])).append(told)

    def budgets(self, found: dict[str, Any]) -> dict[str, Any] | None:
        """Budgets in the ledger now, as the page is told; `None` if it has been told."""
        update = {"kind": "budget", "stream": "", **found}
        if list(self._stored.get(("", "budget"), ())) == [update]:
            return None
        self.keep(update)
        return update

    def stored_due(self, now: float) -> dict[tuple[str, str], int]:
        """From which tick on a store is to be read, by stream and window; each version of a stream is named once."""
        since = {}
        for stream, told in self._newest.items():
            if told.version <= self._recalled.get(stream, 0):
                continue
            self._recalled[stream] = told.version
            for window in told.windows:
                end = (int(now * 1e6) - told.epoch_us) // told.period_us
                reach = min(MOST_SECONDS * 1_000_000 // told.period_us, MOST_WINDOWS * window.stride + window.length)
                since[stream, window.name] = max(0, end - reach)
        return since

    def take_stored(self, place: Topic, frames: Sequence[WindowFrame]) -> tuple[dict[str, Any], list[Said]]:
        """Take windows that a store has, before those that come; an update for the page, and all their numbers."""
        told, reports, counts = self._newest[place.stream], list[Said](), dict[str, WindowCount]()
        mine = [frame for frame in frames if frame.policy_version == told.version]
        messages = [self._window(place, frame.encode()) for frame in mine]
        for frame in mine:
            counts[frame.window] = _count(told, frame)
            if frame.observed and (said := said_of(counts[frame.window], told.windows)) is not None:
                reports.append(said)
        series = dict[str, dict[str, Any]]()
        for event in (said.event() for said in reports):
            series.setdefault(event["of"], {**event, "rows": []})["rows"].append(event["row"])
        newest = [{**one, "rows": one["rows"][-_NEWEST:]} for one in series.values()]
        update = {"kind": "stored", "stream": place.stream, "messages": messages[-_MESSAGES:], "series": newest}
        update["counts"] = [{"kind": "count", **self._report(place, count)} for count in counts.values()]
        self.keep(update)
        return update, reports

    def attacks_due(self) -> list[Callable[[Ask], dict[str, Any]]]:
        """Functions that ask for the attacks on each stream of which something came."""
        return [made for one in self._attacks.values() if (made := one.due()) is not None]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All that is kept, descriptions first, then in the order in which it came."""
        kinds = list(_MOST)[::-1]
        for key in sorted(self._stored, key=lambda one: kinds.index(one[1])):
            yield from self._stored[key]

    def _read(self, topic: Topic, payload: bytes, heard: float) -> dict[str, Any] | None:
        match topic.kind:
            case "description":
                found = self._described.take(topic.fleet, topic.device, topic.stream, payload)
                if found is None:
                    return None
                self._newest[topic.stream] = found
                self._attack(topic).describe(found)
                return {"kind": "description", **_description(found)}
            case "symbols" if payload[:1] == bytes([MeasureFrame.SCHEMA]):
                return self._points(topic, payload)
            case "symbols":
                frame = SymbolFrame.decode(payload)
                self._attack(topic).take(frame)
                told = self._described.of(topic.device, topic.stream, frame.policy_version)
                newest = placed_symbols(told, frame.symbols[-_POINTS_PLACED:])
                return self._sent(topic, payload, {**_symbols(frame), "newest": newest})
            case "window":
                return self._window(topic, payload)
            case "status" | "policy_status" if payload:
                read = _status if topic.kind == "status" else _policy_status
                return {**read(payload), "time": _text(instant(int(heard * 1e6))), **_bytes(payload)}
            case "estimate":
                said = decode_estimate(payload)
                return {"kind": "estimate", **self._report(topic, said), "where": self._where(topic.stream, said)}
            case "count":
                return {"kind": "count", **self._report(topic, WindowCount.decode(payload))}
        return None

    def _where(self, stream: str, said: Estimate) -> dict[str, Any]:
        if isinstance(said, PlaceEstimate):
            names = ("latitude", "longitude", "accuracy", "semi_major", "semi_minor", "orientation", "protection")
            return {name: getattr(said, name) for name in names}
        return placed_shares(self._newest.get(stream), said.shares) if isinstance(said, StateEstimate) else {}

    def _report(self, topic: Topic, report: Estimate | WindowCount) -> dict[str, Any]:
        said = said_of(report, self._newest[topic.stream].windows if topic.stream in self._newest else ())
        return {**report.written(), "said": said and said.event()}

    def _attack(self, topic: Topic) -> AttackView:
        return self._attacks.setdefault(topic.stream, AttackView())

    def _points(self, topic: Topic, payload: bytes) -> dict[str, Any]:
        frame = MeasureFrame.decode(payload)
        fields = {"version": frame.policy_version, "first": frame.first, "shift": frame.shift}
        told = self._described.of(topic.device, topic.stream, frame.policy_version)
        newest = [_place(told, one.point) for one in frame.released[-_POINTS_PLACED:]]
        points = [list(one.point) for one in frame.released]
        return self._sent(topic, payload, {"kind": "points", **fields, "points": points, "newest": newest})

    def _window(self, topic: Topic, payload: bytes) -> dict[str, Any]:
        frame = WindowFrame.decode(payload)
        self._attack(topic).take_window(frame)
        fields = {"window": frame.window, "first": frame.first, "length": frame.length}
        fields |= {"observed": frame.observed, "counts": frame.counts, "shift": frame.shift}
        told = self._described.of(topic.device, topic.stream, frame.policy_version)
        window = None if told is None else next((one for one in told.windows if one.name == frame.window), None)
        if told is not None and window is not None:
            labels = window.named(told.states)
            fields |= {"labels": labels, "noise": _noise_range(window.scale), "confidence": _CONFIDENCE}
        return self._sent(topic, payload, {"kind": "window", "version": frame.policy_version, **fields}, frame.last + 1)

    def _sent(self, topic: Topic, payload: bytes, fields: dict[str, Any], tick: int | None = None) -> dict[str, Any]:
        """Fields of a message with its bytes, and the time of its first tick, or that at which a window was over."""
        known = self._described.of(topic.device, topic.stream, fields["version"])
        time = None if known is None else known.time_of(fields["first"] if tick is None else tick, fields["shift"])
        return {**fields, "time": _text(time), **_bytes(payload)}


def _bytes(payload: bytes) -> dict[str, Any]:
    return {"bytes": payload.hex(), "size": len(payload)}


def _symbols(frame: SymbolFrame) -> dict[str, Any]:
    fields = {"version": frame.policy_version, "first": frame.first, "shift": frame.shift}
    return {"kind": "frame", **fields, "symbols": list(frame.symbols)}


def _status(payload: bytes) -> dict[str, Any]:
    said = Status.decode(payload)
    streams = [{"name": one.stream, "version": one.policy_version, "next": one.next_tick} for one in said.streams]
    fields = {"online": said.online, "agent": said.agent_version, "outbox": said.outbox_depth}
    return {"kind": "status", **fields, "codes": [*map(str, said.codes)], "streams": streams}


def _policy_status(payload: bytes) -> dict[str, Any]:
    said = PolicyStatus.decode(payload)
    fields = {"running": said.version, "judged": said.judged.hex(), "reason": said.reason, "detail": said.detail}
    return {"kind": "policy", **fields, "refused": said.refused, "stale": said.stale}


def _place(told: DescribedVersion | None, point: Point) -> dict[str, Any]:
    """A point with the cell that it is in, and its latitude and longitude, where the stream is one of places."""
    found: dict[str, Any] = {"point": list(point)}
    if told is None or told.place is None or told.place.cell_size is None or len(point) != 2:
        return found
    latitude, longitude = told.place.position(*point)
    cells = {cell: told.states[number] for number, cell in enumerate(told.place.cells[: len(told.states)])}
    return {**found, "latitude": latitude, "longitude": longitude, "state": cells.get((point[0], point[1]))}


def _count(told: Description, frame: WindowFrame) -> WindowCount:
    """The report of a window, as the gateway makes it."""
    window = next(one for one in told.windows if one.name == frame.window)
    off = _noise_range(window.scale) or 0
    return WindowCount(
        time=told.time_of(frame.last + 1, frame.shift),
        since=told.time_of(frame.first, frame.shift),
        window=frame.window,
        states=told.states if window.states == EACH else window.states,
        blocks=() if window.query.blocks is None else window.query.blocks.labels,
        values=tuple(float(count) for count in frame.counts),
        low=tuple(float(count - off) for count in frame.counts),
        high=tuple(float(count + off) for count in frame.counts),
        confidence=_CONFIDENCE,
        observed=frame.observed,
        epsilon=told.guarantee.epsilon or 0.0,
        adversary=told.guarantee.adversary,
        useful=told.useful_for == "share" and 2 * frame.observed >= frame.length,
    )


def _noise_range(scale: str) -> int | None:
    """The least n with Pr(|noise| <= n) >= 0.95, of discrete Laplace noise; `None` if the scale is none.

    With a = e^(-1/scale), Pr(|noise| > n) = 2 a^(n + 1) / (1 + a).
    """
    try:
        s = float(Fraction(scale))
        return max(0, math.ceil(s * (math.log(2.0 / (1.0 - _CONFIDENCE)) - math.log1p(math.exp(-1.0 / s)))) - 1)
    except (ValueError, ArithmeticError):
        return None


def _text(time: datetime | None) -> str | None:
    return None if time is None else instant_text(time)


def _description(told: Description) -> dict[str, Any]:
    symbols = 0 if told.table is None else len(told.table[0]) + 1
    names = ("version", "confirmed", "unit", "period_seconds", "frame_ticks", "chain_class", "point_epsilon")
    return {
        **{name: getattr(told, name) for name in (*names, "protects", "does_not_protect")},
        "of": told.kind,
        "states": told.states[:_MOST_STATES_SHOWN],
        "labels": [told.label(number) for number in range(min(symbols, _MOST_STATES_SHOWN))],
        "guarantee": _promise(told.guarantee),
        "windows_guarantee": told.windows_guarantee and _promise(told.windows_guarantee),
        "flips": () if told.table is None else NoiseTable(told.table).flips,
        "place": _grid(told),
        "bounds": _bounds(told),
        "windows": [_window(one, told.period_seconds) for one in told.windows],
        "conditions": [one.condition for one in told.sums],
    }


def _window(window: DescribedWindow, period: float) -> dict[str, Any]:
    return {
        "name": window.name,
        "seconds": window.length * period,
        "every": window.stride * period,
        "blocks": window.blocks is not None,
    }


def _grid(told: Description) -> dict[str, Any] | None:
    if (grid := told.place) is None:
        return None
    fields = {"origin": grid.origin, "step": grid.step, "cells": grid.cells}
    return {**fields, "labels": told.states[: len(grid.cells)]}


def _promise(promise: Described) -> dict[str, Any]:
    stretches = [one.model_dump() for one in promise.stretches]
    told = {name: getattr(promise, name) for name in ("epsilon", "adversary", "stretch_ticks", "of_a_tick", "when")}
    return {**told, "stretches": stretches}


def _bounds(told: Description) -> dict[str, Any] | None:
    """Between what the promise holds the probability of the last of two states, whatever the stream says."""
    chains, epsilon = told.chains, told.guarantee.of_a_tick
    if not isinstance(chains, BinaryChains) or epsilon is None:
        return None
    low, high = posterior_bounds(chains, epsilon)
    return {"state": told.states[1], "low": low, "high": high}
