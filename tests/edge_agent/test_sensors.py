"""Sensors: recordings, lines, functions; they answer at once, and their errors hold no reading."""

from __future__ import annotations

import copy
import errno
import gzip
import io
import math
import os
import pickle
import queue
import threading
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from edge_agent.sensors import UnavailableError
from edge_agent.sensors.call import CallSensor
from edge_agent.sensors.opening import InterpretedSensor, open_sensor
from edge_agent.sensors.replay import ReplaySensor, read_changes, read_recording
from edge_agent.sensors.source import ConfigError, LineSensor, Reading, SensorUpdate
from tests.support.brokers import PATIENCE, wait_until


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


def test_a_log_of_too_many_ticks_is_refused_however_many_there_are(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("t,v\n0,1\n1000000000,2\n")
    for seconds in (1.0, 1e-300):
        with pytest.raises(ConfigError, match="has more than 5000000 ticks"):
            read_changes(tmp_path / "log.csv", "v", "t", seconds)


def test_the_newest_line_counts_and_is_read_once() -> None:
    read_end, write_end = os.pipe()
    sensor = LineSensor(os.fdopen(read_end, "rb"))
    with os.fdopen(write_end, "w") as lines:
        lines.write("70\n71\n\n72\n")
        lines.flush()
        wait_until(lambda: value(sensor.read(0)) == "72")
        assert sensor.read(1) is None
    wait_until(lambda: sensor.trouble == "its input has ended")
    assert sensor.read(2) is None


def test_the_end_of_the_input_is_silence_and_not_the_end_of_the_stream() -> None:
    sensor = LineSensor(io.BytesIO(b"70\n"))
    wait_until(lambda: sensor.trouble == "its input has ended")
    assert value(sensor.read(0)) == "70"
    assert sensor.read(1) is None
    assert not sensor.finished(1)


def test_no_line_ends_the_sensor_whatever_its_bytes_and_its_length() -> None:
    for line in (b"\xff\xfe\x80", b"\0" * 100, b"9" * 5000, b"9" * 200_000, b"\xf0\x9f"):
        read_end, write_end = os.pipe()
        sensor = LineSensor(os.fdopen(read_end, "rb"))
        with os.fdopen(write_end, "wb") as lines:
            lines.write(line + b"\n")
            lines.flush()
            wait_until(lambda sensor=sensor: sensor.read(0) is not None)
            lines.write(b"71\n")
            lines.flush()
            wait_until(lambda sensor=sensor: value(sensor.read(1)) == "71")
            assert sensor.trouble == ""


@pytest.mark.parametrize("slow", ["the function", "its value"])
def test_a_slow_function_or_value_delays_no_tick_and_comes_with_a_later_one(slow: str) -> None:
    release = threading.Event()

    def wait(_: object = None) -> float:
        release.wait(PATIENCE)
        return 71.5

    sensor = CallSensor(wait if slow == "the function" else type("Slow", (), {"__float__": wait}))
    assert [sensor.read(t) for t in range(5)] == [None] * 5
    release.set()
    wait_until(lambda: value(sensor.read(5)) == 71.5)
    assert not sensor.finished(6)


@pytest.mark.parametrize("error", [RuntimeError("71.53194726"), OverflowError(), ZeroDivisionError(), SystemExit(3)])
def test_a_function_that_raises_has_no_reading_and_nothing_of_the_exception_is_kept(error: BaseException) -> None:
    readings = iter([1, 2])

    def broken() -> float:
        if next(readings, 0):
            return 1.0
        raise error

    sensor = CallSensor(broken)
    wait_until(lambda: sensor.read(0) is None and sensor.trouble != "")
    assert sensor.trouble == "its function raises an exception; run it by hand to see which"
    assert sensor.read(0) is None


class Asked:
    """A sensor of changes over a function whose calls wait to be told what to do."""

    def __init__(self) -> None:
        self._orders: queue.Queue[object] = queue.Queue()
        self.source = CallSensor(self._call)
        self.sensor = InterpretedSensor(self.source, None)

    def _call(self) -> object:
        order = self._orders.get()
        if isinstance(order, Exception):
            raise order
        return order

    def holds(self, tick: int, order: object) -> float | str | None:
        """State at a tick before which a call returned a value, or raised an exception."""
        self._orders.put(order)
        wait_until(lambda: self.source._update.works is not None)
        return value(self.sensor.read(tick))


def test_of_samples_none_is_missing_and_of_changes_the_last_one_holds() -> None:
    asked = Asked()
    assert asked.sensor.read(0) is None, "there was none yet"
    assert asked.holds(1, 71.5) == 71.5
    assert asked.holds(2, None) == 71.5
    assert value(asked.sensor.read(1000)) == 71.5, "without a keep-alive it holds for ever"
    assert asked.holds(1001, 80.0) == 80.0
    samples = Asked()
    assert samples.holds(0, 71.5) == 71.5
    assert samples.source.read(1) is None


@pytest.mark.parametrize("error", [UnavailableError(), RuntimeError("71.5")])
def test_of_changes_a_function_that_says_it_is_unavailable_has_no_reading_until_its_next(error: Exception) -> None:
    asked = Asked()
    assert asked.holds(0, 71.5) == 71.5
    assert asked.holds(1, error) is None
    assert asked.holds(2, None) is None
    assert asked.holds(3, 71.5) == 71.5
    assert bool(asked.source.trouble) == isinstance(error, RuntimeError)


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        *((np.int64(3), 3), (np.float32(0.5), 0.5), (np.str_("on"), "on"), (Decimal("0.5"), 0.5), (True, True)),
        *((Fraction(10**400), math.inf), (Fraction(-(10**400)), -math.inf), (b"71.5", 71.5)),
    ],
    ids=lambda sensor: type(sensor).__name__,
)
def test_what_a_function_returns_becomes_a_number_or_a_text(returned: object, expected: float | str) -> None:
    asked = Asked()
    is_held = asked.holds(0, returned)
    assert is_held == expected
    assert type(is_held).__module__ == "builtins"


def test_what_can_be_neither_is_no_reading() -> None:
    class Hostile:
        def __float__(self) -> float:
            raise ZeroDivisionError("71.5")

    asked = Asked()
    assert asked.holds(0, Hostile()) is None
    assert "71" not in asked.source.trouble


class Told:
    """A source that says what it is told to say."""

    recorded, trouble = False, ""

    def __init__(self, *update: SensorUpdate) -> None:
        self._update = update

    def poll(self, tick: int) -> SensorUpdate:
        return self._update[tick] if tick < len(self._update) else SensorUpdate(None, None)

    def read(self, tick: int) -> Reading | None:
        return self.poll(tick).reading

    def finished(self, tick: int) -> bool:
        return False


def test_only_signs_of_life_keep_a_reading_alive_and_readings_are_none() -> None:
    """That a tick is missing must not depend on when there were readings."""
    busy, still = Reading("71"), None
    for reading in (busy, still):
        source = Told(
            SensorUpdate(Reading("70"), True),
            *[SensorUpdate(reading, None)] * 8,
            SensorUpdate(reading, True),
            SensorUpdate(None, None),
        )
        sensor = InterpretedSensor(source, 3)
        usable = [sensor.read(tick) is not None for tick in range(14)]
        assert usable == [True] * 4 + [False] * 5 + [True] * 4 + [False]


def test_a_keep_alive_line_is_no_reading_and_the_end_of_the_input_ends_what_holds() -> None:
    read_end, write_end = os.pipe()
    source = LineSensor(os.fdopen(read_end, "rb"), "alive")
    sensor = InterpretedSensor(source, 2)
    with os.fdopen(write_end, "w") as lines:
        lines.write("70\nalive\n")
        lines.flush()
        wait_until(lambda: value(sensor.read(0)) == "70")
        assert [value(sensor.read(tick)) for tick in (1, 2, 3)] == ["70", "70", None]
        lines.write("alive\n")
        lines.flush()
        wait_until(lambda: value(sensor.read(4)) == "70")
    wait_until(lambda: source.trouble == "its input has ended")
    wait_until(lambda: sensor.read(4) is None)


def test_of_a_recording_of_changes_an_empty_cell_holds_and_a_word_ends_it() -> None:
    sensor = InterpretedSensor(ReplaySensor(["70", "", " ", "unavailable", "", "71"], loop=False), None)
    assert [value(sensor.read(tick)) for tick in range(6)] == ["70", "70", "70", "unavailable", "unavailable", "71"]
    assert sensor.finished(6)


@pytest.mark.parametrize(
    "target",
    [
        *("time:time", "math:nothing", "no_such_module:f", "nobody", "math:pi", ".relative:f"),
        *("divides:f", "exits:f", "misspelt:f"),
    ],
)
def test_functions_are_found_by_name(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, source in (("divides", "1 / 0"), ("exits", "raise SystemExit(3)"), ("misspelt", "def f(:")):
        (tmp_path / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    config = {"kind": "call", "target": target, "silence": "samples"}
    if target == "time:time":
        sensor = open_sensor(config)
        wait_until(lambda: sensor.read(0) is not None)
    else:
        with pytest.raises(ConfigError, match="sensor"):
            open_sensor(config)


def test_a_machine_without_room_for_another_thread_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_room)
    with pytest.raises(ConfigError, match="cannot open a sensor of kind call: RuntimeError"):
        open_sensor({"kind": "call", "target": "time:time", "silence": "samples"})


def test_a_standard_input_that_is_closed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(os, "fdopen", closed)
    with pytest.raises(ConfigError, match="kind stdin: Bad file descriptor"):
        open_sensor({"kind": "stdin", "silence": "samples", "keep_alive": None})


SECRET = 71.5319


def test_a_reading_never_shows_its_value() -> None:
    reading = Reading(SECRET)
    shown = [repr(reading), str(reading), f"{reading}", f"{reading:>20}", "%s" % reading, repr([reading])]  # noqa: UP031
    assert not any("71" in text for text in shown)
    with pytest.raises(TypeError):
        pickle.dumps(reading)
    with pytest.raises(TypeError):
        copy.copy(reading)
