"""Readings as lines: for people, and as JSON; needs neither numpy nor a terminal library."""

from __future__ import annotations

import json
from collections.abc import Sequence

from contract.release_frames import ReleaseFrame, encode_release
from mqtt_link import (
    EstimateReading,
    MeasureEstimateReading,
    MeasureReading,
    ReleaseReading,
    SymbolReading,
    WindowReading,
)
from mqtt_link.subscription import Reading

__all__ = ["reading_json", "reading_line"]

_KINDS: dict[type, str] = {
    SymbolReading: "symbol",
    EstimateReading: "estimate",
    MeasureReading: "point",
    MeasureEstimateReading: "measurement",
    WindowReading: "window",
}


def reading_json(reading: Reading) -> str:
    """One JSON object: kind, device, stream, and what the kind has; of a release, its frame's fields."""
    if isinstance(reading, ReleaseReading):
        return json.dumps({"kind": "release", **json.loads(encode_release(reading.release))}, separators=(",", ":"))
    return json.dumps({"kind": _KINDS[type(reading)], **reading._asdict()}, separators=(",", ":"))


def reading_line(reading: Reading) -> str:
    """A line for people."""
    if isinstance(reading, ReleaseReading):
        return _release_line(reading.release)
    if isinstance(reading, WindowReading):
        return _window_line(reading)
    where = f"{reading.device}/{reading.stream} tick {reading.tick}"
    if isinstance(reading, SymbolReading):
        return f"{where}: symbol {reading.symbol}"
    if isinstance(reading, MeasureReading):
        return f"{where}: point {' '.join(map(str, reading.point))}, from table {reading.table}"
    if isinstance(reading, MeasureEstimateReading):
        later = f", {reading.lag} ticks later" if reading.lag else ""
        return f"{where}{later}: measurement {_numbers(reading.mean)}, covariance {_numbers(reading.covariance)}"
    probabilities = " ".join(f"{p:.4f}" for p in reading.probabilities)
    return f"{where}: most likely state {reading.most_likely}, probabilities {probabilities}"


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:.6g}" for value in values)


def _window_line(window: WindowReading) -> str:
    ticks = f"ticks {window.first}..{window.first + window.length - 1}, {window.observed} observed"
    counts = " ".join(map(str, window.counts))
    return f"{window.device}/{window.stream} window {window.window}, {ticks}: noisy counts {counts}"


def _release_line(release: ReleaseFrame) -> str:
    labels = release.states if release.query == "histogram" else (f"{release.query} of {','.join(release.states)}",)
    values = zip(labels, release.values, release.low, release.high, strict=True)
    text = "; ".join(f"{label} {value:.6g} ({low:.6g}..{high:.6g})" for label, value, low, high in values)
    ticks = f"{release.stream} ticks {release.first}..{release.last}, {release.devices} device(s)"
    promise = f"epsilon {release.epsilon:g} by {release.mechanism}, entry {release.entry}"
    return f"release {release.name}, {ticks}: {text}; {promise}"
