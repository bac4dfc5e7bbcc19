"""Sensors: recordings, lines, functions; they answer at once, and their errors hold no reading."""

from __future__ import annotations

import gzip
import io
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from edge_agent.config import ConfigError
from edge_agent.reading import Reading
from edge_agent.recording import read_recording
from edge_agent.sensors import CallSensor, LineSensor, ReplaySensor, open_sensor
from tests.brokers import wait_until


def value(reading: Reading | None) -> float | str | None:
    return None if reading is None else reading.reveal()


def test_a_replay_reads_row_t_at_tick_t_and_ends_or_begins_again() -> None:
    once, for_ever = ReplaySensor([1.0, 2.0], loop=False), ReplaySensor([1.0, 2.0], loop=True)
    assert [value(once.read(t)) for t in (0, 1, 2)] == [1.0, 2.0, None]
    assert [once.finished(t) for t in (0, 1, 2)] == [False, False, True]
    assert [value(for_ever.read(t)) for t in (0, 1, 2, 1001)] == [1.0, 2.0, 1.0, 2.0]
    assert not for_ever.finished(10**9)


def test_csv_plain_and_gzipped_numbers_and_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,value,kind\n0,1.5,on\n1,-2,off\n")
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write((tmp_path / "a.csv").read_text())
    for name in ("a.csv", "a.csv.gz"):
        assert list(read_recording(tmp_path / name, "value")) == [1.5, -2.0]
        assert list(read_recording(tmp_path / name, "kind")) == ["on", "off"]


@pytest.mark.parametrize("kind", ["<f8", ">f8", "<f4", "<i8", ">i4", "<i2", "|i1", "<u8", "<u4", "|u1", "|b1"])
def test_npz_arrays_are_read_without_numpy(tmp_path: Path, kind: str) -> None:
    array = np.array([0, 1, 1, 0, 1], dtype=kind)
    np.savez(tmp_path / "plain.npz", other=np.zeros(3), value=array)
    np.savez_compressed(tmp_path / "small.npz", value=array)
    for name in ("plain.npz", "small.npz"):
        assert list(read_recording(tmp_path / name, "value")) == [0, 1, 1, 0, 1]


def test_a_csv_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_bytes(b"\xef\xbb\xbfvalue,other\n1,2\n")
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfvalue,other\n1,2\n"))
    for name in ("plain.csv", "packed.csv.gz"):
        assert list(read_recording(tmp_path / name, "value")) == [1.0]


def test_recordings_that_cannot_be_read_are_one_line_without_values(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("value\n")
    (tmp_path / "b.csv.gz").write_bytes(b"71.53194726 is no gzip")
    (tmp_path / "c.npz").write_bytes(b"71.53194726 is no archive")
    np.savez(tmp_path / "d.npz", value=np.zeros((2, 2)), text=np.array(["71.53194726"]))
    for name, column in (
        *(("none.csv", "value"), ("a.csv", "value"), ("a.csv", "other"), ("b.csv.gz", "value")),
        *(("c.npz", "value"), ("d.npz", "value"), ("d.npz", "text"), ("d.npz", "other")),
    ):
        with pytest.raises(ConfigError) as error:
            read_recording(tmp_path / name, column)
        assert "71.53" not in str(error.value)
        assert len(str(error.value).splitlines()) == 1


def test_the_newest_line_counts_and_is_read_once() -> None:
    read_end, write_end = os.pipe()
    sensor = LineSensor(os.fdopen(read_end))
    with os.fdopen(write_end, "w") as lines:
        lines.write("70\n71\n\n72\n")
        lines.flush()
        wait_until(lambda: value(sensor.read(0)) == "72", 20)
        assert sensor.read(1) is None
        assert not sensor.finished(1)
    wait_until(lambda: sensor.finished(2), 20)


def test_the_end_of_the_input_is_the_end_of_the_sensor() -> None:
    sensor = LineSensor(io.StringIO("70\n"))
    wait_until(lambda: sensor._ended, 20)
    assert not sensor.finished(0)
    assert value(sensor.read(0)) == "70"
    assert sensor.finished(1)


def test_a_slow_function_delays_nothing_and_its_value_comes_with_a_later_tick() -> None:
    release = threading.Event()

    def slow() -> float:
        release.wait(20)
        return 71.5

    sensor = CallSensor(slow)
    assert [sensor.read(t) for t in range(5)] == [None] * 5
    release.set()
    wait_until(lambda: value(sensor.read(5)) == 71.5, 20)
    assert not sensor.finished(6)


def test_a_function_that_raises_counts_as_no_reading_and_only_the_type_is_kept() -> None:
    def broken() -> float:
        raise RuntimeError("71.53194726")

    sensor = CallSensor(broken)
    wait_until(lambda: sensor.error != "", 20)
    assert sensor.error == "sensor function raised RuntimeError"
    assert sensor.read(0) is None


@pytest.mark.parametrize("target", ["time:time", "math:nothing", "no_such_module:f", "nobody", "math:pi"])
def test_functions_are_found_by_name(target: str) -> None:
    config = {"kind": "call", "target": target}
    if target == "time:time":
        sensor = open_sensor(config)
        wait_until(lambda: sensor.read(0) is not None, 20)
    else:
        with pytest.raises(ConfigError, match="sensor"):
            open_sensor(config)
