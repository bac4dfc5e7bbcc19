"""What one device has published, and what the gateway has made of it: what the page of a device shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from contract.chains import BinaryChains
from contract.descriptions import Described, Description
from contract.errors import FuguError
from contract.frames import decode_symbols
from contract.instants import instant_text
from contract.measure_frames import MEASURE, decode_measure
from contract.reports import Estimate, WindowCount, decode_count, decode_estimate, report_fields
from contract.topics import Topic
from contract.window_frames import decode_window
from gateway.dashboard.bounds import posterior_bounds
from mqtt_link.descriptions import Descriptions

__all__ = ["DeviceView"]

_MOST_STREAMS = 64
_KEPT = {"frame": 40, "points": 40, "window": 40, "estimate": 300, "count": 40, "description": 1}
_MOST_STATES_SHOWN = 64


class DeviceView:
    """Takes messages of one device; keeps the newest of each kind, whatever a broker sends.

    Attributes:
        left_out: messages that could not be used.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self._described = Descriptions()
        self._kept: dict[tuple[str, str], deque[dict[str, Any]]] = {}
        self._streams: set[str] = set()

    def take(self, topic: Topic, payload: bytes) -> dict[str, Any] | None:
        """A message under one of the device's topics.

        Returns:
            What is new, as the page is told; none if the message cannot be used, or says nothing new.
        """
        if topic.stream not in self._streams and len(self._streams) >= _MOST_STREAMS:
            self.left_out += 1
            return None
        try:
            found = self._read(topic, payload)
        except FuguError:
            self.left_out += 1
            return None
        if found is not None:
            self._streams.add(topic.stream)
            found["stream"] = topic.stream
            kind = found["kind"]
            self._kept.setdefault((topic.stream, kind), deque(maxlen=_KEPT[kind])).append(found)
        return found

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All that is kept, descriptions first, then in the order in which it came."""
        kinds = list(_KEPT)[::-1]
        for key in sorted(self._kept, key=lambda one: kinds.index(one[1])):
            yield from self._kept[key]

    def _read(self, topic: Topic, payload: bytes) -> dict[str, Any] | None:
        match topic.kind:
            case "description":
                found = self._described.take(topic.fleet, topic.device, topic.stream, payload)
                return None if found is None else {"kind": "description", **_description(found)}
            case "symbols":
                read = _points if payload[:1] == bytes([MEASURE]) else _symbols
                return self._sent(topic, payload, read(payload))
            case "window":
                frame = decode_window(payload)
                fields = {"window": frame.window, "first": frame.first, "length": frame.length}
                fields |= {"observed": frame.observed, "counts": frame.counts, "shift": frame.shift}
                return self._sent(topic, payload, {"kind": "window", "version": frame.policy_version, **fields})
            case "estimate":
                return {"kind": "estimate", **_report(decode_estimate(payload))}
            case "count":
                return {"kind": "count", **_report(decode_count(payload))}
        return None

    def _sent(self, topic: Topic, payload: bytes, fields: dict[str, Any]) -> dict[str, Any]:
        known = self._described.of(topic.device, topic.stream, fields["version"])
        time = None if known is None else known.time_of(fields["first"], fields["shift"])
        return {**fields, "time": _text(time), "bytes": payload.hex(), "size": len(payload)}


def _symbols(payload: bytes) -> dict[str, Any]:
    frame = decode_symbols(payload)
    fields = {"version": frame.policy_version, "first": frame.first, "shift": frame.shift}
    return {"kind": "frame", **fields, "symbols": list(frame.symbols)}


def _points(payload: bytes) -> dict[str, Any]:
    frame = decode_measure(payload)
    fields = {"version": frame.policy_version, "first": frame.first, "shift": frame.shift}
    return {"kind": "points", **fields, "points": [[float(x) for x in one.point] for one in frame.released]}


def _report(report: Estimate | WindowCount) -> dict[str, Any]:
    return {
        name: _text(value) if isinstance(value, datetime) else value for name, value in report_fields(report).items()
    }


def _text(time: datetime | None) -> str | None:
    return None if time is None else instant_text(time)


def _description(told: Description) -> dict[str, Any]:
    symbols = 0 if told.table is None else len(told.table[0]) + 1
    labels = [told.label(number) for number in range(min(symbols, _MOST_STATES_SHOWN))]
    place = None if told.place is None else {"origin": told.place.origin, "step": told.place.step,
                                             "cells": told.place.cells}  # fmt: skip
    return {
        "version": told.version,
        "of": told.kind,
        "states": told.states[:_MOST_STATES_SHOWN],
        "labels": labels,
        "unit": told.unit,
        "period_seconds": told.period_seconds,
        "frame_ticks": told.frame_ticks,
        "chain_class": told.chain_class,
        "guarantee": _promise(told.guarantee),
        "windows_guarantee": told.windows_guarantee and _promise(told.windows_guarantee),
        "point_epsilon": told.point_epsilon,
        "protects": told.protects,
        "does_not_protect": told.does_not_protect,
        "place": place,
        "bounds": _bounds(told),
    }


def _promise(promise: Described) -> dict[str, Any]:
    stretches = [one.model_dump() for one in promise.stretches]
    return {"epsilon": promise.epsilon, "adversary": promise.adversary, "stretches": stretches}


def _bounds(told: Description) -> dict[str, Any] | None:
    """Between what the promise holds the probability of the last of two states, whatever the stream says."""
    chains, epsilon = told.chains, told.guarantee.epsilon
    if not isinstance(chains, BinaryChains) or epsilon is None or told.guarantee.adversary == "informed":
        return None
    low, high = posterior_bounds(chains, epsilon)
    return {"state": told.states[1], "low": low, "high": high}
