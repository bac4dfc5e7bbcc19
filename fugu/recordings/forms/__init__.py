"""Forms of recordings: the first form that recognises the first bytes of a file reads it."""

from __future__ import annotations

from fugu.contract.errors import FuguError
from fugu.recordings.file import File
from fugu.recordings.forms.delimited import DELIMITED
from fugu.recordings.forms.home_assistant import HISTORY_EXPORT, HISTORY_RESPONSE, STATISTICS_EXPORT
from fugu.recordings.forms.influx import ANNOTATED_CSV, LINE_PROTOCOL
from fugu.recordings.forms.json_files import JSON_DOCUMENTS, JSON_LINES, JSON_LIST
from fugu.recordings.forms.mqtt_log import MQTT_JSON_LOG, MQTT_LOG
from fugu.recordings.forms.refused import REFUSED
from fugu.recordings.forms.sqlite_files import SQLITE
from fugu.recordings.forms.xml_files import APPLE_HEALTH, GPX
from fugu.recordings.table import Form, RowFilter, Table, without_collection

__all__ = ["FORMS", "read_table"]

FORMS: tuple[Form, ...] = (
    *(SQLITE, APPLE_HEALTH, GPX),
    *(*JSON_DOCUMENTS, HISTORY_RESPONSE, MQTT_JSON_LOG, JSON_LINES, JSON_LIST),
    *REFUSED,
    *(HISTORY_EXPORT, STATISTICS_EXPORT, ANNOTATED_CSV, MQTT_LOG, LINE_PROTOCOL),
    DELIMITED,
)
"""The forms in the order in which they are tried; the most general, a delimited table, comes last."""


def read_table(file: File, row_filter: RowFilter) -> Table:
    """Read a file of any form.

    Raises:
        FuguError: the file is of no known form, or broken; the error is one line that says what to do.
        OSError: the file cannot be read.
    """
    if not file.head.strip():
        raise FuguError(f"{file.name} is empty")
    with without_collection():
        for form in FORMS:
            if form.sniff(file):
                return form.read(file, row_filter)
    raise FuguError(f"{file.name} is no recording that is known: save it as CSV, with a header, in UTF-8")
