"""Files that are written for others to use: secrets are readable by their owner only, from the moment they exist.

The files of an open database are compared with what they were when it was opened. SQLite goes on in files that have
been removed or replaced, and says that what it writes is durable; nor does it see that somebody overwrites what it has
in memory. A look at i-nodes, sizes and times before and after each transaction costs some microseconds.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

from fugu.contract.errors import FuguError, Reason, cause
from fugu.host.records import damaged_record

__all__ = [
    "FileLostError",
    "HeldFiles",
    "create_private",
    "damage",
    "make_private",
    "new_folder",
    "read_text",
    "why_not_open",
    "write_public",
    "write_secret",
]


class FileError(FuguError, reason=Reason.STORAGE):
    """A file or folder cannot be read or written, or a folder is not empty."""


def new_folder(path: Path, *, private: bool = False) -> Path:
    """Make a folder, perhaps of its owner alone; FileError if it holds something, or cannot be made."""
    try:
        path.mkdir(0o700 if private else 0o777, parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise FileError(f"{path} is not empty: name a new folder, or remove it first")
        if private:
            path.chmod(0o700)
    except OSError as error:
        raise FileError(f"cannot make the folder {path}: {error.strerror}") from None
    return path


def write_secret(path: Path, content: str | bytes) -> None:
    """Write or replace a file that only its owner may read."""
    _write(path, content, 0o600)


def create_private(path: Path) -> None:
    """Make an empty file of mode 0600, whatever the umask, unless there is one or the folder takes none."""
    with suppress(OSError):
        number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            os.fchmod(number, 0o600)
        finally:
            os.close(number)


def of_database(path: Path) -> tuple[Path, ...]:
    """A database's file, its log and its index of the log."""
    real = path.resolve()
    return path.absolute(), *(real.with_name(real.name + end) for end in _ENDS)


def make_private(path: Path) -> None:
    """Take a database's files from everybody but their owner, as far as this account may."""
    for file in of_database(path):
        with suppress(OSError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def write_public(path: Path, content: str | bytes) -> None:
    """Write or replace a file that everybody on the machine may read."""
    _write(path, content, 0o644)


def read_text(path: Path, what: str) -> str:
    """Read a text file; FileError names what was looked for."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"cannot read {what} {path}: {getattr(error, 'strerror', None) or 'no text'}") from None


def _write(path: Path, content: str | bytes, mode: int) -> None:
    """Replace the file in one step, forced to disk; whoever reads it sees the old content or the new."""
    data = content.encode() if isinstance(content, str) else content
    try:
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(mode)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror}") from None
    with suppress(OSError):  # the new file is in place; a power cut may only bring the old one back
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


_ENDS = ("-wal", "-shm")
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR)


def why_not_open(path: Path, error: Exception) -> str:
    """Say why a database cannot be opened, where SQLite does not: its folder is missing, or what the system says."""
    try:
        os.close(os.open(path.absolute().parent, os.O_RDONLY))
    except FileNotFoundError:
        return f"there is no folder {path.absolute().parent.name}: make it, or name another"
    except OSError as reason:
        return cause(reason)
    return getattr(error, "strerror", None) or str(error)


class FileLostError(sqlite3.DatabaseError):
    """A file of an open database was removed, replaced or cut short: what is written into it may be lost."""


class HeldFiles:
    """A database's file, its log and its index of the log, once it is open and has been read."""

    def __init__(self, path: Path, shown: str) -> None:
        self._shown = shown
        files = of_database(path)
        self._known = {file: self._look(file) for file in files if file.exists()}
        self._main = files[0]

    def check(self, *, own: bool) -> None:
        """Raise FileLostError if one is missing, another file, shorter, or written by somebody and damaged.

        Unless the connection itself has just written (`own`), only another process's connection may have, and it is
        seen whether the file is whole. Files may have grown.
        """
        for file, known in self._known.items():
            found = self._look(file)
            if (found.st_dev, found.st_ino) != (known.st_dev, known.st_ino):
                raise FileLostError(f"{self._what(file)} is another file now")
            if found.st_size < known.st_size:
                raise FileLostError(f"{self._what(file)} has been cut short")
            self._known[file] = found
            written = found.st_mtime_ns != known.st_mtime_ns and not own
            if file == self._main and written and (problem := _damage(file)):
                raise FileLostError(f"{self._what(file)} has been overwritten, and is damaged ({problem})")

    def _look(self, file: Path) -> os.stat_result:
        try:
            return file.stat()
        except OSError as error:
            raise FileLostError(f"{self._what(file)} is gone: {error.strerror}") from None

    def _what(self, file: Path) -> str:
        return self._shown + next((end for end in _ENDS if file.name.endswith(end)), "")


def damage(db: sqlite3.Connection, table: str = "") -> str:
    """Say what is wrong with an open database, in a line; reads all of it or of a table, in order, and every checksum.

    Empty if nothing is found, also because it could not be read now: somebody may hold it, or have interrupted this.
    """
    try:
        (found,) = db.execute(f"PRAGMA quick_check({table or 1})").fetchone()
        return damaged_record(db, table) if found == "ok" else " ".join(found.split())
    except UnicodeDecodeError as error:  # what is wrong is in words that are no text
        return str(error)
    except sqlite3.DatabaseError as error:
        return str(error).partition("\n")[0] if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED else ""


def _damage(file: Path) -> str:
    """The same of a file, as it is on the disk, whatever an open connection has cached of it."""
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as db:
            db.execute("SELECT count(*) FROM sqlite_master")
            return damage(db)
    except sqlite3.OperationalError:  # nobody else may read it
        return ""
    except sqlite3.DatabaseError as error:
        return str(error)
