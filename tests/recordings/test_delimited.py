"""Delimited tables in the forms in which people have them."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from fugu.contract.errors import FuguError
from fugu.recordings import file as recording_file
from fugu.recordings.file import File
from fugu.recordings.forms import read_table

_ROWS = "time,value\n0,1.5\n60,2.5\n"


@pytest.mark.parametrize(
    ("content", "plain"),
    [
        (_ROWS.encode(), True),
        (_ROWS.replace("\n", "\r\n").encode("utf-8-sig"), True),
        (_ROWS.encode("utf-16"), False),
        (gzip.compress(_ROWS.encode()), False),
        (_ROWS.replace(",", ";").encode(), True),
        (_ROWS.replace(",", "\t").encode(), True),
        (_ROWS.replace(",", "|").encode(), False),
        (b"sep=;\n" + _ROWS.replace(",", ";").encode(), False),
        (b"Meter,Kind,From\n7,load,2026\n\n" + _ROWS.encode(), False),
        (b"Export of the meter\n\n" + _ROWS.encode(), False),
        (b"time,value\n\n0,1.5\n\n60,2.5", True),
    ],
)
def test_a_table_is_read_however_it_was_saved(tmp_path: Path, content: bytes, plain: bool) -> None:
    """Cells are the same; only what an agent can read as it is is plain."""
    path = tmp_path / "mine.csv"
    path.write_bytes(content)
    table = read_table(File(path), {})
    assert table.columns == {"time": ["0", "60"], "value": ["1.5", "2.5"]}
    assert table.plain == plain


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    """Lines before the header, and empty ones, count."""
    path = tmp_path / "mine.csv"
    path.write_text("Export of the meter\n\ntime,value\n0,1\n\n60,2\n")
    assert [*read_table(File(path), {}).lines] == [4, 6]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "is empty"),
        (b"time,value\n", "has no rows"),
        (b"2026-03-01T00:00:00,on\n2026-03-01T00:01:00,off\n", "has no header"),
        (b"hall,on\nhall,off\nhall,on\n", "has no header"),
        (b"time,value\n0,1\n60\n", "line 3 has 1 columns, not 2"),
        ("time;K\u00fcche\n0;1\n".encode("latin-1"), "iconv -f latin1"),
        (gzip.compress(_ROWS.encode())[:-6], "broken gzip"),
        (b"\x00\x01\x02", "save it as CSV"),
        (b'time,value\n0,"1\n' + b"60,2\n" * 40_000, "a quote is not closed"),
    ],
)
def test_what_cannot_be_read_is_one_line_without_a_cell(tmp_path: Path, content: bytes, match: str) -> None:
    """The line says what to do, and has nothing of the rows."""
    path = tmp_path / "mine.csv"
    path.write_bytes(content)
    with pytest.raises(FuguError, match=match) as error:
        read_table(File(path), {})
    assert "hall" not in str(error.value)
    assert "2026" not in str(error.value)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    """Nobody may write to it; and what is read once to find its form is gone."""
    os.mkfifo(tmp_path / "mine.csv")
    with pytest.raises(FuguError, match=r"mine.csv is a pipe: write its contents into a file"):
        read_table(File(tmp_path / "mine.csv"), {})


def test_a_file_is_measured_by_what_it_becomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small gzip of a large table is refused before it fills the memory; one of the limit is read."""
    path = tmp_path / "mine.csv.gz"
    path.write_bytes(gzip.compress(_ROWS.encode()))
    monkeypatch.setattr(recording_file, "MOST_BYTES", len(_ROWS))
    assert len(read_table(File(path), {}).lines) == 2
    monkeypatch.setattr(recording_file, "MOST_BYTES", len(_ROWS) - 1)
    with pytest.raises(FuguError, match="give a part"):
        read_table(File(path), {})


def test_a_column_that_comes_twice_hides_no_other(tmp_path: Path) -> None:
    """The third column would be called as the second is."""
    path = tmp_path / "mine.csv"
    path.write_text("a,a_3,a\n" + "".join(f"{row},{row + 100},{row + 200}\n" for row in range(9)))
    columns = read_table(File(path), {}).columns
    assert [cells[0] for cells in columns.values()] == ["0", "100", "200"]
    assert columns["a_3"][1] == "101"


def test_an_empty_line_below_the_header_is_no_reading(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("value\n\n3.5\n4.5\n")
    assert read_table(File(path), {}).columns == {"value": ["3.5", "4.5"]}
