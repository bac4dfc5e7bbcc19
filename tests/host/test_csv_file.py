"""CSV files, plain or gzip, whose errors are said without any of their values; and values written as TOML."""

from __future__ import annotations

import gzip
import os
import tomllib
from pathlib import Path

import pytest

from fugu.contract.errors import FuguError
from fugu.host.csv_file import csv_rows
from fugu.host.toml_file import toml_lines


class RefusedError(FuguError):
    """The file cannot be used."""


def read(path: Path) -> tuple[list[str], list[list[str]]]:
    with csv_rows(path, RefusedError) as (header, rows):
        return header, list(rows)


@pytest.mark.parametrize("name", ["r.csv", "r.csv.gz"])
def test_rows_without_empty_lines(tmp_path: Path, name: str) -> None:
    content = '\ufeff t, value\r\n1,2\r\n\r\n"3,5",4\r\n'.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read(tmp_path / name) == (["t", "value"], [["1", "2"], ["3,5", "4"]])


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    """An agent whose recording was a pipe waited for a writer without a word."""
    os.mkfifo(tmp_path / "r.csv")
    with pytest.raises(RefusedError, match=r"r\.csv is a pipe: write its contents into a file"):
        read(tmp_path / "r.csv")


def test_an_empty_file_has_no_header(tmp_path: Path) -> None:
    (tmp_path / "r.csv").touch()
    assert read(tmp_path / "r.csv") == ([], [])


@pytest.mark.parametrize(("row", "cells"), [("61.5", ["61.5", ""]), ("61.5,62.5,63.5", ["61.5", "62.5", "63.5"])])
def test_a_row_may_have_another_length(tmp_path: Path, row: str, cells: list[str]) -> None:
    (tmp_path / "r.csv").write_text(f"t,value\n1,2\n{row}\n")
    assert read(tmp_path / "r.csv") == (["t", "value"], [["1", "2"], cells])


@pytest.mark.parametrize(
    "content", [b"t,value\n1,\xff61.5\n", gzip.compress(b"t,value\n1,61.5\n")[:-9]], ids=["not UTF-8", "cut gzip"]
)
def test_what_is_no_csv_file_is_refused_without_its_values(tmp_path: Path, content: bytes) -> None:
    name = "r.csv.gz" if content[:2] == b"\x1f\x8b" else "r.csv"
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RefusedError, match="is no CSV file: ") as caught:
        read(tmp_path / name)
    assert "61" not in str(caught.value)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none.csv")


def test_every_character_comes_back() -> None:
    values = {"text": "".join(map(chr, range(0x100))), "words": ["\x7f", "é\u2028"], "table": {"inside": '"\\'}}
    assert tomllib.loads("\n".join(toml_lines({**values, "left_out": None}))) == values
