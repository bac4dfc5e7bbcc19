"""Ways of writing times, numbers and tables that programs have: read right, asked about, or refused in a line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from fugu.contract.errors import FuguError
from fugu.recordings.errors import QuestionError
from fugu.recordings.options import read_options
from fugu.recordings.readings import Readings, read_readings
from fugu.recordings.summary import plain_csv

START, ROWS = 1_773_345_600, 300  # the first four hours are of the 12th of a month, the last of the 13th
RNG = random.Random(3)
VALUES = [round(1_500.5 + RNG.randrange(4_000) / 4, 2) for _ in range(ROWS)]
MINUTES = [START + 60 * row for row in range(ROWS)]


def at(form: str) -> Callable[[int], str]:
    return lambda time: datetime.fromtimestamp(time, UTC).strftime(form)


def written(folder: Path, head: str, row: Callable[[int, float], str], end: str = "") -> Path:
    rows = (row(time, value) for time, value in zip(MINUTES, VALUES, strict=True))
    (folder / "mine.csv").write_text("\n".join([head, *rows, end]))
    return folder / "mine.csv"


def read(file: Path, **options: object) -> Readings:
    return read_readings(file, read_options(**options))


def refused(words: str, file: Path, **options: object) -> None:
    """Hold that a file is refused with these words, a pattern."""
    with pytest.raises(FuguError, match=words):
        read(file, **options)


def question(file: Path, **options: object) -> tuple[str, list[tuple[str, ...]]]:
    """The rule that asks, and the words of its options."""
    with pytest.raises(QuestionError) as caught:
        read(file, **options)
    assert f"{VALUES[0]}" not in str(caught.value)
    return caught.value.rule, [option.words for option in caught.value.options]


TIMES: dict[str, Callable[[int], str]] = {
    "seconds": str,
    "milliseconds": lambda time: f"{time}000",
    "microseconds": lambda time: f"{time}000000",
    "nanoseconds": lambda time: f"{time}000000000",
    "the day first": at("%d.%m.%Y %H:%M"),
    "the day first, two digits": at("%d.%m.%y %H:%M"),
    "the day first, slashes": at("%d/%m/%Y %H:%M"),
    "the month first": at("%m/%d/%Y %I:%M:%S %p"),
    "digits alone": at("%Y%m%d%H%M%S"),
    "digits alone, to the minute": at("%Y%m%d%H%M"),
    "digits and a T": at("%Y%m%dT%H%M%S"),
    "an offset of an hour": lambda time: at("%Y-%m-%d %H:%M:%S+01:00")(time + 3600),
    "a short month": at("%d-%b-%Y %H:%M:%S"),
    "a month in front": at("%B %d, %Y %I:%M:%S %p"),
    "mail": at("%a, %d %b %Y %H:%M:%S GMT"),
    "Go": at("%Y-%m-%d %H:%M:%S +0000 UTC"),
    "an offset apart": at("%Y-%m-%d %H:%M:%S +0000"),
    "slashes": at("%Y/%m/%d %H:%M"),
    "weeks": at("%G-W%V-%uT%H:%M:%SZ"),
    "milliseconds with a point": lambda time: f"{time}000.0",
    "an exponent": lambda time: f"{time * 1000:.9e}",
    "a decimal comma": lambda time: f"{time},000",
}


@pytest.mark.parametrize("name", TIMES)
def test_times_are_read_as_they_are_written(tmp_path: Path, name: str) -> None:
    readings = read(written(tmp_path, "time;W", lambda time, value: f"{TIMES[name](time)};{value}"))
    assert readings.moments.tolist() == MINUTES
    assert np.array_equal(readings.values, VALUES)


@pytest.mark.parametrize(
    ("head", "form"), [("date", "%Y%m%d;%H%M"), ("date", "%Y-%m-%d;%H:%M:%S"), ("Datum", "%d.%m.%Y;%H:%M")]
)
def test_days_and_times_are_joined(tmp_path: Path, head: str, form: str) -> None:
    head = f"{head};{'time' if head == 'date' else 'Uhrzeit'};W"
    readings = read(written(tmp_path, head, lambda time, value: f"{at(form)(time)};{value}"))
    assert readings.moments.tolist() == MINUTES


def test_numbers_that_only_look_like_dates_are_numbers(tmp_path: Path) -> None:
    """Seconds since some start go through values that no date has."""
    readings = read(written(tmp_path, "time;W", lambda time, value: f"{time - START + 20_260_301};{value}"))
    assert readings.moments[:2].tolist() == [20_260_301, 20_260_361]


@pytest.mark.parametrize("head", ["time_ms", "Timestamp [ms]", "ts (ms)"])
def test_a_unit_in_the_name_of_times_is_taken(tmp_path: Path, head: str) -> None:
    """Of a clock that begins with the logger, too, whose numbers do not tell."""
    readings = read(written(tmp_path, f"{head};W", lambda time, value: f"{(time - START) * 1000};{value}"))
    assert readings.period_seconds == 60.0


@pytest.mark.parametrize(
    ("time", "option"),
    [
        (lambda time: f"{time * 10}", ("--time", "time:ms")),
        (lambda time: f"{(time + 62_135_596_800) * 10**7}", ("--as-it-is", "step")),
        (lambda time: f"{time / 86_400 + 719_529:.8f}", ("--time", "time:days")),
        (lambda time: f"{time / 86_400 + 25_569:.8f}", ("--time", "time:days")),
    ],
)
def test_times_that_are_in_no_years_of_ours_are_a_question(
    tmp_path: Path, time: Callable[[int], str], option: tuple[str, ...]
) -> None:
    rule, options = question(written(tmp_path, "time;W", lambda moment, value: f"{time(moment)};{value}"))
    assert (rule, option in options) == ("step", True)


@pytest.mark.parametrize("first", [25_569.0, 719_529.0, 2_440_587.5])
def test_days_are_of_a_spreadsheet_of_matlab_or_of_astronomers(tmp_path: Path, first: float) -> None:
    file = written(tmp_path, "time;W", lambda time, value: f"{time / 86_400 + first:.9f};{value}")
    readings = read(file, time="time:days")
    assert readings.moments is not None
    assert readings.moments == pytest.approx(MINUTES, abs=0.1)


NUMBERS: dict[str, Callable[[float], str]] = {
    "spaces": lambda value: f"{value:,.2f}".replace(",", " ").replace(".", ","),
    "narrow spaces": lambda value: f"{value:,.2f}".replace(",", "\u202f"),
    "apostrophes": lambda value: f"{value:,.2f}".replace(",", "'"),
    "points": lambda value: f"{value:,.2f}".replace(",", " ").replace(".", ",").replace(" ", "."),
    "a decimal comma": lambda value: f"{value}".replace(".", ","),
    "a unit": lambda value: f"{value} °C",
    "brackets": lambda value: f'"[{value}]"',
    "prefixes": lambda value: f"{value / 1000:.5f} kW" if value > 2_000.0 else f"{value} W",
    "quoted commas": lambda value: f'"{value:,.2f}"',
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_read_as_they_are_written(tmp_path: Path, name: str) -> None:
    file = written(tmp_path, "time;W", lambda time, value: f"{time};{NUMBERS[name](value - 1_000.0)}")
    readings = read(file)
    assert np.array_equal(readings.values, np.array(VALUES) - 1_000.0)
    assert readings.rows is None, "an agent reads plain numbers only"


def test_decimal_commas_are_quoted_between_commas(tmp_path: Path) -> None:
    file = written(tmp_path, "time,W", lambda time, value: f'{time},"{NUMBERS["a decimal comma"](value)}"')
    assert np.array_equal(read(file).values, VALUES)


def test_a_question_mark_is_a_missing_reading(tmp_path: Path) -> None:
    file = written(tmp_path, "time;W", lambda time, value: f"{time};{'?' if time == MINUTES[4] else value}")
    assert np.flatnonzero(np.isnan(np.asarray(read(file).values))).tolist() == [4]


def test_points_before_three_digits_are_thousands_or_decimals_and_refused(tmp_path: Path) -> None:
    def german(value: float) -> str:
        return f"{round(value) - 1_000:,}".replace(",", ".")

    file = written(tmp_path, "time;W", lambda time, value: f"{time};{german(value)}")
    refused(r"a separator before three digits, .*thousands without a separator", file)


def comma(value: float) -> str:
    """With decimals where there are some: 2.000, 1.999,5 and 999,75."""
    return f"{value:,.2f}".rstrip("0").rstrip(".").translate(str.maketrans(",.", ".,"))


@pytest.mark.parametrize("thousands", [1, 9])
def test_few_thousands_among_decimal_commas_are_thousands(tmp_path: Path, thousands: int) -> None:
    """1.000 beside 999,75 was read as one, and 1.000,25 as no number."""
    values = [value % 500.0 + (1_000.25 if row < thousands else 500.0) for row, value in enumerate(VALUES)]
    rows = dict(zip(MINUTES, [1_000.0, *values[1:]], strict=True))
    file = written(tmp_path, "time;W", lambda time, _: f"{time};{comma(rows[time])}")
    if thousands == 1:
        refused("a separator before three digits", file)
    else:
        assert np.array_equal(read(file).values, [*rows.values()])


def test_a_decimal_point_and_a_decimal_comma_beside_thousands_are_refused(tmp_path: Path) -> None:
    """1.5 became 15 where the decimals of others had a comma."""
    file = written(tmp_path, "time;W", lambda time, value: f"{time};{1.5 if time == MINUTES[5] else comma(value)}")
    refused("a separator before three digits", file)


@pytest.mark.parametrize("unit", ["s", "O"])
def test_numbers_in_several_units_and_slips_of_the_pen_are_refused(tmp_path: Path, unit: str) -> None:
    """One letter behind a number is no unit."""
    wrong = {MINUTES[7]} if unit == "O" else {*MINUTES[::2]}
    file = written(
        tmp_path,
        "time;W",
        lambda time, value: f"{time};{value} {unit if time in wrong else 'min' if unit == 's' else ''}",
    )
    refused("column W has numbers in 2 units" if unit == "s" else "line 9, column W", file)


@pytest.mark.parametrize("values", [2, ROWS])
def test_numbers_with_and_without_a_unit_are_refused(tmp_path: Path, values: int) -> None:
    """45 % beside 0.45 became 45 beside 0.45."""
    cells = {time: f"{row % values}%" if row % 3 else f"{row % values / 100}" for row, time in enumerate(MINUTES)}
    file = written(tmp_path, "time,W", lambda time, _: f"{time},{cells[time]}")
    refused("column W has numbers in 2 units, where none counts as one", file)


@pytest.mark.parametrize("names", ["value,value", "Value,value", "state,state", "value,value_2"])
def test_two_columns_of_one_usual_name_are_a_question(tmp_path: Path, names: str) -> None:
    """The first was read, as if the file had no other."""
    file = written(tmp_path, f"time,{names}", lambda time, value: f"{time},{value},{value + 1}")
    rule, options = question(file)
    assert (rule, len(options)) == ("column", 2)
    written(tmp_path, f"time,{names}", lambda time, value: f"{time},{value},")
    assert np.array_equal(read(file).values, VALUES)


def test_a_question_shows_few_of_many_columns(tmp_path: Path) -> None:
    names = [f"W{number}" for number in range(40)]
    file = written(tmp_path, ",".join(["time", *names]), lambda time, value: f"{time}{f',{value}' * len(names)}")
    rule, options = question(file)
    assert rule == "column"
    assert options == [*(("--column", name) for name in names[:12]), ("--column", "NAME")]


@pytest.mark.parametrize("columns", [dict, list])
def test_a_document_of_columns_is_refused_in_one_line(tmp_path: Path, columns: type) -> None:
    """Each of its cells was a column of one row."""
    times, values = (cells if columns is list else dict(enumerate(cells)) for cells in (MINUTES, VALUES))
    document = {"time": times, "value": values}
    (tmp_path / "mine.json").write_text(json.dumps(document))
    refused(r"JSON in no form that is known.*of columns write CSV", tmp_path / "mine.json")


@pytest.mark.parametrize(
    "name", [lambda value: f"{int(value) % 4 + 1}{'AB'[int(value) % 2]}", lambda value: f"({value})"]
)
def test_floors_and_amounts_of_an_account_are_no_numbers(tmp_path: Path, name: Callable[[float], str]) -> None:
    file = written(tmp_path, "time;W", lambda time, value: f"{time};{name(value)}")
    assert read(file, as_it_is="names").kind == "names"


def test_many_words_with_numbers_are_a_question(tmp_path: Path) -> None:
    file = written(tmp_path, "time;W", lambda time, value: f"{time};heat {value}")
    rule, options = question(file)
    assert (rule, options) == ("names", [("--column", "NAME"), ("--as-it-is", "names")])
    assert read(file, as_it_is="names").kind == "names"
    few = written(tmp_path, "time;W", lambda time, value: f"{time};room {int(value) % 32}")
    assert read(few).kind == "names"


def test_rows_without_a_time_and_a_reading_are_left_out_and_told(tmp_path: Path) -> None:
    file = written(tmp_path, "time;W;who", lambda time, value: f"{time};{value};")
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:5], ";;Ann", ";;Bee", *lines[5:], ""]))
    readings = read(file, column="W")
    assert np.array_equal(readings.values, VALUES)
    assert ("2 rows without a time and a reading: left out" in readings.notes, readings.rows) == (True, None)
    file.write_text("\n".join([*lines[:5], ";7;Ann", *lines[5:], ""]))
    refused("line 6, column time is no time", file, column="W")


def test_columns_with_decimal_commas_are_no_keys_of_sensors(tmp_path: Path) -> None:
    file = written(tmp_path, "time;a;b", lambda time, value: f"{time};{int(value) % 50},5;{int(value) % 20},0")
    assert read(file, column="a").kind == "numbers"


def test_words_among_numbers_are_a_question_with_the_option_that_settles_it(tmp_path: Path) -> None:
    file = written(tmp_path, "time;W", lambda time, value: f"{time};{'sensor fault' if time % 900 == 0 else value}")
    rule, [option] = question(file)
    assert (rule, option) == ("words", ("--missing-values", "sensor fault"))
    assert read(file, missing_values="Sensor fault").missing_share == pytest.approx(1 / 15)


@pytest.mark.parametrize("wrong", [0, 946_684_800, 1_073_003_200, 4_294_967_295])
def test_rows_of_a_wrong_clock_are_left_out_and_told(tmp_path: Path, wrong: int) -> None:
    file = written(
        tmp_path, "time;W", lambda time, value: f"{wrong + time % 600 if time < START + 600 else time};{value}"
    )
    readings = read(file)
    assert len(readings.segments) == ROWS - 10
    assert any(note.startswith("10 rows are ") and note.endswith("left out") for note in readings.notes)


def test_what_breaks_off_and_headers_that_come_again_are_left_out_and_told(tmp_path: Path) -> None:
    file = written(tmp_path, "time,W", lambda time, value: f"{time},{value}", end=f"{MINUTES[-1] + 60}")
    file.write_text(file.read_text().replace(f"\n{MINUTES[100]},", f"\ntime,W\n{MINUTES[100]},"))
    readings = read(file)
    assert np.array_equal(readings.values, VALUES)
    assert readings.rows is None, "an agent would stop at these rows"
    assert "the header comes again 1 times: left out" in readings.notes
    assert f"line {ROWS + 3}, the last, breaks off: left out" in readings.notes
    file.write_text(f"{file.read_text()}\n")
    refused(f"line {ROWS + 3} has 1 columns, not 2", file)


@pytest.mark.parametrize("head", ["time,W", "time,W,", ",time,W", "row,time,W"])
def test_signs_behind_the_last_cell_and_numbers_of_rows_are_no_readings(tmp_path: Path, head: str) -> None:
    begin, end = ("", ",") if head.startswith("time") else ("{},", "")
    file = written(tmp_path, head, lambda time, value: f"{begin.format((time - START) // 60)}{time},{value}{end}")
    assert np.array_equal(read(file).values, VALUES)


LINES: dict[str, Callable[[int, float], str]] = {
    "syslog": lambda time, value: f"{at('%b %d %H:%M:%S')(time)} pi logger: W {value}",
    "logfmt": lambda time, value: f"ts={time} W={value}",
    "aligned": lambda time, value: f"{time}  {value:8.2f}",
    "a key": lambda time, value: f"temp={value}",
}


@pytest.mark.parametrize("name", LINES)
def test_a_log_line_is_no_header(tmp_path: Path, name: str) -> None:
    """A header that is a line like the others would show a reading as the name of a column."""
    file = written(tmp_path, LINES[name](START - 60, 7_153.19), LINES[name])
    with pytest.raises(FuguError, match=r"between cells|has no header") as caught:
        read(file)
    assert "7153" not in str(caught.value)


def test_a_value_that_a_program_repeats_over_an_outage_is_a_question(tmp_path: Path) -> None:
    rng, values = random.Random(5), [20.0]
    for _ in range(6_000):
        values.append(round(values[-1] + rng.gauss(0.0, 0.1), 2))
    values[1_000:2_600] = [values[1_000]] * 1_600
    rows = (f"{START + 60 * place},{value}" for place, value in enumerate(values))
    (tmp_path / "mine.csv").write_text("\n".join(["time,heat", *rows, ""]))
    rule, options = question(tmp_path / "mine.csv")
    assert (rule, options) == ("hold", [("--gap", "1h"), ("--as-it-is", "hold")])
    readings = read(tmp_path / "mine.csv", gap="1h")
    assert np.flatnonzero(np.diff(readings.segments)).tolist() == [1_000]
    assert len(readings.segments) == 6_001 - 1_599
    assert "1599 rows repeat a value for over 3600 s: left out" in readings.notes
    assert len(read(tmp_path / "mine.csv", as_it_is="hold").segments) == 6_001


@pytest.mark.parametrize(
    ("last", "zone", "left_out"),
    [
        ("9999-12-31 23:59:59", "America/New_York", None),
        ("Dec 31, 9999 24:00", None, None),
        ("31.12.9999 24:00", "America/New_York", "over a year from all others"),
        ("0001-01-01 00:00:00", "Asia/Tokyo", "before 2000"),
    ],
)
def test_times_beyond_the_calendar_are_left_out_or_no_times(
    tmp_path: Path, last: str, zone: str | None, left_out: str | None
) -> None:
    form = at("%d.%m.%Y %H:%M" if "." in last else "%b %d, %Y %H:%M" if "Dec" in last else "%Y-%m-%d %H:%M:%S")
    file = written(tmp_path, "time;W", lambda time, value: f"{form(time)};{value}", end=f"{last};1500.5\n")
    if left_out is None:
        refused(f"line {ROWS + 2}, column time is no time", file, zone=zone)
    else:
        assert any(left_out in note for note in read(file, zone=zone).notes)


def test_too_many_ticks_are_refused_in_whatever_order_parts_come(tmp_path: Path) -> None:
    """The second part is earlier, so that no time goes by from the first row to the last."""
    rows = [f"{begin + 60 * row},{row % 7},{begin}" for begin in (START, START - 9_000_000) for row in range(1_000)]
    (tmp_path / "mine.csv").write_text("\n".join(["time,value,seg", *rows]))
    refused(
        r"^mine\.csv: more than 5000000 ticks of 0\.01 s: give a longer --period",
        tmp_path / "mine.csv",
        period=0.01,
        rows="samples",
    )


def test_a_plain_file_has_names_as_they_are(tmp_path: Path) -> None:
    """Also with quotes, commas and line breaks in them."""
    names = ['5" pipe', "on, hot", "two\nlines"]
    records = [{"time": time, "name": names[row // 5 % 3]} for row, time in enumerate(MINUTES)]
    (tmp_path / "mine.json").write_text("\n".join(map(json.dumps, records)))
    readings = read(tmp_path / "mine.json")
    (tmp_path / "plain.csv").write_text(plain_csv(readings))
    assert read(tmp_path / "plain.csv").values.tolist() == readings.values.tolist()
