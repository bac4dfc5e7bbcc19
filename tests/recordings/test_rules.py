"""Recordings that can be read in two ways are questions; the repository's own are none."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from fugu.recordings.errors import QuestionError
from fugu.recordings.options import read_options
from fugu.recordings.readings import Readings, read_readings
from fugu.recordings.rules import RULES
from fugu_cli.demo.evaluation import RECORDINGS

START = 1_772_323_200
MINUTE, DAY = 60, 86_400
DATA = Path(__file__).parents[1] / "data"


def write(path: Path, header: str, rows: Iterable[str]) -> Path:
    path.write_text("\n".join([header, *rows, ""]))
    return path


def walk(seed: int, number: int, on: float = 0.01, off: float = 0.03) -> list[int]:
    rng, state, states = random.Random(seed), 0, list[int]()
    for _ in range(number):
        state ^= rng.random() < (off if state else on)
        states.append(state)
    return states


def changes(seed: int, number: int) -> list[tuple[int, int]]:
    """The times and states of a log of changes of so many minutes."""
    rng, states = random.Random(seed + 100), walk(seed, number)
    new = [0, *(place for place in range(1, number) if states[place] != states[place - 1])]
    return [(START + MINUTE * place + rng.randrange(50), states[place]) for place in new]


def asked(path: Path, **words: object) -> QuestionError:
    with pytest.raises(QuestionError) as caught:
        read_readings(path, read_options(**words))
    return caught.value


def answered(path: Path, question: QuestionError, option: int = 0) -> Readings:
    """The readings by an option of a question, given as a command line gives it."""
    name, value = question.options[option].words
    return read_readings(path, read_options(**{name[2:].replace("-", "_"): value}))


@pytest.mark.parametrize("name", ["sensor", "topic", "device_id", "node", "where"])
def test_sensors_that_interleave_are_a_question(tmp_path: Path, name: str) -> None:
    """A column of any name; its names are shown only if they are sure to be names."""
    rooms = ["hall", "bath", "office"]
    rows = sorted((time, room, state) for seed, room in enumerate(rooms) for time, state in changes(seed, 5 * 1440))
    file = write(
        tmp_path / "house.csv", f"time,{name},state", (f"{t},{room},{'on' if s else 'off'}" for t, room, s in rows)
    )
    question = asked(file)
    assert question.rule == "keys"
    assert "hall" not in str(question)
    alone = [(time, state) for time, room, state in rows if room == "hall"]
    hall = write(tmp_path / "hall.csv", "time,state", (f"{time},{'on' if state else 'off'}" for time, state in alone))
    expected = read_readings(hall)
    readings = read_readings(file, read_options(only=f"{name}=hall"))
    assert np.array_equal(readings.values, expected.values)
    assert readings.notes == expected.notes
    shown = any("hall" in word for option in question.options for word in option.words)
    assert shown == (name != "where")


@pytest.mark.parametrize("kind", ["polled together", "polled in turn", "changes"])
def test_numbers_of_sensors_interleave_as_well(tmp_path: Path, kind: str) -> None:
    """A column of numbers tells sensors apart if times, steps or values make no sense without it."""
    rng, rows = random.Random(4), list[tuple[float, int, str]]()
    for place in (3, 4, 7):
        match kind:
            case "polled together":
                rows += [(START + 60.0 * k, place, f"{rng.gauss(place, 1):.2f}") for k in range(300)]
            case "polled in turn":
                rows += [(START + 60.0 * k + 3.1 * place, place, f"{rng.gauss(place, 1):.2f}") for k in range(300)]
            case _:
                rows += [(float(time), place, str(state)) for time, state in changes(place, 3 * 1440)]
    lines = [f"{time},{place},{value}" for time, place, value in sorted(rows)]
    assert asked(write(tmp_path / "many.csv", "time,board,value", lines)).rule == "keys"


def test_a_state_beside_a_reading_is_no_sensor(tmp_path: Path) -> None:
    """A column that follows from the reading, or says how good it is in numbers, interleaves and is none."""
    rng = random.Random(2)
    values = [rng.gauss(20, 4) for _ in range(500)]
    rows = [f"{START + 60 * k},{value:.2f},{int(value > 20)},{k % 7 // 6}" for k, value in enumerate(values)]
    readings = read_readings(write(tmp_path / "warm.csv", "time,value,high,imputed", rows))
    assert readings.facts[0].unused == ("high", "imputed")


def uneven(seed: int, number: int) -> list[tuple[int, int]]:
    """A state every 5 or 10 s, now and then after 50 s."""
    rng, states, time, rows = random.Random(seed), walk(seed, number, 0.004, 0.006), 0, []
    while time < number:
        rows.append((START + time, states[time]))
        time += rng.choices((5, 10, 50), (55, 27, 18))[0]
    return rows


@pytest.mark.parametrize("column", ["timestamp", "ts", "_time", "t"])
def test_rows_that_are_absent_are_ticks_without_a_reading(tmp_path: Path, column: str) -> None:
    rows = uneven(8, 40_000)
    readings = read_readings(write(tmp_path / "u.csv", f"{column},state", (f"{t},{s}" for t, s in rows)))
    assert (readings.facts[0].row_kind, readings.period_seconds) == ("samples", 5.0)
    ticks = (rows[-1][0] - rows[0][0]) // 5 + 1
    assert len(readings.segments) == ticks
    assert int(readings.absent.sum()) == ticks - len(rows)


def test_rows_in_no_order_are_a_question(tmp_path: Path) -> None:
    rows = [f"{t},{s}" for t, s in uneven(8, 40_000)]
    expected = read_readings(write(tmp_path / "u.csv", "timestamp,state", rows))
    backward = read_readings(write(tmp_path / "backward.csv", "timestamp,state", rows[::-1]))
    assert np.array_equal(backward.values, expected.values, equal_nan=True), "the newest first is an order"
    random.Random(1).shuffle(rows)
    file = write(tmp_path / "s.csv", "timestamp,state", rows)
    question = asked(file)
    assert question.rule == "order"
    assert np.array_equal(answered(file, question).values, expected.values, equal_nan=True)


@pytest.mark.parametrize("rate", [True, False])
def test_beats_are_events(tmp_path: Path, rate: bool) -> None:
    """By their rate, or by their interval; a column beside that is not asked for says it as well."""
    rng, time, rows = random.Random(3), 0.0, []
    for _ in range(500):
        step = rng.uniform(0.7, 1.4)
        time += step
        rows.append(f"{time:.3f},{60 / step if rate else 1000 * step:.2f},{int(step > 1)}")
    file = write(tmp_path / "beats.csv", "t,value,slow", rows)
    for column in (None, "slow"):
        readings = read_readings(file, read_options(column=column))
        assert (readings.facts[0].row_kind, len(readings.segments)) == ("events", 500)
    question = asked(write(tmp_path / "only.csv", "t,slow", [",".join(row.split(",")[::2]) for row in rows]))
    assert question.rule == "rows"
    assert [option.words[1] for option in question.options] == ["samples", "changes", "events"]


def test_a_cycle_is_a_log_of_changes(tmp_path: Path) -> None:
    """On for 12 and off for 17 minutes, always: no value comes twice in a row, and the share is of time."""
    rng, time, rows = random.Random(13), START, []
    while time < START + 10 * DAY:
        rows.append(f"{time},ON")
        time += rng.randrange(660, 780)
        rows.append(f"{time},OFF")
        time += rng.randrange(1020, 1080)
    readings = read_readings(write(tmp_path / "cycle.csv", "time,value", rows))
    assert readings.changes
    assert np.mean([value == "ON" for value in readings.values]) == pytest.approx(0.41, abs=0.01)


def outage(folder: Path) -> Path:
    rows = [(t, s) for t, s in changes(3, 18 * 1440) if not 6 * DAY < t - START < 9 * DAY]
    lines = [f"{datetime.fromtimestamp(t, UTC).isoformat()},{'on' if s else 'off'}" for t, s in rows]
    return write(folder / "door.csv", "last_changed,state", lines)


def test_an_outage_that_nobody_told_is_a_question(tmp_path: Path) -> None:
    question = asked(outage(tmp_path))
    assert (question.rule, question.options[1].words) == ("hold", ("--as-it-is", "hold"))
    released, held = (answered(outage(tmp_path), question, option) for option in (0, 1))
    assert (released.facts[0].gaps, held.facts[0].gaps) == (1, 0)
    assert len(held.values) - len(released.values) == pytest.approx(3 * 1440, abs=200)


def test_codes_are_a_question(tmp_path: Path) -> None:
    rng = random.Random(9)
    values = [f"{20 + 2 * math.sin(k / 200) + rng.gauss(0, 0.2):.2f}" for k in range(3000)]
    values[::90], values[7::700] = ["-127"] * len(values[::90]), ["85"] * len(values[7::700])
    file = write(tmp_path / "bath.csv", "time,value", (f"{START + 60 * k},{value}" for k, value in enumerate(values)))
    question = asked(file)
    assert (question.rule, question.options[0].words) == ("codes", ("--missing-values", "-127,85"))
    assert "127" not in str(question), "a code is a reading: it is only in the option"
    readings = answered(file, question)
    assert int(np.isnan(np.asarray(readings.values)).sum()) == values.count("-127") + values.count("85")
    assert read_readings(file, read_options(as_it_is="codes")).missing_share == 0.0


def test_a_value_that_comes_twice_is_no_code(tmp_path: Path) -> None:
    """At the boundary: three times it is asked about, twice it is an extreme; so it is at twice the quartiles."""
    values = [float(k % 40) for k in range(400)]
    spread = 20.0  # from 10 to 30 of numbers from 0 to 39
    for number, far, rule in (
        (3, 2.0 * spread + 1.5, True),
        (2, 2.0 * spread + 1.5, False),
        (3, 2.0 * spread - 1.5, False),
    ):
        some = [*values, *[39.0 + far] * number]
        file = write(tmp_path / "n.csv", "time,value", (f"{60 * k},{value}" for k, value in enumerate(some)))
        if rule:
            assert asked(file).rule == "codes"
        else:
            read_readings(file)


def test_a_temperature_is_no_time(tmp_path: Path) -> None:
    rng = random.Random(5)
    rows = [
        f"{(datetime.fromtimestamp(START, UTC) + timedelta(minutes=k)).isoformat()},{rng.gauss(20, 1):.3f},{state}"
        for k, state in enumerate(walk(5, 500))
    ]
    file = write(tmp_path / "T.csv", "timestamp,T,occupancy", rows)
    assert [option.words[1] for option in asked(file).options] == ["T", "occupancy"]
    readings = read_readings(file, read_options(column="occupancy"))
    assert (readings.facts[0].time, readings.period_seconds) == ("timestamp", 60.0)
    alone = write(tmp_path / "t.csv", "T,value", [",".join(row.split(",")[1:]) for row in rows])
    assert read_readings(alone).facts[0].time is None


def test_parts_of_the_day_need_a_zone(tmp_path: Path) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 5, 1, tzinfo=berlin)
    times = [first + timedelta(minutes=5 * k) for k in range(500)]
    states = walk(3, 500, 0.1, 0.2)
    local, offset = (
        write(tmp_path / f"{name}.csv", "time,state", (f"{form(t)},{s}" for t, s in zip(times, states, strict=True)))
        for name, form in (("local", lambda t: f"{t:%Y-%m-%d %H:%M:%S}"), ("offset", datetime.isoformat))
    )
    read_readings(local)
    question = asked(local, day_parts="Europe/Berlin")
    assert (question.rule, question.options[0].words) == ("zone", ("--zone", "Europe/Berlin"))
    expected = read_readings(offset, read_options(day_parts="Europe/Berlin")).moments
    assert np.array_equal(answered(local, question).moments, expected)


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize(
    ("zone", "first", "step", "number"),
    [
        ("Europe/Berlin", datetime(2026, 10, 24, 12, tzinfo=UTC), 10, 12),
        ("Europe/Berlin", datetime(2026, 10, 24, 12, tzinfo=UTC), 60, 2),
        ("Australia/Lord_Howe", datetime(2026, 4, 4, 6, tzinfo=UTC), 10, 6),  # half an hour comes twice
        ("Australia/Lord_Howe", datetime(2026, 4, 4, 6, tzinfo=UTC), 30, 2),
    ],
)
def test_a_local_hour_that_comes_twice_is_told_apart_and_said(
    tmp_path: Path, zone: str, first: datetime, step: int, number: int, newest_first: bool
) -> None:
    times = [first + timedelta(minutes=step * k) for k in range(150)]
    rows = [f"{t.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M:%S},{k * 7 % 11}.5" for k, t in enumerate(times)]
    file = write(tmp_path / "n.csv", "time,value", rows[::-1] if newest_first else rows)
    readings = read_readings(file, read_options(zone=zone))
    assert readings.moments.tolist() == [time.timestamp() for time in times]
    assert readings.values.tolist() == [k * 7 % 11 + 0.5 for k in range(150)]
    assert any(note.startswith(f"{number} rows are in local hours that come twice") for note in readings.notes)


@pytest.mark.parametrize("form", ["%y-%m-%d", "%y.%m.%d", "%y/%m/%d"])
def test_a_year_of_two_digits_in_front_is_a_question(tmp_path: Path, form: str) -> None:
    """It was taken for a day: a recording of a fortnight was one of twelve years, with gaps of a year each."""
    times = [datetime.fromtimestamp(START + 3600 * k, UTC) for k in range(300)]
    file = write(tmp_path / "d.csv", "when,use", (f"{t:{form} %H:%M},{k % 9}.5" for k, t in enumerate(times)))
    question = asked(file)
    assert (question.rule, question.options[-1].words) == ("dates", ("--time", "when:yy/mm"))
    assert (moments := answered(file, question, -1).moments) is not None
    assert moments.tolist() == [time.timestamp() for time in times]


@pytest.mark.parametrize("form", ["%y%m%d%H%M", "%d%m%y%H%M%S", "%Y%m%d%H"])
def test_dates_in_digits_that_are_numbers_of_seconds_too_are_a_question(tmp_path: Path, form: str) -> None:
    """They were seconds or milliseconds: readings of a minute, or of an hour, became ones of a second or less."""
    step = 3600 if form.endswith("H") else MINUTE
    times = [datetime.fromtimestamp(START + 15 * DAY + step * k, UTC) for k in range(300)]
    file = write(tmp_path / "d.csv", "time,value", (f"{t:{form}},{k % 9}.5" for k, t in enumerate(times)))
    question = asked(file)
    assert (question.rule, question.options[0].words) == ("step", ("--as-it-is", "step"))
    assert answered(file, question).period_seconds in (1.0, pytest.approx(0.1, rel=1e-6))


def test_seconds_within_a_minute_are_no_dates(tmp_path: Path) -> None:
    rows = [f"{1_703_031_200 + k},{k % 9}.5" for k in range(60)]
    assert read_readings(write(tmp_path / "s.csv", "time,value", rows), read_options()).period_seconds == 1.0


def test_dates_that_may_be_either_are_a_question(tmp_path: Path) -> None:
    file = write(tmp_path / "d.csv", "when,use", (f"01/03/2026 {k // 60:02d}:{k % 60:02d},{k % 9}" for k in range(300)))
    question = asked(file)
    assert question.rule == "dates"
    moments = [answered(file, question, option).moments for option in (0, 1)]
    assert [datetime.fromtimestamp(float(some[0]), UTC).month for some in moments if some is not None] == [3, 1]


OURS = [*sorted(DATA.glob("*.csv.gz")), *sorted(RECORDINGS.glob("*.csv.gz"))]


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.stem)
def test_no_rule_asks_about_our_recordings(file: Path) -> None:
    read_readings(file, read_options(period=60.0 if "_states" in file.name else None))


def test_every_rule_has_a_name_and_is_explained() -> None:
    page = (Path(__file__).parents[2] / "docs" / "plan.md").read_text()
    assert [name for name in RULES if f"`{name}`" not in page] == []
