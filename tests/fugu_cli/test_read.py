"""`fugu read`: what a file is, in words, as an object and as a plain file, which `fugu try` makes as well."""

from __future__ import annotations

import json
import shlex
import stat
from pathlib import Path

import numpy as np
import pytest

import fugu as library
from fugu.library.plans import plan
from fugu.recordings.options import read_options
from fugu.recordings.readings import read_readings
from fugu_cli.demo.planned import replay_of
from tests.support.command import Fugu
from tests.support.recorded_person import LOW_HIGH, START, UNEVEN, minutes
from tests.support.recording_forms import FORMS

ROWS = [f"{START + 60 * k},{'ab'[k % 2]},{20 + k * 7 % 31 / 10}" for k in range(200)]


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two sensors in one file."""
    path = tmp_path / "two.csv"
    path.write_text("\n".join(["time,sensor,value", *ROWS, ""]))
    return path


def test_a_question_has_options_to_paste(fugu: Fugu, two: Path) -> None:
    """Whichever command reads it, as for an option that is missing."""
    for command in (["read"], ["plan", "auto"], ["plan", "model", "--threshold", "mean"], ["try", "--no-browser"]):
        done = fugu(*command, two)
        assert (done.code, done.out) == (2, "")
        question, *options = done.err.splitlines()
        assert question == "fugu: two.csv: column sensor has 2 names, whose rows are not of one sensor. Say which:"
        assert [shlex.split(option)[:2] for option in options] == [
            ["--only", "sensor=a"],
            ["--only", "sensor=b"],
            ["--as-it-is", "keys"],
        ]
    done = fugu("read", two, "--json")
    asked = json.loads(done.out)
    assert (done.code, asked["rule"], asked["options"][0]["words"]) == (2, "keys", ["--only", "sensor=a"])
    with pytest.raises(library.QuestionError, match="2 names") as caught:
        library.read(two)
    assert caught.value.options[0].words == ("--only", "sensor=a")
    assert library.read(two, only={"sensor": "a"}).facts.rows == 100


def test_a_file_is_told_in_two_lines_and_drawn(fugu: Fugu, two: Path) -> None:
    done = fugu("read", two, "--only", "sensor=a")
    first, second, empty, drawn, scale, *_ = done.out.splitlines()
    assert first == (
        "two.csv: a delimited table, 100 of 200 rows, only sensor=a; readings in column value, times in column time "
        "(seconds, UTC)"
    )
    assert second.startswith(
        "rows are samples, as steps are multiples of 120 s: one every 2 min; from 2026-03-01 00:00"
    )
    assert (empty, len(drawn), scale.startswith("means of 1.56 ticks")) == ("", 64, True)
    document = fugu("read", two, "--only", "sensor=a", "--json").json()
    assert (document["row_kind"], document["period_seconds"], document["rows"]) == ("samples", 120.0, 100)


@pytest.mark.parametrize(
    ("cells", "lines"),
    [
        ("on,off,,on", ("█▁ █", "the share of 'on' in 1 tick, by height")),
        ("1,5,,3", ("▁█ ▅", "means of 1 tick, 1 to 5")),
        ("a,b,c,c", ("abcc", "the usual name of 1 tick: a a, b b, c c")),
    ],
)
def test_only_a_missing_reading_is_drawn_as_a_blank(
    fugu: Fugu, tmp_path: Path, cells: str, lines: tuple[str, str]
) -> None:
    rows = [f"{60 * index},{cell}" for index, cell in enumerate(cells.split(","))]
    (tmp_path / "short.csv").write_text("\n".join(["time,value", *rows, ""]))
    assert tuple(fugu("read", tmp_path / "short.csv").out.splitlines()[3:5]) == lines


@pytest.mark.parametrize("name", ["absent", "changes", "off", "interleaved"])
def test_a_plain_file_is_its_owners_and_has_the_same_ticks(fugu: Fugu, tmp_path: Path, name: str) -> None:
    """A file of any kind that no agent can replay becomes one that it can."""
    written = UNEVEN[name](tmp_path / "u.csv", minutes(8))
    words = [word for key, value in written.options.items() for word in (f"--{key.replace('_', '-')}", value)]
    plain = tmp_path / "plain.csv"
    assert fugu("read", written.path, *words, "-o", plain).code == 0
    assert stat.S_IMODE(plain.stat().st_mode) == 0o600
    expected = read_readings(written.path, read_options(**written.options))
    readings = read_readings(plain, read_options(as_it_is="hold"))
    assert readings.facts[0].replayable
    assert (readings.changes, readings.period_seconds) == (expected.changes, expected.period_seconds)
    some, others = (
        {
            round(time): value
            for time, value in zip(recording.moments.tolist(), [*recording.values], strict=True)
            if value == value
        }
        for recording in (readings, expected)
        if recording.moments is not None
    )
    assert some == others
    assert np.unique(readings.segments).size == np.unique(expected.segments).size


def test_options_that_contradict_or_cannot_be_read_are_one_line(fugu: Fugu, two: Path) -> None:
    for words, reason in (
        (["--rows", "ticks"], "rows must be one of events, samples, changes, got 'ticks'"),
        (["--as-it-is", "all"], "as-it-is takes keys, step, order, codes, names, hold, zone, got 'all'"),
        (["--as-it-is", "rows"], "as-it-is takes keys, step, order, codes, names, hold, zone, got 'rows'"),
        (["--only", "hall"], "rows are chosen as sensor=hall, got 'hall'"),
        (["--zone", "Berlin"], "there is no zone 'Berlin': it is like Europe/Berlin, or UTC"),
        (["--gap", "8"], "gap is a time, as 8h or 2d"),
    ):
        done = fugu("read", two, *words)
        assert (done.code, done.out, done.err) == (2, "", f"fugu: {reason}\n")
    done = fugu("read", two, "--only", "sensor=c")
    assert (done.code, done.err) == (1, "fugu: two.csv: no row has 'c' in column sensor\n")


def test_a_recording_is_not_written_over_itself(fugu: Fugu, tmp_path: Path) -> None:
    file, link = tmp_path / "mine.csv", tmp_path / "other.csv"
    file.write_text("Export of the meter\n\ntime,value\n0,1.5\n60,2.5\n")
    link.symlink_to(file)
    before = file.read_text()
    for output in (file, link):
        done = fugu("read", file, "-o", output)
        assert (done.code, "is the recording itself" in done.err) == (2, True)
    assert file.read_text() == before


@pytest.mark.long
@pytest.mark.parametrize("form", ["home-assistant_v2.db", "mosquitto.log"])
def test_a_replay_of_another_form_has_the_ticks_of_the_plain_file(tmp_path: Path, form: str) -> None:
    states = minutes(6)
    moved = [0, *(place for place in range(1, len(states)) if states[place] != states[place - 1])]
    rows = moved if form.endswith(".db") else range(len(states))  # changes, or samples
    times, values = [START + 60 * place for place in rows], [LOW_HIGH[states[place]] for place in rows]
    FORMS[form](tmp_path / form, times, values)
    options = {"column": "device.power"} if form == "mosquitto.log" else {"period": 60.0}
    planned = plan(tmp_path / form, "share", 2.0, protect="tick", window=60, **options)
    assert planned.details.readings.rows is None
    replay = replay_of(planned, tmp_path)
    readings, held_back = planned.details.readings, planned.details.held_back
    assert np.array_equal(np.asarray(replay.values), np.asarray(readings.values)[held_back], equal_nan=True)
    file = Path(str(replay.sensor["file"]))
    assert file == tmp_path / "plain.csv"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
