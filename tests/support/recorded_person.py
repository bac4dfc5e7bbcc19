"""One person's minutes, and tables of them as people keep them: `python -m tests.support.recorded_person FOLDER`."""

from __future__ import annotations

import gzip
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from tests.support.recording_forms import FORMS

__all__ = ["LOW_HIGH", "START", "TABLES", "UNEVEN", "Written", "minutes", "write", "write_all"]

START = 1_772_323_200
LOW_HIGH = ("60", "90")
"""Readings of the two states."""
_MINUTE, _DAY = 60, 86_400


class Written(NamedTuple):
    """A file, how it is to be read (without options as it is), and what else a plan is told."""

    path: Path
    options: dict[str, Any]
    plan: Mapping[str, Any] = MappingProxyType({})


def minutes(days: int, seed: int = 1) -> list[int]:
    rng, state, states = random.Random(seed), 0, list[int]()
    for _ in range(days * 1440):
        state ^= rng.random() < (0.2 if state else 0.1)
        states.append(state)
    return states


def _date(time: float, form: str, zone: str = "UTC") -> str:
    return datetime.fromtimestamp(time, UTC).astimezone(ZoneInfo(zone)).strftime(form)


_Row = Callable[[int, str], str]


class _Table(NamedTuple):
    """Form of a table: its lines before the rows, a row, its encoding, and options to read it."""

    head: tuple[str, ...]
    row: _Row
    encode: Callable[[str], bytes] = str.encode
    options: dict[str, Any] | None = None

    def write(self, path: Path, times: Sequence[int], values: Sequence[str]) -> Written:
        rows = (self.row(time, value) for time, value in zip(times, values, strict=True))
        path.write_bytes(self.encode("\n".join([*self.head, *rows, ""])))
        return Written(path, self.options or {})


_PLAIN = ("time,value",)
TABLES: dict[str, _Table] = {
    "seconds": _Table(_PLAIN, lambda t, v: f"{t},{v}"),
    "milliseconds": _Table(("ts,value",), lambda t, v: f"{1000 * t},{v}"),
    "nanoseconds": _Table(("_time,_value",), lambda t, v: f"{10**9 * t},{v}"),
    "iso": _Table(("timestamp,T,value",), lambda t, v: f"{_date(t, '%Y-%m-%dT%H:%M:%SZ')},{t % 7}.5,{v}"),
    "local": _Table(
        _PLAIN, lambda t, v: f"{_date(t, '%Y-%m-%d %H:%M:%S', 'Europe/Berlin')},{v}", options={"zone": "Europe/Berlin"}
    ),
    "two columns": _Table(
        ("Date,Time,use",), lambda t, v: f"{_date(t, '%d/%m/%Y,%H:%M:%S')},{v}", options={"time": "Date:dd/mm"}
    ),
    "decimal comma": _Table(("Datum;Wert",), lambda t, v: f"{_date(t, '%d.%m.%Y %H:%M')};{v},0"),
    "american": _Table(_PLAIN, lambda t, v: f"{_date(t, '%m/%d/%Y %I:%M %p')},{v}", options={"time": "time:mm/dd"}),
    "days": _Table(
        _PLAIN, lambda t, v: f"{t / _DAY + 25_569:.9f},{v}", options={"time": "time:days", "rows": "samples"}
    ),
    "excel": _Table(("sep=;", "time;value"), lambda t, v: f"{t};{v}", lambda text: text.encode("utf-16")),
    "zipped": _Table(_PLAIN, lambda t, v: f"{t},{v}", lambda text: gzip.compress(text.encode("utf-8-sig"))),
    "units": _Table(
        ("sep=,", '"Time","power"'),
        lambda t, v: f"{_date(t, '%Y-%m-%d %H:%M:%S')},{f'{v} W' if t % 7 else f'{float(v) / 1000} kW'}",
    ),
    "rows of units": _Table(
        ('"TOA5","CR1000"', '"TIMESTAMP","RECORD","W"', '"TS","RN","Watt"', '"","","Avg"'),
        lambda t, v: f'"{_date(t, "%Y-%m-%d %H:%M:%S")}",{t % 9_973},{v}',
        options={"column": "W"},
    ),
    "a sign behind": _Table(
        ("a.program,6312003,2", "start_time,offset,W"),
        lambda t, v: f"{_date(t, '%Y-%m-%d %H:%M:%S')}.000,UTC+0000,{v}.0,",
        options={"column": "W"},
    ),
    "header later": _Table(
        ("Meter;Kind;From;To", "000;load;01/03/2026;28/07/2026", "Horodate;Valeur"),
        lambda t, v: f"{_date(t, '%Y-%m-%dT%H:%M:%S+00:00')};{v}",
    ),
}
"""By what is particular of them: the same ticks come out."""


def _lines(path: Path, head: str, rows: Iterable[str]) -> Path:
    path.write_text("\n".join([head, *rows, ""]))
    return path


def _absent(path: Path, states: Sequence[int]) -> Written:
    """Every other minute is absent now and then."""
    rng, place, rows = random.Random(2), 0, list[str]()
    while place < len(states):
        rows.append(f"{START + _MINUTE * place},{LOW_HIGH[states[place]]}")
        place += rng.choices((1, 2, 5), (80, 15, 5))[0]
    return Written(_lines(path, "timestamp,value", rows), {})


def _changes(path: Path, states: Sequence[int]) -> Written:
    """A log of changes, at any second of the minute before."""
    rng = random.Random(3)
    new = [0, *(place for place in range(1, len(states)) if states[place] != states[place - 1])]
    moments = [START + _MINUTE * place - (rng.randrange(1, 59) if place else 0) for place in new]
    rows = (f"{time},{('OFF', 'ON')[states[place]]}" for time, place in zip(moments, new, strict=True))
    return Written(_lines(path, "time,value", rows), {})


def _interleaved(path: Path, states: Sequence[int]) -> Written:
    """Three sensors, of which one is this person's."""
    others = {"bath": minutes(len(states) // 1440, 7), "hall": list(states), "office": minutes(len(states) // 1440, 8)}
    rows = [
        f"{START + _MINUTE * place + number},{name},{LOW_HIGH[state]}"
        for place in range(len(states))
        for number, (name, state) in enumerate((name, some[place]) for name, some in others.items())
    ]
    return Written(_lines(path, "time,topic,value", rows), {"only": "topic=hall"})


def _shuffled(path: Path, states: Sequence[int]) -> Written:
    rows = [f"{START + _MINUTE * place},{LOW_HIGH[state]}" for place, state in enumerate(states)]
    random.Random(4).shuffle(rows)
    return Written(_lines(path, "last_seen,timestamp,value", (f"x,{row}" for row in rows)), {"as_it_is": "order"})


def _off(path: Path, states: Sequence[int]) -> Written:
    """A log of changes without three days, of which nobody tells."""
    written = _changes(path, states)
    head, *rows = written.path.read_text().splitlines()
    rows = [row for row in rows if not 4 * _DAY < int(row.partition(",")[0]) - START < 7 * _DAY]
    return Written(_lines(path, head, rows), {"gap": "12h"})


def _codes(path: Path, states: Sequence[int]) -> Written:
    """Readings with decimals, and codes of a sensor that failed, at random minutes."""
    rng = random.Random(5)
    values = [f"{60 + 30 * state + rng.randrange(20) / 2}" for state in states]
    failed = {place: rng.choice(("-127.0", "255")) for place in rng.sample(range(len(states)), len(states) // 200)}
    rows = (f"{START + _MINUTE * place},{failed.get(place, value)}" for place, value in enumerate(values))
    return Written(_lines(path, "time,value", rows), {"missing_values": "-127,255"}, {"threshold": 75.0})


def _restarted(path: Path, states: Sequence[int]) -> Written:
    """A logger whose clock begins at 1970 after each restart, and that writes rows twice."""
    rng, rows = random.Random(6), list[str]()
    for place, state in enumerate(states):
        time = _MINUTE * place % 300 if place % 1440 < 5 else START + _MINUTE * place
        rows += [f"{time},{LOW_HIGH[state]}"] * (2 if rng.random() < 0.05 else 1)
    return Written(_lines(path, "ts,value", rows), {})


UNEVEN: dict[str, Callable[[Path, Sequence[int]], Written]] = {
    "absent": _absent,
    "changes": _changes,
    "interleaved": _interleaved,
    "shuffled": _shuffled,
    "off": _off,
    "codes": _codes,
    "restarted": _restarted,
}
"""Files from which other ticks come out, by what is particular of them."""


def write(folder: Path, name: str, states: Sequence[int]) -> Written:
    """Write the person's minutes in the form of a name, with the options that read it."""
    if name in UNEVEN:
        return UNEVEN[name](folder / f"{name}.csv", states)
    times = [START + _MINUTE * place for place in range(len(states))]
    values = [LOW_HIGH[state] for state in states]
    if name in TABLES:
        return TABLES[name].write(folder / f"{name}.csv", times, values)
    FORMS[name](folder / name, times, values)
    return Written(folder / name, TO_READ.get(name, {}))


TO_READ: dict[str, dict[str, Any]] = {
    "Gadgetbridge": {"column": "heart_rate"},
    "mosquitto.log": {"column": "device.power"},
    "mosquitto-v.log": {"column": "payload", "period": 60.0},
    "heart_rate-2026-03-01.json": {"column": "bpm"},
    "influx.line": {"column": "power"},
}
"""Options that some forms need."""


def write_all(folder: Path, days: int) -> None:
    """Write every form to a folder."""
    for name in (*FORMS, *TABLES, *UNEVEN):
        write(folder, name, minutes(days))


if __name__ == "__main__":
    write_all(Path(sys.argv[1]), 20)
