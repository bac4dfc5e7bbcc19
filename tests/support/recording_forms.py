"""One person's recording in the forms in which programs write it: a writer for each, from times and values.

A writer gets a path, Unix times (whole seconds) and values as text; names, topics and devices are made up.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["FORMS", "PLACES", "Writer"]

Writer = Callable[[Path, Sequence[int], Sequence[str]], None]


def _iso(time: float, end: str = "Z") -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S.000") + end


def _lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("\n".join(lines) + "\n")


def _history(path: Path, times: Sequence[int], values: Sequence[str]) -> None:
    rows = [f"sensor.hall,{value},{_iso(time)}" for time, value in zip(times, values, strict=True)]
    _lines(path, ["entity_id,state,last_changed", *rows])


def _uneven_history(path: Path, times: Sequence[int], values: Sequence[str]) -> None:
    """Attributes of a thermostat make rows longer, or shorter than the header."""
    rows = []
    for place, (time, value) in enumerate(zip(times, values, strict=True)):
        rows.append(f"sensor.hall,{value},{_iso(time)}" + ",,20.5,heating"[: 3 * (place % 4)])
    _lines(path, ["entity_id,state,last_changed,hvac_action,temperature,target_temp_high", *rows])


def _history_response(path: Path, times: Sequence[int], values: Sequence[str]) -> None:
    """With `minimal_response`: only the first state has an entity and attributes."""
    states = [{"state": value, "last_changed": _iso(time, "+00:00")} for time, value in zip(times, values, strict=True)]
    first = {"entity_id": "sensor.hall", "attributes": {"unit": "W", "n": [1, {"state": 2}]}, "last_updated": ""}
    path.write_text(json.dumps([[first | states[0], *states[1:]]]))


def _statistics(path: Path, times: Sequence[int], values: Sequence[str]) -> None:
    rows = [f"sensor.hall\tW\t{_iso(time)}\t0\t9\t{value}" for time, value in zip(times, values, strict=True)]
    _lines(path, ["statistic_id\tunit\tstart\tmin\tmax\tmean", *rows])


def _recorder(path: Path, times: Sequence[int], values: Sequence[str]) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "CREATE TABLE recorder_runs (run_id INTEGER PRIMARY KEY);"
            "CREATE TABLE states_meta (metadata_id INTEGER PRIMARY KEY, entity_id VARCHAR(255));"
            "INSERT INTO states_meta VALUES (7, 'sensor.hall');"
            "CREATE TABLE states (state_id INTEGER PRIMARY KEY, state VARCHAR(255), last_updated_ts FLOAT,"
            " metadata_id INTEGER);"
        )
        rows = [(value, float(time)) for time, value in zip(times, values, strict=True)]
        database.executemany("INSERT INTO states (state, last_updated_ts, metadata_id) VALUES (?, ?, 7)", rows)
        database.commit()


def _old_recorder(path: Path, times: Sequence[int], values: Sequence[str]) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "CREATE TABLE recorder_runs (run_id INTEGER PRIMARY KEY);"
            "CREATE TABLE states (state_id INTEGER PRIMARY KEY, entity_id VARCHAR(255), state VARCHAR(255),"
            " last_updated DATETIME);"
        )
        texts = [datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S.000000") for time in times]
        rows = [*zip(values, texts, strict=True)]
        database.executemany("INSERT INTO states (entity_id, state, last_updated) VALUES ('sensor.hall', ?, ?)", rows)
        database.commit()


def _gadgetbridge(path: Path, times: Sequence[int], values: Sequence[str]) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "CREATE TABLE DEVICE (_id INTEGER PRIMARY KEY, NAME TEXT);"
            "CREATE TABLE MI_BAND_ACTIVITY_SAMPLE (TIMESTAMP INTEGER, DEVICE_ID INTEGER, USER_ID INTEGER,"
            " RAW_INTENSITY INTEGER, STEPS INTEGER, RAW_KIND INTEGER, HEART_RATE INTEGER);"
        )
        rows = [(time, int(value)) for time, value in zip(times, values, strict=True)]
        database.executemany("INSERT INTO MI_BAND_ACTIVITY_SAMPLE VALUES (?, 1, 1, 20, 0, 1, ?)", rows)
        database.commit()


def _mosquitto(path: Path, times: Sequence[int], values: Sequence[str]) -> None:
    rows = [
        f'{time}.25 zigbee2mqtt/hall {{"battery":90,"device":{{"power":{value}}}}}'
        for time, value in zip(times, values, strict=True)
    ]
    _lines(path, rows)


def _mosquitto_v(path: Path, _times: Sequence[int], values: Sequence[str]) -> None:
    _lines(path, [f"tele/hall/power {value}" for value in values])


def _mosquitto_json(path: Path, times: Sequence[int], values: Sequence[str]) -> None:
    rows = [
        json.dumps(
            {"tst": _iso(time), "topic": "tele/hall", "qos": 0, "retain": 0, "payload": json.dumps({"v": value})}
        )
        for time, value in zip(times, values, strict=True)
    ]
    _lines(path, rows)


def _annotated(path: Path, times: Sequence[int], values: Sequence[str]) -> None:
    head = [
        "#group,false,false,true,true,false,false,true,true",
        "#datatype,string,long,dateTime:RFC3339,dateTime:RFC3339,dateTime:RFC3339,double,string,string",
        "#default,_result,,,,,,,",
        ",result,table,_start,_stop,_time,_value,_field,_measurement",
    ]
    rows = [
        f",,0,{_iso(times[0])},{_iso(times[-1])},{_iso(time)},{value},power,meter"
        for time, value in zip(times, values, strict=True)
    ]
    path.write_text("\r\n".join([*head, *rows]) + "\r\n")


def _line_protocol(path: Path, times: Sequence[int], values: Sequence[str]) -> None:
    rows = [f"meter,room=the\\ hall power={value} {time}000000000" for time, value in zip(times, values, strict=True)]
    _lines(path, rows)


def _fitbit(path: Path, times: Sequence[int], values: Sequence[str]) -> None:
    stamps = [datetime.fromtimestamp(time, UTC).strftime("%m/%d/%y %H:%M:%S") for time in times]
    items = [
        {"dateTime": stamp, "value": {"bpm": int(value), "confidence": 2}}
        for stamp, value in zip(stamps, values, strict=True)
    ]
    path.write_text(json.dumps(items, indent=2))


def _google_fit(path: Path, times: Sequence[int], values: Sequence[str]) -> None:
    points = [
        {
            "fitValue": [{"value": {"fpVal": float(value)}}],
            "originDataSourceId": "",
            "startTimeNanos": time * 10**9,
            "endTimeNanos": time * 10**9,
        }
        for time, value in zip(times, values, strict=True)
    ]
    path.write_text(json.dumps({"Data Source": "derived:heart", "Data Points": points}, indent=2))


def _json_lines(path: Path, times: Sequence[int], values: Sequence[str]) -> None:
    _lines(path, [json.dumps({"time": time, "value": value}) for time, value in zip(times, values, strict=True)])


def _health(path: Path, times: Sequence[int], values: Sequence[str]) -> None:
    records = []
    for time, value in zip(times, values, strict=True):
        stamp = datetime.fromtimestamp(time + 3600, UTC).strftime("%Y-%m-%d %H:%M:%S +0100")
        records.append(
            f' <Record type="HKQuantityTypeIdentifierHeartRate" sourceName="A watch" unit="count/min"'
            f' startDate="{stamp}" endDate="{stamp}" value="{value}"/>'
        )
    head = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        "<!DOCTYPE HealthData [",
        "<!ELEMENT HealthData (Record*)>",
        "<!ATTLIST Record type CDATA #REQUIRED>",
        "]>",
        '<HealthData locale="de_DE">',
    ]
    _lines(path, [*head, *records, "</HealthData>"])


def _zipped(path: Path, times: Sequence[int], values: Sequence[str]) -> None:
    plain = path.with_name("plain.csv")
    _history(plain, times, values)
    path.write_bytes(gzip.compress(plain.read_bytes()))


FORMS: dict[str, Writer] = {
    "history.csv": _history,
    "uneven-history.csv": _uneven_history,
    "period.json": _history_response,
    "history-without-ending": _zipped,
    "statistics.tsv": _statistics,
    "home-assistant_v2.db": _recorder,
    "old-home-assistant_v2.db": _old_recorder,
    "Gadgetbridge": _gadgetbridge,
    "mosquitto.log": _mosquitto,
    "mosquitto-v.log": _mosquitto_v,
    "mosquitto-j.log": _mosquitto_json,
    "influx.csv": _annotated,
    "influx.line": _line_protocol,
    "heart_rate-2026-03-01.json": _fitbit,
    "google-fit.json": _google_fit,
    "lines.json": _json_lines,
    "export.xml": _health,
}
"""By the name of the file."""


def _gpx(path: Path, times: Sequence[int], places: Sequence[str]) -> None:
    points = []
    for time, place in zip(times, places, strict=True):
        latitude, longitude = place.split(",")
        points.append(f'<trkpt lat="{latitude}" lon="{longitude}"><ele>3</ele><time>{_iso(time)}</time></trkpt>')
    head = '<?xml version="1.0"?><gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>'
    path.write_text(head + "\n".join(points) + "</trkseg></trk></gpx>")


def _owntracks(path: Path, times: Sequence[int], places: Sequence[str]) -> None:
    rows = []
    for time, place in zip(times, places, strict=True):
        latitude, longitude = map(float, place.split(","))
        document = {"_type": "location", "tst": time, "lat": latitude, "lon": longitude, "batt": 50}
        rows.append(f"{_iso(time)}\t*                 \t{json.dumps(document)}")
    _lines(path, [*rows, f'{_iso(times[-1])}\tlwt               \t{{"_type":"lwt","tst":{times[-1]}}}'])


def _records(path: Path, times: Sequence[int], places: Sequence[str]) -> None:
    locations = []
    for time, place in zip(times, places, strict=True):
        latitude, longitude = (round(1e7 * float(degrees)) for degrees in place.split(","))
        locations.append({"latitudeE7": latitude, "longitudeE7": longitude, "accuracy": 20, "timestamp": _iso(time)})
    path.write_text(json.dumps({"locations": locations}, indent=1))


def _timeline(path: Path, times: Sequence[int], places: Sequence[str]) -> None:
    points = []
    for time, place in zip(times, places, strict=True):
        latitude, longitude = place.split(",")
        points.append({"point": f"{latitude}°, {longitude}°", "time": _iso(time)})
    segments = [
        {"startTime": _iso(times[0]), "timelinePath": points[begin : begin + 9]} for begin in range(0, len(points), 9)
    ]
    path.write_text(json.dumps({"semanticSegments": segments, "rawSignals": []}, ensure_ascii=False))


PLACES: dict[str, Writer] = {
    "track.gpx": _gpx,
    "2026-03.rec": _owntracks,
    "Records.json": _records,
    "Timeline.json": _timeline,
}
"""Of latitude and longitude, with a comma between them."""
