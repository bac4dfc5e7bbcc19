"""Files that hold recordings in forms that are not read here: each is named, with what converts it."""

from __future__ import annotations

import re
from typing import NamedTuple

from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File
from fugu.recordings.table import Only, Table

__all__ = ["REFUSED"]


class Refused(NamedTuple):
    """A form that is known by a pattern of its first bytes.

    Attributes:
        pattern: of the first bytes.
        form: its name in words.
        cure: how to make a form of it that is read.
        text: whether it is text; what is not has bytes that no text has.
    """

    pattern: bytes
    form: str
    cure: str
    text: bool = False

    def sniff(self, head: bytes, name: str) -> bool:
        """Return whether it begins so."""
        return _is_text(head) == self.text and re.match(self.pattern, head, re.DOTALL) is not None

    def read(self, file: File, only: Only) -> Table:
        """Raise a RecordingError that names the form."""
        raise RecordingError(f"{file.name} is {self.form}, which is not read: {self.cure}")


def _is_text(head: bytes) -> bool:
    return b"\0" not in head and "\ufffd" not in head[:-4].decode(errors="replace")


_CSV = "save it as CSV in UTF-8"
_BY_PANDAS = 'convert it by python -c \'import pandas; pandas.{}("FILE").to_csv("mine.csv")\''
_BINARY = (
    (rb"PK\x03\x04.{26}(\[Content_Types\]|_rels/|docProps/|xl/)", "an Excel workbook", _CSV),
    (rb"PK\x03\x04.{26}mimetypeapplication/vnd\.oasis", "a spreadsheet of LibreOffice", _CSV),
    (rb"PK\x03\x04", "a ZIP archive", "unpack it by unzip, and give one of its files"),
    (rb"\xd0\xcf\x11\xe0", "an old Excel workbook", _CSV),
    (rb"BZh[1-9]|\xfd7zXZ\x00|\x28\xb5\x2f\xfd|7z\xbc\xaf", "a compressed file that is no gzip", "unpack it"),
    (rb".{257}ustar", "a TAR archive", "unpack it by tar -xf, and give one of its files"),
    (rb"PAR1", "Parquet", _BY_PANDAS.format("read_parquet")),
    (rb"ARROW1", "Arrow, or Feather", _BY_PANDAS.format("read_feather")),
    (rb"\x89HDF", "HDF5", _BY_PANDAS.format("read_hdf")),
    (rb"MATLAB 5", "a file of MATLAB", "save it by writetable(..., 'mine.csv')"),
    (rb"\x80[\x02-\x05]", "a pickle of Python, which could run anything", "save it by to_csv where it was made"),
    (rb"\x93NUMPY", "an array of numpy", "save it by numpy.savetxt, with a header"),
    (rb"0 {7}.{76}", "EDF", "convert it by EDFbrowser (Tools, Convert EDF/BDF to ASCII)"),
    (rb".{8}\.FIT", "FIT of a sports watch", "convert it by FitCSVTool, or export GPX"),
    (rb"%PDF", "PDF", "export CSV instead"),
)
_TEXT = (
    (rb"(?i)\s*(<!doctype html|<html)", "a page of the web", "download the file itself: a login may have expired"),
    (rb"\s*(<\?xml.{0,400}?>\s*)?<(\w+:)?TrainingCenterDatabase", "TCX of a sports watch", "export GPX instead"),
    (rb"\s*(<\?xml.{0,400}?>\s*)?<(\w+:)?kml", "KML", "convert it by gpsbabel -i kml -o gpx"),
    (rb"\s*<", "XML that is neither Apple Health's nor GPX", "export CSV, or GPX for places"),
    (rb"\s*[\[{]", "JSON in no form that is known", "write an object a line, as by jq -c '.[]'"),
)
REFUSED = (*(Refused(*row) for row in _BINARY), *(Refused(*row, text=True) for row in _TEXT))
"""In the order in which they are asked, after the forms that begin alike and are read."""
