"""Recordings in memory are read as a CSV file would be, and what does not fit is refused without a reading."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fugu
from fugu.library.recordings import readings_of
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import Readings, read_readings

SECRET = 71.4142
TIMES = pd.date_range("2026-03-01", periods=400, freq="5min")
NUMBERS = np.round(np.random.default_rng(1).normal(60.0, 9.0, 400), 3)


def same(readings: Readings, expected: Readings) -> None:
    assert np.array_equal(readings.values, expected.values, equal_nan=True)
    assert np.array_equal(readings.segments, expected.segments)
    for name in ("period_seconds", "steady", "changes", "kind", "notes"):
        assert getattr(readings, name) == getattr(expected, name), name


@pytest.mark.parametrize("case", ["plain", "missing", "unsorted", "duplicated", "absent", "zone"])
def test_a_series_is_read_as_its_csv_file(case: str, tmp_path: Path) -> None:
    series = pd.Series(NUMBERS.copy(), TIMES, name="pulse")
    match case:
        case "missing":
            series.iloc[3:9] = np.nan
        case "unsorted":
            series = series.iloc[np.random.default_rng(2).permutation(400)]
        case "duplicated":
            series.index = series.index.where(np.arange(400) != 10, series.index[11])
        case "absent":
            series = series.drop(series.index[100:103])
        case "zone":
            series = series.tz_localize("Europe/Berlin")
    file = tmp_path / "pulse.csv"
    series.rename_axis("time").to_csv(file)
    sort = ReadOptions(as_it_is=frozenset(["order"]))
    read, expected = readings_of([series], sort), read_readings(file, sort)
    same(read, expected)
    assert read.moments is not None
    assert np.allclose(read.moments, expected.moments)
    assert read.column == "pulse"


def test_a_frame_that_was_read_from_a_file_is_read_as_the_file(tmp_path: Path) -> None:
    """Also with columns that have a meaning, and cells that are words."""
    file = tmp_path / "log.csv"
    rows = [(k, f"2026-03-01T{k // 60:02}:{k % 60:02}:00", "on" if k % 7 < 3 else "off", k // 200) for k in range(400)]
    pd.DataFrame(rows, columns=["row", "time", "state", "seg"]).to_csv(file, index=False)
    expected, read = read_readings(file), readings_of([pd.read_csv(file)])
    assert np.array_equal(read.values, expected.values)
    assert np.array_equal(read.segments, expected.segments)
    parsed = pd.read_csv(file, parse_dates=["time"])
    assert np.array_equal(readings_of([parsed]).values, expected.values)
    chosen = readings_of([parsed], ReadOptions(column="row"))
    assert np.array_equal(chosen.values, np.arange(400.0))


def test_an_array_has_the_period_that_is_given_and_no_time_of_day() -> None:
    readings = readings_of([NUMBERS], ReadOptions(period=30.0))
    assert (readings.period_seconds, readings.steady, readings.moments, readings.rows) == (30.0, True, None, None)
    assert np.array_equal(readings.values, NUMBERS)
    truth = readings_of([NUMBERS > 60.0], ReadOptions(period=30.0))
    assert truth.kind == "on/off"


def test_several_people_are_several_recordings() -> None:
    series, other = pd.Series(NUMBERS, TIMES), pd.Series(NUMBERS[::-1].copy(), TIMES)
    assert readings_of([series, other]).starts == (0, 400)


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a list of numbers": ([SECRET, 2.0], {}, "a recording is the path of a file, a pandas Series .* got float"),
    "no times": (pd.Series([SECRET, 1.0]), {}, "no times: give it an index of times .* or period="),
    "numbers as times": (pd.Series([SECRET, 1.0], [0.0, 60.0]), {}, "no times"),
    "an array without period": (np.array([SECRET, 1.0]), {}, "no times"),
    "two dimensions": (np.array([[SECRET, 1.0]]), {"period": 1.0}, "has one dimension, got 2"),
    "a period of zero": (np.array([SECRET, 1.0]), {"period": 0.0}, "period must be above 0"),
    "a period and times": (pd.Series(NUMBERS, TIMES), {"period": 60.0}, "period= is for logs of changes"),
    "times twice": (pd.DataFrame({"t": NUMBERS, "value": NUMBERS}, TIMES), {}, "in its index and in column 't'"),
    "names twice": (pd.DataFrame(np.ones((2, 2)), columns=["a", "a"]), {"period": 1.0}, "two columns 'a'"),
    "several columns": (pd.DataFrame({"a": NUMBERS, "b": NUMBERS}, TIMES), {}, "2 columns that may be the readings"),
    "no such column": (pd.DataFrame({"a": NUMBERS}, TIMES), {"column": "b"}, "no column 'b'; it has time, a"),
    "complex": (pd.Series([SECRET + 1j, 1.0], TIMES[:2]), {}, "line 1, column value is of type complex"),
    "dates as readings": (pd.Series([TIMES[0]] * 2, TIMES[:2]), {}, "line 1, column value is of type Timestamp"),
    "lists as readings": (pd.Series([[SECRET], [1.0]], TIMES[:2]), {}, "line 1, column value is of type list"),
    "infinite": (pd.Series([SECRET, np.inf], TIMES[:2]), {}, "line 2, column value is no number up to"),
    "no time": (pd.Series([SECRET, 1.0], pd.DatetimeIndex([TIMES[0], pd.NaT])), {}, "line 2, column time is no time"),
    "words among numbers": (pd.Series([SECRET, 1.0, "x71"], TIMES[:3]), {}, "line 3, column value is no number"),
    "all missing": (pd.Series([np.nan] * 3, TIMES[:3]), {}, "no row has a reading"),
    "constant": (pd.Series([SECRET] * 3, TIMES[:3]), {}, "never changes"),
    "empty": (pd.Series([], pd.DatetimeIndex([]), dtype=float), {}, "has no rows"),
    "too short": (pd.Series(NUMBERS, TIMES), {}, "too few to plan from"),
    "a bad question": (pd.Series(NUMBERS, TIMES), {"question": "mean"}, "want must be one of now, share"),
    "a bad epsilon": (pd.Series(NUMBERS, TIMES), {"epsilon": 0.0}, "epsilon must be above 0"),
    "a bad stretch": (pd.Series(NUMBERS, TIMES), {"protect": "soon"}, "protect"),
    "a bad baseline": (pd.Series(NUMBERS, TIMES), {"baseline": "0m"}, "baseline"),
    "two kinds of states": (pd.Series(NUMBERS, TIMES), {"baseline": 9, "threshold": 1}, "baseline=, threshold= and"),
    "a share of 100 %": (pd.Series(NUMBERS, TIMES), {"within": "100%"}, "within is a share"),
    "latency without unit": (pd.Series(NUMBERS, TIMES), {"latency": 10}, "latency is a time"),
    "an unknown adversary": (pd.Series(NUMBERS, TIMES), {"adversary": "mother"}, "adversary must be one of"),
    "a name for no topic": (pd.Series(NUMBERS, TIMES), {"device": "a/b"}, "'a/b' is not a name"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_in_one_line_without_a_reading(case: str) -> None:
    recording, options, message = REFUSED[case]
    with pytest.raises(fugu.FuguError, match=message) as caught:
        fugu.plan(recording, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert "--" not in text
    assert "71" not in text


@pytest.mark.parametrize("of", [None, {"epsilon": 1.0}])
def test_what_is_no_policy_is_refused(of: object) -> None:
    with pytest.raises(fugu.FuguError, match="a plan that recommends nothing has none"):
        fugu.check(of)


def test_a_time_of_a_frame_without_zone_is_in_utc() -> None:
    frame = pd.DataFrame({"when": [datetime(2026, 3, 1, 0, k) for k in range(5)], "value": [1.0, 2.0, 3.0, 4.0, 5.0]})
    moments = readings_of([frame], ReadOptions(column="value", time="when")).moments
    assert moments[0] == datetime(2026, 3, 1, tzinfo=UTC).timestamp()
