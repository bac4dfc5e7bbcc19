"""Forms of recordings, one class each: the first that knows a file by its first bytes reads it."""

from __future__ import annotations

from fugu.recordings.errors import RecordingError
from fugu.recordings.file import File
from fugu.recordings.forms.delimited import Delimited
from fugu.recordings.forms.grafana import Grafana
from fugu.recordings.forms.home_assistant import HistoryExport, HistoryResponse, StatisticsExport
from fugu.recordings.forms.influx import AnnotatedCsv, LineProtocol
from fugu.recordings.forms.json_documents import (
    FitbitDay,
    FitbitExport,
    GoogleFit,
    GooglePlaces,
    JsonLines,
    JsonList,
)
from fugu.recordings.forms.mqtt_log import MqttJsonLog, MqttLog
from fugu.recordings.forms.refused import REFUSED
from fugu.recordings.forms.sqlite_file import Sqlite
from fugu.recordings.forms.xml_files import AppleHealth, Gpx
from fugu.recordings.table import Form, Only, Table

__all__ = ["FORMS", "read_table"]

FORMS: tuple[Form, ...] = (
    *(Sqlite(), AppleHealth(), Gpx()),
    *(
        FitbitExport(),
        FitbitDay(),
        GoogleFit(),
        GooglePlaces(),
        HistoryResponse(),
        MqttJsonLog(),
        JsonLines(),
        JsonList(),
    ),
    *REFUSED,
    *(HistoryExport(), StatisticsExport(), AnnotatedCsv(), MqttLog(), LineProtocol(), Grafana()),
    Delimited(),
)
"""In the order in which they are asked; a delimited table, which is most general, comes last."""


def read_table(file: File, only: Only) -> Table:
    """Read a file of any form.

    Raises:
        RecordingError: it is of no form, or cannot be read; one line that says what to do.
        OSError: it cannot be read.
    """
    if not file.head.strip():
        raise RecordingError(f"{file.name} is empty")
    for form in FORMS:
        if form.sniff(file.head, file.name):
            return form.read(file, only)
    raise RecordingError(f"{file.name} is no recording that is known: save it as CSV, with a header, in UTF-8")
