"""Files as people have them become ticks with readings, or one line that says what is wrong and where."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from fugu.contract.errors import FuguError
from fugu.recordings.errors import QuestionError
from fugu.recordings.options import ReadOptions
from fugu.recordings.readings import Readings, read_readings
from fugu_cli.demo.evaluation import RECORDINGS

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


def csv(folder: Path, text: str, name: str = "sensor.csv") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def steady(folder: Path, values: list[object], step: float = 60.0) -> Readings:
    rows = "".join(f"{place * step},{value}\n" for place, value in enumerate(values))
    return read_readings(csv(folder, "t,value\n" + rows))


def test_heartbeats_are_ticks_as_they_are() -> None:
    readings = read_readings(RECORDINGS / "hr_sleep_N10.csv.gz")
    assert (len(readings.values), readings.kind) == (26_923, "numbers")
    assert (readings.column, readings.steady) == ("value", False)
    assert readings.period_seconds == pytest.approx(0.797, abs=0.001)
    assert not readings.segments.any()
    assert readings.missing_share == 0.0


def test_rows_without_times_are_ticks(tmp_path: Path) -> None:
    readings = read_readings(csv(tmp_path, "value\n3.5\n\n4.5\n5\n"))
    assert list(readings.values) == [3.5, 4.5, 5.0]
    assert (readings.period_seconds, readings.kind) == (None, "numbers")
    with pytest.raises(FuguError, match=r"^sensor\.csv: no times say how far apart its rows are: give --period"):
        _ = readings.period
    readings = read_readings(csv(tmp_path, "value\n3.5\n\n4.5\n5\n"), ReadOptions(period=60.0))
    assert (readings.period, readings.steady, readings.moments) == (60.0, True, None)


def test_a_zone_is_heeded(tmp_path: Path) -> None:
    rows = "2026-03-02T12:00:00+01:00,1\n2026-03-02T11:01:00Z,2\n2026-03-02T13:02:00+02:00,3\n"
    readings = read_readings(csv(tmp_path, "time,value\n" + rows))
    assert list(readings.values) == [1.0, 2.0, 3.0]
    assert readings.period_seconds == 60.0


def test_home_automation_changes_hold_until_the_next(tmp_path: Path) -> None:
    events = [(0, "off"), (130, "on"), (131, "off"), (300, "unknown"), (600, "on"), (45_000, "unavailable")]
    events += [(50_000, "off"), (60_000, "on")]
    rows = "".join(
        f"binary_sensor.hall,{state},{(MONDAY + timedelta(seconds=at)).isoformat()}\n" for at, state in events
    )
    readings = read_readings(csv(tmp_path, "entity_id,state,last_changed\n" + rows))
    assert (readings.kind, readings.period_seconds, readings.steady) == ("on/off", 60.0, True)
    values = list(readings.values)
    assert values[:11] == ["off", "off", "off", "off", "off", None, None, None, None, None, "on"]
    alive = 45_000 // 60
    assert set(values[10:alive]) == {"on"}
    assert set(values[alive : alive + 100]) == {"off"}
    assert np.unique(readings.segments).size == 2, "the source said that it did not work: a gap"
    assert 0 < readings.missing_share < 0.01


def test_of_several_entities_one_is_chosen(tmp_path: Path) -> None:
    rows = "".join(f"sensor.{'ab'[n % 2]},{n % 5}.5,{MONDAY.isoformat()[:17]}{n:02d}\n" for n in range(60))
    file = csv(tmp_path, "entity_id,state,last_changed\n" + rows)
    with pytest.raises(QuestionError, match=r"column entity_id has 2 names") as asked:
        read_readings(file)
    assert asked.value.options[0].words == ("--only", "entity_id=sensor.a")
    by_name = read_readings(file, ReadOptions(column="sensor.a", period=1.0))
    assert by_name.column == "sensor.a"
    chosen = read_readings(file, ReadOptions(only=(("entity_id", "sensor.a"),), period=1.0))
    assert np.array_equal(chosen.values, by_name.values)
    with pytest.raises(FuguError, match=r"no column 'sensor.c'"):
        read_readings(file, ReadOptions(column="sensor.c"))
    with pytest.raises(FuguError, match=r"no row has 'sensor.c' in column entity_id"):
        read_readings(file, ReadOptions(only=(("entity_id", "sensor.c"),)))


def test_uneven_rows_are_a_log_of_changes(tmp_path: Path) -> None:
    at = np.cumsum(np.random.default_rng(1).pareto(0.7, 400) * 5.0 + 0.5)
    readings = read_readings(
        csv(tmp_path, "t,value\n" + "".join(f"{t},{n % 2}\n" for n, t in enumerate(at))),
        ReadOptions(as_it_is=frozenset(["hold"])),
    )
    assert readings.notes[-1].startswith("a log of changes")
    assert len(readings.values) == int((at[-1] - at[0]) / readings.period_seconds) + 1


def test_rows_out_of_order_and_twice_are_put_right(tmp_path: Path) -> None:
    values = [f"{t * 10},{t}.25\n" for t in range(100)]
    swapped = [*values[50:], *values[:50], values[7]]
    readings = read_readings(csv(tmp_path, "t,value\n" + "".join(swapped)))
    assert list(readings.values) == [t + 0.25 for t in range(100)]
    assert [note.split(" rows")[0].isdigit() for note in readings.notes] == [True, True]


def test_gaps_end_a_stretch_and_short_silences_are_missing_ticks(tmp_path: Path) -> None:
    times = [*range(0, 600, 10), *range(620, 1000, 10), *range(5000, 6000, 10)]
    readings = read_readings(csv(tmp_path, "t,value\n" + "".join(f"{t},{t % 70}.5\n" for t in times)))
    assert np.unique(readings.segments, return_counts=True)[1].tolist() == [100, 100]
    assert int((~readings.present).sum()) == 2
    assert readings.missing_share == 0.0, "absent rows are no missing readings"


def test_missing_readings_are_counted(tmp_path: Path) -> None:
    recording = steady(tmp_path, [1.5, "nan", 2.5, "", 3.25, "unknown", 1.5, 2.5])
    assert recording.missing_share == pytest.approx(3 / 8)
    assert np.isnan(np.asarray(recording.values)[[1, 3, 5]]).all()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, 1, 0, 1], "on/off"),
        ([0, 1, 2, 3], "levels"),
        ([0.5, 1, 2], "numbers"),
        (list(range(20)), "numbers"),
        (["On", "off", "on"], "on/off"),
        (["kitchen", "bath", "hall"], "names"),
    ],
)
def test_the_kind_of_data_is_recognised(tmp_path: Path, values: list[object], kind: str) -> None:
    assert steady(tmp_path, values).kind == kind


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("61.5\n62.5\n61\n", "has no header"),
        ("t,value\n0,1.5\n1,2.5\n2,9O\n", "line 4, column value is no number"),
        ("t,value\n0,1.5\n1,inf\n", "line 3, column value is no number up to 1e+100"),
        ("t,value\n0,1.5\n1,-2e200\n2,3.5\n", "line 3, column value is no number up to 1e+100"),
        ("t,value\n0,1\nnoon,2\n", "line 3, column t is no time"),
        ("t,value\n0,1\nnan,2\n", "line 3, column t is no time"),
        ("t,value\n0,7\n1,7\n2,7\n", "column value never changes"),
        ("t,value\n0,9007199254740992\n1,9007199254740993\n", "numbers beyond 2^53 that cannot be told apart"),
        ("t,value\n0,9007199254740992\n1,\n2,9007199254740993\n", "numbers beyond 2^53 that cannot be told apart"),
        ("t,value\n0,on\n1,On\n", "column value never changes"),
        ("t,value\n0,nan\n1,\n", "no row has a reading"),
        ("t,value\n5,1\n5,2\n5,3\n", "no two rows have different times"),
        ("t,value\n1970-01-01T00:01,1\n1970-01-01T00:02,2\n", "all rows are of before 2000, when the clock was not"),
        ("t,value\n0001-01-01,1\n0001-01-02,2\n", "all rows are of before 2000, when the clock was not"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(FuguError) as caught:
        read_readings(csv(tmp_path, text))
    message = str(caught.value)
    assert words in message
    assert message.startswith("sensor.csv")
    assert "\n" not in message
    assert "9O" not in message
