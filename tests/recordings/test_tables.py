"""Tables as people have them, through the whole reader: the times and the values that were written come out."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from fugu.contract.errors import FuguError
from fugu.library.recordings import read
from fugu.recordings.errors import QuestionError

_RANDOM = random.Random(3)
TIMES = [1_773_273_600 + 60 * row for row in range(2_880)]
"""Two days, the first of which is the 12th of a month, the second the 13th."""
VALUES = [round(20.0 + _RANDOM.choice((-0.3, -0.1, 0.1, 0.3)) + row % 7, 1) for row in range(2_880)]


def at(form: str) -> Callable[[int], str]:
    return lambda time: datetime.fromtimestamp(time, UTC).strftime(form)


def comma(value: float) -> str:
    return str(value).replace(".", ",")


def table(
    time: Callable[[int], str],
    value: Callable[[float], str] = str,
    *,
    head: str = "time,value",
    sign: str = ",",
    before: str = "",
    end: str = "\n",
) -> str:
    rows = [f"{time(moment)}{sign}{value(reading)}" for moment, reading in zip(TIMES, VALUES, strict=True)]
    return before + end.join([head.replace(",", sign), *rows]) + end


TABLES = {
    "seconds": table(str),
    "milliseconds": table(lambda time: f"{time}000", head="ts,value"),
    "microseconds": table(lambda time: f"{time}000000"),
    "nanoseconds": table(lambda time: f"{time}000000000"),
    "semicolons and decimal commas": table(at("%Y-%m-%d %H:%M:%S"), comma, head="Zeit,Wert", sign=";"),
    "tabs": table(str, sign="\t"),
    "bars": table(str, sign="|"),
    "quoted commas": table(str, lambda value: f'"{comma(value)}"'),
    "a date and a time": table(at("%Y-%m-%d,%H:%M:%S"), head="date,time,value"),
    "a date and a time of day": table(at("%d.%m.%Y;%H:%M"), comma, head="Datum,Uhrzeit,Wert", sign=";"),
    "the day first": table(at("%d.%m.%Y %H:%M"), sign=";"),
    "the day first, two digits": table(at("%d.%m.%y %H:%M"), sign=";"),
    "the day first, slashes": table(at("%d/%m/%Y %H:%M")),
    "the month first": table(at("%m/%d/%Y %I:%M:%S %p")),
    "the year first": table(at("%Y/%m/%d %H:%M")),
    "digits alone": table(at("%Y%m%d%H%M%S")),
    "digits alone, to the minute": table(at("%Y%m%d%H%M")),
    "digits and a T": table(at("%Y%m%dT%H%M%S")),
    "an offset": table(lambda time: at("%Y-%m-%d %H:%M:%S+01:00")(time + 3600)),
    "a header in a later line": table(at("%Y-%m-%dT%H:%M:%SZ"), before="Meter;4711\nExported by;me\n\n"),
    "Excel's first line": table(str, comma, sign=";", before="sep=;\n"),
    "a cell at the end": table(str, lambda value: f"{value};", head="time,value,", sign=";"),
    "lines of Windows": table(str, end="\r\n"),
}


def understood(path: Path) -> tuple[np.ndarray, np.ndarray]:
    readings = read(path).readings
    assert readings is not None
    assert readings.moments is not None
    return readings.moments, np.asarray(readings.values, dtype=np.float64)


@pytest.mark.parametrize("name", TABLES)
def test_times_and_values_come_out_as_they_were_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.csv").write_bytes(TABLES[name].encode())
    moments, values = understood(tmp_path / "mine.csv")
    assert moments.tolist() == TIMES
    assert values.tolist() == VALUES


def test_a_question_mark_is_a_missing_reading(tmp_path: Path) -> None:
    rows = TABLES["seconds"].splitlines()
    (tmp_path / "mine.csv").write_text("\n".join([*rows[:5], f"{TIMES[4]},?", *rows[6:]]) + "\n")
    moments, values = understood(tmp_path / "mine.csv")
    assert moments.tolist() == TIMES
    assert np.flatnonzero(np.isnan(values)).tolist() == [4]


def test_dates_that_fit_two_orders_are_a_question_and_one_that_fits_none_is_refused(tmp_path: Path) -> None:
    rows = TABLES["the month first"].splitlines()
    (tmp_path / "mine.csv").write_text("\n".join(rows[:1_000]) + "\n")
    with pytest.raises(QuestionError, match="day and month cannot be told apart"):
        read(tmp_path / "mine.csv")
    (tmp_path / "mine.csv").write_text(table(at("%d %B %H:%M h")))
    with pytest.raises(FuguError, match="is no time"):
        read(tmp_path / "mine.csv")


def test_numbers_that_only_look_like_dates_are_numbers(tmp_path: Path) -> None:
    """Seconds since some start go through values that no date has."""
    rows = [f"{20_260_301 + 60 * row},{value}" for row, value in enumerate(VALUES)]
    (tmp_path / "mine.csv").write_text("\n".join(["time,value", *rows]) + "\n")
    moments, _ = understood(tmp_path / "mine.csv")
    assert moments[:2].tolist() == [20_260_301, 20_260_361]
