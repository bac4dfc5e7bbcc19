"""Recordings to replay: a column of a CSV file or an array of an NPZ file, read without numpy."""

from __future__ import annotations

import ast
import struct
import sys
import zipfile
from array import array
from collections.abc import Sequence
from pathlib import Path

from edge_agent.config_file import ConfigError
from host.csv_file import csv_rows

__all__ = ["read_recording"]


def read_recording(path: Path, column: str) -> Sequence[float | str]:
    """One column of a CSV file (`.csv`, `.csv.gz`) or one array of an NPZ file.

    A name with commas that is no column itself, like `lat,lon`, stands for several columns of a CSV file: a reading is
    then a string of their cells, joined by commas.

    Returns:
        Numbers where every value is one, else strings.

    Raises:
        ConfigError: names the file and what is wrong, never a value.
    """
    try:
        if path.suffix == ".npz":
            return _read_npz(path, column)
        with csv_rows(path, ConfigError, uneven=True) as (header, rows):
            names = [column] if column in header else [name.strip() for name in column.split(",")]
            for name in names:
                if name not in header:
                    raise ConfigError(f"{path} has no column {name!r}")
            at = [header.index(name) for name in names]
            texts = [",".join(row[place] for place in at) for _, row in rows]
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(f"cannot read {path}: {type(error).__name__}") from None
    if not texts:
        raise ConfigError(f"{path} has no rows")
    try:
        return array("d", map(float, texts))
    except ValueError:
        return texts


_NPY_CODES = {"f8": "d", "f4": "f", "i8": "q", "i4": "i", "i2": "h", "i1": "b"} | {
    "u8": "Q",
    "u4": "I",
    "u2": "H",
    "u1": "B",
    "b1": "B",
}


def _read_npz(path: Path, name: str) -> Sequence[float]:
    """A one-dimensional array of numbers; the format is described in NEP 1 of numpy."""
    with zipfile.ZipFile(path) as archive:
        try:
            raw = archive.read(f"{name}.npy")
        except KeyError:
            raise ConfigError(f"{path} has no array {name!r}") from None
    if raw[:6] != b"\x93NUMPY":
        raise ConfigError(f"{path}: {name} is not an array file")
    wide = raw[6] > 1
    (length,) = struct.unpack_from("<I" if wide else "<H", raw, 8)
    start = 12 if wide else 10
    header = ast.literal_eval(raw[start : start + length].decode("latin-1"))
    order, code = header["descr"][:1], _NPY_CODES.get(header["descr"][1:])
    if code is None or len(header["shape"]) != 1 or not header["shape"][0]:
        raise ConfigError(f"{path}: {name} must be a non-empty one-dimensional array of numbers")
    values = array(code, raw[start + length :])
    if order == ">" != {"little": "<", "big": ">"}[sys.byteorder]:
        values.byteswap()
    return values
