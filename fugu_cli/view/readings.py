"""Readings as lines for people and as JSON, without numpy or a terminal library."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from fugu.contract.descriptions import DescribedPromise, Description
from fugu.contract.errors import printable
from fugu.contract.noise_table import NoiseTable
from fugu.contract.reports import Estimate, PlaceEstimate, ReleaseFrame, StateEstimate, ValueEstimate, WindowCount
from fugu.contract.sentences import instant_text, loss_words
from fugu.mqtt.readings import (
    CountReading,
    DescriptionReading,
    EstimateReading,
    PointReading,
    Reading,
    ReleaseReading,
    SymbolReading,
    WindowReading,
)

__all__ = ["ReadingLines", "reading_json"]

_MOST_NAMES = 12
_SENT = {
    "symbols": "randomised symbols",
    "windows": "noisy counts of windows",
    "both": "randomised symbols, noisy counts of windows",
    "points": "randomised points",
}
_KNOWS = {
    "ignorant": "who knows the class of chains only",
    "informed": "who knows the class of chains, and even some true states",
    "universal": "who knows anything else, also how the chain changes over time",
}
_ANSWERS = {
    "state": "the state at a time",
    "share": "shares of time",
    "place": "places",
    None: "nothing that a plan has compared with guessing",
}


def description_lines(description: Description) -> Iterator[str]:
    """Yield the lines of a description: a headline, and indented facts."""
    states = description.states
    state_text = ", ".join(states) if len(states) <= _MOST_NAMES else f"{len(states)} states"
    doubt = "" if description.confirmed else " (not confirmed)"
    yield f"{description.device}/{description.stream}, version {description.version}{doubt}: {_SENT[description.kind]}"
    yield f"  states: {state_text}; a tick every {_duration(description.period_seconds)}, tick 0 at {description.epoch}"
    for window in description.windows:
        length, stride = (_duration(ticks * description.period_seconds) for ticks in (window.length, window.stride))
        question = window.query.description(window.states)
        yield f"  window {window.name}: {question} over {length}, every {stride}, noise of scale {window.scale}"
    for name, probability_text in () if description.table is None else NoiseTable(description.table).flips:
        yield f"  {name}: {probability_text}"
    if description.point_epsilon is not None:
        yield f"  a point: {loss_words(description.point_epsilon)}"
    yield from _promise_lines(description.guarantee, "everything")
    if description.windows_guarantee is not None:
        yield from _promise_lines(description.windows_guarantee, "the windows alone")
    yield f"  {description.protects}"
    yield f"  {description.does_not_protect}"
    yield f"  holds for {description.chain_class}"
    yield f"  good for {_ANSWERS[description.useful_for]}"


def _promise_lines(promise: DescribedPromise, outputs: str) -> Iterator[str]:
    """Yield the lines of a promise: its loss, stretch and adversary, then the losses about other stretches."""
    ticks = promise.stretch_ticks
    stretch_words = "a single tick" if ticks == 1 else f"any {ticks} ticks in a row"
    adversary_words = f"{promise.adversary} adversary ({_KNOWS[promise.adversary]})"
    yield f"  {outputs}: {loss_words(promise.epsilon)} for {stretch_words}, {adversary_words}"
    if promise.when_words:
        yield f"    {promise.when_words}"
    for stretch in promise.stretches:
        if stretch.ticks > 1 or ticks > 1:
            loss, floor = loss_words(stretch.epsilon), loss_words(stretch.floor, "")
            floor_words = "" if loss == floor else f"; {floor} if the attacker already knows the rest"
            yield f"    {stretch.name}: {loss}{floor_words}"


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length and seconds % length == 0.0:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"


_StreamReading: TypeAlias = SymbolReading | PointReading | WindowReading | EstimateReading | CountReading
_KINDS: dict[type, str] = {SymbolReading: "symbol", PointReading: "point", WindowReading: "window"}
_GUESS = ", maybe no better than a guess"


def reading_json(reading: Reading) -> str:
    """Return a reading as a JSON object: kind, device and stream (not of releases), and the fields of the message."""
    origin = {} if isinstance(reading, ReleaseReading) else {"device": reading.device, "stream": reading.stream}
    match reading:
        case ReleaseReading():
            kind, message_fields = "release", reading.release.flat()
        case EstimateReading():
            kind, message_fields = "estimate", reading.estimate.flat()
        case CountReading():
            kind, message_fields = "count", reading.window.flat()
        case DescriptionReading():
            kind, message_fields = "description", {"description": json.loads(reading.description.encode())}
        case _:
            kind, message_fields = _KINDS[type(reading)], reading._asdict()
    document = {"kind": kind, **origin, **message_fields}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, default=_json_value)


class ReadingLines:
    """A writer of readings for people, with times in the local zone.

    A reading is one line, a description several. If the last description of a stream with that name was equal and of
    another device, the headline and the name of that device are enough.
    """

    def __init__(self) -> None:
        self._described: dict[str, tuple[list[str], str]] = {}

    def __call__(self, reading: Reading) -> str:
        """Return the text of a reading."""
        if isinstance(reading, DescriptionReading):
            headline, *facts = map(printable, description_lines(reading.description))
            previous_facts, device = self._described.setdefault(reading.stream, (facts, reading.device))
            if previous_facts == facts and device != reading.device:
                return f"{headline}, as of {device}"
            self._described[reading.stream] = facts, reading.device
            return "\n".join((headline, *facts))
        if isinstance(reading, ReleaseReading):
            return printable(_release_line(reading.release))
        return printable(f"{_time_words(reading)}  {reading.device}/{reading.stream}: {_reading_words(reading)}")


def local_text(time: datetime) -> str:
    """Return a time in the local zone, with milliseconds if it has a fraction of a second."""
    local_time = time.astimezone().replace(tzinfo=None)
    return local_time.isoformat(" ", "milliseconds" if local_time.microsecond else "seconds")


def _time_words(reading: _StreamReading) -> str:
    """Return the time of a reading in words; the number of its tick if the time is unknown."""
    if isinstance(reading, EstimateReading):
        return local_text(reading.estimate.time)
    if isinstance(reading, CountReading):
        return _span_text(reading.window.since, reading.window.time)
    if isinstance(reading, WindowReading):
        if reading.since is None or reading.time is None:
            return f"ticks {reading.first} to {reading.first + reading.length - 1}"
        return _span_text(reading.since, reading.time)
    return f"tick {reading.tick}" if reading.time is None else local_text(reading.time)


def _span_text(since: datetime, time: datetime) -> str:
    """Return two times in words; the second has its day only if the days differ."""
    start, end = local_text(since), local_text(time)
    return f"{start} to {end[11:] if end[:10] == start[:10] else end}"


def _reading_words(reading: _StreamReading) -> str:
    if isinstance(reading, SymbolReading):
        return f"symbol {reading.symbol if reading.label is None else reading.label} (randomised)"
    if isinstance(reading, PointReading):
        if reading.latitude is not None and reading.longitude is not None:
            return f"point {reading.latitude:.6f}, {reading.longitude:.6f} (randomised)"
        return f"point {' '.join(map(str, reading.point))} (randomised)"
    if isinstance(reading, WindowReading):
        named_counts = ", ".join(_label_values(reading.states, reading.counts))
        is_out_of_range = any(not 0 <= count <= reading.observed for count in reading.counts)
        noise = "randomised: noise can take a count below 0 or above all" if is_out_of_range else "randomised"
        return f"window {reading.window}: {named_counts} of {reading.observed} observed ticks ({noise})"
    if isinstance(reading, CountReading):
        return _count_text(reading.window)
    return _estimate_text(reading.estimate)


def _label_values(states: Sequence[str] | None, values: Sequence[Any]) -> Iterable[str]:
    """Return texts of values, each with the names of its states if these are known."""
    if states is None:
        return [str(value) for value in values]
    names = states if len(values) > 1 else [" + ".join(states)]
    return [f"{name} {value}" for name, value in zip(names, values, strict=False)]


def _intervals(message: WindowCount | ValueEstimate | ReleaseFrame) -> list[str]:
    """Return each value of a message with its interval, in words."""
    bounds = zip(message.values, message.low, message.high, strict=True)
    return [f"{value:.6g} ({low:.6g} to {high:.6g})" for value, low, high in bounds]


def _count_text(count: WindowCount) -> str:
    interval_words = f"{count.unit} in {count.observed} observed ticks, intervals of {100 * count.confidence:g} %"
    named_counts = _label_values(count.blocks or count.states, _intervals(count))
    if count.blocks:
        interval_words = f"{interval_words}, {' + '.join(count.states)} by parts of the day"
    return f"window {count.window}: {', '.join(named_counts)} {interval_words}{'' if count.useful else _GUESS}"


def _estimate_text(estimate: Estimate) -> str:
    guess_words = "" if estimate.useful else _GUESS
    if isinstance(estimate, StateEstimate):
        state_words = f"state {estimate.state} with probability {_percent(estimate.probability)}"
        if estimate.ticks > 1:
            share_words = ", ".join(f"{state} {_percent(share)}" for state, share in estimate.shares.items())
            state_words += f"; since {local_text(estimate.since)[11:]} {share_words}"
        return state_words + guess_words
    privacy_words = f"hidden among {estimate.protection}" if estimate.protection > 1 else "not hidden"
    if isinstance(estimate, PlaceEstimate):
        position = f"place {estimate.latitude:.6f}, {estimate.longitude:.6f} within {estimate.accuracy:.6g} m"
        return f"{position}, {privacy_words}{guess_words}"
    unit_words = f" {estimate.unit}" if estimate.unit else ""
    return f"measurement {', '.join(_intervals(estimate))}{unit_words}, {privacy_words}{guess_words}"


def _release_line(release: ReleaseFrame) -> str:
    intervals = zip(release.definition.number_names(release.states), _intervals(release), strict=True)
    interval_words = ", ".join(f"{label} {interval}" for label, interval in intervals)
    name = f"{release.stream} of {release.devices} device{'' if release.devices == 1 else 's'}"
    stretch = f"any {release.stretch_ticks} ticks in a row" if release.stretch_ticks > 1 else "a tick"
    loss = f"epsilon {release.epsilon:g} about {stretch} for {release.audience}, entry {release.entry}"
    loss += f", {release.condition}" if release.condition else ""
    doubt = "" if release.useful else _GUESS
    span = _span_text(release.since, release.time)
    return f"{span}  release {release.name}, {name}: {interval_words} {release.unit}; {loss}{doubt}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _json_value(value: object) -> str:
    if isinstance(value, datetime):
        return instant_text(value)
    raise TypeError(f"no JSON for {type(value).__name__}")
