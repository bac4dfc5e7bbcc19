"""Every form in which programs write recordings: the same times and values come out, or one line says why not."""

from __future__ import annotations

import gzip
import io
import json
import math
import random
import sqlite3
import tracemalloc
import zipfile
from contextlib import closing, suppress
from pathlib import Path

import pytest

from fugu.contract.errors import FuguError
from fugu.host.csv_file import moment
from fugu.recordings import file as recording_file
from fugu.recordings import table as recording_table
from fugu.recordings.file import File
from fugu.recordings.forms import read_table
from fugu.recordings.readings import read_readings
from fugu.recordings.table import Table
from tests.support.recording_forms import FORMS, PLACES

TIMES = [1_772_323_200 + 60 * place + place % 3 for place in range(50)]
VALUES = [str(random.Random(place).randrange(50, 120)) for place in range(50)]
SPOTS = [f"{52.0 + place / 1000:.4f},{4.3 - place / 1000:.4f}" for place in range(50)]
SECRET = "7153194726"

FOUND = {
    "history.csv": ("Home Assistant's history.csv", "state", ("entity_id",)),
    "uneven-history.csv": ("Home Assistant's history.csv", "state", ("entity_id",)),
    "history-without-ending": ("Home Assistant's history.csv", "state", ("entity_id",)),
    "period.json": ("Home Assistant's answer of /api/history/period", "state", ("entity_id",)),
    "statistics.tsv": ("Home Assistant's statistics", "mean", ("statistic_id",)),
    "home-assistant_v2.db": ("Home Assistant's recorder", "state", ("entity_id",)),
    "old-home-assistant_v2.db": ("Home Assistant's recorder", "state", ("entity_id",)),
    "Gadgetbridge": ("Gadgetbridge's database", "heart_rate", ("kind", "device")),
    "mosquitto.log": ("a log of mosquitto_sub", "device.power", ("topic",)),
    "mosquitto-v.log": ("a log of mosquitto_sub", "payload", ("topic",)),
    "mosquitto-j.log": ("a log of mosquitto_sub", "v", ("topic",)),
    "influx.csv": ("InfluxDB's annotated CSV", "_value", ("_field", "_measurement")),
    "influx.line": ("InfluxDB's line protocol", "power", ("measurement", "room")),
    "heart_rate-2026-03-01.json": ("Fitbit's export", "bpm", ()),
    "google-fit.json": ("Google Fit's export", "value", ()),
    "lines.json": ("lines of JSON", "value", ()),
    "export.xml": ("Apple Health's export", "value", ("type", "source")),
}


def read(path: Path, **only: str) -> Table:
    return read_table(File(path), only)


def refused(words: str, path: Path, **only: str) -> None:
    """Hold that a file is refused with these words, a pattern."""
    with pytest.raises(FuguError, match=words):
        read(path, **only)


def read_or_refused(path: Path) -> Table | str:
    """The table of a file, or the one line that refuses it."""
    try:
        return read(path)
    except FuguError as error:
        words = str(error)
    assert "\n" not in words
    return words


def seconds(table: Table) -> list[float]:
    """Times in seconds, with the unit that their size shows."""
    name = table.time or "time"
    times = []
    for cell in table.columns[name]:
        number = float(cell) if cell.replace(".", "").isdigit() else moment(cell)
        times.append(number / 1e9 if number > 1e17 else number)
    return times


@pytest.mark.parametrize("name", FORMS)
def test_times_and_values_are_those_that_were_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    FORMS[name](path, TIMES, VALUES)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    table = read(path)
    form, value, keys = FOUND[name]
    assert (table.form, table.keys) == (form, keys)
    assert [float(cell) for cell in table.columns[value]] == [float(value) for value in VALUES]
    if table.value is not None:
        assert table.value == value
    if name != "mosquitto-v.log":
        assert [math.floor(second) for second in seconds(table)] == TIMES
    else:
        assert table.time is None
    assert len(table.lines) == len(TIMES)
    assert all(len(cells) == len(TIMES) for cells in table.columns.values())
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before, "nothing is written beside it"


@pytest.mark.parametrize("name", PLACES)
def test_places_are_those_that_were_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    PLACES[name](path, TIMES, SPOTS)
    table = read(path)
    assert [math.floor(second) for second in seconds(table)] == TIMES
    places = zip(table.columns["lat"], table.columns["lon"], strict=True)
    assert [f"{float(lat):.4f},{float(lon):.4f}" for lat, lon in places] == SPOTS


@pytest.mark.parametrize("name", [*FORMS, *PLACES])
@pytest.mark.parametrize("cut", [0.3, 0.9])
def test_a_file_that_breaks_off_is_one_line_or_the_rows_before(tmp_path: Path, name: str, cut: float) -> None:
    path = tmp_path / name
    values = [SECRET] * 50 if name in FORMS else [f"52.{SECRET},4.3"] * 50
    (FORMS | PLACES)[name](path, TIMES, values)
    content = path.read_bytes()
    path.write_bytes(content[: int(cut * len(content))])
    recording = read_or_refused(path)
    if isinstance(recording, str):
        assert SECRET not in recording
    else:
        assert len(recording.lines) < 50


@pytest.mark.parametrize("end", ['{"time": 120, "va', '{"time": 120, "va\n'])
def test_a_last_line_of_json_that_breaks_off_is_left_out_and_told(tmp_path: Path, end: str) -> None:
    """As of a log that grows; a line that has its end is broken."""
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps({"time": 60 * row, "value": row}) + "\n" for row in range(2)) + end)
    recording = read_or_refused(path)
    if isinstance(recording, str):
        assert "line 3 is no object of JSON" in recording
        assert end.endswith("\n")
    else:
        assert recording.columns["value"] == ["0", "1"]
        assert recording.notes == ("line 3, the last, breaks off: left out",)


@pytest.mark.parametrize("name", [*FORMS, *PLACES])
def test_a_form_stops_at_too_many_rows_and_bytes(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / name
    (FORMS | PLACES)[name](path, TIMES, VALUES if name in FORMS else SPOTS)
    monkeypatch.setattr(recording_table, "MOST_ROWS", 50)
    assert len(read(path).lines) == 50
    monkeypatch.setattr(recording_table, "MOST_ROWS", 49)
    refused("more than 49 rows: give a part of it", path)


@pytest.mark.long
def test_small_files_that_become_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_file, "MOST_BYTES", 1 << 17)
    for name in ("history.csv", "export.xml", "mosquitto.log", "influx.line", "lines.json", "statistics.tsv"):
        path = tmp_path / name
        FORMS[name](path, TIMES, VALUES)
        path.write_bytes(gzip.compress(path.read_bytes() + b"\n" * (2 << 16)))
        refused("becomes more than 0 MB: give a part", path)


BOMB = """<?xml version="1.0"?>
<!DOCTYPE HealthData [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<HealthData><Record type="HKQuantityTypeIdentifierHeartRate" startDate="2026-03-01" value="&b;"/></HealthData>
"""


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        BOMB.replace('<!ENTITY a "aaaaaaaaaa">', '<!ENTITY a SYSTEM "file:///etc/hostname">'),
        BOMB.replace('<!ENTITY a "aaaaaaaaaa">', '<!ENTITY % a "aa">').replace("&a;", ""),
        "<HealthData>" + "<x>" * 200,
    ],
)
def test_xml_that_declares_entities_or_is_deep_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "export.xml").write_text(text)
    refused("declares an entity, or is nested too deep", tmp_path / "export.xml")
    (tmp_path / "track.gpx").write_text(text.replace("HealthData", "gpx"))
    refused("declares an entity, or is nested too deep", tmp_path / "track.gpx")


def zipped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, "x" * 40)
    return buffer.getvalue()


def pickled() -> bytes:
    import pickle

    return pickle.dumps([0.5] * 200)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (zipped("[Content_Types].xml", "xl/workbook.xml"), "an Excel workbook, which is not read: save it as CSV"),
        (zipped("apple_health_export/export.xml"), "a ZIP archive, which is not read: unpack it by unzip"),
        (b"PAR1\x15\x04" + bytes(60), "Parquet, which is not read: convert it by python -c .*read_parquet"),
        (b"\x89HDF\r\n\x1a\n" + bytes(60), "HDF5"),
        (pickled(), "a pickle of Python, which could run anything"),
        (b"\x0e\x10\x98\x00" + bytes(4) + b".FIT" + bytes(20), "FIT of a sports watch.*FitCSVTool"),
        (b"0       patient" + b" " * 200 + bytes(60), "EDF"),
        (b"%PDF-1.7\n\xe2\xe3" + bytes(20), "PDF"),
        (b"BZh91AY&SY\x00\x01\x02\xff\xfe\xfa" + bytes(9), "a compressed file that is no gzip"),
        (b"\n<!DOCTYPE html><html><body>Sign in</body></html>", "a page of the web"),
        (b'<?xml version="1.0"?>\n<TrainingCenterDatabase/>', "TCX.*GPX"),
        (b'<?xml version="1.0"?><kml xmlns="x"/>', "KML"),
        (b"<rows><row/></rows>", "XML that is neither"),
        (b'{\n "rows": 3}\n', "JSON in no form"),
        (b'[[{"entity_id": "a"}]]', "JSON in no form"),
        (b'{"data": [' + b'{"time": 1, "state": 2},' * 40 + b"{}]}", "JSON in no form"),
        (b"[10:00:00] sensor: 21.5\n[10:00:05] sensor: 21.6\n", "no comma"),
    ],
)
def test_all_else_is_refused_in_a_line_that_says_what_converts_it(tmp_path: Path, content: bytes, match: str) -> None:
    (tmp_path / "mine").write_bytes(content)
    with pytest.raises(FuguError, match=match) as error:
        read(tmp_path / "mine")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["PAR1,PAR2\n1,2\n3,4\n", "BZh,value\n1,2\n2,3\n", "0       1,value\n1,2\n"])
def test_a_table_that_begins_like_another_form_is_no_other(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.csv").write_text(text)
    recording = read_or_refused(tmp_path / "mine.csv")
    assert "no header" in recording if isinstance(recording, str) else recording.form == "a delimited table"


@pytest.mark.long
def test_no_bytes_are_too_odd(tmp_path: Path) -> None:
    """Bytes written over at random end in a table or a line, in any form."""
    rng = random.Random(5)
    for name in [*FORMS, *PLACES]:
        path = tmp_path / name
        (FORMS | PLACES)[name](path, TIMES[:9], (VALUES if name in FORMS else SPOTS)[:9])
        content = path.read_bytes()
        for _ in range(12):
            broken = bytearray(content)
            for _ in range(rng.choice((1, 4, 40))):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            path.write_bytes(broken)
            recording = read_or_refused(path)
            if not isinstance(recording, str):
                assert {len(cells) for cells in recording.columns.values()} == {len(recording.lines)}


def test_means_of_hours_before_changes_are_left_out_and_told(tmp_path: Path) -> None:
    rows = [f"sensor.hall,20.{hour},2026-02-27T{hour:02}:00:00.000Z" for hour in range(20)]
    rows += [f"sensor.hall,{value},2026-03-01T10:{minute:02}:07.000Z" for minute, value in enumerate(VALUES)]
    rows += [f"sensor.door,{value},2026-03-01T{hour:02}:00:00.000Z" for hour, value in enumerate(VALUES[:24])]
    path = tmp_path / "history.csv"
    path.write_text("\n".join(["entity_id,state,last_changed", *rows]) + "\n")
    table = read(path)
    assert table.columns["state"] == [*VALUES, *VALUES[:24]]
    assert table.notes == ("20 means of hours before the first change were left out",)
    assert [*table.lines[:1], table.lines[-1]] == [22, 95]
    assert not table.plain
    assert read(path, entity_id="sensor.door").columns["state"] == VALUES[:24]
    assert read(path, entity_id="sensor.door").notes == ()


@pytest.mark.parametrize("name", ["history.csv", "home-assistant_v2.db", "mosquitto.log", "influx.line", "export.xml"])
def test_only_the_rows_that_are_wanted_are_read(tmp_path: Path, name: str) -> None:
    FORMS[name](tmp_path / name, TIMES, VALUES)
    key = FOUND[name][2][0]
    table = read(tmp_path / name)
    own = table.columns[key][0]
    assert read(tmp_path / name, **{key: own}) == table
    refused("has no rows", tmp_path / name, **{key: "another"})


def test_retained_messages_and_those_sent_again_are_left_out_and_told(tmp_path: Path) -> None:
    def line(time: int, payload: object, retain: int = 0) -> str:
        return json.dumps({"tst": time, "topic": "z/hall", "retain": retain, "payload": payload})

    start = TIMES[0]
    rows = [
        line(start, {"t": 1}, retain=1),
        line(start + 1, {"t": 2, "last_seen": (start - 600) * 1000}),
        line(start + 2, {"t": 3, "last_seen": (start + 2) * 1000}),
        line(start + 3, {"t": 4, "last_seen": (start + 2) * 1000}),
        line(start + 4, {"t": 5, "last_seen": (start + 4) * 1000}),
    ]
    (tmp_path / "log").write_text("\n".join(rows) + "\n")
    table = read(tmp_path / "log")
    assert (table.columns["t"], [*table.lines]) == (["3", "5"], [3, 5])
    assert [note.split()[0] for note in table.notes] == ["1", "2"]


def test_keys_with_dots_have_the_names_that_a_sensor_s_path_has(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        '1772323200 meter/7 {"1.7.0": "840", "time": 5}\n1772323260 meter/7 {"1.7.0": "850"}\n'
    )
    table = read(tmp_path / "log")
    assert table.columns['"1.7.0"'] == ["840", "850"]
    assert table.columns["payload.time"] == ["5", ""]
    assert table.columns["time"] == ["1772323200", "1772323260"]


def test_an_annotated_file_of_several_tables_is_one_table_with_keys(tmp_path: Path) -> None:
    text = (
        "#datatype,string,long,dateTime:RFC3339,double,string\n#group,false,false,false,false,true\n#default,mean,,,,\n"
        ",result,table,_time,_value,room\n,,0,2026-03-01T00:00:00Z,1.5,hall\n\n"
        "#datatype,string,long,dateTime:RFC3339,double,string\n#group,false,false,false,false,true\n#default,mean,,,,bath\n"
        ",result,table,_time,_value,room\n,,1,2026-03-01T00:00:00Z,2.5,\n"
    )
    (tmp_path / "influx.csv").write_text(text)
    table = read(tmp_path / "influx.csv")
    assert table.columns == {"_time": ["2026-03-01T00:00:00Z"] * 2, "_value": ["1.5", "2.5"], "room": ["hall", "bath"]}
    assert (table.keys, [*table.lines]) == (("room",), [5, 11])


def test_line_protocol_with_quotes_escapes_and_no_time(tmp_path: Path) -> None:
    rows = [
        r'a\ b,room=the\,hall,floor=2 on=t,text="x, y=1 z",count=7i 1772323200000000000',
        r'a\ b,room=bath on=F,text="said \"no\"",count=8u 1772323260000000000',
    ]
    (tmp_path / "lines").write_text("# a comment\n" + "\n".join(rows) + "\n")
    table = read(tmp_path / "lines")
    assert table.columns["measurement"] == ["a b", "a b"]
    assert table.columns["room"] == ["the,hall", "bath"]
    assert (table.columns["on"], table.columns["count"]) == (["true", "false"], ["7", "8"])
    assert table.columns["text"] == ["x, y=1 z", 'said "no"']


def test_gadgetbridge_without_a_heart_rate_and_several_kinds(tmp_path: Path) -> None:
    path = tmp_path / "Gadgetbridge"
    FORMS["Gadgetbridge"](path, TIMES, ["255", "-1", *VALUES[2:]])
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE HUAMI_STRESS_SAMPLE (TIMESTAMP INTEGER, DEVICE_ID INTEGER, STRESS INTEGER)")
        database.execute("INSERT INTO HUAMI_STRESS_SAMPLE VALUES (1772323200000, 2, 40)")
        database.commit()
    table = read(path)
    assert table.columns["heart_rate"][:4] == ["", "", "", VALUES[2]]
    assert table.columns["stress"][:2] == ["40", ""]
    assert {*table.columns["kind"]} == {"mi_band_activity_sample", "huami_stress_sample"}
    assert {*read(path, kind="huami_stress_sample").columns["kind"]} == {"huami_stress_sample"}


def test_a_database_that_is_not_known_is_neither_run_nor_read(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE VIEW states AS SELECT 1 AS state, 2 AS last_updated_ts, 'a' AS entity_id")
        database.execute("CREATE VIEW recorder_runs AS SELECT 1")
        database.execute("CREATE TABLE x (a)")
        database.commit()
    refused("a program that is not known: export a table of it by sqlite3", path)
    path.write_bytes(path.read_bytes()[:5000])
    refused("breaks off: copy it while nothing writes", path)
    path.write_bytes(gzip.compress(path.read_bytes()))
    refused("unpack it by gunzip", path)


def test_a_database_that_is_written_to_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "home-assistant_v2.db"
    FORMS["home-assistant_v2.db"](path, TIMES, VALUES)
    with closing(sqlite3.connect(path)) as database:
        database.execute("BEGIN EXCLUSIVE")
        path.chmod(0o400)
        assert len(read(path).lines) == 50
    assert sorted(file.name for file in tmp_path.iterdir()) == ["home-assistant_v2.db"]


def test_a_day_of_fitbit_has_the_date_of_its_document(tmp_path: Path) -> None:
    document = {
        "activities-heart": [{"dateTime": "2026-03-01", "value": {}}],
        "activities-heart-intraday": {
            "dataset": [{"time": "00:00:05", "value": 64}, {"time": "00:01:00", "value": 65}]
        },
    }
    (tmp_path / "day.json").write_text(json.dumps(document))
    table = read(tmp_path / "day.json")
    assert table.columns == {"time": ["2026-03-01T00:00:05", "2026-03-01T00:01:00"], "value": ["64", "65"]}


def test_times_of_an_old_recorder_say_that_they_are_utc(tmp_path: Path) -> None:
    FORMS["old-home-assistant_v2.db"](tmp_path / "old.db", TIMES, VALUES)
    assert read(tmp_path / "old.db").columns["last_updated"][0] == "2026-03-01 00:00:00.000000+00:00"


@pytest.mark.parametrize("name", ["home-assistant_v2.db", "old-home-assistant_v2.db"])
def test_rows_of_a_recorder_without_a_time_are_left_out(tmp_path: Path, name: str) -> None:
    """One such row refused the whole database, by a time of '+00:00'."""
    FORMS[name](tmp_path / "ha.db", TIMES, VALUES)
    rows = len(read(tmp_path / "ha.db").lines)
    with closing(sqlite3.connect(tmp_path / "ha.db")) as database, database:
        time = "last_updated" if name.startswith("old") else "last_updated_ts"
        database.execute(f"UPDATE states SET {time} = NULL WHERE rowid = 3")
    table = read(tmp_path / "ha.db")
    assert (len(table.lines), table.notes) == (rows - 1, ("1 rows without a time were left out",))


@pytest.mark.long
def test_a_long_item_of_json_does_not_fill_the_memory(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text('[{"a": "' + "x" * (6 << 20) + '"}]')
    refused("breaks off or is broken", tmp_path / "list.json")


def test_columns_come_and_go_and_too_many_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"a": 1}, {"b": 2}, {"a": 3, "c": {"d": [True, None]}}]
    (tmp_path / "lines").write_text("\n".join(map(json.dumps, rows)) + "\n")
    wanted = {"a": ["1", "", "3"], "b": ["", "2", ""], "c.d.0": ["", "", "true"], "c.d.1": ["", "", ""]}
    for block in (1, 2, 100):
        monkeypatch.setattr(recording_table, "_BLOCK", block)
        assert read(tmp_path / "lines").columns == wanted
    (tmp_path / "lines").write_text(json.dumps({f"k{place}": place for place in range(1_001)}))
    refused("more than 1000 columns: give a part", tmp_path / "lines")


def test_an_answer_of_the_history_s_interface_has_an_entity_a_list(tmp_path: Path) -> None:
    """Whole states and minimal ones; an entity without states has an empty list."""
    hall = [{"entity_id": "light.hall", "state": "on", "last_changed": "2026-03-01T10:00:00+00:00"}]
    hall += [{"state": "off", "last_changed": "2026-03-01T10:05:00+00:00"}]
    loft = [{"entity_id": "light.loft", "state": "on", "last_updated": "2026-03-01T10:00:00+00:00"}] * 3
    text = json.dumps([[], hall, [], loft, []], indent=1)
    (tmp_path / "p.json").write_text(text)
    columns = read(tmp_path / "p.json").columns
    assert columns["entity_id"] == ["light.hall"] * 2 + ["light.loft"] * 3
    assert columns["state"] == ["on", "off", "on", "on", "on"]
    assert columns["last_changed"][1:3] == ["2026-03-01T10:05:00+00:00", "2026-03-01T10:00:00+00:00"]
    assert len(read(tmp_path / "p.json", entity_id="light.loft").lines) == 3
    for end in range(text.index('"off"'), len(text.rstrip(" ]\n")), 7):
        (tmp_path / "cut.json").write_text(text[:end])
        refused("breaks off or is broken: export it again", tmp_path / "cut.json")


@pytest.mark.parametrize("encoding", ["euc-jp", "idna", "utf-7", "hex"])
def test_xml_in_an_encoding_that_is_not_read_is_refused(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "export.xml"
    path.write_text(f'<?xml version="1.0" encoding="{encoding}"?><HealthData><Record value="{SECRET}"/></HealthData>')
    refused(r"^export\.xml: line 1 is no XML", path)


def test_the_heart_rate_behind_the_time_of_a_point_is_no_part_of_the_time(tmp_path: Path) -> None:
    """The time of every such point was "2026-03-01T10:00:00Z 120", which is no time: the track was refused."""
    points = "".join(
        f'<trkpt lat="50.{minute}" lon="8"><time>\n 2026-03-01T10:0{minute}:00Z </time><ele>5</ele>'
        "<extensions><x:hr>120</x:hr></extensions></trkpt>"
        for minute in range(3)
    )
    (tmp_path / "run.gpx").write_text(f'<gpx xmlns:x="y"><trk><trkseg>{points}</trkseg></trk></gpx>')
    assert read(tmp_path / "run.gpx").columns["time"] == [f"2026-03-01T10:0{minute}:00Z" for minute in range(3)]


def test_an_export_whose_header_has_other_signs_than_its_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.csv"
    path.write_text("entity_id;state;last_changed\n" + "sensor.hall,21,2026-03-01T00:00:00\n" * 40)
    refused(r"^history\.csv has no column 'entity_id'; it has entity_id;state", path)


def test_statistics_are_read_whatever_capitals_their_header_has(tmp_path: Path) -> None:
    path = tmp_path / "statistics.csv"
    path.write_text("Start,Statistic_ID,Mean\n" + "2026-03-01 00:00,sensor:hall,21\n")
    table = read(path)
    assert (table.time, table.value, table.columns["mean"]) == ("start", "mean", ["21"])


def test_a_message_may_hold_half_a_character(tmp_path: Path) -> None:
    """JSON can escape what UTF-8 cannot write."""
    payload = '{"last_seen": 0, "name": "\ud800", "value": 21}'
    path = tmp_path / "mosquitto.log"
    path.write_text(json.dumps({"topic": "hall", "tst": 0, "payload": payload}) + "\n")
    assert read(path).columns["value"] == ["21"]


@pytest.mark.parametrize(
    "row",
    [
        "#group,false,false,true\n,result,_time,_value,c{0}\n,,2026-03-01T00:00:00Z,1,a\n",
        "m,t{0}=1 v=1 1772323200{0:09}\n",
        "m v{0}=1 1772323200{0:09}\n",
    ],
)
def test_a_column_for_each_row_does_not_fill_the_memory(
    tmp_path: Path, row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of 1500 columns and as many rows has 18 MB of cells, of 20 columns 0.2 MB."""
    monkeypatch.setattr(recording_table, "MOST_COLUMNS", 20)
    (tmp_path / "mine").write_text("".join(row.format(number) for number in range(1_500)))
    tracemalloc.start()
    try:
        refused("more than 20 columns: give a part", tmp_path / "mine")
        assert tracemalloc.get_traced_memory()[1] < 9e6
    finally:
        tracemalloc.stop()


def test_a_header_of_many_columns_is_refused_before_its_names_are_compared(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(",".join(map("c{}".format, range(100_000))) + "\n" + "1," * 99_999 + "1\n")
    refused("more than 1000 columns: give a part", tmp_path / "mine.csv")


@pytest.mark.parametrize(
    "text",
    [
        "1" * 100_000 + "x,value\n1,2\n",
        'time,value\n"1 Jan 2026 ' + " " * 3_000 + '\nx",2\n',
        "time,value\n2026-01-01" + " " * 100_000 + "x,2\n",
        'time,value\n"2026-01-01 ' + " " * 100_000 + '\nx",2\n',
        "a" + "/a" * 30_000 + "\n",
        "m v=1 1772323200\n" * 9 + f"m,{'a' * 1_000_000} v=1 1772323200\n",
    ],
)
def test_a_long_cell_does_not_take_for_ever(tmp_path: Path, text: str) -> None:
    """Patterns go over it once: over these, with every way to divide them, they would go for minutes to days."""
    (tmp_path / "mine").write_text(text)
    with suppress(FuguError):
        read_readings(tmp_path / "mine")
