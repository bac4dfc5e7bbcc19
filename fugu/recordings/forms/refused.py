"""Forms of files that are refused, each with its name and the way to convert it."""

from __future__ import annotations

from fugu.contract.errors import FuguError
from fugu.recordings.file import File
from fugu.recordings.table import Form, RowFilter, Table, begins

__all__ = ["REFUSED"]


def _refused_form(pattern: bytes, form: str, remedy: str, *, text: bool = False) -> Form:
    """Make a refused form of files that begin with a pattern, and are binary unless `text`; `remedy` converts them."""

    def sniff(file: File) -> bool:
        is_text = b"\0" not in file.head and "\ufffd" not in file.head[:-4].decode(errors="replace")
        return is_text == text and begins(pattern)(file)

    def refuse(file: File, _row_filter: RowFilter) -> Table:
        raise FuguError(f"{file.name} is {form}, which is not read: {remedy}")

    return Form(sniff, refuse)


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
    (
        rb"\s*(\{\s*[\"}]|\[\s*([\[{\"\]]|-?[\d.]+\s*[,\]]))",
        "JSON in no form that is known",
        "write an object a line, as by jq -c '.[]', or '.key[]' of a list under a key; of columns write CSV",
    ),
)
REFUSED = (*(_refused_form(*row) for row in _BINARY), *(_refused_form(*row, text=True) for row in _TEXT))
"""The refused forms in the order in which they are tried, after readable forms that begin alike."""
