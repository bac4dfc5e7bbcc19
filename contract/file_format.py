"""What a database file of this project says of itself: what it is, and of which version its format is.

The two numbers stand in SQLite's header, `application_id` and `user_version`. A file of another version is refused.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FORMAT", "LEDGER", "OUTBOX", "REGISTRY", "STORE", "FileKind"]

FORMAT = 2
"""The 2 of `fugu/2`."""


class FileKind(NamedTuple):
    """A kind of file: what it is called, and its `application_id`."""

    name: str
    application: int

    @property
    def stamps(self) -> str:
        """The statements that mark a new file."""
        return f"PRAGMA application_id={self.application};PRAGMA user_version={FORMAT};"

    def problem(self, name: str, application: int, version: int, tables: int) -> str:
        """Why a file cannot be used, in a line; empty for one of this kind and version, and for an empty one."""
        if (application, version) == (self.application, FORMAT) or not (application or version or tables):
            return ""
        if application not in (0, self.application) or not version:
            return f"{name} is no {self.name}"
        if version > FORMAT:
            return f"{self.name} {name} is of version {version}, this program knows {FORMAT}: use a newer program"
        return f"{self.name} {name} is of an older version than this program: begin with a new file"


OUTBOX = FileKind("outbox", 0x4655_4F42)
STORE = FileKind("store", 0x4655_5354)
LEDGER = FileKind("ledger", 0x4655_4C45)
REGISTRY = FileKind("fleet registry", 0x4655_464C)
